//! Bits that flip in RAM between receipt and destage, for tests of what happens then.

use crate::{
    buffer::{Content, TakenBlock},
    lifecycle::slice::Slice,
};
use quoin_world::atomic::Ordering;

impl Slice {
    /// For tests of what happens then: of each of the next so many blocks with data in RAM that are destaged, a bit
    /// flips between receipt and destage.
    pub(crate) fn flip_bits(&self, blocks: u64) {
        self.flips.fetch_add(blocks, Ordering::Relaxed);
    }

    pub(crate) fn flip_bits_of(&self, taken: &mut [TakenBlock]) {
        let mut left = self.flips.swap(0, Ordering::Relaxed);
        if left == 0 {
            return;
        }
        for block in taken.iter_mut() {
            if left == 0 {
                return;
            }
            let bit = block.key.index as usize * 7919;
            let in_ram = block.extents.iter_mut().find_map(|extent| match &mut extent.content {
                Content::Ram(received) => Some(received),
                Content::Zero | Content::Journal(_) | Content::Placed(_) | Content::Shared(_) => None,
            });
            if let Some(received) = in_ram {
                *received = received.flipped(bit);
                left -= 1;
            }
        }
        self.flips.fetch_add(left, Ordering::Relaxed);
    }
}
