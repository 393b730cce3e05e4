//! The audit: every operation that changes something leaves an event with who asked for it and what was before and after.

use crate::lab::{Lab, create};
use quoin_api::{Actor, CopyState, Event, EventKind, FieldChange, VolumeCreate};
use quoin_array::{Array, ArrayError, EventSelection, JobError, QosOf, ReserveOf, acting};
use quoin_volume::{BlockDevice, Kept};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    future::Future,
    path::Path,
    sync::{Arc, Mutex},
};

/// Public operations that change nothing, or are not asked for by a client.
const OTHERS: [&str; 8] = [
    "run",
    "list_jobs",
    "show_job",
    "scrub_status",
    "preview_reserve",
    "unreadable_ranges",
    "volume_space",
    "group_space",
];

fn of<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn ann() -> Arc<Actor> {
    Arc::new(Actor { token: Some("admin".into()), user: Some("ann@db1".into()), ..Actor::default() })
}

/// Carries out changes and looks at what is recorded of each.
struct Audit<'a> {
    array: &'a Arc<Array>,
    /// A drive to add.
    spare: String,
    done: Mutex<BTreeMap<&'static str, Event>>,
}

impl Audit<'_> {
    /// A change that must succeed and must be recorded; the event.
    async fn change<T>(
        &self,
        operation: &'static str,
        change: impl Future<Output = Result<T, ArrayError>>,
    ) -> Event {
        self.try_change(operation, change).await.unwrap_or_else(|error| panic!("{operation}: {error}"))
    }

    async fn try_change<T>(
        &self,
        operation: &'static str,
        change: impl Future<Output = Result<T, ArrayError>>,
    ) -> Result<Event, ArrayError> {
        let newest = |audit| {
            let selection = EventSelection { audit, limit: 1, ..EventSelection::default() };
            self.array.events(selection).into_iter().next()
        };
        let before = newest(false).map_or(0, |event| event.number);
        acting(Some(ann()), change).await?;
        let event = newest(true).unwrap_or_else(|| panic!("{operation} is not recorded"));
        assert!(event.number > before, "{operation} is not recorded: the last is {event:?}");
        assert_eq!(event.kind, EventKind::Change, "{operation}: {event:?}");
        assert_eq!(event.actor.as_ref(), Some(&*ann()), "{operation}: {event:?}");
        assert!(!event.changes.is_empty(), "{operation} does not say what it changed: {event:?}");
        let differ = |change: &FieldChange| change.before != change.after;
        assert!(event.changes.iter().all(differ), "{operation} tells of what stayed: {event:?}");
        self.done.lock().unwrap().insert(operation, event.clone());
        Ok(event)
    }
}

/// What a field was and is.
#[track_caller]
fn field(event: &Event, name: &str) -> (Value, Value) {
    let change = event.changes.iter().find(|change| change.field == name);
    let change = change.unwrap_or_else(|| panic!("no {name} in {event:?}"));
    (change.before.clone(), change.after.clone())
}

fn operations_of(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            operations_of(&entry.path(), found);
            continue;
        }
        let text = fs::read_to_string(entry.path()).unwrap();
        for (_, rest) in
            text.match_indices("pub async fn ").map(|(at, prefix)| text.split_at(at + prefix.len()))
        {
            found.insert(rest.split(['(', '<']).next().unwrap().to_owned());
        }
    }
}

