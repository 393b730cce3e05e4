//! The history of the pool's space, and when it will be full if use goes on to grow as it did.
//!
//! Every hour a sample is taken, an object of the catalog. Invariants:
//! 1. Of one hour there is one sample, the first.
//! 2. Of days that are more than [`HOURLY_DAYS`] past only the last sample is kept, and nothing after [`DAYS_MAX`]. What is too old
//!    goes when a sample comes.
//! 3. What is in RAM was committed.
//!
//! Times are of the wall clock. If that is set back, hours that were sampled already are not sampled again.

use crate::record::{HISTORY_OBJECT, decode};
use quoin_api::{PoolSpace, SpaceForecast, SpaceSample};
use quoin_pool::Pool;
use quoin_world::Nanos;
use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

pub(crate) const HOUR_MS: u64 = 3_600_000;
const HOURS_OF_DAY: u64 = 24;
const DAY_MS: u64 = HOURS_OF_DAY * HOUR_MS;
/// How many days past have a sample for each hour.
const HOURLY_DAYS: u64 = 40;
/// How many days past have a sample.
const DAYS_MAX: u64 = 3 * 366;
/// Samples that go at once.
const FORGOTTEN_AT_ONCE: usize = 100;
/// How long nothing is tried after a sample could not be saved.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// How far back a forecast looks.
pub(crate) const FORECAST_MS: u64 = 30 * DAY_MS;

/// The keeper of the history.
#[derive(Default)]
pub(crate) struct History {
    /// By the number of the hour since 1970.
    samples: BTreeMap<u64, SpaceSample>,
    /// When a sample could not be saved.
    pub(crate) failed_at: Option<Nanos>,
}

impl History {
    /// Reads the history in the catalog of a pool. What cannot be read hinders nothing.
    pub(crate) fn read(pool: &Pool) -> Self {
        let readable = |(key, value): (String, Vec<u8>)| match history_problem(&key, &value) {
            Some(problem) => {
                tracing::warn!(key, problem, "a sample of the pool's space cannot be read");
                None
            }
            None => Some((key.parse().ok()?, decode(&key, &value).ok()?)),
        };
        let samples = pool.list(HISTORY_OBJECT).into_iter().filter_map(readable).collect();
        Self { samples, failed_at: None }
    }

    pub(crate) fn is_due(&self, now_ms: u64, now: Nanos) -> bool {
        !self.samples.contains_key(&(now_ms / HOUR_MS))
            && self.failed_at.is_none_or(|failed| now.since(failed) >= RETRY_AFTER)
    }

    /// The hours whose samples are too old by some hour, or not the last of an old day.
    pub(crate) fn too_old(&self, hour: u64) -> Vec<u64> {
        let today = hour / HOURS_OF_DAY;
        let hours =
            self.samples.range(..today.saturating_sub(HOURLY_DAYS) * HOURS_OF_DAY).map(|(hour, _)| *hour);
        let is_too_old = |hour: &u64| {
            let day = hour / HOURS_OF_DAY;
            let rest_of_day = hour + 1..(day + 1) * HOURS_OF_DAY;
            today - day > DAYS_MAX || self.samples.range(rest_of_day).next().is_some()
        };
        hours.filter(is_too_old).take(FORGOTTEN_AT_ONCE).collect()
    }

    pub(crate) fn add(&mut self, sample: SpaceSample, too_old: &[u64]) {
        self.failed_at = None;
        self.samples.retain(|hour, _| !too_old.contains(hour));
        self.samples.insert(sample.at_ms / HOUR_MS, sample);
    }

    /// The samples of a time, the first one first.
    pub(crate) fn of(&self, time_ms: RangeInclusive<u64>) -> impl Iterator<Item = &SpaceSample> {
        let hours = time_ms.start() / HOUR_MS..=time_ms.end() / HOUR_MS;
        self.samples
            .range(hours)
            .map(|(_, sample)| sample)
            .filter(move |sample| time_ms.contains(&sample.at_ms))
    }

    /// The same, of each day the last.
    pub(crate) fn daily(&self, time_ms: RangeInclusive<u64>) -> Vec<SpaceSample> {
        let by_day: BTreeMap<u64, &SpaceSample> =
            self.of(time_ms).map(|sample| (sample.at_ms / DAY_MS, sample)).collect();
        by_day.into_values().cloned().collect()
    }
}

