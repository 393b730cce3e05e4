//! Buckets without gaps, nothing lost between threads, and quantiles beside those of `hdrhistogram`.

use super::*;
use proptest::prelude::*;

#[test]
fn buckets_follow_one_another_without_gap() {
    for bucket in 0..BUCKETS {
        assert_eq!(bucket_of(lower_ns(bucket)), bucket, "the first of bucket {bucket}");
        if bucket > 0 {
            assert_eq!(bucket_of(lower_ns(bucket) - 1), bucket - 1, "the last before bucket {bucket}");
        }
    }
    assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
}

#[test]
fn an_empty_one_has_no_quantiles() {
    let empty = LatencyHistogram::default().snapshot();
    assert_eq!((empty.count(), empty.mean(), empty.quantile(0.5)), (0, None, None));
    assert!(empty.cumulative().all(|(_, count)| count == 0));
}

#[test]
#[allow(clippy::disallowed_methods, reason = "real threads are what it is about")]
fn every_thread_is_in_the_snapshot() {
    let histogram = LatencyHistogram::default();
    std::thread::scope(|scope| {
        for _ in 0..2 * SHARDS {
            scope.spawn(|| (0..1000).for_each(|micros| histogram.record(Duration::from_micros(micros))));
        }
    });
    let snapshot = histogram.snapshot();
    assert_eq!(snapshot.count(), 2 * SHARDS as u64 * 1000);
    assert_eq!(snapshot.sum(), Duration::from_micros(2 * SHARDS as u64 * 999 * 500));
    assert_eq!(snapshot.filled().map(|(_, count)| count).sum::<u64>(), snapshot.count());
    assert!(snapshot.filled().all(|(at, count)| count > 0 && at < Duration::from_micros(1100)));
}

#[test]
fn the_difference_of_two_snapshots_is_what_came_between() {
    let histogram = LatencyHistogram::default();
    histogram.record(Duration::from_millis(90));
    let before = histogram.snapshot();
    histogram.record(Duration::from_micros(50));
    histogram.record(Duration::from_micros(70));
    let mut since = histogram.snapshot().since(&before);
    assert_eq!((since.count(), since.mean()), (2, Some(Duration::from_micros(60))));
    since.merge(&before);
    assert_eq!(since, histogram.snapshot());
}

#[test]
fn what_is_longer_than_the_last_bound_counts_all_the_same() {
    let histogram = LatencyHistogram::default();
    histogram.record(Duration::from_secs(3600));
    let snapshot = histogram.snapshot();
    assert_eq!(snapshot.count(), 1);
    assert!(snapshot.cumulative().all(|(_, count)| count == 0));
    assert!(snapshot.quantile(0.5).expect("one recorded") >= Duration::from_secs(60));
}

proptest! {
    #[test]
    fn quantiles_agree_with_hdrhistogram(
        // Spread over the doublings, as latencies are, instead of crowding in the last.
        micros in prop::collection::vec((0_u32..26, 0.0..1.0_f64), 1..400),
        share in 0.0..=1.0_f64,
    ) {
        let histogram = LatencyHistogram::default();
        let mut oracle = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 1 << 40, 4).expect("valid bounds");
        let mut sum = 0;
        for (bits, fraction) in micros {
            let nanos = ((1.0 + fraction) * f64::from(1 << bits) * 1024.0) as u64;
            histogram.record(Duration::from_nanos(nanos));
            oracle.record(nanos).expect("within its bounds");
            sum += nanos;
        }
        let snapshot = histogram.snapshot();
        prop_assert_eq!(snapshot.count(), oracle.len());
        prop_assert_eq!(snapshot.sum(), Duration::from_nanos(sum));
        for share in [share, 0.0, 0.5, 0.99, 1.0] {
            let found = snapshot.quantile(share).expect("not empty").as_nanos() as f64;
            let right = oracle.value_at_quantile(share) as f64;
            prop_assert!((found - right).abs() <= right / 15.9, "quantile {share}: {found} ns, not {right} ns");
        }
        for (bound, below) in snapshot.cumulative() {
            let right = oracle.count_between(0, bound.as_nanos() as u64 - 1);
            // The oracle's own buckets are a ten-thousandth wide.
            let slack = oracle.count_between(bound.as_nanos() as u64 * 9998 / 10000, bound.as_nanos() as u64);
            prop_assert!(below.abs_diff(right) <= slack, "{below} below {bound:?}, not {right}");
        }
    }
}
