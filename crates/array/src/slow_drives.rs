//! Drives that answer much later than the others: they are marked, read around, and tried until they are quick again.
//!
//! Each second the reads of each drive are compared with those of the others. What counts is the time within which nine of ten
//! were answered. A marked drive gets few reads, so it is asked for a page each second to find out when it is quick again.

use quoin_base::{DriveIndex, metrics::LatencySnapshot};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Fewer reads in a second say nothing about a drive. One that is late is read around: it gets few.
const LEAST_READS: u64 = 4;
/// Of the drives with which it is compared more are asked for.
const LEAST_USUAL_READS: u64 = 16;
/// A drive is slow that takes so many times as long as the others.
const SLOW_FACTOR: u32 = 4;
/// And so much longer at least: nobody notices less.
const SLOW_LEAST: Duration = Duration::from_millis(2);
/// It is marked when it was slow in so many seconds in a row, and
const SLOW_LOOKS: u32 = 3;
/// not slow any more when it answered so many pages in a row in time.
const QUICK_PROBES: u32 = 5;
/// A read is late that takes so many times as long as 95 of 100 reads.
const LATE_FACTOR: u32 = 3;
/// The bounds of that.
const LATE_LEAST: Duration = Duration::from_millis(5);
const LATE_MOST: Duration = Duration::from_millis(500);
/// One of so many reads may be made again because it is late,
const EXTRA_PART: u64 = 10;
/// and so many in any case.
const EXTRA_LEAST: u64 = 64;

/// The drives, and how long their reads take.
#[derive(Default)]
pub(crate) struct SlowDrives {
    drives: BTreeMap<DriveIndex, Pace>,
    late_after: Option<Duration>,
    /// What nine of ten reads of drives that are not slow took lately.
    usual: Option<Duration>,
}

#[derive(Default)]
struct Pace {
    seen: LatencySnapshot,
    slow_looks: u32,
    mark: Option<Mark>,
}

#[derive(Default)]
struct Mark {
    quick_probes: u32,
    is_asked: bool,
}

/// What a look found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Drives that are slow from now on: what nine of ten reads took, and what those of the others took.
    pub(crate) slow: Vec<(DriveIndex, Duration, Duration)>,
    /// Drives that are to be asked for a page.
    pub(crate) ask: Vec<DriveIndex>,
    pub(crate) extra_reads: u64,
}

fn is_slow(took: Duration, usual: Duration) -> bool {
    took > usual * SLOW_FACTOR && took > usual + SLOW_LEAST
}

fn median(mut all: Vec<Duration>) -> Option<Duration> {
    all.sort_unstable();
    all.get(all.len().saturating_sub(1) / 2).copied()
}

impl SlowDrives {
    /// Looks at what the reads of each drive took so far. Drives that are not in `reads` are forgotten.
    pub(crate) fn look(&mut self, reads: Vec<(DriveIndex, LatencySnapshot)>) -> Found {
        let there: BTreeSet<_> = reads.iter().map(|(drive, _)| *drive).collect();
        self.drives.retain(|drive, _| there.contains(drive));
        let mut found = Found::default();
        let mut now = BTreeMap::new();
        let mut all_reads = 0;
        for (drive, seen) in reads {
            let pace = self.drives.entry(drive).or_default();
            let since = seen.since(&pace.seen);
            pace.seen = seen;
            all_reads += since.count();
            let quantiles = since.quantile(0.9).zip(since.quantile(0.95));
            if let Some(quantiles) = quantiles.filter(|_| since.count() >= LEAST_READS) {
                now.insert(drive, (quantiles, since.count()));
            }
        }
        found.extra_reads = (all_reads / EXTRA_PART).max(EXTRA_LEAST);
        let marked: BTreeSet<_> =
            self.drives.iter().filter(|(_, pace)| pace.mark.is_some()).map(|(drive, _)| *drive).collect();
        let of_others = |but: Option<DriveIndex>| {
            let others = now.iter().filter(|(drive, _)| !marked.contains(drive) && Some(**drive) != but);
            let others = others.filter(|(_, (_, reads))| *reads >= LEAST_USUAL_READS);
            others.map(|(_, (quantiles, _))| *quantiles).collect::<Vec<_>>()
        };
        for (drive, pace) in &mut self.drives {
            if let Some(mark) = &mut pace.mark {
                if !std::mem::replace(&mut mark.is_asked, true) {
                    found.ask.push(*drive);
                }
                continue;
            }
            let Some(((took, _), _)) = now.get(drive) else { continue };
            let usual = median(of_others(Some(*drive)).into_iter().map(|(ninety, _)| ninety).collect());
            let slow = usual.filter(|usual| is_slow(*took, *usual));
            pace.slow_looks = if slow.is_some() { pace.slow_looks + 1 } else { 0 };
            if let Some(usual) = slow.filter(|_| pace.slow_looks >= SLOW_LOOKS) {
                pace.slow_looks = 0;
                pace.mark = Some(Mark::default());
                found.slow.push((*drive, *took, usual));
            }
        }
        let others = of_others(None);
        self.usual = median(others.iter().map(|(ninety, _)| *ninety).collect()).or(self.usual);
        if let Some(late) = median(others.iter().map(|(_, most)| *most).collect()) {
            let late = (late * LATE_FACTOR).clamp(LATE_LEAST, LATE_MOST);
            // It follows slowly, so that one bad second does not move it far.
            self.late_after = Some(self.late_after.map_or(late, |before| (before * 3 + late) / 4));
        }
        found
    }

