//! Snapshots, clones, restores: what they hold, what hosts notice, what is refused and why.

use crate::lab::{Lab, create};
use quoin_api::{
    CloneCreate, Deletion, ExportCreate, HostCreate, MappingCreate, OriginKind, SnapshotCreate,
    SnapshotRefresh, SnapshotRestore, VolumeCreate, VolumeUpdate,
};
use quoin_array::{Array, ArrayError, SnapshotSelection};
use quoin_base::{ByteRange, MIB};
use quoin_target::{Admission, ExportClient, Lun, Nexus, NexusName};
use quoin_volume::{BlockDevice, DeviceError, Volume};
use quoin_world::{Slice, Thread, World, one_shot};
use std::{sync::Arc, time::Duration};

const BLOCK: u64 = 8192;
const IQN: &str = "iqn.2026-11.test:h1";

/// For good: what was deleted is looked for in the pool's space.
fn now() -> Deletion {
    Deletion { now: true, ..Deletion::default() }
}

async fn write(volume: &Volume, offset: u64, tag: u64) -> Result<(), DeviceError> {
    let bytes: Vec<u8> = tag.to_le_bytes().into_iter().cycle().take(BLOCK as usize).collect();
    volume.write(offset, vec![Slice::copy_of(&bytes)]).await
}

async fn tag(volume: &Volume, offset: u64) -> u64 {
    let slices = volume.read(ByteRange::new(offset, BLOCK)).await.unwrap();
    let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
    let tag = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes.chunks(8).all(|chunk| chunk == tag.to_le_bytes()), "a block of two writes");
    tag
}

fn snapshot(volume: &str, name: &str) -> SnapshotCreate {
    SnapshotCreate {
        volume: volume.into(),
        name: Some(name.into()),
        tags: Default::default(),
        writable: false,
        retain_s: None,
    }
}

fn restore(to: Option<&str>, keep: Option<&str>, force: bool) -> SnapshotRestore {
    SnapshotRestore { to: to.map(str::to_owned), keep: keep.map(str::to_owned), force }
}

fn kind(error: &ArrayError) -> String {
    error.problem().kind.rsplit(':').next().unwrap().to_owned()
}

async fn tag_of(array: &Array, name: &str) -> u64 {
    tag(&array.volume(name).unwrap(), 0).await
}

