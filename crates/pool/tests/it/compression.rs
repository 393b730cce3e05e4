//! Volumes that are compressed.

use crate::rig::{Rig, create, fork, options, pattern, read, settle};
use futures_util::{FutureExt, StreamExt, stream};
use quoin_base::{ByteRange, Compression, DriveIndex, KIB, Layout, MIB, VolumeId};
use quoin_pool::{Pool, PoolOptions, Scrub, ScrubCounts, ScrubPosition, Transaction};
use quoin_world::{Slice, World};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{collections::BTreeMap, time::Duration};

const BLOCK: u64 = 8 * KIB;

async fn create_with(pool: &Pool, compression: Compression) -> VolumeId {
    let volume = pool.next_volume_id();
    pool.commit(Transaction::new().create_volume(volume).compress(volume, compression)).await.unwrap();
    volume
}

/// Content that compresses well, a little, hardly, or not at all; or is all zeroes.
fn content(kind: u64, tag: u64, len: u64) -> Vec<u8> {
    let mut rng = ChaCha8Rng::seed_from_u64(tag);
    let mut bytes = vec![0; len as usize];
    match kind {
        0 => {}
        1 => bytes.fill(tag as u8 | 1),
        2 => bytes = pattern(tag, len as usize).to_vec(),
        // Some part of it.
        3 => {
            let from = rng.random_range(0..len as usize / 2);
            rng.fill(&mut bytes[from..]);
        }
        _ => rng.fill(&mut bytes[..]),
    }
    bytes
}

/// A block that takes about an eighth.
fn squeezable(tag: u64) -> Slice {
    let mut bytes = vec![0; BLOCK as usize];
    bytes[..2 * KIB as usize].copy_from_slice(&pattern(tag, 2 * KIB as usize));
    Slice::copy_of(&bytes)
}

/// What a volume is to hold.
#[derive(Default)]
struct Model(BTreeMap<u64, u8>);

impl Model {
    async fn write(&mut self, pool: &Pool, volume: VolumeId, offset: u64, bytes: Vec<u8>) {
        pool.write(volume, offset, vec![Slice::copy_of(&bytes)]).await.unwrap();
        self.0.extend((offset..).zip(bytes));
    }

    /// Writes whole blocks and parts of them, of all kinds of content.
    async fn write_some(&mut self, pool: &Pool, volume: VolumeId, seed: u64, blocks: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for _ in 0..blocks {
            let (block, tag, kind) =
                (rng.random_range(0..blocks), rng.random_range(1..1 << 30), rng.random_range(0..5));
            let (at, len) = match rng.random_range(0..4) {
                0 => (rng.random_range(0..8) * KIB, KIB),
                1 => (0, 4 * BLOCK),
                _ => (0, BLOCK),
            };
            self.write(pool, volume, block * BLOCK + at, content(kind, tag, len)).await;
        }
    }

    async fn assert_is(&self, pool: &Pool, volume: VolumeId) {
        let end = self.0.keys().last().map_or(0, |last| last + 1).next_multiple_of(BLOCK);
        for at in (0..end).step_by(BLOCK as usize) {
            let wanted: Vec<u8> =
                (at..at + BLOCK).map(|at| self.0.get(&at).copied().unwrap_or_default()).collect();
            assert!(read(pool, volume, at, BLOCK).await == wanted, "{volume}: block {}", at / BLOCK);
        }
    }
}

fn layout(text: &str) -> Layout {
    text.parse().unwrap()
}

const LAYOUTS: [&str; 4] = ["none", "mirror", "raid5", "raid6"];

