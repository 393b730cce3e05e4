//! Immutable snapshots, and the clock by which they are kept.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How long a snapshot shall be immutable from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRetain {
    /// For so many seconds, at most 100 years. Less than is left of the time it has is refused.
    #[schema(example = 604800u64, minimum = 1, maximum = 3162240000u64)]
    pub retain_s: u64,
    /// Do so though clients are connected that may write to it: their writes fail from then on.
    #[serde(default)]
    #[schema(default = false)]
    pub force: bool,
}

/// The clock by which immutable snapshots are kept: it passes only while the pool is open, whatever the wall clock is set
/// to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Retention {
    /// Snapshots that are immutable.
    pub immutable_snapshots: u64,
    /// What the clock shows. It began with the wall clock when the first of them became immutable.
    pub clock_ms: u64,
    /// How far it is behind the wall clock: the time for which the array was off, and what the wall clock was set forward.
    /// Below 0 the wall clock was set back.
    pub behind_ms: i64,
    /// True when the wall clock is behind: it was set back. What is immutable stays so all the same.
    pub wall_clock_set_back: bool,
}
