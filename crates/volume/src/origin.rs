//! Where a snapshot or clone comes from.

use quoin_base::VolumeId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Whether a volume was made as a snapshot or as a clone of another. Both are volumes like any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OriginKind {
    /// Keeps the content of the source as of one moment.
    Snapshot,
    /// Continues from the content of the source independently.
    Clone,
}

/// Where a snapshot or clone comes from. The source may have been renamed or deleted since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// Snapshot or clone.
    pub kind: OriginKind,
    /// The volume whose content it holds. Ids are never reused.
    pub source: VolumeId,
    /// The name of the source at that time.
    pub source_name: String,
    /// When its content was taken, in milliseconds since the Unix epoch.
    pub taken_ms: u64,
    /// The set that it is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<SetOf>,
}

/// A set: the snapshots of all volumes of a group, of one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetOf {
    /// The group, which may have been deleted.
    pub group: Uuid,
    /// The name of the set, also the end of its snapshots' names.
    pub name: String,
}
