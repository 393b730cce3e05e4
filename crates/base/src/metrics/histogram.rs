//! How long things took.

use super::shard::{Alone, SHARDS, of_this_thread};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Nanoseconds below 2¹⁰, about a microsecond, are one bucket.
const LOWEST_BITS: u32 = 10;
/// Nanoseconds from 2³⁶, about 69 s, are one bucket.
const HIGHEST_BITS: u32 = 36;
/// Each doubling in between is cut into 2³ buckets of equal width: none is wider than an eighth of its lower bound.
const STEP_BITS: u32 = 3;
const STEPS: usize = 1 << STEP_BITS;
const BUCKETS: usize = (HIGHEST_BITS - LOWEST_BITS) as usize * STEPS + 2;

/// Counts durations by their length.
///
/// Buckets are the same in every histogram, so that snapshots can be added and subtracted. They are narrow enough for
/// quantiles: [`LatencySnapshot::quantile`] is at most a sixteenth off. One takes about 7 KiB.
#[derive(Debug)]
pub struct LatencyHistogram {
    shards: Box<[Alone<Shard>; SHARDS]>,
}

#[derive(Debug)]
struct Shard {
    sum_ns: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        let shard =
            || Shard { sum_ns: AtomicU64::new(0), buckets: std::array::from_fn(|_| AtomicU64::new(0)) };
        Self { shards: Box::new(std::array::from_fn(|_| Alone(shard()))) }
    }
}

impl LatencyHistogram {
    /// Counts something that took `duration`.
    #[inline]
    pub fn record(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let shard = &self.shards[of_this_thread()].0;
        shard.sum_ns.fetch_add(nanos, Ordering::Relaxed);
        shard.buckets[bucket_of(nanos)].fetch_add(1, Ordering::Relaxed);
    }

    /// What was recorded so far.
    pub fn snapshot(&self) -> LatencySnapshot {
        let mut snapshot = LatencySnapshot::default();
        for shard in self.shards.iter() {
            let sum = shard.0.sum_ns.load(Ordering::Relaxed);
            snapshot.sum_ns = snapshot.sum_ns.wrapping_add(sum);
            for (total, bucket) in snapshot.buckets.iter_mut().zip(&shard.0.buckets) {
                *total += bucket.load(Ordering::Relaxed);
            }
        }
        snapshot
    }
}

/// A [`LatencyHistogram`] at one moment, or what it counted between two.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LatencySnapshot {
    sum_ns: u64,
    buckets: Box<[u64]>,
}

impl Default for LatencySnapshot {
    fn default() -> Self {
        Self { sum_ns: 0, buckets: vec![0; BUCKETS].into_boxed_slice() }
    }
}

impl LatencySnapshot {
    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// All of them together.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// Their arithmetic mean; `None` if there are none.
    pub fn mean(&self) -> Option<Duration> {
        self.sum_ns.checked_div(self.count()).map(Duration::from_nanos)
    }

    /// The duration that a share of `quantile`, from 0 to 1, did not exceed; `None` if there are none. It is the
    /// middle of the bucket, at most a sixteenth off between 1 µs and 69 s.
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let count = self.count();
        let wanted = ((quantile.clamp(0.0, 1.0) * count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let at = self.buckets.iter().position(|bucket| {
            seen += bucket;
            seen >= wanted
        })?;
        Some(middle(at))
    }

    /// The buckets that hold something: the middle of each and how many it holds, shortest first.
    pub fn filled(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let all = self.buckets.iter().enumerate();
        all.filter(|(_, count)| **count > 0).map(|(at, count)| (middle(at), *count))
    }

    /// Upper bounds with the number of those recorded that stay below each, one bound for each doubling from about
    /// 8 µs to 8.6 s. What takes longer is in [`count`](Self::count) only.
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        (13..=33).map(|bits| {
            let below = bucket_of(1 << bits);
            (Duration::from_nanos(1 << bits), self.buckets[..below].iter().sum())
        })
    }

    /// What was recorded since `earlier`, a snapshot of the same histogram.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        since.sum_ns = since.sum_ns.wrapping_sub(earlier.sum_ns);
        for (bucket, before) in since.buckets.iter_mut().zip(&earlier.buckets) {
            *bucket = bucket.saturating_sub(*before);
        }
        since
    }

    /// Adds what another histogram recorded.
    pub fn merge(&mut self, other: &Self) {
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket += more;
        }
    }
}

#[inline]
fn bucket_of(nanos: u64) -> usize {
    if nanos < 1 << LOWEST_BITS {
        return 0;
    }
    let bits = nanos.ilog2();
    if bits >= HIGHEST_BITS {
        return BUCKETS - 1;
    }
    let step = (nanos >> (bits - STEP_BITS)) as usize & (STEPS - 1);
    1 + (bits - LOWEST_BITS) as usize * STEPS + step
}

/// The middle of a bucket; of the last, which has no end, where it begins.
fn middle(bucket: usize) -> Duration {
    let lower = lower_ns(bucket);
    let width = if bucket + 1 == BUCKETS { 0 } else { lower_ns(bucket + 1) - lower };
    Duration::from_nanos(lower + width / 2)
}

/// The least number of nanoseconds that belongs to a bucket.
fn lower_ns(bucket: usize) -> u64 {
    if bucket == 0 {
        return 0;
    }
    let (doubling, step) = ((bucket - 1) / STEPS, (bucket - 1) % STEPS);
    let bits = LOWEST_BITS + doubling as u32;
    (1 << bits) + ((step as u64) << (bits - STEP_BITS))
}

#[cfg(test)]
mod tests;
