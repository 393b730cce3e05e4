//! The recycle bin: what is deleted can be restored for its time, and the pool has the space when it needs it.

use crate::years::{DAY, Day, Ending, HOUR, Years, create};
use quoin_api::{
    Deletion, GroupCreate, GroupSnapshotCreate, HostCreate, MappingCreate, RecycleBinRestore, RecycleBinSet,
    SnapshotCreate, SnapshotRefresh, SnapshotRestore, SnapshotRetain, VolumeCreate, VolumeUpdate,
};
use quoin_array::{Array, ArrayError, BinError, EventSelection};
use quoin_base::{ByteRange, MIB};
use quoin_volume::{BlockDevice, DeviceError};
use quoin_world::Slice;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

const MINUTE: Duration = Duration::from_secs(60);

fn kind(error: &ArrayError) -> String {
    error.problem().kind.rsplit(':').next().unwrap().to_owned()
}

/// Writes the first MiB of a volume, or as many as asked for.
async fn fill(array: &Array, name: &str, mib: u64, byte: u8) -> Result<(), DeviceError> {
    let volume = array.volume(name).unwrap();
    for offset in (0..mib * MIB).step_by(MIB as usize) {
        volume.write(offset, vec![Slice::copy_of(&vec![byte; MIB as usize])]).await?;
    }
    Ok(())
}

/// The byte that a volume's first MiB is full of.
async fn byte_of(array: &Array, name: &str) -> u8 {
    let read = array.volume(name).unwrap().read(ByteRange::new(0, MIB)).await.unwrap();
    let first = read[0][0];
    assert!(read.iter().all(|slice| slice.iter().all(|byte| *byte == first)), "{name} is mixed");
    first
}

async fn snapshot(array: &Arc<Array>, of: &str, name: &str) {
    let (tags, name) = (BTreeMap::new(), Some(name.to_owned()));
    let request = SnapshotCreate { volume: of.into(), name, tags, writable: false, retain_s: None };
    array.create_snapshot(request).await.unwrap();
}

async fn delete(array: &Array, name: &str) {
    array.delete_volume(name, Deletion::default()).await.unwrap();
}

async fn restore(array: &Arc<Array>, which: &str) -> Result<quoin_api::Volume, ArrayError> {
    array.restore_deleted(which, RecycleBinRestore::default()).await
}

fn named(name: &str) -> RecycleBinRestore {
    RecycleBinRestore { name: Some(name.into()), thin: false }
}

fn binned(array: &Array) -> Vec<String> {
    array.list_deleted().unwrap().into_iter().map(|volume| volume.name).collect()
}

fn listed(array: &Array) -> Vec<String> {
    array.list_volumes().unwrap().into_iter().map(|volume| volume.name).collect()
}

async fn map(array: &Arc<Array>, name: &str) {
    let initiators = vec!["iqn.2026-11.test:h1".to_owned()];
    array.create_host(HostCreate { name: "h1".into(), initiators, chap: None }).await.unwrap();
    let request = MappingCreate {
        volume: name.into(),
        host: "h1".into(),
        lun: None,
        read_only: false,
        writable: false,
    };
    array.map(request).await.unwrap();
}

