//! Immutable snapshots stay until their time is over, whatever is done to clocks.

use crate::years::{DAY, Day, Ending, HOUR, Years, create};
use quoin_api::{
    Deletion, GroupCreate, GroupSnapshotCreate, Severity, SnapshotCreate, SnapshotRefresh, SnapshotRestore,
    SnapshotRetain, VolumeUpdate,
};
use quoin_array::{Array, ArrayError, EventSelection};
use quoin_volume::{BlockDevice, DeviceError};
use quoin_world::Slice;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

fn kind(error: &ArrayError) -> String {
    error.problem().kind.rsplit(':').next().unwrap().to_owned()
}

fn snapshot(name: &str, retain_s: Option<u64>) -> SnapshotCreate {
    SnapshotCreate {
        volume: "v1".into(),
        name: Some(name.into()),
        tags: BTreeMap::new(),
        writable: false,
        retain_s,
    }
}

async fn retain(array: &Array, name: &str, time: Duration) -> Result<quoin_api::Volume, ArrayError> {
    array.retain_snapshot(name, SnapshotRetain { retain_s: time.as_secs(), force: false }).await
}

async fn with_snapshot(day: &Day, time: Duration) {
    day.array.create_volume(create("v1")).await.unwrap();
    day.array.create_snapshot(snapshot("s1", Some(time.as_secs()))).await.unwrap();
}

async fn is_kept(array: &Arc<Array>) -> bool {
    match array.delete_snapshot("s1", Deletion { unmap: true, ..Deletion::default() }).await {
        Ok(()) => false,
        Err(error) => {
            assert_eq!(kind(&error), "immutable");
            true
        }
    }
}

#[test]
fn nobody_changes_or_deletes_what_is_immutable() {
    let years = Years::new(1);
    years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        with_snapshot(&day, DAY).await;
        array.create_snapshot(snapshot("s2", None)).await.unwrap();
        let mut refused = vec![
            array.delete_snapshot("s1", Deletion { unmap: true, ..Deletion::default() }).await.unwrap_err(),
            array.delete_volume("s1", Deletion { unmap: true, ..Deletion::default() }).await.unwrap_err(),
            array.delete_volume("v1", Deletion { unmap: true, ..Deletion::default() }).await.unwrap_err(),
            array.promote_snapshot("s1").await.unwrap_err(),
            retain(array, "s1", HOUR).await.unwrap_err(),
        ];
        let refresh = SnapshotRefresh { from: None, force: true };
        refused.push(array.refresh_snapshot("s1", refresh).await.unwrap_err());
        let over = SnapshotRestore { to: Some("s1".into()), keep: None, force: true };
        refused.push(array.restore_snapshot("s2", over).await.unwrap_err());
        let size = VolumeUpdate { size_bytes: Some(4096), force: true, ..VolumeUpdate::default() };
        refused.push(array.change_volume("s1", size).await.unwrap_err());
        for error in &refused {
            assert_eq!(kind(error), "immutable", "{error}");
            assert!(error.problem().why.contains("immutable until 2026-01-02 00:00:"), "{}", error.problem());
        }
        let volume = array.volume("s1").unwrap();
        let written = volume.write(0, vec![Slice::copy_of(&[1; 512])]).await;
        assert!(matches!(written, Err(DeviceError::ReadOnly { .. })), "{written:?}");
        assert_eq!(kind(&retain(array, "v1", HOUR).await.unwrap_err()), "no-snapshot");
        assert_eq!(kind(&retain(array, "s2", Duration::ZERO).await.unwrap_err()), "invalid");

        // What is taken from it, and its name, are nobody's business.
        array.restore_snapshot("s1", SnapshotRestore::default()).await.unwrap();
        let name = VolumeUpdate { name: Some("s3".into()), ..VolumeUpdate::default() };
        array.change_volume("s1", name).await.unwrap();
        let longer = retain(array, "s3", 2 * DAY).await.unwrap();
        assert!(longer.retain_until_ms > array.show_volume("s2").unwrap().retain_until_ms);
        array.delete_snapshot("s2", Deletion::default()).await.unwrap();
    });
}

