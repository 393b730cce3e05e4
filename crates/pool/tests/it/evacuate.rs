//! Drives that leave while hosts use the pool: all they held is on the others then, and no opening needs them.

use crate::rig::{Rig, create, options, pattern, read};
use quoin_base::{ByteRange, DriveIndex, Layout, MIB, VolumeId};
use quoin_drive::{MemberState, Probe, Roles, probe};
use quoin_pool::{Pool, PoolError, PoolOptions, RebuildRate};
use quoin_world::{Disk, World};
use std::{sync::Arc, time::Duration};

const BOTH: Roles = Roles { journal: true, data: true };
const WRITE: u64 = 64 << 10;
const WRITES: u64 = 80;

fn layout(text: &str) -> Layout {
    text.parse().unwrap()
}

async fn fill(pool: &Pool) -> VolumeId {
    let volume = create(pool).await;
    for at in 0..WRITES {
        pool.write(volume, at * WRITE, vec![pattern(at, WRITE as usize)]).await.unwrap();
    }
    volume
}

async fn all_is_there(pool: &Arc<Pool>, volume: VolumeId) {
    for at in 0..WRITES {
        assert!(read(pool, volume, at * WRITE, WRITE).await == pattern(at, WRITE as usize).to_vec(), "{at}");
    }
}

/// Waits until nothing refers to a drive that leaves, and removes it.
async fn remove(world: &dyn World, pool: &Pool, drive: DriveIndex) {
    for _ in 0..600 {
        if pool.remove_drive(drive).await.unwrap() {
            assert_eq!(pool.members().get(drive).unwrap().state, MemberState::Gone);
            return;
        }
        world.sleep(Duration::from_millis(100)).await;
    }
    panic!("{:?}, {:?}", pool.evacuations(), pool.stats());
}

#[test]
fn a_drive_is_evacuated_and_removed_while_hosts_write() {
    for (seed, text) in (1..).zip(["none", "mirror", "2+1", "raid5", "mirror-3", "raid6"]) {
        for (place_from, slices) in [(u64::MAX, 1), (16 << 10, 1), (64 << 10, 3)] {
            let drives = usize::from(layout(text).columns()) + 1;
            let rig = Rig::to_evacuate(seed, layout(text), &vec![BOTH; drives], slices);
            let pool = rig.open_with(PoolOptions { place_from, ..options() });
            let volume = rig.run(|world| async move {
                let volume = fill(&pool).await;
                let used = || pool.drive_space().iter().find(|space| space.drive.0 == 0).unwrap().used_bytes;
                assert!(used() > 0, "{text}");
                assert!(pool.evacuate_drive(DriveIndex(0), false).await.unwrap(), "{text}");
                assert!(
                    !pool.evacuate_drive(DriveIndex(0), false).await.unwrap(),
                    "{text}: it leaves already"
                );
                for at in 0..WRITES / 2 {
                    pool.write(volume, at * WRITE, vec![pattern(at, WRITE as usize)]).await.unwrap();
                }
                remove(&*world, &pool, DriveIndex(0)).await;
                assert!(pool.evacuations().is_empty());
                assert!(pool.drive_space().iter().all(|space| space.drive.0 != 0));
                all_is_there(&pool, volume).await;
                pool.close().await.unwrap();
                volume
            });
            // It is blank, and nobody needs it.
            let gone = rig.disks[0].clone() as Arc<dyn Disk>;
            assert_eq!(rig.run(|_| async move { probe(&gone).await }).unwrap(), Probe::Blank, "{text}");
            let rig = rig.without(0);
            rig.check();
            let pool = rig.open();
            rig.run(|_| async move {
                assert_eq!(
                    pool.protection().tolerates,
                    layout(text).parity(),
                    "{text}: {:?}",
                    pool.protection()
                );
                all_is_there(&pool, volume).await;
                pool.close().await.unwrap();
            });
            rig.check();
        }
    }
}

#[test]
fn an_evacuation_goes_on_after_a_crash_and_can_be_cancelled() {
    let rig = Rig::to_evacuate(3, layout("raid5"), &[BOTH; 5], 1);
    let pool = rig.open();
    let volume = rig.run(|_| async move {
        let volume = fill(&pool).await;
        assert!(pool.evacuate_drive(DriveIndex(2), false).await.unwrap());
        volume
    });
    rig.world.crash();
    let pool = rig.open();
    rig.run(|world| async move {
        let state = |pool: &Pool| pool.members().get(DriveIndex(2)).unwrap().state;
        assert_eq!(state(&pool), MemberState::Leaving);
        assert!(pool.cancel_evacuation(DriveIndex(2)).await.unwrap());
        assert!(!pool.cancel_evacuation(DriveIndex(2)).await.unwrap());
        assert_eq!(state(&pool), MemberState::Active);
        let refused = pool.remove_drive(DriveIndex(2)).await.unwrap_err().to_string();
        assert!(refused.contains("evacuate it first"), "{refused}");
        all_is_there(&pool, volume).await;
        // Again, to its end.
        assert!(pool.evacuate_drive(DriveIndex(2), false).await.unwrap());
        remove(&*world, &pool, DriveIndex(2)).await;
        all_is_there(&pool, volume).await;
        pool.close().await.unwrap();
    });
    rig.without(2).check();
}

