//! Sectors that cannot be read any more: what is written over a part of them freezes nothing.

mod rig;

use quoin_base::{ByteRange, MIB};
use quoin_drive::SLABS_START_BYTES;
use quoin_pool::PoolError;
use rig::{Rig, create, fork, pattern, read};

const BLOCK: usize = 8192;
/// As the rig has it.
const JOURNAL_BYTES: u64 = 2 * MIB;
const DRIVE_BYTES: u64 = 16 * MIB;

#[test]
fn a_fork_and_a_copy_do_not_wait_for_ever_for_what_cannot_be_read() {
    for seed in 0..3 {
        let rig = Rig::new(seed, 1, DRIVE_BYTES);
        let (pool, disk) = (rig.open(), rig.disks[0].clone());
        rig.run(|_| async move {
            let volume = create(&pool).await;
            pool.write(volume, 0, vec![pattern(1, 4 * BLOCK)]).await.unwrap();
            pool.drain().await.unwrap();
            let first = SLABS_START_BYTES + JOURNAL_BYTES;
            disk.spoil(ByteRange::new(first, DRIVE_BYTES - first));
            // Of the first block a part: the rest of it is nowhere else.
            pool.write(volume, 512, vec![pattern(2, 512)]).await.unwrap();
            pool.write(volume, 3 * BLOCK as u64, vec![pattern(3, BLOCK)]).await.unwrap();
            for _ in 0..3 {
                pool.drain().await.unwrap();
            }
            // While nobody waits for it, it stays where nothing of it is lost.
            assert_eq!((pool.stats().lost_blocks, pool.stats().buffered_bytes), (0, BLOCK as u64));
            assert_eq!(read(&pool, volume, 512, 512).await, *pattern(2, 512));
            let snapshot = fork(&pool, volume).await;
            pool.settle_fork(snapshot).await.unwrap();
            assert_eq!((pool.stats().lost_blocks, pool.stats().buffered_bytes), (1, 0));
            for volume in [volume, snapshot] {
                let lost = pool.read(volume, ByteRange::new(0, 512)).await;
                assert!(matches!(lost, Err(PoolError::Medium { .. })), "{lost:?}");
                let intact = read(&pool, volume, 3 * BLOCK as u64, BLOCK as u64).await;
                assert_eq!(intact, *pattern(3, BLOCK));
            }
            // What is written anew is whole again; a copy waits no longer than a fork.
            pool.write(volume, BLOCK as u64 + 512, vec![pattern(4, 512)]).await.unwrap();
            pool.settle_copies().await.unwrap();
            assert_eq!(pool.stats().lost_blocks, 2);
            pool.write(volume, 0, vec![pattern(5, 2 * BLOCK)]).await.unwrap();
            pool.drain().await.unwrap();
            assert_eq!(read(&pool, volume, 0, 2 * BLOCK as u64).await, *pattern(5, 2 * BLOCK));
            pool.close().await.unwrap();
        });
    }
}
