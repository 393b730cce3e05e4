//! Snapshot reserves delete no more than they have to and never the last of a volume, say before they are set what they would
//! do, and hold for the pool, for volumes and for groups.

use crate::years::{Day, Ending, Years, create};
use quoin_api::{
    Deletion, GroupCreate, GroupSnapshotCreate, ReservePolicy, ReserveScope, ReserveSet, Severity,
    SnapshotCreate, VolumeUpdate,
};
use quoin_array::{Array, EventSelection, ReserveOf};
use quoin_base::MIB;
use quoin_volume::{BlockDevice, DeviceError};
use quoin_world::Slice;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

const MINUTE: Duration = Duration::from_secs(60);
/// What [`fill`] writes.
const FILL: u64 = 16 * MIB;

async fn fill(array: &Array, volume: &str, byte: u8) -> Result<(), DeviceError> {
    fill_at(array, volume, byte, 0).await
}

async fn fill_at(array: &Array, volume: &str, byte: u8, from: u64) -> Result<(), DeviceError> {
    let volume = array.volume(volume).unwrap();
    for offset in (from..from + FILL).step_by(MIB as usize) {
        volume.write(offset, vec![Slice::copy_of(&vec![byte; MIB as usize])]).await?;
    }
    Ok(())
}

async fn snapshot(array: &Arc<Array>, volume: &str, name: &str) {
    let (tags, name) = (BTreeMap::new(), Some(name.to_owned()));
    let request = SnapshotCreate { volume: volume.into(), name, tags, writable: false, retain_s: None };
    array.create_snapshot(request).await.unwrap();
}

async fn set_of(array: &Arc<Array>, group: &str, name: &str) {
    let request = GroupSnapshotCreate { name: Some(name.into()), ..GroupSnapshotCreate::default() };
    array.snapshot_group(group, request).await.unwrap();
}

fn reserve(mib: u64, policy: ReservePolicy) -> ReserveSet {
    ReserveSet { percent: None, bytes: Some(mib * MIB), policy, confirm: false }
}

fn oldest(mib: u64) -> ReserveSet {
    reserve(mib, ReservePolicy::DeleteOldest)
}

fn offline(mib: u64) -> ReserveSet {
    reserve(mib, ReservePolicy::OfflineVolume)
}

fn of_volume(name: &str) -> ReserveOf {
    ReserveOf::Volume(name.into())
}

/// What a reserve would delete, and what snapshots would hold then, in MiB.
async fn preview(array: &Array, of: &ReserveOf, request: ReserveSet) -> (Vec<Vec<String>>, u64) {
    let preview = array.preview_reserve(of, &request).await.unwrap();
    let freed: u64 = preview.would_delete.iter().map(|deletion| deletion.freed_bytes).sum();
    if *of == ReserveOf::Pool {
        assert_eq!(preview.held_bytes - freed, preview.held_after_bytes);
    }
    let deleted = preview.would_delete.into_iter().map(|deletion| deletion.snapshots).collect();
    (deleted, preview.held_after_bytes / MIB)
}

/// Sets a reserve that does something at once: refused without confirmation, with a refusal that names `named`.
async fn confirm(array: &Arc<Array>, of: &ReserveOf, request: ReserveSet, named: &[&str]) {
    let before = array.show_reserve(of).unwrap();
    let problem = array.set_reserve(of, Some(request.clone())).await.unwrap_err().problem();
    assert_eq!((problem.status, problem.kind.as_str()), (409, "urn:quoin:problem:unconfirmed"));
    assert!(named.iter().all(|name| problem.why.contains(name)), "{problem}");
    assert_eq!(array.show_reserve(of).unwrap(), before, "nothing was set");
    array.set_reserve(of, Some(ReserveSet { confirm: true, ..request })).await.unwrap();
}

fn there(array: &Array) -> Vec<String> {
    let mut names: Vec<_> = array.list_volumes().unwrap().into_iter().map(|volume| volume.name).collect();
    names.sort();
    names
}

/// The texts of events of this severity or a higher one, newest first.
fn told(array: &Array, severity: Severity) -> Vec<String> {
    let events = array.events(EventSelection { severity, ..EventSelection::default() });
    events.into_iter().map(|event| format!("{}: {}", event.object, event.text)).collect()
}

