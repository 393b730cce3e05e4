//! What a failed drive held is made again on the others, so that the next one may fail.

use crate::rig::{Rig, create, options, pattern, read};
use futures_util::{StreamExt, future::join, stream};
use quoin_base::{ByteRange, DriveIndex, Layout, MIB, VolumeId};
use quoin_drive::{MemberState, open_set};
use quoin_pool::{Pool, PoolError, PoolOptions, RebuildRate};
use quoin_world::{Disk, Thread, World, one_shot};
use std::{sync::Arc, time::Duration};

const WRITE: u64 = 64 << 10;
const WRITES: u64 = 80;

fn layout(text: &str) -> Layout {
    text.parse().unwrap()
}

/// Waits until no segment lacks a column.
async fn rebuilt(world: &dyn World, pool: &Pool) {
    for _ in 0..600 {
        if pool.protection().degraded_segments == 0 {
            return;
        }
        world.sleep(Duration::from_millis(100)).await;
    }
    panic!("{:?}, {:?}", pool.protection(), pool.stats());
}

async fn all_is_there(pool: &Arc<Pool>, volume: VolumeId) {
    for at in 0..WRITES {
        assert!(read(pool, volume, at * WRITE, WRITE).await == pattern(at, WRITE as usize).to_vec(), "{at}");
    }
}

#[test]
fn drives_fail_one_after_the_other_and_each_is_made_up_for() {
    for (seed, text) in (1..).zip(["mirror", "2+1", "raid5", "mirror-3", "raid6"]) {
        let (layout, pool_drives) = (layout(text), u16::from(layout(text).columns()) + 1);
        let rig = Rig::protected(seed, layout, 24 * MIB);
        let pool = rig.open();
        let volume = rig.run(|_| async move {
            let volume = create(&pool).await;
            for at in 0..WRITES {
                pool.write(volume, at * WRITE, vec![pattern(at, WRITE as usize)]).await.unwrap();
            }
            pool.close().await.unwrap();
            volume
        });
        // Down to the fewest drives on which as many failures are tolerated: first columns find other drives, then segments
        // become narrower.
        for drive in 0..pool_drives - u16::from(layout.parity()) - 1 {
            let pool = rig.open();
            rig.run(|world| async move {
                assert!(pool.fail_drive(DriveIndex(drive)).await.unwrap(), "{text}: {drive}");
                assert!(pool.protection().degraded_segments > 0, "{text}: {drive}");
                all_is_there(&pool, volume).await;
                rebuilt(&*world, &pool).await;
                all_is_there(&pool, volume).await;
                let stats = pool.stats();
                assert!(stats.rebuilt_columns > 0 || drive > 0, "{text}: {stats:?}");
                assert_eq!((stats.medium_errors, stats.lost_blocks), (0, 0), "{text}");
                pool.close().await.unwrap();
            });
            rig.check();
            // What was rebuilt is in the segment table, and as many failures are tolerated as before.
            let pool = rig.open();
            rig.run(|_| async move {
                let protection = pool.protection();
                assert_eq!(protection.degraded_segments, 0, "{text}: {drive}");
                assert_eq!(protection.tolerates, layout.parity(), "{text}: {drive}, {protection:?}");
                all_is_there(&pool, volume).await;
                pool.close().await.unwrap();
            });
        }
    }
}

