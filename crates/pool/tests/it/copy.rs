//! Range copies: what the target holds, what it costs, and what is left when either side goes.

use crate::rig::{Rig, create, fork, pattern, read, settle};
use quoin_base::{ByteRange, MIB, VolumeId};
use quoin_pool::{Pool, PoolError, Transaction};
use std::{collections::BTreeSet, time::Duration};

const BLOCK: u64 = 8192;

async fn write(pool: &Pool, volume: VolumeId, blocks: std::ops::Range<u64>) {
    for block in blocks {
        let data = pattern(u64::from(volume.0) << 16 | block, BLOCK as usize);
        pool.write(volume, block * BLOCK, vec![data]).await.unwrap();
    }
}

/// A fork that can be copied from.
async fn settled_fork(pool: &Pool, source: VolumeId) -> VolumeId {
    let fork = fork(pool, source).await;
    pool.settle_fork(fork).await.unwrap();
    fork
}

async fn copy(pool: &Pool, source: VolumeId, from: u64, target: VolumeId, range: ByteRange) {
    let mut done = 0;
    while done < range.len {
        let rest = ByteRange::new(range.offset + done, range.len - done);
        done += pool.copy_some(source, from + done, target, rest).await.unwrap();
    }
}

async fn end(pool: &Pool, source: VolumeId) {
    pool.settle_copies(Duration::ZERO).await.unwrap();
    pool.commit(Transaction::new().delete_volume(source)).await.unwrap();
}

