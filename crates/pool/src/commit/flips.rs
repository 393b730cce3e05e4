//! Bits that flip in RAM between receipt and destage, for tests of what happens then.

use crate::buffer::{Content, TakenBlock};
use quoin_world::atomic::{AtomicU64, Ordering};

/// Blocks of which a test wants a bit flipped.
#[derive(Default)]
pub(crate) struct Flips(AtomicU64);

impl Flips {
    /// Of each of the next so many blocks with data in RAM that are destaged, a bit flips between receipt and destage.
    pub(crate) fn add(&self, blocks: u64) {
        self.0.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Flips the bits of blocks that destage took.
    pub(crate) fn apply(&self, taken: &mut [TakenBlock]) {
        let mut left = self.0.swap(0, Ordering::Relaxed);
        if left == 0 {
            return;
        }
        for block in taken.iter_mut() {
            if left == 0 {
                return;
            }
            let bit = block.key.index.0 as usize * 7919;
            let in_ram = block.fragments.iter_mut().find_map(|fragment| match &mut fragment.content {
                Content::Ram(received) => Some(received),
                Content::Zero | Content::Journal(_) | Content::Placed(_) | Content::Shared(_) => None,
            });
            if let Some(received) = in_ram {
                *received = received.flipped(bit);
                left -= 1;
            }
        }
        self.0.fetch_add(left, Ordering::Relaxed);
    }
}