#[test]
fn what_an_evacuation_lacks_is_told_and_nothing_changes() {
    let refused = |rig: &Rig, drive: u16, narrower: bool| {
        let pool = rig.open();
        rig.run(|_| async move {
            let outcome = pool.evacuate_drive(DriveIndex(drive), narrower).await;
            assert!(pool.evacuations().is_empty() || outcome.is_ok());
            pool.close().await.unwrap();
            match outcome {
                Ok(_) => None,
                Err(PoolError::Refused(why)) => Some(why),
                Err(error) => panic!("{error}"),
            }
        })
    };
    let is =
        |why: Option<String>, text: &str| assert!(why.as_ref().is_some_and(|w| w.contains(text)), "{why:?}");
    // The only drive for data, and the last but one for a mirror.
    let (both, journal) = (BOTH, Roles { journal: true, data: false });
    is(refused(&Rig::with_roles(1, &[both, journal], 24 * MIB, 1), 0, false), "no other drive is for data");
    let data = Roles { journal: false, data: true };
    is(
        refused(&Rig::with_roles(1, &[both, data], 24 * MIB, 1), 0, false),
        "no other drive holds the journal",
    );
    let rig = Rig::to_evacuate(2, layout("mirror"), &[BOTH; 2], 1);
    is(
        refused(&rig, 1, true),
        "layout mirror needs drives for data in 2 fault domains to tolerate a failure",
    );
    // Narrower segments must be confirmed.
    let rig = Rig::to_evacuate(3, layout("raid5"), &[BOTH; 4], 1);
    is(refused(&rig, 1, false), "data would move to narrower ones, 2+1");
    assert_eq!(refused(&rig, 1, true), None);
    // What is on it must fit on the others.
    let rig = Rig::to_evacuate(4, layout("none"), &[BOTH; 2], 1);
    let pool = rig.open();
    rig.run(|_| async move {
        let volume = create(&pool).await;
        for at in 0.. {
            if pool.write(volume, at * WRITE, vec![pattern(at, WRITE as usize)]).await.is_err() {
                break;
            }
        }
        pool.close().await.unwrap();
    });
    is(refused(&rig, 1, false), "the other drives lack");
}

