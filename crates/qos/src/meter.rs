//! How much of some limits is used up.
//!
//! Each limit is a bucket that leaks (the generic cell rate algorithm of ATM). It knows until when what passed is paid for: a
//! request adds its price in time, and the next may pass once no more than the burst is owed. A request passes whole, however
//! large it is, and those behind it pay for it.

use crate::{Cost, Limits, Rate};
use quoin_world::Nanos;

const NANOS_PER_S: u64 = 1_000_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    Ios,
    Bytes,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Which of the limits it is, to know it again when they change.
    place: (usize, Unit),
    rate: Rate,
    paid_until: Nanos,
}

fn burst_ns(rate: Rate) -> u64 {
    rate.burst.as_nanos() as u64
}

impl Bucket {
    fn price_ns(&self, cost: Cost) -> u64 {
        let units = match self.place.1 {
            Unit::Ios => cost.ios,
            Unit::Bytes => cost.bytes,
        };
        // 18 GB in nanobytes fit; what is larger takes as long as can be said.
        units.saturating_mul(NANOS_PER_S) / self.rate.per_s
    }

    fn due(&self) -> Nanos {
        Nanos(self.paid_until.0.saturating_sub(burst_ns(self.rate)))
    }

    /// The same debt at another rate. What the burst allowed stays used up, but is no more than the new burst; the rest, no more
    /// than a request's price, holds the next one up.
    fn at_rate(&self, rate: Rate, now: Nanos) -> Nanos {
        let at_new = |owed_ns: u64| {
            let owed_ns = u128::from(owed_ns) * u128::from(self.rate.per_s.get());
            u64::try_from(owed_ns / u128::from(rate.per_s.get())).unwrap_or(u64::MAX)
        };
        let owed_ns = self.paid_until.0.saturating_sub(now.0);
        let used_ns = owed_ns.min(burst_ns(self.rate));
        let used_up_ns = at_new(used_ns).min(burst_ns(rate));
        Nanos(now.0.saturating_add(used_up_ns).saturating_add(at_new(owed_ns - used_ns)))
    }
}

/// Each of these limits, and which of them it is.
fn rates(limits: &[Limits]) -> impl Iterator<Item = ((usize, Unit), Rate)> {
    limits.iter().enumerate().flat_map(|(at, limits)| {
        let both = [(Unit::Ios, limits.ios), (Unit::Bytes, limits.bytes)];
        both.into_iter().filter_map(move |(unit, rate)| Some(((at, unit), rate?)))
    })
}

/// Limits that apply together, and what is used of them.
#[derive(Clone, Default, Debug)]
pub(crate) struct Meter(Vec<Bucket>);

impl Meter {
    /// The same for other limits: what is owed stays so.
    pub(crate) fn retuned(&self, limits: &[Limits], now: Nanos) -> Self {
        let bucket = |(place, rate)| {
            let before = self.0.iter().find(|bucket| bucket.place == place);
            let paid_until = before.map_or(now, |bucket| bucket.at_rate(rate, now));
            Bucket { place, rate, paid_until }
        };
        Self(rates(limits).map(bucket).collect())
    }

    /// Whether it is of these limits already.
    pub(crate) fn is_of(&self, limits: &[Limits]) -> bool {
        self.0.iter().map(|bucket| (bucket.place, bucket.rate)).eq(rates(limits))
    }

    /// From when on the next request may pass.
    pub(crate) fn due(&self) -> Nanos {
        self.0.iter().map(Bucket::due).max().unwrap_or_default()
    }

    /// Has a request pass that might have passed since `eligible`.
    pub(crate) fn take(&mut self, cost: Cost, eligible: Nanos) {
        for bucket in &mut self.0 {
            let from = bucket.paid_until.max(eligible).0;
            bucket.paid_until = Nanos(from.saturating_add(bucket.price_ns(cost)));
        }
    }

    /// The part that requests have of the limit that they use most of, in nanoseconds of it; where nothing is limited, their
    /// number.
    pub(crate) fn weight(&self, cost: Cost) -> u64 {
        self.0.iter().map(|bucket| bucket.price_ns(cost)).max().unwrap_or(cost.ios)
    }

