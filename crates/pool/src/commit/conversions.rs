//! What the committer knows of conversion: the layers that wait for it, and the one that is walked.

use crate::meta::Page;
use quoin_base::{BlockIndex, LayerId, Layout};
use quoin_world::Nanos;
use std::{collections::VecDeque, sync::Arc};

/// What is to be converted.
#[derive(Default)]
pub(crate) struct Conversions {
    /// What was looked at when the layers below were found: how often something changed, and the fault domains.
    pub(super) looked_at: Option<(u64, usize)>,
    /// None was found, and layers had become uneven so often.
    pub(super) found_none: Option<u64>,
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
    /// The most failures that any volume wants its data to survive.
    pub(super) strongest: u8,
    /// Blocks of the layer that it met.
    pub(super) met_blocks: u64,
    pub(super) leaves: Leaves,
}

/// How far a walk is.
#[derive(Default)]
pub(super) struct Leaves {
    /// Where it goes on.
    pub from: BlockIndex,
    /// Something could not be read, and stays as it is.
    pub is_incomplete: bool,
}

/// A leaf that a layer owns, and the first block that it maps.
pub(super) struct OwnLeaf {
    pub first: BlockIndex,
    pub page: Arc<Page>,
}

impl Conversions {
    /// Whether any layer waits or is walked.
    pub(super) fn is_any(&self) -> bool {
        self.walk.is_some() || !self.waiting.is_empty()
    }
}