#[test]
fn a_deleted_volume_comes_back_as_it_was_also_after_a_restart() {
    let years = Years::new(31);
    let before = years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        let tags = BTreeMap::from([("app".to_owned(), "db".to_owned())]);
        array.create_volume(VolumeCreate { tags, folder: "prod".into(), ..create("v1") }).await.unwrap();
        fill(array, "v1", 1, 7).await.unwrap();
        snapshot(array, "v1", "s1").await;
        map(array, "v1").await;
        let before = array.show_volume("v1").unwrap();
        let held = array.volume("v1").unwrap();

        array.delete_volume("v1", Deletion::default()).await.unwrap_err();
        array.delete_volume("v1", Deletion { unmap: true, ..Deletion::default() }).await.unwrap();
        assert_eq!((listed(array), binned(array)), (vec!["s1".to_owned()], vec!["v1".to_owned()]));
        assert!(array.list_mappings().unwrap().is_empty());
        assert!(array.show_snapshot("s1").unwrap().origin.unwrap().source_deleted);
        let deleted = array.show_deleted("v1").unwrap();
        assert_eq!((deleted.uuid, deleted.folder.as_str()), (before.uuid, "prod"));
        let kept = Duration::from_millis(deleted.expires_ms - deleted.deleted_ms);
        assert!((DAY - MINUTE..=DAY).contains(&kept), "{kept:?}");
        // Whoever had it open has nothing any more, and changes nothing.
        let written = held.write(0, vec![Slice::copy_of(&[9; 512])]).await;
        assert_eq!(written, Err(DeviceError::Deleted { volume: "v1".into() }));
        assert!(
            day.told()[0].contains("volume v1: deleted; the recycle bin keeps the data until 2026-01-02")
        );
        (before, held)
    });
    let (before, held) = before;
    // The wall clock says that the day is over, and a crash is in between.
    years.clock().set_by(72);
    years.boot(Ending::Kill, async |day: Day| {
        day.pass(MINUTE).await;
        assert_eq!(binned(&day.array), ["v1"]);
    });
    years.boot(Ending::Stop, async move |day: Day| {
        let array = &day.array;
        let after = restore(array, "v1").await.unwrap();
        assert_eq!((after.uuid, after.created_ms), (before.uuid, before.created_ms));
        assert_eq!((&after.tags, &after.folder, after.size_bytes), (&before.tags, &before.folder, 1 << 30));
        assert!(after.mappings.is_empty() && binned(array).is_empty());
        assert_eq!(byte_of(array, "v1").await, 7);
        let origin = array.show_snapshot("s1").unwrap().origin.unwrap();
        assert!(!origin.source_deleted && origin.source == "v1");
        assert!(held.read(ByteRange::new(0, 512)).await.is_err(), "the old one stays deleted");
        let held = array.volume("v1").unwrap();
        delete(array, "v1").await;
        let gone = array.show_volume("v1").unwrap_err();
        assert!(gone.problem().next.contains("quoin recycle-bin restore v1"), "{}", gone.problem());
        restore(array, "v1").await.unwrap();
        let read = held.read(ByteRange::new(0, 512)).await;
        assert!(matches!(read, Err(DeviceError::Deleted { .. })), "{read:?}");
        fill(array, "v1", 1, 8).await.unwrap();
        array.restore_snapshot("s1", Default::default()).await.unwrap();
        assert_eq!(byte_of(array, "v1").await, 7);
        let events = array.events(EventSelection::default());
        let told = events.iter().find(|event| event.text == "restored from the recycle bin").unwrap();
        assert_eq!(told.object, "volume v1");
        assert_eq!(kind(&restore(array, "v1").await.unwrap_err()), "not-found");
    });
}

#[test]
fn names_are_free_at_once_and_a_restore_may_need_another() {
    let years = Years::new(32);
    years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        for byte in 1..=3 {
            array.create_volume(create("v1")).await.unwrap();
            fill(array, "v1", 1, byte).await.unwrap();
            if byte < 3 {
                delete(array, "v1").await;
                day.pass(MINUTE).await;
            }
        }
        let [first, second] = array.list_deleted().unwrap().try_into().unwrap();
        assert!(first.deleted_ms < second.deleted_ms);
        let ambiguous = restore(array, "v1").await.unwrap_err();
        assert_eq!(kind(&ambiguous), "ambiguous");
        assert!(ambiguous.to_string().contains(&second.uuid.to_string()), "{ambiguous}");
        let taken = restore(array, &first.uuid.to_string()).await.unwrap_err();
        assert_eq!(kind(&taken), "exists");
        assert!(taken.problem().next.contains("--name NAME"), "{}", taken.problem());
        array.restore_deleted(&first.uuid.to_string(), named("old")).await.unwrap();
        assert_eq!((byte_of(array, "old").await, byte_of(array, "v1").await), (1, 3));
        delete(array, "v1").await;
        array.restore_deleted(&second.uuid.to_string(), RecycleBinRestore::default()).await.unwrap();
        assert_eq!(byte_of(array, "v1").await, 2);
        array.restore_deleted("v1", named("Bad Name")).await.unwrap_err();
        array.purge_deleted("v1").await.unwrap();
        assert!(binned(array).is_empty());
        assert!(matches!(array.show_deleted("v1"), Err(ArrayError::Bin(BinError::NotFound { .. }))));
    });
}

