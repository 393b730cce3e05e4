//! How far work in the background is: from samples of how much is left, how fast it goes and how long it takes.
//!
//! The rate is that of the last while, so that the estimate follows when hosts slow the work down or stop doing so.

use quoin_world::Nanos;
use std::{collections::VecDeque, time::Duration};

/// The rate is taken over so long.
const WINDOW: Duration = Duration::from_secs(30);
/// Nothing is said of the rate before.
const LEAST: Duration = Duration::from_secs(2);

/// Work of which so much was left at each look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    total_bytes: u64,
    looks: VecDeque<(Nanos, u64)>,
}

impl Progress {
    /// Of which so much is to be done in all, as far as is known.
    pub(crate) fn of(total_bytes: u64) -> Self {
        Self { total_bytes, looks: VecDeque::new() }
    }

    /// Looks again. More than before may be left: hosts write meanwhile.
    pub(crate) fn look(&mut self, now: Nanos, left_bytes: u64) {
        self.total_bytes = self.total_bytes.max(left_bytes);
        self.looks.push_back((now, left_bytes));
        // The last look before the window stays, so that the looks span it.
        while self.looks.get(1).is_some_and(|(then, _)| now.since(*then) >= WINDOW) {
            self.looks.pop_front();
        }
    }

    /// Everything there was to do.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// What was left at the last look.
    pub(crate) fn left_bytes(&self) -> u64 {
        self.looks.back().map_or(self.total_bytes, |(_, left)| *left)
    }

    /// What was done, in percent.
    pub(crate) fn percent(&self) -> f64 {
        match self.total_bytes {
            0 => 100.0,
            total => (total - self.left_bytes()) as f64 * 100.0 / total as f64,
        }
    }

    /// How fast it goes, once that is known.
    pub(crate) fn bytes_per_s(&self) -> Option<u64> {
        let ((first, before), (last, left)) = (*self.looks.front()?, *self.looks.back()?);
        let took = last.since(first);
        let done = before.checked_sub(left).filter(|_| took >= LEAST)?;
        Some((done as f64 / took.as_secs_f64()) as u64)
    }

    /// How long the rest takes at this rate; `None` while nothing gets done.
    pub(crate) fn remaining_s(&self) -> Option<u64> {
        let rate = self.bytes_per_s().filter(|rate| *rate > 0)?;
        Some(self.left_bytes().div_ceil(rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Nanos {
        Nanos(second * 1_000_000_000)
    }

    #[test]
    fn the_estimate_proves_right_and_follows_when_the_rate_changes() {
        let mut progress = Progress::of(600_000);
        let mut left = 600_000;
        for second in 0..=120 {
            progress.look(at(second), left);
            // A look or two tell nothing.
            assert_eq!(progress.remaining_s().is_some(), second >= 2, "{second}");
            if (10..60).contains(&second) {
                assert_eq!(progress.remaining_s(), Some(left / 4000), "{second}");
            }
            left -= if second < 60 { 4000 } else { 1000 };
        }
        // Half a minute after it went slower, the estimate is that of the new rate.
        let remaining = progress.remaining_s().unwrap();
        assert_eq!(remaining, progress.left_bytes() / 1000);
        assert_eq!(progress.percent(), 50.0);
    }

    #[test]
    fn work_that_grows_or_stands_still_has_no_estimate() {
        let mut progress = Progress::of(0);
        assert_eq!((progress.percent(), progress.remaining_s()), (100.0, None));
        for second in 0..10 {
            progress.look(at(second), 1000 + second);
        }
        assert_eq!(
            (progress.total_bytes(), progress.bytes_per_s(), progress.remaining_s()),
            (1009, None, None)
        );
        for second in 10..60 {
            progress.look(at(second), 1009);
        }
        assert_eq!((progress.bytes_per_s(), progress.remaining_s()), (Some(0), None));
    }
}
