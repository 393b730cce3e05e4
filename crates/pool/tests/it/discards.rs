//! Long discards over what is destaged, buffered, copied and shared: all of the range, nothing else, and for good.

use crate::rig::{Rig, create, fork, pattern, read, settle};
use quoin_base::{ByteRange, GIB, KIB, MIB, VolumeId};
use quoin_pool::{Pool, Transaction};
use quoin_world::{Thread, World};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

const BLOCK: u64 = 8 * KIB;
/// Regions, in which records lie, and what lies apart.
const REGIONS: u64 = 24;

/// What a volume is to hold in some of its blocks.
type Model = BTreeMap<u64, Vec<u8>>;

async fn write(pool: &Pool, volume: VolumeId, model: &mut Model, block: u64, tag: u64) {
    let data = pattern(tag << 20 | block, BLOCK as usize);
    pool.write(volume, block * BLOCK, vec![data.clone()]).await.unwrap();
    model.insert(block, data.to_vec());
}

/// Blocks at the beginning, the end and in the middle of every third region, from one on.
fn some_blocks(from: u64) -> impl Iterator<Item = u64> {
    let each = MIB / BLOCK;
    let blocks = move |region: u64| [region * each, region * each + 70 + from, region * each + each - 1];
    (from..REGIONS).step_by(3).flat_map(blocks)
}

async fn copy(pool: &Pool, source: VolumeId, target: VolumeId, range: ByteRange) {
    let mut done = 0;
    while done < range.len {
        let (from, rest) = (range.offset + done, range.len - done);
        done += pool.copy_some(source, from, target, ByteRange::new(from, rest)).await.unwrap();
    }
}

fn unmap(model: &mut Model, range: ByteRange) {
    for (block, held) in model {
        for (at, byte) in held.iter_mut().enumerate() {
            let offset = block * BLOCK + at as u64;
            *byte = if (range.offset..range.end()).contains(&offset) { 0 } else { *byte };
        }
    }
}

async fn assert_holds(pool: &Pool, volume: VolumeId, model: &Model, when: &str) {
    for (block, expected) in model {
        let held = read(pool, volume, block * BLOCK, BLOCK).await;
        assert_eq!(held, *expected, "block {block} {when}");
    }
}

/// A volume with content that is destaged, copied and destaged, copied and buffered, and buffered; and a fork of it, if it
/// shares its map.
async fn fill(pool: &Arc<Pool>, is_forked: bool) -> (VolumeId, Model, Option<(VolumeId, Model)>) {
    let (volume, other) = (create(pool).await, create(pool).await);
    let (mut model, mut others) = (Model::new(), Model::new());
    for block in some_blocks(0) {
        write(pool, volume, &mut model, block, 1).await;
    }
    for block in some_blocks(1) {
        write(pool, other, &mut others, block, 2).await;
    }
    let image = fork(pool, other).await;
    pool.settle_fork(image).await.unwrap();
    let (destaged, buffered) = (ByteRange::new(MIB, MIB), ByteRange::new(4 * MIB, MIB));
    copy(pool, image, volume, destaged).await;
    pool.drain().await.unwrap();
    let mut forked = None;
    if is_forked {
        forked = Some((fork(pool, volume).await, model.clone()));
        pool.drain().await.unwrap();
    }
    copy(pool, image, volume, buffered).await;
    for range in [destaged, buffered] {
        let copied = others.iter().filter(|(block, _)| range.contains_block(**block));
        model.extend(copied.map(|(block, held)| (*block, held.clone())));
    }
    if let Some((_, forked)) = &mut forked {
        let copied = others.iter().filter(|(block, _)| destaged.contains_block(**block));
        forked.extend(copied.map(|(block, held)| (*block, held.clone())));
    }
    for block in some_blocks(2) {
        write(pool, volume, &mut model, block, 3).await;
    }
    (volume, model, forked)
}

trait ContainsBlock {
    fn contains_block(&self, block: u64) -> bool;
}

impl ContainsBlock for ByteRange {
    fn contains_block(&self, block: u64) -> bool {
        (self.offset..self.end()).contains(&(block * BLOCK))
    }
}

