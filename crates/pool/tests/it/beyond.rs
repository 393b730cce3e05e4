//! More drives are lost than the layout tolerates: blocks that cannot be computed fail to be read, everything else serves, and
//! all can be read again when the drives are back.

use crate::rig::{Rig, create, options, pattern, read};
use futures_util::future::join;
use quoin_base::{ByteRange, DriveIndex, MIB, VolumeId};
use quoin_drive::MemberState;
use quoin_pool::{Pool, PoolError, PoolOptions, PoolState, Protection};
use quoin_world::{Thread, World};
use quoin_world_sim::SimDisk;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

pub(crate) const WRITE: u64 = 64 << 10;
pub(crate) const WRITES: u64 = 60;
pub(crate) const BLOCK: u64 = 8 << 10;
/// The drive that is lost after the first.
pub(crate) const SECOND: u16 = 3;

/// Layouts with the drives that they have here: one more at least than they take.
const LAYOUTS: [(&str, usize); 3] = [("mirror", 4), ("2+1", 5), ("raid5", 5)];

pub(crate) async fn fill(pool: &Pool, volume: VolumeId, tag: u64) {
    for at in 0..WRITES {
        pool.write(volume, at * WRITE, vec![pattern(tag + at, WRITE as usize)]).await.unwrap();
    }
}

/// Two volumes: one was filled before a drive vanished, and one after that, with what is tagged 1000.
async fn written_before_and_after(pool: &Pool, drive: &SimDisk) -> (VolumeId, VolumeId) {
    let (before, after) = (create(pool).await, create(pool).await);
    fill(pool, before, 0).await;
    pool.drain().await.unwrap();
    drive.vanish();
    fill(pool, after, 1000).await;
    pool.drain().await.unwrap();
    (before, after)
}

/// How many blocks fail to be read. All others are right.
async fn unreadable(pool: &Pool, volume: VolumeId, tag: u64) -> u64 {
    let mut failed = 0;
    for at in 0..WRITES {
        let expected = pattern(tag + at, WRITE as usize).to_vec();
        for block in (0..WRITE).step_by(BLOCK as usize) {
            match pool.read(volume, ByteRange::new(at * WRITE + block, BLOCK)).await {
                Ok(slices) => {
                    let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
                    assert!(bytes == expected[block as usize..][..BLOCK as usize], "{at} {block}");
                }
                Err(PoolError::Medium { unread: true, .. }) => failed += 1,
                Err(error) => panic!("{at} {block}: {error}"),
            }
        }
    }
    failed
}

fn state(pool: &Pool, drive: u16) -> MemberState {
    pool.members().get(DriveIndex(drive)).unwrap().state
}

/// A drive that vanished is there again, and the pool takes it back.
pub(crate) async fn bring_back(pool: &Pool, disk: &Arc<SimDisk>) {
    disk.revive();
    pool.take_back(disk.clone()).await.unwrap();
}

/// Waits until nothing is left to be made again.
pub(crate) async fn whole_again(world: &dyn World, pool: &Pool) {
    for _ in 0..600 {
        let Protection { degraded_segments, tolerates: now, .. } = pool.protection();
        if degraded_segments == 0 && now == 1 {
            return;
        }
        world.sleep(Duration::from_millis(100)).await;
    }
    panic!("{:?}, {:?}", pool.protection(), pool.stats());
}

