//! Stalls: writes of hosts that took so long that an application notices, and what they waited for.
//!
//! The parts of a write are timed only where it waits, so that a write that does not wait costs two looks at the clock.

use quoin_world::Nanos;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Longer than this is a stall.
pub(crate) const STALL: Duration = Duration::from_millis(50);

/// What one write waited for so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    /// Room in the write buffer and the journal.
    pub room: Duration,
    /// Space that commits were to give back.
    pub space: Duration,
}

/// Stalls since the pool was opened.
#[derive(Default)]
pub(crate) struct Stalls {
    room: AtomicU64,
    space: AtomicU64,
    hardening: AtomicU64,
    longest_nanos: AtomicU64,
}

/// The same in figures.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StallCounts {
    pub room: u64,
    pub space: u64,
    pub hardening: u64,
    pub longest: Duration,
}

impl Stalls {
    /// Judges a write that went on from `started` to `ended`: what it waited for longest is to blame.
    pub(crate) fn ended(&self, started: Nanos, ended: Nanos, waits: Waits) {
        let took = ended.since(started);
        let nanos = took.as_nanos() as u64;
        if nanos > self.longest_nanos.load(Ordering::Relaxed) {
            self.longest_nanos.fetch_max(nanos, Ordering::Relaxed);
        }
        if took <= STALL {
            return;
        }
        let hardening = took.saturating_sub(waits.room).saturating_sub(waits.space);
        let (what, counter) = match () {
            () if waits.space >= waits.room && waits.space >= hardening => ("space", &self.space),
            () if waits.room >= hardening => ("room in buffer and journal", &self.room),
            () => ("the journal's drive", &self.hardening),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(?took, room = ?waits.room, space = ?waits.space, "a write was stalled for {what}");
    }

    pub(crate) fn counts(&self) -> StallCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StallCounts {
            room: get(&self.room),
            space: get(&self.space),
            hardening: get(&self.hardening),
            longest: Duration::from_nanos(get(&self.longest_nanos)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_laid_to_what_was_waited_for_longest() {
        let stalls = Stalls::default();
        let ms = Duration::from_millis;
        let end = |total: u64, room: u64, space: u64| {
            stalls.ended(Nanos(0), Nanos(total * 1_000_000), Waits { room: ms(room), space: ms(space) });
        };
        end(50, 50, 0);
        end(100, 60, 0);
        end(100, 20, 60);
        end(100, 20, 10);
        end(70, 0, 0);
        let counts = stalls.counts();
        assert_eq!((counts.room, counts.space, counts.hardening), (1, 1, 2));
        assert_eq!(counts.longest, ms(100));
    }
}
