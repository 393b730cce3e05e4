//! Block numbers that are dropped without a look at the block table, beside a model of what they were dropped for.

use crate::rig::{Rig, create, options, pattern, read};
use proptest::prelude::*;
use quoin_base::{KIB, MIB, VolumeId};
use quoin_pool::{Pool, PoolError, PoolOptions, Transaction};
use std::{collections::BTreeMap, sync::Arc};

const BLOCK: u64 = 8 * KIB;
/// Blocks of the volume: their numbers share a few pages of the block table.
const BLOCKS: u64 = 600;

#[derive(Clone, Debug)]
enum Step {
    /// So many blocks are written, from one on and so far from each other.
    Write {
        first: u64,
        count: u64,
        apart: u64,
    },
    Unmap(u64),
    Checkpoint,
    /// A crash, with or without a drain before it, and what is mapped is read afterwards.
    Reopen {
        drained: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..BLOCKS, 1..60u64, 1..40u64)
            .prop_map(|(first, count, apart)| Step::Write { first, count, apart }),
        1 => (0..BLOCKS).prop_map(Step::Unmap),
        2 => Just(Step::Checkpoint),
        1 => any::<bool>().prop_map(|drained| Step::Reopen { drained }),
    ];
    prop::collection::vec(step, 1..24)
}

/// Next to no page of metadata stays in RAM.
fn cold() -> PoolOptions {
    PoolOptions { metadata_bytes: 0, ..options() }
}

async fn write(pool: &Pool, volume: VolumeId, block: u64, tag: u64) {
    pool.write(volume, block * BLOCK, vec![pattern(tag, BLOCK as usize)]).await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn what_is_dropped_is_given_back_once_and_nothing_else(steps in steps()) {
        let rig = Rig::new(3, 1, 40 * MIB);
        let mut pool = rig.open_with(cold());
        let of_pool = pool.clone();
        let volume = rig.run(move |_| async move {
            let volume = create(&of_pool).await;
            of_pool.drain().await.unwrap();
            volume
        });
        let mut model = BTreeMap::new();
        let mut tag = 0;
        for step in steps {
            let (of_step, is_reopen) = (pool.clone(), matches!(step, Step::Reopen { .. }));
            let mut written = model.clone();
            (model, tag) = rig.run(move |_| async move {
                let pool: Arc<Pool> = of_step;
                match step {
                    Step::Write { first, count, apart } => {
                        for i in 0..count {
                            tag += 1;
                            let block = (first + i * apart) % BLOCKS;
                            write(&pool, volume, block, tag).await;
                            written.insert(block, tag);
                        }
                    }
                    Step::Unmap(block) => {
                        let range = quoin_base::ByteRange::new(block * BLOCK, BLOCK);
                        pool.unmap(volume, range).await.unwrap();
                        written.remove(&block);
                    }
                    Step::Checkpoint | Step::Reopen { drained: true } => {
                        pool.drain().await.unwrap();
                        let stats = pool.stats();
                        assert_eq!(stats.live_bytes, written.len() as u64 * BLOCK, "{stats:?}");
                    }
                    Step::Reopen { drained: false } => {}
                }
                (written, tag)
            });
            if is_reopen {
                drop(pool);
                rig.world.crash();
                rig.check();
                pool = rig.open_with(cold());
                let (of_reads, expected) = (pool.clone(), model.clone());
                rig.run(move |_| async move {
                    for (block, tag) in expected {
                        let found = read(&of_reads, volume, block * BLOCK, BLOCK).await;
                        assert!(found == pattern(tag, BLOCK as usize).to_vec(), "block {block}");
                    }
                });
            }
        }
        rig.run(move |_| async move { pool.close().await.unwrap() });
        rig.check();
    }
}

/// Where space is short what was dropped is given back, and overwrites of all there is go on.
#[test]
fn a_full_pool_drops_nothing_for_later() {
    let rig = Rig::new(5, 1, 24 * MIB);
    let pool = rig.open_with(cold());
    rig.run(move |_| async move {
        let volume = create(&pool).await;
        let mut blocks = 0;
        while pool.stats().free_bytes > MIB {
            for _ in 0..64 {
                write(&pool, volume, blocks, blocks).await;
                blocks += 1;
            }
            pool.drain().await.unwrap();
        }
        let mut most_dropped = 0;
        for i in 0..4 * blocks {
            write(&pool, volume, i * 37 % blocks, i).await;
            let stats = pool.stats();
            most_dropped = most_dropped.max(stats.dropped_bytes);
        }
        pool.drain().await.unwrap();
        let stats = pool.stats();
        assert_eq!(stats.live_bytes, blocks * BLOCK, "{stats:?}");
        assert!(most_dropped < MIB / 2, "{most_dropped} bytes wait for nothing");
        assert_eq!(stats.refused_writes, 0);
        pool.close().await.unwrap();
    });
    rig.check();
}

/// A reservation that fits only with what was dropped gets that space.
#[test]
fn what_was_dropped_makes_room_for_a_promise() {
    let rig = Rig::new(6, 1, 48 * MIB);
    let pool = rig.open_with(cold());
    rig.run(move |_| async move {
        let volume = create(&pool).await;
        for block in 0..2048 {
            write(&pool, volume, block, block).await;
        }
        pool.drain().await.unwrap();
        for block in (0..2048).step_by(16) {
            write(&pool, volume, block, 5000 + block).await;
        }
        pool.drain().await.unwrap();
        let dropped = pool.stats().dropped_bytes;
        assert!(dropped > 20 * BLOCK, "{dropped} bytes were dropped");
        // The most that can be promised now, and a little more.
        let thick = create(&pool).await;
        let promise = |bytes| pool.commit(Transaction::new().reserve(thick, bytes));
        let wanted = pool.stats().free_bytes * 4;
        let Err(PoolError::CannotReserve { free_bytes, .. }) = promise(wanted).await else {
            panic!("{wanted} bytes do not fit")
        };
        assert_eq!(pool.stats().dropped_bytes, 0, "it was tried with all that was dropped");
        promise(free_bytes).await.unwrap();
        pool.close().await.unwrap();
    });
    rig.check();
}
