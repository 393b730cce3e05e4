//! What becomes of the blocks that destage takes.

use crate::{
    buffer::TakenBlock, commit::compose::Whole, fork::layer::Layer, segment::placed_block::PlacedBlock,
};
use quoin_base::{BlockNumber, LayerId};
use std::sync::Arc;

/// What a taken block becomes.
pub(super) enum Composition {
    Unmapped,
    Data(Whole),
    /// It lies in a row already, and has the number.
    Placed {
        block: Arc<PlacedBlock>,
        number: BlockNumber,
    },
    /// A block that there is, which a layer owns.
    Shared {
        number: BlockNumber,
        owner: LayerId,
    },
    /// It cannot be completed: what lies below the buffered part is damaged.
    Lost,
    /// It cannot be completed now: a drive failed to read what lies below. Unless it was tried, it rests since it failed last.
    Unread {
        tried: bool,
    },
}

/// A block that destage took, and what it becomes.
pub(super) struct Composed {
    pub taken: TakenBlock,
    /// `None`: it was given up.
    pub layer: Option<Arc<Layer>>,
    pub content: Composition,
}
