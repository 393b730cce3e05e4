//! The log of a slice: its journal, the transactions whose records are in it, and how far checkpoints have passed it.
//!
//! Invariants:
//! 1. The tail passes no record that replay would still need: not of what is buffered, nor of a transaction that is appended
//!    and not applied.
//! 2. The durable tail only goes forward.

use crate::{
    buffer::Buffer,
    bugs::{Bug, planted},
    journal::{Journal, transactions::Transactions},
};
use quoin_base::Sequence;
use quoin_world::{
    Event,
    atomic::{AtomicU64, Ordering},
};
use std::sync::Arc;

/// The journal of a slice, and what checkpoints must know of it.
pub(crate) struct Log {
    pub(crate) journal: Arc<Journal>,
    pub(crate) transactions: Transactions,
    /// Records below this sequence are in the last durable checkpoint.
    durable_tail: AtomicU64,
}

impl Log {
    /// Ids of volumes below `next_volume` were given out.
    pub(crate) fn new(journal: Arc<Journal>, next_volume: u32) -> Self {
        Self { journal, transactions: Transactions::new(next_volume), durable_tail: AtomicU64::new(0) }
    }

    /// Notified after every commit and checkpoint, and when the journal has room again.
    pub(crate) fn progress(&self) -> &Event {
        &self.journal.progress
    }

    /// The lowest sequence that replay would need if a checkpoint were cut now.
    pub(crate) fn tail(&self, buffer: &Buffer) -> Sequence {
        // NOTE: before the buffer is looked at. What comes in meanwhile has a later sequence.
        let next = self.journal.peek_sequence();
        let pinned = self.transactions.pinned();
        self.tail_of(buffer, next).min(pinned)
    }

    /// The same, for a checkpoint that is being cut.
    pub(crate) fn tail_to_cut(&self, buffer: &Buffer) -> Sequence {
        if planted(Bug::TailPastCatalog) {
            buffer.tail(self.journal.peek_sequence())
        } else {
            self.tail(buffer)
        }
    }

    /// The lowest sequence that the buffer needs, or `next`.
    fn tail_of(&self, buffer: &Buffer, next: Sequence) -> Sequence {
        if planted(Bug::TailReadLate) {
            buffer.tail(Sequence(u64::MAX)).min(self.journal.peek_sequence())
        } else {
            buffer.tail(next)
        }
    }

    /// Records below are in the last durable checkpoint.
    pub(crate) fn durable_tail(&self) -> Sequence {
        Sequence(self.durable_tail.load(Ordering::Acquire))
    }

    /// Notes that a checkpoint with this tail is durable.
    pub(crate) fn passed(&self, tail: Sequence) {
        let before = self.durable_tail.swap(tail.0, Ordering::AcqRel);
        assert!(before <= tail.0, "the tail goes from {before} to {tail}, and only forward");
    }
}
