//! How many events are kept, for how long, and which go first.
//!
//! Each class of events has limits of its own, so that a thousand routine events push out no warning, and no flood of
//! refused logins pushes out the record of who changed what. Which events go is a function of what there is: see
//! [`Retention::surplus`].
//!
//! The log is part of the catalog, which the pool holds in RAM as a whole and an opening reads. So its size is bounded too:
//! each class has a part of [`Retention::budget_bytes`] in proportion to its count.

use super::record::EventRecord;
use quoin_api::{EventKind, Severity};
use std::time::Duration;

/// The average size of an event, for the size of the log.
const EVENT_BYTES_MEAN: u64 = 320;
/// The log takes no more of the catalog than this, whatever is set …
const LOG_BYTES_MAX: u64 = 4 << 20;
/// … nor, beyond the least, than this part of the pool.
const LOG_PART_OF_POOL: u64 = 1024;
const LOG_BYTES_MIN: u64 = 64 << 10;
/// The most events that one transaction deletes.
pub(crate) const DELETED_AT_ONCE: usize = 32;

/// The class of an event, which decides how long it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventClass {
    /// Events of the array itself, by severity.
    Severity(Severity),
    /// Changes by clients of the management interface, whatever their severity.
    Audit,
    /// Refused tokens, logins and changes.
    Refused,
}

impl EventClass {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Severity(Severity::Info),
        Self::Severity(Severity::Notice),
        Self::Severity(Severity::Warning),
        Self::Severity(Severity::Error),
        Self::Severity(Severity::Critical),
        Self::Audit,
        Self::Refused,
    ];

    pub(crate) fn of(event: &EventRecord) -> Self {
        match event.kind {
            EventKind::Event => Self::Severity(event.severity),
            EventKind::Change => Self::Audit,
            EventKind::Refusal => Self::Refused,
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Severity(severity) => severity as usize,
            Self::Audit => 5,
            Self::Refused => 6,
        }
    }
}

/// How much of a class is kept: the newest events, up to a count, and no longer than a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// At most so many; at least one.
    pub count: u32,
    /// No longer than this; `None` for as long as the count allows.
    pub age: Option<Duration>,
}

/// How much of each class of events is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention([Keep; 7]);

impl Default for Retention {
    fn default() -> Self {
        let keep = |count| Keep { count, age: None };
        Self([500, 300, 500, 500, 300, 1000, 200].map(keep))
    }
}

/// An event as [`Retention::surplus`] looks at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) number: u64,
    pub(crate) class: EventClass,
    pub(crate) at_ms: u64,
    pub(crate) len_bytes: u64,
}

impl Retention {
    /// How much of a class is kept.
    pub fn of(&self, class: EventClass) -> Keep {
        self.0[class.index()]
    }

    /// Sets how much of a class is kept. A count of 0 counts as 1: numbering continues from the newest event.
    pub fn set(&mut self, class: EventClass, keep: Keep) {
        self.0[class.index()] = Keep { count: keep.count.max(1), ..keep };
    }

    fn counts(&self) -> u64 {
        self.0.iter().map(|keep| u64::from(keep.count)).sum()
    }

    /// How much space the whole log may take in a pool of this capacity.
    pub(crate) fn budget_bytes(&self, capacity_bytes: u64) -> u64 {
        let wanted = (self.counts() * EVENT_BYTES_MEAN).min(LOG_BYTES_MAX);
        wanted.min((capacity_bytes / LOG_PART_OF_POOL).max(LOG_BYTES_MIN))
    }

