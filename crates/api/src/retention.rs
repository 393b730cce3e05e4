//! Immutable snapshots, and the clock by which they are kept.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How long a snapshot is immutable from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRetain {
    /// The time in seconds, at most 100 years. A time that ends earlier than the current one is refused.
    #[schema(example = 604800u64, minimum = 1, maximum = 3162240000u64)]
    pub retain_s: u64,
    /// Make it immutable although connected clients may write to it: their writes fail from then on.
    #[serde(default)]
    #[schema(default = false)]
    pub force: bool,
}

/// The clock of immutable snapshots. It advances only while the pool is open, whatever the wall clock is set to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Retention {
    /// The number of immutable snapshots.
    pub immutable_snapshots: u64,
    /// The time of this clock. It started at the time of the wall clock when the first snapshot became immutable.
    pub clock_ms: u64,
    /// How far it is behind the wall clock: the time for which the array was off, plus what the wall clock was set
    /// forward. Negative if the wall clock was set back.
    pub behind_ms: i64,
    /// Whether the wall clock is behind because it was set back. Snapshots stay immutable nevertheless.
    pub wall_clock_set_back: bool,
}
