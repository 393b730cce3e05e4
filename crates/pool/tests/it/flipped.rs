//! Bits that flip in RAM between the receipt of a write and its destage: found, and what the journal has is taken.

use crate::rig::{Rig, SLAB, create, pattern, read};
use quoin_base::{ByteRange, MIB};
use quoin_pool::{Pool, PoolError};
use quoin_world_sim::SimDisk;
use std::sync::Arc;

const BLOCK: u64 = 8192;

/// Flips a bit of the one place on the disks that holds the beginning of this.
fn damage(disks: &[Arc<SimDisk>], content: &[u8]) {
    let mut found = 0;
    for disk in disks {
        for at in (0..16 * MIB).step_by(SLAB as usize) {
            let slab = disk.peek(at, SLAB as usize);
            for sector in (0..slab.len()).step_by(512).filter(|s| slab[*s..*s + 512] == content[..512]) {
                disk.poke(at + sector as u64 + 9, &[slab[sector + 9] ^ 1]);
                found += 1;
            }
        }
    }
    assert_eq!(found, 1);
}

#[test]
fn what_changed_in_ram_is_read_from_the_journal_again() {
    let rig = Rig::new(1, 2, 16 * MIB);
    let pool = rig.open();
    let volume = rig.run(move |_| async move {
        let volume = create(&pool).await;
        // Below, to be written over in part.
        for block in 16..24 {
            pool.write(volume, block * BLOCK, vec![pattern(100 + block, 8192)]).await.unwrap();
        }
        pool.drain().await.unwrap();
        assert_eq!(pool.stats().ram_faults, 0);
        // Whole blocks in records of their own and of many; parts of blocks, some of them overwritten in part.
        for block in 0..4 {
            pool.write(volume, block * BLOCK, vec![pattern(block, 8192)]).await.unwrap();
        }
        pool.write(volume, 4 * BLOCK, vec![pattern(4, 12 * 8192)]).await.unwrap();
        for block in 16..20u64 {
            pool.write(volume, block * BLOCK + 512, vec![pattern(block, 4096)]).await.unwrap();
            pool.write(volume, block * BLOCK + 1024, vec![pattern(50 + block, 512)]).await.unwrap();
        }
        let across = 22 * BLOCK - 1024;
        pool.write(volume, across, vec![pattern(22, 2048)]).await.unwrap();
        pool.flip_bits(1000);
        pool.drain().await.unwrap();
        let stats = pool.stats();
        assert_eq!((stats.ram_faults, stats.lost_blocks), (16 + 4 + 2, 0));
        holds(&pool, volume).await;
        pool.close().await.unwrap();
        volume
    });
    rig.check();
    let pool = rig.open();
    rig.run(move |_| async move { holds(&pool, volume).await });

    async fn holds(pool: &Pool, volume: quoin_base::VolumeId) {
        for block in 0..4 {
            assert_eq!(read(pool, volume, block * BLOCK, BLOCK).await, *pattern(block, 8192));
        }
        assert_eq!(read(pool, volume, 4 * BLOCK, 12 * BLOCK).await, *pattern(4, 12 * 8192));
        for block in 16..20u64 {
            let mut expected = pattern(100 + block, 8192).to_vec();
            expected[512..4608].copy_from_slice(&pattern(block, 4096));
            expected[1024..1536].copy_from_slice(&pattern(50 + block, 512));
            assert_eq!(read(pool, volume, block * BLOCK, BLOCK).await, expected, "block {block}");
        }
        assert_eq!(read(pool, volume, 22 * BLOCK - 1024, 2048).await, *pattern(22, 2048));
    }
}

#[test]
fn what_the_journal_does_not_have_either_is_lost_and_never_wrong() {
    let rig = Rig::new(2, 2, 16 * MIB);
    let pool = rig.open();
    let disks = rig.disks.clone();
    rig.run(move |_| async move {
        let volume = create(&pool).await;
        for block in 0..3 {
            pool.write(volume, block * BLOCK, vec![pattern(block, 8192)]).await.unwrap();
        }
        damage(&disks, &pattern(1, 8192));
        pool.flip_bits(3);
        pool.drain().await.unwrap();
        let stats = pool.stats();
        assert_eq!((stats.ram_faults, stats.lost_blocks), (3, 1));
        let lost = pool.read(volume, ByteRange::new(BLOCK, BLOCK)).await;
        assert!(
            matches!(&lost, Err(PoolError::Medium { offset: BLOCK, unread: false, .. })),
            "{:?}",
            lost.err()
        );
        for block in [0, 2] {
            assert_eq!(read(&pool, volume, block * BLOCK, BLOCK).await, *pattern(block, 8192));
        }
        pool.write(volume, BLOCK, vec![pattern(9, 8192)]).await.unwrap();
        assert_eq!(read(&pool, volume, 0, BLOCK).await, *pattern(0, 8192));
        pool.drain().await.unwrap();
        assert_eq!(read(&pool, volume, BLOCK, BLOCK).await, *pattern(9, 8192));
        pool.close().await.unwrap();
    });
    rig.check();
}
