//! Latency histograms and what is told of them.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Latencies of reads and writes, in nanoseconds to three digits.
pub(crate) struct Latencies {
    read: Histogram<u64>,
    write: Histogram<u64>,
}

/// One direction's figures.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Side {
    pub(crate) ios: u64,
    pub(crate) iops: f64,
    /// Millions of bytes a second.
    pub(crate) mb_per_second: f64,
    pub(crate) latency_us: Percentiles,
}

/// Latency from queueing the command to the arrival of its status, in microseconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

impl Percentiles {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Percentiles {
        let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Percentiles {
            mean: histogram.mean() / 1e3,
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max() as f64 / 1e3,
        }
    }
}

/// An empty histogram from 1 ns to 100 s.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(100_000_000_000, 3).expect("the bounds are valid")
}

impl Latencies {
    pub(crate) fn new() -> Latencies {
        Latencies { read: histogram(), write: histogram() }
    }

    pub(crate) fn record(&mut self, write: bool, latency: Duration) {
        let side = if write { &mut self.write } else { &mut self.read };
        side.saturating_record(latency.as_nanos() as u64);
    }

    pub(crate) fn add(&mut self, other: &Latencies) {
        self.read.add(&other.read).expect("all histograms have the same bounds");
        self.write.add(&other.write).expect("all histograms have the same bounds");
    }

    pub(crate) fn count(&self) -> u64 {
        self.read.len() + self.write.len()
    }

    pub(crate) fn reads(&self, io_bytes: u64, seconds: f64) -> Side {
        side(&self.read, io_bytes, seconds)
    }

    pub(crate) fn writes(&self, io_bytes: u64, seconds: f64) -> Side {
        side(&self.write, io_bytes, seconds)
    }

    pub(crate) fn total(&self, io_bytes: u64, seconds: f64) -> Side {
        let mut both = self.read.clone();
        both.add(&self.write).expect("all histograms have the same bounds");
        side(&both, io_bytes, seconds)
    }
}

fn side(histogram: &Histogram<u64>, io_bytes: u64, seconds: f64) -> Side {
    let ios = histogram.len();
    let iops = ios as f64 / seconds;
    Side { ios, iops, mb_per_second: iops * io_bytes as f64 / 1e6, latency_us: Percentiles::of(histogram) }
}

/// The middle value; of an even number the mean of the two in the middle. 0 of none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        len => (values[(len - 1) / 2] + values[len / 2]) / 2.0,
    }
}

/// The median of some values, and the lowest and the highest of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` of no values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let values: Vec<f64> = values.into_iter().collect();
        let min = values.iter().copied().min_by(f64::total_cmp)?;
        let max = values.iter().copied().max_by(f64::total_cmp)?;
        Some(Spread { median: median(values), min, max })
    }

    /// With so many digits: the median, and in brackets the extremes if they differ.
    pub(crate) fn show(&self, digits: usize) -> String {
        let Spread { median, min, max } = self;
        if min == max {
            format!("{median:.digits$}")
        } else {
            format!("{median:.digits$} ({min:.digits$}–{max:.digits$})")
        }
    }

    /// The same of values that are so many times as large.
    pub(crate) fn times(&self, factor: f64) -> Spread {
        Spread { median: self.median * factor, min: self.min * factor, max: self.max * factor }
    }
}

/// How likely it is that chance alone puts so many or more of what happened in both kinds of trials into the first
/// kind: Fisher's exact test, one-sided.
pub(crate) fn chance_of_more(
    happened: usize,
    trials: usize,
    happened_else: usize,
    trials_else: usize,
) -> f64 {
    let ln_choose = |of: usize, some: usize| {
        (0..some).map(|k| ((of - k) as f64).ln() - ((some - k) as f64).ln()).sum::<f64>()
    };
    let (all_happened, all) = (happened + happened_else, trials + trials_else);
    let exactly = |here: usize| {
        let rest = all_happened - here;
        if rest <= trials_else {
            (ln_choose(trials, here) + ln_choose(trials_else, rest) - ln_choose(all, all_happened)).exp()
        } else {
            0.0
        }
    };
    (happened..=all_happened.min(trials)).map(exactly).sum::<f64>().min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_follow_from_what_was_recorded() {
        let mut one = Latencies::new();
        for us in 1..=1000 {
            one.record(false, Duration::from_micros(us));
        }
        let mut other = Latencies::new();
        other.record(true, Duration::from_secs(1000));
        one.add(&other);
        assert_eq!(one.count(), 1001);
        let reads = one.reads(8192, 2.0);
        assert_eq!((reads.ios, reads.iops), (1000, 500.0));
        assert!((reads.mb_per_second - 4.096).abs() < 1e-9);
        let Percentiles { mean, p50, p99, p999, max } = reads.latency_us;
        for (found, expected) in [(mean, 500.5), (p50, 500.0), (p99, 990.0), (p999, 999.0), (max, 1000.0)] {
            assert!((found / expected - 1.0).abs() < 0.002, "{found} is not about {expected}");
        }
        assert!(one.writes(8192, 2.0).latency_us.max > 99e6, "what is off the scale counts as its end");
        assert_eq!(Latencies::new().total(8192, 1.0).latency_us.p50, 0.0);
    }

    #[test]
    fn what_chance_does() {
        let near =
            |found: f64, expected: f64| assert!((found - expected).abs() < 1e-4, "{found}, not {expected}");
        near(chance_of_more(0, 50, 3, 50), 1.0);
        near(chance_of_more(3, 4, 1, 4), 17.0 / 70.0);
        near(chance_of_more(5, 50, 0, 50), 0.028_14);
        near(chance_of_more(1, 1, 0, 1), 0.5);
        near(chance_of_more(0, 50, 0, 50), 1.0);
    }

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0]), 2.5);
        assert_eq!(median([]), 0.0);
        let spread = Spread { median: 2.0, min: 1.0, max: 7.0 };
        assert_eq!(Spread::of([7.0, 1.0, 2.0]), Some(spread));
        assert_eq!(Spread::of([]), None);
        assert_eq!(
            (spread.times(10.0).show(0), spread.show(1)),
            ("20 (10–70)".into(), "2.0 (1.0–7.0)".into())
        );
        assert_eq!(Spread::of([1.0]).map(|spread| spread.show(0)), Some("1".to_owned()));
    }
}