async fn volumes_and_snapshots(audit: &Audit<'_>) {
    let array = audit.array;
    let small = |name: &str| VolumeCreate { size_bytes: 64 << 20, ..create(name) };
    for name in ["v1", "v2", "v3", "v4"] {
        audit.change("create_volume", array.create_volume(small(name))).await;
    }
    let grown = array.change_volume("v1", of(json!({ "size_bytes": 128 << 20 })));
    let event = audit.change("change_volume", grown).await;
    assert_eq!(field(&event, "size_bytes"), (json!(64 << 20), json!(128 << 20)));

    audit.change("create_snapshot", array.create_snapshot(of(json!({ "volume": "v2", "name": "s" })))).await;
    let taken_ms = array.show_snapshot("s").unwrap().origin.unwrap().taken_ms;
    array.change_volume("v2", of(json!({ "size_bytes": 96 << 20 }))).await.unwrap();
    let event =
        audit.change("restore_snapshot", array.restore_snapshot("s", of(json!({ "keep": "k" })))).await;
    assert_eq!(field(&event, "restored_from"), (Value::Null, json!("s")));
    assert_eq!(field(&event, "taken_ms"), (Value::Null, json!(taken_ms)));
    assert_eq!(field(&event, "previous_content"), (Value::Null, json!("k")));
    assert_eq!(field(&event, "size_bytes"), (json!(96 << 20), json!(64 << 20)));
    assert!(event.text.starts_with("restored from s; it was taken on 20"), "{event:?}");
    assert!(event.text.ends_with("; the previous content is kept as k"), "{event:?}");
    let event = audit.change("restore_snapshot", array.restore_snapshot("k", of(json!({})))).await;
    assert_eq!(field(&event, "previous_content"), (Value::Null, json!("not kept")));

    let event =
        audit.change("refresh_snapshot", array.refresh_snapshot("s", of(json!({ "from": "v1" })))).await;
    assert_eq!(field(&event, "previous_taken_ms"), (Value::Null, json!(taken_ms)));
    assert_eq!(field(&event, "source"), (json!("v2"), json!("v1")));
    audit.change("clone_volume", array.clone_volume("v1", of(json!({ "name": "c" })))).await;
    let event = audit.change("promote_snapshot", array.promote_snapshot("c")).await;
    assert_eq!(field(&event, "kind"), (json!("clone"), json!("volume")));
    assert_eq!(field(&event, "source"), (json!("v1"), Value::Null));
    let event =
        audit.change("retain_snapshot", array.retain_snapshot("k", of(json!({ "retain_s": 60 })))).await;
    assert!(field(&event, "retain_until_ms").0.is_null(), "{event:?}");
    audit.change("delete_snapshot", array.delete_snapshot("s", of(json!({})))).await;
    let event = audit.change("delete_volume", array.delete_volume("c", of(json!({})))).await;
    assert_eq!(field(&event, "in_recycle_bin"), (json!(false), json!(true)));
    let event = audit.change("restore_deleted", array.restore_deleted("c", of(json!({ "name": "d" })))).await;
    assert_eq!(field(&event, "name"), (json!("c"), json!("d")));
    array.delete_volume("d", of(json!({}))).await.unwrap();
    let event = audit.change("purge_deleted", array.purge_deleted("d")).await;
    assert_eq!(field(&event, "size_bytes"), (json!(128 << 20), Value::Null));
}

async fn groups(audit: &Audit<'_>) {
    let array = audit.array;
    let event =
        audit.change("create_group", array.create_group(of(json!({ "name": "g", "volumes": ["v1"] })))).await;
    assert_eq!(field(&event, "volumes"), (Value::Null, json!(["v1"])));
    let event = audit.change("add_to_group", array.add_to_group("g", "v2")).await;
    assert_eq!(field(&event, "volumes"), (json!(["v1"]), json!(["v1", "v2"])));
    let event = audit.change("snapshot_group", array.snapshot_group("g", of(json!({ "name": "a" })))).await;
    assert_eq!(field(&event, "snapshots"), (Value::Null, json!(["v1.a", "v2.a"])));
    let event =
        audit.change("restore_group", array.restore_group("g", "a", of(json!({ "keep": "b" })))).await;
    assert_eq!(field(&event, "previous_content"), (Value::Null, json!(["v1.b", "v2.b"])));
    audit.change("refresh_group", array.refresh_group("g", "a", of(json!({})))).await;
    let retained = array.retain_group_snapshot("g", "b", of(json!({ "retain_s": 60 })));
    let event = audit.change("retain_group_snapshot", retained).await;
    assert!(field(&event, "retain_until_ms").1.is_u64(), "{event:?}");
    let deleted = array.delete_group_snapshot("g", "a", of(json!({})));
    let event = audit.change("delete_group_snapshot", deleted).await;
    assert_eq!(field(&event, "snapshots"), (json!(["v1.a", "v2.a"]), Value::Null));
    let event = audit.change("remove_from_group", array.remove_from_group("g", "v2")).await;
    assert_eq!(field(&event, "volumes"), (json!(["v1", "v2"]), json!(["v1"])));
    let event = audit.change("change_group", array.change_group("g", of(json!({ "name": "h" })))).await;
    assert_eq!(field(&event, "name"), (json!("g"), json!("h")));
    let event = audit.change("delete_group", array.delete_group("h")).await;
    assert_eq!(field(&event, "volumes"), (json!(["v1"]), Value::Null));
}

