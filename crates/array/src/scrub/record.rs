//! The record of scrubs and damage in the catalog.

use crate::record::decode;
use quoin_api::{ScrubFindings, ScrubResult, ScrubSchedule, ScrubUpdate, TimeOfDay};
use quoin_base::{ByteRange, VolumeId};
use quoin_pool::Damage;
use serde::{Deserialize, Serialize};

/// The key of the object of scrubs in the catalog.
pub(super) const KEY: &str = "scrub";
/// The most damaged ranges that are kept, and the longest reason of one: they have to fit in one transaction.
const MOST_DAMAGED: usize = 200;
const LONGEST_REASON: usize = 120;
pub(super) const DEFAULT_RATE_BYTES_S: u64 = 50 << 20;
const DEFAULT_MINUTE: u16 = 2 * 60;
pub(super) const DAY_MS: u64 = 86_400_000;

/// The record in the catalog.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) schedule: ScrubSchedule,
    pub(super) at: TimeOfDay,
    pub(super) rate_bytes_s: u64,
    /// Due times up to this one are settled.
    pub(super) settled_ms: u64,
    pub(super) begun: Option<Begun>,
    pub(super) last: Option<ScrubResult>,
    /// When the last complete one ended.
    pub(super) completed_ms: Option<u64>,
    pub(super) damaged: Vec<Damaged>,
    pub(super) more_damaged: u64,
}

/// A scrub that has begun and not ended, as it was saved last.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Begun {
    pub(super) started_ms: u64,
    #[serde(default)]
    pub(super) slice: u8,
    pub(super) space: u8,
    pub(super) page: u64,
    pub(super) bytes: u64,
    pub(super) found: ScrubFindings,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Damaged {
    pub(super) volume: VolumeId,
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
    pub(super) found_ms: u64,
    pub(super) reason: String,
}

impl Record {
    pub(super) fn new(now_ms: u64) -> Self {
        Self {
            schedule: ScrubSchedule::default(),
            at: TimeOfDay { minute: DEFAULT_MINUTE },
            rate_bytes_s: DEFAULT_RATE_BYTES_S,
            settled_ms: now_ms,
            begun: None,
            last: None,
            completed_ms: None,
            damaged: Vec::new(),
            more_damaged: 0,
        }
    }

    pub(super) fn set(&mut self, update: &ScrubUpdate, now_ms: u64) {
        self.schedule = update.schedule.unwrap_or(self.schedule);
        self.at = update.at.unwrap_or(self.at);
        self.rate_bytes_s = update.rate_bytes_s.unwrap_or(self.rate_bytes_s);
        if update.schedule.is_some() || update.at.is_some() {
            self.settled_ms = now_ms;
        }
    }

    pub(super) fn next_ms(&self) -> Option<u64> {
        next_due(self.schedule, self.at, self.settled_ms)
    }

    /// Adds what a record says that continues this one and was not saved: damage, and how scrubs went. Settings are saved
    /// when they are changed.
    pub(super) fn add(&mut self, unsaved: Self) {
        for Damaged { volume, offset_bytes, length_bytes, found_ms, reason } in unsaved.damaged {
            let range = ByteRange::new(offset_bytes, length_bytes);
            self.add_damage(&Damage { volume, range, reason }, found_ms);
        }
        self.more_damaged = self.more_damaged.max(unsaved.more_damaged);
        self.settled_ms = self.settled_ms.max(unsaved.settled_ms);
        // A scrub that begins by request is saved before the record in RAM says so; one that ended does not continue.
        let ended_ms = unsaved.last.as_ref().map(|last| last.started_ms);
        let has_ended = |begun: &Begun| Some(begun.started_ms) == ended_ms;
        self.begun = unsaved.begun.or(self.begun.filter(|begun| !has_ended(begun)));
        self.last = unsaved.last.or(self.last.take());
        self.completed_ms = unsaved.completed_ms.or(self.completed_ms);
    }