#[test]
fn snapshots_of_any_depth_hold_what_was_and_are_restored_refreshed_promoted_and_deleted_in_any_order() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        let size_bytes = 64 * MIB;
        array.create_volume(VolumeCreate { size_bytes, ..create("v1") }).await.unwrap();
        let v1 = array.volume("v1").unwrap();
        write(&v1, 0, 1).await.unwrap();
        let s1 = array.create_snapshot(snapshot("v1", "s1")).await.unwrap();
        let origin = s1.origin.unwrap();
        assert_eq!((origin.kind, origin.source.as_str()), (OriginKind::Snapshot, "v1"));
        assert_eq!((s1.size_bytes, s1.block_bytes, s1.thick), (size_bytes, 512, false));
        write(&v1, 0, 2).await.unwrap();
        // Snapshots are written, and have snapshots and clones themselves.
        write(&array.volume("s1").unwrap(), 8 * MIB, 10).await.unwrap();
        array.create_snapshot(snapshot("s1", "s1.s")).await.unwrap();
        let clone = |folder: &str| CloneCreate {
            name: "c1".into(),
            thick: true,
            tags: Default::default(),
            folder: Some(folder.into()),
        };
        array.clone_volume("s1.s", clone("no folder")).await.unwrap_err();
        let c1 = array.clone_volume("s1.s", clone("test/sql")).await.unwrap();
        assert_eq!(c1.folder, "test/sql");
        assert_eq!(
            (c1.thick, c1.reserved_bytes, c1.origin.unwrap().kind),
            (true, Some(size_bytes), OriginKind::Clone)
        );
        assert_eq!(tag(&array.volume("c1").unwrap(), 8 * MIB).await, 10);
        assert_eq!((tag_of(&array, "v1").await, tag_of(&array, "c1").await), (2, 1));

        // A snapshot without a name is called by volume and time, also the second one of a second.
        let unnamed = || SnapshotCreate { name: None, ..snapshot("v1", "") };
        let (one, two) = (
            array.create_snapshot(unnamed()).await.unwrap(),
            array.create_snapshot(unnamed()).await.unwrap(),
        );
        assert!(one.name.starts_with("v1.20") && one.name.len() == 18, "{}", one.name);
        assert_ne!(one.name, two.name);
        array.delete_snapshot(&one.name, now()).await.unwrap();
        array.delete_volume(&two.name, now()).await.unwrap();

        let v1_before = array.show_volume("v1").unwrap();
        let after = array.restore_snapshot("s1", restore(None, Some("v1.kept"), true)).await.unwrap();
        assert_eq!((after.uuid, after.name, after.origin), (v1_before.uuid, v1_before.name, None));
        assert_eq!((tag_of(&array, "v1").await, tag_of(&array, "v1.kept").await), (1, 2));
        array
            .refresh_snapshot("c1", SnapshotRefresh { from: Some("v1.kept".into()), force: false })
            .await
            .unwrap();
        assert_eq!(tag_of(&array, "c1").await, 2);
        assert_eq!(array.show_snapshot("c1").unwrap().origin.unwrap().source, "v1.kept");
        write(&v1, 0, 3).await.unwrap();
        array.refresh_snapshot("s1", SnapshotRefresh::default()).await.unwrap();
        assert_eq!(tag_of(&array, "s1").await, 3);

        let of = |of: &str| SnapshotSelection { of: Some(of.into()), group: None };
        let names = |selection| -> Vec<_> {
            array.list_snapshots(&selection).unwrap().into_iter().map(|v| v.name).collect()
        };
        assert_eq!(names(of("v1")), ["s1", "v1.kept"]);
        assert_eq!(names(SnapshotSelection::default()), ["s1", "s1.s", "v1.kept"]);
        array.delete_volume("v1", now()).await.unwrap();
        array.delete_volume("s1", now()).await.unwrap();
        assert_eq!((tag_of(&array, "s1.s").await, tag_of(&array, "v1.kept").await), (1, 2));
        let kept = array.show_snapshot("v1.kept").unwrap().origin.unwrap();
        assert_eq!((kept.source.as_str(), kept.source_deleted), ("v1", true));
        let gone = array.restore_snapshot("v1.kept", restore(None, None, false)).await.unwrap_err();
        assert_eq!(kind(&gone), "no-source");
        assert!(
            gone.to_string().contains("source volume v1 was deleted") && gone.problem().next.contains("--to"),
            "{gone}"
        );
        let gone = array.refresh_snapshot("v1.kept", SnapshotRefresh::default()).await.unwrap_err();
        assert!(gone.problem().next.contains("--from"), "{gone}");
        array.promote_snapshot("v1.kept").await.unwrap();
        assert_eq!(array.show_volume("v1.kept").unwrap().origin, None);
        assert_eq!(kind(&array.promote_snapshot("v1.kept").await.unwrap_err()), "not-found");
    });
    lab.stop(array);
    let array = lab.start();
    lab.on_array(&array, async |array| {
        assert_eq!((tag_of(&array, "s1.s").await, tag_of(&array, "v1.kept").await), (1, 2));
        let origin = array.show_snapshot("s1.s").unwrap().origin.unwrap();
        assert_eq!((origin.source.as_str(), origin.source_deleted), ("s1", true));
        for name in ["v1.kept", "c1", "s1.s"] {
            array.delete_volume(name, now()).await.unwrap();
        }
    });
    lab.until(|| {
        let status = array.status();
        let left = status.giving_back.unwrap();
        left.bytes + left.entries == 0 && status.capacity.unwrap().used_bytes == 0
    });
    lab.stop(array);
}

