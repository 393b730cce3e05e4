//! Thresholds of the space that all volumes of a pool share.

use parking_lot::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much must be used for hosts to be told, and how often that happened. Whoever watches the pool sets it; front
/// ends look at it.
#[derive(Default)]
pub struct Thresholds {
    bytes: RwLock<Vec<u64>>,
    reached: AtomicU64,
}

impl Thresholds {
    /// Sets them, in bytes used, ascending.
    pub fn set(&self, bytes: Vec<u64>) {
        *self.bytes.write() = bytes;
    }

    /// What was set.
    pub fn bytes(&self) -> Vec<u64> {
        self.bytes.read().clone()
    }

    /// Notes that one was reached from below.
    pub fn reach(&self) {
        self.reached.fetch_add(1, Ordering::Release);
    }

    /// How often that was noted.
    pub fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }
}
