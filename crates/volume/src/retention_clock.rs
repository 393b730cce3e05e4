//! The retention clock and its mark in the catalog.
//!
//! Invariants:
//! 1. The clock shows the time of its mark plus the time that the monotonic clock counted since: it never goes back.
//! 2. A mark of another version than this one's is not read.

use crate::VolumeError;
use quoin_pool::ObjectKind;
use quoin_world::Nanos;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

/// The kind of catalog object that holds the mark of the retention clock.
pub const CLOCK_OBJECT: ObjectKind = ObjectKind(10);
/// The longest time that can be asked for: 100 years.
pub const RETAIN_MAX: Duration = Duration::from_secs(100 * 366 * 86_400);

/// The key of the mark.
pub(crate) const KEY: &str = "clock";
const RECORD_VERSION: u32 = 1;
/// The mark as the catalog keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockMark {
    version: u32,
    /// The retention clock, in milliseconds. It began with the wall clock when the first snapshot became immutable or the
    /// first volume came into the recycle bin.
    pub mark_ms: u64,
    /// The wall clock when it was written.
    pub wall_ms: u64,
}

impl ClockMark {
    pub(crate) fn new(mark_ms: u64, wall_ms: u64) -> Self {
        Self { version: RECORD_VERSION, mark_ms, wall_ms }
    }

    /// The mark in a catalog; `None` if nothing is immutable or in the recycle bin.
    ///
    /// # Errors
    /// [`VolumeError::Record`] if the mark is not one, or is of another version.
    pub fn read(bytes: Option<&[u8]>) -> Result<Option<Self>, VolumeError> {
        let bad = |why: String| VolumeError::Record { key: KEY.to_owned(), why };
        let Some(bytes) = bytes else { return Ok(None) };
        let mark: Self = serde_json::from_slice(bytes).map_err(|e| bad(e.to_string()))?;
        match mark.version {
            RECORD_VERSION => Ok(Some(mark)),
            other => Err(bad(format!("is of version {other}, not {RECORD_VERSION}"))),
        }
    }

    /// The mark among these objects of a catalog.
    pub(crate) fn of(objects: &BTreeMap<(ObjectKind, String), Vec<u8>>) -> Result<Option<Self>, VolumeError> {
        Self::read(objects.get(&(CLOCK_OBJECT, KEY.to_owned())).map(Vec::as_slice))
    }
}

/// The retention clock while it runs.
#[derive(Clone, Copy, Debug)]
pub struct RetentionClock {
    mark: ClockMark,
    since: Nanos,
}

impl RetentionClock {
    /// Continues from a mark.
    pub fn from_mark(mark: ClockMark, now: Nanos) -> Self {
        Self { mark, since: now }
    }

    /// The time that it shows.
    pub fn now_ms(&self, now: Nanos) -> u64 {
        self.mark.mark_ms.saturating_add(now.since(self.since).as_millis() as u64)
    }

    /// The mark from which it continues.
    pub fn mark(&self) -> ClockMark {
        self.mark
    }

    /// When it continued from its mark.
    pub(crate) fn since(&self) -> Nanos {
        self.since
    }
}

/// The time that a clock with a mark of now will show after this duration.
pub(crate) fn until_ms(clock: RetentionClock, time: Duration) -> Result<u64, VolumeError> {
    if time.is_zero() || time > RETAIN_MAX {
        return Err(VolumeError::RetentionTime { seconds: time.as_secs() });
    }
    Ok(clock.mark.mark_ms.saturating_add(time.as_millis() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::encode;

    fn at(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn the_clock_goes_on_from_its_mark_as_fast_as_the_monotonic_clock_and_never_back() {
        let mark = ClockMark { version: RECORD_VERSION, mark_ms: 5000, wall_ms: 9 };
        let clock = RetentionClock::from_mark(mark, at(100));
        assert_eq!([at(100), at(101), at(99)].map(|now| clock.now_ms(now)), [5000, 6000, 5000]);
        assert_eq!(until_ms(clock, Duration::from_secs(60)).unwrap(), 65_000);
    }

    #[test]
    fn marks_are_read_and_times_checked() {
        let mark = ClockMark { version: RECORD_VERSION, mark_ms: 1, wall_ms: 2 };
        assert_eq!(ClockMark::read(Some(&encode(&mark))).unwrap(), Some(mark));
        assert_eq!(ClockMark::read(None).unwrap(), None);
        let newer = encode(&ClockMark { version: 2, ..mark });
        assert!(ClockMark::read(Some(&newer)).unwrap_err().to_string().contains("version 2"));
        assert!(ClockMark::read(Some(b"{}")).is_err());
        let clock = RetentionClock::from_mark(mark, at(0));
        for bad in [Duration::ZERO, RETAIN_MAX + Duration::from_secs(1)] {
            assert!(until_ms(clock, bad).is_err(), "{bad:?}");
        }
    }
}