#[test]
fn what_frees_nothing_is_skipped_as_long_as_it_does() {
    Years::new(31).boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        array.create_volume(create("v1")).await.unwrap();
        fill(array, "v1", 1).await.unwrap();
        // These two hold the same, so that neither frees it alone.
        snapshot(array, "v1", "a").await;
        day.pass(MINUTE).await;
        snapshot(array, "v1", "b").await;
        fill(array, "v1", 2).await.unwrap();
        snapshot(array, "v1", "c").await;
        fill(array, "v1", 3).await.unwrap();
        day.pass(MINUTE).await;
        let pool = &ReserveOf::Pool;
        assert_eq!(preview(array, pool, oldest(64)).await, (vec![], 32));
        assert_eq!(preview(array, pool, oldest(24)).await, (vec![vec!["c".into()]], 16));
        let both = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(preview(array, pool, oldest(8)).await, (vec![vec!["c".into()], both], 0));
        assert_eq!(there(array), ["a", "b", "c", "v1"], "a preview changes nothing");

        assert!(
            array.set_reserve(pool, Some(oldest(64))).await.is_ok(),
            "what does nothing needs no confirmation"
        );
        confirm(array, pool, oldest(24), &["these snapshots at once, which frees 16777216 bytes: c"]).await;
        day.pass(MINUTE).await;
        assert_eq!(there(array), ["a", "b", "v1"]);
        assert_eq!(array.show_reserve(pool).unwrap().held_bytes, Some(FILL));
        let events =
            array.events(EventSelection { severity: Severity::Warning, ..EventSelection::default() });
        let event = events.iter().find(|event| event.text.contains("deleted the oldest")).unwrap();
        assert_eq!((event.severity, event.object.as_str()), (Severity::Warning, "snapshot reserve"));
        assert!(event.text.ends_with("gives back 16777216 bytes: c"), "{event:?}");
        let held = event.changes.iter().find(|change| change.field == "held_bytes").unwrap();
        assert_eq!((&held.before, &held.after), (&(2 * FILL).into(), &FILL.into()));

        confirm(array, pool, oldest(8), &["16777216 bytes: a, b"]).await;
        day.pass(MINUTE).await;
        assert_eq!(there(array), ["v1"]);
        assert_eq!(array.show_reserve(pool).unwrap().held_bytes, Some(0));
        // An idle volume's snapshots are worth nothing: none is deleted, however many there are.
        array.set_reserve(pool, Some(oldest(1))).await.unwrap();
        for n in 0..5 {
            snapshot(array, "v1", &format!("idle{n}")).await;
        }
        day.pass(MINUTE).await;
        assert_eq!(there(array).len(), 6);
    });
}

#[test]
fn what_was_skipped_goes_once_it_frees_something() {
    Years::new(35).boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        array.create_volume(create("v1")).await.unwrap();
        fill(array, "v1", 1).await.unwrap();
        snapshot(array, "v1", "older").await;
        fill_at(array, "v1", 2, FILL).await.unwrap();
        // It has all that the older one has, and more.
        snapshot(array, "v1", "newer").await;
        fill(array, "v1", 3).await.unwrap();
        fill_at(array, "v1", 3, FILL).await.unwrap();
        day.pass(MINUTE).await;
        let pool = &ReserveOf::Pool;
        let all = vec![vec!["newer".to_owned()], vec!["older".to_owned()]];
        assert_eq!(preview(array, pool, oldest(24)).await, (all[..1].to_vec(), 16));
        assert_eq!(preview(array, pool, oldest(8)).await, (all, 0));
        confirm(array, pool, oldest(24), &["newer"]).await;
        day.pass(MINUTE).await;
        assert_eq!(there(array), ["older", "v1"]);
        confirm(array, pool, oldest(8), &["older"]).await;
        day.pass(MINUTE).await;
        assert_eq!(there(array), ["v1"]);
    });
}

#[test]
fn the_last_snapshot_of_a_deleted_volume_stays() {
    Years::new(32).boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        for volume in ["v1", "v2"] {
            array.create_volume(create(volume)).await.unwrap();
        }
        for (byte, name) in [(1, "s1"), (2, "s2"), (3, "s3")] {
            fill(array, "v2", byte).await.unwrap();
            snapshot(array, "v2", name).await;
            day.pass(MINUTE).await;
        }
        array.delete_volume("v2", Deletion { now: true, ..Deletion::default() }).await.unwrap();
        day.pass(MINUTE).await;
        let pool = &ReserveOf::Pool;
        let (deleted, after) = preview(array, pool, oldest(1)).await;
        assert_eq!((deleted, after), (vec![vec!["s1".into()], vec!["s2".into()]], 16));
        confirm(array, pool, oldest(1), &["s1, s2"]).await;
        day.pass(5 * MINUTE).await;
        assert_eq!(there(array), ["s3", "v1"]);
        let stuck = "no snapshot that may be deleted frees space";
        let said = told(array, Severity::Error);
        assert_eq!(said.iter().filter(|text| text.contains(stuck)).count(), 1, "{said:?}");
        // It frees space, and is the oldest: only that its volume is gone keeps it.
        fill(array, "v1", 4).await.unwrap();
        snapshot(array, "v1", "t").await;
        fill(array, "v1", 5).await.unwrap();
        day.pass(2 * MINUTE).await;
        assert_eq!(there(array), ["s3", "v1"]);
    });
}

