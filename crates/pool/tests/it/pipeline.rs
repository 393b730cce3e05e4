//! Destage composes the next batch while the rows of one are written, and writes to all drives side by side.

use crate::rig::{Rig, create, options, pattern, read};
use quoin_base::MIB;
use quoin_drive::{Roles, open_set};
use quoin_pool::{Pool, PoolOptions};
use quoin_world::Disk;
use std::{sync::Arc, time::Duration};

const BLOCK: u64 = 8192;
const BLOCKS: u64 = 1024;

fn roomy() -> PoolOptions {
    PoolOptions {
        buffer_bytes: 64 * MIB,
        metadata_bytes: 16 * MIB,
        dirty_bytes: 8 * MIB,
        destage_after: Duration::from_secs(600),
        checkpoint_after: Duration::from_secs(600),
        ..options()
    }
}

/// What is written over parts of blocks while these are destaged, batch after batch, is what is read afterwards and after
/// a crash: no batch publishes an older version over a newer one.
#[test]
fn what_is_overwritten_while_two_batches_are_under_way_stays() {
    for seed in 0..8 {
        let rig = Rig::new(seed, 2, 96 * MIB);
        let pool = rig.open_with(roomy());
        let (volume, expected) = rig.run(move |_| async move {
            let volume = create(&pool).await;
            let mut expected = vec![0u8; (BLOCKS * BLOCK) as usize];
            let mut round = 1;
            let mut overlapped = 0;
            for _ in 0..3 {
                let mut write = async |pool: &Pool, block: u64, tag: u64| {
                    let (at, data) = (block * BLOCK + (tag % 15) * 512, pattern(tag, 1024));
                    pool.write(volume, at, vec![data.clone()]).await.unwrap();
                    expected[at as usize..][..1024].copy_from_slice(&data);
                };
                for block in 0..BLOCKS {
                    round += 1;
                    write(&pool, block, round).await;
                }
                let drain = async { pool.drain().await.unwrap() };
                let overwrite = async {
                    for i in 0..BLOCKS / 2 {
                        round += 1;
                        write(&pool, i * 37 % BLOCKS, round).await;
                    }
                };
                futures_util::future::join(drain, overwrite).await;
                overlapped = pool.stats().overlapped_blocks;
                assert!(read(&pool, volume, 0, BLOCKS * BLOCK).await == expected, "seed {seed}");
            }
            assert!(overlapped > BLOCKS, "{overlapped} blocks");
            (volume, expected)
        });
        rig.world.crash();
        let pool = rig.open_with(roomy());
        let found = rig.run(move |_| async move {
            let found = read(&pool, volume, 0, BLOCKS * BLOCK).await;
            pool.close().await.unwrap();
            found
        });
        assert!(found == expected, "seed {seed}, after a crash");
        rig.check();
    }
}

/// A batch that is shorter than a segment goes to every drive, a row to each.
#[test]
fn the_rows_of_a_batch_are_spread_over_all_drives() {
    let of = |journal| Roles { journal, data: !journal };
    let rig = Rig::with_roles(1, &[of(true), of(false), of(false), of(false)], 96 * MIB, 1);
    let disks: Vec<_> = rig.disks.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect();
    rig.run(move |world| async move {
        let drives = open_set(disks).await.unwrap();
        let pool = Pool::open(world, drives.clone(), roomy()).await.unwrap();
        let volume = create(&pool).await;
        pool.drain().await.unwrap();
        let written = || drives.iter().map(|drive| drive.counters().write_bytes).collect::<Vec<_>>();
        // Three rows of seven blocks each.
        for block in 0..21 {
            pool.write(volume, block * BLOCK, vec![pattern(block, BLOCK as usize)]).await.unwrap();
        }
        let before = written();
        pool.drain().await.unwrap();
        let gained: Vec<_> = written().iter().zip(&before).map(|(now, before)| now - before).collect();
        assert!(gained[1..].iter().all(|bytes| *bytes > 7 * BLOCK), "{gained:?}");
        for block in 0..21 {
            assert!(
                read(&pool, volume, block * BLOCK, BLOCK).await == pattern(block, BLOCK as usize).to_vec()
            );
        }
        pool.close().await.unwrap();
    });
    rig.check();
}
