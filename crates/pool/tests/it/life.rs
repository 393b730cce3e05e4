//! The life of a pool on simulated drives: written, read, filled, emptied, closed and opened again.

use crate::rig::{Rig, SLAB, create, options, pattern, read};
use quoin_base::{ByteRange, MIB};
use quoin_pool::{ObjectKind, Pool, PoolError, PoolOptions, Transaction};
use quoin_world::{Thread, World, one_shot};

/// Where slab 0 begins.
const SLABS_START_BYTES: u64 = 2 * MIB;

#[test]
fn what_was_written_is_read_before_and_after_destage_and_reopening() {
    let rig = Rig::new(1, 2, 16 * MIB);
    let pool = rig.open();
    let volume = rig.run(|_| async move {
        let volume = create(&pool).await;
        pool.write(volume, 0, vec![pattern(1, 8192)]).await.unwrap();
        pool.write(volume, 8192 + 512, vec![pattern(2, 1024)]).await.unwrap();
        pool.write(volume, 4 * MIB - 4096, vec![pattern(3, 65536), pattern(4, 512)]).await.unwrap();
        let check = async |pool: &Pool| {
            assert_eq!(read(pool, volume, 0, 8192).await, *pattern(1, 8192));
            assert_eq!(read(pool, volume, 8192, 512).await, [0; 512]);
            assert_eq!(read(pool, volume, 8704, 1024).await, *pattern(2, 1024));
            assert_eq!(read(pool, volume, 4 * MIB - 4096, 65536).await, *pattern(3, 65536));
            assert_eq!(read(pool, volume, 4 * MIB - 4096 + 65536, 512).await, *pattern(4, 512));
            assert_eq!(read(pool, volume, 100 * MIB, 8192).await, [0; 8192]);
        };
        check(&pool).await;
        pool.drain().await.unwrap();
        check(&pool).await;
        pool.write(volume, 8192, vec![pattern(5, 512)]).await.unwrap();
        pool.unmap(volume, ByteRange::new(512, 512)).await.unwrap();
        assert_eq!(read(&pool, volume, 8192, 512).await, *pattern(5, 512));
        assert_eq!(read(&pool, volume, 8704, 1024).await, *pattern(2, 1024));
        assert_eq!(read(&pool, volume, 512, 512).await, [0; 512]);
        assert_eq!(read(&pool, volume, 0, 512).await, pattern(1, 8192)[..512]);
        pool.commit(Transaction::new().put(ObjectKind(1), "a", b"1".to_vec())).await.unwrap();
        volume
    });
    rig.world.crash();
    rig.check();
    let pool = rig.open();
    assert_eq!(pool.get(ObjectKind(1), "a"), Some(b"1".to_vec()));
    assert!(pool.recovery().replayed_records >= 2, "{:?}", pool.recovery());
    rig.run(|_| async move {
        assert_eq!(read(&pool, volume, 8192, 512).await, *pattern(5, 512));
        assert_eq!(read(&pool, volume, 8704, 1024).await, *pattern(2, 1024));
        assert_eq!(read(&pool, volume, 512, 512).await, [0; 512]);
        assert_eq!(read(&pool, volume, 1024, 7168).await, pattern(1, 8192)[1024..]);
        pool.close().await.unwrap();
        assert!(matches!(pool.read(volume, ByteRange::new(0, 512)).await, Err(PoolError::Offline { .. })));
    });
    let pool = rig.open();
    assert_eq!(pool.recovery().replayed_records, 0);
    assert_eq!(pool.volume_stats(volume).unwrap().mapped_bytes, 11 * 8192);
    rig.run(|_| async move {
        assert_eq!(read(&pool, volume, 4 * MIB - 4096, 65536).await, *pattern(3, 65536));
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn every_structure_turns_over_many_times_and_space_comes_back() {
    let rig = Rig::new(2, 2, 24 * MIB);
    let pool = rig.open();
    rig.run(|_| async move {
        let volume = create(&pool).await;
        // 8 MiB of live data, written over twenty times in two orders.
        for round in 0..20u64 {
            for i in 0..1024u64 {
                let block = if round % 2 == 0 { i } else { i * 389 % 1024 };
                pool.write(volume, block * 8192, vec![pattern(round << 16 | block, 8192)]).await.unwrap();
            }
        }
        for block in 0..1024u64 {
            assert_eq!(read(&pool, volume, block * 8192, 8192).await, *pattern(19 << 16 | block, 8192));
        }
        pool.drain().await.unwrap();
        let stats = pool.stats();
        assert_eq!(stats.live_bytes, 8 * MIB);
        assert!(stats.journal_wraps > 5 && stats.checkpoints > 5, "{stats:?}");
        assert!(stats.destaged_bytes > 3 * stats.capacity_bytes, "{stats:?}");
        pool.unmap(volume, ByteRange::new(0, 8 * MIB)).await.unwrap();
        pool.drain().await.unwrap();
        assert_eq!(pool.stats().live_bytes, 0);
        assert_eq!(pool.volume_stats(volume).unwrap().mapped_bytes, 0);
        pool.commit(Transaction::new().delete_volume(volume)).await.unwrap();
        assert!(matches!(pool.read(volume, ByteRange::new(0, 512)).await, Err(PoolError::NoSuchVolume(_))));
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_full_pool_refuses_new_data_and_heals_when_space_returns() {
    let rig = Rig::new(3, 2, 16 * MIB);
    let pool = rig.open();
    rig.run(|_| async move {
        let (a, b) = (create(&pool).await, create(&pool).await);
        let mut filled = 0;
        loop {
            match pool.write(a, filled * 8192, vec![pattern(filled, 8192)]).await {
                Ok(()) => filled += 1,
                Err(PoolError::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(filled * 8192 > pool.stats().capacity_bytes / 2, "{:?}", pool.stats());
        assert!(matches!(pool.write(b, 0, vec![pattern(0, 8192)]).await, Err(PoolError::NoSpace)));
        assert_eq!(read(&pool, a, 0, 8192).await, *pattern(0, 8192));
        pool.commit(Transaction::new().put(ObjectKind(1), "still", b"works".to_vec())).await.unwrap();
        // Half of it, every other block: only cleaning can turn this into free segments.
        for i in (0..filled).step_by(2) {
            pool.unmap(a, ByteRange::new(i * 8192, 8192)).await.unwrap();
        }
        pool.drain().await.unwrap();
        for i in 0..filled / 3 {
            pool.write(b, i * 8192, vec![pattern(1 << 20 | i, 8192)]).await.unwrap();
        }
        for i in 0..filled / 3 {
            assert_eq!(read(&pool, b, i * 8192, 8192).await, *pattern(1 << 20 | i, 8192));
        }
        for i in (1..filled).step_by(2) {
            assert_eq!(read(&pool, a, i * 8192, 8192).await, *pattern(i, 8192));
        }
        assert!(pool.stats().cleaned_bytes > 0);
        pool.commit(Transaction::new().delete_volume(a)).await.unwrap();
        while pool.stats().live_bytes > filled / 3 * 8192 {
            pool.drain().await.unwrap();
        }
        pool.close().await.unwrap();
    });
    rig.check();
}

/// The first write of a journal extent's new life may be torn so that its header is still the old one and its
/// first batch is gone. Batches of the old life follow; they are obsolete, so nothing is missing.
#[test]
fn a_torn_first_write_over_an_obsolete_extent_is_no_damage() {
    let rig = Rig::new(4, 1, 16 * MIB);
    let pool = rig.open();
    rig.run(|_| async move {
        let volume = create(&pool).await;
        for i in 0..4 {
            pool.write(volume, i * 8192, vec![pattern(i, 8192)]).await.unwrap();
        }
        pool.close().await.unwrap();
    });
    let journal = SLABS_START_BYTES..SLABS_START_BYTES + 2 * MIB;
    for slab in journal.step_by(SLAB as usize) {
        rig.disks[0].poke(slab + 4096, &[0; 4096]);
    }
    rig.check();
    assert_eq!(rig.open().recovery().replayed_records, 0);
}

#[test]
fn a_volume_that_is_deleted_while_it_is_read_is_gone_not_damaged() {
    // Readers met blocks that were given back while the leaf that led to them was still there.
    for seed in 0..8 {
        let rig = Rig::new(30 + seed, 1, 16 * MIB);
        let few_pages = PoolOptions { metadata_bytes: 40 << 10, ..options() };
        let pool = rig.open_with(few_pages);
        rig.run(|world| async move {
            let volume = create(&pool).await;
            // Blocks whose numbers lie in other pages of the block table than those of their neighbours.
            for i in 0..500u64 {
                pool.write(volume, i * 167 % 500 * 8192, vec![pattern(i, 8192)]).await.unwrap();
            }
            pool.drain().await.unwrap();
            let mut ends = Vec::new();
            for reader in 0..8u64 {
                let (done, end) = one_shot();
                let pool = pool.clone();
                let task = async move {
                    for i in 0.. {
                        let block = (reader * 61 + i * 7) % 500;
                        if let Err(error) = pool.read(volume, ByteRange::new(block * 8192, 8192)).await {
                            return done.send(error);
                        }
                    }
                };
                world.spawn(Thread::Data(reader as usize % 2), Box::pin(task));
                ends.push(end);
            }
            pool.commit(Transaction::new().delete_volume(volume)).await.unwrap();
            for end in ends {
                let error = end.await.unwrap();
                assert!(matches!(error, PoolError::NoSuchVolume(_)), "seed {seed}: {error}");
            }
            pool.close().await.unwrap();
        });
        rig.check();
    }
}
