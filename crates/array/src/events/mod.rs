//! The event log: what happened, who changed what, and who was refused. Events are kept in the pool's catalog, or
//! beside the drives, in [`Notes`], until the pool holds them.
//!
//! Invariants:
//! 1. No two events ever get the same number, not even after restarts and crashes or while the pool is offline. Numbers
//!    increase.
//! 2. An event that was shown to a client is in the pool or in the notes: a process that is killed loses none.
//! 3. Each transaction that adds events also deletes those that [`Retention`] gives up, at most
//!    [`retention::DELETED_AT_ONCE`].
//! 4. No event takes more than [`record::EVENT_BYTES_MAX`], and a transaction carries at most [`STAGED_BYTES_MAX`] of
//!    events.
//! 5. An unreadable event stops nothing else: it is left out and deleted, and a warning reports it.

mod actor;
mod limiter;
mod notes;
mod record;
mod refusals;
mod retention;
mod told;

#[cfg(test)]
mod tests;

pub(crate) use actor::current_request;
pub use actor::{Acting, Caller, acting, current_actor, current_caller};
pub use notes::Notes;
pub use refusals::Refusal;
pub use retention::{EventClass, Keep, Retention};
pub(crate) use {record::EventRecord, told::Told};

use crate::{
    record::{EVENT_LOG_OBJECT, EVENT_OBJECT, decode, encode, event_key},
    requests::{REQUEST_BYTES_MAX, Requests, StagedRequest},
};
use limiter::Limiter;
use parking_lot::Mutex;
use quoin_api::{Actor, Event, EventKind, Severity};
use quoin_pool::{ObjectKind, Pool, Transaction};
use quoin_world::World;
use record::EVENT_BYTES_MAX;
use retention::Kept;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::Arc,
};

/// How much of events one transaction takes along, so that it stays small.
const STAGED_BYTES_MAX: usize = 8 << 10;
const _: () = assert!(STAGED_BYTES_MAX >= 2 * EVENT_BYTES_MAX, "one that waits and that of the change fit");
/// How many events wait for a pool that is offline; beyond, the oldest of the least severity is dropped, and counted.
const WAITING_MAX: usize = 500;
/// How many of them may be refusals before the oldest refusal is dropped first. So a client that tries passwords while
/// the pool is offline pushes out no other events.
const REFUSALS_WAITING_MAX: usize = 100;
/// The key of the object that holds the mark.
const MARK_KEY: &str = "mark";

pub(crate) struct Events {
    world: Arc<dyn World>,
    notes: Option<Arc<dyn Notes>>,
    log: Mutex<Log>,
    limiter: Mutex<Limiter>,
    /// Requests are noted with the event of their change.
    pub(crate) requests: Requests,
}

#[derive(Default)]
struct Log {
    retention: Retention,
    budget_bytes: u64,
    saved: BTreeMap<u64, Saved>,
    waiting: VecDeque<EventRecord>,
    last: u64,
    /// No number above it was given out; `None` until it is read from the notes or the pool.
    mark: Option<u64>,
    /// Lines added to the notes since they were replaced.
    noted: usize,
    /// Events that waited and were dropped.
    dropped: u64,
    /// Objects of the catalog that cannot be read, to be deleted.
    unreadable: Vec<String>,
    counts: EventCounts,
}

struct Saved {
    event: EventRecord,
    len_bytes: u64,
}

/// How many events there were since the process started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// By severity, the least first.
    pub by_severity: [u64; 5],
    /// Refusals by protocol, including those that have no event of their own.
    pub refused: BTreeMap<String, u64>,
}

/// How far numbers had been given out when events were deleted by their age: the log may be empty afterwards.
#[derive(Serialize, Deserialize)]
struct LogRecord {
    last: u64,
}

/// Which events are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSelection {
    /// At most so many, the newest.
    pub limit: usize,
    /// Only of this severity or a higher one.
    pub severity: Severity,
    /// Only those that happened at this time or later, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// Only those with a higher number.
    pub after: u64,
    /// Only changes and refusals.
    pub audit: bool,
    /// Only those whose actor has this in one of its fields, whatever the case.
    pub actor: Option<String>,
    /// Only those about this object: `volume v1`, or `v1`.
    pub object: Option<String>,
}

impl Default for EventSelection {
    /// All of them.
    fn default() -> Self {
        Self {
            limit: usize::MAX,
            severity: Severity::Info,
            since_ms: 0,
            after: 0,
            audit: false,
            actor: None,
            object: None,
        }
    }
}