#[test]
fn what_is_written_comes_back_however_it_is_stored() {
    for (seed, text) in (1..).zip(LAYOUTS) {
        let rig = Rig::protected(seed, layout(text), 40 * MIB);
        let pool = rig.open();
        let models = rig.run(|_| async move {
            let mut models = Vec::new();
            for compression in Compression::ALL {
                let (volume, mut model) = (create_with(&pool, compression).await, Model::default());
                for round in 0..3 {
                    model.write_some(&pool, volume, seed * 100 + round, 300).await;
                    pool.drain().await.unwrap();
                }
                model.assert_is(&pool, volume).await;
                models.push((volume, model));
            }
            let stats = pool.stats();
            assert!(stats.compressed_blocks > 300 && stats.incompressible_blocks > 100, "{text}: {stats:?}");
            assert!(stats.compressed_bytes < stats.compressed_blocks * BLOCK / 2, "{text}: {stats:?}");
            models
        });
        // The journal, and checkpoints, bring it back; then everything is as it was closed.
        for _ in 0..2 {
            let pool = rig.open();
            let models = &models;
            let copies: Vec<_> =
                models.iter().map(|(volume, model)| (*volume, Model(model.0.clone()))).collect();
            rig.run(|_| async move {
                for (volume, model) in &copies {
                    model.assert_is(&pool, *volume).await;
                }
                pool.close().await.unwrap();
            });
            rig.check();
        }
    }
}

#[test]
fn compressed_data_takes_less_so_that_more_of_it_fits() {
    let rig = Rig::new(9, 1, 24 * MIB);
    let pool = rig.open();
    rig.run(|_| async move {
        let volume = create_with(&pool, Compression::Lz4).await;
        // More than the drive has.
        // More than the drive has.
        let blocks = 60 * MIB / BLOCK;
        for block in 0..blocks {
            pool.write(volume, block * BLOCK, vec![squeezable(block)]).await.unwrap();
        }
        pool.drain().await.unwrap();
        // Random overwrites of it, so that the cleaner has to work in a full pool.
        let mut rng = ChaCha8Rng::seed_from_u64(9);
        let mut written: BTreeMap<u64, u64> = BTreeMap::new();
        for round in 0..20_000 {
            let block = rng.random_range(0..blocks);
            written.insert(block, (1 << 20) + round);
            pool.write(volume, block * BLOCK, vec![squeezable((1 << 20) + round)]).await.unwrap();
        }
        pool.drain().await.unwrap();
        assert!(pool.stats().cleaned_bytes > 0, "{:?}", pool.stats());
        for block in 0..blocks {
            let tag = written.get(&block).copied().unwrap_or(block);
            assert!(
                read(&pool, volume, block * BLOCK, BLOCK).await == squeezable(tag).to_vec(),
                "block {block}"
            );
        }
        pool.close().await.unwrap();
    });
    rig.check();
}

/// Blocks that take next to nothing: rows with many heads, and a pool that the cleaner does not go round and round in.
#[test]
fn blocks_that_take_next_to_nothing_are_named_by_many_heads() {
    for (seed, text) in (20..).zip(LAYOUTS) {
        let rig = Rig::protected(seed, layout(text), 24 * MIB);
        let pool = rig.open();
        let volume = rig.run(|_| async move {
            let volume = create_with(&pool, Compression::Zstd).await;
            for block in 0..20_000 {
                pool.write(volume, block * BLOCK, vec![Slice::copy_of(&content(1, block, BLOCK))])
                    .await
                    .unwrap();
            }
            pool.drain().await.unwrap();
            let stats = pool.stats();
            assert_eq!(stats.compressed_bytes, stats.compressed_blocks * 256, "{text}");
            // What is not overwritten is scattered: the cleaner gathers it.
            for block in (0..20_000).filter(|block| block % 5 > 0) {
                pool.unmap(volume, ByteRange::new(block * BLOCK, BLOCK)).await.unwrap();
            }
            pool.drain().await.unwrap();
            let scrub = Scrub::new(pool.clone(), ScrubPosition::default(), ScrubCounts::default(), 0);
            assert!(scrub.run().await.unwrap());
            assert_eq!((pool.take_damage(), scrub.notes()), (Vec::new(), Vec::new()), "{text}");
            assert_eq!(scrub.progress().1.repaired.total(), 0, "{text}");
            pool.close().await.unwrap();
            volume
        });
        rig.check();
        let pool = rig.open();
        let parity = layout(text).parity();
        rig.run(|world| async move {
            for drive in 0..parity {
                assert!(pool.fail_drive(DriveIndex(drive.into())).await.unwrap());
            }
            settle(&*world, &pool).await;
            for block in 0..20_000 {
                let kind = if block % 5 > 0 { 0 } else { 1 };
                assert!(
                    read(&pool, volume, block * BLOCK, BLOCK).await == content(kind, block, BLOCK),
                    "{text}: {block}"
                );
            }
            let _ = pool.close().await;
        });
    }
}

