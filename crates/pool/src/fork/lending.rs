//! Blocks with one reference that deduplication is about to share.

use quoin_base::BlockNumber;
use quoin_world::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};
use std::collections::BTreeSet;

/// Overwriting a block with one reference takes no space, and hosts are told so. Overwriting a shared one does. So a block is named
/// here before it is shared, until the block table counts its second reference.
#[derive(Default)]
pub(crate) struct Lending {
    numbers: Mutex<BTreeSet<BlockNumber>>,
    /// How often anything was added.
    begun: AtomicU64,
}

impl Lending {
    /// From here on overwriting these blocks takes space.
    pub(crate) fn begin(&self, numbers: impl IntoIterator<Item = BlockNumber>) {
        self.numbers.lock().extend(numbers);
        self.begun.fetch_add(1, Ordering::AcqRel);
    }

    /// The block table knows of them, or they are not shared after all.
    pub(crate) fn end(&self) {
        self.numbers.lock().clear();
    }

    /// Changes whenever blocks are added.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    pub(crate) fn is_any(&self) -> bool {
        !self.numbers.lock().is_empty()
    }

    pub(crate) fn has(&self, number: BlockNumber) -> bool {
        self.numbers.lock().contains(&number)
    }
}
