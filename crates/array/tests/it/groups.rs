//! Consistency groups: sets of one moment, restored as a whole, up to the largest group there can be.

use crate::lab::{Lab, create, trimmed};
use quoin_api::{
    Deletion, GroupCreate, GroupRefresh, GroupRestore, GroupSnapshotCreate, SnapshotCreate, SnapshotRefresh,
    VolumeCreate, VolumeUpdate,
};
use quoin_array::{Array, ArrayError, SnapshotSelection};
use quoin_base::{ByteRange, GIB};
use quoin_volume::{BlockDevice, DeviceError, MEMBERS_MAX, NAME_LEN_MAX, TAGS_MAX, Volume};
use quoin_world::{Slice, Thread, World, one_shot};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

async fn write(volume: &Volume, tag: u64) -> Result<(), DeviceError> {
    let bytes: Vec<u8> = tag.to_le_bytes().into_iter().cycle().take(8192).collect();
    volume.write(0, vec![Slice::copy_of(&bytes)]).await
}

async fn tag(array: &Array, name: &str) -> u64 {
    let slices = array.volume(name).unwrap().read(ByteRange::new(0, 8192)).await.unwrap();
    u64::from_le_bytes(slices[0][..8].try_into().unwrap())
}

async fn group(array: &Array, name: &str, volumes: &[&str]) {
    let volumes: Vec<String> = volumes.iter().map(|name| (*name).to_owned()).collect();
    for volume in &volumes {
        array.create_volume(create(volume)).await.unwrap();
    }
    array.create_group(GroupCreate { name: name.into(), volumes }).await.unwrap();
}

fn set(name: &str) -> GroupSnapshotCreate {
    GroupSnapshotCreate { name: Some(name.into()), writable: false, retain_s: None }
}

fn kind(error: &ArrayError) -> String {
    error.problem().kind.rsplit(':').next().unwrap().to_owned()
}

#[test]
fn a_set_is_of_one_moment_under_writes_and_a_group_is_restored_to_one() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| group(&array, "db", &["data", "log"]).await);
    for round in 0..15_u64 {
        let world = lab.world();
        lab.on_array(&array, async move |array| {
            let (log, data) = (array.volume("log").unwrap(), array.volume("data").unwrap());
            let (sender, stopped) = one_shot();
            // A number is in the log before it is in the data.
            let task = async move {
                for n in 1.. {
                    let n = round * 1_000_000 + n;
                    if write(&log, n).await.is_err() || write(&data, n).await.is_err() {
                        return sender.send(n);
                    }
                }
            };
            world.spawn(Thread::Data(0), Box::pin(task));
            world.sleep(Duration::from_micros(1 + round * 250)).await;
            let name = format!("s{round}");
            let taken = array.snapshot_group("db", set(&name)).await.unwrap();
            assert_eq!(taken.snapshots, [format!("data.{name}"), format!("log.{name}")]);
            let (in_data, in_log) =
                (tag(&array, &format!("data.{name}")).await, tag(&array, &format!("log.{name}")).await);
            assert!(
                in_log == in_data || in_log == in_data + 1 || in_data < round * 1_000_000,
                "{in_data} {in_log}"
            );
            let keep = Some(format!("k{round}"));
            array.restore_group("db", &name, GroupRestore { keep, force: false }).await.unwrap();
            let last = stopped.await.unwrap();
            assert_eq!((tag(&array, "data").await, tag(&array, "log").await), (in_data, in_log));
            let kept =
                (tag(&array, &format!("data.k{round}")).await, tag(&array, &format!("log.k{round}")).await);
            // Before the first number of the round, both are what the round before restored.
            let first = last == round * 1_000_000 + 1 && kept.0 < round * 1_000_000;
            assert!(first || kept == (last - 1, last - 1) || kept == (last - 1, last), "{kept:?} {last}");
        });
    }
    lab.on_array(&array, async |array| {
        let view = array.show_group("db").unwrap();
        assert_eq!((view.sets.len(), view.volumes.len()), (30, 2));
        let of_group = SnapshotSelection { of: None, group: Some("db".into()) };
        assert_eq!(array.list_snapshots(&of_group).unwrap().len(), 60);
        array.delete_group_snapshot("db", "k3", Deletion::default()).await.unwrap();
        assert_eq!(array.list_snapshots(&of_group).unwrap().len(), 58);
    });
    lab.stop(array);
}

