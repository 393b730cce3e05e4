//! Writes of parts of sectors beside writes of whole ones, on a simulated drive: nothing that was acknowledged is undone.

use crate::rig::{Rig, create, snapshot};
use quoin_base::ByteRange;
use quoin_pool::Transaction;
use quoin_volume::{BlockDevice, DeviceError, PoolSlot, Replacement, Volume, VolumeChange, Volumes};
use quoin_world::{Buf, OneShot, Slice, Thread, World, one_shot};
use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

const SEEDS: u64 = 300;
const BLOCK: usize = 8192;
/// Parts of the first sectors: within one, across two, from one's beginning into the third.
const PARTS: [(u64, usize); 4] = [(100, 50), (500, 30), (512, 700), (1, 8190)];

async fn read(volume: &Volume) -> Vec<u8> {
    let slices = volume.read(ByteRange::new(0, BLOCK as u64)).await.unwrap();
    slices.iter().flat_map(|slice| slice.to_vec()).collect()
}

/// From now on what was written is read from the drive, which takes a while.
async fn settle(slot: &PoolSlot) {
    slot.get().unwrap().drain().await.unwrap();
}

/// Runs a task on a data thread; what it returns.
fn on<T: Send + 'static>(
    world: &Arc<impl World + ?Sized>,
    thread: usize,
    task: impl Future<Output = T> + Send + 'static,
) -> OneShot<T> {
    let (sender, ended) = one_shot();
    world.spawn(Thread::Data(thread), Box::pin(async move { sender.send(task.await) }));
    ended
}

/// What became of a write of a whole block, and of one of a part of it, at once. True if the whole one was undone beside
/// the part.
async fn race(
    world: Arc<dyn World>,
    volumes: Arc<Volumes>,
    slot: Arc<PoolSlot>,
    (at, len): (u64, usize),
) -> bool {
    let volume = create(&volumes, "v1").await;
    volume.write(0, vec![Slice::copy_of(&[1; BLOCK])]).await.unwrap();
    settle(&slot).await;
    let whole = {
        let (world, volume) = (world.clone(), volume.clone());
        let pause = Duration::from_nanos(world.random_u64() % 200_000);
        async move {
            world.sleep(pause).await;
            volume.write(0, vec![Slice::copy_of(&[2; BLOCK])]).await
        }
    };
    let part = {
        let volume = volume.clone();
        async move { volume.write_bytes(at, Buf::copy_of(&vec![3; len])).await }
    };
    let (whole, part) = (on(&world, 0, whole), on(&world, 1, part));
    whole.await.unwrap().unwrap();
    part.await.unwrap().unwrap();
    let now = read(&volume).await;
    let inside = at as usize..at as usize + len;
    let first = now[inside.start];
    assert!([2, 3].contains(&first) && now[inside.clone()].iter().all(|byte| *byte == first), "{inside:?}");
    now.iter().enumerate().any(|(at, byte)| !inside.contains(&at) && *byte != 2)
}

#[test]
fn a_write_of_a_part_undoes_no_write_of_the_whole() {
    let lost = |seed: &u64| {
        let rig = Rig::new(*seed);
        let (world, volumes): (Arc<dyn World>, _) = (rig.world.clone(), rig.volumes.clone());
        let part = PARTS[*seed as usize % PARTS.len()];
        let slot = rig.slot.clone();
        rig.run(async move { race(world, volumes, slot, part).await })
    };
    let lost: Vec<_> = (0..SEEDS).filter(lost).collect();
    assert!(lost.is_empty(), "lost in {} of {SEEDS} rounds, first with seed {}", lost.len(), lost[0]);
}

#[test]
fn many_parts_of_one_sector_are_all_there_and_those_given_up_hold_up_nobody() {
    for seed in 0..40 {
        let rig = Rig::new(seed);
        let (world, volumes, slot) = (rig.world.clone(), rig.volumes.clone(), rig.slot.clone());
        rig.run(async move {
            let volume = create(&volumes, "v1").await;
            volume.write(0, vec![Slice::copy_of(&[0xAA; BLOCK])]).await.unwrap();
            settle(&slot).await;
            let mut parts = Vec::new();
            for n in 0..16_u8 {
                let (volume, world2) = (volume.clone(), world.clone());
                let part = async move {
                    {
                        // One that is dropped somewhere on its way.
                        let mut given_up =
                            pin!(volume.write_bytes(u64::from(n) * 32, Buf::copy_of(&[0xEE; 32])));
                        for _ in 0..world2.random_u64() % 4 {
                            let polled = given_up.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                            if let Poll::Ready(outcome) = polled {
                                outcome.unwrap();
                                break;
                            }
                            world2.sleep(Duration::from_micros(world2.random_u64() % 100)).await;
                        }
                    }
                    volume.write_bytes(u64::from(n) * 32, Buf::copy_of(&[n + 1; 32])).await
                };
                parts.push(on(&world, usize::from(n) % 2, part));
            }
            for part in parts {
                part.await.unwrap().unwrap();
            }
            let now = read(&volume).await;
            let expected: Vec<u8> = (0..512).map(|at| (at / 32 + 1) as u8).collect();
            assert_eq!(now[..512], expected, "seed {seed}");
        });
    }
}

#[test]
fn a_part_meant_for_replaced_content_is_refused_and_changes_nothing() {
    for seed in 0..60 {
        let rig = Rig::new(seed);
        let (world, volumes) = (rig.world.clone(), rig.volumes.clone());
        rig.run(async move {
            let volume = create(&volumes, "v1").await;
            volume.write(0, vec![Slice::copy_of(&[1; BLOCK])]).await.unwrap();
            let snapshot = snapshot(&volumes, &volume, "s1").await;
            volume.write(0, vec![Slice::copy_of(&[2; BLOCK])]).await.unwrap();
            let writer = {
                let (volume, world) = (volume.clone(), world.clone());
                let pause = Duration::from_nanos(world.random_u64() % 300_000);
                async move {
                    world.sleep(pause).await;
                    volume.write_bytes(100, Buf::copy_of(&[9; 100])).await
                }
            };
            let written = on(&world, 1, writer);
            let replacement = Replacement { target: volume.clone(), source: snapshot, refreshes: false };
            let held = volumes.hold(vec![replacement]).await.unwrap();
            volumes.replace(&held, Transaction::new()).await.unwrap();
            drop(held);
            let outcome = written.await.unwrap();
            let now = read(&volume).await;
            let beside = now.iter().enumerate().filter(|(at, _)| !(100..200).contains(at));
            assert!(beside.clone().all(|(_, byte)| *byte == 1), "seed {seed}: of what was replaced");
            match outcome {
                // Before the restore, which took it away; or after it.
                Ok(()) => assert!([1, 9].contains(&now[100]), "seed {seed}"),
                Err(DeviceError::Replaced { .. }) => assert_eq!(now[100], 1, "seed {seed}"),
                Err(error) => panic!("seed {seed}: {error}"),
            }
            // What cannot be written at all is refused as ever.
            let change = VolumeChange { template: Some(true), ..VolumeChange::default() };
            volumes.change("v1", change, Transaction::new()).await.unwrap();
            let refused = volume.write_bytes(5, Buf::copy_of(&[9])).await.unwrap_err();
            assert!(matches!(refused, DeviceError::ReadOnly { .. }), "{refused}");
            let beyond = volume.write_bytes(volume.size_bytes() - 1, Buf::copy_of(&[9; 2])).await;
            assert!(matches!(beyond, Err(DeviceError::OutOfRange { .. })));
        });
    }
}
