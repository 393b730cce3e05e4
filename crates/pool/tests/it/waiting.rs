//! Blocks that were written in part before more drives were lost than the layout tolerates: they wait for drives, and hold up
//! nothing.

use crate::{
    beyond::{BLOCK, SECOND, WRITE, WRITES, bring_back, fill, whole_again},
    rig::{Rig, create, options, pattern, read},
};
use futures_util::future::{join, join_all};
use quoin_base::{DriveIndex, MIB, VolumeId};
use quoin_pool::{Pool, PoolOptions, PoolState, PoolStats};
use quoin_world::World;
use quoin_world_sim::SimDisk;
use std::{sync::Arc, time::Duration};

/// A mirror over four drives, which destages what is so old.
fn open(seed: u64, destage_after: Duration) -> (Rig, Arc<Pool>, Vec<Arc<SimDisk>>) {
    let rig = Rig::of_drives(seed, "mirror".parse().unwrap(), 4, 48 * MIB);
    let pool = rig.open_with(PoolOptions { destage_after, ..options() });
    let disks = rig.disks.clone();
    (rig, pool, disks)
}

/// Two drives are lost, and a sector of each write to the volume that is returned first comes in between: none of these is
/// destaged when the second drive goes. Also returns a volume that is not affected.
async fn lose_beneath_parts(pool: &Pool, disks: &[Arc<SimDisk>]) -> (VolumeId, VolumeId) {
    let volumes = lose_before_parts_are_destaged(pool, disks).await;
    pool.drain().await.unwrap();
    volumes
}

async fn lose_before_parts_are_destaged(pool: &Pool, disks: &[Arc<SimDisk>]) -> (VolumeId, VolumeId) {
    let (volume, other) = (create(pool).await, create(pool).await);
    fill(pool, volume, 0).await;
    pool.drain().await.unwrap();
    disks[0].vanish();
    fill(pool, other, 1000).await;
    pool.drain().await.unwrap();
    for at in 0..WRITES {
        pool.write(volume, at * WRITE, vec![pattern(7, 512)]).await.unwrap();
    }
    disks[SECOND as usize].vanish();
    (volume, other)
}

/// Fills the journal so far that destage gives up blocks that it cannot read, unless it waits for drives.
async fn press(world: &dyn World, pool: &Pool, other: VolumeId) {
    for at in 0..64 {
        let PoolStats { journal_extents_used: used, journal_extents: all, .. } = pool.stats();
        if 8 * used >= 5 * all {
            break;
        }
        pool.write(other, at % 8 * WRITE, vec![pattern(2000 + at, WRITE as usize)]).await.unwrap();
        world.sleep(Duration::from_millis(100)).await;
    }
    world.sleep(Duration::from_secs(20)).await;
}

/// All that was written over in part has what was there before with the parts over it.
async fn verify_parts(pool: &Pool, volume: VolumeId) {
    for at in 0..WRITES {
        let mut expected = pattern(at, WRITE as usize).to_vec();
        expected[..512].copy_from_slice(&pattern(7, 512));
        assert!(read(pool, volume, at * WRITE, WRITE).await == expected, "{at}");
    }
}