#[test]
fn a_set_that_does_not_fit_its_group_is_not_restored_and_says_why() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        group(&array, "db", &["data", "log"]).await;
        let taken = array.snapshot_group("db", set("s1")).await.unwrap();
        assert_eq!(taken.incomplete, None);
        // A set without a name finds one, also if single snapshots have taken the obvious one.
        let of_data = SnapshotCreate {
            volume: "data".into(),
            name: None,
            tags: BTreeMap::new(),
            writable: false,
            retain_s: None,
        };
        array.create_snapshot(of_data).await.unwrap();
        let unnamed = array.snapshot_group("db", GroupSnapshotCreate::default()).await.unwrap();
        array.delete_group_snapshot("db", &unnamed.name, Deletion::default()).await.unwrap();
        assert_eq!(kind(&array.snapshot_group("db", set("s1")).await.unwrap_err()), "exists");
        let alone = array.refresh_snapshot("data.s1", SnapshotRefresh::default()).await.unwrap_err();
        assert_eq!(kind(&alone), "in-set");
        array.create_volume(create("temp")).await.unwrap();
        array.add_to_group("db", "temp").await.unwrap();
        let restored = array.restore_group("db", "s1", GroupRestore::default()).await.unwrap_err();
        assert!(restored.to_string().contains("it has no snapshot of temp"), "{restored}");
        array.remove_from_group("db", "temp").await.unwrap();
        array.restore_group("db", "s1", GroupRestore::default()).await.unwrap();
        array.remove_from_group("db", "log").await.unwrap();
        let refreshed = array.refresh_group("db", "s1", GroupRefresh::default()).await.unwrap_err();
        assert!(refreshed.to_string().contains("the volumes of log.s1 are not in the group"), "{refreshed}");
        assert_eq!(
            kind(&array.restore_group("db", "s2", GroupRestore::default()).await.unwrap_err()),
            "not-found"
        );

        let create_group =
            |name: &str, volume: &str| GroupCreate { name: name.into(), volumes: vec![volume.into()] };
        let taken = array.create_group(create_group("db2", "data")).await.unwrap_err();
        assert_eq!(kind(&taken), "in-group");
        assert!(taken.to_string().contains("volume data is already in group db"), "{taken}");
        assert!(array.show_group("db2").is_err());
        assert_eq!(kind(&array.create_group(create_group("db", "log")).await.unwrap_err()), "exists");
        assert_eq!(kind(&array.create_group(create_group("db2", "none")).await.unwrap_err()), "not-found");
        assert_eq!(kind(&array.remove_from_group("db", "log").await.unwrap_err()), "not-found");
        // A volume that is deleted leaves its group; a group that is deleted leaves its volumes and snapshots.
        array.delete_volume("data", Deletion { force: true, ..Deletion::default() }).await.unwrap();
        assert!(array.show_group("db").unwrap().volumes.is_empty());
        assert_eq!(kind(&array.snapshot_group("db", set("s3")).await.unwrap_err()), "empty");
        array.delete_group("db").await.unwrap();
        let orphan = array.show_snapshot("data.s1").unwrap().origin.unwrap();
        assert_eq!((orphan.set, orphan.source_deleted), (None, true));
    });
    lab.stop(array);
}

/// The longest names, all tags, grown volumes: what is done to the largest group still fits one transaction.
#[test]
fn the_largest_group_fits() {
    let lab = Lab::new();
    let array = lab.start();
    let name = |n: usize| format!("{n:03}{}", "x".repeat(NAME_LEN_MAX - 3));
    let group = "g".repeat(NAME_LEN_MAX);
    let longest_set = "s".repeat(NAME_LEN_MAX - 4);
    let tags: BTreeMap<String, String> =
        (0..TAGS_MAX).map(|n| (format!("{n:02}{}", "k".repeat(61)), "v".repeat(255))).collect();
    let resize = |size_bytes: u64| VolumeUpdate { size_bytes: Some(size_bytes), ..VolumeUpdate::default() };
    let (of, to) = (group.clone(), longest_set.clone());
    lab.on_array(&array, async move |array| {
        for n in 0..MEMBERS_MAX {
            let volume = VolumeCreate { tags: tags.clone(), ..create(&name(n)) };
            array.create_volume(volume).await.unwrap();
        }
        let volumes: Vec<_> = (0..MEMBERS_MAX).map(name).collect();
        array.create_group(GroupCreate { name: of.clone(), volumes }).await.unwrap();
        array.create_volume(create("more")).await.unwrap();
        assert_eq!(kind(&array.add_to_group(&of, "more").await.unwrap_err()), "group-full");
        let taken = array.snapshot_group(&of, set(&to)).await.unwrap();
        assert_eq!((taken.snapshots.len(), taken.snapshots[63].len()), (MEMBERS_MAX, NAME_LEN_MAX));
        for n in 0..MEMBERS_MAX {
            array.change_volume(&name(n), resize(64 * 1024 * GIB)).await.unwrap();
        }
        array.refresh_group(&of, &to, GroupRefresh::default()).await.unwrap();
        for n in 0..MEMBERS_MAX {
            array.change_volume(&name(n), resize(GIB)).await.unwrap();
        }
        trimmed(&array).await;
        let keep = Some("t".repeat(NAME_LEN_MAX - 4));
        array.restore_group(&of, &to, GroupRestore { keep, force: false }).await.unwrap();
        let restored = array.show_volume(&name(63)).unwrap();
        assert_eq!((restored.size_bytes, restored.tags), (64 * 1024 * GIB, tags));
        array.delete_group_snapshot(&of, &to, Deletion::default()).await.unwrap();
    });
    lab.stop(array);
    let array = lab.start();
    lab.on_array(&array, async move |array: Arc<Array>| {
        let view = array.show_group(&group).unwrap();
        assert_eq!((view.volumes.len(), view.sets.len()), (MEMBERS_MAX, 1));
        assert_eq!(view.sets[0].incomplete, None);
    });
    lab.stop(array);
}
