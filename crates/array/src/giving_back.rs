//! How fast the space of deleted content is reclaimed, from samples of how much is left.

use quoin_api as api;
use quoin_pool::PoolStats;
use quoin_world::Nanos;

/// How much of the newest look goes into the rate.
const NEWEST: f64 = 0.3;

/// What the last look showed.
#[derive(Default)]
pub(crate) struct GivingBack {
    last: Option<(Nanos, u64)>,
    bytes_per_s: Option<f64>,
}

impl GivingBack {
    /// Looks again.
    pub(crate) fn look(&mut self, now: Nanos, stats: &PoolStats) {
        let left = stats.removing_bytes;
        if let Some((then, before)) = self.last.replace((now, left)) {
            let seconds = now.since(then).as_secs_f64();
            // More than before: something was deleted meanwhile, and the look says nothing of the rate.
            if let Some(given) = before.checked_sub(left).filter(|_| seconds > 0.0) {
                let newest = given as f64 / seconds;
                self.bytes_per_s = Some(match self.bytes_per_s {
                    Some(rate) => rate * (1.0 - NEWEST) + newest * NEWEST,
                    None => newest,
                });
            }
        }
        if left == 0 {
            self.bytes_per_s = None;
        }
    }

    pub(crate) fn view(&self, stats: &PoolStats) -> api::GivingBack {
        let rate = self.bytes_per_s.filter(|rate| *rate >= 1.0);
        api::GivingBack {
            bytes: stats.removing_bytes,
            entries: stats.sifting_entries,
            bytes_per_s: rate.map(|rate| rate as u64),
            remaining_s: rate.map(|rate| (stats.removing_bytes as f64 / rate).ceil() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_of_what_went_and_the_estimate_of_what_is_left() {
        let mut giving_back = GivingBack::default();
        let stats = |removing_bytes| PoolStats { removing_bytes, ..PoolStats::default() };
        for (second, left) in [(0, 0), (1, 10_000), (2, 9_000), (3, 8_000), (4, 20_000)] {
            giving_back.look(Nanos(second * 1_000_000_000), &stats(left));
        }
        let view = giving_back.view(&stats(20_000));
        assert_eq!((view.bytes_per_s, view.remaining_s), (Some(1000), Some(20)));
        giving_back.look(Nanos(5_000_000_000), &stats(0));
        assert_eq!(giving_back.view(&stats(0)).remaining_s, None);
    }
}