async fn mapped(array: &Arc<Array>, volume: &str, lun: u16) {
    if array.list_hosts().unwrap().is_empty() {
        let host = HostCreate { name: "h1".into(), initiators: vec![IQN.into()], chap: None };
        array.create_host(host).await.unwrap();
    }
    let mapping = MappingCreate {
        volume: volume.into(),
        host: "h1".into(),
        lun: Some(lun),
        read_only: false,
        writable: false,
    };
    array.map(mapping).await.unwrap();
}

/// Sense key, code and qualifier of the answer to TEST UNIT READY; `None` if the unit is ready.
fn sense(nexus: &mut Nexus<Volume>, lun: u16) -> Option<(u8, u8, u8)> {
    match nexus.admit(Lun::new(lun).unwrap().to_wire(), &[0; 6]) {
        Admission::Done(reply) => reply.sense.map(|sense| (sense.key as u8, sense.asc, sense.ascq)),
        Admission::Run(_) => None,
    }
}

async fn login(array: &Array) -> Nexus<Volume> {
    let name = NexusName { initiator: IQN.into(), isid: [1; 6], group: 1 };
    array.target().connect(name, "10.0.0.7:4711".into(), 0).await
}

#[test]
fn a_restore_gives_the_size_back_and_hosts_that_are_logged_in_are_told() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        let size_bytes = 64 * MIB;
        array.create_volume(VolumeCreate { size_bytes, thick: true, ..create("v1") }).await.unwrap();
        let v1 = array.volume("v1").unwrap();
        write(&v1, 0, 1).await.unwrap();
        array.create_snapshot(snapshot("v1", "s1")).await.unwrap();
        let grow = VolumeUpdate { size_bytes: Some(2 * size_bytes), ..VolumeUpdate::default() };
        array.change_volume("v1", grow).await.unwrap();
        write(&v1, 2 * size_bytes - BLOCK, 2).await.unwrap();
        mapped(&array, "v1", 3).await;
        mapped(&array, "s1", 4).await;
        let mut nexus = login(&array).await;
        for lun in [3, 4] {
            assert_eq!(sense(&mut nexus, lun), Some((6, 0x29, 1)));
            assert_eq!(sense(&mut nexus, lun), None);
        }
        let before = array.show_volume("v1").unwrap();
        let refused = array.restore_snapshot("s1", restore(None, Some("k1"), false)).await.unwrap_err();
        assert_eq!(kind(&refused), "in-use");
        let said = "host h1 sees v1 as LUN 3, logged in as iqn.2026-11.test:h1 from 10.0.0.7:4711";
        assert!(refused.to_string().contains(said), "{refused}");
        assert_eq!(sense(&mut nexus, 3), None);
        assert!(array.show_volume("k1").is_err());

        let after = array.restore_snapshot("s1", restore(None, Some("k1"), true)).await.unwrap();
        assert_eq!((after.size_bytes, after.reserved_bytes), (size_bytes, Some(size_bytes)));
        assert_eq!((after.uuid, &after.mappings), (before.uuid, &before.mappings));
        assert_eq!(sense(&mut nexus, 3), Some((6, 0x28, 0)));
        assert_eq!(sense(&mut nexus, 3), Some((6, 0x2A, 9)));
        assert_eq!((sense(&mut nexus, 3), sense(&mut nexus, 4)), (None, None));
        let beyond = write(&v1, size_bytes, 3).await;
        assert!(matches!(beyond, Err(DeviceError::OutOfRange { .. })), "{beyond:?}");
        assert_eq!(tag(&array.volume("k1").unwrap(), 2 * size_bytes - BLOCK).await, 2);
        // Beyond the end of what it was restored from nothing is left.
        let grow = VolumeUpdate { size_bytes: Some(2 * size_bytes), ..VolumeUpdate::default() };
        array.change_volume("v1", grow).await.unwrap();
        assert_eq!(tag(&v1, 2 * size_bytes - BLOCK).await, 0);
        write(&v1, 2 * size_bytes - BLOCK, 4).await.unwrap();

        array.refresh_snapshot("s1", SnapshotRefresh { from: None, force: true }).await.unwrap();
        assert_eq!(array.show_volume("s1").unwrap().size_bytes, 2 * size_bytes);
        assert_eq!(sense(&mut nexus, 4), Some((6, 0x28, 0)));
        assert_eq!(sense(&mut nexus, 4), Some((6, 0x2A, 9)));
        assert_eq!(tag(&array.volume("s1").unwrap(), 2 * size_bytes - BLOCK).await, 4);
        // What came in before and had not begun yet does not take effect on another medium.
        let cdb = [0x8A, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0];
        assert_eq!(sense(&mut nexus, 3), Some((6, 0x2A, 9)));
        let Admission::Run(late) = nexus.admit(Lun::new(3).unwrap().to_wire(), &cdb) else { panic!() };
        array.restore_snapshot("s1", restore(None, None, true)).await.unwrap();
        let reply = late.run(vec![Slice::copy_of(&[9; BLOCK as usize])], 0).await;
        assert_eq!(reply.sense.map(|sense| (sense.asc, sense.ascq)), Some((0x28, 0)));
        assert_eq!(tag(&v1, 0).await, 1);
    });
    lab.stop(array);
}

