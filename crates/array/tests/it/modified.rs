//! Snapshots that were written to are known as such: from before the first change is acknowledged, whenever the array stops.

use crate::years::{Day, Ending, Years, create};
use quoin_api::{
    CopyCreate, Deletion, GroupCreate, GroupRestore, GroupSnapshotCreate, SnapshotCreate, SnapshotRefresh,
    SnapshotRestore, VolumeUpdate,
};
use quoin_array::{Array, ArrayError};
use quoin_base::{ByteRange, MIB};
use quoin_volume::{BlockDevice, DeviceError};
use quoin_world::Slice;
use std::{sync::Arc, time::Duration};

const MINUTE: Duration = Duration::from_secs(60);

async fn write(array: &Array, name: &str) -> Result<(), DeviceError> {
    array.volume(name).unwrap().write(0, vec![Slice::copy_of(&[7; 8192])]).await
}

async fn unmap(array: &Array, name: &str) -> Result<(), DeviceError> {
    array.volume(name).unwrap().unmap(ByteRange::new(0, MIB)).await
}

async fn take(array: &Arc<Array>, volume: &str, name: &str, writable: bool) {
    let (volume, name) = (volume.to_owned(), Some(name.to_owned()));
    let request = SnapshotCreate { volume, name, tags: Default::default(), writable, retain_s: None };
    array.create_snapshot(request).await.unwrap();
}

fn modified(array: &Array, name: &str) -> Option<u64> {
    array.show_volume(name).unwrap().modified_ms
}

fn kind(error: &ArrayError) -> String {
    error.problem().kind.rsplit(':').next().unwrap().to_owned()
}

#[test]
fn the_first_change_of_any_kind_marks_a_snapshot_and_a_crash_right_behind_it_keeps_the_mark() {
    let years = Years::new(31);
    let before_ms = years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        array.create_volume(create("v1")).await.unwrap();
        write(array, "v1").await.unwrap();
        for name in ["written", "unmapped", "copied", "resized", "restored", "untouched"] {
            take(array, "v1", name, true).await;
        }
        take(array, "written", "of-a-snapshot", true).await;
        write(array, "v1").await.unwrap();
        assert!(array.list_volumes().unwrap().iter().all(|volume| volume.modified_ms.is_none()));
        array.status().uptime_s * 1000
    });
    // Each change is the last that happens before a crash.
    let names = ["written", "unmapped", "copied", "resized", "restored"];
    for name in names {
        let at = years.boot(Ending::Kill, async move |day: Day| {
            let array = &day.array;
            day.pass(MINUTE).await;
            assert_eq!(modified(array, name), None);
            match name {
                "written" => write(array, name).await.unwrap(),
                "unmapped" => unmap(array, name).await.unwrap(),
                "copied" => {
                    let target = name.to_owned();
                    let (from_bytes, to_bytes, length_bytes) = (0, 0, Some(MIB));
                    let copy = CopyCreate { target, from_bytes, to_bytes, length_bytes, force: false };
                    drop(array.copy_volume("v1", copy).await.unwrap());
                }
                "resized" => {
                    let size_bytes = Some(2 << 30);
                    let update = VolumeUpdate { size_bytes, ..VolumeUpdate::default() };
                    drop(array.change_volume(name, update).await.unwrap());
                }
                _ => {
                    let restore = SnapshotRestore { to: Some(name.into()), ..SnapshotRestore::default() };
                    drop(array.restore_snapshot("untouched", restore).await.unwrap());
                }
            }
            modified(array, name).unwrap()
        });
        years.boot(Ending::Stop, async move |day: Day| {
            assert_eq!(modified(&day.array, name), Some(at), "{name}: after a crash");
            // The time is that of the first change.
            day.pass(MINUTE).await;
            write(&day.array, name).await.unwrap();
            assert_eq!(modified(&day.array, name), Some(at));
        });
    }
    years.boot(Ending::Stop, async move |day: Day| {
        let array = &day.array;
        for name in ["untouched", "of-a-snapshot", "v1"] {
            assert_eq!(modified(array, name), None, "{name}");
        }
        let _ = before_ms;
        // A refresh makes it what was taken, just now.
        array.refresh_snapshot("written", SnapshotRefresh::default()).await.unwrap();
        assert_eq!(modified(array, "written"), None);
        write(array, "written").await.unwrap();
        assert!(modified(array, "written").is_some());
        array.promote_snapshot("written").await.unwrap();
        assert_eq!(modified(array, "written"), None, "it is no snapshot any more");
    });
}

