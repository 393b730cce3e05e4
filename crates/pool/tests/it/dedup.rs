//! Volumes that are deduplicated.

use crate::rig::{Rig, create, fork, options, pattern, read, settle};
use quoin_base::{ByteRange, Compression, KIB, Layout, MIB, VolumeId};
use quoin_drive::Roles;
use quoin_pool::{Pool, PoolError, PoolOptions, Reduction, Transaction};
use quoin_world::{Slice, World};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

const BLOCK: u64 = 8 * KIB;

async fn create_with(pool: &Pool, compression: Compression) -> VolumeId {
    let volume = pool.next_volume_id();
    let tx = Transaction::new().create_volume(volume).deduplicate(volume, true);
    pool.commit(tx.compress(volume, compression)).await.unwrap();
    volume
}

/// With a buffer so large that there is time to look for every block.
fn open(rig: &Rig) -> Arc<Pool> {
    rig.open_with(PoolOptions { buffer_bytes: 4 * MIB, ..options() })
}

async fn deduplicated(pool: &Pool) -> VolumeId {
    create_with(pool, Compression::Off).await
}

/// One of so many contents.
fn content(tag: u64) -> Slice {
    pattern(tag, BLOCK as usize)
}

async fn write(pool: &Pool, volume: VolumeId, block: u64, tag: u64) {
    pool.write(volume, block * BLOCK, vec![content(tag)]).await.unwrap();
}

async fn write_all(pool: &Pool, volume: VolumeId, blocks: u64) {
    for block in 0..blocks {
        write(pool, volume, block, block).await;
    }
    pool.drain().await.unwrap();
}

async fn holds(pool: &Pool, volume: VolumeId, block: u64, tag: u64) {
    assert!(
        read(pool, volume, block * BLOCK, BLOCK).await == content(tag).to_vec(),
        "{volume}: block {block}"
    );
}

/// Blocks that there are, each once.
fn unique(pool: &Pool) -> u64 {
    pool.space().unique_bytes / BLOCK
}

async fn delete(world: &dyn World, pool: &Pool, volume: VolumeId) {
    pool.commit(Transaction::new().delete_volume(volume)).await.unwrap();
    settle(world, pool).await;
}

#[test]
fn equal_blocks_are_stored_once_until_the_last_of_them_goes() {
    const BLOCKS: u64 = 300;
    for compression in Compression::ALL {
        let rig = Rig::protected(1, Layout::NONE, 40 * MIB);
        let pool = open(&rig);
        rig.run(move |world| async move {
            let (one, other) = (create_with(&pool, compression).await, create_with(&pool, compression).await);
            write_all(&pool, one, BLOCKS).await;
            let live = pool.stats().live_bytes;
            write_all(&pool, other, BLOCKS).await;
            assert_eq!(pool.stats().deduplicated_blocks, BLOCKS);
            assert_eq!((unique(&pool), pool.space().copied_bytes), (BLOCKS, BLOCKS * BLOCK));
            assert!(pool.stats().live_bytes < live + 64 * KIB, "{live}: {:?}", pool.stats());
            // One is overwritten in part, the other deleted.
            for block in (0..BLOCKS).step_by(3) {
                write(&pool, one, block, 10_000 + block).await;
            }
            pool.drain().await.unwrap();
            assert_eq!(unique(&pool), BLOCKS + BLOCKS / 3);
            for block in 0..BLOCKS {
                holds(&pool, other, block, block).await;
                holds(&pool, one, block, if block % 3 == 0 { 10_000 + block } else { block }).await;
            }
            delete(&*world, &pool, other).await;
            assert_eq!((unique(&pool), pool.space().copied_bytes), (BLOCKS, 0));
            for block in 0..BLOCKS {
                holds(&pool, one, block, if block % 3 == 0 { 10_000 + block } else { block }).await;
            }
            delete(&*world, &pool, one).await;
            assert_eq!(unique(&pool), 0);
            pool.close().await.unwrap();
        });
        rig.check();
    }
}

