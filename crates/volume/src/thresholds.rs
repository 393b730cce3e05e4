//! Thresholds of the space that all volumes of a pool share.

use parking_lot::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// One part in so many of a threshold: a smaller change does not notify hosts.
const SAME_WITHIN: u64 = 100;

/// How much space must be used for hosts to be notified, and how often that happened. The watcher of the pool sets it;
/// front ends read it.
#[derive(Default, Debug)]
pub struct Thresholds {
    bytes: RwLock<Vec<u64>>,
    changes: AtomicU64,
    reached: AtomicU64,
    used_bytes: AtomicU64,
    available_bytes: AtomicU64,
}

impl Thresholds {
    /// Sets them, in bytes used, ascending. Thresholds that differ by less than a hundredth stay as they were: the
    /// capacity of a pool varies slightly with its metadata, and hosts are notified of every change.
    pub fn set(&self, bytes: Vec<u64>) {
        let same = |(before, now): (&u64, &u64)| before.abs_diff(*now) <= now / SAME_WITHIN;
        let mut set = self.bytes.write();
        if set.len() != bytes.len() || !set.iter().zip(&bytes).all(same) {
            *set = bytes;
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// The thresholds that were set.
    pub fn bytes(&self) -> Vec<u64> {
        self.bytes.read().clone()
    }

    /// Notes how much of the space is used, as far as thresholds are concerned.
    pub fn note_used(&self, bytes: u64) {
        self.used_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Notes how much of the space is available.
    pub fn note_available(&self, bytes: u64) {
        self.available_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The space that was used when it was noted last.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// The space that was available when it was noted last.
    pub fn available_bytes(&self) -> u64 {
        self.available_bytes.load(Ordering::Relaxed)
    }

    /// How often they were changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_much_is_a_change() {
        let thresholds = Thresholds::default();
        thresholds.set(vec![6000, 8000, 10_000]);
        thresholds.set(vec![5970, 7960, 9950]);
        assert_eq!((thresholds.bytes(), thresholds.changes()), (vec![6000, 8000, 10_000], 1));
        thresholds.set(vec![5000, 8000, 10_000]);
        assert_eq!((thresholds.bytes(), thresholds.changes()), (vec![5000, 8000, 10_000], 2));
        thresholds.set(vec![5000]);
        assert_eq!(thresholds.changes(), 3);
    }
}
