//! Requests with keys on a real pool: noted with the change, and known as long as they should be.

use crate::lab::{Lab, create};
use quoin_api::{SnapshotCreate, SnapshotRestore, State};
use quoin_array::{Array, Caller, RequestKey, acting};
use std::sync::Arc;

fn key(key: &str) -> RequestKey {
    RequestKey { key: key.to_owned(), fingerprint: format!("of {key}") }
}

fn caller(name: &str) -> Caller {
    Caller { request: Some(Arc::new(key(name))), ..Caller::default() }
}

/// The object that a request made.
fn made(array: &Array, name: &str) -> Option<String> {
    let done = array.carried_out(&key(name)).unwrap()?;
    assert_eq!(done.fingerprint, format!("of {name}"));
    Some(done.object)
}

fn snapshot() -> SnapshotCreate {
    SnapshotCreate {
        volume: "v1".into(),
        name: None,
        tags: Default::default(),
        writable: false,
        retain_s: None,
    }
}

#[test]
fn a_request_is_known_after_a_restart_and_a_refused_one_is_not() {
    let lab = Lab::new();
    let array = lab.start();
    let taken = lab.on_array(&array, async |array| {
        array.create_volume(create("v1")).await.unwrap();
        acting(caller("twice"), array.create_volume(create("v1"))).await.unwrap_err();
        acting(caller("taken"), array.create_snapshot(snapshot())).await.unwrap().name
    });
    let known = |array: &Array| {
        assert_eq!(made(array, "taken"), Some(format!("snapshot {taken}")));
        assert_eq!((made(array, "twice"), made(array, "never")), (None, None));
    };
    known(&array);
    lab.stop(array);
    let array = lab.start();
    known(&array);
    lab.stop(array);
}

/// The snapshot that a restore keeps is a change of its own, before the one that was asked for.
#[test]
fn a_request_counts_as_carried_out_only_with_its_last_change() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        array.create_volume(create("v1")).await.unwrap();
        let of = array.create_snapshot(snapshot()).await.unwrap().name;
        let restore = SnapshotRestore { to: None, keep: Some("v1.kept".into()), force: false };
        acting(caller("restored"), array.restore_snapshot(&of, restore)).await.unwrap();
        array.show_volume("v1.kept").unwrap();
    });
    assert_eq!(made(&array, "restored").as_deref(), Some("volume v1"));
    lab.stop(array);
}

/// Whether a change took effect that failed with its drive is not known before the pool is open again.
#[test]
fn nothing_is_said_of_a_request_while_the_pool_does_not_work() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| array.create_volume(create("v1")).await.map(drop)).unwrap();
    lab.break_drive();
    let outcome = lab.on_array(&array, async |array| {
        let outcome = acting(caller("doubtful"), array.create_snapshot(snapshot())).await;
        (outcome.is_ok(), array.carried_out(&key("doubtful")).is_ok())
    });
    assert!(outcome.0 || !outcome.1, "who was refused by a broken pool is not told that nothing was done");
    lab.wait(&array, State::Offline);
    assert!(array.carried_out(&key("doubtful")).is_err());
    lab.mend_drive();
    lab.wait(&array, State::Online);
    let snapshots = array.list_volumes().unwrap().len() - 1;
    assert_eq!(made(&array, "doubtful").is_some(), snapshots == 1, "both or neither");
    lab.stop(array);
}