    /// False if it was known.
    pub(super) fn add_damage(&mut self, damage: &Damage, found_ms: u64) -> bool {
        let (volume, mut range) = (damage.volume, damage.range);
        let end = |d: &Damaged| d.offset_bytes + d.length_bytes;
        let known =
            |d: &Damaged| d.volume == volume && d.offset_bytes <= range.offset && range.end() <= end(d);
        if self.damaged.iter().any(known) {
            return false;
        }
        let overlaps = |d: &mut Damaged| {
            d.volume == volume && d.offset_bytes < damage.range.end() && damage.range.offset < end(d)
        };
        for part in self.damaged.extract_if(.., overlaps) {
            let offset = range.offset.min(part.offset_bytes);
            range = ByteRange::from(offset..range.end().max(end(&part)));
        }
        if self.damaged.len() >= MOST_DAMAGED {
            self.more_damaged += 1;
            return true;
        }
        let reason = damage.reason.chars().take(LONGEST_REASON).collect();
        let (offset_bytes, length_bytes) = (range.offset, range.len);
        self.damaged.push(Damaged { volume, offset_bytes, length_bytes, found_ms, reason });
        self.damaged.sort_unstable_by_key(|d| (d.volume, d.offset_bytes));
        true
    }
}

/// The first due time after `after_ms`.
pub(super) fn next_due(schedule: ScrubSchedule, at: TimeOfDay, after_ms: u64) -> Option<u64> {
    // 1970-01-04 was a Sunday.
    let fits = |day: &u64| match schedule {
        ScrubSchedule::Off => false,
        ScrubSchedule::Daily => true,
        ScrubSchedule::Weekly => day % 7 == 3,
    };
    let today = after_ms / DAY_MS;
    let due = |day: u64| day * DAY_MS + u64::from(at.minute) * 60_000;
    (today..today + 9).filter(fits).map(due).find(|due| *due > after_ms)
}

/// The problem of the object of scrubs in a catalog, if it has one.
pub(crate) fn scrub_problem(key: &str, bytes: &[u8]) -> Option<String> {
    match decode::<Record>(key, bytes) {
        Ok(_) if key == KEY => None,
        Ok(_) => Some(format!("it should be called {KEY}")),
        Err(error) => Some(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::encode;

    #[test]
    fn the_next_one_is_due_at_its_time_and_day() {
        let at = TimeOfDay { minute: 150 };
        // Sunday, 2026-11-22, midnight.
        let sunday = 1_795_305_600_000;
        let due = sunday + 150 * 60_000;
        let next = |schedule, after| next_due(schedule, at, after);
        assert_eq!(next(ScrubSchedule::Off, sunday), None);
        assert_eq!(next(ScrubSchedule::Daily, sunday), Some(due));
        assert_eq!(next(ScrubSchedule::Daily, due - 1), Some(due));
        assert_eq!(next(ScrubSchedule::Daily, due), Some(due + DAY_MS));
        assert_eq!(next(ScrubSchedule::Weekly, sunday), Some(due));
        assert_eq!(next(ScrubSchedule::Weekly, due), Some(due + 7 * DAY_MS));
        assert_eq!(next(ScrubSchedule::Weekly, sunday + 3 * DAY_MS), Some(due + 7 * DAY_MS));
    }

    #[test]
    fn a_full_list_of_damage_fits_in_a_transaction_and_counts_what_it_does_not_hold() {
        let mut record = Record::new(1);
        for n in 0..300 {
            let range = ByteRange::new(u64::MAX / 2 + n * 16_384, 8192);
            record
                .add_damage(&Damage { volume: VolumeId(u32::MAX), range, reason: "x".repeat(500) }, u64::MAX);
        }
        assert_eq!((record.damaged.len(), record.more_damaged), (MOST_DAMAGED, 100));
        record.damaged.truncate(MOST_DAMAGED - 1);
        // Known damage is not listed again; a finding that reaches further replaces it.
        let first = record.damaged[0].offset_bytes;
        let range = |len| ByteRange::new(first, len);
        let damage = |len| Damage { volume: VolumeId(u32::MAX), range: range(len), reason: String::new() };
        record.add_damage(&damage(8192), 7);
        assert_eq!(record.damaged.len(), MOST_DAMAGED - 1);
        record.add_damage(&damage(24_576), 7);
        assert_eq!((record.damaged.len(), record.damaged[0].length_bytes), (MOST_DAMAGED - 2, 24_576));
        // Of what reaches further on one side only, both are kept.
        let partly = Damage { range: ByteRange::new(first + 16_384, 20_480), ..damage(0) };
        assert!(record.add_damage(&partly, 7));
        assert_eq!((record.damaged.len(), record.damaged[0].length_bytes), (MOST_DAMAGED - 3, 40_960));
        assert!(encode(&record).len() < 56 << 10, "{}", encode(&record).len());
    }
}
