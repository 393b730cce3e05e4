//! Snapshot reserves: how much space the snapshots of the pool, of a volume or of a group may hold, and what happens beyond.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// What is done when snapshots hold more than they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReservePolicy {
    /// The oldest snapshots that free space are deleted, but for those that are immutable, mapped or exported, and the
    /// newest snapshot of a volume that was deleted.
    DeleteOldest,
    /// Volumes that have snapshots refuse all I/O until there is less again: delete snapshots, or raise the reserve.
    OfflineVolume,
}

impl fmt::Display for ReservePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeleteOldest => "delete-oldest",
            Self::OfflineVolume => "offline-volume",
        })
    }
}

/// Whose snapshots a reserve limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReserveScope {
    /// All snapshots.
    Pool,
    /// The snapshots of one volume.
    Volume,
    /// The snapshots of the volumes of one consistency group.
    Group,
}

impl fmt::Display for ReserveScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pool => "pool",
            Self::Volume => "volume",
            Self::Group => "group",
        })
    }
}

/// A snapshot reserve to set: a percentage or a size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReserveSet {
    /// So many percent: of the pool's space for host data, of the volume's size, or of the sizes of the group's volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 20, minimum = 1, maximum = 100)]
    pub percent: Option<u8>,
    /// So many bytes.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::optional_int64")]
    #[schema(example = 107374182400u64, minimum = 1)]
    pub bytes: Option<u64>,
    /// What is done when snapshots hold more.
    pub policy: ReservePolicy,
    /// Set it though it deletes snapshots or takes volumes offline at once. Without this it is refused then; a preview tells
    /// which. A preview ignores this.
    #[serde(default)]
    #[schema(default = false)]
    pub confirm: bool,
}

/// A snapshot reserve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reserve {
    /// Whose snapshots it limits.
    pub scope: ReserveScope,
    /// The volume or group; null for the pool.
    #[schema(example = "v1")]
    pub name: Option<String>,
    /// The limit in percent; null if it is a size, or if there is none.
    pub percent: Option<u8>,
    /// What the snapshots may hold; null if there is no reserve, or while the pool is offline.
    pub limit_bytes: Option<u64>,
    /// What is done when they hold more; null if there is no reserve.
    pub policy: Option<ReservePolicy>,
    /// What the snapshots hold alone: at least so much comes back when all are deleted. Null while the pool is offline.
    pub held_bytes: Option<u64>,
    /// Volumes that refuse I/O because of this reserve.
    pub offline_volumes: Vec<String>,
}

/// What a snapshot reserve would do at once if it were set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReservePreview {
    /// What the snapshots could hold.
    pub limit_bytes: u64,
    /// What they hold now.
    pub held_bytes: u64,
    /// What it would delete, in this order.
    pub would_delete: Vec<ReserveDeletion>,
    /// What the snapshots would hold then. If that is not below the limit, nothing else may be deleted.
    pub held_after_bytes: u64,
    /// Volumes that it would take offline.
    #[schema(example = json!(["v1"]))]
    pub would_take_offline: Vec<String>,
}

/// Snapshots that a reserve would delete together: one, a set of a group, or several that hold space only together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReserveDeletion {
    /// The snapshots.
    #[schema(example = json!(["v1.before-upgrade"]))]
    pub snapshots: Vec<String>,
    /// When the oldest of them was taken.
    pub taken_ms: u64,
    /// What comes back at least.
    pub freed_bytes: u64,
}