#[test]
fn a_block_that_was_written_in_part_before_the_loss_waits_for_the_drives() {
    let (rig, pool, disks) = open(14, Duration::from_secs(10));
    rig.run(|world| async move {
        let (volume, other) = lose_beneath_parts(&pool, &disks).await;
        assert!(pool.protection().unreadable_segments > 0);
        let waiting = pool.stats().buffered_bytes;
        assert!(waiting > 0, "some wait");
        press(&*world, &pool, other).await;
        assert_eq!(pool.stats().lost_blocks, 0);
        assert_eq!(pool.state(), PoolState::Online);
        bring_back(&pool, &disks[SECOND as usize]).await;
        pool.drain().await.unwrap();
        assert_eq!(pool.stats().buffered_bytes, 0);
        verify_parts(&pool, volume).await;
        bring_back(&pool, &disks[0]).await;
        whole_again(&*world, &pool).await;
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn hosts_write_on_behind_what_waits_for_drives() {
    let (rig, pool, disks) = open(21, Duration::from_secs(10));
    let (volume, other) = rig.run(|world| async move {
        let (volume, other) = lose_beneath_parts(&pool, &disks).await;
        world.sleep(Duration::from_secs(1)).await;
        assert!(pool.stats().buffered_bytes > 0, "some wait");
        assert!(pool.is_settled(), "what waits was carried to extents that lack nothing: {:?}", pool.stats());
        let laps = pool.stats().journal_wraps;
        for at in 0..1000 {
            pool.write(other, at % 32 * WRITE, vec![pattern(at, WRITE as usize)]).await.unwrap();
        }
        let stats = pool.stats();
        assert!(stats.journal_wraps > laps + 20 && stats.carried_records > 0, "{stats:?}");
        assert_eq!(stats.lost_blocks, 0);
        (volume, other)
    });
    // What is carried survives a crash, without the drives too.
    rig.world.crash();
    [0, SECOND].into_iter().for_each(|disk| rig.disks[usize::from(disk)].vanish());
    let pool = rig.open();
    let disks = rig.disks.clone();
    rig.run(|world| async move {
        for at in 968..1000 {
            let expected = pattern(at, WRITE as usize).to_vec();
            assert!(read(&pool, other, at % 32 * WRITE, WRITE).await == expected, "{at}");
        }
        for at in 0..1000 {
            pool.write(other, at % 32 * WRITE, vec![pattern(at, WRITE as usize)]).await.unwrap();
        }
        assert!(pool.stats().carried_records > 0);
        for disk in [&disks[SECOND as usize], &disks[0]] {
            bring_back(&pool, disk).await;
        }
        pool.drain().await.unwrap();
        assert_eq!(pool.stats().buffered_bytes, 0);
        verify_parts(&pool, volume).await;
        whole_again(&*world, &pool).await;
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn what_waits_for_drives_is_not_tried_all_the_time() {
    let (rig, pool, disks) = open(20, Duration::from_millis(1));
    rig.run(|world| async move {
        let (_, other) = lose_beneath_parts(&pool, &disks).await;
        assert!(pool.stats().buffered_bytes > 0);
        let reads = || -> u64 {
            (0..4)
                .filter_map(|at| pool.drive(DriveIndex(at)))
                .map(|drive| drive.counters().reads + drive.counters().errors)
                .sum()
        };
        world.sleep(Duration::from_secs(5)).await;
        let before = reads();
        world.sleep(Duration::from_secs(20)).await;
        let tried = reads() - before;
        assert!(tried < 20 * 4 * WRITES, "{tried} reads in 20 s for {WRITES} blocks");
        // Other blocks are destaged all the same.
        for at in 0..4 {
            pool.write(other, at * WRITE, vec![pattern(4000 + at, WRITE as usize)]).await.unwrap();
        }
        world.sleep(Duration::from_secs(2)).await;
        assert!(pool.stats().buffered_bytes <= WRITES * BLOCK, "{:?}", pool.stats());
    });
}

#[cfg(feature = "planted-bugs")]
#[test]
fn the_last_copy_is_not_given_up_and_the_planted_bugs_give_it_up() {
    use quoin_pool::bugs::{Bug, plant};
    for bug in [None, Some(Bug::GiveUpLast), Some(Bug::FreeUnreadable)] {
        plant(bug);
        let (rig, pool, disks) = open(14, Duration::from_secs(10));
        let (given_up, lost) = rig.run(|world| async move {
            let (_, other) = lose_beneath_parts(&pool, &disks).await;
            press(&*world, &pool, other).await;
            pool.set_repair_delay(Duration::ZERO);
            (pool.give_up_absent().await.unwrap(), pool.stats().lost_blocks)
        });
        plant(None);
        let found = (!given_up.is_empty(), lost > 0);
        assert_eq!(found, (bug == Some(Bug::GiveUpLast), bug == Some(Bug::FreeUnreadable)), "{bug:?}");
    }
}

/// What hosts write to blocks while these are carried forward is there in the end.
fn overwrite_while_carried() {
    let (rig, pool, disks) = open(21, Duration::from_secs(10));
    rig.run(|world| async move {
        let (volume, _) = lose_before_parts_are_destaged(&pool, &disks).await;
        let overwriting = async {
            while pool.stats().carried_records == 0 {
                world.sleep(Duration::from_micros(1)).await;
            }
            let write = |at| pool.write(volume, at * WRITE, vec![pattern(9000 + at, BLOCK as usize)]);
            assert!(join_all((0..WRITES).rev().map(write)).await.iter().all(Result::is_ok));
        };
        join(pool.drain(), overwriting).await.0.unwrap();
        assert!(pool.stats().carried_records > 1, "others are carried after the first");
        pool.drain().await.unwrap();
        for at in 0..WRITES {
            let expected = pattern(9000 + at, BLOCK as usize).to_vec();
            assert!(read(&pool, volume, at * WRITE, BLOCK).await == expected, "{at}");
        }
    });
}

#[test]
fn what_hosts_write_meanwhile_is_not_undone() {
    overwrite_while_carried();
}

#[cfg(feature = "planted-bugs")]
#[test]
fn what_is_carried_over_what_is_newer_is_found() {
    use quoin_pool::bugs::{Bug, plant};
    plant(Some(Bug::CarryOverNewer));
    let found = std::panic::catch_unwind(overwrite_while_carried).is_err();
    plant(None);
    assert!(found, "what a host wrote is gone");
}
