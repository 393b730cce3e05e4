//! A number that only grows.

use super::shard::{Alone, SHARDS, of_this_thread};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts events, bytes or nanoseconds; wraps after 2⁶⁴.
#[derive(Default, Debug)]
pub struct Counter {
    shards: [Alone<AtomicU64>; SHARDS],
}

impl Counter {
    /// Counts one.
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// Counts `amount`.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.shards[of_this_thread()].0.fetch_add(amount, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub fn value(&self) -> u64 {
        self.shards.iter().map(|shard| shard.0.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "real threads are what it is about")]
    fn nothing_is_lost_between_more_threads_than_shards() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for thread in 0..2 * SHARDS as u64 {
                let counter = &counter;
                scope.spawn(move || (0..1000).for_each(|_| counter.add(thread)));
            }
        });
        let threads = 2 * SHARDS as u64;
        assert_eq!(counter.value(), 1000 * (threads * (threads - 1) / 2));
    }
}
