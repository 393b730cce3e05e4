//! Schedules take what is due, once, and keep what they shall; the snapshot reserve bounds what all snapshots hold.

use crate::years::{DAY, Day, Ending, HOUR, Years, create};
use quoin_api::{
    Deletion, Every, GroupCreate, HostCreate, MappingCreate, ReservePolicy, ReserveSet, Rule, ScheduleCreate,
    ScheduleUpdate, SnapshotCreate, Volume, VolumeUpdate,
};
use quoin_array::{Array, ArrayError, ReserveOf};
use quoin_base::MIB;
use quoin_volume::{BlockDevice, DeviceError};
use quoin_world::{Slice, World};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

const MINUTE: Duration = Duration::from_secs(60);

fn schedule(name: &str, rules: &[(Every, u32)], at: &str) -> ScheduleCreate {
    let rules = rules.iter().map(|&(every, keep)| Rule { every, keep }).collect();
    ScheduleCreate {
        name: name.into(),
        volume: Some("v1".into()),
        group: None,
        rules,
        at: at.into(),
        retain_s: None,
    }
}

fn snapshots(array: &Array, every: &str) -> Vec<Volume> {
    let all = array.list_volumes().unwrap();
    all.into_iter().filter(|volume| volume.tags.get("every").is_some_and(|own| own == every)).collect()
}

fn names(array: &Array, every: &str) -> Vec<String> {
    snapshots(array, every).into_iter().map(|volume| volume.name).collect()
}

fn kind(error: &ArrayError) -> String {
    error.problem().kind.rsplit(':').next().unwrap().to_owned()
}

#[test]
fn what_is_due_is_taken_and_the_oldest_are_deleted() {
    let years = Years::new(11);
    years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        array.create_volume(create("v1")).await.unwrap();
        let rules = [(Every::Hourly, 3), (Every::Daily, 2), (Every::Weekly, 1)];
        let made = array.create_schedule(schedule("s", &rules, "05:30")).await.unwrap();
        // The simulated world begins on Thursday 2026-01-01 at 00:00.
        assert_eq!(made.next_run_ms, Some(1_767_225_600_000 + 30 * 60_000));
        day.pass(6 * HOUR).await;
        let stamps: Vec<_> =
            names(array, "hourly").iter().map(|name| name[..name.len() - 2].to_owned()).collect();
        let expected = ["0330", "0430", "0530"].map(|time| format!("v1.hourly-20260101-{time}"));
        assert_eq!(stamps, expected);
        assert_eq!(snapshots(array, "daily").len(), 1);
        assert_eq!(snapshots(array, "weekly").len(), 0);
        assert!(day.told().iter().any(|told| {
            told.contains("deleted, beyond the 3 hourly snapshots to keep: v1.hourly-20260101-0230")
        }));
        day.pass(4 * DAY).await;
        assert_eq!([3, 2, 1], ["hourly", "daily", "weekly"].map(|every| snapshots(array, every).len()));
        assert!(names(array, "weekly")[0].starts_with("v1.weekly-20260104-0530"));
        assert_eq!(array.show_schedule("s").unwrap().snapshots, 6);
    });
}

#[test]
fn what_went_by_while_it_was_off_is_made_up_for_once() {
    let years = Years::new(12);
    years.boot(Ending::Stop, async |day: Day| {
        day.array.create_volume(create("v1")).await.unwrap();
        day.array.create_schedule(schedule("s", &[(Every::Hourly, 9)], "00:10")).await.unwrap();
        day.pass(HOUR).await;
    });
    assert_eq!(years.boot(Ending::Kill, async |day: Day| names(&day.array, "hourly").len()), 1);
    years.off(4 * HOUR + HOUR / 2);
    for _ in 0..2 {
        years.boot(Ending::Kill, async |day: Day| {
            day.pass(2 * MINUTE).await;
            assert_eq!(
                names(&day.array, "hourly").len(),
                2,
                "one for all that went by, and not another after a crash"
            );
        });
    }
    years.clock().set_by(-24 * 365);
    years.boot(Ending::Stop, async |day: Day| {
        day.pass(5 * MINUTE).await;
        assert_eq!(names(&day.array, "hourly").len(), 2);
        day.pass(HOUR).await;
        assert_eq!(
            names(&day.array, "hourly").len(),
            3,
            "a clock that was set back stops no schedule for long"
        );
    });
}

