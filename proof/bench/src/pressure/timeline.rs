//! What happened in each second of a run.

use std::time::{Duration, Instant};

/// Longer than this is a stall.
pub(crate) const STALL: Duration = Duration::from_millis(50);

/// One second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Second {
    pub(crate) ios: u64,
    pub(crate) bytes: u64,
    /// Of what ended in it.
    pub(crate) longest: Duration,
}

/// A transfer that took longer than [`STALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stall {
    /// The seconds in which it began and ended.
    pub(crate) first: usize,
    pub(crate) last: usize,
    pub(crate) took: Duration,
}

/// Seconds since a moment.
#[derive(Debug, Clone)]
pub(crate) struct Timeline {
    zero: Instant,
    pub(crate) seconds: Vec<Second>,
    pub(crate) stalls: Vec<Stall>,
}

impl Timeline {
    pub(crate) fn since(zero: Instant) -> Timeline {
        Timeline { zero, seconds: Vec::new(), stalls: Vec::new() }
    }

    pub(crate) fn record(&mut self, started: Instant, ended: Instant, bytes: u64) {
        let second = |at: Instant| at.saturating_duration_since(self.zero).as_secs() as usize;
        let (first, last) = (second(started), second(ended));
        if self.seconds.len() <= last {
            self.seconds.resize(last + 1, Second::default());
        }
        let took = ended - started;
        let entry = &mut self.seconds[last];
        entry.ios += 1;
        entry.bytes += bytes;
        entry.longest = entry.longest.max(took);
        if took > STALL {
            self.stalls.push(Stall { first, last, took });
        }
    }

    /// The stalls in none of whose seconds the other one stalled, the longest of each second they ended in.
    pub(crate) fn not_shared_with(&self, other: &Timeline) -> Vec<Stall> {
        let excused =
            |stall: &Stall| other.stalls.iter().any(|o| o.first <= stall.last && stall.first <= o.last);
        let mut own: Vec<Stall> = self.stalls.iter().filter(|s| !excused(s)).copied().collect();
        own.sort_by_key(|s| (s.last, std::cmp::Reverse(s.took)));
        own.dedup_by_key(|s| s.last);
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(ios: &[(u64, u64)]) -> Timeline {
        let zero = Instant::now();
        let mut timeline = Timeline::since(zero);
        for &(from, to) in ios {
            timeline.record(zero + Duration::from_millis(from), zero + Duration::from_millis(to), 10);
        }
        timeline
    }

    #[test]
    fn a_second_knows_its_longest_and_a_stall_its_seconds() {
        let host = timeline(&[(0, 10), (900, 1100), (1500, 1520), (3000, 3050)]);
        let longest: Vec<_> = host.seconds.iter().map(|s| s.longest.as_millis()).collect();
        assert_eq!(longest, [10, 200, 0, 50]);
        assert_eq!((host.seconds[1].ios, host.seconds[1].bytes), (2, 20));
        assert_eq!(host.stalls, [Stall { first: 0, last: 1, took: Duration::from_millis(200) }]);
    }

    #[test]
    fn what_the_drive_did_too_is_not_held_against_the_target() {
        let host = timeline(&[(900, 1100), (1000, 1060), (5000, 5100), (5000, 5200), (9000, 9060)]);
        let drive = timeline(&[(100, 400), (5990, 6100)]);
        let own = host.not_shared_with(&drive);
        assert_eq!(own.iter().map(|s| (s.last, s.took.as_millis())).collect::<Vec<_>>(), [(1, 60), (9, 60)]);
        let own = host.not_shared_with(&timeline(&[]));
        assert_eq!(
            own.iter().map(|s| (s.last, s.took.as_millis())).collect::<Vec<_>>(),
            [(1, 200), (5, 200), (9, 60)]
        );
    }
}
