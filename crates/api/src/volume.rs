//! Volumes.

use crate::{Compliance, Compression, Deduplication, Origin, VolumeKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// A volume to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeCreate {
    /// Its name: 1 to 63 characters of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit.
    #[schema(example = "v1", min_length = 1, max_length = 63, pattern = "^[a-z0-9][a-z0-9._-]*$")]
    pub name: String,
    /// Its size in bytes: a multiple of the block, at most 64 TiB.
    #[schema(example = 4294967296u64, minimum = 512, maximum = 70368744177664u64, multiple_of = 512)]
    pub size_bytes: u64,
    /// Its logical block size in bytes: 512 or 4096.
    #[serde(default = "default_block_bytes")]
    #[schema(example = 512, default = 512, minimum = 512, maximum = 4096)]
    pub block_bytes: u32,
    /// Reserve space for all of it in the pool, so that no write to it fails for lack of space.
    #[serde(default)]
    #[schema(default = false)]
    pub thick: bool,
    /// Tags: at most 32 keys with values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(example = json!({ "app": "db1" }))]
    pub tags: BTreeMap<String, String>,
    /// Its folder: names like those of volumes, joined by '/', at most 127 bytes; empty for no folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(example = "prod/sql", default = "", max_length = 127)]
    pub folder: String,
    /// A volume whose slice of the pool it goes to, so that range copies between the two share blocks. By default the pool
    /// chooses; snapshots and clones are always in the slice of their source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "v1")]
    pub near: Option<String>,
    /// Its policy; the default one if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "gold")]
    pub policy: Option<String>,
    /// How what is written to it is compressed, whatever its policy says; by default as its policy says, or else not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "lz4")]
    pub compression: Option<Compression>,
    /// Whether what is written to it is deduplicated, whatever its policy says; by default as its policy says, or else not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "on")]
    pub deduplication: Option<Deduplication>,
}

impl VolumeCreate {
    /// A thin volume of this name and size, all else as by default.
    pub fn new(name: &str, size_bytes: u64) -> Self {
        Self {
            name: name.to_owned(),
            size_bytes,
            block_bytes: default_block_bytes(),
            thick: false,
            tags: BTreeMap::new(),
            folder: String::new(),
            near: None,
            policy: None,
            compression: None,
            deduplication: None,
        }
    }
}

/// What to change about a volume. Fields that are not given stay as they are (RFC 7396).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeUpdate {
    /// The new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "v2", min_length = 1, max_length = 63, pattern = "^[a-z0-9][a-z0-9._-]*$")]
    pub name: Option<String>,
    /// The new size in bytes. Hosts that see the volume learn of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 8589934592u64, minimum = 512, maximum = 70368744177664u64, multiple_of = 512)]
    pub size_bytes: Option<u64>,
    /// Shrink it although it holds data beyond its new end, which is lost, or hosts that see it are logged in; make
    /// it a template or read-only although connected clients may write to it. Without this, each is refused.
    #[serde(default)]
    #[schema(default = false)]
    pub force: bool,
    /// Whether the pool reserves space for all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thick: Option<bool>,
    /// Tags to set. A tag whose value is null is removed; the others stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!({ "app": "db2", "old": null }))]
    pub tags: Option<BTreeMap<String, Option<String>>>,
    /// The new folder; empty for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "prod/sql")]
    pub folder: Option<String>,
    /// The new policy, also of its snapshots. Its data is moved in the background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "gold")]
    pub policy: Option<String>,
    /// How what is written to it from now on is compressed. What it has stays as it is until it is
    /// reduced on request, or the array moves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "zstd")]
    pub compression: Option<Compression>,
    /// Whether what is written to it from now on is deduplicated. What it has stays as it is, unless it is reduced on
    /// request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "on")]
    pub deduplication: Option<Deduplication>,
    /// Whether it is a template: a write-protected volume to make clones of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<bool>,
    /// Whether hosts may write to it by default. Snapshots start read-only. A mapping or export with read-write
    /// access overrides this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writable: Option<bool>,
}

/// How a volume, snapshot or set is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Deletion {
    /// Remove its mappings and exports too. Otherwise a volume that has any is not deleted.
    #[serde(default)]
    #[param(required = false)]
    pub unmap: bool,
    /// Delete it although hosts that see it are logged in, or it is in a consistency group.
    #[serde(default)]
    #[param(required = false)]
    pub force: bool,
    /// Delete it for good at once instead of keeping it in the recycle bin.
    #[serde(default)]
    #[param(required = false)]
    pub now: bool,
}

fn default_block_bytes() -> u32 {
    512
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// Its name.
    #[schema(example = "v1")]
    pub name: String,
    /// Its identity, which never changes; hosts see it in VPD page 83h.
    pub uuid: Uuid,
    /// The name of the disk that hosts see over iSCSI, in the form of NAA; it follows from the UUID.
    #[serde(default)]
    #[schema(example = "naa.60251555f48f4719b11d76b3de464f6d")]
    pub wwn: String,
    /// Its size in bytes.
    #[schema(example = 4294967296u64)]
    pub size_bytes: u64,
    /// Its logical block size in bytes.
    #[schema(example = 512)]
    pub block_bytes: u32,
    /// Bytes allocated in the pool; null while the pool is offline.
    pub mapped_bytes: Option<u64>,
    /// Bytes freed if only this volume is deleted; data that it shares with others stays. Too low while earlier
    /// deletions are being reclaimed; null while the pool is offline.
    pub freed_by_delete_bytes: Option<u64>,
    /// Whether the pool reserves space for all of it.
    pub thick: bool,
    /// Bytes reserved for it, used or not: 0 for a thin volume; null while the pool is offline.
    pub reserved_bytes: Option<u64>,
    /// True after it was shrunk, while the space beyond its end is being reclaimed.
    pub trimming: bool,
    /// Its tags.
    #[schema(example = json!({ "app": "db1" }))]
    pub tags: BTreeMap<String, String>,
    /// Its folder; empty for none.
    #[schema(example = "prod/sql")]
    pub folder: String,
    /// Its policy.
    #[schema(example = "gold")]
    pub policy: String,
    /// Whether it is as its policy says; null while the pool is offline.
    pub compliance: Option<Compliance>,
    /// How what is written to it is compressed; null while the pool is offline.
    #[serde(default)]
    pub compression: Option<Compression>,
    /// Whether what is written to it is deduplicated; null while the pool is offline.
    #[serde(default)]
    pub deduplication: Option<Deduplication>,
    /// Its kind.
    pub kind: VolumeKind,
    /// Whether hosts may write to it, unless their mapping or export says otherwise.
    pub writable: bool,
    /// For a snapshot, when it was first modified after it was taken; null if it was not, and for other volumes.
    pub modified_ms: Option<u64>,
    /// Until when it is immutable, if the array runs until then; null if it is not.
    pub retain_until_ms: Option<u64>,
    /// When it was created.
    pub created_ms: u64,
    /// Its origin; null if it is neither a snapshot nor a clone.
    pub origin: Option<Origin>,
    /// Why it refuses all I/O: its snapshots hold more than a snapshot reserve allows, or the pool is offline. Null while it
    /// is served.
    pub offline: Option<String>,
    /// Its consistency group; null if it is in none.
    #[schema(example = "db1")]
    pub group: Option<String>,
    /// The hosts that it is mapped to.
    pub mappings: Vec<VolumeMapping>,
}

/// A mapping of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeMapping {
    /// The host.
    #[schema(example = "h1")]
    pub host: String,
    /// The logical unit number.
    #[schema(example = 1)]
    pub lun: u16,
}