/// The problem of an object of the history, if it has one.
pub(crate) fn history_problem(key: &str, bytes: &[u8]) -> Option<String> {
    let hour = key.parse::<u64>().ok().filter(|hour| hour.to_string() == key);
    match decode::<SpaceSample>(key, bytes) {
        Ok(sample) if hour == Some(sample.at_ms / HOUR_MS) => None,
        Ok(_) => Some("the key is not the hour of the sample".to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

pub(crate) fn sample(at_ms: u64, space: &PoolSpace) -> SpaceSample {
    SpaceSample {
        at_ms,
        provisioned_bytes: space.provisioned_bytes,
        written_bytes: space.written_bytes,
        unique_bytes: space.unique_bytes,
        physical_bytes: space.physical_bytes,
        metadata_bytes: space.metadata_bytes,
        usable_bytes: space.usable_bytes,
        free_bytes: space.free_bytes,
        sharing_ratio: space.sharing_ratio,
        compression_ratio: space.compression_ratio,
        data_reduction_ratio: space.data_reduction_ratio,
        efficiency_ratio: space.efficiency_ratio,
    }
}

/// By moments in milliseconds, the last one now, and what was used: the straight line with the least squares of errors.
pub(crate) fn forecast(samples: &[(u64, u64)], free_bytes: u64) -> SpaceForecast {
    let (first, last) = (samples.first().map_or(0, |s| s.0), samples.last().map_or(0, |s| s.0));
    let observed_ms = last.saturating_sub(first);
    let growth_bytes_day = (observed_ms >= DAY_MS).then(|| {
        let count = samples.len() as f64;
        let day = |at_ms: u64| (at_ms - first) as f64 / DAY_MS as f64;
        let mean_day = samples.iter().map(|s| day(s.0)).sum::<f64>() / count;
        let mean_used = samples.iter().map(|s| s.1 as f64).sum::<f64>() / count;
        let both: f64 = samples.iter().map(|s| (day(s.0) - mean_day) * (s.1 as f64 - mean_used)).sum();
        let square: f64 = samples.iter().map(|s| (day(s.0) - mean_day).powi(2)).sum();
        both / square
    });
    // Less than a byte a day is none.
    let full_in_s = growth_bytes_day
        .filter(|growth| *growth >= 1.0)
        .map(|growth| (free_bytes as f64 / growth * (DAY_MS / 1000) as f64) as u64);
    SpaceForecast {
        observed_s: observed_ms / 1000,
        samples: samples.len() as u64,
        growth_bytes_day,
        free_bytes,
        full_in_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::encode;

    fn at(at_ms: u64) -> SpaceSample {
        let sample = serde_json::json!({
            "at_ms": at_ms, "provisioned_bytes": 0, "written_bytes": 0, "unique_bytes": 0, "physical_bytes": 0,
            "metadata_bytes": 0, "usable_bytes": 100, "free_bytes": 60,
        });
        serde_json::from_value(sample).unwrap()
    }

    /// Returns how many samples went.
    fn take(history: &mut History, at_ms: u64) -> usize {
        let too_old = history.too_old(at_ms / HOUR_MS);
        history.add(at(at_ms), &too_old);
        too_old.len()
    }

    #[test]
    fn each_hour_is_sampled_once_and_old_days_keep_their_last() {
        let mut history = History::default();
        for hour in 0..50 * 24 {
            let now_ms = hour * HOUR_MS + 60_000;
            assert!(history.is_due(now_ms, Nanos(0)));
            // At the first hour of a day another one becomes old.
            let is_thinned = hour % 24 == 0 && hour / 24 > HOURLY_DAYS;
            assert_eq!(take(&mut history, now_ms), if is_thinned { 23 } else { 0 }, "{hour}");
            assert!(!history.is_due(now_ms + 3_500_000, Nanos(0)));
        }
        let (all, last_day) = (0..=u64::MAX, 49 * DAY_MS..=u64::MAX);
        assert_eq!(history.of(all.clone()).count() as u64, 9 + (HOURLY_DAYS + 1) * 24);
        assert_eq!(history.daily(all).len(), 50);
        assert_eq!(history.daily(last_day), [at(49 * DAY_MS + 23 * HOUR_MS + 60_000)]);
        assert_eq!(history.of(0..=DAY_MS - 1).cloned().collect::<Vec<_>>(), [at(23 * HOUR_MS + 60_000)]);
        // After years off only what is not too old is there, some hours later.
        for hour in 0..12 {
            take(&mut history, (48 + DAYS_MAX) * DAY_MS + hour * HOUR_MS);
        }
        assert_eq!(history.samples.len(), 2 + 12);
    }

    #[test]
    fn a_clock_that_is_set_back_adds_nothing_twice_and_what_fails_is_tried_again() {
        let mut history = History::default();
        take(&mut history, 30 * DAY_MS);
        take(&mut history, 28 * DAY_MS + HOUR_MS);
        assert!(
            !history.is_due(30 * DAY_MS + 5, Nanos(0)) && history.is_due(30 * DAY_MS + HOUR_MS, Nanos(0))
        );
        // What lies ahead of the clock is not shown.
        assert_eq!(history.of(0..=29 * DAY_MS).count(), 1);
        history.failed_at = Some(Nanos(0));
        assert!(!history.is_due(60 * DAY_MS, Nanos(59_000_000_000)));
        assert!(history.is_due(60 * DAY_MS, Nanos(60_000_000_000)));
    }

    #[test]
    fn the_forecast_follows_the_growth_and_says_nothing_without_one() {
        let line = |days: u64, used: fn(u64) -> u64| -> Vec<_> {
            (0..=days * 24).map(|hour| (5 * DAY_MS + hour * HOUR_MS, used(hour))).collect()
        };
        let grows = forecast(&line(10, |hour| 1000 + hour * 5 + hour % 2), 2400);
        let growth = grows.growth_bytes_day.unwrap();
        assert!((growth - 120.0).abs() < 0.5, "{growth}");
        assert!(grows.full_in_s.unwrap().abs_diff(20 * 86_400) < 10_000, "{grows:?}");
        assert_eq!((grows.observed_s, grows.samples), (10 * 86_400, 241));
        let declines = forecast(&line(10, |hour| 100_000 - hour), 2400);
        assert!(declines.growth_bytes_day.unwrap() < -23.0 && declines.full_in_s.is_none());
        let steady = forecast(&line(10, |_| 7), 2400);
        assert_eq!((steady.growth_bytes_day, steady.full_in_s), (Some(0.0), None));
        let short = forecast(&line(1, |hour| hour)[..24], 2400);
        assert_eq!((short.growth_bytes_day, short.full_in_s), (None, None));
        assert_eq!(forecast(&[(5, 7)], 1).observed_s, 0);
    }

    #[test]
    fn objects_that_are_none_of_the_history_are_named() {
        let sample = encode(&at(3 * HOUR_MS + 1));
        assert_eq!(history_problem("3", &sample), None);
        for (key, value) in [("4", &sample[..]), ("03", &sample), ("x", &sample), ("3", b"{}")] {
            assert!(history_problem(key, value).is_some(), "{key}");
        }
    }
}