#[test]
fn a_long_discard_takes_all_of_its_range_and_nothing_else() {
    for (seed, is_forked) in [(1, false), (2, true)] {
        let rig = Rig::new(seed, 2, 24 * MIB);
        let pool = rig.open();
        let (volume, model, forked) = rig.run(move |_| async move {
            let (volume, mut model, forked) = fill(&pool, is_forked).await;
            assert_holds(&pool, volume, &model, "before").await;
            // From within a block to within another, far beyond what is mapped there.
            let range = ByteRange::from(MIB / 2 + 512..20 * MIB + 3 * 512);
            unmap(&mut model, range);
            pool.unmap(volume, range).await.unwrap();
            assert_holds(&pool, volume, &model, "once unmapped").await;
            // What is written over it, in part and whole, stays.
            for block in [70, 3 * 128, 5 * 128 + 40] {
                write(&pool, volume, &mut model, block, 4).await;
            }
            let part = pattern(9, 1024);
            pool.write(volume, 6 * MIB + 512, vec![part.clone()]).await.unwrap();
            model.entry(6 * 128).or_insert_with(|| vec![0; BLOCK as usize])[512..1536].copy_from_slice(&part);
            assert_holds(&pool, volume, &model, "written again").await;
            (volume, model, forked)
        });
        rig.world.crash();
        rig.check();
        let pool = rig.open();
        rig.run(move |world| async move {
            for when in ["after a crash", "destaged"] {
                assert_holds(&pool, volume, &model, when).await;
                if let Some((fork, model)) = &forked {
                    assert_holds(&pool, *fork, model, when).await;
                }
                settle(&*world, &pool).await;
            }
            // All of it goes, and its space comes back.
            pool.unmap(volume, ByteRange::new(0, 8 * GIB)).await.unwrap();
            settle(&*world, &pool).await;
            assert_eq!(pool.volume_stats(volume).unwrap().mapped_bytes, 0);
            if let Some((fork, model)) = &forked {
                assert_holds(&pool, *fork, model, "alone").await;
            }
            pool.commit(Transaction::new().delete_volume(volume)).await.unwrap();
            settle(&*world, &pool).await;
            pool.close().await.unwrap();
        });
        rig.check();
    }
}

#[test]
fn a_crash_amid_a_discard_leaves_each_block_as_it_was_or_zeroes() {
    let mut outcomes = [0, 0];
    for seed in 0..12 {
        let rig = Rig::new(seed, 2, 24 * MIB);
        let pool = rig.open();
        let (volume, model) = rig.run(move |world| async move {
            let (volume, model, _) = fill(&pool, false).await;
            let unmapping = pool.clone();
            world.clone().spawn(
                Thread::Data(0),
                Box::pin(async move { drop(unmapping.unmap(volume, ByteRange::new(0, 8 * GIB)).await) }),
            );
            world.sleep(Duration::from_micros(20 * seed)).await;
            (volume, model)
        });
        rig.world.crash();
        rig.check();
        let pool = rig.open();
        let zeroed = rig.run(move |_| async move {
            let mut zeroed = [0, 0];
            for zeroed in &mut zeroed {
                for (block, expected) in &model {
                    let held = read(&pool, volume, block * BLOCK, BLOCK).await;
                    let is_zero = held.iter().all(|byte| *byte == 0);
                    assert!(is_zero || held == *expected, "block {block} is torn");
                    *zeroed += usize::from(is_zero);
                }
                pool.drain().await.unwrap();
            }
            assert_eq!(zeroed[0], zeroed[1], "destage changes nothing");
            (zeroed[0], model.len())
        });
        outcomes[0] += usize::from(zeroed.0 == 0);
        outcomes[1] += usize::from(zeroed.0 == zeroed.1);
    }
    assert!(
        outcomes[0] < 12 && outcomes[1] < 12,
        "no crash came before its end, or none after: {outcomes:?}"
    );
}

#[test]
fn what_is_written_beside_a_discard_is_there_or_zeroes() {
    for seed in 0..8 {
        let rig = Rig::new(seed, 2, 24 * MIB);
        let pool = rig.open();
        let (volume, seen) = rig.run(move |_| async move {
            let (volume, mut model, _) = fill(&pool, false).await;
            let blocks: Vec<u64> = model.keys().copied().collect();
            let writes = async {
                for block in blocks {
                    let data = pattern(7 << 20 | block, BLOCK as usize);
                    pool.write(volume, block * BLOCK, vec![data]).await.unwrap();
                }
            };
            let unmap = pool.unmap(volume, ByteRange::new(0, 8 * GIB));
            futures_util::future::join(unmap, writes).await.0.unwrap();
            let mut seen = Model::new();
            for (block, held) in &mut model {
                *held = pattern(7 << 20 | *block, BLOCK as usize).to_vec();
                let now = read(&pool, volume, block * BLOCK, BLOCK).await;
                assert!(
                    now == *held || now.iter().all(|byte| *byte == 0),
                    "block {block} holds what is gone"
                );
                seen.insert(*block, now);
            }
            (volume, seen)
        });
        rig.world.crash();
        rig.check();
        let pool = rig.open();
        rig.run(move |_| async move { assert_holds(&pool, volume, &seen, "after a crash").await });
    }
}
