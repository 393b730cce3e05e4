//! The recycle bin: deleted volumes and snapshots that can be restored.

use crate::{Origin, VolumeKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;

/// The recycle bin as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecycleBin {
    /// For how long volumes are kept that are deleted from now on, in seconds; 0 if they are deleted for good at once.
    #[schema(example = 86400)]
    pub keep_s: u64,
    /// How many volumes and snapshots it holds.
    pub volumes: u64,
    /// What comes back at least if it is emptied; null while the pool is offline.
    pub held_bytes: Option<u64>,
}

/// How long deleted volumes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecycleBinSet {
    /// For how long volumes are kept that are deleted from now on, in seconds: up to 100 years; 0 to delete them for good at
    /// once. What is in the recycle bin already keeps its time.
    #[schema(example = 86400, minimum = 0, maximum = 3162240000u64)]
    pub keep_s: u64,
}

/// How a deleted volume is restored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecycleBinRestore {
    /// Another name than the one it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "v1-restored", min_length = 1, max_length = 63, pattern = "^[a-z0-9][a-z0-9._-]*$")]
    pub name: Option<String>,
    /// Restore it as a thin volume, whether it was thick or not.
    #[serde(default)]
    #[schema(default = false)]
    pub thin: bool,
}

/// A deleted volume or snapshot that can be restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeletedVolume {
    /// The name it had. Another volume may have it by now.
    #[schema(example = "v1")]
    pub name: String,
    /// Its identity, the same for life.
    pub uuid: Uuid,
    /// What sort of volume it is.
    pub kind: VolumeKind,
    /// Its size in bytes.
    #[schema(example = 4294967296u64)]
    pub size_bytes: u64,
    /// Its logical block in bytes.
    #[schema(example = 512)]
    pub block_bytes: u32,
    /// True if it was thick: the pool then reserves space for all of it when it is restored. Nothing is reserved until then.
    pub thick: bool,
    /// What people noted about it.
    #[schema(example = json!({ "app": "db1" }))]
    pub tags: BTreeMap<String, String>,
    /// The folder it was in; empty for none.
    #[schema(example = "prod/sql")]
    pub folder: String,
    /// Where it comes from; null if it is neither a snapshot nor a clone.
    pub origin: Option<Origin>,
    /// When it was created.
    pub created_ms: u64,
    /// When it was deleted.
    pub deleted_ms: u64,
    /// Who deleted it; null if that is not known.
    #[schema(example = "ann@db1 (admin, 127.0.0.1)")]
    pub deleted_by: Option<String>,
    /// When it is deleted for good, if the array runs until then: time for which the array is off does not count. Earlier if
    /// the pool needs the space.
    pub expires_ms: u64,
    /// Bytes that it maps; null while the pool is offline.
    pub mapped_bytes: Option<u64>,
    /// Bytes that come back if it alone is deleted for good; null while the pool is offline.
    pub freed_by_delete_bytes: Option<u64>,
}
