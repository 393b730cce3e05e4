//! Drives that go away and come back: what they held is kept, what they missed is made again, and nothing is lost.

use crate::rig::{Rig, create, pattern, read};
use quoin_base::{DriveIndex, Layout, MIB, VolumeId};
use quoin_drive::MemberState;
use quoin_pool::{Pool, PoolError};
use quoin_world::{Disk, World};
use std::{sync::Arc, time::Duration};

const WRITE: u64 = 64 << 10;
const WRITES: u64 = 60;

fn layout(text: &str) -> Layout {
    text.parse().unwrap()
}

fn state(pool: &Pool, drive: u16) -> MemberState {
    pool.members().get(DriveIndex(drive)).unwrap().state
}

/// Writes everywhere, with tags from `tag` on.
async fn fill(pool: &Pool, volume: VolumeId, tag: u64) {
    for at in 0..WRITES {
        pool.write(volume, at * WRITE, vec![pattern(tag + at, WRITE as usize)]).await.unwrap();
    }
}

async fn all_is_there(pool: &Pool, volume: VolumeId, tag: u64) {
    for at in 0..WRITES {
        let expected = pattern(tag + at, WRITE as usize).to_vec();
        assert!(read(pool, volume, at * WRITE, WRITE).await == expected, "{at}");
    }
}

/// Waits until as many failures are tolerated as the layout promises.
async fn protected(world: &dyn World, pool: &Pool, tolerates: u8) {
    for _ in 0..600 {
        let protection = pool.protection();
        if protection.degraded_segments == 0 && protection.tolerates == tolerates {
            return;
        }
        world.sleep(Duration::from_millis(100)).await;
    }
    panic!("{:?}, {:?}", pool.protection(), pool.stats());
}

#[test]
fn a_drive_that_comes_back_is_caught_up_and_counts_again() {
    for (seed, text) in (1..).zip(["mirror", "2+1", "raid5", "mirror-3", "raid6"]) {
        let layout = layout(text);
        // No drive more than the layout takes: nothing can be made again elsewhere.
        let rig = Rig::of_drives(seed, layout, usize::from(layout.columns()), 48 * MIB);
        let pool = rig.open();
        let disk = rig.disks[0].clone();
        let (volume, kept) = rig.run(|world| async move {
            let volume = create(&pool).await;
            let kept = create(&pool).await;
            fill(&pool, volume, 0).await;
            fill(&pool, kept, 5000).await;
            pool.drain().await.unwrap();
            disk.vanish();
            fill(&pool, volume, 1000).await;
            pool.drain().await.unwrap();
            assert_eq!(state(&pool, 0), MemberState::Absent, "{text}");
            assert!(pool.protection().tolerates < layout.parity(), "{text}");
            assert!(pool.protection().absent_bytes > 0, "{text}");
            all_is_there(&pool, volume, 1000).await;
            all_is_there(&pool, kept, 5000).await;
            world.sleep(Duration::from_secs(30)).await;
            assert_eq!(pool.stats().rebuilt_columns, 0, "{text}: it is waited for");
            disk.revive();
            assert_eq!(pool.take_back(disk).await.unwrap(), DriveIndex(0), "{text}");
            assert_eq!(state(&pool, 0), MemberState::Active);
            fill(&pool, volume, 2000).await;
            protected(&*world, &pool, layout.parity()).await;
            assert!(pool.members().get(DriveIndex(0)).is_some_and(|m| m.in_journal && m.votes), "{text}");
            all_is_there(&pool, volume, 2000).await;
            // Others may go away now, as many as the layout tolerates.
            pool.close().await.unwrap();
            (volume, kept)
        });
        rig.check();
        let pool = rig.open();
        rig.run(|_| async move {
            for drive in 1..=u16::from(layout.parity()) {
                assert!(pool.fail_drive(DriveIndex(drive)).await.unwrap(), "{text}");
            }
            all_is_there(&pool, volume, 2000).await;
            all_is_there(&pool, kept, 5000).await;
            let stats = pool.stats();
            assert_eq!((stats.medium_errors, stats.lost_blocks), (0, 0), "{text}");
            assert_eq!(stats.repaired_data + stats.repaired_copies, 0, "{text}: nothing was stale");
        });
    }
}