#[test]
fn what_is_refused_leaves_no_mark_and_what_runs_side_by_side_marks_once() {
    let years = Years::new(32);
    years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        array.create_volume(create("v1")).await.unwrap();
        take(array, "v1", "s", true).await;
        let s = array.volume("s").unwrap();
        let beyond = s.write(1 << 40, vec![Slice::copy_of(&[7; 8192])]).await;
        assert!(matches!(beyond, Err(DeviceError::OutOfRange { .. })));
        assert_eq!(modified(array, "s"), None);
        let writes = (0..16).map(|n| s.write(n * 8192, vec![Slice::copy_of(&[7; 8192])]));
        for outcome in futures_util::future::join_all(writes).await {
            outcome.unwrap();
        }
        assert!(modified(array, "s").is_some());
    });
}

#[test]
fn a_modified_snapshot_is_restored_only_by_force_and_management_changes_no_read_only_one() {
    let years = Years::new(33);
    years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        for name in ["v1", "v2"] {
            array.create_volume(create(name)).await.unwrap();
        }
        take(array, "v1", "s", true).await;
        take(array, "v1", "read-only", false).await;
        write(array, "s").await.unwrap();
        let restore = |force| SnapshotRestore { force, ..SnapshotRestore::default() };
        let refused = array.restore_snapshot("s", restore(false)).await.unwrap_err();
        assert_eq!(kind(&refused), "modified");
        assert!(refused.to_string().contains("snapshot s was modified on 2026-01-01 "), "{refused}");
        array.restore_snapshot("s", restore(true)).await.unwrap();
        assert!(
            day.told()[0].contains("restored from s, though snapshot s was modified on "),
            "{:?}",
            day.told()
        );
        let from = |force| SnapshotRefresh { from: Some("s".into()), force };
        assert_eq!(kind(&array.refresh_snapshot("read-only", from(false)).await.unwrap_err()), "modified");

        let volumes = vec!["v1".to_owned(), "v2".into()];
        array.create_group(GroupCreate { name: "g".into(), volumes }).await.unwrap();
        let set = GroupSnapshotCreate { name: Some("k".into()), writable: true, retain_s: None };
        assert_eq!(array.snapshot_group("g", set).await.unwrap().modified_ms, None);
        day.pass(MINUTE).await;
        write(array, "v2.k").await.unwrap();
        let group = array.show_group("g").unwrap();
        assert_eq!(group.sets[0].modified_ms, modified(array, "v2.k"));
        let restore = |force| GroupRestore { keep: None, force };
        let refused = array.restore_group("g", "k", restore(false)).await.unwrap_err();
        assert!(kind(&refused) == "modified" && refused.to_string().contains("v2.k"), "{refused}");
        array.restore_group("g", "k", restore(true)).await.unwrap();

        let target = "read-only".to_owned();
        let copy = CopyCreate { target, from_bytes: 0, to_bytes: 0, length_bytes: None, force: true };
        assert_eq!(kind(&array.copy_volume("v2", copy).await.unwrap_err()), "read-only");
        let size = VolumeUpdate { size_bytes: Some(2 << 30), ..VolumeUpdate::default() };
        assert_eq!(kind(&array.change_volume("read-only", size).await.unwrap_err()), "read-only");
        let to = SnapshotRestore { to: Some("read-only".into()), keep: None, force: true };
        assert_eq!(kind(&array.restore_snapshot("v2.k", to).await.unwrap_err()), "read-only");
        array.refresh_snapshot("read-only", SnapshotRefresh::default()).await.unwrap();
        array.delete_snapshot("read-only", Deletion::default()).await.unwrap();
    });
}
