//! How much metadata may be dirty before a checkpoint is made: as much as the options say, and in a small pool only a part of its
//! size, for more than twice as much is kept free for checkpoints.
//!
//! It is decided at each opening, and a pool may have grown since the last one, or got more RAM. Invariants:
//! 1. What is live and promised fits beside what is kept free: a checkpoint never runs out of slabs.
//! 2. Every root tells the limit that was in force. What only the journal holds was admitted beside that: an opening that replays
//!    anything takes no greater one.
//! 3. Nor does any other opening if the pool is more than half full: hosts reckon with the space that they were told of.

use crate::{
    format::PAGE_BYTES,
    lifecycle::{open::Opened, options::PoolOptions, slice::Slice},
};
use std::iter;

/// Dirty metadata below which a checkpoint would hardly ever not be due.
const LEAST_DIRTY_BYTES: u64 = 256 << 10;
/// The part of the space for host data from which on what is taken keeps the limit from growing.
const MUCH: u64 = 2;

impl Opened {
    /// Metadata that may be dirty. `replays`: the journal holds something beyond the root.
    pub(super) fn dirty_bytes(&self, options: &PoolOptions, replays: bool) -> u64 {
        let slab_bytes = u64::from(self.io.store.slab_bytes());
        let slabs = self.io.segments.fair_slabs(&self.io.store);
        let most = options.dirty_bytes.min(slabs * slab_bytes / 32).max(LEAST_DIRTY_BYTES);
        let (live, promised) = (self.io.segments.usage().net_live_data, self.promised_bytes());
        let taken = live.saturating_add(promised);
        let before = u64::from(self.root.dirty_pages.get()) * PAGE_BYTES as u64;
        let is_free = !replays && taken <= self.gauge(most, options).limit() / MUCH;
        let most = if before == 0 || is_free { most } else { most.min(before) };
        // A full pool goes on replacing what is there; what is promised must fit in any case.
        let keeps = |&dirty: &u64| {
            let space = self.gauge(dirty, options);
            if promised == 0 { space.may_replace() } else { taken <= space.limit() }
        };
        let half = |&dirty: &u64| (dirty > LEAST_DIRTY_BYTES).then(|| (dirty / 2).max(LEAST_DIRTY_BYTES));
        iter::successors(Some(most), half).find(keeps).unwrap_or(most)
    }
}

impl Slice {
    /// Pages of metadata that may be dirty before a checkpoint is made, as roots tell it.
    pub(crate) fn dirty_pages(&self) -> u32 {
        u32::try_from(self.options().dirty_bytes / PAGE_BYTES as u64).unwrap_or(u32::MAX)
    }
}
