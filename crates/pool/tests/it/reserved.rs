//! Space that is promised to a volume, and the tail of a volume.

use crate::rig::{Rig, create, fork, options, pattern, read};
use quoin_base::{ByteRange, KIB, MIB, VolumeId};
use quoin_pool::{Pool, PoolError, PoolOptions, Transaction};

const BLOCK: u64 = 8 * KIB;

async fn reserve(pool: &Pool, volume: VolumeId, bytes: u64) -> Result<(), PoolError> {
    pool.commit(Transaction::new().reserve(volume, bytes)).await
}

/// Writes blocks of `volume` from `first` on until the pool is full; how many.
async fn fill(pool: &Pool, volume: VolumeId, first: u64) -> u64 {
    for count in 0.. {
        match pool.write(volume, (first + count) * BLOCK, vec![pattern(count, BLOCK as usize)]).await {
            Ok(()) => {}
            Err(PoolError::NoSpace) => return count,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("a pool is finite")
}

#[test]
fn a_promise_is_kept_though_others_filled_the_pool() {
    for seed in 0..3 {
        let rig = Rig::new(seed, 2, 24 * MIB);
        let pool = rig.open();
        let (thin, thick) = rig.run(|_| async move {
            let (thin, thick) = (create(&pool).await, create(&pool).await);
            reserve(&pool, thick, 6 * MIB).await.unwrap();
            assert_eq!(pool.volume_stats(thick).unwrap().reserved_bytes, 6 * MIB);
            assert_eq!(pool.stats().reserved_unmapped_bytes, 6 * MIB);
            let filled = fill(&pool, thin, 0).await;
            assert!(filled > 32, "{:?}", pool.stats());
            (thin, thick)
        });
        // Over a crash, too.
        rig.world.crash();
        rig.check();
        let pool = rig.open();
        rig.run(|_| async move {
            assert!(pool.write(thin, 1 << 40, vec![pattern(0, 8192)]).await.is_err());
            let blocks = 6 * MIB / BLOCK;
            for round in 0..5u64 {
                for i in 0..blocks {
                    let block = if round % 2 == 0 { i } else { i * 389 % blocks };
                    let tag = round << 16 | block;
                    pool.write(thick, block * BLOCK, vec![pattern(tag, BLOCK as usize)]).await.unwrap();
                }
                // In part, in one large piece, and unmapped: the space is promised again at once.
                pool.write(thick, 512, vec![pattern(7, 1024)]).await.unwrap();
                pool.write(thick, 2 * MIB, vec![pattern(8, MIB as usize)]).await.unwrap();
                pool.unmap(thick, ByteRange::new(3 * MIB, MIB)).await.unwrap();
                if round == 2 {
                    pool.drain().await.unwrap();
                    assert_eq!(pool.stats().reserved_unmapped_bytes, MIB);
                }
                assert!(matches!(
                    pool.write(thin, 1 << 40, vec![pattern(0, 65536)]).await,
                    Err(PoolError::NoSpace)
                ));
            }
            assert_eq!(read(&pool, thick, 2 * MIB, MIB).await, *pattern(8, MIB as usize));
            assert_eq!(read(&pool, thick, 3 * MIB, MIB).await, vec![0; MIB as usize]);
            // Given back, it is anybody's.
            pool.unmap(thick, ByteRange::new(0, 6 * MIB)).await.unwrap();
            reserve(&pool, thick, 0).await.unwrap();
            pool.drain().await.unwrap();
            assert_eq!(pool.stats().reserved_bytes, 0);
            assert!(fill(&pool, thin, 1 << 20).await > 5 * MIB / BLOCK);
            assert!(matches!(pool.write(thick, 0, vec![pattern(0, 8192)]).await, Err(PoolError::NoSpace)));
            pool.close().await.unwrap();
        });
        rig.check();
    }
}

#[test]
fn no_more_is_promised_than_can_be_kept() {
    let rig = Rig::new(4, 2, 24 * MIB);
    let pool = rig.open();
    rig.run(|_| async move {
        let (a, b) = (create(&pool).await, create(&pool).await);
        let Err(PoolError::CannotReserve { wanted_bytes, free_bytes }) = reserve(&pool, a, 1 << 40).await
        else {
            panic!("a tebibyte was promised")
        };
        assert_eq!((wanted_bytes, pool.stats().reserved_bytes), (1 << 40, 0));
        reserve(&pool, a, free_bytes).await.unwrap();
        assert!(matches!(reserve(&pool, b, BLOCK).await, Err(PoolError::CannotReserve { .. })));
        assert!(matches!(reserve(&pool, a, free_bytes + 1).await, Err(PoolError::CannotReserve { .. })));
        // What one gives up, another can have, in one transaction.
        let exchange = Transaction::new().reserve(a, 0).reserve(b, free_bytes);
        pool.commit(exchange).await.unwrap();
        assert_eq!(pool.volume_stats(a).unwrap().reserved_bytes, 0);
        for block in 0..free_bytes / BLOCK {
            pool.write(b, block * BLOCK, vec![pattern(block, BLOCK as usize)]).await.unwrap();
        }
        pool.drain().await.unwrap();
        assert_eq!(pool.stats().reserved_unmapped_bytes, 0);
        pool.commit(Transaction::new().delete_volume(b)).await.unwrap();
        assert_eq!(pool.stats().reserved_bytes, 0);
        // What is buffered does not stand in the way of a promise that would hold without it.
        while pool.stats().live_bytes > 0 {
            pool.drain().await.unwrap();
        }
        let half = pool.stats().free_bytes / 2;
        for block in 0..half / BLOCK / 2 {
            pool.write(a, block * BLOCK, vec![pattern(block, BLOCK as usize)]).await.unwrap();
        }
        reserve(&pool, a, half).await.unwrap();
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn what_a_volume_maps_already_is_not_asked_for_again() {
    let rig = Rig::new(6, 2, 24 * MIB);
    let pool = rig.open();
    let usable = pool.stats().usable_bytes;
    let volume = rig.run(|_| async move {
        let volume = create(&pool).await;
        // More than half of the pool is mapped: twice as much is not there.
        let mapped = usable / 10 * 6 / BLOCK;
        for block in 0..mapped {
            pool.write(volume, block * BLOCK, vec![pattern(block, BLOCK as usize)]).await.unwrap();
        }
        let wanted = (mapped + 16) * BLOCK;
        reserve(&pool, volume, wanted).await.unwrap();
        pool.drain().await.unwrap();
        let stats = pool.stats();
        assert_eq!((stats.reserved_bytes, stats.reserved_unmapped_bytes), (wanted, 16 * BLOCK));
        // What is left, all of it.
        let Err(PoolError::CannotReserve { free_bytes, .. }) = reserve(&pool, volume, 1 << 40).await else {
            panic!("a tebibyte was promised")
        };
        assert!(free_bytes > 0);
        reserve(&pool, volume, wanted + free_bytes).await.unwrap();
        pool.close().await.unwrap();
        volume
    });
    rig.check();
    // More metadata may be dirty than when that was promised: what is set aside for checkpoints yields.
    let pool = rig.open_with(PoolOptions { dirty_bytes: 64 * MIB, ..options() });
    rig.run(|_| async move {
        let stats = pool.stats();
        assert!(stats.live_bytes + stats.reserved_unmapped_bytes <= stats.usable_bytes, "{stats:?}");
        for round in 0..2 {
            for block in 0..pool.volume_stats(volume).unwrap().reserved_bytes / BLOCK {
                let data = pattern(round << 20 | block, BLOCK as usize);
                pool.write(volume, block * BLOCK, vec![data]).await.unwrap();
            }
        }
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_tail_is_looked_at_and_emptied_wherever_its_content_is() {
    let rig = Rig::new(5, 2, 24 * MIB);
    let pool = rig.open();
    rig.run(|_| async move {
        let volume = create(&pool).await;
        let places = [0, 5 * MIB, 1 << 36, (1 << 46) - BLOCK];
        for (tag, place) in (1..).zip(places) {
            pool.write(volume, place, vec![pattern(tag, BLOCK as usize)]).await.unwrap();
        }
        for drained in [false, true] {
            if drained {
                pool.drain().await.unwrap();
            }
            assert!(pool.is_mapped_from(volume, 0).await.unwrap());
            assert!(pool.is_mapped_from(volume, BLOCK).await.unwrap());
            assert!(pool.is_mapped_from(volume, (1 << 46) - BLOCK).await.unwrap());
            assert!(!pool.is_mapped_from(volume, 1 << 46).await.unwrap());
            // Within a block.
            assert!(pool.is_mapped_from(volume, (1 << 46) - 512).await.unwrap());
        }
        pool.write(volume, 1 << 35, vec![pattern(9, BLOCK as usize)]).await.unwrap();
        pool.unmap(volume, ByteRange::new((1 << 46) - BLOCK, BLOCK)).await.unwrap();
        assert!(!pool.is_mapped_from(volume, (1 << 36) + BLOCK).await.unwrap());

        pool.end_volume(volume, 5 * MIB + 512).unwrap();
        let beyond = pool.write(volume, 5 * MIB, vec![pattern(1, BLOCK as usize)]).await;
        assert!(matches!(beyond, Err(PoolError::BeyondEnd { .. })), "{beyond:?}");
        for range in [ByteRange::new(5 * MIB, BLOCK), ByteRange::new(0, 1 << 36)] {
            let beyond = pool.unmap(volume, range).await;
            assert!(matches!(beyond, Err(PoolError::BeyondEnd { .. })), "{range:?}: {beyond:?}");
        }
        pool.unmap_from(volume, 5 * MIB + 512).await.unwrap();
        assert!(!pool.is_mapped_from(volume, 5 * MIB + 512).await.unwrap());
        assert_eq!(read(&pool, volume, 5 * MIB, 512).await, pattern(2, BLOCK as usize)[..512]);
        assert_eq!(read(&pool, volume, 1 << 35, BLOCK).await, vec![0; BLOCK as usize]);
        pool.drain().await.unwrap();
        assert_eq!(pool.volume_stats(volume).unwrap().mapped_bytes, 2 * BLOCK);
        pool.close().await.unwrap();
    });
    rig.check();
}

/// An unmap of a map that is shared copies nodes on its way to each leaf. They must not take what is promised.
#[test]
fn unmaps_of_a_shared_map_do_not_take_what_is_promised() {
    const LEAVES: u64 = 120;
    const LEAF: u64 = 4 * MIB;
    let rig = Rig::new(5, 2, 24 * MIB);
    let pool = rig.open();
    let world = rig.world.clone();
    let (thin, thick) = rig.run(|_| async move {
        let (thin, thick) = (create(&pool).await, create(&pool).await);
        for leaf in 0..LEAVES {
            pool.write(thin, leaf * LEAF, vec![pattern(leaf, BLOCK as usize)]).await.unwrap();
        }
        pool.drain().await.unwrap();
        fork(&pool, thin).await;
        pool.drain().await.unwrap();
        let refused = reserve(&pool, thick, 1 << 40).await;
        let Err(PoolError::CannotReserve { free_bytes, .. }) = refused else { panic!("{refused:?}") };
        reserve(&pool, thick, free_bytes / BLOCK * BLOCK - 4 * BLOCK).await.unwrap();
        let mut refused = 0;
        for leaf in 0..LEAVES {
            match pool.unmap(thin, ByteRange::new(leaf * LEAF, BLOCK)).await {
                Ok(()) => {}
                Err(PoolError::NoSpace) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(refused > 0);
        pool.drain().await.unwrap();
        let stats = pool.stats();
        assert!(stats.live_bytes + stats.reserved_unmapped_bytes <= stats.usable_bytes, "{stats:?}");
        (thin, thick)
    });
    world.crash();
    rig.check();
    let pool = rig.open();
    rig.run(|_| async move {
        // Nobody was promised anything any more: they go.
        reserve(&pool, thick, 0).await.unwrap();
        for leaf in 0..LEAVES {
            pool.unmap(thin, ByteRange::new(leaf * LEAF, BLOCK)).await.unwrap();
        }
        pool.drain().await.unwrap();
        assert_eq!(pool.volume_stats(thin).unwrap().mapped_bytes, 0);
        pool.close().await.unwrap();
    });
    rig.check();
}

/// Blocks far apart bring a way of nodes each. What they take was reckoned with when they were promised.
#[test]
fn a_promise_holds_for_blocks_that_are_far_apart() {
    const FAR: u64 = 8 << 30;
    let rig = Rig::new(6, 1, 24 * MIB);
    let pool = rig.open();
    rig.run(|_| async move {
        let (far, rest) = (create(&pool).await, create(&pool).await);
        reserve(&pool, far, 40 * BLOCK).await.unwrap();
        let Err(PoolError::CannotReserve { free_bytes, .. }) = reserve(&pool, rest, 1 << 40).await else {
            panic!("a tebibyte was promised")
        };
        reserve(&pool, rest, free_bytes).await.unwrap();
        for place in 0..40 {
            pool.write(far, place * FAR, vec![pattern(place, BLOCK as usize)]).await.unwrap();
            pool.drain().await.unwrap();
        }
        assert_eq!(pool.stats().reserved_unmapped_bytes, free_bytes);
        pool.close().await.unwrap();
    });
    // The check compares what is promised with what is left.
    rig.check();
}
