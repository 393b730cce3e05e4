//! What becomes of the blocks that destage takes.

use crate::{
    buffer::TakenBlock,
    fork::layer::{Layer, VolumeState},
    format::{BlockInfo, Location, References},
    meta::Page,
    segment::{
        packed::{Packed, Whole},
        placed_block::PlacedBlock,
    },
};
use quoin_base::BlockNumber;
use quoin_reduction::Fingerprint;
use quoin_world::Slice as Bytes;
use std::sync::Arc;

/// What a taken block becomes.
pub(super) enum Composition {
    Unmapped,
    Data(Fresh),
    /// It lies in a row already, and has the number.
    Placed {
        block: Arc<PlacedBlock>,
        number: BlockNumber,
    },
    /// A block that there is, and that has one reference more for it by now.
    Shared(Shared),
    /// The block that its map leads to already.
    Kept,
    /// It cannot be completed: what lies below the buffered part is damaged.
    Lost,
    /// It cannot be completed now: a drive failed to read what lies below. Unless it was tried, it rests since it failed last.
    Unread {
        tried: bool,
    },
}

/// A block that there is.
pub(super) struct Shared {
    pub number: BlockNumber,
    pub location: Location,
    /// The page of the block table with its entry: while it is held it cannot fail to be read.
    pub page: Arc<Page>,
}

/// A block that goes into a row, unless another has the same content.
pub(super) struct Fresh {
    pub whole: Whole,
    pub form: Form,
    /// Of its content; `None`: it is not known, and the block is not deduplicated.
    pub fingerprint: Option<Fingerprint>,
}

impl Fresh {
    /// One of which nothing is known yet.
    pub(super) fn new(whole: Whole) -> Self {
        Self { whole, form: Form::Untried, fingerprint: None }
    }

    /// What goes into the row, its checksum, and how it is stored.
    pub(super) fn stored(&self) -> (&Bytes, u32, u8) {
        match &self.form {
            Form::Untried | Form::Plain | Form::Hasty | Form::Incompressible => {
                (&self.whole.data, self.whole.crc, BlockInfo::PLAIN)
            }
            Form::Packed(packed) => (&packed.stored, packed.crc, packed.algorithm),
        }
    }
}

/// How a block goes into a row.
pub(crate) enum Form {
    /// As it is: it was not tried yet whether packing makes it shorter.
    Untried,
    /// As it is: it is not to be packed.
    Plain,
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
    /// The reference that a new block has.
    pub(super) fn borne(&self) -> References {
        References::Sole(self.taken.key.layer)
    }

    /// What is to be reduced of it, with the volume that says how; `None`: nothing, or it was tried already.
    pub(super) fn unreduced(&mut self) -> Option<(&mut Fresh, &VolumeState)> {
        match (&mut self.content, &self.layer) {
            (Composition::Data(fresh), Some(layer)) if matches!(fresh.form, Form::Untried) => {
                let volume = &*layer.volume;
                volume.is_reduced().then_some((fresh, volume))
            }
            _ => None,
        }
    }

    /// Its content, if it goes into a row unless another has the same.
    pub(super) fn fresh(&self) -> Option<&Fresh> {
        match &self.content {
            Composition::Data(fresh) => Some(fresh),
            _ => None,
        }
    }
}
