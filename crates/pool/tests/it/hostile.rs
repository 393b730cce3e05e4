//! Data that compression and deduplication get nothing from, or more than they can count; and what they say that they get.

use crate::rig::{Rig, options, read, settle};
use quoin_base::{Compression, KIB, MIB, VolumeId};
use quoin_pool::{Pool, PoolOptions, ReductionEstimate, Transaction};
use quoin_reduction::{Codec, Compressor};
use quoin_world::Slice;
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use std::{collections::BTreeMap, sync::Arc};

const BLOCK: u64 = 8 * KIB;

async fn create_with(pool: &Pool, compression: Compression, is_deduplicated: bool) -> VolumeId {
    let volume = pool.next_volume_id();
    let tx = Transaction::new().create_volume(volume).compress(volume, compression);
    pool.commit(tx.deduplicate(volume, is_deduplicated)).await.unwrap();
    volume
}

fn open(rig: &Rig, index_bytes: u64) -> Arc<Pool> {
    rig.open_with(PoolOptions { buffer_bytes: 4 * MIB, index_bytes, ..options() })
}

/// Content of one tag that does not compress.
fn random(tag: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    ChaCha8Rng::seed_from_u64(tag).fill(&mut bytes[..]);
    bytes
}

/// Content of one tag that compresses to about a quarter.
fn squeezable(tag: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    bytes[..2 * KIB as usize].copy_from_slice(&random(tag)[..2 * KIB as usize]);
    bytes
}

/// What block `n` of so many gets the `turn`-th time.
type Kind = fn(n: u64, turn: u64) -> Vec<u8>;

const KINDS: &[(&str, Kind)] = &[
    ("random", |n, turn| random(n << 8 | turn)),
    ("compressed already", |n, turn| {
        let (mut packed, mut piece, mut compressor) = (Vec::new(), Vec::new(), Compressor::new());
        for row in (0..).step_by(800) {
            let text: String = (row..row + 800).map(|row| format!("{n},{row},{turn};")).collect();
            assert!(compressor.compress(Codec::Zstd(1), &text.as_bytes()[..4 * KIB as usize], &mut piece));
            packed.append(&mut piece);
            if packed.len() >= BLOCK as usize {
                break;
            }
        }
        packed.truncate(BLOCK as usize);
        packed
    }),
    ("all equal", |_, _| random(7)),
    ("all zeroes", |_, _| vec![0; BLOCK as usize]),
    ("one of two in turn", |n, turn| random((n + turn) % 2)),
    ("equal but for one bit", |n, turn| {
        let mut bytes = random(9);
        bytes[(n * 13 % BLOCK) as usize] ^= 1 << (turn % 8);
        bytes
    }),
    (
        "zeroes and back",
        |n, turn| if (n + turn) % 2 == 0 { vec![0; BLOCK as usize] } else { squeezable(n % 9) },
    ),
    ("what another block had", |n, turn| squeezable((n + turn * 17) % 300)),
];

#[test]
fn whatever_the_data_is_like_it_is_kept_and_the_index_may_be_of_any_size() {
    const BLOCKS: u64 = 300;
    for (at, (kind, content)) in KINDS.iter().enumerate() {
        for (compression, index_bytes) in
            [(Compression::Off, 64), (Compression::Lz4, 64), (Compression::Zstd, MIB)]
        {
            let rig = Rig::new(60 + at as u64, 2, 60 * MIB);
            let pool = open(&rig, index_bytes);
            let (volume, model) = rig.run(move |world| async move {
                let volume = create_with(&pool, compression, true).await;
                let (mut model, mut rng) = (BTreeMap::new(), ChaCha8Rng::seed_from_u64(at as u64));
                for turn in 0..4 {
                    let mut order: Vec<u64> = (0..BLOCKS).collect();
                    order.shuffle(&mut rng);
                    for n in order.into_iter().take(BLOCKS as usize * 3 / 4) {
                        let bytes = content(n, turn);
                        pool.write(volume, n * BLOCK, vec![Slice::copy_of(&bytes)]).await.unwrap();
                        model.insert(n, bytes);
                    }
                    pool.drain().await.unwrap();
                }
                settle(&*world, &pool).await;
                let unique = pool.space().unique_bytes / BLOCK;
                assert!(unique <= model.len() as u64, "{kind}: {unique} blocks");
                pool.close().await.unwrap();
                (volume, model)
            });
            rig.check();
            let pool = open(&rig, index_bytes);
            rig.run(move |_| async move {
                for (n, bytes) in model {
                    assert!(read(&pool, volume, n * BLOCK, BLOCK).await == bytes, "{kind}: block {n}");
                }
                pool.close().await.unwrap();
            });
        }
    }
}

