//! The snapshot reserve: how much of the pool snapshots may hold, and what happens beyond.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// What is done when snapshots hold more than they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReservePolicy {
    /// The oldest snapshots are deleted, but for those that are immutable, mapped or exported.
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

/// A snapshot reserve to set: a part of the pool, or a size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReserveSet {
    /// So many percent of the space for host data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 20, minimum = 1, maximum = 100)]
    pub percent: Option<u8>,
    /// So many bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 107374182400u64, minimum = 1)]
    pub bytes: Option<u64>,
    /// What is done when snapshots hold more.
    pub policy: ReservePolicy,
}

/// The snapshot reserve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reserve {
    /// So many percent of the space for host data; null if it is a size, or if there is none.
    pub percent: Option<u8>,
    /// What snapshots may hold; null if there is no reserve, or while the pool is offline.
    pub limit_bytes: Option<u64>,
    /// What is done when they hold more; null if there is no reserve.
    pub policy: Option<ReservePolicy>,
    /// What is held by snapshots alone: at least so much comes back when all are deleted. Null while the pool is offline.
    pub held_bytes: Option<u64>,
    /// Volumes that refuse I/O because snapshots hold too much.
    pub offline_volumes: Vec<String>,
}