#[test]
fn what_two_drives_alone_have_is_there_again_when_they_are() {
    for (seed, (text, drives)) in (1..).zip(LAYOUTS) {
        for errs in [false, true] {
            let rig = Rig::of_drives(seed, text.parse().unwrap(), drives, 48 * MIB);
            let pool = rig.open();
            let disks = rig.disks.clone();
            let (old, new) = rig.run(|world| async move {
                let (old, other) = written_before_and_after(&pool, &disks[0]).await;
                assert_eq!(pool.protection().unreadable_segments, 0, "{text}");
                assert_eq!(unreadable(&pool, old, 0).await, 0, "{text}");
                // The second answers with errors, or is away too.
                if errs {
                    disks[SECOND as usize].fail()
                } else {
                    disks[SECOND as usize].vanish()
                }
                fill(&pool, other, 2000).await;
                pool.drain().await.unwrap();
                assert_eq!(pool.state(), PoolState::Online, "{text}");
                assert_eq!([0, SECOND].map(|drive| state(&pool, drive)), [MemberState::Absent; 2], "{text}");
                let Protection { tolerates, unreadable_segments, unreadable_bytes, .. } = pool.protection();
                assert!(
                    tolerates == 0 && unreadable_segments > 0 && unreadable_bytes > 0,
                    "{text} {:?}",
                    pool.protection()
                );
                let lost = unreadable(&pool, old, 0).await;
                assert!(lost > 0 && lost * BLOCK <= unreadable_bytes, "{text}: {lost} of {unreadable_bytes}");
                assert!(lost < WRITES * WRITE / BLOCK, "{text}: others serve");
                // New volumes, and what was written since, are whole.
                let new = create(&pool).await;
                fill(&pool, new, 3000).await;
                pool.drain().await.unwrap();
                assert_eq!(unreadable(&pool, other, 2000).await, 0, "{text}");
                assert_eq!(unreadable(&pool, new, 3000).await, 0, "{text}");
                // Neither the repair delay nor an administrator gives up the last copy.
                pool.set_repair_delay(Duration::ZERO);
                assert!(pool.give_up_absent().await.unwrap().is_empty(), "{text}");
                let refused = pool.fail_drive(DriveIndex(SECOND)).await.unwrap_err().to_string();
                assert!(refused.contains("bytes of data") && refused.contains("would be lost"), "{refused}");
                assert!(pool.remove_drive(DriveIndex(0)).await.is_err(), "{text}");
                world.sleep(Duration::from_secs(5)).await;
                assert_eq!(unreadable(&pool, old, 0).await, lost, "{text}");
                assert_eq!(pool.stats().lost_blocks, 0);
                assert!(pool.take_damage().is_empty(), "{text}: nothing is damaged");
                // One of them is enough: the other follows from it.
                pool.set_repair_delay(Duration::from_secs(3600));
                disks[SECOND as usize].revive();
                assert_eq!(pool.take_back(disks[SECOND as usize].clone()).await.unwrap(), DriveIndex(SECOND));
                assert_eq!(unreadable(&pool, old, 0).await, 0, "{text}");
                assert_eq!(pool.protection().unreadable_segments, 0, "{text}");
                disks[0].revive();
                assert_eq!(pool.take_back(disks[0].clone()).await.unwrap(), DriveIndex(0));
                whole_again(&*world, &pool).await;
                assert_eq!(unreadable(&pool, other, 2000).await, 0, "{text}");
                pool.close().await.unwrap();
                (old, new)
            });
            rig.check();
            let pool = rig.open();
            rig.run(|_| async move {
                assert_eq!(unreadable(&pool, old, 0).await, 0, "{text}");
                assert_eq!(unreadable(&pool, new, 3000).await, 0, "{text}");
            });
        }
    }
}

#[test]
fn a_drive_with_the_last_copy_stays_absent_however_many_operations_of_it_fail() {
    for seed in 1..=12 {
        let rig = Rig::of_drives(seed, "mirror".parse().unwrap(), 4, 48 * MIB);
        let pool = rig.open();
        let disks = rig.disks.clone();
        rig.run(|_| async move {
            let (old, other) = written_before_and_after(&pool, &disks[0]).await;
            disks[SECOND as usize].fail();
            // Records, rows and a checkpoint go to it at the same time.
            let (rows, records) = (async { pool.drain().await.unwrap() }, fill(&pool, other, 2000));
            join(rows, records).await;
            pool.drain().await.unwrap();
            assert_eq!(state(&pool, SECOND), MemberState::Absent, "{seed}");
            disks[SECOND as usize].revive();
            pool.take_back(disks[SECOND as usize].clone()).await.unwrap();
            assert_eq!(unreadable(&pool, old, 0).await, 0, "{seed}");
        });
    }
}