#[test]
fn as_many_copies_of_one_block_as_there_are_blocks_take_the_room_of_one() {
    const BLOCKS: u64 = 100_000;
    const AT_ONCE: u64 = 128;
    let rig = Rig::new(70, 2, 120 * MIB);
    let pool = open(&rig, MIB);
    rig.run(move |world| async move {
        let volume = create_with(&pool, Compression::Lz4, true).await;
        let one = squeezable(1);
        let many = Slice::copy_of(&one.repeat(AT_ONCE as usize));
        for first in (0..BLOCKS).step_by(AT_ONCE as usize) {
            let count = AT_ONCE.min(BLOCKS - first);
            let data = many.slice(..(count * BLOCK) as usize);
            pool.write(volume, first * BLOCK, vec![data]).await.unwrap();
        }
        pool.drain().await.unwrap();
        let space = pool.space();
        assert_eq!((space.unique_bytes, space.copied_bytes), (BLOCK, (BLOCKS - 1) * BLOCK));
        // All of them become others, and the last one takes the block with it.
        for n in (0..BLOCKS).step_by(997) {
            assert!(read(&pool, volume, n * BLOCK, BLOCK).await == one, "block {n}");
        }
        pool.commit(Transaction::new().delete_volume(volume)).await.unwrap();
        settle(&*world, &pool).await;
        assert_eq!(pool.space().unique_bytes, 0);
        pool.close().await.unwrap();
    });
    rig.check();
}

async fn estimate(pool: &Pool, volume: VolumeId) -> ReductionEstimate {
    pool.estimate_reduction(volume).await.unwrap()
}

#[test]
fn what_a_volume_saves_is_estimated_from_some_of_its_blocks() {
    let rig = Rig::new(71, 2, 240 * MIB);
    let pool = open(&rig, MIB);
    rig.run(move |world| async move {
        let near = |of: f64, to: f64| (of - to).abs() < 0.03;
        let empty = create_with(&pool, Compression::Off, false).await;
        let none = ReductionEstimate { blocks: 0, compressed: 1.0, deduplicated: 1.0 };
        assert_eq!(estimate(&pool, empty).await, none);
        // As they are: all of a volume far from its beginning, too.
        let write = async |volume, first: u64, tags: std::ops::Range<u64>, content: fn(u64) -> Vec<u8>| {
            for (n, tag) in tags.enumerate() {
                let at = (first + n as u64) * BLOCK;
                pool.write(volume, at, vec![Slice::copy_of(&content(tag))]).await.unwrap();
            }
            pool.drain().await.unwrap();
        };
        write(empty, 1 << 30, 0..100, random).await;
        let found = estimate(&pool, empty).await;
        assert_eq!((found.compressed, found.deduplicated), (1.0, 1.0));
        assert_eq!(found.physical_bytes(100 * BLOCK), 100 * BLOCK);
        // Two thirds compress, spread unevenly: one part is dense, the other is a block here and there.
        let mixed = create_with(&pool, Compression::Lz4, false).await;
        write(mixed, 0, 1000..3000, squeezable).await;
        for n in 0..1000 {
            let data = vec![Slice::copy_of(&random(50_000 + n))];
            pool.write(mixed, (10_000 + n * 700) * BLOCK, data).await.unwrap();
        }
        pool.drain().await.unwrap();
        let found = estimate(&pool, mixed).await;
        let expected = (2000.0 * 2100.0 + 1000.0 * 8192.0) / (3000.0 * 8192.0);
        assert!(near(found.compressed, expected), "{found:?}, {expected}");
        assert_eq!(found.deduplicated, 1.0);
        // Each block is there three times, in two volumes.
        let volumes = [
            create_with(&pool, Compression::Off, true).await,
            create_with(&pool, Compression::Off, true).await,
        ];
        write(volumes[0], 0, 70_000..70_600, random).await;
        write(volumes[0], 5000, 70_000..70_600, random).await;
        write(volumes[1], 0, 70_000..70_600, random).await;
        settle(&*world, &pool).await;
        for volume in volumes {
            let found = estimate(&pool, volume).await;
            assert!(near(found.compressed, 1.0) && near(found.deduplicated, 1.0 / 3.0), "{found:?}");
        }
        pool.close().await.unwrap();
    });
    rig.check();
}