#[test]
fn a_restore_from_a_snapshot_names_the_source_that_is_in_the_bin() {
    Years::new(39).boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        array.create_volume(create("v1")).await.unwrap();
        fill(array, "v1", 1, 1).await.unwrap();
        snapshot(array, "v1", "s1").await;
        fill(array, "v1", 1, 2).await.unwrap();
        delete(array, "v1").await;
        let uuid = array.show_deleted("v1").unwrap().uuid.to_string();
        for refused in [
            array.restore_snapshot("s1", SnapshotRestore::default()).await,
            array.refresh_snapshot("s1", SnapshotRefresh::default()).await,
        ] {
            let problem = refused.unwrap_err().problem();
            assert!(problem.kind.ends_with("no-source"), "{problem}");
            assert!(problem.next.contains(&format!("quoin recycle-bin restore {uuid}")), "{problem}");
        }
        restore(array, &uuid).await.unwrap();
        array.restore_snapshot("s1", SnapshotRestore::default()).await.unwrap();
        assert_eq!(byte_of(array, "v1").await, 1);
        // Once it is gone for good, there is nothing to restore first.
        array.delete_volume("v1", Deletion { now: true, ..Deletion::default() }).await.unwrap();
        let refused = array.restore_snapshot("s1", SnapshotRestore::default()).await;
        assert!(refused.unwrap_err().problem().next.contains("--to VOLUME"));
    });
}

#[test]
fn time_passes_only_while_the_array_runs_and_then_all_is_deleted_for_good() {
    let years = Years::new(33);
    years.boot(Ending::Kill, async |day: Day| {
        let array = &day.array;
        for (name, mib) in [("v1", 8), ("v2", 4)] {
            array.create_volume(create(name)).await.unwrap();
            fill(array, name, mib, 1).await.unwrap();
        }
        delete(array, "v1").await;
        day.pass(2 * HOUR).await;
        delete(array, "v2").await;
        array.set_recycle_bin(RecycleBinSet { keep_s: 3600 }).await.unwrap();
        day.pass(10 * HOUR).await;
        assert_eq!(binned(array), ["v1", "v2"], "what is there keeps its time");
        let bin = array.show_recycle_bin().unwrap();
        assert_eq!((bin.volumes, bin.keep_s, bin.held_bytes), (2, 3600, Some(12 * MIB)));
        assert_eq!(array.pool_space().unwrap().held_by_recycle_bin_bytes, 12 * MIB);
    });
    years.off(10 * DAY);
    years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        day.pass(11 * HOUR).await;
        assert_eq!(binned(array), ["v1", "v2"]);
        day.pass(HOUR + 2 * MINUTE).await;
        assert_eq!(binned(array), ["v2"]);
        let told = day.told();
        let over = "info: recycle bin: deleted for good, the time to restore them is over: v1";
        assert!(told.iter().any(|told| told == over), "{told:?}");
        day.pass(2 * HOUR).await;
        assert!(binned(array).is_empty());
        day.pass(MINUTE).await;
        assert_eq!(array.status().capacity.unwrap().used_bytes, 0);
        assert_eq!(array.show_recycle_bin().unwrap().keep_s, 3600, "and the setting is kept");
        // The next one is kept for as long as it says now; then for no time at all.
        array.create_volume(create("v3")).await.unwrap();
        delete(array, "v3").await;
        day.pass(HOUR + MINUTE).await;
        assert!(binned(array).is_empty());
        array.set_recycle_bin(RecycleBinSet { keep_s: 0 }).await.unwrap();
        array.create_volume(create("v3")).await.unwrap();
        delete(array, "v3").await;
        assert!(binned(array).is_empty());
        let beyond = RecycleBinSet { keep_s: u64::MAX };
        assert_eq!(kind(&array.set_recycle_bin(beyond).await.unwrap_err()), "invalid");
    });
}

#[test]
fn now_and_schedules_skip_the_bin() {
    let years = Years::new(34);
    years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        array.create_volume(create("v1")).await.unwrap();
        fill(array, "v1", 4, 1).await.unwrap();
        let now = Deletion { now: true, ..Deletion::default() };
        array.delete_volume("v1", now).await.unwrap();
        assert!(binned(array).is_empty());
        day.pass(MINUTE).await;
        assert_eq!(array.status().capacity.unwrap().used_bytes, 0);
        assert!(day.told().iter().any(|told| told == "info: volume v1: deleted"));
    });
}

