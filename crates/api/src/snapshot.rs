//! Snapshots and clones: volumes that come from others.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};
use utoipa::ToSchema;

/// What a volume that comes from another was made as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OriginKind {
    /// To keep what the source was at a moment.
    Snapshot,
    /// To go on from it.
    Clone,
}

impl fmt::Display for OriginKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Snapshot => "snapshot",
            Self::Clone => "clone",
        })
    }
}

/// Where a snapshot or clone comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Origin {
    /// What it was made as.
    pub kind: OriginKind,
    /// The volume it holds the content of: its name now, or its last one if it was deleted.
    #[schema(example = "v1")]
    pub source: String,
    /// True if that volume was deleted.
    pub source_deleted: bool,
    /// The moment of which it is.
    pub taken_ms: u64,
    /// The consistency group of whose volumes it is one of a set of snapshots; null if it is none of a set, or if the
    /// group was deleted.
    #[schema(example = "db1")]
    pub group: Option<String>,
    /// The name of that set; null if there is no such group.
    #[schema(example = "20261120-133801")]
    pub set: Option<String>,
}

/// A snapshot to take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotCreate {
    /// The volume; a snapshot or clone may be one.
    #[schema(example = "v1")]
    pub volume: String,
    /// The snapshot's name; the volume's with date and time in UTC if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        example = "v1.before-upgrade",
        min_length = 1,
        max_length = 63,
        pattern = "^[a-z0-9][a-z0-9._-]*$"
    )]
    pub name: Option<String>,
    /// What people note about it: at most 32 keys and their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(example = json!({ "why": "upgrade" }))]
    pub tags: BTreeMap<String, String>,
    /// Let hosts write to it; without this it is read-only for them.
    #[serde(default)]
    #[schema(default = false)]
    pub writable: bool,
    /// Make it immutable for so many seconds: until then nobody deletes or changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 604800u64, minimum = 1, maximum = 3162240000u64)]
    pub retain_s: Option<u64>,
}

/// A clone to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CloneCreate {
    /// The clone's name.
    #[schema(example = "v1-test", min_length = 1, max_length = 63, pattern = "^[a-z0-9][a-z0-9._-]*$")]
    pub name: String,
    /// Keep space for all of it in the pool.
    #[serde(default)]
    #[schema(default = false)]
    pub thick: bool,
    /// What people note about it: at most 32 keys and their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(example = json!({ "app": "test" }))]
    pub tags: BTreeMap<String, String>,
    /// The folder it begins in, its source's if not given; empty for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "test/sql", max_length = 127)]
    pub folder: Option<String>,
}

/// A volume to become what a snapshot is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRestore {
    /// The volume; the snapshot's source if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "v1")]
    pub to: Option<String>,
    /// Take a snapshot of this name of what the volume is now. No write comes between it and the restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        example = "v1.before-restore",
        min_length = 1,
        max_length = 63,
        pattern = "^[a-z0-9][a-z0-9._-]*$"
    )]
    pub keep: Option<String>,
    /// Do so though hosts that see the volume are logged in, and though the snapshot was modified after it was taken.
    #[serde(default)]
    #[schema(default = false)]
    pub force: bool,
}

/// A snapshot or clone to become what its source is now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRefresh {
    /// Another volume to become what it is, from then on its source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "v1")]
    pub from: Option<String>,
    /// Do so though hosts that see the snapshot or clone are logged in, and though it becomes what a modified snapshot is.
    #[serde(default)]
    #[schema(default = false)]
    pub force: bool,
}