#[test]
fn what_is_immutable_in_use_or_untagged_stays() {
    let years = Years::new(13);
    years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        array.create_volume(create("v1")).await.unwrap();
        let request =
            ScheduleCreate { retain_s: Some(5 * 3600), ..schedule("s", &[(Every::Hourly, 1)], "00:00") };
        array.create_schedule(request).await.unwrap();
        day.pass(3 * HOUR + MINUTE).await;
        assert_eq!(snapshots(array, "hourly").len(), 3);
        assert!(
            day.told().iter().any(|told| told.starts_with("notice: schedule s: more than 1 hourly")
                && told.contains("(immutable)"))
        );

        let names = names(array, "hourly");
        let untag = BTreeMap::from([("every".to_owned(), None)]);
        let update = VolumeUpdate { tags: Some(untag), ..VolumeUpdate::default() };
        array.change_volume(&names[0], update).await.unwrap();
        let initiators = vec!["iqn.2026-11.test:h1".to_owned()];
        array.create_host(HostCreate { name: "h1".into(), initiators, chap: None }).await.unwrap();
        let map = MappingCreate {
            volume: names[1].clone(),
            host: "h1".into(),
            lun: None,
            read_only: true,
            writable: false,
        };
        array.map(map).await.unwrap();
        array.update_schedule("s", ScheduleUpdate { paused: Some(true) }).await.unwrap();
        day.pass(9 * HOUR).await;
        assert_eq!(array.show_schedule("s").unwrap().next_run_ms, None);
        array.update_schedule("s", ScheduleUpdate { paused: Some(false) }).await.unwrap();
        day.pass(MINUTE).await;
        assert_eq!(snapshots(array, "hourly").len(), 2, "nothing is made up for");
        day.pass(HOUR).await;
        let left = self::names(array, "hourly");
        assert_eq!((left.len(), &left[0]), (2, &names[1]), "the untagged is not counted, the mapped stays");
        assert!(array.show_volume(&names[0]).is_ok());
        assert!(day.told().iter().any(|told| told.contains("(in use)")));
    });
}

#[test]
fn schedules_are_run_by_hand_refused_and_deleted() {
    let years = Years::new(14);
    years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        array.create_volume(create("v1")).await.unwrap();
        array.create_volume(create("v2")).await.unwrap();
        array
            .create_group(GroupCreate { name: "g".into(), volumes: vec!["v1".into(), "v2".into()] })
            .await
            .unwrap();
        let of_group = |name: &str| ScheduleCreate {
            volume: None,
            group: Some("g".into()),
            ..schedule(name, &[(Every::Daily, 1)], "00:00")
        };
        array.create_schedule(of_group("s")).await.unwrap();
        for _ in 0..2 {
            let run = array.run_schedule("s").await.unwrap();
            assert_eq!((run.snapshots, run.last_run_ms.is_some()), (1, true));
            assert_eq!(snapshots(array, "daily").len(), 2, "a set of two is one to keep");
        }
        assert_eq!(array.show_group("g").unwrap().sets.len(), 1);
        let rules = [(Every::Daily, 1)];
        for (request, refused) in [
            (of_group("s"), "exists"),
            (schedule("S", &rules, "00:00"), "invalid"),
            (schedule("t", &rules, "25:00"), "invalid"),
            (schedule("t", &[], "00:00"), "invalid"),
            (ScheduleCreate { volume: None, ..schedule("t", &rules, "00:00") }, "invalid"),
            (ScheduleCreate { volume: Some("v9".into()), ..schedule("t", &rules, "00:00") }, "not-found"),
        ] {
            assert_eq!(kind(&array.create_schedule(request).await.unwrap_err()), refused);
        }
        array.delete_group("g").await.unwrap();
        assert_eq!(kind(&array.run_schedule("s").await.unwrap_err()), "gone");
        day.pass(DAY + MINUTE).await;
        let shown = array.show_schedule("s").unwrap();
        assert!(shown.paused && shown.group.is_none());
        assert!(
            day.told()
                .iter()
                .any(|told| told.starts_with("warning: schedule s") && told.contains("it is paused"))
        );
        array.delete_schedule("s").await.unwrap();
        assert_eq!(kind(&array.delete_schedule("s").await.unwrap_err()), "not-found");
        assert_eq!(snapshots(array, "daily").len(), 2);
    });
}

/// Writes the first 32 MiB of a volume.
async fn fill(array: &Array, byte: u8) -> Result<(), DeviceError> {
    let volume = array.volume("v1").unwrap();
    for offset in (0..32 * MIB).step_by(MIB as usize) {
        volume.write(offset, vec![Slice::copy_of(&vec![byte; MIB as usize])]).await?;
    }
    Ok(())
}

async fn snapshot(array: &Arc<Array>, name: &str, retain_s: Option<u64>) {
    let (tags, name) = (BTreeMap::new(), Some(name.to_owned()));
    array
        .create_snapshot(SnapshotCreate { volume: "v1".into(), name, tags, writable: false, retain_s })
        .await
        .unwrap();
}

