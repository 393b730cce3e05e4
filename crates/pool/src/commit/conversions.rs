//! What the committer knows of conversion: the layers that wait for it, and the one that is walked.

use quoin_base::{BlockIndex, LayerId, Layout};
use quoin_world::Nanos;
use std::collections::VecDeque;

/// What is to be converted.
#[derive(Default)]
pub(crate) struct Conversions {
    /// What was looked at when the layers below were found: how often something changed, and the fault domains.
    pub(super) looked_at: Option<(u64, usize)>,
    /// A layer was converted since.
    pub(super) has_converted: bool,
    pub(super) waiting: VecDeque<LayerId>,
    pub(super) walk: Option<Walk>,
    /// It rests until then.
    pub(super) rests_until: Nanos,
    /// Batches of the journal with data when it was last at work.
    pub(super) data_batches: u64,
}

/// A layer that is being walked.
pub(super) struct Walk {
    pub(super) layer: LayerId,
    /// What was true of it when the walk began: see [`Layer::mixes`].
    pub(super) mixes: u64,
    pub(super) wanted: Option<Layout>,
    /// What segments of that are tagged with, as drives are.
    pub(super) tag: Option<Layout>,
    /// Blocks of the layer that it met.
    pub(super) met_blocks: u64,
    /// Where it goes on.
    pub(super) from: BlockIndex,
    /// Something could not be read, and stays where it is.
    pub(super) is_incomplete: bool,
}

impl Conversions {
    /// Whether any layer waits or is walked.
    pub(super) fn is_any(&self) -> bool {
        self.walk.is_some() || !self.waiting.is_empty()
    }
}
