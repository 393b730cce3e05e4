//! Forks: snapshots, clones, restores; what they hold, what they cost, and what deleting them gives back.

use crate::rig::{Rig, create, fork, options, pattern, read, settle};
use quoin_base::{ByteRange, MIB, VolumeId};
use quoin_pool::{Pool, PoolError, PoolOptions, Transaction};
use quoin_world::{Thread, World, one_shot};
use std::time::Duration;

/// Where slab 0 begins.
const SLABS_START_BYTES: u64 = 2 * MIB;

const BLOCK: u64 = 8192;

async fn write(pool: &Pool, volume: VolumeId, block: u64, tag: u64) {
    pool.write(volume, block * BLOCK, vec![pattern(tag, BLOCK as usize)]).await.unwrap();
}

async fn holds(pool: &Pool, volume: VolumeId, block: u64, tag: u64) -> bool {
    read(pool, volume, block * BLOCK, BLOCK).await == *pattern(tag, BLOCK as usize)
}

#[test]
fn a_fork_holds_what_was_there_and_both_go_on() {
    let rig = Rig::new(1, 2, 16 * MIB);
    let pool = rig.open();
    let (a, snapshot, clone) = rig.run(|_| async move {
        let a = create(&pool).await;
        for block in 0..8 {
            write(&pool, a, block, block).await;
        }
        pool.drain().await.unwrap();
        // One block destaged, one buffered, one of both.
        write(&pool, a, 1, 101).await;
        pool.write(a, 2 * BLOCK + 512, vec![pattern(102, 512)]).await.unwrap();
        let snapshot = fork(&pool, a).await;
        write(&pool, a, 1, 201).await;
        pool.write(a, 2 * BLOCK + 1024, vec![pattern(202, 512)]).await.unwrap();
        pool.unmap(a, ByteRange::new(3 * BLOCK, BLOCK)).await.unwrap();
        let clone = fork(&pool, snapshot).await;
        write(&pool, clone, 4, 304).await;
        (a, snapshot, clone)
    });
    let check = async move |pool: &Pool| {
        assert!(holds(pool, snapshot, 1, 101).await && holds(pool, a, 1, 201).await);
        assert!(holds(pool, snapshot, 3, 3).await && holds(pool, clone, 3, 3).await);
        assert_eq!(read(pool, a, 3 * BLOCK, BLOCK).await, [0; 8192]);
        assert!(
            holds(pool, clone, 4, 304).await
                && holds(pool, snapshot, 4, 4).await
                && holds(pool, a, 4, 4).await
        );
        for (volume, third) in
            [(a, pattern(202, 512)), (snapshot, pattern(2, BLOCK as usize).slice(1024..1024 + 512))]
        {
            assert_eq!(read(pool, volume, 2 * BLOCK, 512).await, pattern(2, BLOCK as usize)[..512]);
            assert_eq!(read(pool, volume, 2 * BLOCK + 512, 512).await, *pattern(102, 512));
            assert_eq!(read(pool, volume, 2 * BLOCK + 1024, 512).await, *third);
        }
        let extents = pool.allocation(a, ByteRange::new(0, 8 * BLOCK), 9).await.unwrap();
        assert_eq!(extents.iter().map(|e| e.mapped).collect::<Vec<_>>(), [true, false, true]);
    };
    // From buffer and journal, and again from segments.
    rig.world.crash();
    rig.check();
    let pool = rig.open();
    rig.run(move |_| async move {
        check(&pool).await;
        pool.drain().await.unwrap();
        check(&pool).await;
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_restore_and_a_refresh_take_over_the_content_and_give_back_the_old() {
    let rig = Rig::new(2, 2, 16 * MIB);
    let pool = rig.open();
    rig.run(|world| async move {
        let (a, b) = (create(&pool).await, create(&pool).await);
        for block in 0..16 {
            write(&pool, a, block, block).await;
            write(&pool, b, block, 50 + block).await;
        }
        let (of_a, of_b) = (pool.next_volume_id(), pool.next_volume_id());
        pool.commit(Transaction::new().fork(a, of_a).fork(b, of_b)).await.unwrap();
        write(&pool, a, 3, 103).await;
        write(&pool, b, 3, 153).await;
        pool.commit(Transaction::new().fork(of_a, a)).await.unwrap();
        assert!(
            holds(&pool, a, 3, 3).await && holds(&pool, b, 3, 153).await && holds(&pool, of_b, 3, 53).await
        );
        write(&pool, a, 4, 104).await;
        pool.commit(Transaction::new().fork(b, of_b)).await.unwrap();
        assert!(
            holds(&pool, of_b, 3, 153).await
                && holds(&pool, of_a, 4, 4).await
                && holds(&pool, a, 4, 104).await
        );
        settle(&*world, &pool).await;
        assert_eq!(pool.stats().forks, 3, "what is of one moment counts once");
        // 16 of each, one of a since the restore, two of b with what was there before.
        assert_eq!(pool.stats().live_bytes, (16 + 1 + 16) * BLOCK);
        assert!(matches!(
            pool.commit(Transaction::new().fork(a, a)).await,
            Err(PoolError::Refused(why)) if why.contains("into itself")
        ));
        let nobody = VolumeId(999);
        let refused = pool.commit(Transaction::new().fork(nobody, a)).await;
        assert!(matches!(refused, Err(PoolError::NoSuchVolume(volume)) if volume == nobody));
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_chain_of_a_hundred_holds_every_link_and_gives_all_of_it_back() {
    let little = PoolOptions { metadata_bytes: 64 << 10, ..options() };
    for options in [options(), little] {
        let rig = Rig::new(3, 2, 24 * MIB);
        let pool = rig.open_with(options.clone());
        let chain = rig.run(|_| async move {
            let mut chain = vec![create(&pool).await];
            for link in 0..100u64 {
                let end = chain[chain.len() - 1];
                write(&pool, end, link % 7, link).await;
                write(&pool, end, 1000 + link, link).await;
                chain.push(fork(&pool, end).await);
            }
            pool.close().await.unwrap();
            chain
        });
        rig.check();
        let pool = rig.open_with(options);
        rig.run(|world| async move {
            for (link, &volume) in (0u64..).zip(&chain) {
                let last = link.min(99);
                assert!(holds(&pool, volume, last % 7, last).await, "link {link}");
                assert!(holds(&pool, volume, 1000 + last, last).await, "link {link}");
                assert_eq!(read(&pool, volume, (1001 + last) * BLOCK, BLOCK).await, [0; 8192], "link {link}");
            }
            // From the middle outwards.
            for i in 0..chain.len() {
                let at = (50 + if i % 2 == 0 { i / 2 } else { chain.len() - 1 - i / 2 }) % chain.len();
                pool.commit(Transaction::new().delete_volume(chain[at])).await.unwrap();
            }
            settle(&*world, &pool).await;
            let stats = pool.stats();
            assert_eq!((stats.live_bytes, stats.layers, stats.shared_bytes), (0, 0, 0));
            pool.close().await.unwrap();
        });
        rig.check();
    }
}

/// All orders of all indices below `count`.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(count - 1);
    shorter.iter().flat_map(|o| (0..count).map(|at| [&o[..at], &[count - 1], &o[at..]].concat())).collect()
}

#[test]
fn deleted_in_any_order_each_gives_back_what_it_said() {
    for (n, order) in orders(4).into_iter().enumerate() {
        let rig = Rig::new(100 + n as u64, 1, 16 * MIB);
        let pool = rig.open();
        let volumes = rig.run(|_| async move {
            let a = create(&pool).await;
            for block in 0..20 {
                write(&pool, a, block, block).await;
            }
            let b = fork(&pool, a).await;
            for block in 0..5 {
                write(&pool, a, block, 100 + block).await;
            }
            let c = fork(&pool, a).await;
            for block in 3..8 {
                write(&pool, b, block, 200 + block).await;
                write(&pool, a, block, 300 + block).await;
            }
            let d = fork(&pool, b).await;
            write(&pool, d, 0, 400).await;
            pool.unmap(c, ByteRange::new(0, 4 * BLOCK)).await.unwrap();
            pool.close().await.unwrap();
            [a, b, c, d]
        });
        // Interrupted and gone on with, again and again.
        for &at in &order {
            let (pool, order) = (rig.open(), order.clone());
            rig.run(move |world| async move {
                settle(&*world, &pool).await;
                let (before, volume) = (pool.stats().live_bytes, volumes[at]);
                let freed = pool.volume_stats(volume).unwrap().freed_by_delete_bytes;
                pool.commit(Transaction::new().delete_volume(volume)).await.unwrap();
                settle(&*world, &pool).await;
                assert_eq!(before - pool.stats().live_bytes, freed, "{order:?}, volume {volume}");
                pool.close().await.unwrap();
            });
            rig.check();
        }
        let pool = rig.open();
        assert_eq!((pool.stats().live_bytes, pool.stats().layers), (0, 0), "{order:?}");
    }
}

#[test]
fn giving_back_goes_on_after_a_crash_at_any_moment() {
    for cut_us in (0..40).map(|n| n * 731) {
        let rig = Rig::new(200 + cut_us, 1, 16 * MIB);
        let pool = rig.open();
        let (kept, block_count) = rig.run(|world| async move {
            let a = create(&pool).await;
            for block in 0..40 {
                write(&pool, a, block * 3, block).await;
            }
            let b = fork(&pool, a).await;
            for block in 0..20 {
                write(&pool, a, block * 3, 100 + block).await;
            }
            let c = fork(&pool, a).await;
            pool.drain().await.unwrap();
            write(&pool, a, 0, 500).await;
            pool.commit(Transaction::new().delete_volume(b)).await.unwrap();
            pool.commit(Transaction::new().delete_volume(c)).await.unwrap();
            let checkpoints = pool.clone();
            let (sender, done) = one_shot();
            world.spawn(
                Thread::Background,
                Box::pin(async move {
                    let _ = checkpoints.checkpoint().await;
                    sender.send(());
                }),
            );
            world.sleep(Duration::from_micros(cut_us)).await;
            drop(done);
            (a, 40)
        });
        rig.world.crash();
        rig.check();
        let pool = rig.open();
        rig.run(|world| async move {
            settle(&*world, &pool).await;
            assert_eq!(pool.stats().live_bytes, block_count * BLOCK, "cut after {cut_us} us");
            assert!(holds(&pool, kept, 0, 500).await && holds(&pool, kept, 3, 101).await);
            assert!(holds(&pool, kept, 39 * 3, 39).await);
            pool.close().await.unwrap();
        });
        rig.check();
    }
}

#[test]
fn a_thick_volume_keeps_its_promise_through_forks() {
    let rig = Rig::new(5, 2, 16 * MIB);
    let pool = rig.open();
    rig.run(|world| async move {
        let (thick, filler) = (create(&pool).await, create(&pool).await);
        let blocks = 100;
        pool.commit(Transaction::new().reserve(thick, blocks * BLOCK)).await.unwrap();
        for block in 0..blocks {
            write(&pool, thick, block, block).await;
        }
        let snapshot = fork(&pool, thick).await;
        pool.drain().await.unwrap();
        // All of it can be written once more.
        assert_eq!(pool.stats().reserved_unmapped_bytes, blocks * BLOCK);
        let mut filled = 0;
        while pool.write(filler, filled * BLOCK, vec![pattern(filled, BLOCK as usize)]).await.is_ok() {
            filled += 1;
        }
        for block in 0..blocks {
            write(&pool, thick, block, 1000 + block).await;
        }
        // Now there is no room for another promise of that size.
        let target = pool.next_volume_id();
        let refused = pool.commit(Transaction::new().fork(thick, target)).await;
        assert!(matches!(refused, Err(PoolError::CannotReserve { .. })), "{refused:?}");
        assert!(pool.volume_stats(target).is_none() && holds(&pool, snapshot, 7, 7).await);
        pool.commit(Transaction::new().delete_volume(snapshot)).await.unwrap();
        settle(&*world, &pool).await;
        assert!(holds(&pool, thick, 7, 1007).await);
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn forks_faster_than_destage_wait_for_it() {
    let rig = Rig::new(6, 1, 16 * MIB);
    let pool = rig.open_with(PoolOptions { destage_after: Duration::from_secs(60), ..options() });
    rig.run(|_| async move {
        let a = create(&pool).await;
        let mut snapshots = Vec::new();
        for round in 0..40u64 {
            pool.write(a, round % 16 * 512, vec![pattern(round, 512)]).await.unwrap();
            snapshots.push(fork(&pool, a).await);
        }
        for (round, &snapshot) in (0u64..).zip(&snapshots) {
            for sector in 0..=round.min(15) {
                let newest = round - (round - sector) % 16;
                let found = read(&pool, snapshot, sector * 512, 512).await;
                assert_eq!(found, *pattern(newest, 512), "round {round}, sector {sector}");
            }
        }
        pool.close().await.unwrap();
    });
    rig.check();
}

/// What is written over a part of sectors that cannot be read any more freezes nothing.
#[test]
fn a_fork_and_a_copy_do_not_wait_for_ever_for_what_cannot_be_read() {
    const JOURNAL_BYTES: u64 = 2 * MIB;
    const DRIVE_BYTES: u64 = 16 * MIB;
    for seed in 0..3 {
        let rig = Rig::new(seed, 1, DRIVE_BYTES);
        let (pool, disk) = (rig.open(), rig.disks[0].clone());
        rig.run(|_| async move {
            let volume = create(&pool).await;
            pool.write(volume, 0, vec![pattern(1, 4 * BLOCK as usize)]).await.unwrap();
            pool.drain().await.unwrap();
            let first = SLABS_START_BYTES + JOURNAL_BYTES;
            disk.spoil(ByteRange::from(first..DRIVE_BYTES));
            // Of the first block a part: the rest of it is nowhere else.
            pool.write(volume, 512, vec![pattern(2, 512)]).await.unwrap();
            pool.write(volume, 3 * BLOCK, vec![pattern(3, BLOCK as usize)]).await.unwrap();
            for _ in 0..3 {
                pool.drain().await.unwrap();
            }
            // While nobody waits for it, it stays where nothing of it is lost.
            assert_eq!((pool.stats().lost_blocks, pool.stats().buffered_bytes), (0, BLOCK));
            assert_eq!(read(&pool, volume, 512, 512).await, *pattern(2, 512));
            let snapshot = fork(&pool, volume).await;
            pool.settle_fork(snapshot).await.unwrap();
            assert_eq!((pool.stats().lost_blocks, pool.stats().buffered_bytes), (1, 0));
            for volume in [volume, snapshot] {
                let lost = pool.read(volume, ByteRange::new(0, 512)).await;
                assert!(matches!(lost, Err(PoolError::Medium { .. })), "{lost:?}");
                let intact = read(&pool, volume, 3 * BLOCK, BLOCK).await;
                assert_eq!(intact, *pattern(3, BLOCK as usize));
            }
            // What is written anew is whole again; a copy waits no longer than a fork.
            pool.write(volume, BLOCK + 512, vec![pattern(4, 512)]).await.unwrap();
            pool.settle_copies(Duration::ZERO).await.unwrap();
            assert_eq!(pool.stats().lost_blocks, 2);
            pool.write(volume, 0, vec![pattern(5, 2 * BLOCK as usize)]).await.unwrap();
            pool.drain().await.unwrap();
            assert_eq!(read(&pool, volume, 0, 2 * BLOCK).await, *pattern(5, 2 * BLOCK as usize));
            pool.close().await.unwrap();
        });
    }
}
