//! The pace of writers: how buffer and journal slow hosts down to what destage, cleaner and checkpoints can do.
//!
//! From [`SLOW_FROM`] on, each byte takes its time, and the times of all writers follow one another, however many they
//! are. The time of a byte grows from nothing, without a step, and without bound towards [`STOP_AT`]: at whatever rate
//! the committer makes room, there is a fill at which writers come at that rate, and there both stay.

use quoin_world::{
    Nanos,
    atomic::{AtomicU64, Ordering},
};
use std::time::Duration;

/// How full buffer or journal may be before writers are slowed, and where they stop. A checkpoint that is due because the
/// journal is half full has some time before.
pub(crate) const SLOW_FROM: f64 = 0.6;
pub(crate) const STOP_AT: f64 = 0.95;
/// What a byte takes half way between the two: 250 MB/s.
const NANOS_PER_BYTE: f64 = 4.0;
/// Nearer to the stop than this the stop itself holds writers.
const MOST_PRESSURE: f64 = 0.99;
/// No writer waits longer for its turn: pressure may have gone long before.
const LONGEST_DELAY: Duration = Duration::from_millis(40);
/// A shorter wait is left to the next writer: clocks wake in steps of a millisecond, and a writer that sleeps for less would
/// wait many times as long as its turn takes.
const SHORTEST_DELAY: Duration = Duration::from_millis(2);

/// The turns of writers that are slowed.
#[derive(Default)]
pub(crate) struct Pace {
    /// When the turn of the last writer ends.
    next_nanos: AtomicU64,
}

impl Pace {
    /// What a writer of `len` bytes has to wait now, if anything.
    pub(crate) fn delay(&self, now: Nanos, fill: f64, len: u64) -> Option<Duration> {
        let takes = turn(fill, len).as_nanos() as u64;
        if takes == 0 {
            return None;
        }
        let last = now.0 + LONGEST_DELAY.as_nanos() as u64;
        let begins = |next: u64| next.max(now.0);
        let ends = |next: u64| Some((begins(next) + takes).min(last));
        let next =
            self.next_nanos.fetch_update(Ordering::Relaxed, Ordering::Relaxed, ends).unwrap_or_default();
        // Its own turn is waited for too: a lone writer is slowed like many.
        let delay = Duration::from_nanos((begins(next) + takes).min(last) - now.0);
        (delay >= SHORTEST_DELAY).then_some(delay)
    }
}

/// The time that `len` bytes take at this fill.
fn turn(fill: f64, len: u64) -> Duration {
    let pressure = ((fill - SLOW_FROM) / (STOP_AT - SLOW_FROM)).clamp(0.0, MOST_PRESSURE);
    Duration::from_nanos((len as f64 * NANOS_PER_BYTE * pressure / (1.0 - pressure)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 8192;

    #[test]
    fn the_turn_grows_from_nothing_without_a_step() {
        assert_eq!(turn(0.3, LEN), Duration::ZERO);
        assert_eq!(turn(SLOW_FROM, LEN), Duration::ZERO);
        let mut before = Duration::ZERO;
        // A thousandth of the fill at a time, as far as the pressure is not at its bound.
        for step in 1..346 {
            let now = turn(SLOW_FROM + f64::from(step) / 1000.0, LEN);
            assert!(now > before, "at {step}");
            let allowed = Duration::from_micros(2) + before.mul_f64(if step < 10 { 2.0 } else { 0.25 });
            assert!(now - before <= allowed, "a cliff at {step}: {before:?}, then {now:?}");
            before = now;
        }
        assert!(before > Duration::from_millis(2), "near the stop a block takes long: {before:?}");
        assert_eq!(turn(2.0, LEN), turn(STOP_AT, LEN));
    }

    #[test]
    fn any_number_of_writers_share_one_rate() {
        for writers in [1u64, 8, 64] {
            let pace = Pace::default();
            let mut due: Vec<u64> = vec![0; writers as usize];
            let mut admitted = 0u64;
            // Each writer asks again as soon as it was let in.
            while let Some(now) = due.iter().min().copied().filter(|now| *now < 1_000_000_000) {
                let writer = due.iter().position(|at| *at == now).unwrap();
                let delay = pace.delay(Nanos(now), (SLOW_FROM + STOP_AT) / 2.0, LEN);
                due[writer] = now + delay.map_or(1_000, |d| d.as_nanos() as u64);
                admitted += 1;
            }
            let rate = admitted * LEN;
            assert!((220_000_000..290_000_000).contains(&rate), "{writers} writers: {rate} bytes a second");
        }
    }

    #[test]
    fn nobody_waits_for_ever() {
        let pace = Pace::default();
        let longest = (0..1000).filter_map(|_| pace.delay(Nanos(5), 0.99, 1 << 20)).max().unwrap();
        assert_eq!(longest, LONGEST_DELAY);
        assert_eq!(pace.delay(Nanos(5), 0.4, 1 << 20), None, "what does not press is not slowed by what did");
    }
}