async fn access(audit: &Audit<'_>) {
    let array = audit.array;
    let iqn = "iqn.2026-11.test:h1";
    audit.change("create_host", array.create_host(of(json!({ "name": "h1", "initiators": [iqn] })))).await;
    let chap = json!({ "chap": { "host": { "user": "u", "secret": "twelve bytes" } } });
    let event = audit.change("change_host", array.change_host("h1", of(chap))).await;
    assert!(!serde_json::to_string(&event).unwrap().contains("twelve"), "{event:?}");
    audit.change("map", array.map(of(json!({ "volume": "v1", "host": "h1" })))).await;
    let event = audit
        .change("set_mapping", array.set_mapping("h1", "v1", of(json!({ "access": "read-only" }))))
        .await;
    assert_eq!(field(&event, "access"), (json!("default"), json!("read-only")));
    audit.change("unmap", array.unmap("h1", "v1", false)).await;
    array.map(of(json!({ "volume": "v3", "host": "h1", "lun": 7 }))).await.unwrap();
    let event = audit.change("delete_host", array.delete_host("h1", true, false)).await;
    assert_eq!(field(&event, "volumes"), (json!(["v3 as LUN 7"]), Value::Null));
    audit.change("create_export", array.create_export(of(json!({ "volume": "v1" })))).await;
    audit.change("set_export", array.set_export("v1", of(json!({ "access": "read-only" })))).await;
    audit.change("delete_export", array.delete_export("v1", false)).await;
}

async fn settings(audit: &Audit<'_>) {
    let array = audit.array;
    let rules = json!({ "name": "n", "volume": "v1", "rules": [{ "every": "daily", "keep": 2 }] });
    let event = audit.change("create_schedule", array.create_schedule(of(rules))).await;
    assert_eq!(field(&event, "source"), (Value::Null, json!("volume v1")));
    let event = audit.change("run_schedule", array.run_schedule("n")).await;
    assert!(field(&event, "snapshots").1.is_array(), "{event:?}");
    let event =
        audit.change("update_schedule", array.update_schedule("n", of(json!({ "paused": true })))).await;
    assert_eq!(field(&event, "paused"), (json!(false), json!(true)));
    audit.change("delete_schedule", array.delete_schedule("n")).await;
    audit.change("create_policy", array.create_policy(of(json!({ "name": "p", "layout": "none" })))).await;
    let forced = json!({ "force_provisioning": true });
    let event = audit.change("change_policy", array.change_policy("p", of(forced))).await;
    assert_eq!(field(&event, "force_provisioning"), (json!(false), json!(true)));
    audit.change("delete_policy", array.delete_policy("p")).await;
    let reserve = Some(of(json!({ "percent": 90, "policy": "offline-volume" })));
    audit.change("set_reserve", array.set_reserve(&ReserveOf::Pool, reserve)).await;
    let event = audit.change("set_reserve", array.set_reserve(&ReserveOf::Pool, None)).await;
    assert_eq!(field(&event, "percent"), (json!(90), Value::Null));
    let (default, limit) = (QosOf::Policy("default".to_owned()), Some(of(json!({ "iops": 500 }))));
    audit.change("set_qos", array.set_qos(&default, limit)).await;
    let event = audit.change("set_qos", array.set_qos(&default, None)).await;
    assert_eq!(field(&event, "iops"), (json!(500), Value::Null));
    // What survived a restart and cannot be read.
    let v4 = array.volume("v4").unwrap();
    v4.keep(Kept::Reservations, Some(b"{".to_vec())).await.unwrap();
    let event = audit.change("clear_reservations", array.clear_reservations("v4", false)).await;
    assert_eq!(field(&event, "unreadable"), (json!(true), json!(false)));
    audit.change("create_portal", array.create_portal(of(json!({ "address": "127.0.0.9" })))).await;
    let disabled = of(json!({ "enabled": false }));
    let event = audit.change("set_portal", array.set_portal("127.0.0.9:3260", disabled)).await;
    assert_eq!(field(&event, "enabled"), (json!(true), json!(false)));
    audit.change("delete_portal", array.delete_portal("127.0.0.9", false)).await;
    let event = audit.change("set_recycle_bin", array.set_recycle_bin(of(json!({ "keep_s": 60 })))).await;
    assert_eq!(field(&event, "keep_s"), (json!(86_400), json!(60)));
}