#[test]
fn the_oldest_go_early_when_the_pool_needs_the_space_and_only_those_that_help() {
    let years = Years::new(35);
    years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        let usable = array.status().capacity.unwrap().usable_bytes;
        let part = |percent: u64| usable / MIB * percent / 100;
        // The oldest holds nothing by itself: a snapshot has all of it, too.
        array.create_volume(create("shared")).await.unwrap();
        fill(array, "shared", part(10), 1).await.unwrap();
        snapshot(array, "shared", "s").await;
        delete(array, "shared").await;
        for (byte, name) in (2..).zip(["a", "b", "c"]) {
            day.pass(MINUTE).await;
            array.create_volume(create(name)).await.unwrap();
            fill(array, name, part(15), byte).await.unwrap();
            delete(array, name).await;
        }
        array.create_volume(create("live")).await.unwrap();
        fill(array, "live", part(25), 9).await.unwrap();
        day.pass(10 * MINUTE).await;
        assert_eq!(binned(array), ["shared", "a", "b", "c"], "80 % are no need");
        fill(array, "live", part(38), 9).await.unwrap();
        day.pass(10 * MINUTE).await;
        assert_eq!(binned(array), ["shared", "b", "c"]);
        let told = day.told();
        let early =
            |told: &&String| told.starts_with("warning: volume a: deleted for good early: the pool is 9");
        assert_eq!(told.iter().filter(early).count(), 1, "{told:?}");

        // A writer that goes on finds the space of all of them.
        let mut written = 0;
        for round in 0..40 {
            let volume = format!("more{round}");
            array.create_volume(create(&volume)).await.unwrap();
            if fill(array, &volume, part(1), 10).await.is_err() {
                break;
            }
            written += 1;
            day.pass(MINUTE).await;
        }
        assert!(written >= 40, "{written} % written");
        assert_eq!(binned(array), ["shared"], "what frees nothing stays");
        array.restore_deleted("shared", RecycleBinRestore::default()).await.unwrap();
        assert_eq!(byte_of(array, "shared").await, 1);
    });
}

#[test]
fn a_thick_volume_reserves_nothing_in_the_bin_and_its_space_again_when_it_is_restored() {
    let years = Years::new(36);
    years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        let thick = |name: &str| VolumeCreate { thick: true, size_bytes: 96 * MIB, ..create(name) };
        array.create_volume(thick("t1")).await.unwrap();
        fill(array, "t1", 1, 5).await.unwrap();
        assert!(array.create_volume(thick("t2")).await.is_err(), "there is no room for two");
        delete(array, "t1").await;
        assert!(array.show_deleted("t1").unwrap().thick);
        assert_eq!(array.status().capacity.unwrap().reserved_bytes, 0);
        array.create_volume(thick("t2")).await.unwrap();
        day.pass(MINUTE).await;
        let full = array.create_volume(thick("t3")).await.unwrap_err();
        assert_eq!((kind(&full).as_str(), full.problem().title.as_str()), ("no-space", "volume not created"));
        assert!(full.problem().next.starts_with("empty the recycle bin"), "{}", full.problem());
        let refused = restore(array, "t1").await.unwrap_err();
        assert_eq!(kind(&refused), "no-space");
        assert!(refused.problem().next.contains("--thin"), "{}", refused.problem());
        array.delete_volume("t2", Deletion { now: true, ..Deletion::default() }).await.unwrap();
        assert!(restore(array, "t1").await.unwrap().thick);
        assert_eq!(array.status().capacity.unwrap().reserved_bytes, 96 * MIB);
        delete(array, "t1").await;
        let thin = RecycleBinRestore { name: None, thin: true };
        assert!(!array.restore_deleted("t1", thin).await.unwrap().thick);
        assert_eq!(byte_of(array, "t1").await, 5);
    });
    years.boot(Ending::Stop, async |day: Day| assert_eq!(listed(&day.array), ["t1"]));
}

#[test]
fn immutable_rules_hold_for_the_bin() {
    let years = Years::new(37);
    years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        array.create_volume(create("v1")).await.unwrap();
        fill(array, "v1", 1, 3).await.unwrap();
        snapshot(array, "v1", "s1").await;
        delete(array, "v1").await;
        let retain = SnapshotRetain { retain_s: 3 * 86_400, force: false };
        array.retain_snapshot("s1", retain).await.unwrap();
        assert_eq!(kind(&array.delete_snapshot("s1", Deletion::default()).await.unwrap_err()), "immutable");
        // The volume that an immutable snapshot was taken of stays as long as that.
        assert_eq!(kind(&array.purge_deleted("v1").await.unwrap_err()), "immutable");
        day.pass(2 * DAY).await;
        assert_eq!(binned(array), ["v1"]);
        day.pass(DAY + MINUTE).await;
        assert!(binned(array).is_empty());
        assert_eq!(array.status().retention, None);
        delete(array, "s1").await;
        assert_eq!(byte_of(array, &restore(array, "s1").await.unwrap().name).await, 3);
    });
    years.boot(Ending::Stop, async |day: Day| assert_eq!(listed(&day.array), ["s1"]));
}

