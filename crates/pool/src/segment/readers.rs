//! Reader epochs: how the committer knows that no read in flight can still look at a place it freed.
//!
//! 1. A reader enters before it looks anything up and leaves after its last drive read.
//! 2. What is freed is tagged with the epoch current at that time, and reused only when every reader that
//!    entered in that epoch or an earlier one has left.
//! 3. Entering never waits; the epoch advances only when the slots it will use are empty.
//!
//! Each data thread counts its readers by itself, so that entering and leaving write nothing that another thread does;
//! all other threads, which read for no host, share one count. Only the committer looks at all counts. It need not see
//! them at one moment: a reader in an epoch that is over was counted before that ended, and a reader that counts itself
//! later finds that the epoch is another, and leaves.

use crate::bugs::{Bug, planted};
use quoin_world::{
    Thread,
    atomic::{AtomicU64, Ordering},
};

/// A span of time that readers are counted by. Each is of a higher number than those before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ReaderEpoch(u64);

impl ReaderEpoch {
    /// Which count of its thread's readers is that of its own.
    fn slot(self) -> usize {
        self.0 as usize % SLOTS
    }
}

/// Few for a model checker, so that it gets round them.
const SLOTS: usize = if cfg!(feature = "shuttle") { 2 } else { 64 };

/// The readers of one thread, by epoch. Two cache lines, since processors fetch them in pairs.
#[repr(align(128))]
struct Active([AtomicU64; SLOTS]);

/// Read by every reader and seldom written: on a cache line of its own.
#[repr(align(128))]
struct Current(AtomicU64);

pub(crate) struct ReaderEpochs {
    current: Current,
    /// Of each data thread; the last of all others.
    active: Box<[Active]>,
}

/// A read in flight.
pub(crate) struct ReadGuard<'a> {
    slot: &'a AtomicU64,
}

impl ReaderEpochs {
    pub(crate) fn new(data_threads: usize) -> Self {
        let none = || Active([const { AtomicU64::new(0) }; SLOTS]);
        Self { current: Current(AtomicU64::new(1)), active: (0..=data_threads).map(|_| none()).collect() }
    }

    /// A reader on this thread.
    pub(crate) fn enter(&self, thread: Option<Thread>) -> ReadGuard<'_> {
        let others = self.active.len() - 1;
        let Active(active) = match thread {
            Some(Thread::Data(thread)) => &self.active[thread.min(others)],
            _ => &self.active[others],
        };
        loop {
            let epoch = self.current();
            let slot = &active[epoch.slot()];
            slot.fetch_add(1, Ordering::SeqCst);
            if self.current() == epoch {
                return ReadGuard { slot };
            }
            slot.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// The epoch to tag with what is freed now.
    pub(crate) fn current(&self) -> ReaderEpoch {
        ReaderEpoch(self.current.0.load(Ordering::SeqCst))
    }

    /// True when no thread has a reader in the slot of this epoch.
    fn is_empty(&self, epoch: ReaderEpoch) -> bool {
        self.active.iter().all(|Active(active)| active[epoch.slot()].load(Ordering::SeqCst) == 0)
    }

    /// Starts a new epoch, unless a reader of `SLOTS` epochs ago is still there.
    pub(crate) fn advance(&self) {
        let next = ReaderEpoch(self.current().0 + 1);
        if self.is_empty(next) || planted(Bug::LapReaders) {
            self.current.0.store(next.0, Ordering::SeqCst);
        }
    }

    /// True when every reader that entered in `epoch` or earlier has left.
    pub(crate) fn passed(&self, epoch: ReaderEpoch) -> bool {
        let current = self.current();
        if epoch >= current {
            return false;
        }
        let oldest = (current.0 + 1).saturating_sub(SLOTS as u64);
        (oldest..=epoch.0).all(|epoch| self.is_empty(ReaderEpoch(epoch)))
    }
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        let before = self.slot.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "a reader leaves the epoch that it entered, once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quoin_base::SliceId;

    #[test]
    fn what_was_freed_waits_for_readers_that_may_see_it() {
        let epochs = ReaderEpochs::new(2);
        let reader = epochs.enter(Some(Thread::Data(0)));
        let freed_at = epochs.current();
        assert!(!epochs.passed(freed_at), "the epoch has not even ended");
        epochs.advance();
        assert!(!epochs.passed(freed_at), "its reader is still there");
        let later = epochs.enter(Some(Thread::Data(1)));
        drop(reader);
        assert!(epochs.passed(freed_at), "a later reader does not matter");
        drop(later);
    }

    #[test]
    fn a_reader_that_never_leaves_stops_the_epochs_not_other_readers() {
        let epochs = ReaderEpochs::new(2);
        let stuck = epochs.enter(None);
        for _ in 0..1000 {
            drop(epochs.enter(None));
            epochs.advance();
        }
        assert!(epochs.current().0 < 1 + SLOTS as u64);
        assert!(!epochs.passed(ReaderEpoch(1)));
        drop(stuck);
        epochs.advance();
        assert!(epochs.passed(ReaderEpoch(1)));
    }

    #[test]
    fn a_reader_counts_wherever_it_is() {
        let committer = Thread::Committer(SliceId(0));
        let data = [0, 1].map(Thread::Data);
        let threads = data.into_iter().chain([committer, Thread::Background]).map(Some).chain([None]);
        for thread in threads {
            let epochs = ReaderEpochs::new(2);
            let reader = epochs.enter(thread);
            epochs.advance();
            assert!(!epochs.passed(ReaderEpoch(1)), "{thread:?}");
            drop(reader);
            assert!(epochs.passed(ReaderEpoch(1)), "{thread:?}");
        }
    }
}
