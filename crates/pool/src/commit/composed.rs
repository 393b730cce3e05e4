//! What becomes of the blocks that destage takes.

use crate::{
    buffer::TakenBlock,
    fork::layer::Layer,
    segment::{
        packed::{Packed, Whole, codec_of},
        placed_block::PlacedBlock,
    },
};
use quoin_base::{BlockNumber, LayerId};
use quoin_reduction::Codec;
use std::sync::Arc;

/// What a taken block becomes.
pub(super) enum Composition {
    Unmapped,
    Data(Whole, Form),
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

/// How a block goes into a row.
pub(crate) enum Form {
    /// As it is: it was not tried yet whether packing makes it shorter, or is not to be.
    Untried,
    /// As it is: there was no time to pack it.
    Hasty,
    /// As it is: packing does not make it shorter.
    Incompressible,
    Packed(Packed),
}

/// A block that destage took, and what it becomes.
pub(super) struct Composed {
    pub taken: TakenBlock,
    /// `None`: it was given up.
    pub layer: Option<Arc<Layer>>,
    pub content: Composition,
}

impl Composed {
    /// What it is to be packed with; `None`: it is not, or was tried already.
    pub(super) fn codec(&self) -> Option<Codec> {
        match (&self.content, &self.layer) {
            (Composition::Data(_, Form::Untried), Some(layer)) => codec_of(layer.volume.compression(), false),
            _ => None,
        }
    }

    /// How its data goes into a row, if it has any.
    pub(super) fn form(&self) -> Option<&Form> {
        match &self.content {
            Composition::Data(_, form) => Some(form),
            _ => None,
        }
    }
}