#[test]
fn what_is_kept_holds_all_that_was_acknowledged_and_nothing_comes_in_between() {
    let lab = Lab::new();
    let array = lab.start();
    for round in 0..20_u64 {
        let world = lab.world();
        lab.on_array(&array, async move |array| {
            let (v, s, k) = (format!("v{round}"), format!("s{round}"), format!("k{round}"));
            array.create_volume(create(&v)).await.unwrap();
            let volume = array.volume(&v).unwrap();
            write(&volume, 0, 1).await.unwrap();
            array.create_snapshot(snapshot(&v, &s)).await.unwrap();
            let (sender, acknowledged) = one_shot();
            let writer = volume.clone();
            let task = async move {
                for n in 2.. {
                    match write(&writer, 0, n).await {
                        Ok(()) => {}
                        Err(DeviceError::Replaced { .. }) => return sender.send(n - 1),
                        Err(error) => panic!("{error}"),
                    }
                }
            };
            world.spawn(Thread::Data(0), Box::pin(task));
            world.sleep(Duration::from_micros(round * 300)).await;
            array.restore_snapshot(&s, restore(None, Some(&k), false)).await.unwrap();
            let last = acknowledged.await.unwrap();
            assert_eq!((tag_of(&array, &k).await, tag(&volume, 0).await), (last, 1));
        });
    }
    lab.stop(array);
}

#[test]
fn an_nbd_client_is_cut_off_and_finds_the_export_again() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        array.create_volume(create("v1")).await.unwrap();
        array.create_snapshot(snapshot("v1", "s1")).await.unwrap();
        let export = ExportCreate {
            volume: "v1".into(),
            name: None,
            read_only: false,
            writable: false,
            allow: vec![],
            tls_clients: vec![],
        };
        array.create_export(export).await.unwrap();
        let export = array.exports().get("v1").unwrap();
        let client =
            ExportClient { address: "10.0.0.8:1".into(), tls_name: None, encrypted: false, since_ms: 0 };
        let connected = export.connect(client);
        let refused = array.restore_snapshot("s1", restore(None, None, false)).await.unwrap_err();
        assert!(refused.to_string().contains("NBD client 10.0.0.8:1 of export v1"), "{refused}");
        array.restore_snapshot("s1", restore(None, None, true)).await.unwrap();
        export.revoked().await;
        assert!(array.exports().get("v1").unwrap().clients().is_empty());
        drop(connected);
        array.restore_snapshot("s1", restore(None, None, false)).await.unwrap();
    });
    lab.stop(array);
}