#[test]
fn what_was_written_before_is_compressed_when_the_cleaner_moves_it() {
    for (seed, compression) in [(30, Compression::Lz4), (31, Compression::Zstd)] {
        let rig = Rig::new(seed, 1, 24 * MIB);
        let pool = rig.open();
        rig.run(|_| async move {
            let kept = if compression == Compression::Zstd { Compression::Lz4 } else { Compression::Off };
            let volume = create_with(&pool, kept).await;
            let blocks = 8 * MIB / BLOCK;
            for block in 0..blocks {
                pool.write(volume, block * BLOCK, vec![pattern(block, BLOCK as usize)]).await.unwrap();
            }
            pool.drain().await.unwrap();
            let before = pool.stats();
            pool.commit(Transaction::new().compress(volume, compression)).await.unwrap();
            // Every other block of it goes, and another volume leaves so little room that segments are cleaned.
            for block in 0..blocks / 2 {
                let tag = (8 << 20) + block;
                pool.write(volume, 2 * block * BLOCK, vec![pattern(tag, BLOCK as usize)]).await.unwrap();
            }
            let other = create(&pool).await;
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            for round in 0..20_000 {
                if pool.stats().recompressed_blocks > 100 {
                    break;
                }
                let free = pool.stats().free_bytes;
                let room = if free > 2 * MIB { round } else { rng.random_range(0..round) };
                pool.write(other, room * BLOCK, vec![pattern(round, BLOCK as usize)]).await.unwrap();
            }
            pool.drain().await.unwrap();
            let stats = pool.stats();
            assert!(stats.recompressed_blocks > 100, "{compression}: {before:?} {stats:?}");
            for block in 0..blocks {
                let tag = if block % 2 == 0 { (8 << 20) + block / 2 } else { block };
                let held = read(&pool, volume, block * BLOCK, BLOCK).await;
                assert!(held == pattern(tag, BLOCK as usize).to_vec(), "{compression}: {block}");
            }
            pool.close().await.unwrap();
        });
        rig.check();
    }
}

#[test]
fn compression_outlives_a_crash_and_goes_to_forks() {
    let rig = Rig::new(40, 1, 24 * MIB);
    let pool = rig.open();
    let (volume, copy) = rig.run(|_| async move {
        let volume = create_with(&pool, Compression::Lz4).await;
        (volume, fork(&pool, volume).await)
    });
    // Of the second opening the checkpoint says it, of the first one the journal.
    for round in 0..2 {
        let pool = rig.open();
        rig.run(|_| async move {
            for (of, volume) in [(1, volume), (2, copy)] {
                assert_eq!(pool.compression_of(volume), Some(Compression::Lz4));
                let block = pattern(round * 10 + of, BLOCK as usize);
                pool.write(volume, round * BLOCK, vec![block]).await.unwrap();
            }
            pool.drain().await.unwrap();
            assert_eq!(pool.stats().compressed_blocks, 2);
            pool.commit(Transaction::new().compress(copy, Compression::Off)).await.unwrap();
            pool.write(copy, 9 * BLOCK, vec![pattern(9, BLOCK as usize)]).await.unwrap();
            pool.drain().await.unwrap();
            assert_eq!(pool.stats().compressed_blocks, 2);
            pool.commit(Transaction::new().compress(copy, Compression::Lz4)).await.unwrap();
            pool.close().await.unwrap();
        });
    }
    rig.check();
}

