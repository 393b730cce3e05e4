//! Drives that are added while the pool serves.

use crate::rig::{Rig, create, options, pattern, read};
use quoin_base::{ByteRange, DriveIndex, MIB, SliceId, VolumeId};
use quoin_drive::{Probe, inspect_set, open_set, probe, root_offset};
use quoin_pool::{Pool, PoolError, PoolState, check};
use quoin_world::{Disk, World};
use quoin_world_sim::{FaultPlan, PowerCut, SimDisk};
use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

const WRITE: u64 = 64 << 10;

fn tag(volume: VolumeId, at: u64) -> u64 {
    u64::from(volume.slice().0) << 24 | at
}

async fn write(pool: &Pool, volume: VolumeId, at: u64) -> Result<(), PoolError> {
    pool.write(volume, at * WRITE, vec![pattern(tag(volume, at), WRITE as usize)]).await
}

/// Writes until the pool is full. Returns how much is written then.
async fn fill(pool: &Pool, volume: VolumeId, from: u64) -> u64 {
    for at in from.. {
        match write(pool, volume, at).await {
            Ok(()) => {}
            Err(PoolError::NoSpace) => return at,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("a pool is full some time")
}

async fn verify(pool: &Pool, volume: VolumeId, writes: u64) {
    for at in 0..writes {
        let expected = pattern(tag(volume, at), WRITE as usize).to_vec();
        assert!(read(pool, volume, at * WRITE, WRITE).await == expected, "{at}");
    }
}

fn dynamic(disk: &Arc<SimDisk>) -> Arc<dyn Disk> {
    disk.clone()
}

/// Opens with those of the disks that have a label.
async fn open_labelled(world: Arc<quoin_world_sim::SimWorld>, disks: Vec<Arc<dyn Disk>>) -> Arc<Pool> {
    let mut labelled = Vec::new();
    for disk in disks {
        if matches!(probe(&disk).await, Ok(Probe::Quoin(_))) {
            labelled.push(disk);
        }
    }
    Pool::open(world, open_set(labelled).await.unwrap(), options()).await.unwrap()
}

#[test]
fn a_full_pool_has_room_again_and_the_new_drive_is_needed_from_then_on() {
    for slices in [1, 3] {
        let rig = Rig::with_slices(1, 2, 32 * MIB, slices);
        let added = rig.world.disk("added", 40 * MIB);
        let pool = rig.open();
        let disk = dynamic(&added);
        let (volume, filled) = rig.run(|world| async move {
            let volume = create(&pool).await;
            let first = fill(&pool, volume, 0).await;
            let before = pool.stats();
            assert_eq!(pool.add_drive(&*world, disk.clone(), String::new()).await.unwrap(), DriveIndex(2));
            let after = pool.stats();
            let grown = after.capacity_bytes - before.capacity_bytes;
            assert!(
                grown > 36 * MIB && after.free_bytes - before.free_bytes > 24 * MIB,
                "{before:?} {after:?}"
            );
            let refused = pool.add_drive(&*world, disk, String::new()).await.unwrap_err();
            assert!(refused.to_string().contains("the pool has it already"), "{refused}");

            let second = fill(&pool, volume, first).await;
            assert!((second - first) * WRITE > 24 * MIB, "{first} and then {second}");
            verify(&pool, volume, second).await;
            pool.close().await.unwrap();
            (volume, second)
        });

        // It is needed, and holds what it was given.
        let old: Vec<_> = rig.disks.iter().map(dynamic).collect();
        let all: Vec<_> = old.iter().cloned().chain([dynamic(&added)]).collect();
        rig.run(|world| async move {
            let missing = open_set(old).await.map(|_| ()).unwrap_err();
            assert!(missing.to_string().contains("missing"), "{missing}");
            let report = check(inspect_set(all.clone()).await.unwrap()).await.unwrap();
            assert!(report.is_clean(), "{:#?}", report.problems);
            let pool = Pool::open(world, open_set(all).await.unwrap(), options()).await.unwrap();
            verify(&pool, volume, filled).await;
            pool.close().await.unwrap();
        });
    }
}

/// The power fails at each step of adding: the drive is a member or none, nothing is lost, and adding goes on as before.
fn cut_while_added(slices: u8, step: u64) -> bool {
    let rig = Rig::with_slices(step, 2, 16 * MIB * u64::from(slices), slices);
    let added = rig.world.disk("added", 16 * MIB);
    let pool = rig.open();
    let volume = rig.run(|_| async move {
        let volume = create(&pool).await;
        for at in 0..8 {
            write(&pool, volume, at).await.unwrap();
        }
        drop(pool);
        volume
    });
    rig.world.kill();
    let pool = rig.open();
    let disk = dynamic(&added);
    rig.world.cut_power(PowerCut::AfterSteps(step));
    let world = rig.world.clone();
    let outcome = rig.world.run(async move { pool.add_drive(&*world, disk, String::new()).await });
    rig.world.crash();

    let all: Vec<_> = rig.disks.iter().map(dynamic).chain([dynamic(&added)]).collect();
    let disks = all.clone();
    let was_added = rig.run(|world| async move {
        let pool = open_labelled(world.clone(), disks.clone()).await;
        verify(&pool, volume, 8).await;
        let is_member = pool.members().next_index == 3;
        if !is_member {
            assert_eq!(
                pool.add_drive(&*world, disks[2].clone(), String::new()).await.unwrap(),
                DriveIndex(2)
            );
        }
        for at in 8..80 {
            write(&pool, volume, at).await.unwrap();
        }
        pool.close().await.unwrap();
        let report = check(inspect_set(disks).await.unwrap()).await.unwrap();
        assert!(report.is_clean(), "{:#?}", report.problems);
        is_member
    });
    assert!(was_added || !matches!(outcome, Ok(Ok(_))), "what was told of as added was not");
    was_added
}

#[test]
fn a_drive_that_a_power_failure_kept_from_being_added_is_left_out() {
    let mut outcomes = [0; 2];
    for slices in [1, 3] {
        for step in (0..120).step_by(2) {
            outcomes[usize::from(cut_while_added(slices, step))] += 1;
        }
    }
    assert!(outcomes.iter().all(|count| *count > 5), "{outcomes:?}");
}

#[test]
fn what_cannot_be_added_leaves_the_pool_as_it_was() {
    let rig = Rig::new(1, 2, 32 * MIB);
    let (small, sick) = (rig.world.disk("small", MIB), rig.world.disk("sick", 40 * MIB));
    let few = rig.world.disk("few", 2 * MIB + 3 * u64::from(crate::rig::SLAB));
    let many = rig.world.disk("many", 20 << 30);
    sick.set_faults(FaultPlan { write_error: 1.0, ..FaultPlan::default() });
    let pool = rig.open();
    rig.run(|world| async move {
        let volume = create(&pool).await;
        let before = (pool.stats().capacity_bytes, pool.members());
        let too_small = pool.add_drive(&*world, dynamic(&small), String::new()).await.unwrap_err();
        assert!(too_small.to_string().contains("small"), "{too_small}");
        pool.add_drive(&*world, dynamic(&sick), String::new()).await.unwrap_err();
        // What brings nothing, and what the segment table could not name, is refused before anything is written to it.
        for (disk, why) in [(few, "room for 3 slabs"), (many, "more than it can keep count of")] {
            let refused = pool.add_drive(&*world, dynamic(&disk), String::new()).await.unwrap_err();
            assert!(refused.to_string().contains(why), "{refused}");
            assert_eq!(probe(&dynamic(&disk)).await.unwrap(), Probe::Blank);
        }
        assert_eq!((pool.stats().capacity_bytes, pool.members()), before);
        write(&pool, volume, 0).await.unwrap();
        sick.set_faults(FaultPlan::default());
        assert_eq!(pool.add_drive(&*world, dynamic(&sick), String::new()).await.unwrap(), DriveIndex(2));
        verify(&pool, volume, 1).await;
        pool.close().await.unwrap();
    });
}

/// The power fails while the pool is filled and a drive is added, before or after data reached that drive.
fn cut_under_load(seed: u64) -> (bool, bool) {
    let slices = 1 + (seed % 2) as u8 * 2;
    let rig = Rig::with_slices(seed, 2, 16 * MIB * u64::from(slices), slices);
    let added = rig.world.disk("added", 16 * MIB);
    let pool = rig.open();
    let (volume, before) = rig.run(|_| async move {
        let volume = create(&pool).await;
        let before = fill(&pool, volume, 0).await;
        pool.close().await.unwrap();
        (volume, before)
    });
    let pool = rig.open();
    let (acknowledged, told) = (Arc::new(AtomicU64::new(before)), Arc::new(AtomicBool::new(false)));
    let (world, disk) = (rig.world.clone(), dynamic(&added));
    // Adding takes about a hundred steps.
    let steps = if seed.is_multiple_of(4) { seed * 3 } else { seed * 97 };
    rig.world.cut_power(PowerCut::AfterSteps(steps));
    let (count, is_told) = (acknowledged.clone(), told.clone());
    let load = async move {
        let adding = async {
            pool.add_drive(&*world, disk, String::new()).await.unwrap();
            is_told.store(true, Ordering::SeqCst);
        };
        let writing = async {
            for at in before.. {
                // There is no room before the drive is there.
                while write(&pool, volume, at).await.is_err() {
                    world.sleep(Duration::from_micros(500)).await;
                }
                count.store(at + 1, Ordering::SeqCst);
            }
        };
        futures_util::future::join(adding, writing).await
    };
    assert!(rig.world.run(load).is_err(), "the power was cut");
    rig.world.crash();

    let disks: Vec<_> = rig.disks.iter().map(dynamic).chain([dynamic(&added)]).collect();
    let (count, told) = (acknowledged.load(Ordering::SeqCst), told.load(Ordering::SeqCst));
    rig.run(|world| async move {
        let pool = open_labelled(world, disks.clone()).await;
        assert!(pool.members().next_index == 3 || !told, "what was told of as added was not");
        verify(&pool, volume, count).await;
        pool.close().await.unwrap();
        let mut labelled = Vec::new();
        for disk in disks {
            if matches!(probe(&disk).await, Ok(Probe::Quoin(_))) {
                labelled.push(disk);
            }
        }
        let report = check(inspect_set(labelled).await.unwrap()).await.unwrap();
        assert!(report.is_clean(), "{:#?}", report.problems);
    });
    (told, count > before)
}

#[test]
fn what_is_acknowledged_while_a_drive_is_added_survives_a_power_failure() {
    let (mut early, mut written) = (0, 0);
    for seed in 0..48 {
        let (told, grew) = cut_under_load(seed);
        early += u32::from(!told);
        written += u32::from(told && grew);
    }
    assert!(early > 2 && written > 10, "{early} {written}");
}

/// Drops the future that adds a drive after some polls. The pool goes on without the drive, or goes offline and the next opening
/// decides.
fn abandoned(polls: u64) -> bool {
    let rig = Rig::new(polls, 2, 16 * MIB);
    let added = rig.world.disk("added", 16 * MIB);
    let (pool, disk) = (rig.open(), dynamic(&added));
    let all: Vec<_> = rig.disks.iter().map(dynamic).chain([dynamic(&added)]).collect();
    rig.run(|world| async move {
        let volume = create(&pool).await;
        for at in 0..8 {
            write(&pool, volume, at).await.unwrap();
        }
        {
            let mut left = polls;
            let mut adding = pin!(pool.add_drive(&*world, disk.clone(), String::new()));
            let some = poll_fn(|cx| {
                if left == 0 {
                    return Poll::Ready(());
                }
                left -= 1;
                adding.as_mut().poll(cx).map(|added| assert_eq!(added.unwrap(), DriveIndex(2)))
            });
            some.await;
        }
        // All that the drive was asked for has ended.
        world.sleep(Duration::from_secs(1)).await;
        let went_offline = matches!(pool.state(), PoolState::Offline { .. });
        if !went_offline && pool.members().next_index == 2 {
            assert_eq!(pool.add_drive(&*world, disk, String::new()).await.unwrap(), DriveIndex(2));
        }
        assert_eq!(pool.close().await.is_err(), went_offline);
        drop(pool);
        let pool = open_labelled(world, all).await;
        verify(&pool, volume, 8).await;
        for at in 8..80 {
            write(&pool, volume, at).await.unwrap();
        }
        pool.close().await.unwrap();
        went_offline
    })
}

#[test]
fn an_addition_that_is_abandoned_harms_nothing() {
    let offline = (0..60).filter(|polls| abandoned(*polls)).count();
    assert!((1..50).contains(&offline), "{offline}");
}

/// The opening after a drive was added makes it a voter, without roots yet. It must not vouch that the old voter's newest
/// root, which cannot be read, is not there.
#[test]
fn a_voter_without_roots_does_not_vouch_for_a_slot_that_cannot_be_read() {
    for slot in 0..2 {
        let rig = Rig::new(1, 1, 32 * MIB);
        let added = rig.world.disk("added", 40 * MIB);
        let (pool, disk) = (rig.open(), dynamic(&added));
        let volume = rig.run(|world| async move {
            let volume = create(&pool).await;
            pool.add_drive(&*world, disk, String::new()).await.unwrap();
            for at in 0..8 {
                write(&pool, volume, at).await.unwrap();
            }
            pool.close().await.unwrap();
            volume
        });
        let at = ByteRange::new(root_offset(SliceId(0), slot), 512);
        rig.disks[0].set_faults(FaultPlan { read_error: 1.0, only: Some(at), ..FaultPlan::default() });
        let all = [dynamic(&rig.disks[0]), dynamic(&added)];
        let disks = all.to_vec();
        let opened = rig.run(|world| async move {
            Pool::open(world, open_set(disks).await.unwrap(), options()).await.map(|_| ())
        });
        let refused = opened.unwrap_err().to_string();
        assert!(refused.contains("can be read on no drive that has it"), "{refused}");

        // Nothing was lost by the attempt.
        rig.disks[0].set_faults(FaultPlan::default());
        rig.run(|world| async move {
            let pool = Pool::open(world, open_set(all.to_vec()).await.unwrap(), options()).await.unwrap();
            verify(&pool, volume, 8).await;
            pool.close().await.unwrap();
        });
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_member_whose_grant_pages_are_not_written_is_found() {
    use quoin_pool::bugs::{Bug, plant};
    plant(Some(Bug::MemberBeforeGrants));
    let found = (0..120).any(|step| std::panic::catch_unwind(|| cut_while_added(1, step)).is_err());
    plant(None);
    assert!(found, "a power failure shows it");
}