impl EventSelection {
    fn holds(&self, event: &EventRecord) -> bool {
        let of_actor = |wanted: &String| {
            let Some(actor) = &event.actor else { return false };
            let wanted = wanted.to_lowercase();
            let fields = [&actor.token, &actor.fingerprint, &actor.name, &actor.address, &actor.user];
            fields.into_iter().flatten().any(|field| field.to_lowercase().contains(&wanted))
        };
        let of_object = |wanted: &String| {
            event.object == *wanted || event.object.split_once(' ').is_some_and(|(_, name)| name == wanted)
        };
        event.severity >= self.severity
            && event.at_ms >= self.since_ms
            && event.number > self.after
            && (!self.audit || event.kind.is_audit())
            && self.actor.as_ref().is_none_or(of_actor)
            && self.object.as_ref().is_none_or(of_object)
    }
}

/// Events that are part of a transaction not yet committed.
#[must_use]
pub(crate) struct Staged {
    events: Vec<EventRecord>,
    deleted: Vec<u64>,
    unreadable: usize,
    request: Option<StagedRequest>,
}

impl Events {
    /// The log, with what the notes of the last process say.
    pub(crate) fn new(world: Arc<dyn World>, notes: Option<Arc<dyn Notes>>) -> Self {
        let noted = notes.as_ref().map(|notes| notes::read(&notes.read())).unwrap_or_default();
        let last_waiting = noted.events.last().map_or(0, |event| event.number);
        let last = noted.mark.unwrap_or(0).max(last_waiting);
        let budget_bytes = Retention::default().budget_bytes(u64::MAX);
        let mut log =
            Log { last, mark: noted.mark, waiting: noted.events.into(), budget_bytes, ..Log::default() };
        while log.waiting.len() > WAITING_MAX {
            log.drop_one();
        }
        let events = Self {
            world,
            notes,
            log: Mutex::new(log),
            limiter: Mutex::default(),
            requests: Requests::default(),
        };
        // The last line may be torn: the next line must not become part of it.
        events.renote();
        events.raise_mark();
        events
    }

    /// Sets how many events are kept.
    pub(crate) fn set_retention(&self, retention: Retention) {
        self.log.lock().retention = retention;
    }

    /// Takes over the events of a newly opened pool, and the requests that were carried out. Events that wait follow them.
    pub(crate) fn restore(&self, pool: &Pool) {
        self.requests.restore(pool);
        let mut log = self.log.lock();
        log.budget_bytes = log.retention.budget_bytes(pool.stats().capacity_bytes);
        log.saved.clear();
        log.unreadable.clear();
        let mut last = 0;
        for (key, value) in pool.list(EVENT_OBJECT) {
            last = last.max(key.parse().unwrap_or(0));
            match decode::<EventRecord>(&key, &value) {
                Ok(event) if event_key(event.number) == key => {
                    let len_bytes = (value.len() + key.len()) as u64;
                    log.saved.insert(event.number, Saved { event, len_bytes });
                }
                _ => log.unreadable.push(key),
            }
        }
        for (key, value) in pool.list(EVENT_LOG_OBJECT) {
            last = last.max(decode::<LogRecord>(&key, &value).map_or(0, |record| record.last));
        }
        // An event that waits may have been saved by a process that ended before it could clear the notes.
        let mut waiting = mem::take(&mut log.waiting);
        waiting.retain(|event| log.saved.get(&event.number).is_none_or(|saved| saved.event != *event));
        // Without a mark the numbers of what waits were a guess.
        let guessed = log.mark.is_none() && waiting.front().is_some_and(|first| first.number <= last);
        let renumbered = guessed || waiting.iter().any(|event| log.saved.contains_key(&event.number));
        if renumbered {
            last = last.max(log.last);
            for event in &mut waiting {
                last += 1;
                event.number = last;
            }
        }
        log.waiting = waiting;
        log.last = log.last.max(last);
        log.mark = Some(log.mark.unwrap_or(log.last));
        let unreadable = log.unreadable.len();
        let first = log.unreadable.first().cloned().unwrap_or_default();
        drop(log);
        if renumbered {
            self.renote();
        }
        self.raise_mark();
        if unreadable > 0 {
            let text = format!(
                "{unreadable} events in the pool cannot be read and are deleted; the first is {first}"
            );
            self.record(Severity::Warning, "event log", text);
        }
    }

    /// Records an event that is not part of a change; it is saved when there is occasion.
    pub(crate) fn record(&self, severity: Severity, object: impl Into<String>, text: impl Into<String>) {
        self.record_told(severity, Told::new(object, text));
    }

    /// The same, with the changed fields.
    pub(crate) fn record_told(&self, severity: Severity, told: Told) {
        self.record_by(current_actor(), severity, told);
    }

    /// The same, on behalf of the actor that asked for it earlier.
    pub(crate) fn record_by(&self, actor: Option<Arc<Actor>>, severity: Severity, told: Told) {
        let event = self.next(actor, severity, told);
        self.wait(event);
    }