/// A drive fails, and as soon as what it held is made again the next one, if the pool lets it go; then power fails. False if
/// the pool does not open then, or lacks something. `is_away`: the next one vanishes first, and is given up then.
fn survives_failures_before_a_checkpoint(text: &str, seed: u64, is_away: bool) -> bool {
    let rig = Rig::protected(seed, layout(text), 24 * MIB);
    let pool = rig.open();
    let volume = rig.run(|_| async move {
        let volume = create(&pool).await;
        for at in 0..WRITES {
            pool.write(volume, at * WRITE, vec![pattern(at, WRITE as usize)]).await.unwrap();
        }
        pool.close().await.unwrap();
        volume
    });
    let (pool, next) = (rig.open(), rig.disks[1].clone());
    let has_let_go = rig.run(|world| async move {
        assert!(pool.fail_drive(DriveIndex(0)).await.unwrap());
        while pool.protection().degraded_segments > 0 {
            world.sleep(Duration::from_micros(50)).await;
        }
        let tolerated = pool.protection().tolerates;
        if is_away {
            next.vanish();
            // Refused if it has metadata that a crash would take.
            let _ = pool.miss_drive(DriveIndex(1)).await;
        }
        let has_let_go = pool.fail_drive(DriveIndex(1)).await.is_ok();
        assert!(has_let_go || tolerated == 0, "{tolerated} failures were tolerated");
        has_let_go
    });
    rig.world.crash();
    rig.disks[1].revive();
    let disks = rig.disks.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect();
    let opened = rig.run(|world| async move {
        Pool::open(world, open_set(disks).await.map_err(PoolError::from)?, options()).await
    });
    let (Ok(pool), next) = (opened, rig.disks[1].clone()) else { return false };
    rig.run(|world| async move {
        if pool.members().get(DriveIndex(1)).is_some_and(|member| member.state == MemberState::Absent) {
            pool.take_back(next).await.unwrap();
        }
        for at in 0..WRITES {
            if pool.read(volume, ByteRange::new(at * WRITE, WRITE)).await.is_err() {
                return false;
            }
        }
        all_is_there(&pool, volume).await;
        // Once a checkpoint names what was made, the next drive may fail.
        if !has_let_go {
            rebuilt(&*world, &pool).await;
            while pool.protection().tolerates == 0 {
                world.sleep(Duration::from_millis(10)).await;
            }
            assert!(pool.fail_drive(DriveIndex(1)).await.unwrap());
            all_is_there(&pool, volume).await;
        }
        pool.close().await.unwrap();
        true
    })
}