#[test]
fn volumes_and_groups_have_reserves_of_their_own() {
    let years = Years::new(33);
    years.boot(Ending::Kill, async |day: Day| {
        let array = &day.array;
        for volume in ["v1", "v2", "v3"] {
            array.create_volume(create(volume)).await.unwrap();
        }
        let group = GroupCreate { name: "g".into(), volumes: vec!["v1".into(), "v2".into()] };
        array.create_group(group).await.unwrap();
        for volume in ["v1", "v3"] {
            fill(array, volume, 1).await.unwrap();
        }
        set_of(array, "g", "one").await;
        snapshot(array, "v3", "x").await;
        for volume in ["v1", "v3"] {
            fill(array, volume, 2).await.unwrap();
        }
        day.pass(MINUTE).await;
        let (v1, v2, v3, g) =
            (of_volume("v1"), of_volume("v2"), of_volume("v3"), ReserveOf::Group("g".into()));
        // A set goes as a whole, but only if that helps the volume whose reserve it is.
        let set = vec![vec!["v1.one".to_owned(), "v2.one".to_owned()]];
        assert_eq!(preview(array, &v1, oldest(8)).await, (set.clone(), 0));
        assert_eq!(preview(array, &g, oldest(8)).await, (set, 0));
        assert_eq!(preview(array, &v2, oldest(8)).await, (vec![], 0));
        assert_eq!(preview(array, &v3, oldest(8)).await, (vec![vec!["x".into()]], 0));
        let wrong = ReserveSet { percent: Some(10), ..oldest(1) };
        assert_eq!(array.set_reserve(&v1, Some(wrong)).await.unwrap_err().problem().status, 422);
        assert_eq!(
            array.set_reserve(&of_volume("v9"), Some(oldest(1))).await.unwrap_err().problem().status,
            404
        );
        assert_eq!(array.show_reserve(&ReserveOf::Group("h".into())).unwrap_err().problem().status, 404);

        let percent = ReserveSet { percent: Some(50), bytes: None, ..oldest(1) };
        let set = array.set_reserve(&v1, Some(percent)).await.unwrap();
        assert_eq!((set.scope, set.name.as_deref()), (ReserveScope::Volume, Some("v1")));
        assert_eq!(set.limit_bytes, Some(create("v1").size_bytes / 100 * 50), "of the volume's size");
        array.set_reserve(&g, Some(oldest(64))).await.unwrap();
        confirm(array, &v3, oldest(8), &["x"]).await;
        day.pass(MINUTE).await;
        assert_eq!(there(array), ["v1", "v1.one", "v2", "v2.one", "v3"], "only where the limit is reached");
        let said = told(array, Severity::Warning);
        assert!(
            said.iter().any(|text| text.starts_with("volume v3: ") && text.ends_with("bytes: x")),
            "{said:?}"
        );
        array
            .change_volume("v3", VolumeUpdate { name: Some("w".into()), ..VolumeUpdate::default() })
            .await
            .unwrap();
    });
    years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        day.pass(MINUTE).await;
        let listed = || {
            let all = array.list_reserves().unwrap();
            let named = |of: quoin_api::Reserve| format!("{} {}", of.scope, of.name.unwrap_or_default());
            all.into_iter().map(named).collect::<Vec<_>>()
        };
        assert_eq!(listed(), ["pool ", "volume v1", "volume w", "group g"]);
        let figures = array.figures().own_reserves;
        assert!(
            figures
                .iter()
                .any(|own| own.name == "g" && own.limit_bytes == 64 * MIB && own.held_bytes == FILL),
            "{figures:?}"
        );
        confirm(array, &ReserveOf::Group("g".into()), oldest(8), &["v1.one", "v2.one"]).await;
        day.pass(MINUTE).await;
        assert_eq!(there(array), ["v1", "v2", "w"]);
        array.delete_group("g").await.unwrap();
        array.delete_volume("w", Deletion::default()).await.unwrap();
        assert_eq!(listed(), ["pool ", "volume v1"]);
        assert_eq!(array.set_reserve(&of_volume("v1"), None).await.unwrap().policy, None);
        assert_eq!(listed(), ["pool "]);
        let events = array.events(EventSelection::default());
        let gone = events.iter().find(|event| event.text == "snapshot reserve removed").unwrap();
        assert_eq!(
            gone.changes.iter().map(|change| change.field.as_str()).collect::<Vec<_>>(),
            ["percent", "policy"]
        );
    });
    years.boot(Ending::Stop, async |day: Day| {
        assert_eq!(day.array.list_reserves().unwrap().len(), 1, "nothing of them is left in the catalog");
    });
}