#[test]
fn what_cannot_be_is_refused_before_anything_changes() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        array.create_volume(create("v1")).await.unwrap();
        array.create_volume(VolumeCreate { block_bytes: 4096, ..create("big") }).await.unwrap();
        array.create_snapshot(snapshot("v1", "s1")).await.unwrap();
        let to = |to: &str| restore(Some(to), Some("kept"), false);
        let other = array.restore_snapshot("s1", to("big")).await.unwrap_err();
        assert_eq!(kind(&other), "other-block");
        assert!(other.to_string().contains("4096 bytes, s1 one of 512"), "{other}");
        assert_eq!(kind(&array.restore_snapshot("s1", to("s1")).await.unwrap_err()), "itself");
        assert_eq!(kind(&array.restore_snapshot("s1", to("none")).await.unwrap_err()), "not-found");
        assert_eq!(
            kind(&array.restore_snapshot("v1", restore(None, None, false)).await.unwrap_err()),
            "not-found"
        );
        assert_eq!(
            kind(&array.restore_snapshot("s1", restore(None, Some("big"), false)).await.unwrap_err()),
            "exists"
        );
        assert!(array.show_volume("kept").is_err());
        for (name, why) in [("v1", "exists"), ("V", "invalid")] {
            let error = array.create_snapshot(snapshot("v1", name)).await.unwrap_err();
            assert_eq!((kind(&error).as_str(), error.problem().title.as_str()), (why, "snapshot not taken"));
        }
        // A thick source needs as much again, since all it has is shared then.
        let size_bytes = 200 * MIB;
        array.create_volume(VolumeCreate { size_bytes, thick: true, ..create("thick") }).await.unwrap();
        let thick = array.volume("thick").unwrap();
        for offset in (0..size_bytes).step_by(MIB as usize) {
            thick.write(offset, vec![Slice::copy_of(&vec![1; MIB as usize])]).await.unwrap();
        }
        let full = array.create_snapshot(snapshot("thick", "t1")).await.unwrap_err();
        assert_eq!((kind(&full).as_str(), full.problem().title.as_str()), ("no-space", "snapshot not taken"));
        assert!(full.to_string().contains("for volume thick"), "{full}");
        let thin = VolumeUpdate { thick: Some(false), ..VolumeUpdate::default() };
        array.change_volume("thick", thin).await.unwrap();
        array.create_snapshot(snapshot("thick", "t1")).await.unwrap();
    });
    lab.stop(array);
}

#[test]
fn hundreds_of_snapshots_each_hold_their_moment_and_go_in_any_order() {
    const COUNT: u64 = 240;
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        array.create_volume(create("v1")).await.unwrap();
        let v1 = array.volume("v1").unwrap();
        for n in 1..=COUNT {
            write(&v1, 0, n).await.unwrap();
            array.create_snapshot(snapshot("v1", &format!("s{n}"))).await.unwrap();
        }
    });
    lab.stop(array);
    let array = lab.start();
    lab.on_array(&array, async |array| {
        // 77 and 240 have no common factor: every snapshot has its turn.
        for n in (0..COUNT).map(|turn| turn * 77 % COUNT + 1) {
            let name = format!("s{n}");
            assert_eq!(tag_of(&array, &name).await, n);
            if n % 60 == 0 {
                array.restore_snapshot(&name, restore(None, None, false)).await.unwrap();
                assert_eq!(tag_of(&array, "v1").await, n);
            }
            array.delete_snapshot(&name, now()).await.unwrap();
        }
        assert_eq!(array.status().objects.unwrap().snapshots, 0);
        array.delete_volume("v1", now()).await.unwrap();
    });
    lab.until(|| array.status().capacity.is_some_and(|capacity| capacity.used_bytes == 0));
    lab.stop(array);
}
