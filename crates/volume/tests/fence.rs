//! A volume that has become immutable, or a template, does not change any more: not by what was under way either.
//!
//! A test target of its own, so that `cargo xtask ci` can run it with planted bugs, and no others.

#[path = "it/rig/mod.rs"]
mod rig;

use quoin_base::{ByteRange, MIB};
use quoin_pool::Transaction;
use quoin_volume::{BlockDevice, DeviceError, Volume, VolumeChange, VolumeError, Volumes};
use quoin_world::{OneShot, Slice, Thread, World, one_shot};
use quoin_world_sim::{FaultPlan, SimWorld};
use rig::{Rig, create_sized};
use std::{future::Future, sync::Arc, time::Duration};

/// What is mapped: several leaves of the map, and many records.
const SIZE: u64 = 12 * MIB;
const DAY: Duration = Duration::from_secs(86_400);

/// A snapshot that is mapped and holds data all over, in a pool with a drive that takes its time.
fn snapshot_on(rig: &Rig) -> Arc<Volume> {
    let volumes = rig.volumes.clone();
    rig.run(async move {
        let volume = create_sized(&volumes, "v", SIZE).await;
        for at in (0..SIZE).step_by(MIB as usize) {
            volume.write(at, vec![Slice::copy_of(&vec![7; MIB as usize])]).await.unwrap();
        }
        rig::snapshot(&volumes, &volume, "s").await;
    });
    rig.open();
    let latency = Duration::from_millis(2)..=Duration::from_millis(4);
    rig.disk.set_faults(FaultPlan { latency, ..FaultPlan::default() });
    rig.volumes.get("s").unwrap()
}

/// What a host asks of the snapshot at the time at which it becomes immutable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host {
    /// One long UNMAP or trim.
    Unmap,
    /// The pieces of a WRITE SAME or of writing zeroes with data.
    Pieces,
    /// One long write.
    Write,
}

async fn ask(host: Host, snapshot: &Volume) -> Result<(), DeviceError> {
    let piece = |at: u64| vec![Slice::copy_of(&vec![at as u8 + 100; MIB as usize / 2])];
    match host {
        Host::Unmap => snapshot.unmap(ByteRange::new(0, SIZE)).await,
        Host::Pieces => {
            for at in 0..20 {
                snapshot.write(at * MIB / 2, piece(at)).await?;
            }
            Ok(())
        }
        Host::Write => snapshot.write(0, (0..20).flat_map(piece).collect()).await,
    }
}

/// How the snapshot is made one that nobody writes to.
#[derive(Clone, Copy, Debug)]
enum How {
    Retain,
    Template,
}

async fn freeze(volumes: &Volumes, how: How, snapshot: &Arc<Volume>) -> Result<(), VolumeError> {
    match how {
        How::Retain => volumes.retain(std::slice::from_ref(snapshot), DAY, Transaction::new()).await,
        How::Template => {
            let change = VolumeChange { template: Some(true), ..VolumeChange::default() };
            volumes.change("s", change, Transaction::new()).await.map(drop)
        }
    }
}

async fn content(volume: &Volume) -> Vec<u8> {
    let slices = volume.read(ByteRange::new(0, SIZE)).await.unwrap();
    slices.iter().flat_map(|slice| slice.to_vec()).collect()
}

fn spawn<T: Send + 'static>(world: &SimWorld, task: impl Future<Output = T> + Send + 'static) -> OneShot<T> {
    let (sender, ended) = one_shot();
    world.spawn(Thread::Data(1), Box::pin(async move { sender.send(task.await) }));
    ended
}

/// What changed of a snapshot after it was said to be immutable, if anything did.
fn look(host: Host, how: How, seed: u64) -> Result<(), String> {
    let rig = Rig::sized(seed, 96 * MIB, 8 * MIB);
    let snapshot = snapshot_on(&rig);
    let (world, volumes) = (rig.world.clone(), rig.volumes.clone());
    rig.run(async move {
        let asked = snapshot.clone();
        let under_way = spawn(&world, async move { ask(host, &asked).await });
        world.sleep(Duration::from_millis(10 + seed % 7)).await;
        // One that comes while the change is made.
        let asked = snapshot.clone();
        let late_world = world.clone();
        let late = spawn(&world, async move {
            late_world.sleep(Duration::from_millis(1)).await;
            asked.unmap(ByteRange::new(SIZE / 2, MIB)).await
        });
        freeze(&volumes, how, &snapshot).await.unwrap();
        let before = content(&snapshot).await;
        let (outcome, late) = (under_way.await.unwrap(), late.await.unwrap());
        world.sleep(Duration::from_secs(2)).await;
        let changed = content(&snapshot).await != before;
        for outcome in [&outcome, &late] {
            assert!(matches!(outcome, Ok(()) | Err(DeviceError::ReadOnly { .. })), "{outcome:?}");
        }
        let after = snapshot.unmap(ByteRange::new(0, 4096)).await;
        assert!(matches!(after, Err(DeviceError::ReadOnly { .. })), "{after:?}");
        if changed {
            Err(format!("{host:?} under way, {how:?}, seed {seed}: it changed afterwards"))
        } else {
            Ok(())
        }
    })
}

#[test]
fn what_is_under_way_when_a_snapshot_becomes_immutable_ends_before() {
    for host in [Host::Unmap, Host::Pieces, Host::Write] {
        for how in [How::Retain, How::Template] {
            for seed in 0..2 {
                look(host, how, seed).unwrap();
            }
        }
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gate_left_open_is_noticed() {
    use quoin_pool::bugs::{Bug, plant};
    for how in [How::Retain, How::Template] {
        plant(Some(Bug::GateLeftOpen));
        let found = (0..4).any(|seed| look(Host::Unmap, how, seed).is_err());
        plant(None);
        assert!(found, "{how:?}");
    }
}
