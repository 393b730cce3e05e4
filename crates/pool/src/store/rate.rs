//! How fast columns are made again and moved, over the whole pool: no faster than the cap, and beside hosts no slower than
//! the floor.
//!
//! Between the two, the pace of each drive decides: see [`Pace`](super::pace::Pace). The floor lets what is moved do without
//! the rests that it takes beside hosts; more than one piece at a time a drive never gets beside them.
//!
//! Two clocks run: each byte moves them on by the time that it takes at the cap and at the floor. Behind the first, what comes
//! next waits. Behind the second, it does not rest.

use quoin_world::{
    Mutex, Nanos, World,
    atomic::{AtomicU64, Ordering},
};
use std::time::Duration;

/// How far a clock lags behind at the most: what was not done longer ago is not made up for.
const LONGEST_LAG: Duration = Duration::from_secs(1);

/// In bytes per second of the pool; 0: none.
#[derive(Default)]
pub(crate) struct Rate {
    floor: AtomicU64,
    cap: AtomicU64,
    clocks: Mutex<Clocks>,
}

#[derive(Clone, Copy, Default)]
struct Clocks {
    floor: Nanos,
    cap: Nanos,
}

/// Moves a clock on by what so many bytes take at a rate.
fn moved_on(clock: Nanos, now: Nanos, bytes: u64, rate: u64) -> Nanos {
    let earliest = Nanos(now.0.saturating_sub(LONGEST_LAG.as_nanos() as u64));
    let takes = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    Nanos(clock.0.max(earliest.0).saturating_add(takes as u64))
}

impl Rate {
    /// Sets both; 0: none.
    pub(crate) fn set(&self, floor: u64, cap: u64) {
        self.floor.store(floor, Ordering::Relaxed);
        self.cap.store(cap, Ordering::Relaxed);
        // What was due at another rate is forgotten.
        *self.clocks.lock() = Clocks::default();
    }

    /// Floor and cap.
    pub(crate) fn get(&self) -> (u64, u64) {
        (self.floor.load(Ordering::Relaxed), self.cap.load(Ordering::Relaxed))
    }

    /// Waits until so many bytes more may be moved.
    pub(crate) async fn admit(&self, bytes: u64, world: &dyn World) {
        let wait = self.due(bytes, world.now());
        if !wait.is_zero() {
            world.sleep(wait).await;
        }
    }

    /// Counts bytes that are moved now, and tells how long they have to wait.
    fn due(&self, bytes: u64, now: Nanos) -> Duration {
        let (floor, cap) = self.get();
        let mut clocks = self.clocks.lock();
        if floor > 0 {
            clocks.floor = moved_on(clocks.floor, now, bytes, floor);
        }
        if cap == 0 {
            return Duration::ZERO;
        }
        let begins = clocks.cap;
        // NOTE: no lag here. What was not moved before is not moved faster than the cap now.
        clocks.cap = moved_on(Nanos(begins.0.max(now.0)), now, bytes, cap);
        Duration::from_nanos(begins.0.saturating_sub(now.0))
    }

    /// Whether less was moved than the floor says.
    pub(crate) fn is_behind(&self, now: Nanos) -> bool {
        self.floor.load(Ordering::Relaxed) > 0 && self.clocks.lock().floor < now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn at(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000 + 5_000_000_000)
    }

    #[test]
    fn nothing_goes_faster_than_the_cap_also_after_a_pause() {
        let rate = Rate::default();
        rate.set(0, 100 * MIB);
        assert_eq!(rate.due(MIB, at(0)), Duration::ZERO);
        // The next has to wait until the first would be done at that rate.
        assert_eq!(rate.due(MIB, at(0)), Duration::from_millis(10));
        assert_eq!(rate.due(MIB, at(10)), Duration::from_millis(10));
        assert_eq!(rate.due(MIB, at(10_000)), Duration::ZERO);
        assert_eq!(rate.due(MIB, at(10_000)), Duration::from_millis(10));
        rate.set(0, 0);
        assert_eq!((0..100).map(|_| rate.due(MIB, at(10_001))).max(), Some(Duration::ZERO));
    }

    #[test]
    fn it_is_behind_while_less_goes_than_the_floor_says() {
        let rate = Rate::default();
        assert!(!rate.is_behind(at(0)), "without a floor");
        rate.set(10 * MIB, 0);
        assert!(rate.is_behind(at(0)));
        // Ten of them make up for a second, which is the most there is to make up for.
        for _ in 0..10 {
            assert!(rate.is_behind(at(0)));
            rate.due(MIB, at(0));
        }
        assert!(!rate.is_behind(at(0)));
        rate.due(MIB, at(0));
        assert!(!rate.is_behind(at(100)) && rate.is_behind(at(101)));
    }
}