    /// How long a request waits if all of `waiting` is before it.
    pub(crate) fn delay_ns(&self, waiting: Cost, now: Nanos) -> u64 {
        let delay =
            |bucket: &Bucket| bucket.due().0.saturating_add(bucket.price_ns(waiting)).saturating_sub(now.0);
        self.0.iter().map(delay).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{num::NonZeroU64, time::Duration};

    fn ios(per_s: u64, burst_ms: u64) -> Limits {
        let rate = Rate { per_s: NonZeroU64::new(per_s).unwrap(), burst: Duration::from_millis(burst_ms) };
        Limits { ios: Some(rate), bytes: None }
    }

    #[test]
    fn a_burst_passes_at_once_and_the_rest_at_the_rate() {
        let mut meter = Meter::default().retuned(&[ios(1000, 10)], Nanos(0));
        let now = Nanos(5_000_000_000);
        // Ten that were saved up, and the one that finds nothing owed.
        for n in 0..11 {
            assert!(meter.due() <= now, "{n}");
            meter.take(Cost::of_bytes(4096), now);
        }
        assert_eq!(meter.due(), Nanos(now.0 + 1_000_000));
    }

    #[test]
    fn what_is_owed_is_paid_at_the_new_rate() {
        let mut meter = Meter::default().retuned(&[ios(10, 0)], Nanos(0));
        meter.take(Cost::of_bytes(0), Nanos(0));
        assert_eq!(meter.due(), Nanos(100_000_000));
        let meter = meter.retuned(&[ios(100, 0)], Nanos(50_000_000));
        assert_eq!(meter.due(), Nanos(55_000_000));
        // Without the limit nothing is owed, and there is nothing to come back to.
        let meter = meter.retuned(&[], Nanos(50_000_000)).retuned(&[ios(100, 0)], Nanos(51_000_000));
        assert_eq!(meter.due(), Nanos(51_000_000));
    }

    #[test]
    fn a_lower_limit_asks_no_more_than_the_price_of_what_passed_beyond_the_burst() {
        let second = 1_000_000_000;
        // At its limit: all of the burst of half a minute is used up, and the next is due in a moment.
        let mut meter = Meter::default().retuned(&[ios(10_000, 30_000)], Nanos(0));
        for _ in 0..300_001 {
            meter.take(Cost::of_bytes(0), Nanos(0));
        }
        assert_eq!(meter.due(), Nanos(100_000));
        for (per_s, burst_ms, due) in
            [(100, 30_000, 10_000_000), (10_000, 100, 100_000), (10, 0, 100_000_000)]
        {
            let lower = meter.retuned(&[ios(per_s, burst_ms)], Nanos(0));
            assert_eq!(lower.due(), Nanos(due), "{per_s} {burst_ms}");
            // The new burst is used up, too.
            let mut lower = lower;
            lower.take(Cost::of_bytes(0), Nanos(due));
            assert_eq!(lower.due(), Nanos(due + second / per_s));
        }
        // What was paid while nothing came is not owed.
        assert!(meter.retuned(&[ios(10, 0)], Nanos(60 * second)).due() <= Nanos(60 * second));
    }

    #[test]
    fn each_limit_holds_on_its_own() {
        let bytes = Limits { ios: None, bytes: ios(1 << 20, 0).ios };
        let mut meter = Meter::default().retuned(&[ios(10, 0), bytes], Nanos(0));
        meter.take(Cost::of_bytes(512), Nanos(0));
        assert_eq!(meter.due(), Nanos(100_000_000));
        meter.take(Cost::of_bytes(1 << 20), Nanos(100_000_000));
        assert_eq!(meter.due(), Nanos(1_100_000_000));
        assert_eq!(meter.weight(Cost::of_bytes(1 << 19)), 500_000_000);
        assert_eq!(meter.delay_ns(Cost { ios: 2, bytes: 1 << 20 }, Nanos(1_000_000_000)), 1_100_000_000);
    }
}
