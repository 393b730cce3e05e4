//! Reader epochs: how the committer knows that no read in flight can still look at a place it freed.
//!
//! 1. A reader enters before it looks anything up and leaves after its last drive read.
//! 2. What is freed is tagged with the epoch current at that time, and reused only when every reader that
//!    entered in that epoch or an earlier one has left.
//! 3. Entering never waits; the epoch advances only when the slot it will use is empty.

use crate::bugs::{Bug, planted};
use quoin_world::atomic::{AtomicU64, Ordering};

/// Few for a model checker, so that it gets round them.
const SLOTS: usize = if cfg!(feature = "shuttle") { 2 } else { 64 };

pub(crate) struct ReaderEpochs {
    current: AtomicU64,
    active: [AtomicU64; SLOTS],
}

/// A read in flight.
pub(crate) struct ReadGuard<'a> {
    slot: &'a AtomicU64,
}

impl ReaderEpochs {
    pub(crate) fn new() -> Self {
        Self { current: AtomicU64::new(1), active: [const { AtomicU64::new(0) }; SLOTS] }
    }

    pub(crate) fn enter(&self) -> ReadGuard<'_> {
        loop {
            let epoch = self.current.load(Ordering::SeqCst);
            let slot = &self.active[epoch as usize % SLOTS];
            slot.fetch_add(1, Ordering::SeqCst);
            if self.current.load(Ordering::SeqCst) == epoch {
                return ReadGuard { slot };
            }
            slot.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// The epoch to tag with what is freed now.
    pub(crate) fn current(&self) -> u64 {
        self.current.load(Ordering::SeqCst)
    }

    /// Starts a new epoch, unless a reader of `SLOTS` epochs ago is still there.
    pub(crate) fn advance(&self) {
        let next = self.current.load(Ordering::SeqCst) + 1;
        if self.active[next as usize % SLOTS].load(Ordering::SeqCst) == 0 || planted(Bug::LapReaders) {
            self.current.store(next, Ordering::SeqCst);
        }
    }

    /// True when every reader that entered in `epoch` or earlier has left.
    pub(crate) fn passed(&self, epoch: u64) -> bool {
        let current = self.current.load(Ordering::SeqCst);
        if epoch >= current {
            return false;
        }
        let oldest = (current + 1).saturating_sub(SLOTS as u64);
        (oldest..=epoch).all(|e| self.active[e as usize % SLOTS].load(Ordering::SeqCst) == 0)
    }
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.slot.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_freed_waits_for_readers_that_may_see_it() {
        let epochs = ReaderEpochs::new();
        let reader = epochs.enter();
        let freed_at = epochs.current();
        assert!(!epochs.passed(freed_at), "the epoch has not even ended");
        epochs.advance();
        assert!(!epochs.passed(freed_at), "its reader is still there");
        let later = epochs.enter();
        drop(reader);
        assert!(epochs.passed(freed_at), "a later reader does not matter");
        drop(later);
    }

    #[test]
    fn a_reader_that_never_leaves_stops_the_epochs_not_other_readers() {
        let epochs = ReaderEpochs::new();
        let stuck = epochs.enter();
        for _ in 0..1000 {
            drop(epochs.enter());
            epochs.advance();
        }
        assert!(epochs.current() < 1 + SLOTS as u64);
        assert!(!epochs.passed(1));
        drop(stuck);
        epochs.advance();
        assert!(epochs.passed(1));
    }
}
