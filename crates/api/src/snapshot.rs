//! Snapshots and clones: volumes that come from others.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};
use utoipa::ToSchema;

/// How a volume was made from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OriginKind {
    /// To keep the content of its source at one moment.
    Snapshot,
    /// For further, independent use.
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

/// The origin of a snapshot or clone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Origin {
    /// How it was made.
    pub kind: OriginKind,
    /// The source volume: its name now, or its last name if it was deleted.
    #[schema(example = "v1")]
    pub source: String,
    /// Whether the source was deleted.
    pub source_deleted: bool,
    /// The moment whose content it holds.
    pub taken_ms: u64,
    /// The consistency group of the set that it belongs to; null if it belongs to no set, or if the group was
    /// deleted.
    #[schema(example = "db1")]
    pub group: Option<String>,
    /// The name of the set; null if there is no such group.
    #[schema(example = "20261120-133801")]
    pub set: Option<String>,
}

/// A snapshot to take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotCreate {
    /// The volume. It may itself be a snapshot or clone.
    #[schema(example = "v1")]
    pub volume: String,
    /// The name of the snapshot; the volume's name with date and time in UTC if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        example = "v1.before-upgrade",
        min_length = 1,
        max_length = 63,
        pattern = "^[a-z0-9][a-z0-9._-]*$"
    )]
    pub name: Option<String>,
    /// Tags: at most 32 keys with values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(example = json!({ "why": "upgrade" }))]
    pub tags: BTreeMap<String, String>,
    /// Let hosts write to it. Otherwise hosts may only read it.
    #[serde(default)]
    #[schema(default = false)]
    pub writable: bool,
    /// Make it immutable for this many seconds: until then nobody can delete or change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 604800u64, minimum = 1, maximum = 3162240000u64)]
    pub retain_s: Option<u64>,
}

/// A clone to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CloneCreate {
    /// The name of the clone.
    #[schema(example = "v1-test", min_length = 1, max_length = 63, pattern = "^[a-z0-9][a-z0-9._-]*$")]
    pub name: String,
    /// Reserve space for all of it in the pool.
    #[serde(default)]
    #[schema(default = false)]
    pub thick: bool,
    /// Tags: at most 32 keys with values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(example = json!({ "app": "test" }))]
    pub tags: BTreeMap<String, String>,
    /// The folder of the clone; that of its source if not given; empty for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "test/sql", max_length = 127)]
    pub folder: Option<String>,
}

/// A restore of a volume from a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRestore {
    /// The volume to restore; the snapshot's source if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "v1")]
    pub to: Option<String>,
    /// First take a snapshot with this name of the volume's current content. No write comes between it and the
    /// restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        example = "v1.before-restore",
        min_length = 1,
        max_length = 63,
        pattern = "^[a-z0-9][a-z0-9._-]*$"
    )]
    pub keep: Option<String>,
    /// Restore although hosts that see the volume are logged in, or the snapshot was modified after it was taken.
    #[serde(default)]
    #[schema(default = false)]
    pub force: bool,
}

/// A refresh of a snapshot or clone from its source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRefresh {
    /// Take the content of this volume instead, which becomes the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "v1")]
    pub from: Option<String>,
    /// Refresh although hosts that see the snapshot or clone are logged in, or its new content is a modified
    /// snapshot.
    #[serde(default)]
    #[schema(default = false)]
    pub force: bool,
}
