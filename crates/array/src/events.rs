//! What happened, kept in the pool's catalog as far as it holds them, newest last.
//!
//! Invariants:
//! 1. The catalog holds at most [`KEPT`] events: whoever stages new ones stages the deletion of as many old.
//! 2. An event recorded while the pool was offline waits in memory and is staged with the next transaction.

use crate::{
    ArrayError,
    record::{EVENT_OBJECT, EventRecord, decode, encode, event_key},
};
use parking_lot::Mutex;
use quoin_api::{Event, Severity};
use quoin_pool::{Pool, Transaction};
use quoin_world::World;
use std::{collections::VecDeque, sync::Arc};

/// How many events are kept.
pub const KEPT: usize = 500;
/// How much of the waiting events one transaction takes along, so that it stays small.
const STAGED_BYTES_MAX: usize = 8 << 10;

pub(crate) struct Events {
    world: Arc<dyn World>,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    saved: VecDeque<EventRecord>,
    waiting: VecDeque<EventRecord>,
    last: u64,
}

/// Which events are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventSelection {
    /// At most so many, the newest.
    pub limit: usize,
    /// Only of this severity or a higher one.
    pub severity: Severity,
    /// Only those that happened at this time or later, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// Only those with a higher number.
    pub after: u64,
}

impl Default for EventSelection {
    /// All of them.
    fn default() -> Self {
        Self { limit: KEPT, severity: Severity::Info, since_ms: 0, after: 0 }
    }
}

impl EventSelection {
    fn holds(&self, event: &EventRecord) -> bool {
        event.severity >= self.severity && event.at_ms >= self.since_ms && event.number > self.after
    }
}

/// Events that are part of a transaction not yet committed.
#[must_use]
pub(crate) struct Staged {
    events: Vec<EventRecord>,
}

impl Events {
    pub(crate) fn new(world: Arc<dyn World>) -> Self {
        Self { world, log: Mutex::default() }
    }

    /// Takes over the events of a newly opened pool. Those that wait follow them, numbered anew.
    pub(crate) fn restore(&self, pool: &Pool) -> Result<(), ArrayError> {
        let saved = pool
            .list(EVENT_OBJECT)
            .iter()
            .map(|(key, value)| decode::<EventRecord>(key, value))
            .collect::<Result<VecDeque<_>, _>>()?;
        let mut log = self.log.lock();
        let mut last = saved.back().map_or(0, |event| event.number);
        for event in &mut log.waiting {
            last += 1;
            event.number = last;
        }
        log.saved = saved;
        log.last = last;
        Ok(())
    }

    /// Records an event that is not part of a change; it is saved when there is occasion.
    pub(crate) fn record(&self, severity: Severity, object: impl Into<String>, text: impl Into<String>) {
        let event = self.next(severity, object.into(), text.into());
        trace(&event);
        let mut log = self.log.lock();
        log.waiting.push_back(event);
        if log.waiting.len() > KEPT {
            log.waiting.pop_front();
        }
    }

    /// Puts what waits, and the event of the change itself, into its transaction.
    pub(crate) fn stage(&self, mut tx: Transaction, own: Option<(String, String)>) -> (Transaction, Staged) {
        let own = own.map(|(object, text)| self.next(Severity::Info, object, text));
        let log = self.log.lock();
        let mut room = STAGED_BYTES_MAX;
        let fits = |event: &&EventRecord| {
            let (len, is_first) = (encode(event).len(), room == STAGED_BYTES_MAX);
            let fits = len <= room || is_first;
            room = room.saturating_sub(len);
            fits
        };
        let events: Vec<_> = log.waiting.iter().take_while(fits).cloned().chain(own).collect();
        for event in &events {
            tx = tx.put(EVENT_OBJECT, &event_key(event.number), encode(event));
        }
        let surplus = (log.saved.len() + events.len()).saturating_sub(KEPT);
        for event in log.saved.iter().take(surplus) {
            tx = tx.delete(EVENT_OBJECT, &event_key(event.number));
        }
        (tx, Staged { events })
    }

    /// The transaction of these events was committed.
    pub(crate) fn saved(&self, staged: Staged) {
        let mut log = self.log.lock();
        for event in staged.events {
            match log.waiting.iter().position(|waiting| waiting.number == event.number) {
                Some(at) => drop(log.waiting.remove(at)),
                None => trace(&event),
            }
            log.saved.push_back(event);
        }
        let surplus = log.saved.len().saturating_sub(KEPT);
        log.saved.drain(..surplus);
    }

    /// True when events wait to be saved.
    pub(crate) fn any_waiting(&self) -> bool {
        !self.log.lock().waiting.is_empty()
    }

    /// The newest events of those that `selection` asks for, newest first.
    pub(crate) fn newest(&self, selection: EventSelection) -> Vec<Event> {
        let log = self.log.lock();
        let mut events: Vec<_> =
            log.saved.iter().chain(&log.waiting).filter(|e| selection.holds(e)).collect();
        events.sort_by_key(|event| std::cmp::Reverse(event.number));
        events.into_iter().take(selection.limit.min(KEPT)).map(view).collect()
    }

    fn next(&self, severity: Severity, object: String, text: String) -> EventRecord {
        let at_ms = self.world.wall_clock_ms();
        let mut log = self.log.lock();
        log.last += 1;
        EventRecord { number: log.last, at_ms, severity, object, text }
    }
}

fn trace(EventRecord { severity, object, text, .. }: &EventRecord) {
    match severity {
        Severity::Info | Severity::Notice => tracing::info!("{object}: {text}"),
        Severity::Warning => tracing::warn!("{object}: {text}"),
        Severity::Error | Severity::Critical => tracing::error!("{object}: {text}"),
    }
}

fn view(event: &EventRecord) -> Event {
    let EventRecord { number, at_ms, severity, object, text } = event.clone();
    Event { number, at_ms, severity, object, text }
}
