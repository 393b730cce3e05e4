//! Where a snapshot or clone comes from.

use quoin_base::VolumeId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What a volume that comes from another was made as. Both are volumes like any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OriginKind {
    /// To keep what the source was at a moment.
    Snapshot,
    /// To go on from it.
    Clone,
}

/// Where a snapshot or clone comes from. The source may have another name by now, or be gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// What it was made as.
    pub kind: OriginKind,
    /// The volume it holds the content of. Ids are never used again.
    pub source: VolumeId,
    /// What that was called then.
    pub source_name: String,
    /// The moment of which it is, in milliseconds since the Unix epoch.
    pub taken_ms: u64,
    /// The set that it is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<SetOf>,
}

/// A set: the snapshots of all volumes of a group, of one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetOf {
    /// The group, which may be gone.
    pub group: Uuid,
    /// What the set is called, also the end of its snapshots' names.
    pub name: String,
}
