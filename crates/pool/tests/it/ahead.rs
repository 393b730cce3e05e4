//! Sequential reads: what is read ahead for them, and that it is what the volume holds when it is read.

use crate::rig::{Rig, create, fork, options, pattern, read};
use quoin_base::{ByteRange, MIB, VolumeId};
use quoin_pool::{Pool, PoolOptions, Transaction};
use quoin_world::World;
use quoin_world_sim::FaultPlan;
use std::time::Duration;

const BLOCK: u64 = 8192;
const BLOCKS: u64 = 512;

fn reading_ahead() -> PoolOptions {
    PoolOptions { cache_bytes: MIB, ahead_bytes: 4 * MIB, ..options() }
}

async fn fill(pool: &Pool, volume: VolumeId, round: u64) {
    for i in 0..BLOCKS {
        pool.write(volume, i * BLOCK, vec![pattern(round << 16 | i, 8192)]).await.unwrap();
    }
    pool.drain().await.unwrap();
}

#[test]
fn a_stream_is_read_ahead_and_leaves_cache_and_budget_as_they_were() {
    let rig = Rig::new(30, 2, 32 * MIB);
    let pool = rig.open_with(reading_ahead());
    rig.run(|world| async move {
        let volume = create(&pool).await;
        fill(&pool, volume, 0).await;
        let (_, before) = world.progress();
        for i in 0..2 * BLOCKS {
            let half = read(&pool, volume, i * BLOCK / 2, BLOCK / 2).await;
            let at = (i % 2 * BLOCK / 2) as usize;
            assert_eq!(half, pattern(i / 2, 8192)[at..at + 4096], "{i}");
        }
        let operations = world.progress().1 - before;
        let stats = pool.stats();
        assert!(operations < BLOCKS / 8, "{operations} operations of drives");
        // A host may be there first.
        let (least, most) = ((BLOCKS - 8) * BLOCK, (BLOCKS + 8) * BLOCK);
        assert!(stats.ahead_bytes > least && stats.ahead_bytes < most, "{stats:?}");
        assert!(stats.ahead_unused_bytes == 0 && stats.ahead_ram_bytes < MIB, "{stats:?}");
        assert!(stats.cache_ram_bytes < 4 * BLOCK, "{stats:?}");
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn what_was_read_ahead_is_never_what_was_there_before() {
    let rig = Rig::new(31, 2, 32 * MIB);
    let pool = rig.open_with(reading_ahead());
    rig.run(|_| async move {
        let volume = create(&pool).await;
        for round in 0..12u64 {
            fill(&pool, volume, round).await;
            // What follows these is read ahead, and then overwritten, unmapped, forked, or moved.
            let left = round * 7 % 40 + 40;
            for i in 0..left {
                assert_eq!(read(&pool, volume, i * BLOCK, BLOCK).await, *pattern(round << 16 | i, 8192));
            }
            assert!(pool.stats().ahead_ram_bytes > 0);
            let snapshot = match round % 3 {
                1 => Some(fork(&pool, volume).await),
                _ => None,
            };
            let changed = |i: u64| (i + round).is_multiple_of(3) && i >= left;
            for i in (0..BLOCKS).filter(|i| changed(*i)) {
                pool.write(volume, i * BLOCK, vec![pattern(1 << 24 | round << 16 | i, 8192)]).await.unwrap();
            }
            if round % 2 == 1 {
                pool.drain().await.unwrap();
            }
            for i in left..BLOCKS {
                let tag = if changed(i) { 1 << 24 } else { 0 } | round << 16 | i;
                assert_eq!(read(&pool, volume, i * BLOCK, BLOCK).await, *pattern(tag, 8192), "{round} {i}");
            }
            if let Some(snapshot) = snapshot {
                for i in 0..BLOCKS {
                    let content = read(&pool, snapshot, i * BLOCK, BLOCK).await;
                    assert_eq!(content, *pattern(round << 16 | i, 8192), "snapshot of {round}, {i}");
                }
                pool.commit(Transaction::new().delete_volume(snapshot)).await.unwrap();
            }
        }
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_stream_goes_on_where_reading_ahead_fails() {
    let rig = Rig::new(32, 1, 32 * MIB);
    let pool = rig.open_with(reading_ahead());
    let disks = rig.disks.clone();
    rig.run(|world| async move {
        let volume = create(&pool).await;
        fill(&pool, volume, 0).await;
        let fails = |rate| {
            let plan = FaultPlan { read_error: rate, ..FaultPlan::default() };
            disks.iter().for_each(|disk| disk.set_faults(plan.clone()));
        };
        for i in 0..BLOCKS {
            if i % 64 == 16 {
                // A read that goes on with the stream from RAM asks for more.
                fails(1.0);
                let _ = pool.read(volume, ByteRange::new(i * BLOCK, BLOCK)).await;
                world.sleep(Duration::from_millis(20)).await;
                fails(0.0);
            }
            assert_eq!(read(&pool, volume, i * BLOCK, BLOCK).await, *pattern(i, 8192), "{i}");
        }
        pool.close().await.unwrap();
    });
}