#[test]
fn what_is_made_again_protects_only_when_a_checkpoint_names_it() {
    for text in ["mirror", "2+1", "raid5"] {
        for seed in 7..10 {
            for is_away in [false, true] {
                assert!(
                    survives_failures_before_a_checkpoint(text, seed, is_away),
                    "{text} {seed} {is_away}"
                );
            }
        }
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn columns_that_count_before_a_checkpoint_names_them_are_found() {
    use quoin_pool::bugs::{Bug, plant};
    plant(Some(Bug::CountUnnamed));
    let survives = (7..20).all(|seed| survives_failures_before_a_checkpoint("mirror", seed, false));
    plant(None);
    assert!(!survives);
}

#[test]
fn a_slab_that_is_being_filled_is_nobody_elses_though_its_drive_was_away() {
    let mut was_away = 0;
    for drive in 1..5 {
        let rig = Rig::of_drives(60 + drive, layout("mirror"), 5, 40 * MIB);
        let (pool, disk) = (rig.open(), rig.disks[drive as usize].clone());
        was_away += rig.run(|world| async move {
            let volume = create(&pool).await;
            for at in 0..WRITES {
                pool.write(volume, at * WRITE, vec![pattern(at, WRITE as usize)]).await.unwrap();
            }
            pool.drain().await.unwrap();
            // Columns are made that wait for their turn to be written.
            pool.set_rebuild_rate(RebuildRate { floor_bytes_s: 0, cap_bytes_s: 128 << 10 });
            assert!(pool.fail_drive(DriveIndex(0)).await.unwrap());
            world.sleep(Duration::from_millis(700)).await;
            disk.vanish();
            let is_missed = pool.miss_drive(DriveIndex(drive as u16)).await.is_ok();
            disk.revive();
            if !is_missed {
                return 0;
            }
            pool.take_back(disk).await.unwrap();
            // All free slabs are wanted.
            let other = create(&pool).await;
            for at in 0..WRITES {
                pool.write(other, at * WRITE, vec![pattern(at, WRITE as usize)]).await.unwrap();
            }
            pool.drain().await.unwrap();
            pool.set_rebuild_rate(RebuildRate::default());
            rebuilt(&*world, &pool).await;
            all_is_there(&pool, volume).await;
            all_is_there(&pool, other).await;
            pool.close().await.unwrap();
            1
        });
        rig.check();
    }
    assert!(was_away > 0);
}

/// What each drive read and wrote while what one of them held was made again.
fn shares_of_a_rebuild(text: &str, seed: u64, place_from: u64) -> Vec<(u64, u64)> {
    let rig = Rig::of_drives(seed, layout(text), 8, 64 * MIB);
    let disks = rig.disks();
    let options = PoolOptions { place_from, buffer_bytes: 4 * MIB, ..options() };
    rig.run(|world| async move {
        let set = open_set(disks).await.unwrap();
        let drives = set.clone();
        let pool = Pool::open(world.clone(), set, options).await.unwrap();
        let volume = create(&pool).await;
        for at in 0..4 * WRITES {
            pool.write(volume, at * WRITE, vec![pattern(at, WRITE as usize)]).await.unwrap();
        }
        pool.drain().await.unwrap();
        let counted = || drives.iter().map(|drive| drive.counters()).collect::<Vec<_>>();
        let before = counted();
        assert!(pool.fail_drive(DriveIndex(7)).await.unwrap());
        rebuilt(&*world, &pool).await;
        let after = counted();
        pool.close().await.unwrap();
        let both = before.iter().zip(&after).take(7);
        both.map(|(b, a)| (a.read_bytes - b.read_bytes, a.write_bytes - b.write_bytes)).collect()
    })
}

#[test]
fn what_a_drive_held_is_read_from_all_others_and_goes_to_all_others() {
    // What hosts write in small and in large pieces.
    for (seed, text, place_from) in
        [(61, "mirror", u64::MAX), (62, "mirror", 16 << 10), (63, "raid5", 16 << 10)]
    {
        let shares = shares_of_a_rebuild(text, seed, place_from);
        let (read, written): (u64, u64) =
            shares.iter().fold((0, 0), |sum, share| (sum.0 + share.0, sum.1 + share.1));
        // No drive has to read or write more than three times its part.
        let is_fair = |share: &(u64, u64)| share.0 * 7 < read * 3 && share.1 * 7 < written * 3;
        assert!(shares.iter().all(is_fair), "{text}, placed from {place_from}: {shares:?}");
    }
}

/// The longest time in which nothing was made again before all was.
fn longest_pause(beside_hosts: bool) -> Duration {
    let rig = Rig::of_drives(64, layout("mirror"), 5, 64 * MIB);
    let pool = rig.open();
    rig.run(move |world| async move {
        let volume = create(&pool).await;
        for at in 0..8 * WRITES {
            pool.write(volume, at * WRITE, vec![pattern(at, WRITE as usize)]).await.unwrap();
        }
        pool.drain().await.unwrap();
        pool.set_rebuild_rate(RebuildRate { floor_bytes_s: 0, cap_bytes_s: 8 * MIB });
        assert!(pool.fail_drive(DriveIndex(0)).await.unwrap());
        let is_done = || pool.protection().degraded_segments == 0;
        let host = async {
            while beside_hosts && !is_done() {
                pool.write(volume, 0, vec![pattern(7, 8192)]).await.unwrap();
                world.sleep(Duration::from_millis(1)).await;
            }
        };
        let look = async {
            let (mut seen, mut since, mut longest) = (0, None, Duration::ZERO);
            while !is_done() {
                let (made, now) = (pool.stats().rebuilt_bytes, world.now());
                if made != seen {
                    let pause = since.replace(now).map_or(Duration::ZERO, |since| now.since(since));
                    longest = longest.max(pause);
                    seen = made;
                }
                world.sleep(Duration::from_millis(5)).await;
            }
            longest
        };
        let ((), longest) = join(host, look).await;
        pool.close().await.unwrap();
        longest
    })
}

#[test]
fn hosts_have_their_turn_beside_a_rebuild() {
    let (alone, beside) = (longest_pause(false), longest_pause(true));
    assert!(alone < Duration::from_millis(70), "{alone:?}");
    assert!(beside >= Duration::from_millis(80), "{beside:?}");
}

/// Writes small and large blocks on a data thread, so many at once, as many times as is said.
async fn written_on(
    (thread, at_once): (usize, usize),
    world: &dyn World,
    pool: &Arc<Pool>,
    volume: VolumeId,
    times: u64,
) {
    let (ended, end) = one_shot();
    let pool = pool.clone();
    let writes = async move {
        let write = async |at: u64| {
            let (small, large) = (8192 * (at % WRITES), at % WRITES * WRITE + 8 * MIB);
            pool.write(volume, small, vec![pattern(at % WRITES, 8192)]).await.unwrap();
            pool.write(volume, large, vec![pattern(at % WRITES, WRITE as usize)]).await.unwrap();
        };
        let writes: Vec<_> = (0..times).map(write).collect();
        stream::iter(writes).buffer_unordered(at_once).collect::<Vec<_>>().await;
        ended.send(());
    };
    world.spawn(Thread::Data(thread), Box::pin(writes));
    end.await.unwrap();
}

#[test]
fn hosts_write_on_while_drives_of_the_journal_are_lost() {
    for (seed, slabs) in (75..).zip((4..6).cycle()).take(4) {
        let rig = Rig::with_journal_bytes(seed, layout("mirror"), 12, (40 * MIB, slabs << 18));
        let pool = rig.open_with(PoolOptions { place_from: 16 << 10, ..options() });
        rig.run(|world| async move {
            let volume = create(&pool).await;
            for drive in 0..10 {
                let on = |thread| written_on((thread, 32), &*world, &pool, volume, 4 * WRITES);
                let lost = async {
                    world.sleep(Duration::from_millis(2 + seed % 7 * 3)).await;
                    assert!(pool.fail_drive(DriveIndex(drive)).await.unwrap(), "{drive}");
                };
                join(lost, join(on(0), on(1))).await;
                rebuilt(&*world, &pool).await;
                // A checkpoint names what was rebuilt.
                while pool.protection().tolerates == 0 {
                    world.sleep(Duration::from_millis(10)).await;
                }
            }
            // About as many are left as there are lanes: four.
            let on = |thread| written_on((thread, 32), &*world, &pool, volume, WRITES);
            join(on(0), on(1)).await;
            assert!(pool.stats().journal_extents <= slabs + 1);
            pool.close().await.unwrap();
        });
        rig.check();
    }
}

#[test]
fn hosts_write_on_when_most_drives_of_the_journal_were_lost() {
    for seed in 65..69 {
        // Seven extents are left, of which four lanes have one each: two data threads, for small writes and for large ones.
        let rig = Rig::with_journal_bytes(seed, layout("mirror"), 6, (40 * MIB, 7 << 18));
        let pool = rig.open_with(PoolOptions { place_from: 16 << 10, ..options() });
        let volume = rig.run(|world| async move {
            let volume = create(&pool).await;
            for drive in 0..4 {
                for thread in 0..2 {
                    written_on((thread, 4), &*world, &pool, volume, WRITES).await;
                }
                assert!(pool.fail_drive(DriveIndex(drive)).await.unwrap(), "{drive}");
                rebuilt(&*world, &pool).await;
            }
            let on = |thread| written_on((thread, 4), &*world, &pool, volume, 4 * WRITES);
            join(on(0), on(1)).await;
            assert_eq!(pool.stats().journal_extents, 7);
            pool.close().await.unwrap();
            volume
        });
        rig.check();
        let pool = rig.open();
        rig.run(|_| async move {
            for at in 0..WRITES {
                assert!(read(&pool, volume, at * 8192, 8192).await == pattern(at, 8192).to_vec(), "{at}");
            }
            pool.close().await.unwrap();
        });
    }
}
