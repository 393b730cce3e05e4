//! What lay beyond the end of a volume that was shrunk is emptied in the background, on a simulated drive.

use crate::rig::{Rig, create_sized};
use quoin_base::{ByteRange, MIB};
use quoin_pool::Transaction;
use quoin_volume::{
    BlockDevice, DeviceError, Recovery, Replacement, Volume, VolumeChange, VolumeError, Volumes,
};
use quoin_world::{OneShot, Slice, Thread, World, one_shot};
use std::{sync::Arc, time::Duration};

const SEEDS: u64 = 300;
const BLOCK: u64 = 8192;
const FULL: u64 = 2 * MIB;
const SHRUNK: u64 = MIB;

async fn write(volume: &Volume, first: u64, end: u64, byte: u8) {
    for at in (first..end).step_by(BLOCK as usize) {
        volume.write(at, vec![Slice::copy_of(&[byte; BLOCK as usize])]).await.unwrap();
    }
}

fn to_size(size_bytes: u64) -> VolumeChange {
    VolumeChange { size_bytes: Some(size_bytes), force: true, ..VolumeChange::default() }
}

async fn resize(volumes: &Volumes, size_bytes: u64) -> Arc<Volume> {
    volumes.change("v1", to_size(size_bytes), Transaction::new()).await.unwrap()
}

/// Empties tails in the background.
fn trim(world: &Arc<dyn World>, volumes: &Arc<Volumes>) -> OneShot<()> {
    let (sender, ended) = one_shot();
    let volumes = volumes.clone();
    let task = async move {
        volumes.trim().await.unwrap();
        sender.send(());
    };
    world.spawn(Thread::Background, Box::pin(task));
    ended
}

/// Deletes the volume while its tail is emptied, brings it back, grows it again and writes to its end.
async fn delete_and_bring_back(world: Arc<dyn World>, volumes: Arc<Volumes>) {
    let volume = create_sized(&volumes, "v1", FULL).await;
    write(&volume, 0, FULL, 1).await;
    resize(&volumes, SHRUNK).await;
    let trimmed = trim(&world, &volumes);
    world.sleep(Duration::from_nanos(world.random_u64() % 400_000)).await;
    let keep = Duration::from_secs(60);
    volumes.discard(std::slice::from_ref(&volume), keep, None, Transaction::new()).await.unwrap();
    let volume = volumes.recover(&volume, Recovery::default(), Transaction::new()).await.unwrap();
    let again = trim(&world, &volumes);
    world.sleep(Duration::from_nanos(world.random_u64() % 400_000)).await;
    while let Err(error) = volumes.change("v1", to_size(FULL), Transaction::new()).await {
        assert!(matches!(error, VolumeError::Trimming { .. }), "{error}");
        world.sleep(Duration::from_micros(10)).await;
    }
    write(&volume, SHRUNK, FULL, 2).await;
    trimmed.await.unwrap();
    again.await.unwrap();
}

#[test]
fn a_volume_that_comes_back_from_the_recycle_bin_keeps_what_is_written_to_it() {
    for seed in 0..SEEDS {
        let rig = Rig::new(seed);
        let (world, volumes): (Arc<dyn World>, _) = (rig.world.clone(), rig.volumes.clone());
        rig.run(async move { delete_and_bring_back(world, volumes).await });
        rig.open();
        let volumes = rig.volumes.clone();
        rig.run(async move {
            let volume = volumes.get("v1").unwrap_or_else(|_| panic!("seed {seed}: it is deleted again"));
            assert_eq!(volume.size_bytes(), FULL, "seed {seed}");
            for at in (0..FULL).step_by(BLOCK as usize) {
                let expected = if at < SHRUNK { 1 } else { 2 };
                for slice in volume.read(ByteRange::new(at, BLOCK)).await.unwrap() {
                    assert!(slice.iter().all(|byte| *byte == expected), "seed {seed}: byte {at} on is lost");
                }
            }
        });
    }
}

