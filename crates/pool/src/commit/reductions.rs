//! What the committer knows of the reduction of what volumes have: see `reduce.rs`.

use crate::commit::{conversions::Leaves, hasty::Hasty};
use quoin_base::{LayerId, Sequence, VolumeId};
use quoin_world::Nanos;

/// What the committer knows of reduction.
#[derive(Default)]
pub(super) struct Reductions {
    pub walk: Option<Walk>,
    /// It rests until then.
    pub rests_until: Nanos,
    /// What is reduced unasked.
    pub hasty: Hasty,
    /// Batches of the journal with data when it was last at work.
    pub data_batches: u64,
}

/// A volume that is being walked.
pub(super) struct Walk {
    pub volume: VolumeId,
    /// What came in before that is destaged first: it is to be reduced, too.
    pub awaits: Option<Sequence>,
    pub layer: LayerId,
    pub leaves: Leaves,
}