#[test]
fn what_is_overwritten_or_unmapped_meanwhile_stays_so() {
    let rig = Rig::of_drives(11, "mirror".parse().unwrap(), 4, 48 * MIB);
    let pool = rig.open();
    let disks = rig.disks.clone();
    rig.run(|world| async move {
        let (volume, _) = written_before_and_after(&pool, &disks[0]).await;
        disks[SECOND as usize].vanish();
        fill(&pool, create(&pool).await, 1000).await;
        pool.drain().await.unwrap();
        assert!(unreadable(&pool, volume, 0).await > 0);
        fill(&pool, volume, 2000).await;
        pool.unmap(volume, ByteRange::new(0, WRITE)).await.unwrap();
        pool.drain().await.unwrap();
        assert_eq!(read(&pool, volume, 0, WRITE).await, vec![0; WRITE as usize]);
        pool.write(volume, 0, vec![pattern(2000, WRITE as usize)]).await.unwrap();
        pool.drain().await.unwrap();
        // Nothing waits for the drives any more, so they may be given up.
        assert_eq!(unreadable(&pool, volume, 2000).await, 0);
        assert_eq!(pool.protection().unreadable_bytes, 0);
        for disk in [&disks[0], &disks[SECOND as usize]] {
            bring_back(&pool, disk).await;
        }
        whole_again(&*world, &pool).await;
        assert_eq!(unreadable(&pool, volume, 2000).await, 0);
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_crash_meanwhile_changes_nothing() {
    let rig = Rig::of_drives(12, "raid5".parse().unwrap(), 5, 48 * MIB);
    let pool = rig.open();
    let disks = rig.disks.clone();
    let (old, other, lost) = rig.run(|_| async move {
        let (old, other) = written_before_and_after(&pool, &disks[0]).await;
        disks[SECOND as usize].vanish();
        fill(&pool, other, 2000).await;
        let lost = unreadable(&pool, old, 0).await;
        assert!(lost > 0);
        (old, other, lost)
    });
    rig.world.crash();
    [0, SECOND].into_iter().for_each(|disk| rig.disks[usize::from(disk)].vanish());
    let pool = rig.open();
    let disks = rig.disks.clone();
    rig.run(|world| async move {
        assert_eq!(unreadable(&pool, old, 0).await, lost);
        assert_eq!(unreadable(&pool, other, 2000).await, 0);
        for disk in [&disks[0], &disks[SECOND as usize]] {
            bring_back(&pool, disk).await;
        }
        whole_again(&*world, &pool).await;
        assert_eq!(unreadable(&pool, old, 0).await, 0);
        assert_eq!(unreadable(&pool, other, 2000).await, 0);
        pool.close().await.unwrap();
    });
    rig.check();
}

/// Two drives of four are lost one after the other; `volume` was filled before. Returns the blocks that only these two have.
async fn lose_two(pool: &Pool, disks: &[Arc<SimDisk>], volume: VolumeId) -> Vec<u64> {
    disks[0].vanish();
    fill(pool, create(pool).await, 1000).await;
    pool.drain().await.unwrap();
    disks[SECOND as usize].vanish();
    fill(pool, create(pool).await, 1000).await;
    pool.drain().await.unwrap();
    let mut failed = Vec::new();
    for at in (0..WRITES * WRITE).step_by(BLOCK as usize) {
        if pool.read(volume, ByteRange::new(at, BLOCK)).await.is_err() {
            failed.push(at);
        }
    }
    failed
}

#[test]
fn a_part_of_a_block_that_cannot_be_read_is_not_written_and_a_whole_one_is() {
    let rig = Rig::of_drives(13, "mirror".parse().unwrap(), 4, 48 * MIB);
    let pool = rig.open();
    let disks = rig.disks.clone();
    rig.run(|world| async move {
        let volume = create(&pool).await;
        fill(&pool, volume, 0).await;
        pool.drain().await.unwrap();
        let failed = lose_two(&pool, &disks, volume).await;
        let sector = vec![pattern(9, 512)];
        let (whole, part) = (failed[0], failed[1]);
        let is_medium =
            |outcome: Result<(), PoolError>| matches!(outcome, Err(PoolError::Medium { unread: true, .. }));
        assert!(is_medium(pool.write(volume, part, sector.clone()).await));
        assert!(is_medium(pool.unmap(volume, ByteRange::new(part + 512, 512)).await));
        // Whole blocks between parts of others that can be read, and parts of one that is buffered whole.
        pool.write(volume, whole, vec![pattern(8, BLOCK as usize)]).await.unwrap();
        pool.write(volume, whole, sector.clone()).await.unwrap();
        let there = (0..WRITES * WRITE).step_by(BLOCK as usize).find(|at| !failed.contains(at)).unwrap();
        pool.write(volume, there, sector.clone()).await.unwrap();
        pool.drain().await.unwrap();
        assert_eq!(read(&pool, volume, whole, 512).await, sector[0].to_vec());
        bring_back(&pool, &disks[SECOND as usize]).await;
        pool.write(volume, part, sector.clone()).await.unwrap();
        assert_eq!(read(&pool, volume, part, 512).await, sector[0].to_vec());
        bring_back(&pool, &disks[0]).await;
        whole_again(&*world, &pool).await;
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_restart_serves_the_rest_only_if_it_is_asked_to() {
    let rig = Rig::of_drives(15, "mirror".parse().unwrap(), 4, 48 * MIB);
    let pool = rig.open();
    let volume = rig.run(|_| async move {
        let volume = create(&pool).await;
        fill(&pool, volume, 0).await;
        pool.close().await.unwrap();
        volume
    });
    [0, SECOND].into_iter().for_each(|disk| rig.disks[usize::from(disk)].vanish());
    let there: Vec<_> =
        rig.disks.iter().map(|disk| disk.clone() as std::sync::Arc<dyn quoin_world::Disk>).collect();
    let open = |options: PoolOptions| {
        let there = there.clone();
        rig.run(|world| async move {
            let set = quoin_drive::DriveSet::open_some(there).await.unwrap();
            Pool::open(world, set.drives, options).await
        })
    };
    let refused = open(options()).err().unwrap().to_string();
    for said in ["segments with", "bytes of data could not be read", "--without-missing"] {
        assert!(refused.contains(said), "{refused}");
    }
    let pool = open(PoolOptions { without_missing: true, ..options() }).unwrap();
    let disks = rig.disks.clone();
    rig.run(|world| async move {
        let lost = unreadable(&pool, volume, 0).await;
        assert!(lost > 0);
        fill(&pool, create(&pool).await, 3000).await;
        for disk in [&disks[0], &disks[SECOND as usize]] {
            bring_back(&pool, disk).await;
        }
        assert_eq!(unreadable(&pool, volume, 0).await, 0);
        whole_again(&*world, &pool).await;
        pool.close().await.unwrap();
    });
    rig.check();
}

/// Writes small blocks to a volume until it is told to stop. Returns what was acknowledged last of each place.
async fn write_on(world: &dyn World, pool: &Pool, volume: VolumeId, stop: &AtomicBool) -> Vec<u64> {
    let mut written = vec![0; 64];
    for round in 1.. {
        for (at, last) in written.iter_mut().enumerate() {
            if stop.load(Ordering::Relaxed) {
                return written;
            }
            let tag = round * 100 + at as u64;
            pool.write(volume, at as u64 * BLOCK, vec![pattern(tag, BLOCK as usize)]).await.unwrap();
            *last = tag;
            world.sleep(Duration::from_micros(500)).await;
        }
    }
    written
}

#[test]
fn three_losses_within_seconds_while_hosts_write_leave_the_pool_online() {
    for (seed, text, drives, lost) in
        [(16, "mirror", 6, vec![0, 3, 1]), (17, "raid5", 8, vec![2, 5]), (18, "raid6", 9, vec![0, 4, 7])]
    {
        let rig = Rig::of_drives(seed, text.parse().unwrap(), drives, 48 * MIB);
        // Nothing is destaged soon by itself: what was written before a loss would be in the journal alone.
        let pool = rig.open_with(PoolOptions { destage_after: Duration::from_secs(600), ..options() });
        let disks = rig.disks.clone();
        let (old, busy, idle, written) = rig.run(|world| async move {
            let (old, busy, idle) = (create(&pool).await, create(&pool).await, create(&pool).await);
            fill(&pool, old, 0).await;
            pool.drain().await.unwrap();
            // Large writes are placed, and the lanes that tell of them are idle from here on.
            fill(&pool, idle, 500).await;
            let stop = Arc::new(AtomicBool::new(false));
            let (sender, ended) = quoin_world::one_shot();
            let writer = (world.clone(), pool.clone(), stop.clone());
            world.spawn(
                Thread::Data(0),
                Box::pin(async move {
                    let (world, pool, stop) = writer;
                    sender.send(write_on(&*world, &pool, busy, &stop).await);
                }),
            );
            for drive in &lost {
                world.sleep(Duration::from_secs(2)).await;
                assert!(pool.is_settled(), "{text}: {:?}", pool.stats());
                disks[*drive].vanish();
            }
            world.sleep(Duration::from_secs(2)).await;
            assert_eq!(pool.state(), PoolState::Online, "{text}");
            assert!(lost.iter().all(|drive| state(&pool, *drive as u16) == MemberState::Absent), "{text}");
            assert!(pool.is_settled(), "{text}");
            stop.store(true, Ordering::Relaxed);
            let written = ended.await.unwrap();
            assert_eq!(
                unreadable(&pool, old, 0).await > 0,
                pool.protection().unreadable_segments > 0,
                "{text}"
            );
            for drive in &lost {
                bring_back(&pool, &disks[*drive]).await;
            }
            (old, busy, idle, written)
        });
        rig.world.crash();
        let pool = rig.open();
        rig.run(|_| async move {
            assert_eq!(unreadable(&pool, old, 0).await, 0, "{text}");
            assert_eq!(unreadable(&pool, idle, 500).await, 0, "{text}");
            for (at, tag) in written.iter().enumerate().filter(|(_, tag)| **tag > 0) {
                let expected = pattern(*tag, BLOCK as usize).to_vec();
                assert!(read(&pool, busy, at as u64 * BLOCK, BLOCK).await == expected, "{text} {at}");
            }
        });
    }
}

#[test]
fn a_loss_of_idle_drives_is_settled_too() {
    let rig = Rig::of_drives(19, "mirror".parse().unwrap(), 6, 48 * MIB);
    let pool = rig.open_with(PoolOptions { destage_after: Duration::from_secs(600), ..options() });
    let disks = rig.disks.clone();
    rig.run(|world| async move {
        let volume = create(&pool).await;
        fill(&pool, volume, 0).await;
        pool.write(volume, 0, vec![pattern(7, 512)]).await.unwrap();
        for drive in [0, 3, 1] {
            disks[drive].vanish();
            assert!(pool.miss_drive(DriveIndex(drive as u16)).await.unwrap());
            world.sleep(Duration::from_secs(1)).await;
            assert!(pool.is_settled(), "{drive}: {:?}", pool.stats());
        }
        assert_eq!(pool.state(), PoolState::Online);
    });
}
