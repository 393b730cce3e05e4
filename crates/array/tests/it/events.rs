//! The event log on a real pool.

use crate::lab::{Lab, create};
use quoin_api::{Actor, Deletion, EventKind, Severity, State, VolumeUpdate};
use quoin_array::{Array, EVENT_OBJECT, EventClass, EventSelection, Keep, Retention, acting, current_actor};
use quoin_pool::Transaction;
use serde_json::json;
use std::sync::Arc;

fn all(array: &Array) -> Vec<quoin_api::Event> {
    array.events(EventSelection::default())
}

fn audit() -> EventSelection {
    EventSelection { audit: true, ..EventSelection::default() }
}

fn ann() -> Option<Arc<Actor>> {
    Some(Arc::new(Actor { user: Some("ann@db1".into()), ..Actor::default() }))
}

#[test]
fn a_thousand_routine_events_push_out_no_warning_and_no_change_that_somebody_made() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        acting(ann(), async { array.create_volume(create("kept")).await.unwrap() }).await;
        array.login_refused(Some("iqn.2026-11.test:x"), None, "10.0.0.1:1", "wrong secret");
        for _ in 0..500 {
            array.create_volume(create("v1")).await.unwrap();
            array.delete_volume("v1", Deletion::default()).await.unwrap();
        }
    });
    lab.stop(array);
    let array = lab.start();
    let info = Retention::default().of(EventClass::Severity(Severity::Info)).count as usize;
    let events = all(&array);
    let count = |kind: EventKind| events.iter().filter(|event| event.kind == kind).count();
    assert!(count(EventKind::Event) <= info, "{} events", events.len());
    // The pool of the lab is so small that its part of the budget bounds them.
    assert!(count(EventKind::Event) > 100);
    let audit = array.events(audit());
    let told: Vec<_> = audit.iter().map(|event| format!("{}: {}", event.object, event.text)).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("initiator iqn.2026-11.test:x: refused: login: wrong secret"), "{told:?}");
    assert!(told[1].starts_with("volume kept: created"), "{told:?}");
    lab.stop(array);
}

#[test]
fn a_change_tells_who_made_it_and_what_each_field_was_before() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        acting(ann(), async {
            array.create_volume(create("v1")).await.unwrap();
            let folder = Some("prod".to_owned());
            let size_bytes = Some(2 << 30);
            let update = VolumeUpdate { size_bytes, folder, ..VolumeUpdate::default() };
            array.change_volume("v1", update).await.unwrap();
            let error = array.create_volume(create("v1")).await.unwrap_err();
            assert!(current_actor().is_some());
            array.change_refused(&error);
        })
        .await;
        array.delete_volume("v1", Deletion { now: true, ..Deletion::default() }).await.unwrap();
    });
    let events = all(&array);
    let refused = events.iter().find(|event| event.kind == EventKind::Refusal).unwrap();
    assert_eq!((refused.object.as_str(), refused.severity), ("volume v1", Severity::Warning));
    let changed = events.iter().find(|event| event.text.starts_with("grown")).unwrap();
    assert_eq!(changed.actor, ann().map(|actor| (*actor).clone()));
    assert_eq!(
        serde_json::to_value(&changed.changes).unwrap(),
        json!([
            { "field": "size_bytes", "before": 1 << 30, "after": 2u64 << 30 },
            { "field": "folder", "before": "", "after": "prod" },
        ])
    );
    let deleted = events.iter().find(|event| event.text == "deleted").unwrap();
    assert_eq!((deleted.kind, &deleted.actor), (EventKind::Event, &None));
    assert!(deleted.changes.iter().all(|change| change.after.is_null()), "{:?}", deleted.changes);
    lab.stop(array);
}

/// What is kept for a second only is gone after it; numbers go on all the same.
#[test]
fn an_empty_log_does_not_begin_its_numbers_anew() {
    let lab = Lab::new();
    let mut retention = Retention::default();
    for class in EventClass::ALL {
        retention.set(class, Keep { count: 10, age: Some(std::time::Duration::from_millis(1)) });
    }
    let array = lab.start();
    lab.on_array(&array, async |array| array.create_volume(create("v1")).await.map(drop)).unwrap();
    let last = all(&array)[0].number;
    array.set_event_retention(retention.clone());
    lab.until(|| all(&array).is_empty());
    lab.stop(array);
    let array = lab.start();
    let numbers: Vec<_> = all(&array).iter().map(|event| event.number).collect();
    assert!(!numbers.is_empty() && numbers.iter().all(|number| *number > last), "{numbers:?} after {last}");
    lab.stop(array);
}

#[test]
fn events_that_cannot_be_read_hinder_nothing_and_are_told_of() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| array.create_volume(create("v1")).await.map(drop)).unwrap();
    let before = all(&array).len();
    lab.stop(array);
    lab.with_pool(async |pool| {
        let tx = Transaction::new().put(EVENT_OBJECT, "00000000000000000777", b"nonsense".to_vec()).put(
            EVENT_OBJECT,
            "x",
            br#"{"version":9}"#.to_vec(),
        );
        pool.commit(tx).await.unwrap();
    });
    let array = lab.start();
    lab.until(|| all(&array).iter().any(|event| event.object == "event log"));
    let events = all(&array);
    assert!(events.len() > before && events[0].number > 777, "{events:?}");
    let told = events.iter().find(|event| event.object == "event log").unwrap();
    assert_eq!(told.severity, Severity::Warning);
    assert!(told.text.starts_with("2 events in the pool cannot be read"), "{}", told.text);
    lab.stop(array);
    // They are gone from the pool.
    let array = lab.start();
    assert_eq!(all(&array).iter().filter(|event| event.object == "event log").count(), 1);
    lab.stop(array);
}

/// A process that was killed has its drives for a moment longer: nothing to wake anybody up for.
#[test]
fn a_drive_that_is_in_use_is_waited_for_and_told_of_only_when_it_stays_so() {
    let lab = Lab::new();
    lab.use_drive(10);
    let array = lab.start();
    let bad = EventSelection { severity: Severity::Warning, ..EventSelection::default() };
    assert_eq!(array.events(bad.clone()), []);
    lab.stop(array);
    lab.use_drive(usize::MAX);
    let array = lab.start_unready();
    assert_eq!(array.status().state, State::Starting);
    lab.wait(&array, State::Offline);
    let told = array.events(bad);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].severity == Severity::Critical && told[0].text.contains("another process uses it"));
    let status = array.status();
    assert!(
        status.since_ms >= told[0].at_ms - 1000 && status.objects.is_none() && status.integrity.is_none()
    );
    lab.use_drive(0);
    lab.wait(&array, State::Online);
    lab.stop(array);
}
