//! When a complete scrub is due, so that monitoring can notice a missing one.

use super::record::{Record, next_due};

impl Record {
    /// When the first complete scrub after the last one was or is due. It lies in the past when it was missed, or has not
    /// ended yet.
    pub(super) fn due_ms(&self) -> Option<u64> {
        // Without a completed or begun scrub, the time up to which due scrubs were settled counts.
        let from_ms =
            self.completed_ms.or(self.begun.map(|begun| begun.started_ms)).unwrap_or(self.settled_ms);
        next_due(self.schedule, self.at, from_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::DAY_MS;
    use super::*;
    use quoin_api::ScrubSchedule;

    #[test]
    fn a_scrub_is_due_after_the_last_complete_one_whatever_began_meanwhile() {
        let mut record = Record { schedule: ScrubSchedule::Daily, ..Record::new(10 * DAY_MS) };
        let at_ms = u64::from(record.at.minute) * 60_000;
        assert_eq!(record.due_ms(), Some(10 * DAY_MS + at_ms));
        record.completed_ms = Some(12 * DAY_MS + at_ms + 1);
        assert_eq!(record.due_ms(), Some(13 * DAY_MS + at_ms));
        // One that began for the 13th and did not end: still due since then.
        record.settled_ms = 20 * DAY_MS;
        assert_eq!(record.due_ms(), Some(13 * DAY_MS + at_ms));
        record.schedule = ScrubSchedule::Off;
        assert_eq!(record.due_ms(), None);
    }
}