    /// Lets an event wait until there is occasion to save it.
    fn wait(&self, event: EventRecord) {
        trace(&event);
        let mut log = self.log.lock();
        log.counts.by_severity[event.severity as usize] += 1;
        if let Some(notes) = &self.notes {
            notes.add(&notes::line(&event));
            log.noted += 1;
        }
        log.waiting.push_back(event);
        if log.waiting.len() > WAITING_MAX {
            log.drop_one();
        }
        let crowded = log.noted > 2 * WAITING_MAX;
        drop(log);
        if crowded {
            self.renote();
        }
    }

    /// Puts the events that wait, and the event of the change itself, into its transaction.
    pub(crate) fn stage(&self, tx: Transaction, own: Option<(String, String)>) -> (Transaction, Staged) {
        self.stage_own(tx, own.map(Told::from))
    }

    /// Puts the events that wait, and the event of the change itself, into its transaction.
    pub(crate) fn stage_told(&self, tx: Transaction, own: Told) -> (Transaction, Staged) {
        self.stage_own(tx, Some(own))
    }

    fn stage_own(&self, mut tx: Transaction, own: Option<Told>) -> (Transaction, Staged) {
        let now_ms = self.world.wall_clock_ms();
        let mut request = None;
        if let Some(told) = own.as_ref().filter(|told| !told.is_first_step) {
            (tx, request) = self.requests.stage(tx, told.answer(), now_ms);
        }
        let own = own.map(|told| self.next(current_actor(), told.severity, told));
        let log = self.log.lock();
        let taken = own.as_ref().map_or(0, |event| encode(event).len());
        let mut room = STAGED_BYTES_MAX - taken - request.as_ref().map_or(0, |_| REQUEST_BYTES_MAX);
        let fits = |event: &&EventRecord| {
            let len = encode(event).len();
            let fits = len <= room;
            room = room.saturating_sub(len);
            fits
        };
        let events: Vec<_> = log.waiting.iter().take_while(fits).cloned().chain(own).collect();
        for event in &events {
            tx = tx.put(EVENT_OBJECT, &event_key(event.number), encode(event));
        }
        let deleted = log.surplus(&events, now_ms);
        for number in &deleted {
            tx = tx.delete(EVENT_OBJECT, &event_key(*number));
        }
        let keeps_newest =
            events.last().is_some() || log.saved.keys().last().is_none_or(|last| !deleted.contains(last));
        if !keeps_newest {
            tx = tx.put(EVENT_LOG_OBJECT, MARK_KEY, encode(&LogRecord { last: log.last }));
        }
        let unreadable = log.unreadable.len().min(retention::DELETED_AT_ONCE);
        for key in &log.unreadable[..unreadable] {
            tx = tx.delete(EVENT_OBJECT, key);
        }
        (tx, Staged { events, deleted, unreadable, request })
    }

    /// The transaction of these events was committed.
    pub(crate) fn saved(&self, staged: Staged) {
        if let Some(request) = staged.request {
            self.requests.saved(request);
        }
        let mut log = self.log.lock();
        for event in staged.events {
            match log.waiting.iter().position(|waiting| waiting.number == event.number) {
                Some(at) => drop(log.waiting.remove(at)),
                None => {
                    trace(&event);
                    log.counts.by_severity[event.severity as usize] += 1;
                }
            }
            let saved = Saved { len_bytes: len_bytes(&event), event };
            log.saved.insert(saved.event.number, saved);
        }
        for number in staged.deleted {
            log.saved.remove(&number);
        }
        let unreadable = staged.unreadable.min(log.unreadable.len());
        log.unreadable.drain(..unreadable);
        let forgets = log.waiting.is_empty() && log.noted > 0;
        drop(log);
        if forgets {
            self.renote();
        }
    }

    /// True when there is something to save or to delete.
    pub(crate) fn any_waiting(&self) -> bool {
        let now_ms = self.world.wall_clock_ms();
        let log = self.log.lock();
        !log.waiting.is_empty() || !log.unreadable.is_empty() || !log.surplus(&[], now_ms).is_empty()
    }

    /// Makes events that wait durable, raises the mark in time, and reports counted refusals. Call it regularly.
    pub(crate) fn tend(&self) {
        self.tell_refusals(false);
        self.raise_mark();
        if let Some(notes) = &self.notes {
            notes.sync();
        }
    }

    /// Leaves the notes as a clean stop does: with the events that wait, and with the last number as the mark.
    pub(crate) fn close(&self) {
        let mut log = self.log.lock();
        if let Some(notes) = &self.notes {
            log.mark = log.mark.map(|_| log.last);
            notes.replace(&notes::lines(log.mark, &log.waiting));
            notes.sync();
            log.noted = log.waiting.len();
        }
    }