fn reserve(mib: u64, policy: ReservePolicy) -> ReserveSet {
    ReserveSet { percent: None, bytes: Some(mib * MIB), policy, confirm: true }
}

#[test]
fn the_oldest_go_when_snapshots_hold_too_much() {
    let years = Years::new(15);
    years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        array.create_volume(create("v1")).await.unwrap();
        let both = ReserveSet { percent: Some(10), ..reserve(1, ReservePolicy::DeleteOldest) };
        assert_eq!(kind(&array.set_reserve(&ReserveOf::Pool, Some(both)).await.unwrap_err()), "invalid");
        fill(array, 1).await.unwrap();
        snapshot(array, "kept", Some(3600)).await;
        fill(array, 2).await.unwrap();
        snapshot(array, "old", None).await;
        fill(array, 3).await.unwrap();
        snapshot(array, "new", None).await;
        day.pass(MINUTE).await;
        let held = array.show_reserve(&ReserveOf::Pool).unwrap().held_bytes.unwrap();
        assert!((60 * MIB..=68 * MIB).contains(&held), "{held}");
        let set = array
            .set_reserve(&ReserveOf::Pool, Some(reserve(48, ReservePolicy::DeleteOldest)))
            .await
            .unwrap();
        assert_eq!((set.limit_bytes, set.policy), (Some(48 * MIB), Some(ReservePolicy::DeleteOldest)));
        day.pass(5 * MINUTE).await;
        assert!(
            array.show_volume("old").is_err()
                && array.show_volume("new").is_ok()
                && array.show_volume("kept").is_ok()
        );
        let told = day.told();
        assert!(
            told.iter().any(|told| told.starts_with("warning") && told.ends_with("bytes: old")),
            "{told:?}"
        );

        array.set_reserve(&ReserveOf::Pool, Some(reserve(8, ReservePolicy::DeleteOldest))).await.unwrap();
        day.pass(5 * MINUTE).await;
        assert!(array.show_volume("new").is_ok(), "nothing was written since: it frees nothing");
        fill(array, 4).await.unwrap();
        day.pass(5 * MINUTE).await;
        assert!(array.show_volume("new").is_err() && array.show_volume("kept").is_ok());
        let told = day.told();
        assert_eq!(
            told.iter().filter(|told| told.contains("no snapshot that may be deleted frees space")).count(),
            1,
            "{told:?}"
        );
        assert_eq!(array.set_reserve(&ReserveOf::Pool, None).await.unwrap().limit_bytes, None);
    });
}

#[test]
fn volumes_stop_when_their_snapshots_hold_too_much() {
    let years = Years::new(16);
    years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        array.create_volume(create("v1")).await.unwrap();
        array.set_reserve(&ReserveOf::Pool, Some(reserve(16, ReservePolicy::OfflineVolume))).await.unwrap();
        fill(array, 1).await.unwrap();
        snapshot(array, "s", None).await;
        fill(array, 2).await.unwrap();
        day.pass(MINUTE).await;
        assert_eq!(fill(array, 3).await, Err(DeviceError::Stopped { volume: "v1".into() }));
        assert_eq!(array.show_reserve(&ReserveOf::Pool).unwrap().offline_volumes, ["v1"]);
    });
    years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        assert_eq!(
            fill(array, 3).await,
            Err(DeviceError::Stopped { volume: "v1".into() }),
            "and after a restart"
        );
        assert!(array.show_volume("s").is_ok());
        array.set_reserve(&ReserveOf::Pool, Some(reserve(64, ReservePolicy::OfflineVolume))).await.unwrap();
        fill(array, 3).await.unwrap();
        array.set_reserve(&ReserveOf::Pool, Some(reserve(16, ReservePolicy::OfflineVolume))).await.unwrap();
        assert!(fill(array, 4).await.is_err());
        array.delete_snapshot("s", Deletion::default()).await.unwrap();
        day.pass(MINUTE).await;
        fill(array, 4).await.unwrap();
    });
}

#[test]
fn a_schedule_is_reported_as_paused_once_that_is_saved() {
    Years::new(18).boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        array.create_volume(create("v1")).await.unwrap();
        let due_ms = array.create_schedule(schedule("s", &[(Every::Hourly, 3)], "00:30")).await.unwrap();
        array.delete_volume("v1", Deletion { now: true, ..Deletion::default() }).await.unwrap();
        let left_ms = due_ms.next_run_ms.unwrap() - day.clock.wall_clock_ms();
        day.pass(Duration::from_millis(left_ms - 100)).await;
        // The first that needs the drive is the change that pauses the schedule.
        day.lose_drive(async {}).await;
        day.pass(MINUTE).await;
        assert_eq!(day.times_told("it is paused"), 1, "{:?}", day.told());
        assert!(array.show_schedule("s").unwrap().paused);
    });
}
