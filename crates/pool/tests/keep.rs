//! Blocks that stay where the journal put them.

mod rig;

use quoin_base::{KIB, MIB, VolumeId};
use quoin_pool::{Pool, PoolOptions, Transaction};
use rig::{Rig, create, options, pattern, read};

const WRITE: u64 = 64 * KIB;
const WRITES: u64 = 6 * MIB / WRITE;

/// Writes the same 6 MiB once, in the order of `step`.
async fn write_all(pool: &Pool, volume: VolumeId, round: u64, step: u64) {
    for i in 0..WRITES {
        let i = i * step % WRITES;
        pool.write(volume, i * WRITE, vec![pattern(round << 16 | i, WRITE as usize)]).await.unwrap();
    }
}

async fn compare_all(pool: &Pool, volume: VolumeId, round: u64) {
    for i in 0..WRITES {
        let expected = pattern(round << 16 | i, WRITE as usize);
        assert!(read(pool, volume, i * WRITE, WRITE).await == *expected, "write {i} of round {round}");
    }
}

#[test]
fn whole_blocks_are_written_once_and_survive_what_becomes_of_their_extent() {
    let rig = Rig::new(11, 2, 24 * MIB);
    let pool = rig.open();
    let volume = rig.run(|_| async move {
        let volume = create(&pool).await;
        for round in 0..4 {
            write_all(&pool, volume, round, if round % 2 == 0 { 1 } else { 35 }).await;
        }
        let stats = pool.stats();
        assert!(stats.kept_blocks > stats.destaged_blocks / 2, "{stats:?}");
        assert!(stats.destaged_bytes < stats.written_bytes * 6 / 10, "{stats:?}");
        compare_all(&pool, volume, 3).await;
        volume
    });
    rig.world.crash();
    rig.check();
    let pool = rig.open();
    rig.run(|_| async move {
        compare_all(&pool, volume, 3).await;
        // The journal goes on in other slabs than it began in, and its old ones come free.
        for round in 4..40 {
            write_all(&pool, volume, round, 35).await;
        }
        pool.drain().await.unwrap();
        let stats = pool.stats();
        assert!(stats.kept_blocks > stats.destaged_blocks / 2, "{stats:?}");
        assert_eq!((stats.live_bytes, stats.journal_extents), (6 * MIB, 16), "{stats:?}");
        compare_all(&pool, volume, 39).await;
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn what_is_kept_thinly_is_moved_by_the_cleaner_and_goes_with_its_volume() {
    let rig = Rig::new(12, 2, 16 * MIB);
    let pool = rig.open_with(PoolOptions { keep_from_percent: 10, ..options() });
    rig.run(|_| async move {
        let (stays, goes) = (create(&pool).await, create(&pool).await);
        // One block in eight is not overwritten, so that every kept extent ends up with a few.
        for round in 0..24u64 {
            for i in 0..512u64 {
                let block = if i % 8 == 0 { 512 + round * 64 + i / 8 } else { i };
                if round < 8 || i % 8 > 0 {
                    pool.write(stays, block * 8192, vec![pattern(round << 16 | i, 8192)]).await.unwrap();
                }
                pool.write(goes, i * 8192, vec![pattern(round << 16 | i, 8192)]).await.unwrap();
            }
        }
        pool.drain().await.unwrap();
        let stats = pool.stats();
        assert!(stats.kept_blocks > 0 && stats.cleaned_bytes > 0, "{stats:?}");
        assert_eq!(stats.uncleanable_segments, 0, "{stats:?}");
        for round in 0..8u64 {
            for i in (0..512u64).step_by(8) {
                let at = (512 + round * 64 + i / 8) * 8192;
                assert!(read(&pool, stays, at, 8192).await == *pattern(round << 16 | i, 8192), "{round} {i}");
            }
        }
        pool.commit(Transaction::new().delete_volume(goes)).await.unwrap();
        let mapped = |pool: &Pool| pool.volume_stats(stays).unwrap().mapped_bytes;
        while pool.stats().live_bytes > mapped(&pool) {
            pool.drain().await.unwrap();
        }
        pool.close().await.unwrap();
    });
    rig.check();
}