#[test]
fn a_copy_holds_what_the_source_held_and_takes_no_blocks() {
    let rig = Rig::new(1, 2, 24 * MIB);
    let pool = rig.open();
    let (a, b) = rig.run(|world| async move {
        let (a, b) = (create(&pool).await, create(&pool).await);
        write(&pool, a, 0..300).await;
        pool.unmap(a, ByteRange::new(100 * BLOCK, 50 * BLOCK)).await.unwrap();
        write(&pool, b, 0..40).await;
        let from = settled_fork(&pool, a).await;
        settle(&*world, &pool).await;
        let live = pool.stats().live_bytes;
        // Elsewhere, over what is there and over a hole; parts of blocks at both ends.
        copy(&pool, from, 10 * BLOCK + 512, b, ByteRange::new(20 * BLOCK + 512, 200 * BLOCK)).await;
        write(&pool, a, 60..70).await;
        let held = read(&pool, b, 20 * BLOCK + 512, 200 * BLOCK).await;
        assert_eq!(held, read(&pool, from, 10 * BLOCK + 512, 200 * BLOCK).await);
        end(&pool, from).await;
        settle(&*world, &pool).await;
        assert_eq!(held, read(&pool, b, 20 * BLOCK + 512, 200 * BLOCK).await);
        // 199 whole blocks, 50 of them holes; 19 blocks that were there are gone, one was completed, one is new; 10 were
        // written anew and are shared no more.
        let space = pool.space();
        assert_eq!(space.copied_bytes, 139 * BLOCK);
        assert_eq!(pool.stats().live_bytes, live + BLOCK - 19 * BLOCK + 10 * BLOCK);
        assert_eq!(space.unique_bytes, pool.stats().live_bytes);
        assert_eq!(pool.stats().copied_bytes, 200 * BLOCK);
        (a, b)
    });
    rig.world.crash();
    rig.check();
    // What is overwritten on one side stays on the other, and what both let go of comes back.
    let pool = rig.open();
    rig.run(move |world| async move {
        let held = read(&pool, b, 0, 256 * BLOCK).await;
        write(&pool, a, 0..100).await;
        pool.write(a, 200 * BLOCK + 1024, vec![pattern(7, 512)]).await.unwrap();
        settle(&*world, &pool).await;
        assert_eq!(held, read(&pool, b, 0, 256 * BLOCK).await);
        let before = pool.stats().live_bytes;
        let space = pool.space_of(&BTreeSet::from([a]));
        pool.commit(Transaction::new().delete_volume(a)).await.unwrap();
        settle(&*world, &pool).await;
        let freed = before - pool.stats().live_bytes;
        assert!(space.freed_bytes <= freed && freed <= space.freed_at_most_bytes(), "{freed} of {space:?}");
        assert_eq!(pool.space().copied_bytes, 0);
        assert_eq!(held, read(&pool, b, 0, 256 * BLOCK).await);
        pool.commit(Transaction::new().delete_volume(b)).await.unwrap();
        settle(&*world, &pool).await;
        assert_eq!(pool.stats().live_bytes, 0);
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_copy_is_replayed_and_what_is_written_over_it_shows() {
    let rig = Rig::new(2, 2, 24 * MIB);
    let pool = rig.open();
    let (from, b) = rig.run(|_| async move {
        let (a, b) = (create(&pool).await, create(&pool).await);
        write(&pool, a, 0..64).await;
        let from = settled_fork(&pool, a).await;
        copy(&pool, from, 0, b, ByteRange::new(BLOCK, 64 * BLOCK)).await;
        // A part of a block, a whole one, and the volume that both come from.
        pool.write(b, 5 * BLOCK + 512, vec![pattern(9, 1024)]).await.unwrap();
        write(&pool, b, 7..8).await;
        write(&pool, a, 0..64).await;
        let snapshot = fork(&pool, b).await;
        copy(&pool, from, 0, b, ByteRange::new(40 * BLOCK, 2 * BLOCK)).await;
        assert_eq!(read(&pool, snapshot, 40 * BLOCK, BLOCK).await, *pattern(1 << 16 | 39, BLOCK as usize));
        (from, b)
    });
    rig.world.crash();
    rig.check();
    let pool = rig.open();
    rig.run(move |_| async move {
        for _ in 0..2 {
            for block in [1, 2, 4, 6, 8, 39, 42, 64] {
                let held = read(&pool, b, block * BLOCK, BLOCK).await;
                assert_eq!(held, *pattern(1 << 16 | (block - 1), BLOCK as usize), "{block}");
            }
            assert_eq!(read(&pool, b, 40 * BLOCK, BLOCK).await, *pattern(1 << 16, BLOCK as usize));
            let held = read(&pool, b, 5 * BLOCK, BLOCK).await;
            assert_eq!(held[512..1536], *pattern(9, 1024));
            assert_eq!(held[1536..], pattern(1 << 16 | 4, BLOCK as usize)[1536..]);
            assert_eq!(read(&pool, b, 7 * BLOCK, BLOCK).await, *pattern(2 << 16 | 7, BLOCK as usize));
            pool.drain().await.unwrap();
        }
        end(&pool, from).await;
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_volume_is_copied_onto_itself_many_times() {
    let rig = Rig::new(3, 1, 24 * MIB);
    let pool = rig.open();
    rig.run(|world| async move {
        let a = create(&pool).await;
        write(&pool, a, 0..32).await;
        let from = settled_fork(&pool, a).await;
        for at in 0..20 {
            copy(&pool, from, 0, a, ByteRange::new((16 + 32 * at) * BLOCK, 32 * BLOCK)).await;
        }
        end(&pool, from).await;
        settle(&*world, &pool).await;
        assert_eq!((pool.stats().live_bytes, pool.space().copied_bytes), (32 * BLOCK, 624 * BLOCK));
        let first = read(&pool, a, 16 * BLOCK, 32 * BLOCK).await;
        assert_eq!(first, read(&pool, a, (16 + 32 * 19) * BLOCK, 32 * BLOCK).await);
        let snapshot = fork(&pool, a).await;
        pool.unmap(a, ByteRange::new(16 * BLOCK, 640 * BLOCK)).await.unwrap();
        settle(&*world, &pool).await;
        assert_eq!(first, read(&pool, snapshot, 48 * BLOCK, 32 * BLOCK).await);
        pool.commit(Transaction::new().delete_volume(snapshot)).await.unwrap();
        settle(&*world, &pool).await;
        // The first sixteen are the volume's still.
        assert_eq!((pool.stats().live_bytes, pool.space().copied_bytes), (16 * BLOCK, 0));
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn what_was_copied_from_a_thick_volume_can_still_be_overwritten() {
    let rig = Rig::new(4, 1, 16 * MIB);
    let pool = rig.open();
    rig.run(|world| async move {
        let (a, b) = (create(&pool).await, create(&pool).await);
        let blocks = pool.stats().free_bytes / BLOCK / 4;
        pool.commit(Transaction::new().reserve(a, blocks * BLOCK)).await.unwrap();
        write(&pool, a, 0..blocks).await;
        let from = settled_fork(&pool, a).await;
        copy(&pool, from, 0, b, ByteRange::new(0, blocks * BLOCK)).await;
        end(&pool, from).await;
        settle(&*world, &pool).await;
        let all = pool.stats().reserved_unmapped_bytes;
        assert_eq!(all, blocks * BLOCK, "what it shares must fit once more");
        let mut filled = 0;
        let full = loop {
            let data = pattern(filled, BLOCK as usize);
            match pool.write(b, (blocks + filled) * BLOCK, vec![data]).await {
                Ok(()) => filled += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, PoolError::NoSpace), "{full}");
        write(&pool, a, 0..blocks).await;
        settle(&*world, &pool).await;
        assert_eq!(pool.space().copied_bytes, 0);
        // Overwriting what is shared takes new blocks: a full pool refuses it, and takes it once nobody shares.
        write(&pool, b, 0..4).await;
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_full_pool_copies_over_what_is_there_and_takes_no_more() {
    let rig = Rig::new(5, 2, 16 * MIB);
    let pool = rig.open();
    rig.run(|world| async move {
        let (a, b) = (create(&pool).await, create(&pool).await);
        write(&pool, a, 0..32).await;
        write(&pool, b, 0..32).await;
        let from = settled_fork(&pool, a).await;
        let mut filled = 32;
        while pool.write(a, filled * BLOCK, vec![pattern(filled, BLOCK as usize)]).await.is_ok() {
            filled += 1;
        }
        // Where nothing was, it is refused, and leaves nothing behind. What a copy replaces makes room for it.
        let refused = pool.copy_some(from, 0, b, ByteRange::new(1024 * BLOCK, 16 * BLOCK)).await;
        assert!(matches!(refused, Err(PoolError::NoSpace)), "{refused:?}");
        assert_eq!(read(&pool, b, 1024 * BLOCK, 16 * BLOCK).await, vec![0; 16 * BLOCK as usize]);
        copy(&pool, from, 0, b, ByteRange::new(16 * BLOCK, 16 * BLOCK)).await;
        let expected = read(&pool, from, 0, 16 * BLOCK).await;
        assert_eq!(read(&pool, b, 16 * BLOCK, 16 * BLOCK).await, expected);
        // Once there is space it goes through.
        pool.unmap(a, ByteRange::new(32 * BLOCK, 64 * BLOCK)).await.unwrap();
        settle(&*world, &pool).await;
        copy(&pool, from, 0, b, ByteRange::new(1024 * BLOCK, 16 * BLOCK)).await;
        assert_eq!(read(&pool, b, 1024 * BLOCK, 16 * BLOCK).await, expected);
        end(&pool, from).await;
        pool.close().await.unwrap();
    });
    rig.check();
}