/// Every drive is replaced, one after the other, while the pool stays open.
#[test]
fn all_voters_are_replaced_without_a_restart() {
    let journal = Roles { journal: true, data: false };
    let rig = Rig::to_evacuate(5, layout("none"), &[BOTH, journal, journal, journal], 1);
    let pool = rig.open();
    let disks: Vec<_> = (0..6).map(|i| rig.world.disk(&format!("n{i}"), 25 * MIB)).collect();
    let added = disks.clone();
    let volume = rig.run(|world| async move {
        let volume = fill(&pool).await;
        for disk in added {
            pool.add_drive(&*world, disk, String::new()).await.unwrap();
        }
        for drive in [1, 2, 3] {
            assert!(pool.evacuate_drive(DriveIndex(drive), false).await.unwrap());
            remove(&*world, &pool, DriveIndex(drive)).await;
        }
        assert_eq!(pool.members().voters().count(), 5);
        all_is_there(&pool, volume).await;
        pool.close().await.unwrap();
        volume
    });
    let mut rig = rig.without(3).without(2).without(1);
    rig.disks.extend(disks);
    rig.check();
    let pool = rig.open();
    rig.run(|_| async move {
        all_is_there(&pool, volume).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn a_drive_that_was_added_is_filled_until_all_are_used_alike_and_then_nothing_moves() {
    for (seed, text, slices) in [
        (11, "none", 1),
        (12, "mirror", 1),
        (13, "raid5", 1),
        (14, "none", 3),
        (15, "mirror", 3),
        (16, "raid5", 3),
    ] {
        let drives = usize::from(layout(text).columns()) + 1;
        let mut rig = Rig::to_evacuate(seed, layout(text), &vec![BOTH; drives], slices);
        let pool = rig.open();
        let disk = rig.world.disk("new", 27 * MIB * u64::from(slices));
        let added = disk.clone();
        rig.run(|world| async move {
            let mut volumes = Vec::new();
            let each = if text == "raid5" { 2 } else { 1 };
            for _ in 0..slices * each {
                volumes.push(fill(&pool).await);
            }
            pool.drain().await.unwrap();
            pool.add_drive(&*world, added, String::new()).await.unwrap();
            // The committer takes the slabs of the new drive first.
            for _ in 0..100 {
                if pool.balance().most_apart_percent > 10 {
                    break;
                }
                world.sleep(Duration::from_millis(100)).await;
            }
            assert!(pool.balance().most_apart_percent > 10, "{text} {slices}: {:?}", pool.drive_space());
            let used =
                |pool: &Pool| pool.drive_space().iter().map(|space| space.used_bytes).collect::<Vec<_>>();
            let used_before = used(&pool);
            // Only now: what is counted is moved because of the new drive.
            pool.set_balancing(true);
            let mut quiet = 0;
            let mut before = pool.stats().rebuilt_columns;
            assert_eq!(before, 0, "{text}");
            while quiet < 30 {
                world.sleep(Duration::from_millis(100)).await;
                let now = pool.stats().rebuilt_columns;
                quiet = if now == before { quiet + 1 } else { 0 };
                before = now;
            }
            assert!(pool.balance().most_apart_percent <= 8, "{text} {slices}: {:?}", pool.drive_space());
            // Some columns move more than once: 16 moves for 13 columns gained with the first of these layouts. It comes to an
            // end all the same, and is bounded.
            let after = used(&pool);
            let gained = |(now, then): (&u64, &u64)| now.saturating_sub(*then) / u64::from(crate::rig::SLAB);
            let gained: u64 = after.iter().zip(&used_before).map(gained).sum();
            assert!(
                before > 0 && before <= 2 * gained,
                "{text} {slices}: {before} moves, {used_before:?} {after:?}"
            );
            for volume in &volumes {
                all_is_there(&pool, *volume).await;
            }
            pool.close().await.unwrap();
        });
        rig.disks.push(disk);
        rig.check();
    }
}

/// How many blocks are mended while a drive on which some bits flipped is evacuated.
fn mended_on_the_way(text: &str) -> u64 {
    let drives = usize::from(layout(text).columns()) + 1;
    let rig = Rig::to_evacuate(21, layout(text), &vec![BOTH; drives], 1);
    let pool = rig.open();
    let volume = rig.run(|_| async move {
        let volume = fill(&pool).await;
        pool.close().await.unwrap();
        volume
    });
    // Nobody is told of it.
    let first = 6 * MIB;
    for at in 0..40 {
        rig.disks[0].flip_bit(ByteRange::new(first + at * 128 * 1024, 4096));
    }
    let pool = rig.open();
    rig.run(|world| async move {
        assert!(pool.evacuate_drive(DriveIndex(0), false).await.unwrap());
        remove(&*world, &pool, DriveIndex(0)).await;
        let mended = pool.stats().repaired_data + pool.stats().repaired_copies;
        all_is_there(&pool, volume).await;
        pool.close().await.unwrap();
        mended
    })
}

#[test]
fn what_a_drive_holds_wrong_is_not_copied_as_if_it_was_right() {
    for text in ["mirror", "raid5", "raid6"] {
        assert!(mended_on_the_way(text) > 0, "{text}");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_drive_that_is_copied_unverified_is_found() {
    use quoin_pool::bugs::{Bug, plant};
    // The cleaner and reads mend some too.
    let sound = mended_on_the_way("mirror");
    plant(Some(Bug::CopyUnverified));
    let mended = mended_on_the_way("mirror");
    plant(None);
    assert!(mended < sound, "{mended} of {sound} blocks were mended");
}

#[test]
fn columns_are_moved_no_faster_than_the_cap() {
    let moved_in = |cap: u64| {
        let rig = Rig::to_evacuate(31, layout("raid5"), &[BOTH; 5], 1);
        let pool = rig.open();
        rig.run(|world| async move {
            fill(&pool).await;
            pool.drain().await.unwrap();
            pool.set_rebuild_rate(RebuildRate { floor_bytes_s: 0, cap_bytes_s: cap });
            let began = world.now();
            assert!(pool.evacuate_drive(DriveIndex(0), false).await.unwrap());
            let bytes = pool.evacuations()[0].bytes;
            while pool.evacuations()[0].bytes > 0 {
                world.sleep(Duration::from_millis(10)).await;
            }
            let took = world.now().since(began).as_secs_f64();
            pool.close().await.unwrap();
            (bytes, took)
        })
    };
    let (bytes, fast) = moved_in(0);
    let (_, slow) = moved_in(bytes / 20);
    assert!(
        fast < 10.0 && (15.0..40.0).contains(&slow),
        "{fast} s without a cap, {slow} s with one for 20 s"
    );
}
