//! When a thread polls instead of going to sleep.
//!
//! A host that sends one request at a time and waits for its answer pays for every time a thread goes to sleep and is
//! woken: on a virtual machine as much as for the request itself. While operations come one at a time and are answered
//! soon, the thread stays awake: until the operation completes, and then until the next one comes. It sleeps where
//! either took long lately, so that an idle array takes no CPU, and a slow drive is not waited for awake.

use std::time::{Duration, Instant};

/// So many operations in a row, each of which was alone, before a thread polls.
const ALONE_BEFORE_POLLING: u8 = 16;
/// The longest an operation may usually take for a thread to wait for it awake.
const MAX_SERVICE: Duration = Duration::from_micros(250);
/// The longest the next operation may usually take to come.
const MAX_PAUSE: Duration = Duration::from_micros(100);

/// Tells when to poll, from the operations of a thread's ring.
#[derive(Default)]
pub(crate) struct Poller {
    phase: Phase,
    /// Operations in a row that were alone.
    alone: u8,
    service: Average,
    pause: Average,
}

#[derive(Clone, Copy, Default)]
enum Phase {
    /// Nothing was ever done, or several operations were in flight and some still are.
    #[default]
    Other,
    /// One operation is in flight since then.
    Busy(Instant),
    /// None is in flight since then.
    Paused(Instant),
}

/// A moving average of durations.
#[derive(Default)]
struct Average(Duration);

impl Average {
    fn add(&mut self, duration: Duration, limit: Duration) {
        // One that is much longer counts like one that is just too long, so that it is soon forgotten.
        self.0 = (self.0 * 7 + duration.min(limit * 4)) / 8;
    }

    /// How long to poll for what takes so long on average.
    fn patience(&self, limit: Duration) -> Duration {
        if self.0 > limit { Duration::ZERO } else { (self.0 * 3).min(limit) }
    }
}

impl Poller {
    /// An operation begins; so many are in flight with it.
    pub(crate) fn submitted(&mut self, in_flight: usize, now: Instant) {
        match (in_flight, self.phase) {
            (1, Phase::Paused(since)) => {
                self.pause.add(now.saturating_duration_since(since), MAX_PAUSE);
                self.phase = Phase::Busy(now);
            }
            (1, _) => self.phase = Phase::Busy(now),
            _ => {
                self.alone = 0;
                self.phase = Phase::Other;
            }
        }
    }

    /// An operation ended; so many are left in flight.
    pub(crate) fn completed(&mut self, in_flight: usize, now: Instant) {
        if in_flight > 0 {
            return;
        }
        if let Phase::Busy(since) = self.phase {
            self.service.add(now.saturating_duration_since(since), MAX_SERVICE);
            self.alone = self.alone.saturating_add(1);
        }
        self.phase = Phase::Paused(now);
    }

    /// Until when to poll; `None` to sleep at once.
    pub(crate) fn until(&self) -> Option<Instant> {
        if self.alone < ALONE_BEFORE_POLLING {
            return None;
        }
        match self.phase {
            Phase::Other => None,
            Phase::Busy(since) => Some(since + self.service.patience(MAX_SERVICE)),
            Phase::Paused(since) => Some(since + self.pause.patience(MAX_PAUSE)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    /// A poller after `count` operations that took `service` each, with `pause` between them, and the time then.
    fn after(count: u32, service: u32, pause: u32) -> (Poller, Instant) {
        let (mut poller, mut now) = (Poller::default(), Instant::now());
        for _ in 0..count {
            now += MICROSECOND * pause;
            poller.submitted(1, now);
            now += MICROSECOND * service;
            poller.completed(0, now);
        }
        (poller, now)
    }

    fn polls_at(poller: &Poller, now: Instant) -> bool {
        poller.until().is_some_and(|until| now < until)
    }

    #[test]
    fn it_polls_for_operations_that_come_one_at_a_time_and_soon() {
        let (mut poller, now) = after(100, 80, 40);
        assert!(polls_at(&poller, now + 60 * MICROSECOND), "the next one is due");
        let now = now + 40 * MICROSECOND;
        poller.submitted(1, now);
        assert!(polls_at(&poller, now + 100 * MICROSECOND), "it is about to complete");
        assert!(!polls_at(&poller, now + 260 * MICROSECOND), "it takes longer than usual");
    }

    #[test]
    fn it_sleeps_when_nothing_comes() {
        let (poller, now) = after(100, 80, 40);
        assert!(!polls_at(&poller, now + 101 * MICROSECOND));
        assert!(!polls_at(&after(3, 80, 40).0, Instant::now()), "too few to know");
    }

    #[test]
    fn it_sleeps_where_operations_or_pauses_are_long() {
        let (mut poller, now) = after(100, 2_000, 40);
        poller.submitted(1, now);
        assert!(!polls_at(&poller, now), "the drive is slow");
        let (poller, now) = after(100, 80, 5_000);
        assert!(!polls_at(&poller, now), "the host is slow");
    }

    #[test]
    fn it_sleeps_while_several_operations_are_in_flight() {
        let (mut poller, now) = after(100, 80, 10);
        poller.submitted(1, now);
        poller.submitted(2, now);
        assert!(poller.until().is_none());
        poller.completed(1, now);
        poller.completed(0, now);
        assert!(poller.until().is_none(), "they do not come one at a time any more");
    }

    #[test]
    fn one_long_pause_is_soon_forgotten() {
        let (mut poller, mut now) = after(100, 80, 10);
        for pause in [1_000_000, 10, 10, 10, 10] {
            now += MICROSECOND * pause;
            poller.submitted(1, now);
            now += 80 * MICROSECOND;
            poller.completed(0, now);
        }
        assert!(polls_at(&poller, now));
    }
}