#[test]
fn a_drive_that_stays_away_is_rebuilt_after_the_delay_also_across_a_restart() {
    let rig = Rig::protected(7, layout("mirror"), 24 * MIB);
    let pool = rig.open();
    let disk = rig.disks[1].clone();
    let (volume, kept) = rig.run(|world| async move {
        let volume = create(&pool).await;
        let kept = create(&pool).await;
        fill(&pool, volume, 0).await;
        fill(&pool, kept, 5000).await;
        pool.drain().await.unwrap();
        disk.vanish();
        fill(&pool, volume, 1000).await;
        pool.drain().await.unwrap();
        assert_eq!(state(&pool, 1), MemberState::Absent);
        assert!(pool.give_up_absent().await.unwrap().is_empty());
        world.sleep(Duration::from_secs(3000)).await;
        assert!(pool.give_up_absent().await.unwrap().is_empty());
        (volume, kept)
    });
    rig.world.crash();
    rig.disks[1].vanish();
    let pool = rig.open();
    let disk = rig.disks[1].clone();
    rig.run(|world| async move {
        assert_eq!(state(&pool, 1), MemberState::Absent);
        all_is_there(&pool, volume, 1000).await;
        assert!(pool.protection().absent_bytes > 0 && pool.protection().lacking_bytes == 0);
        // It was away for 50 minutes already.
        world.sleep(Duration::from_secs(601)).await;
        assert_eq!(pool.give_up_absent().await.unwrap(), [DriveIndex(1)]);
        assert_eq!(state(&pool, 1), MemberState::Failed);
        protected(&*world, &pool, 1).await;
        assert!(pool.stats().rebuilt_columns > 0);
        all_is_there(&pool, volume, 1000).await;
        all_is_there(&pool, kept, 5000).await;
        disk.revive();
        let refused = pool.take_back(disk).await.unwrap_err();
        assert!(matches!(refused, PoolError::Refused(_)), "{refused}");
        pool.close().await.unwrap();
    });
}

#[test]
fn the_delay_is_live_and_a_failed_drive_is_not_waited_for() {
    let rig = Rig::protected(8, layout("2+1"), 24 * MIB);
    let pool = rig.open();
    let disks = [rig.disks[0].clone(), rig.disks[1].clone()];
    rig.run(|world| async move {
        let volume = create(&pool).await;
        fill(&pool, volume, 0).await;
        pool.drain().await.unwrap();
        // It answers with errors.
        disks[0].fail();
        fill(&pool, volume, 1000).await;
        pool.drain().await.unwrap();
        assert_eq!(state(&pool, 0), MemberState::Failed);
        protected(&*world, &pool, 1).await;
        disks[1].vanish();
        fill(&pool, volume, 2000).await;
        pool.drain().await.unwrap();
        assert_eq!(state(&pool, 1), MemberState::Absent);
        world.sleep(Duration::from_secs(5)).await;
        pool.set_repair_delay(Duration::from_secs(5));
        assert_eq!(pool.give_up_absent().await.unwrap(), [DriveIndex(1)]);
        all_is_there(&pool, volume, 2000).await;
    });
}

#[test]
fn a_drive_that_was_opened_without_the_others_is_not_taken_back() {
    let rig = Rig::protected(9, layout("mirror"), 24 * MIB);
    let pool = rig.open();
    let disks = rig.disks.clone();
    rig.run(|_| async move {
        let volume = create(&pool).await;
        fill(&pool, volume, 0).await;
        pool.drain().await.unwrap();
        disks[0].vanish();
        fill(&pool, volume, 1000).await;
        pool.drain().await.unwrap();
        let other = disks[1].clone() as Arc<dyn Disk>;
        let refused = pool.take_back(other).await.unwrap_err();
        assert!(matches!(refused, PoolError::Refused(_)), "{refused}");
    });
}
