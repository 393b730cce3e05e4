//! The log across restarts, crashes and pools that are offline.

use super::*;
use quoin_world_sim::{SimOptions, SimWorld};
use std::sync::Mutex as StdMutex;

/// Notes in memory, which outlive the log that writes them.
#[derive(Default)]
struct Kept(StdMutex<Vec<String>>);

impl Notes for Kept {
    fn read(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn add(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
    }

    fn replace(&self, lines: &[String]) {
        *self.0.lock().unwrap() = lines.to_vec();
    }

    fn sync(&self) {}
}

fn log(notes: &Arc<Kept>) -> Events {
    Events::new(SimWorld::new(1, SimOptions::default()), Some(notes.clone()))
}

fn numbers(events: &Events) -> Vec<u64> {
    let mut numbers: Vec<_> = events.newest(&EventSelection::default()).iter().map(|e| e.number).collect();
    numbers.reverse();
    numbers
}

/// A process that never opens its pool is killed and started again, over and over: what it said stays, and no number is
/// given out twice.
#[test]
fn events_of_a_pool_that_is_offline_survive_kills_and_numbers_go_on() {
    let notes = Arc::new(Kept::default());
    let mark = notes::lines(Some(41), []);
    notes.replace(&mark);
    let mut before = Vec::new();
    for round in 0..5 {
        let events = log(&notes);
        assert_eq!(numbers(&events), before, "round {round}");
        events.record(Severity::Critical, "pool a", format!("offline, round {round}"));
        events.record(Severity::Info, "array", "something else");
        events.tend();
        before = numbers(&events);
        assert!(before.is_sorted_by(|a, b| a < b) && before.len() == 2 * (round + 1), "{before:?}");
        assert!(before[0] > 41);
        if round == 3 {
            // A clean stop leaves no gap.
            events.close();
            let last = *before.last().unwrap();
            let events = log(&notes);
            events.record(Severity::Info, "array", "the next");
            assert_eq!(numbers(&events).last(), Some(&(last + 1)));
            before = numbers(&events);
            before.truncate(2 * (round + 1));
            notes.replace(&notes::lines(Some(last), events.log.lock().waiting.iter().take(before.len())));
        }
    }
}

/// The system fails while a line is being written: it is left out, and the next one is not lost with it.
#[test]
fn a_torn_line_takes_no_other_with_it() {
    let notes = Arc::new(Kept::default());
    let whole = {
        let events = log(&notes);
        events.record(Severity::Critical, "pool a", "offline");
        numbers(&events)
    };
    let torn = notes.0.lock().unwrap()[0][..30].to_owned();
    notes.0.lock().unwrap().push(torn);
    let events = log(&notes);
    assert_eq!(numbers(&events), whole);
    assert!(notes.read().iter().all(|line| line.ends_with('}')), "{:?}", notes.read());
}

/// A script that asks in vain a thousand times within a second takes a thousand numbers; then the process is killed.
#[test]
fn no_number_is_beyond_the_mark_however_many_are_taken_at_once() {
    let notes = Arc::new(Kept::default());
    notes.replace(&notes::lines(Some(0), []));
    let events = log(&notes);
    for _ in 0..2500 {
        drop(events.stage_told(Transaction::new(), Told::new("volume v1", "created")));
    }
    events.record(Severity::Info, "array", "the last before the kill");
    let last = numbers(&events)[0];
    assert!(last > 2500);
    let noted = notes::read(&notes.read());
    assert!(noted.mark.is_some_and(|mark| mark >= last), "{:?} and {last}", noted.mark);
}

/// A client tries passwords for days while the pool is offline.
#[test]
fn a_flood_of_refusals_pushes_out_nothing_that_happened() {
    let events = log(&Arc::default());
    for n in 0..WAITING_MAX - 200 {
        events.record(Severity::Info, "pool a", format!("{n}"));
    }
    for n in 0..5 * WAITING_MAX {
        let address = Some(format!("10.0.{}.{}", n / 256, n % 256));
        let actor = Actor { address, ..Actor::default() };
        // Over another protocol each time, so that each of them is reported.
        let protocol: &'static str = Box::leak(n.to_string().into_boxed_str());
        events.refused(Refusal { protocol, why: "wrong secret".into(), actor, ..Refusal::default() });
    }
    let all = events.newest(&EventSelection::default());
    let refusals = all.iter().filter(|event| event.kind == EventKind::Refusal).count();
    assert_eq!((all.len(), refusals), (WAITING_MAX, 200));
    events.record(Severity::Info, "pool a", "one more");
    let all = events.newest(&EventSelection::default());
    assert_eq!(all.iter().filter(|event| event.kind == EventKind::Event).count(), WAITING_MAX - 199);
}

/// A drive that comes and goes for days while its events cannot be saved.
#[test]
fn what_waits_is_bounded_and_the_least_goes_first() {
    let notes = Arc::new(Kept::default());
    let events = log(&notes);
    events.record(Severity::Warning, "pool a", "the one that matters");
    for n in 0..3 * WAITING_MAX {
        events.record(Severity::Info, "pool a", format!("{n}"));
    }
    let all = events.newest(&EventSelection::default());
    assert_eq!(all.len(), WAITING_MAX);
    assert_eq!(all.last().unwrap().text, "the one that matters");
    let dropped: u64 = all.iter().map(|event| event.suppressed).sum();
    assert!(dropped > 0, "it is said that there were more");
    assert!(notes.read().len() <= 2 * WAITING_MAX + 1, "{} lines", notes.read().len());
    assert_eq!(numbers(&log(&notes)).len(), WAITING_MAX);
}

#[test]
fn what_a_task_does_names_its_actor_and_selections_find_it() {
    let events = log(&Arc::default());
    let (user, address) = (Some("Ann@db1".to_owned()), Some("10.0.0.9:77".to_owned()));
    let actor = Arc::new(Actor { token: Some("admin".into()), user, address, ..Actor::default() });
    let change =
        async { events.record_told(Severity::Info, Told::new("volume v1", "grown").change("size", 1, 2)) };
    futures_util::FutureExt::now_or_never(acting(Some(actor), change)).unwrap();
    events.record(Severity::Warning, "volume v10", "damaged");
    events.refused(Refusal {
        protocol: "rest",
        object: "management interface".into(),
        why: "no token".into(),
        ..Refusal::default()
    });
    let of = |selection: EventSelection| -> Vec<_> {
        events.newest(&selection).into_iter().map(|event| event.object).collect()
    };
    let all = EventSelection::default;
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(of(EventSelection { audit: true, ..all() }), ["management interface", "volume v1"]);
    assert_eq!(of(EventSelection { actor: some("ann"), ..all() }), ["volume v1"]);
    assert_eq!(of(EventSelection { actor: some("10.0.0.9"), ..all() }), ["volume v1"]);
    assert_eq!(of(EventSelection { object: some("v1"), ..all() }), ["volume v1"]);
    assert_eq!(of(EventSelection { object: some("volume v10"), ..all() }), ["volume v10"]);
    assert_eq!(
        of(EventSelection { severity: Severity::Warning, ..all() }),
        ["management interface", "volume v10"]
    );
    assert_eq!(of(EventSelection { limit: 1, ..all() }), ["management interface"]);
    let counts = events.counts();
    assert_eq!((counts.by_severity, counts.refused["rest"]), ([1, 0, 2, 0, 0], 1));
    let grown = events.newest(&EventSelection { object: some("v1"), ..all() }).remove(0);
    assert_eq!((grown.kind, grown.changes.len()), (EventKind::Change, 1));
}

/// A transaction takes along only so much, whatever waits, and what did not fit comes with the next.
#[test]
fn a_transaction_takes_a_bounded_part_of_what_waits() {
    let events = log(&Arc::default());
    for _ in 0..50 {
        events.record(Severity::Warning, "pool a", "x".repeat(2000));
    }
    let mut rounds = 0;
    while !events.log.lock().waiting.is_empty() {
        let own = Told::new("volume v1", "y".repeat(2000));
        let (_, staged) = events.stage_told(Transaction::new(), own);
        let bytes: usize = staged.events.iter().map(|event| encode(event).len()).sum();
        assert!(bytes <= STAGED_BYTES_MAX && staged.events.len() >= 2, "{bytes} bytes");
        events.saved(staged);
        rounds += 1;
    }
    assert!((7..50).contains(&rounds), "{rounds} transactions");
    assert_eq!(numbers(&events).len(), 50 + rounds);
}
