//! Little RAM: the read cache, and metadata that does not fit.

use crate::rig::{Rig, create, options, pattern, read};
use quoin_base::MIB;
use quoin_pool::PoolOptions;
use quoin_world_sim::FaultPlan;

const BLOCK: u64 = 8192;

#[test]
fn what_was_read_is_read_again_without_a_drive_and_so_is_what_replaced_it() {
    let rig = Rig::new(20, 2, 16 * MIB);
    let volume = {
        let pool = rig.open();
        rig.run(|_| async move {
            let volume = create(&pool).await;
            for i in 0..64 {
                pool.write(volume, i * BLOCK, vec![pattern(i, 8192)]).await.unwrap();
            }
            pool.close().await.unwrap();
            volume
        })
    };
    let pool = rig.open_with(PoolOptions { cache_bytes: MIB, ..options() });
    let disks = rig.disks.clone();
    rig.run(|_| async move {
        assert_eq!(read(&pool, volume, 0, 4 * BLOCK).await[..8192], *pattern(0, 8192));
        assert_eq!(read(&pool, volume, 0, 128 << 10).await.len(), 128 << 10);
        for i in [3, 9] {
            pool.write(volume, i * BLOCK, vec![pattern(90 + i, 8192)]).await.unwrap();
        }
        pool.drain().await.unwrap();
        let before = pool.stats();
        assert_eq!(before.cache_hits, 4, "{before:?}");
        for disk in &disks {
            disk.set_faults(FaultPlan { read_error: 1.0, ..FaultPlan::default() });
        }
        for (i, content) in [(0, 0), (1, 1), (2, 2), (3, 93)] {
            assert_eq!(read(&pool, volume, i * BLOCK, BLOCK).await, *pattern(content, 8192));
            assert_eq!(read(&pool, volume, i * BLOCK + 512, 1024).await, pattern(content, 8192)[512..1536]);
        }
        // A partial write is completed from the cache too.
        pool.write(volume, BLOCK, vec![pattern(50, 512)]).await.unwrap();
        pool.drain().await.unwrap();
        disks.iter().for_each(|disk| disk.set_faults(FaultPlan::default()));
        let after = read(&pool, volume, BLOCK, BLOCK).await;
        assert!(after[..512] == *pattern(50, 512) && after[512..] == pattern(1, 8192)[512..]);
        // What a long read brought was not kept, nor what was written and not read before.
        let misses = pool.stats().cache_misses;
        assert_eq!(read(&pool, volume, 15 * BLOCK, BLOCK).await, *pattern(15, 8192));
        assert_eq!(read(&pool, volume, 9 * BLOCK, BLOCK).await, *pattern(99, 8192));
        assert_eq!(pool.stats().cache_misses, misses + 2);
        assert!(pool.stats().cache_ram_bytes <= MIB && pool.stats().cache_ram_bytes >= 5 * BLOCK);
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_scan_of_many_times_the_cache_leaves_the_hot_blocks_hot() {
    let rig = Rig::new(21, 2, 32 * MIB);
    let pool = rig.open_with(PoolOptions { cache_bytes: 2 * MIB, ..options() });
    rig.run(|_| async move {
        let volume = create(&pool).await;
        let blocks = 8 * MIB / BLOCK;
        for i in 0..blocks {
            pool.write(volume, i * BLOCK, vec![pattern(i, 8192)]).await.unwrap();
        }
        pool.drain().await.unwrap();
        let hot = |i: u64| (i * 37 % 100) * BLOCK;
        for i in 0..400 {
            read(&pool, volume, hot(i), BLOCK).await;
        }
        let mut hot_hits = 0;
        for i in 0..blocks {
            assert_eq!(read(&pool, volume, i * BLOCK, BLOCK).await[..], *pattern(i, 8192));
            if i % 4 == 0 {
                let before = pool.stats().cache_hits;
                read(&pool, volume, hot(i / 4), BLOCK).await;
                hot_hits += pool.stats().cache_hits - before;
            }
        }
        assert!(hot_hits * 100 >= blocks / 4 * 95, "{hot_hits} of {} reads of hot blocks hit", blocks / 4);
        pool.close().await.unwrap();
    });
}

#[test]
fn numbers_that_are_used_again_never_show_what_they_once_named() {
    let rig = Rig::new(22, 2, 24 * MIB);
    let pool = rig.open_with(PoolOptions { cache_bytes: 4 * MIB, ..options() });
    rig.run(|_| async move {
        let volume = create(&pool).await;
        for round in 0..24u64 {
            for i in 0..200 {
                let block = i * 89 % 200;
                pool.write(volume, block * BLOCK, vec![pattern(round << 16 | block, 8192)]).await.unwrap();
            }
            pool.drain().await.unwrap();
            for block in 0..200 {
                let content = read(&pool, volume, block * BLOCK, BLOCK).await;
                assert_eq!(content, *pattern(round << 16 | block, 8192), "round {round}, block {block}");
            }
        }
        assert!(pool.stats().cache_hits > 0);
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_pool_whose_metadata_does_not_fit_in_its_ram_does_everything_all_the_same() {
    let rig = Rig::new(23, 2, 48 * MIB);
    let limit = 16 << 10;
    let few = || PoolOptions { metadata_bytes: limit, dirty_bytes: 96 << 10, ..options() };
    let pool = rig.open_with(few());
    let at = |i: u64| i * 41 % 300 * 5 * MIB;
    let volume = rig.run(|_| async move {
        let volume = create(&pool).await;
        // Every block in a leaf of its own.
        for round in 0..3u64 {
            for i in 0..300 {
                pool.write(volume, at(i), vec![pattern(round << 16 | i, 8192)]).await.unwrap();
            }
            pool.drain().await.unwrap();
            for i in 0..300 {
                assert_eq!(read(&pool, volume, at(i), BLOCK).await, *pattern(round << 16 | i, 8192));
            }
        }
        let stats = pool.stats();
        assert!(stats.metadata_bytes > 50 * limit, "{stats:?}");
        assert!(stats.metadata_loads > 600, "{stats:?}");
        // Whatever is loaded is found by way of map pages that were in RAM or are loaded first.
        assert!(stats.metadata_hits > stats.metadata_loads, "{stats:?}");
        assert!(stats.journal_records >= 900 && stats.journal_batches <= stats.journal_records, "{stats:?}");
        // Dirty pages and those in use come on top.
        assert!(stats.metadata_ram_bytes < limit + (96 << 10) + (32 << 10), "{stats:?}");
        pool.close().await.unwrap();
        volume
    });
    rig.check();
    let pool = rig.open_with(few());
    rig.run(|_| async move {
        for i in 0..300 {
            assert_eq!(read(&pool, volume, at(i), BLOCK).await, *pattern(2 << 16 | i, 8192));
        }
        pool.close().await.unwrap();
    });
}