#[test]
fn a_volume_that_is_offline_is_said_to_be() {
    let years = Years::new(34);
    years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        for volume in ["v1", "v2"] {
            array.create_volume(create(volume)).await.unwrap();
            fill(array, volume, 1).await.unwrap();
            snapshot(array, volume, &format!("{volume}.s")).await;
            fill(array, volume, 2).await.unwrap();
        }
        day.pass(MINUTE).await;
        let v1 = of_volume("v1");
        let would = array.preview_reserve(&v1, &offline(8)).await.unwrap();
        assert_eq!((would.would_take_offline, would.would_delete.len()), (vec!["v1".to_owned()], 0));
        let would = array.preview_reserve(&ReserveOf::Pool, &offline(8)).await.unwrap();
        assert_eq!(would.would_take_offline, ["v1", "v2"]);
        assert!(array.status().offline_volumes.is_empty());
        confirm(array, &v1, offline(8), &["offline at once: v1"]).await;

        assert_eq!(fill(array, "v1", 3).await, Err(DeviceError::Stopped { volume: "v1".into() }));
        fill(array, "v2", 3).await.unwrap();
        let status = array.status();
        assert_eq!((status.ready, status.offline_volumes), (true, vec!["v1".to_owned()]));
        let why = array.show_volume("v1").unwrap().offline.unwrap();
        assert!(why.starts_with("its snapshots hold more than its snapshot reserve"), "{why}");
        let listed = array.list_volumes().unwrap().into_iter().filter(|volume| volume.offline.is_some());
        assert_eq!(listed.map(|volume| volume.name).collect::<Vec<_>>(), ["v1"]);
        let figures = array.figures();
        assert_eq!(figures.stopped_volumes, 1);
        assert!(figures.volumes.iter().all(|volume| volume.is_stopped == (volume.name == "v1")));
        let said = told(array, Severity::Critical);
        assert!(
            said[0].starts_with("volume v1: volumes taken offline") && said[0].ends_with(": v1"),
            "{said:?}"
        );
    });
    years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        assert_eq!(array.status().offline_volumes, ["v1"], "and after a restart");
        // Another reserve that covers the volume as well keeps it offline when this one is removed.
        array.set_reserve(&ReserveOf::Pool, Some(ReserveSet { confirm: true, ..offline(8) })).await.unwrap();
        assert_eq!(array.status().offline_volumes, ["v1", "v2"]);
        array.set_reserve(&of_volume("v1"), None).await.unwrap();
        assert_eq!(array.status().offline_volumes, ["v1", "v2"]);
        for snapshot in ["v1.s", "v2.s"] {
            array.delete_snapshot(snapshot, Deletion::default()).await.unwrap();
        }
        day.pass(MINUTE).await;
        assert!(array.status().offline_volumes.is_empty());
        assert_eq!(array.show_volume("v1").unwrap().offline, None);
        fill(array, "v1", 3).await.unwrap();
        let said = told(array, Severity::Notice);
        let back =
            |volume: &str| said.iter().any(|text| text.contains("back online") && text.contains(volume));
        assert!(back("v1") && back("v2"), "{said:?}");
    });
}

#[test]
fn volumes_that_stay_offline_while_the_pool_is_reopened_are_not_reported_again() {
    Years::new(36).boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        array.create_volume(create("v1")).await.unwrap();
        fill(array, "v1", 1).await.unwrap();
        snapshot(array, "v1", "s").await;
        fill(array, "v1", 2).await.unwrap();
        day.pass(MINUTE).await;
        confirm(array, &of_volume("v1"), offline(8), &["offline at once: v1"]).await;
        let notice = async { drop(array.create_volume(create("v2")).await) };
        day.lose_drive(notice).await;
        day.pass(MINUTE).await;
        assert_eq!(array.status().offline_volumes, ["v1"]);
        for once in ["volumes taken offline", ": volumes with snapshots are taken offline"] {
            assert_eq!(day.times_told(once), 1, "{:?}", day.told());
        }
        array.delete_snapshot("s", Deletion::default()).await.unwrap();
        day.pass(MINUTE).await;
        assert_eq!(day.times_told("volumes back online: v1"), 1);
    });
}
