//! The notes: events that the pool does not hold yet, and how far numbers have been given out.
//!
//! The notes are lines beside the drives. While the pool is open they are empty but for the mark: events are in the pool
//! within a second. While it is offline they are all there is, and a process that is killed meanwhile finds them again.
//!
//! The mark says that every number above it is unused. It is raised long before numbers reach it, a thousand at a time,
//! so that it is durable when they do; a clean stop sets it to the last number. So numbers continue after any crash, at
//! worst with a gap.

use super::record::EventRecord;
use crate::record::{decode, encode};
use serde::{Deserialize, Serialize};

/// A place for lines beside the drives, small and outside the pool.
pub trait Notes: Send + Sync {
    /// All lines; none if there are no notes yet.
    fn read(&self) -> Vec<String>;
    /// Adds a line. Survives the end of the process, and after [`Notes::sync`] that of the system. Must not wait for a drive.
    fn add(&self, line: &str);
    /// Makes these all the lines there are, wholly or not at all. Survives what [`Notes::add`] does.
    fn replace(&self, lines: &[String]);
    /// Makes durable what changed since it was called last.
    fn sync(&self);
}

/// How many numbers the mark is ahead when it is raised, and when it is raised again.
const AHEAD: u64 = 1000;
const AHEAD_AT_LEAST: u64 = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    mark: u64,
}

/// What the notes of the last process say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Noted {
    /// No number above it was given out; `None` if nothing says so.
    pub(super) mark: Option<u64>,
    /// The events that waited, oldest first.
    pub(super) events: Vec<EventRecord>,
}

/// Reads notes. Lines that are not understood, such as one that was being written when the system crashed, are left out.
pub(super) fn read(lines: &[String]) -> Noted {
    let mut noted = Noted::default();
    for line in lines {
        if let Ok(Mark { mark }) = decode::<Mark>("mark", line.as_bytes()) {
            noted.mark = Some(mark.max(noted.mark.unwrap_or(0)));
        } else if let Ok(event) = decode::<EventRecord>("event", line.as_bytes()) {
            noted.events.push(event);
        }
    }
    noted.events.sort_by_key(|event| event.number);
    noted.events.dedup_by_key(|event| event.number);
    noted
}

/// The lines for a mark, if there is one, and the events that wait.
pub(super) fn lines<'a>(mark: Option<u64>, events: impl IntoIterator<Item = &'a EventRecord>) -> Vec<String> {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    mark.map(|mark| text(encode(&Mark { mark })))
        .into_iter()
        .chain(events.into_iter().map(|event| text(encode(event))))
        .collect()
}

/// The line for an event.
pub(super) fn line(event: &EventRecord) -> String {
    String::from_utf8_lossy(&encode(event)).into_owned()
}

/// The mark to set, if it is time to raise it.
pub(super) fn raised(mark: u64, last: u64) -> Option<u64> {
    (mark < last + AHEAD_AT_LEAST).then_some(last + AHEAD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quoin_api::{EventKind, Severity};

    fn event(number: u64) -> EventRecord {
        let (kind, actor, changes, suppressed) = (EventKind::Event, None, Vec::new(), 0);
        let (at_ms, severity) = (1, Severity::Critical);
        let (object, text) = ("pool a".to_owned(), "offline".to_owned());
        EventRecord { number, at_ms, severity, object, text, kind, actor, changes, suppressed }
    }

    #[test]
    fn what_is_noted_is_read_again_and_torn_lines_are_left_out() {
        let events = [event(8), event(9)];
        let mut written = lines(Some(1007), &events);
        written.push(line(&event(9)));
        written.push(line(&event(10))[..40].to_owned());
        written.push("\u{0}\u{0}".to_owned());
        assert_eq!(read(&written), Noted { mark: Some(1007), events: events.to_vec() });
        assert_eq!(read(&[]), Noted::default());
    }

    #[test]
    fn the_mark_is_raised_before_it_is_reached() {
        let (mut mark, mut raises) = (0, 0);
        for last in 0..10_000 {
            if let Some(higher) = raised(mark, last) {
                (mark, raises) = (higher, raises + 1);
            }
            assert!(mark >= last + AHEAD_AT_LEAST);
        }
        assert_eq!(raises, 20);
    }
}
