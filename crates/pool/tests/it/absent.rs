//! Drives that go away and come back: what they held is kept, what they missed is made again, and nothing is lost.

use crate::rig::{Rig, create, options, pattern, read};
use quoin_base::{DriveIndex, Epoch, HolderId, Layout, MIB, VolumeId};
use quoin_drive::{Drive, DriveSet, MemberState, MembersCopy};
use quoin_pool::{Pool, PoolError, PoolOptions};
use quoin_world::{Disk, World};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

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
            let voters = pool.members().voters().count();
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
            // Metadata is not: it has few segments.
            let metadata = pool.stats().rebuilt_columns;
            assert!(metadata < 4, "{text}: data is waited for, {metadata} columns were made");
            disk.revive();
            assert_eq!(pool.take_back(disk).await.unwrap(), DriveIndex(0), "{text}");
            assert_eq!(state(&pool, 0), MemberState::Active);
            fill(&pool, volume, 2000).await;
            protected(&*world, &pool, layout.parity()).await;
            assert!(pool.members().get(DriveIndex(0)).is_some_and(|member| member.in_journal), "{text}");
            // It votes again, or another one does in its place.
            assert_eq!(pool.members().voters().count(), voters, "{text}");
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
fn only_an_absent_drive_is_taken_back() {
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

/// Opens the pool with these disks only, as an administrator asked for.
fn open_with_only(rig: &Rig, disks: &[usize]) -> Arc<Pool> {
    for (at, disk) in rig.disks.iter().enumerate() {
        if disks.contains(&at) { disk.revive() } else { disk.vanish() }
    }
    let there: Vec<_> = rig.disks.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect();
    let options = PoolOptions { without_missing: true, ..options() };
    rig.run(|world| async move {
        let set = DriveSet::open_some(there).await.unwrap();
        Pool::open(world, set.drives, options).await.unwrap()
    })
}

/// A drive is used by itself, and then the others without it. Whether it is taken back then.
fn takes_back_one_that_went_on_alone() -> bool {
    let rig = Rig::of_drives(10, layout("mirror"), 2, 32 * MIB);
    let pool = rig.open();
    let volume = rig.run(|_| async move {
        let volume = create(&pool).await;
        fill(&pool, volume, 0).await;
        pool.close().await.unwrap();
        volume
    });
    for alone in [1, 0] {
        let pool = open_with_only(&rig, &[alone]);
        rig.run(|_| async move {
            fill(&pool, volume, 1000 + alone as u64).await;
            pool.close().await.unwrap();
        });
    }
    let pool = open_with_only(&rig, &[0]);
    rig.disks[1].revive();
    let disk = rig.disks[1].clone();
    rig.run(|_| async move {
        match pool.take_back(disk).await {
            Ok(_) => true,
            Err(PoolError::Refused(why)) => {
                assert!(why.contains("it was used without the other drives"), "{why}");
                all_is_there(&pool, volume, 1000).await;
                false
            }
            Err(error) => panic!("{error}"),
        }
    })
}

#[test]
fn a_drive_that_went_on_alone_is_not_taken_back() {
    assert!(!takes_back_one_that_went_on_alone());
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_drive_that_went_on_alone_and_is_taken_back_is_found() {
    use quoin_pool::bugs::{Bug, plant};
    plant(Some(Bug::TakeBackGone));
    let taken_back = takes_back_one_that_went_on_alone();
    plant(None);
    assert!(taken_back);
}

#[test]
fn a_table_that_was_never_in_force_does_not_keep_a_drive_from_coming_back() {
    // So many changes were interrupted when only this drive had them. Of seven drives another one votes in its place.
    for (changes, drives) in [(1, 5), (2, 7), (5, 5)] {
        let rig = Rig::of_drives(11, layout("mirror"), drives, 32 * MIB);
        let pool = rig.open();
        let volume = rig.run(|_| async move {
            let volume = create(&pool).await;
            fill(&pool, volume, 0).await;
            pool.drain().await.unwrap();
            volume
        });
        rig.world.crash();
        let disks = rig.disks.clone();
        rig.run(|_| async move {
            // Of an opening that went no further: it raises the epoch of all drives first.
            let mut opened = Vec::new();
            for disk in disks {
                let drive = Drive::open(disk as Arc<dyn Disk>).await.unwrap();
                let drive = drive.attach(HolderId(Uuid::from_u128(1)));
                drive.raise_epoch(Epoch(drive.epoch().0 + 1)).await.unwrap();
                opened.push(drive);
            }
            let drive = &opened[1];
            let tables = drive.read_members().await.into_iter().filter_map(|copy| match copy {
                MembersCopy::Sound(table) => Some(table),
                MembersCopy::Blank | MembersCopy::Damaged(_) => None,
            });
            let mut table = tables.max_by_key(|table| table.age()).unwrap();
            assert!(table.get(DriveIndex(1)).unwrap().votes);
            table.epoch = drive.epoch();
            for _ in 0..changes {
                table.generation = table.generation.next();
                drive.write_members(&table).await.unwrap();
            }
        });
        let others: Vec<_> = (0..drives).filter(|drive| *drive != 1).collect();
        let pool = open_with_only(&rig, &others);
        let disk = rig.disks[1].clone();
        rig.run(|world| async move {
            assert_eq!(state(&pool, 1), MemberState::Absent);
            fill(&pool, volume, 1000).await;
            pool.drain().await.unwrap();
            disk.revive();
            assert_eq!(pool.take_back(disk).await.unwrap(), DriveIndex(1), "{changes}");
            protected(&*world, &pool, 1).await;
            all_is_there(&pool, volume, 1000).await;
            pool.close().await.unwrap();
        });
        rig.check();
        let pool = rig.open();
        rig.run(|_| async move { all_is_there(&pool, volume, 1000).await });
    }
}