    /// A marked drive answered a page after so long; `None`: it failed to. True if it is not slow any more.
    pub(crate) fn answered(&mut self, drive: DriveIndex, took: Option<Duration>) -> bool {
        let Some(Pace { mark, .. }) = self.drives.get_mut(&drive) else { return false };
        let Some(marked) = mark else { return false };
        let usual = self.usual.unwrap_or_default();
        let is_quick = took.is_some_and(|took| !is_slow(took, usual));
        marked.is_asked = false;
        marked.quick_probes = if is_quick { marked.quick_probes + 1 } else { 0 };
        let is_over = marked.quick_probes >= QUICK_PROBES;
        if is_over {
            *mark = None;
        }
        is_over
    }

    /// When a read is late, as far as is known.
    pub(crate) fn late_after(&self) -> Option<Duration> {
        self.late_after
    }

    /// Whether a drive is marked.
    #[cfg(test)]
    fn is_slow(&self, drive: DriveIndex) -> bool {
        self.drives.get(&drive).is_some_and(|pace| pace.mark.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quoin_base::metrics::LatencyHistogram;

    #[derive(Default)]
    struct Drives {
        reads: BTreeMap<u16, LatencyHistogram>,
        slow: SlowDrives,
    }

    impl Drives {
        /// A second in which each of these drives answered a hundred reads after so many milliseconds.
        fn second(&mut self, took_ms: &[u64]) -> Found {
            self.some(&took_ms.iter().map(|ms| (100, *ms)).collect::<Vec<_>>())
        }

        fn some(&mut self, reads: &[(u64, u64)]) -> Found {
            for (drive, (count, ms)) in (0..).zip(reads) {
                let histogram = self.reads.entry(drive).or_default();
                (0..*count).for_each(|_| histogram.record(Duration::from_millis(*ms)));
            }
            let reads = self.reads.iter().map(|(drive, reads)| (DriveIndex(*drive), reads.snapshot()));
            self.slow.look(reads.collect())
        }

        fn answers(&mut self, drive: u16, ms: u64) -> bool {
            self.slow.answered(DriveIndex(drive), Some(Duration::from_millis(ms)))
        }
    }

    #[test]
    fn a_drive_is_marked_when_it_stays_slow_and_until_it_is_quick_again() {
        let mut drives = Drives::default();
        for _ in 0..3 {
            assert_eq!(drives.second(&[10, 12, 11]).slow, []);
        }
        // For a moment.
        drives.second(&[10, 12, 200]);
        assert_eq!(drives.second(&[10, 12, 11]).slow, []);
        assert_eq!(drives.second(&[10, 12, 200]).slow, []);
        assert_eq!(drives.second(&[10, 12, 200]).slow, []);
        let [(drive, took, usual)] = drives.second(&[10, 12, 200]).slow[..] else { panic!("it is marked") };
        assert_eq!(drive, DriveIndex(2));
        assert!(took > usual * 15 && drives.slow.is_slow(DriveIndex(2)), "{took:?} {usual:?}");
        // It is asked once at a time, and told of once.
        assert_eq!(drives.some(&[(100, 10), (100, 12), (0, 0)]).ask, [DriveIndex(2)]);
        assert_eq!(drives.some(&[(100, 10), (100, 12), (0, 0)]).ask, []);
        assert!(!drives.answers(2, 190));
        for _ in 0..QUICK_PROBES - 1 {
            assert_eq!(drives.second(&[10, 12, 200]).ask, [DriveIndex(2)]);
            assert!(!drives.answers(2, 9));
        }
        assert!(drives.answers(2, 9) && !drives.slow.is_slow(DriveIndex(2)));
        assert!(!drives.answers(2, 9), "it is not marked any more");
    }

    #[test]
    fn few_reads_small_differences_and_drives_that_are_all_slow_say_nothing() {
        let mut drives = Drives::default();
        for _ in 0..10 {
            assert_eq!(drives.some(&[(100, 10), (100, 10), (LEAST_READS - 1, 900)]).slow, []);
            assert_eq!(drives.some(&[(LEAST_USUAL_READS - 1, 10), (15, 10), (100, 900)]).slow, []);
            assert_eq!(drives.second(&[10, 10, 39]).slow, []);
            assert_eq!(drives.second(&[500, 600, 700]).slow, []);
        }
        let mut alone = Drives::default();
        (0..10).for_each(|_| assert_eq!(alone.second(&[900]).slow, []));
    }

    #[test]
    fn the_deadline_follows_the_drives_that_are_not_slow_and_what_is_read_again_is_bounded() {
        let mut drives = Drives::default();
        assert_eq!(drives.second(&[10, 10, 10]).extra_reads, EXTRA_LEAST);
        let late = drives.slow.late_after.unwrap();
        assert!((25..40).contains(&late.as_millis()), "{late:?}");
        for _ in 0..10 {
            drives.second(&[10, 10, 400]);
        }
        assert!(drives.slow.late_after.unwrap() < late * 2);
        assert_eq!(drives.some(&[(5000, 1), (5000, 1), (0, 0)]).extra_reads, 1000);
        assert!(drives.slow.late_after.unwrap() >= LATE_LEAST);
        // One that is not there any more is forgotten, and its mark with it.
        drives.reads.remove(&2);
        drives.second(&[10, 10]);
        assert!(!drives.slow.is_slow(DriveIndex(2)));
    }
}