#[test]
fn sets_of_a_group_come_back_as_sets() {
    let years = Years::new(38);
    years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        for (byte, name) in (1..).zip(["data", "log"]) {
            array.create_volume(create(name)).await.unwrap();
            fill(array, name, 1, byte).await.unwrap();
        }
        let volumes = vec!["data".to_owned(), "log".to_owned()];
        array.create_group(GroupCreate { name: "db".into(), volumes }).await.unwrap();
        let set = || GroupSnapshotCreate { name: Some("k".into()), writable: false, retain_s: None };
        array.snapshot_group("db", set()).await.unwrap();
        array.delete_group_snapshot("db", "k", Deletion::default()).await.unwrap();
        assert!(array.show_group("db").unwrap().sets.is_empty());
        assert_eq!(binned(array), ["data.k", "log.k"]);
        for name in ["data.k", "log.k"] {
            restore(array, name).await.unwrap();
        }
        let sets = array.show_group("db").unwrap().sets;
        assert_eq!((sets.len(), sets[0].incomplete.clone()), (1, None));
        for name in ["data", "log"] {
            fill(array, name, 1, 9).await.unwrap();
        }
        array.restore_group("db", "k", Default::default()).await.unwrap();
        assert_eq!((byte_of(array, "data").await, byte_of(array, "log").await), (1, 2));

        // Another set has the name by now: what comes back is no part of that.
        array.delete_group_snapshot("db", "k", Deletion::default()).await.unwrap();
        day.pass(MINUTE).await;
        array.snapshot_group("db", set()).await.unwrap();
        let back = array.restore_deleted("data.k", named("data.old")).await.unwrap();
        let origin = back.origin.unwrap();
        assert_eq!((origin.set, origin.source.as_str()), (None, "data"));
        assert_eq!(array.show_group("db").unwrap().sets[0].snapshots, ["data.k", "log.k"]);

        // A member leaves its group.
        array.delete_volume("data", Deletion::default()).await.unwrap_err();
        array.delete_volume("data", Deletion { force: true, ..Deletion::default() }).await.unwrap();
        assert_eq!(array.show_group("db").unwrap().volumes, ["log"]);
        assert_eq!(restore(array, "data").await.unwrap().group, None);
        array.add_to_group("db", "data").await.unwrap();
    });
}

#[test]
fn what_was_shrunk_or_a_template_is_so_when_it_comes_back() {
    let years = Years::new(39);
    years.boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        array.create_volume(create("v1")).await.unwrap();
        fill(array, "v1", 8, 4).await.unwrap();
        let shrink = VolumeUpdate { size_bytes: Some(4 * MIB), force: true, ..VolumeUpdate::default() };
        array.change_volume("v1", shrink).await.unwrap();
        delete(array, "v1").await;
        day.pass(MINUTE).await;
        let back = restore(array, "v1").await.unwrap();
        day.pass(MINUTE).await;
        assert_eq!((back.size_bytes, array.show_volume("v1").unwrap().trimming), (4 * MIB, false));
        let grow = VolumeUpdate { size_bytes: Some(8 * MIB), ..VolumeUpdate::default() };
        array.change_volume("v1", grow).await.unwrap();
        let read = array.volume("v1").unwrap().read(ByteRange::new(4 * MIB, 4 * MIB)).await.unwrap();
        assert!(read.iter().all(|slice| slice.iter().all(|byte| *byte == 0)), "what was cut off is gone");
        let template = VolumeUpdate { template: Some(true), ..VolumeUpdate::default() };
        array.change_volume("v1", template).await.unwrap();
        delete(array, "v1").await;
        restore(array, "v1").await.unwrap();
        let written = array.volume("v1").unwrap().write(0, vec![Slice::copy_of(&[1; 512])]).await;
        assert_eq!(written, Err(DeviceError::ReadOnly { volume: "v1".into() }));
    });
}
