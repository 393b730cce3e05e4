//! Drives that err again and again: they are evacuated before they fail.
//!
//! What counts is operations that failed and repairs of what a drive held. A burst counts little, however many errors it has:
//! one damaged track found by a scrub is repaired, and the drive may serve for years. A drive that errs minute after minute
//! is on its way out.

use quoin_base::DriveIndex;
use quoin_world::Nanos;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

/// Errors count for so long.
const COUNTED_FOR: Duration = Duration::from_secs(3600);
/// Of one minute count so many at most.
const MOST_A_MINUTE: u32 = 4;
const MINUTE: Duration = Duration::from_secs(60);
/// How often it is tried again to evacuate a drive that could not be.
const TRY_EVERY: Duration = Duration::from_secs(600);
/// The errors within an hour from which on a drive is evacuated, unless something else is set.
pub(crate) const DEFAULT_ERRORS: u32 = 20;
/// More can never count.
pub(crate) const MOST_ERRORS: u32 = 60 * MOST_A_MINUTE;

/// The drives, and how often they erred lately.
#[derive(Default)]
pub(crate) struct FailingDrives {
    drives: BTreeMap<DriveIndex, Errors>,
    /// From so many errors within an hour on a drive is evacuated; 0: never.
    limit: u32,
}

#[derive(Default)]
struct Errors {
    /// What the drive has counted since it was opened.
    seen: u64,
    /// When minutes with errors began, and how many of their errors count.
    minutes: VecDeque<(Nanos, u32)>,
    is_failing: bool,
    try_at: Option<Nanos>,
}

impl Errors {
    fn note(&mut self, now: Nanos, counted: u64) {
        // Another opening of the drive counts anew.
        let new = counted.checked_sub(self.seen).unwrap_or(counted);
        self.seen = counted;
        while self.minutes.front().is_some_and(|(began, _)| now.since(*began) > COUNTED_FOR) {
            self.minutes.pop_front();
        }
        if new == 0 {
            return;
        }
        let new = u32::try_from(new).unwrap_or(u32::MAX);
        match self.minutes.back_mut() {
            Some((began, count)) if now.since(*began) < MINUTE => {
                *count = count.saturating_add(new).min(MOST_A_MINUTE);
            }
            _ => self.minutes.push_back((now, new.min(MOST_A_MINUTE))),
        }
    }

    fn lately(&self) -> u32 {
        self.minutes.iter().map(|(_, count)| count).sum()
    }
}

impl FailingDrives {
    /// Looks at what drives have counted so far. Returns those that are to be evacuated now, with the errors that count and
    /// whether that is new.
    pub(crate) fn look(
        &mut self,
        now: Nanos,
        counted: Vec<(DriveIndex, u64)>,
    ) -> Vec<(DriveIndex, u32, bool)> {
        let there: BTreeSet<_> = counted.iter().map(|(drive, _)| *drive).collect();
        self.drives.retain(|drive, _| there.contains(drive));
        let mut due = Vec::new();
        for (drive, counted) in counted {
            let errors = self.drives.entry(drive).or_default();
            errors.note(now, counted);
            let lately = errors.lately();
            let is_new = !errors.is_failing;
            errors.is_failing = self.limit > 0 && (errors.is_failing || lately >= self.limit);
            if errors.is_failing && errors.try_at.is_none_or(|at| now >= at) {
                errors.try_at = Some(Nanos(now.0 + TRY_EVERY.as_nanos() as u64));
                due.push((drive, lately, is_new));
            }
        }
        due
    }

    pub(crate) fn set_limit(&mut self, errors: u32) {
        self.limit = errors;
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// Whether a drive errs again and again.
    #[cfg(test)]
    fn is_failing(&self, drive: DriveIndex) -> bool {
        self.drives.get(&drive).is_some_and(|errors| errors.is_failing)
    }

    /// Those that do.
    pub(crate) fn all(&self) -> BTreeSet<DriveIndex> {
        self.drives.iter().filter(|(_, errors)| errors.is_failing).map(|(drive, _)| *drive).collect()
    }

    /// A drive is to stay: its errors so far do not count any more.
    pub(crate) fn forgive(&mut self, drive: DriveIndex) {
        if let Some(errors) = self.drives.get_mut(&drive) {
            *errors = Errors { seen: errors.seen, ..Errors::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVE: DriveIndex = DriveIndex(3);

    fn watch(limit: u32) -> FailingDrives {
        let mut drives = FailingDrives::default();
        drives.set_limit(limit);
        drives
    }

    fn at(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_drive_that_errs_minute_after_minute_fails_and_a_burst_is_none() {
        let mut drives = watch(20);
        assert_eq!(drives.look(at(0), vec![(DRIVE, 5000)]), [], "a burst");
        for minute in 1..4 {
            assert_eq!(drives.look(at(minute * 61), vec![(DRIVE, 5000 + 4 * minute)]), [], "{minute}");
        }
        assert_eq!(drives.look(at(300), vec![(DRIVE, 5100)]), [(DRIVE, 20, true)]);
        assert!(drives.is_failing(DRIVE) && !drives.is_failing(DriveIndex(0)));
        // It is tried again, but not at once.
        assert_eq!(drives.look(at(301), vec![(DRIVE, 5100)]), []);
        assert_eq!(drives.look(at(901), vec![(DRIVE, 5100)]), [(DRIVE, 20, false)]);
        // It stays after all: errors count anew.
        drives.forgive(DRIVE);
        assert!(!drives.is_failing(DRIVE));
        assert_eq!(drives.look(at(2000), vec![(DRIVE, 5104)]), []);
    }

    #[test]
    fn errors_of_long_ago_do_not_count_nor_those_before_another_opening() {
        let mut drives = watch(8);
        assert_eq!(drives.look(at(0), vec![(DRIVE, 4)]), []);
        assert_eq!(drives.look(at(3700), vec![(DRIVE, 8)]), [], "the first ones are over");
        // Opened again: its count begins anew, and three errors are three.
        assert_eq!(drives.look(at(3800), vec![(DRIVE, 3)]), []);
        assert_eq!(drives.look(at(3900), vec![(DRIVE, 4)]), [(DRIVE, 8, true)]);
        // Gone: forgotten.
        assert_eq!(drives.look(at(3901), Vec::new()), []);
        assert!(!drives.is_failing(DRIVE));
    }

    #[test]
    fn it_is_turned_off_live() {
        let mut drives = watch(4);
        assert_eq!(drives.look(at(0), vec![(DRIVE, 4)]), [(DRIVE, 4, true)]);
        drives.set_limit(0);
        assert_eq!(drives.look(at(700), vec![(DRIVE, 40)]), []);
        assert!(!drives.is_failing(DRIVE));
    }
}