/// What is cached, read ahead and read in part, too.
#[test]
fn streams_and_the_cache_have_content_and_not_what_is_stored() {
    let rig = Rig::new(50, 1, 40 * MIB);
    let pool = rig.open_with(PoolOptions { cache_bytes: 2 * MIB, ahead_bytes: 4 * MIB, ..options() });
    rig.run(|_| async move {
        let volume = create_with(&pool, Compression::Lz4).await;
        let blocks = 8 * MIB / BLOCK;
        for block in 0..blocks {
            let kind = if block % 3 == 0 { 4 } else { 2 };
            pool.write(volume, block * BLOCK, vec![Slice::copy_of(&content(kind, block, BLOCK))])
                .await
                .unwrap();
        }
        pool.drain().await.unwrap();
        for _ in 0..2 {
            for at in (0..blocks * BLOCK).step_by(64 << 10) {
                let held = read(&pool, volume, at, 64 * KIB).await;
                for (block, held) in (at / BLOCK..).zip(held.chunks(BLOCK as usize)) {
                    let kind = if block % 3 == 0 { 4 } else { 2 };
                    assert!(held == content(kind, block, BLOCK), "block {block}");
                }
            }
            for block in 0..100 {
                let kind = if block % 3 == 0 { 4 } else { 2 };
                let held = read(&pool, volume, block * BLOCK + 512, KIB).await;
                assert!(held == content(kind, block, BLOCK)[512..512 + 1024], "block {block}");
            }
        }
        let stats = pool.stats();
        assert!(stats.ahead_bytes > 0 && stats.cache_hits > 0, "{stats:?}");
        pool.close().await.unwrap();
    });
}

/// While hosts are slowed for want of a processor, and then not any more. Another volume has the same blocks, laid out in another
/// way: they are not shared, and whether they are is looked up before workers compress them.
#[test]
fn what_was_stored_in_haste_is_compressed_later() {
    let rig = Rig::of_drives(61, layout("raid5"), 5, 40 * MIB);
    let pool = rig.open();
    rig.run(|world| async move {
        let mut volumes = Vec::new();
        for layout in [Some(layout("mirror")), None] {
            let volume = create_with(&pool, Compression::Lz4).await;
            pool.commit(Transaction::new().lay_out(volume, layout).deduplicate(volume, true)).await.unwrap();
            volumes.push(volume);
        }
        let blocks = 16 * MIB / BLOCK;
        for (volume, times) in volumes.iter().zip([1, 200]) {
            world.slow_workers(times);
            let write = |block| {
                pool.write(*volume, block * BLOCK, vec![squeezable(block)]).map(|written| written.unwrap())
            };
            stream::iter((0..blocks).map(write)).buffer_unordered(64).collect::<Vec<_>>().await;
            // NOTE: nothing that would seal segments.
            while pool.stats().buffered_bytes > 0 {
                world.sleep(Duration::from_millis(100)).await;
            }
        }
        let before = pool.stats();
        assert!(before.not_compressed_blocks > 100 && before.deduplicated_blocks == 0, "{before:?}");
        world.slow_workers(1);
        for _ in 0..600 {
            world.sleep(Duration::from_millis(100)).await;
        }
        let (after, hasty) = (pool.stats(), before.not_compressed_blocks);
        let packed = after.recompressed_blocks - before.recompressed_blocks;
        assert!(packed * 10 > hasty * 9, "{packed} of {hasty}: {after:?}");
        for block in 0..blocks {
            let held = read(&pool, volumes[1], block * BLOCK, BLOCK).await;
            assert!(held == squeezable(block).to_vec(), "block {block}");
        }
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn what_is_not_destaged_yet_is_reduced_with_the_rest() {
    let rig = Rig::new(62, 1, 24 * MIB);
    let pool = rig.open();
    rig.run(|world| async move {
        let volume = create_with(&pool, Compression::Zstd).await;
        for block in 0..100 {
            pool.write(volume, block * BLOCK, vec![pattern(block, BLOCK as usize)]).await.unwrap();
        }
        pool.reduce(volume).unwrap();
        while !pool.reduction(volume).unwrap().is_done {
            world.sleep(Duration::from_millis(10)).await;
        }
        let found = pool.reduction(volume).unwrap();
        assert_eq!((found.compressed_blocks, found.met_blocks, found.total_blocks), (100, 100, 100));
        pool.close().await.unwrap();
    });
    rig.check();
}
