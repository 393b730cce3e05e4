//! Admission: a write waits until buffer and journal have room for it, and is delayed the more the fuller they are.
//!
//! Invariants:
//! 1. First come, first served: a writer that comes while others are in the queue does not take what they wait for.
//! 2. What is admitted has room in the journal until its record is appended.

use crate::host::{
    pace::Pace,
    stalls::{StallCounts, Stalls, Waits},
};
use quoin_world::{
    AsyncMutex, Nanos,
    atomic::{AtomicU64, Ordering},
};

/// The queue of writers for room in buffer and journal, and how long writes waited.
pub(crate) struct Admission {
    pub(super) pace: Pace,
    stalls: Stalls,
    /// Writers in the queue.
    pub(super) queued: AtomicU64,
    /// Held by the first of the queue.
    pub(super) turn: AsyncMutex,
}

impl Admission {
    pub(crate) fn new() -> Self {
        Self {
            pace: Pace::default(),
            stalls: Stalls::default(),
            queued: AtomicU64::new(0),
            turn: AsyncMutex::new(),
        }
    }

    /// Counts a write that has ended, if a host waited long for it.
    pub(super) fn ended(&self, started: Nanos, ended: Nanos, waits: Waits) {
        self.stalls.ended(started, ended, waits);
    }

    /// Writes that hosts waited long for.
    pub(crate) fn stalls(&self) -> StallCounts {
        self.stalls.counts()
    }
}

/// Counts one waiter until it is dropped: a writer in the queue for room, or a copy that waits to settle.
pub(crate) struct Waiting<'a>(&'a AtomicU64);

impl<'a> Waiting<'a> {
    pub(crate) fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
