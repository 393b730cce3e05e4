//! What hosts ask of volumes, in numbers that only grow: a client that looks twice knows what happened in between.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Counters of all volumes since the process started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// Milliseconds since the process started. The difference between two answers is the time between them.
    pub uptime_ms: u64,
    /// Volumes, oldest first.
    pub volumes: Vec<VolumeStats>,
}

/// Counters of one volume since the process started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeStats {
    /// Its name.
    #[schema(example = "v1")]
    pub name: String,
    /// Its identity, which never changes.
    pub uuid: Uuid,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes allocated in the pool; null while the pool is offline.
    pub mapped_bytes: Option<u64>,
    /// Reads.
    pub read: OperationStats,
    /// Writes.
    pub write: OperationStats,
    /// Unmaps.
    pub unmap: OperationStats,
}

/// One kind of request to a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationStats {
    /// Requests answered, including those that failed.
    pub count: u64,
    /// Requests that failed or were refused.
    pub errors: u64,
    /// Bytes read, written or unmapped.
    pub bytes: u64,
    /// How long they took.
    pub latency: Latency,
}

/// The durations of requests, from receiving a request to queuing its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Latency {
    /// The sum of all durations, in nanoseconds.
    pub sum_ns: u64,
    /// Requests by duration, shortest first. Durations that did not occur are left out.
    pub buckets: Vec<LatencyBucket>,
}

/// Requests of about the same duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LatencyBucket {
    /// The middle of their durations in nanoseconds, accurate to a sixteenth; always one of the same values.
    pub at_ns: u64,
    /// The number of requests.
    pub count: u64,
}

impl Latency {
    /// From pairs of the middle of a bucket in nanoseconds and its count.
    pub fn new(sum_ns: u64, buckets: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let buckets = buckets.into_iter().map(|(at_ns, count)| LatencyBucket { at_ns, count }).collect();
        Self { sum_ns, buckets }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.count).sum()
    }

    /// Their mean in microseconds; `None` if there were none.
    pub fn mean_us(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum_ns as f64 / count as f64 / 1e3)
    }

    /// The duration in microseconds that a share of `quantile`, from 0 to 1, did not exceed, at most a sixteenth off;
    /// `None` if there were none.
    pub fn quantile_us(&self, quantile: f64) -> Option<f64> {
        let wanted = ((quantile.clamp(0.0, 1.0) * self.count() as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let bucket = self.buckets.iter().find(|bucket| {
            seen += bucket.count;
            seen >= wanted
        })?;
        Some(bucket.at_ns as f64 / 1e3)
    }

    /// What was added since `earlier`; all of it if `earlier` is of another life of the process.
    pub fn since(&self, earlier: &Self) -> Self {
        if earlier.sum_ns > self.sum_ns {
            return self.clone();
        }
        let before =
            |at_ns| earlier.buckets.iter().find(|b| b.at_ns == at_ns).map_or(0, |bucket| bucket.count);
        let since = |b: &LatencyBucket| (b.at_ns, b.count.saturating_sub(before(b.at_ns)));
        Self::new(
            self.sum_ns - earlier.sum_ns,
            self.buckets.iter().map(since).filter(|(_, count)| *count > 0),
        )
    }

    /// Adds what another volume or kind of request took.
    pub fn merge(&mut self, other: &Self) {
        self.sum_ns += other.sum_ns;
        for bucket in &other.buckets {
            match self.buckets.binary_search_by_key(&bucket.at_ns, |own| own.at_ns) {
                Ok(at) => self.buckets[at].count += bucket.count,
                Err(at) => self.buckets.insert(at, *bucket),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_what_happened_in_between() {
        let before = Latency::new(1_000_000, [(100_000, 10)]);
        let after = Latency::new(
            1_000_000 + 99 * 200_000 + 5_000_000,
            [(100_000, 10), (200_000, 99), (5_000_000, 1)],
        );
        let since = after.since(&before);
        assert_eq!(since.count(), 100);
        assert_eq!((since.quantile_us(0.5), since.quantile_us(0.99)), (Some(200.0), Some(200.0)));
        assert_eq!((since.quantile_us(1.0), since.mean_us()), (Some(5000.0), Some(248.0)));
        assert_eq!(before.since(&after), before, "the process was started anew");
        let mut both = since;
        both.merge(&before);
        assert_eq!(both, after);
        assert_eq!((Latency::default().quantile_us(0.5), Latency::default().mean_us()), (None, None));
    }
}