    fn raise_mark(&self) {
        let mut log = self.log.lock();
        let Some(raised) = log.mark.and_then(|mark| notes::raised(mark, log.last)) else { return };
        log.mark = Some(raised);
        if let Some(notes) = &self.notes {
            notes.replace(&notes::lines(log.mark, &log.waiting));
            log.noted = log.waiting.len();
        }
    }

    /// Replaces the notes by the events that wait now.
    fn renote(&self) {
        let mut log = self.log.lock();
        if let Some(notes) = &self.notes {
            notes.replace(&notes::lines(log.mark, &log.waiting));
            log.noted = log.waiting.len();
        }
    }

    /// The newest events of those that `selection` asks for, newest first.
    pub(crate) fn newest(&self, selection: &EventSelection) -> Vec<Event> {
        let log = self.log.lock();
        let saved = log.saved.values().map(|saved| &saved.event);
        let mut events: Vec<_> = saved.chain(&log.waiting).filter(|event| selection.holds(event)).collect();
        events.sort_by_key(|event| std::cmp::Reverse(event.number));
        events.into_iter().take(selection.limit).map(EventRecord::view).collect()
    }

    /// How many there were.
    pub(crate) fn counts(&self) -> EventCounts {
        self.log.lock().counts.clone()
    }

    fn next(&self, actor: Option<Arc<Actor>>, severity: Severity, told: Told) -> EventRecord {
        let actor = actor.map(|actor| (*actor).clone());
        let kind = if actor.is_some() { EventKind::Change } else { EventKind::Event };
        let Told { object, text, changes, .. } = told;
        let at_ms = self.world.wall_clock_ms();
        let number = self.take_number();
        let record =
            EventRecord { number, at_ms, severity, object, text, kind, actor, changes, suppressed: 0 };
        record.bounded()
    }

    /// The next number. Refused changes take one too, so many numbers can be taken between two looks at the mark.
    fn take_number(&self) -> u64 {
        let number = {
            let mut log = self.log.lock();
            log.last += 1;
            log.last
        };
        self.raise_mark();
        number
    }
}

impl Log {
    /// The numbers of the events to delete when `more` are added.
    fn surplus(&self, more: &[EventRecord], now_ms: u64) -> Vec<u64> {
        let kept = |event: &EventRecord, len_bytes| {
            let (number, at_ms) = (event.number, event.at_ms);
            Kept { number, class: EventClass::of(event), at_ms, len_bytes }
        };
        let saved = self.saved.values().map(|saved| kept(&saved.event, saved.len_bytes));
        let mut all: Vec<_> = saved.chain(more.iter().map(|event| kept(event, len_bytes(event)))).collect();
        all.sort_by_key(|kept| kept.number);
        let surplus = self.retention.surplus(all.into_iter(), now_ms, self.budget_bytes);
        surplus.into_iter().filter(|number| self.saved.contains_key(number)).collect()
    }

    /// Drops one of those that wait: the oldest of the least severity; of refusals, the oldest once they take more than
    /// their part.
    fn drop_one(&mut self) {
        let is_refusal = |event: &EventRecord| event.kind == EventKind::Refusal;
        let refusals = self.waiting.iter().filter(|event| is_refusal(event)).count();
        let many = refusals > REFUSALS_WAITING_MAX;
        let candidates = self.waiting.iter().enumerate().filter(|(_, event)| !many || is_refusal(event));
        let least = candidates.min_by_key(|(at, event)| (event.severity, *at));
        if let Some(at) = least.map(|(at, _)| at) {
            self.waiting.remove(at);
            self.dropped += 1;
        }
        // The next one says that there were more.
        if let Some(newest) = self.waiting.back_mut() {
            newest.suppressed += mem::take(&mut self.dropped);
        }
    }
}

fn len_bytes(event: &EventRecord) -> u64 {
    (encode(event).len() + event_key(event.number).len()) as u64
}

fn trace(EventRecord { severity, object, text, actor, .. }: &EventRecord) {
    let by = actor.as_ref().map(|actor| format!(" [{actor}]")).unwrap_or_default();
    match severity {
        Severity::Info | Severity::Notice => tracing::info!("{object}: {text}{by}"),
        Severity::Warning => tracing::warn!("{object}: {text}{by}"),
        Severity::Error | Severity::Critical => tracing::error!("{object}: {text}{by}"),
    }
}

/// The problem of an object of the event log, if it has one; for the offline check.
pub(crate) fn log_problem(kind: ObjectKind, key: &str, value: &[u8]) -> Option<String> {
    if kind == EVENT_LOG_OBJECT {
        return decode::<LogRecord>(key, value).err().map(|error| error.to_string());
    }
    match decode::<EventRecord>(key, value) {
        Err(error) => Some(error.to_string()),
        Ok(event) if event_key(event.number) != *key => Some(format!("it says number {}", event.number)),
        Ok(_) => None,
    }
}