async fn work(audit: &Audit<'_>) {
    let array = audit.array;
    let slow = json!({ "schedule": "off", "rate_bytes_s": 1 });
    let event = audit.change("change_scrubs", array.change_scrubs(of(slow))).await;
    assert_eq!(field(&event, "rate_bytes_s"), (json!(50 << 20), json!(1)));
    let drive = array.status().drives[0].path.clone();
    let slow = of(json!({ "action": "slow", "factor": 3 }));
    let event = audit.change("emulate_drive", array.emulate_drive(&drive, slow)).await;
    assert_eq!(field(&event, "slow_factor"), (json!(1), json!(3)));
    let added = of(json!({ "path": audit.spare }));
    let event = audit.change("add_drive", array.add_drive(added)).await;
    assert_eq!(field(&event, "state"), (Value::Null, json!("active")));
    let longer = fs::File::options().write(true).open(&audit.spare).unwrap();
    longer.set_len(fs::metadata(&audit.spare).unwrap().len() + (64 << 20)).unwrap();
    let event = audit.change("expand_pool", array.expand_pool(of(json!({})))).await;
    assert_eq!(field(&event, "drives").1, json!([audit.spare]));
    let (before, after) = field(&event, "usable_bytes");
    assert!(after.as_u64() > before.as_u64(), "{event:?}");
    drives_that_leave(audit).await;
    let journal = array.status().drives[1].path.clone();
    let event = audit.change("fail_drive", array.fail_drive(&journal)).await;
    assert_eq!(field(&event, "state"), (json!("active"), json!("failed")));
    audit.change("start_scrub", array.start_scrub()).await;
    assert!(array.start_scrub().await.is_err(), "two scrubs at once");
    let event = audit.change("stop_scrub", array.stop_scrub()).await;
    assert_eq!(field(&event, "scrub"), (json!("running"), json!("stopped")));
    array.start_scrub().await.unwrap();
    let running = array.list_jobs().await.unwrap().into_iter().find(|job| job.cancellable).unwrap();
    audit.change("cancel_job", array.cancel_job(&running.id)).await;
    array.change_volume("v4", of(json!({ "compression": "lz4" }))).await.unwrap();
    let event = audit.change("reduce_volume", array.reduce_volume("v4")).await;
    assert_eq!(field(&event, "reduction"), (json!("idle"), json!("running")));
    // A copy may end before it can be cancelled.
    for _ in 0..200 {
        let mut copy = 0;
        let begin = async {
            array.copy_volume("v4", of(json!({ "target": "v3" }))).await.map(|begun| copy = begun.id)
        };
        let event = audit.change("copy_volume", begin).await;
        assert_eq!(field(&event, "source"), (Value::Null, json!("v4")));
        let cancel = async {
            array.cancel_copy(copy).await?;
            match array.show_copy(copy)?.state {
                CopyState::Cancelled => Ok(()),
                state => Err(ArrayError::Job(JobError::CopyEnded { id: copy, state })),
            }
        };
        match audit.try_change("cancel_copy", cancel).await {
            Ok(event) => {
                assert_eq!(field(&event, "state"), (json!("running"), json!("cancelled")));
                return;
            }
            Err(ArrayError::Job(JobError::CopyEnded { .. })) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("no copy could be cancelled");
}

/// The drive that was added leaves, stays after all, and is replaced by another, which is removed.
async fn drives_that_leave(audit: &Audit<'_>) {
    let (array, spare) = (audit.array, &audit.spare);
    let narrower = || of(json!({ "narrower": true }));
    let event = audit.change("evacuate_drive", array.evacuate_drive(spare, narrower())).await;
    assert_eq!(field(&event, "state"), (Value::Null, json!("leaving")));
    let event = audit.change("cancel_evacuation", array.cancel_evacuation(spare)).await;
    assert_eq!(field(&event, "state"), (json!("leaving"), json!("active")));
    let other = format!("{spare}-2");
    let drive_bytes = fs::metadata(spare).unwrap().len();
    fs::File::create(&other).and_then(|file| file.set_len(drive_bytes)).unwrap();
    let replaced = of(json!({ "path": other, "narrower": true }));
    audit.change("replace_drive", array.replace_drive(spare, replaced)).await;
    audit.change("remove_drive", array.remove_drive(&other, narrower())).await;
    let event =
        audit.change("change_rebuild", array.change_rebuild(of(json!({ "max_rate_bytes_s": 9 })))).await;
    assert_eq!(field(&event, "max_rate_bytes_s"), (json!(0), json!(9)));
    let event = audit.change("change_pool", array.change_pool(of(json!({ "warning_percent": 0 })))).await;
    assert_eq!(field(&event, "warning_percent"), (json!(80), json!(0)));
    let event = audit.change("balance", array.balance(true)).await;
    assert_eq!(field(&event, "balancing"), (json!(false), json!(true)));
}

/// Who adds an operation adds it here, and sees to it that it is recorded.
#[test]
fn every_operation_that_changes_something_is_recorded_with_its_actor_before_and_after() {
    // The second drive holds the journal only: the pool can do without it.
    let lab = Lab::with_columns();
    let (array, spare) = (lab.start(), lab.spare_drive());
    let recorded = lab.on_array(&array, async |array| {
        let audit = Audit { array: &array, spare, done: Mutex::default() };
        volumes_and_snapshots(&audit).await;
        groups(&audit).await;
        access(&audit).await;
        settings(&audit).await;
        work(&audit).await;
        audit.done.into_inner().unwrap().into_keys().map(str::to_owned).collect::<BTreeSet<_>>()
    });
    let mut operations = BTreeSet::new();
    operations_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut operations);
    OTHERS.iter().for_each(|other| assert!(operations.remove(*other), "{other} is gone"));
    assert_eq!(recorded, operations, "each operation is recorded, and tried here");
    lab.stop(array);
}

/// What was not committed is not recorded, and what is asked for in vain changes nothing.
#[test]
fn a_change_that_changes_nothing_is_not_recorded() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        array.create_volume(create("v1")).await.unwrap();
        let host = json!({ "name": "h1", "initiators": ["iqn.2026-11.test:h1"] });
        array.create_host(of(host.clone())).await.unwrap();
        array.create_group(of(json!({ "name": "g" }))).await.unwrap();
        let count = || array.events(EventSelection::default()).len();
        let before = count();
        array.change_host("h1", of(json!({ "initiators": host["initiators"] }))).await.unwrap();
        array.change_group("g", of(json!({ "name": "g" }))).await.unwrap();
        array.change_volume("v1", of(json!({ "thick": false }))).await.unwrap();
        array.change_scrubs(of(json!({ "rate_bytes_s": 50 << 20 }))).await.unwrap();
        assert!(array.create_volume(create("v1")).await.is_err());
        assert!(array.add_to_group("g", "v9").await.is_err());
        assert_eq!(count(), before, "{:?}", array.events(EventSelection::default()));
    });
    lab.stop(array);
}