#[test]
fn what_a_batch_frees_it_can_still_share() {
    let rig = Rig::new(2, 1, 40 * MIB);
    let pool = open(&rig);
    rig.run(|_| async move {
        let volume = deduplicated(&pool).await;
        write_all(&pool, volume, 100).await;
        // Every block moves on by one: the last reference to each goes in the batch that refers to it anew.
        for round in 1..20 {
            for block in 0..100 {
                write(&pool, volume, block, (block + round) % 100).await;
            }
            pool.drain().await.unwrap();
            assert_eq!(unique(&pool), 100, "round {round}");
            for block in 0..100 {
                holds(&pool, volume, block, (block + round) % 100).await;
            }
        }
        assert!(pool.stats().deduplicated_blocks >= 19 * 90, "{:?}", pool.stats());
        // A batch that brings the same many times, over what it was.
        for block in 0..100 {
            write(&pool, volume, block, 7).await;
        }
        pool.drain().await.unwrap();
        assert_eq!(unique(&pool), 1);
        pool.unmap(volume, ByteRange::new(0, 99 * BLOCK)).await.unwrap();
        pool.drain().await.unwrap();
        assert_eq!((unique(&pool), pool.space().copied_bytes), (1, 0));
        holds(&pool, volume, 99, 7).await;
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn what_is_written_again_as_it_is_changes_nothing() {
    let rig = Rig::new(3, 1, 120 * MIB);
    let pool = open(&rig);
    rig.run(|world| async move {
        let volume = deduplicated(&pool).await;
        write_all(&pool, volume, 200).await;
        let space = pool.space_of(&[volume].into());
        write_all(&pool, volume, 200).await;
        assert_eq!(pool.stats().deduplicated_blocks, 200);
        let kept = fork(&pool, volume).await;
        settle(&*world, &pool).await;
        write_all(&pool, volume, 200).await;
        assert_eq!(pool.stats().deduplicated_blocks, 400);
        assert_eq!((unique(&pool), pool.space().copied_bytes), (200, 0));
        // Nor does the volume count as one that shares what it has: all of it comes back with both.
        let both = pool.space_of(&[volume, kept].into());
        assert_eq!((both.freed_bytes, space.freed_bytes), (200 * BLOCK, 200 * BLOCK));
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn after_an_opening_contents_are_learnt_from_the_block_table() {
    let rig = Rig::new(4, 2, 60 * MIB);
    let pool = open(&rig);
    let one = rig.run(|_| async move {
        let one = deduplicated(&pool).await;
        write_all(&pool, one, 1500).await;
        one
    });
    for crashes in [true, false] {
        if crashes {
            rig.world.crash();
        }
        let pool = open(&rig);
        rig.run(move |world| async move {
            world.sleep(Duration::from_secs(1)).await;
            let other = deduplicated(&pool).await;
            write_all(&pool, other, 1500).await;
            assert_eq!(pool.stats().deduplicated_blocks, 1500, "{:?}", pool.stats());
            assert_eq!(unique(&pool), 1500);
            holds(&pool, other, 1499, 1499).await;
            holds(&pool, one, 1499, 1499).await;
            pool.close().await.unwrap();
        });
        rig.check();
    }
}

#[test]
fn only_volumes_that_are_deduplicated_share_and_it_can_be_changed_at_any_time() {
    let rig = Rig::new(5, 1, 40 * MIB);
    let pool = open(&rig);
    let (on, off) = rig.run(|_| async move {
        let (on, off) = (deduplicated(&pool).await, create(&pool).await);
        assert_eq!((pool.is_deduplicated(on), pool.is_deduplicated(off)), (Some(true), Some(false)));
        write_all(&pool, off, 50).await;
        write_all(&pool, on, 50).await;
        assert_eq!((unique(&pool), pool.stats().deduplicated_blocks), (100, 0));
        let set = |volume, is_on| pool.commit(Transaction::new().deduplicate(volume, is_on));
        set(off, true).await.unwrap();
        set(on, false).await.unwrap();
        for block in 0..50 {
            write(&pool, off, 100 + block, block).await;
            write(&pool, on, 100 + block, block).await;
        }
        pool.drain().await.unwrap();
        assert_eq!((unique(&pool), pool.stats().deduplicated_blocks), (150, 50));
        let forked = fork(&pool, off).await;
        assert_eq!(pool.is_deduplicated(forked), Some(true));
        pool.close().await.unwrap();
        (on, off)
    });
    rig.check();
    let pool = open(&rig);
    assert_eq!((pool.is_deduplicated(on), pool.is_deduplicated(off)), (Some(false), Some(true)));
    rig.run(|_| async move { pool.close().await.unwrap() });
}

#[test]
fn a_block_is_shared_only_where_it_is_laid_out_as_the_volume_wants_it() {
    let rig = Rig::of_journal(
        6,
        "mirror".parse().unwrap(),
        &[Roles { journal: true, data: true }; 4],
        3,
        160 * MIB,
    );
    let pool = open(&rig);
    rig.run(|world| async move {
        let (plain, safe) = (deduplicated(&pool).await, deduplicated(&pool).await);
        let three: Layout = "mirror-3".parse().unwrap();
        pool.commit(Transaction::new().lay_out(safe, Some(three))).await.unwrap();
        write_all(&pool, plain, 100).await;
        write_all(&pool, safe, 100).await;
        assert_eq!((unique(&pool), pool.stats().deduplicated_blocks), (200, 0));
        // Two that share are laid out as the one that wants more of it.
        let third = deduplicated(&pool).await;
        write_all(&pool, third, 100).await;
        assert_eq!((unique(&pool), pool.stats().deduplicated_blocks), (200, 100));
        let own = pool.layout_use()[0].layout;
        let data = |pool: &Pool, layout: Layout| {
            let used = pool.layout_use();
            used.iter().filter(|used| used.layout == layout).map(|used| used.blocks).sum::<u64>()
        };
        assert_eq!((data(&pool, own), data(&pool, three)), (100, 100));
        pool.commit(Transaction::new().lay_out(third, Some(three))).await.unwrap();
        for _ in 0..1000 {
            if data(&pool, own) == 0 {
                break;
            }
            world.sleep(Duration::from_millis(20)).await;
        }
        assert_eq!((data(&pool, own), data(&pool, three)), (0, 200));
        // And stay so.
        pool.commit(Transaction::new().lay_out(third, None)).await.unwrap();
        world.sleep(Duration::from_secs(2)).await;
        assert_eq!((data(&pool, own), data(&pool, three)), (0, 200));
        pool.close().await.unwrap();
    });
    rig.check();
}

/// Writes blocks of a volume until the pool is full; how many.
async fn fill(pool: &Pool, volume: VolumeId) -> u64 {
    for block in 0.. {
        match pool.write(volume, block * BLOCK, vec![content(1_000_000 + block)]).await {
            Ok(()) => {}
            Err(PoolError::NoSpace) => return block,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("a pool is finite")
}

#[test]
fn a_promise_is_kept_though_all_of_it_is_shared() {
    for seed in 0..4 {
        let rig = Rig::new(10 + seed, 2, 60 * MIB);
        let pool = open(&rig);
        rig.run(move |_| async move {
            const BLOCKS: u64 = 600;
            let (thick, thin) = (deduplicated(&pool).await, deduplicated(&pool).await);
            pool.commit(Transaction::new().reserve(thick, BLOCKS * BLOCK)).await.unwrap();
            let (first, second) = if seed % 2 == 0 { (thick, thin) } else { (thin, thick) };
            write_all(&pool, first, BLOCKS).await;
            write_all(&pool, second, BLOCKS).await;
            assert_eq!(pool.stats().deduplicated_blocks, BLOCKS);
            // All that is shared is promised once more.
            assert_eq!(pool.stats().reserved_unmapped_bytes, BLOCKS * BLOCK);
            let other = create(&pool).await;
            assert!(fill(&pool, other).await > 100);
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut held: BTreeMap<u64, u64> = (0..BLOCKS).map(|block| (block, block)).collect();
            for round in 0..4 * BLOCKS {
                let block = rng.random_range(0..BLOCKS);
                // Some of it the same as elsewhere in the volume.
                let tag = 10_000 + if round % 3 == 0 { round % 50 } else { round };
                write(&pool, thick, block, tag).await;
                held.insert(block, tag);
            }
            pool.drain().await.unwrap();
            for (block, tag) in held {
                holds(&pool, thick, block, tag).await;
                holds(&pool, thin, block, block).await;
            }
            pool.close().await.unwrap();
        });
        rig.check();
    }
}

#[test]
fn a_full_pool_takes_overwrites_of_what_is_deduplicated() {
    for seed in 0..4 {
        let rig = Rig::new(20 + seed, 2, 28 * MIB);
        let pool = open(&rig);
        rig.run(move |_| async move {
            let volume = deduplicated(&pool).await;
            let blocks = fill(&pool, volume).await;
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut held: BTreeMap<u64, u64> = (0..blocks).map(|block| (block, 1_000_000 + block)).collect();
            let mut refused = 0;
            for round in 0..3 * blocks {
                let block = rng.random_range(0..blocks);
                // New, or what lies elsewhere.
                let tag = if round % 2 == 0 { 10_000 + round } else { held[&rng.random_range(0..blocks)] };
                match pool.write(volume, block * BLOCK, vec![content(tag)]).await {
                    Ok(()) => drop(held.insert(block, tag)),
                    // What it overwrites is shared, and does not come free.
                    Err(PoolError::NoSpace) => refused += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(refused < blocks, "{refused} of {blocks}");
            pool.drain().await.unwrap();
            for (block, tag) in held {
                holds(&pool, volume, block, tag).await;
            }
            pool.close().await.unwrap();
        });
        rig.check();
    }
}

/// Until the reduction of a volume has ended.
async fn reduce(world: &dyn World, pool: &Pool, volume: VolumeId) -> Reduction {
    pool.reduce(volume).unwrap();
    loop {
        let reduction = pool.reduction(volume).unwrap();
        if reduction.is_done {
            return reduction;
        }
        world.sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn what_was_there_before_is_reduced_on_request() {
    for compression in [Compression::Off, Compression::Lz4, Compression::Zstd] {
        let rig = Rig::new(30, 1, 120 * MIB);
        let pool = open(&rig);
        rig.run(move |world| async move {
            const BLOCKS: u64 = 700;
            let (one, other) = (create(&pool).await, create(&pool).await);
            assert!(matches!(pool.reduce(one), Err(PoolError::Refused(_))));
            write_all(&pool, one, BLOCKS).await;
            let snapshot = fork(&pool, one).await;
            settle(&*world, &pool).await;
            // Half of it is the volume's own from now on.
            for block in 0..BLOCKS / 2 {
                write(&pool, one, block, block).await;
            }
            write_all(&pool, other, BLOCKS).await;
            assert_eq!(unique(&pool), 2 * BLOCKS + BLOCKS / 2);
            let before = pool.stats().live_bytes;
            for volume in [one, other] {
                let tx = Transaction::new().deduplicate(volume, true).compress(volume, compression);
                pool.commit(tx).await.unwrap();
            }
            let first = reduce(&*world, &pool, one).await;
            assert_eq!((first.met_blocks, first.total_blocks), (BLOCKS + BLOCKS / 2, BLOCKS + BLOCKS / 2));
            assert!(!first.is_incomplete);
            let second = reduce(&*world, &pool, other).await;
            // What the snapshot has was met last, so that its blocks have no twins by then but those of the other volume do.
            assert_eq!((first.deduplicated_blocks, second.deduplicated_blocks), (0, BLOCKS));
            pool.checkpoint().await.unwrap();
            assert_eq!(unique(&pool), BLOCKS + BLOCKS / 2);
            let saved = first.saved_bytes + second.saved_bytes;
            let now = pool.stats().live_bytes;
            assert!(before - now >= saved * 9 / 10 && now < before * 7 / 10, "{before} {now} {saved}");
            assert_eq!(first.compressed_blocks > 0, compression != Compression::Off);
            // A second time there is nothing to do.
            let again = reduce(&*world, &pool, one).await;
            assert_eq!((again.deduplicated_blocks, again.compressed_blocks, again.saved_bytes), (0, 0, 0));
            for block in 0..BLOCKS {
                for volume in [one, other, snapshot] {
                    holds(&pool, volume, block, block).await;
                }
            }
            pool.close().await.unwrap();
        });
        rig.check();
    }
}

#[test]
fn reduction_goes_on_beside_hosts_forks_and_deletions() {
    for seed in 0..6 {
        let rig = Rig::new(40 + seed, 2, 120 * MIB);
        let pool = open(&rig);
        rig.run(move |world| async move {
            const BLOCKS: u64 = 600;
            let volume = create(&pool).await;
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut held: BTreeMap<u64, u64> = BTreeMap::new();
            for block in 0..BLOCKS {
                let tag = rng.random_range(0..200);
                write(&pool, volume, block, tag).await;
                held.insert(block, tag);
            }
            pool.drain().await.unwrap();
            pool.commit(Transaction::new().deduplicate(volume, true)).await.unwrap();
            pool.reduce(volume).unwrap();
            let mut forks: Vec<(VolumeId, BTreeMap<u64, u64>)> = Vec::new();
            for round in 0..300 {
                let (block, tag) = (rng.random_range(0..BLOCKS), rng.random_range(0..200));
                write(&pool, volume, block, tag).await;
                held.insert(block, tag);
                match round % 40 {
                    10 => forks.push((fork(&pool, volume).await, held.clone())),
                    20 if forks.len() > 1 => {
                        let (gone, _) = forks.remove(rng.random_range(0..forks.len()));
                        pool.commit(Transaction::new().delete_volume(gone)).await.unwrap();
                    }
                    30 => pool.reduce(volume).unwrap(),
                    _ => world.sleep(Duration::from_micros(rng.random_range(0..2000))).await,
                }
            }
            settle(&*world, &pool).await;
            forks.push((volume, held));
            for (volume, held) in forks {
                for (block, tag) in held {
                    holds(&pool, volume, block, tag).await;
                }
            }
            pool.close().await.unwrap();
        });
        rig.check();
    }
}
