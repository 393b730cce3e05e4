//! A number that goes up and down.

use std::sync::atomic::{AtomicI64, Ordering};

/// How much there is of something at this moment.
///
/// It is one number that all threads share. Where several threads would change it for each request, two
/// [`Counter`](super::Counter)s are cheaper: what was begun less what was finished, the latter read first.
#[derive(Default, Debug)]
pub struct Gauge {
    value: AtomicI64,
}

impl Gauge {
    /// Makes it `value`.
    #[inline]
    pub fn set(&self, value: i64) {
        self.value.store(value, Ordering::Relaxed);
    }

    /// Raises it.
    #[inline]
    pub fn add(&self, amount: i64) {
        self.value.fetch_add(amount, Ordering::Relaxed);
    }

    /// Lowers it.
    #[inline]
    pub fn sub(&self, amount: i64) {
        self.value.fetch_sub(amount, Ordering::Relaxed);
    }

    /// What it is now.
    #[inline]
    pub fn value(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_both_ways_and_below_zero() {
        let gauge = Gauge::default();
        gauge.add(3);
        gauge.sub(5);
        assert_eq!(gauge.value(), -2);
        gauge.set(7);
        assert_eq!(gauge.value(), 7);
    }
}
