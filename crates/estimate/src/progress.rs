//! How far an estimate is, for who waits for it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far an estimate is. Shared with the threads that make it.
#[derive(Default, Debug)]
pub struct Progress {
    all: AtomicU64,
    done: AtomicU64,
    is_cancelled: AtomicBool,
}

impl Progress {
    /// Bytes that there are, holes and what a sample leaves out included; 0 until that is known.
    pub fn all_bytes(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }

    /// Bytes of them that are behind.
    pub fn done_bytes(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Ends the estimate soon, without a result.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    pub(crate) fn begin(&self, all: u64) {
        self.all.store(all, Ordering::Relaxed);
    }

    pub(crate) fn did(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}