#[test]
fn a_time_passes_while_the_array_runs_and_then_all_is_as_before() {
    let years = Years::new(2);
    years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        with_snapshot(&day, 2 * HOUR).await;
        let group = GroupCreate { name: "g".into(), volumes: vec!["v1".into()] };
        array.create_group(group).await.unwrap();
        let set = GroupSnapshotCreate { name: Some("set".into()), writable: false, retain_s: Some(3600) };
        array.snapshot_group("g", set).await.unwrap();
        assert_eq!(array.status().retention.unwrap().immutable_snapshots, 2);
        day.pass(HOUR + HOUR / 2).await;
        assert_eq!(array.status().retention.unwrap().immutable_snapshots, 1);
        // A set has a time once each of its snapshots has one; it only gets longer.
        let retain = |retain_s| SnapshotRetain { retain_s, force: false };
        let until = |set: quoin_api::GroupSet| set.retain_until_ms;
        assert_eq!(until(array.show_group("g").unwrap().sets[0].clone()), None);
        let longer = until(array.retain_group_snapshot("g", "set", retain(600)).await.unwrap()).unwrap();
        assert_eq!(
            kind(&array.retain_group_snapshot("g", "set", retain(60)).await.unwrap_err()),
            "immutable"
        );
        assert_eq!(array.show_volume("v1.set").unwrap().retain_until_ms, Some(longer));
        assert_eq!(
            kind(
                &array
                    .delete_group_snapshot("g", "set", Deletion { unmap: true, ..Deletion::default() })
                    .await
                    .unwrap_err()
            ),
            "immutable"
        );
        assert_eq!(
            kind(&array.retain_group_snapshot("g", "other", retain(600)).await.unwrap_err()),
            "not-found"
        );
        day.pass(Duration::from_secs(602)).await;
        array.delete_group_snapshot("g", "set", Deletion::default()).await.unwrap();
        assert!(is_kept(array).await);
        day.pass(HOUR / 2 - Duration::from_secs(600)).await;
        assert_eq!(array.status().retention, None);
        let volume = array.volume("s1").unwrap();
        volume.write(0, vec![Slice::copy_of(&[1; 512])]).await.unwrap();
        assert!(
            day.told().iter().any(|told| told.contains("their retention has ended: s1")),
            "{:?}",
            day.told()
        );
        assert!(!is_kept(array).await);
        array.delete_volume("v1", Deletion { force: true, ..Deletion::default() }).await.unwrap();
    });
}

#[test]
fn a_clock_that_is_set_ends_nothing_and_is_noticed() {
    let years = Years::new(3);
    years.boot(Ending::Stop, async |day: Day| {
        with_snapshot(&day, DAY).await;
        day.clock.set_by(24 * 30);
        day.pass(Duration::from_secs(5)).await;
        assert!(is_kept(&day.array).await, "set forward while the array runs");
        let told = day.told();
        assert!(
            told.iter()
                .any(|told| told.starts_with("warning: retention clock") && told.contains("forward by 2592")),
            "{told:?}"
        );
        day.clock.set_by(-24 * 30);
        day.pass(HOUR).await;
    });
    years.clock().set_by(24 * 30);
    years.boot(Ending::Stop, async |day: Day| {
        assert!(is_kept(&day.array).await, "set forward while it was off");
        let told = day.told();
        assert!(
            told.iter()
                .any(|told| told.starts_with("warning: retention clock")
                    && told.contains("kept as much longer")),
            "{told:?}"
        );
    });
    years.clock().set_by(-24 * 60);
    years.boot(Ending::Stop, async |day: Day| {
        day.pass(Duration::from_secs(5)).await;
        let retention = day.array.status().retention.unwrap();
        assert!(retention.wall_clock_set_back && retention.behind_ms < -29 * 86_400_000, "{retention:?}");
        let critical = EventSelection { severity: Severity::Critical, ..EventSelection::default() };
        assert_eq!(day.array.events(critical).len(), 1);
        // Its time passes all the same.
        day.pass(22 * HOUR).await;
        assert!(is_kept(&day.array).await);
        day.pass(HOUR + HOUR / 2).await;
        assert!(!is_kept(&day.array).await);
    });
}

#[test]
fn time_off_does_not_count_and_a_crash_costs_a_minute() {
    let years = Years::new(4);
    years.boot(Ending::Stop, async |day: Day| with_snapshot(&day, 2 * HOUR).await);
    years.off(10 * DAY);
    years.boot(Ending::Kill, async |day: Day| {
        assert!(is_kept(&day.array).await);
        day.pass(HOUR).await;
    });
    years.off(HOUR);
    years.boot(Ending::Stop, async |day: Day| {
        let left = day.array.show_volume("s1").unwrap().retain_until_ms.unwrap();
        let wall = day.array.status().retention.unwrap();
        let left_s = left.saturating_sub(wall.clock_ms.saturating_add_signed(wall.behind_ms)) / 1000;
        assert!((3580..=3670).contains(&left_s), "{left_s}");
        day.pass(HOUR - Duration::from_secs(60)).await;
        assert!(is_kept(&day.array).await);
        day.pass(Duration::from_secs(150)).await;
        assert!(!is_kept(&day.array).await);
    });
}