    /// The numbers of the events to delete next, of all of them from the oldest to the newest; at most as many as fit
    /// one transaction.
    pub(crate) fn surplus(
        &self,
        events: impl DoubleEndedIterator<Item = Kept>,
        now_ms: u64,
        budget_bytes: u64,
    ) -> Vec<u64> {
        let (counts, mut held) = (self.counts(), [(0u64, 0u64); 7]);
        let mut surplus = Vec::new();
        for event in events.rev() {
            let index = event.class.index();
            let (Keep { count, age }, (held, bytes)) = (self.0[index], &mut held[index]);
            let is_first = *held == 0;
            (*held, *bytes) = (*held + 1, *bytes + event.len_bytes);
            let is_old =
                age.is_some_and(|age| u128::from(now_ms.saturating_sub(event.at_ms)) > age.as_millis());
            let share_bytes = budget_bytes * u64::from(count) / counts.max(1);
            if is_old || !is_first && (*held > u64::from(count) || *bytes > share_bytes) {
                surplus.push(event.number);
            }
        }
        // The oldest first.
        surplus.reverse();
        surplus.truncate(DELETED_AT_ONCE);
        surplus
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLENTY: u64 = 1 << 30;

    fn kept(number: u64, class: EventClass) -> Kept {
        Kept { number, class, at_ms: number * 1000, len_bytes: 300 }
    }

    fn few(class: EventClass, count: u32) -> Retention {
        let mut retention = Retention::default();
        retention.set(class, Keep { count, age: None });
        retention
    }

    /// Whatever happens in one class, another loses nothing by it.
    #[test]
    fn a_flood_of_one_class_pushes_out_nothing_of_another() {
        for flooded in EventClass::ALL {
            for other in EventClass::ALL.into_iter().filter(|other| *other != flooded) {
                let events = (1..=9).map(|n| kept(n, other)).chain((10..9000).map(|n| kept(n, flooded)));
                let surplus = Retention::default().surplus(events, 0, PLENTY);
                assert_eq!(surplus, (10..10 + DELETED_AT_ONCE as u64).collect::<Vec<_>>(), "{flooded:?}");
            }
        }
    }

    #[test]
    fn the_oldest_of_a_class_go_by_count_by_age_and_by_size() {
        let info = EventClass::Severity(Severity::Info);
        let ten = || (1..=10).map(|n| kept(n, info));
        assert_eq!(few(info, 7).surplus(ten(), 0, PLENTY), [1, 2, 3]);
        assert_eq!(few(info, 10).surplus(ten(), 0, PLENTY), [0u64; 0]);
        let mut aged = Retention::default();
        aged.set(info, Keep { count: 500, age: Some(Duration::from_secs(5)) });
        assert_eq!(aged.surplus(ten(), 10_000, PLENTY), [1, 2, 3, 4]);
        assert_eq!(aged.surplus(ten(), 99_000, PLENTY).len(), 10, "age takes the newest, too");
        // The class has 10 of 2810 parts of the budget, and so room for six of 300 bytes.
        let tight = few(info, 10);
        assert_eq!(tight.counts(), 2810);
        assert_eq!(tight.surplus(ten(), 0, 2810 * 180), [1, 2, 3, 4]);
        assert_eq!(tight.surplus(ten(), 0, 0).len(), 9, "size leaves the newest");
    }

    #[test]
    fn a_large_clock_step_back_deletes_nothing() {
        let info = EventClass::Severity(Severity::Info);
        let mut aged = Retention::default();
        aged.set(info, Keep { count: 500, age: Some(Duration::from_secs(1)) });
        assert!(aged.surplus([kept(9, info)].into_iter(), 0, PLENTY).is_empty());
    }

    #[test]
    fn the_log_is_bounded_by_what_is_set_and_by_the_pool() {
        let retention = Retention::default();
        assert_eq!(retention.budget_bytes(1 << 40), 3300 * 320);
        assert_eq!(retention.budget_bytes(256 << 20), 256 << 10);
        assert_eq!(retention.budget_bytes(0), 64 << 10);
        let mut large = retention;
        EventClass::ALL.into_iter().for_each(|class| large.set(class, Keep { count: 5000, age: None }));
        assert_eq!(large.budget_bytes(1 << 40), 4 << 20);
    }
}