/// Else all changes would wait for it.
#[test]
fn what_would_wait_until_a_former_tail_is_empty_is_refused() {
    let rig = Rig::new(1);
    let (world, volumes): (Arc<dyn World>, _) = (rig.world.clone(), rig.volumes.clone());
    let disk = rig.disk.clone();
    rig.run(async move {
        let source = create_sized(&volumes, "s", FULL).await;
        for name in ["v1", "v2"] {
            let volume = create_sized(&volumes, name, FULL).await;
            write(&volume, 0, FULL, 1).await;
            volumes.change(name, to_size(SHRUNK), Transaction::new()).await.unwrap();
        }
        let target = volumes.get("v1").unwrap();
        let replacement = Replacement { target: target.clone(), source, refreshes: false };
        disk.hang();
        let trimmed = trim(&world, &volumes);
        world.sleep(Duration::from_millis(10)).await;
        let shrink = VolumeChange { force: false, ..to_size(SHRUNK / 2) };
        let thicken = VolumeChange { thick: Some(true), ..VolumeChange::default() };
        // The second one's turn has not come yet.
        for name in ["v1", "v2"] {
            for change in [to_size(FULL), shrink.clone(), thicken.clone()] {
                let refused = volumes.change(name, change, Transaction::new()).await.unwrap_err();
                assert!(matches!(refused, VolumeError::Trimming { .. }), "{refused}");
            }
        }
        let refused = volumes.hold(vec![replacement.clone()]).await.err();
        assert!(matches!(refused, Some(VolumeError::Trimming { .. })), "{refused:?}");
        assert_eq!((target.size_bytes(), target.is_thick()), (SHRUNK, false));

        disk.resume(Duration::from_millis(1));
        trimmed.await.unwrap();
        resize(&volumes, FULL).await;
        let held = volumes.hold(vec![replacement]).await.unwrap();
        volumes.replace(&held, Transaction::new()).await.unwrap();
    });
}

/// Reads the end of a volume until it ends before that. What is read is what it always held.
async fn read_end(world: Arc<dyn World>, volume: Arc<Volume>, seed: u64) {
    loop {
        match volume.read(ByteRange::new(FULL - BLOCK, BLOCK)).await {
            Ok(read) => {
                let found = read[0][0];
                assert!(read.iter().all(|slice| slice.iter().all(|byte| *byte == 1)), "seed {seed}: {found}");
            }
            Err(error) => {
                assert!(matches!(error, DeviceError::OutOfRange { .. }), "seed {seed}: {error}");
                break;
            }
        }
        world.sleep(Duration::from_nanos(world.random_u64() % 2_000)).await;
    }
}

/// Not even for a moment: readers are not held while the content of a volume is replaced.
#[test]
fn no_reader_sees_what_was_cut_off_of_the_source_of_a_restore() {
    for seed in 0..40 {
        let rig = Rig::new(seed);
        let (world, volumes): (Arc<dyn World>, _) = (rig.world.clone(), rig.volumes.clone());
        rig.run(async move {
            let source = create_sized(&volumes, "s", FULL).await;
            write(&source, 0, FULL, 9).await;
            let target = create_sized(&volumes, "v1", FULL).await;
            write(&target, 0, FULL, 1).await;
            volumes.change("s", to_size(SHRUNK), Transaction::new()).await.unwrap();
            let readers: Vec<OneShot<()>> = (0..4)
                .map(|_| {
                    let (sender, ended) = one_shot();
                    let (reading, volume) = (world.clone(), target.clone());
                    let task = async move {
                        read_end(reading, volume, seed).await;
                        sender.send(());
                    };
                    world.spawn(Thread::Background, Box::pin(task));
                    ended
                })
                .collect();
            let replacement = Replacement { target: target.clone(), source, refreshes: false };
            let held = volumes.hold(vec![replacement]).await.unwrap();
            volumes.replace(&held, Transaction::new()).await.unwrap();
            assert_eq!(target.size_bytes(), SHRUNK);
            for reader in readers {
                reader.await.unwrap();
            }
        });
    }
}
