//! A checkpoint is cut, and written while everything else goes on.

use crate::rig::{Rig, create, options, pattern, read};
use futures_util::{StreamExt, future::join, stream};
use quoin_base::{MIB, VolumeId};
use quoin_drive::Roles;
use quoin_pool::{Pool, PoolOptions};
use quoin_world::World;
use std::time::Duration;

const BLOCK: u64 = 8192;
/// Blocks so far apart that each has a leaf of its own.
const APART: u64 = 4 * MIB;
/// What an operation of the slow drive takes.
const LATENCY: Duration = Duration::from_millis(20);

const JOURNAL: Roles = Roles { journal: true, data: false };
const DATA: Roles = Roles { journal: false, data: true };

/// One drive for the journal, and one for data that becomes slow.
fn rig(seed: u64) -> Rig {
    Rig::with_roles(seed, &[JOURNAL, DATA], 64 * MIB, 1)
}

fn roomy() -> PoolOptions {
    PoolOptions {
        buffer_bytes: 64 * MIB,
        metadata_bytes: 16 * MIB,
        dirty_bytes: 4 * MIB,
        checkpoint_after: Duration::from_secs(600),
        destage_after: Duration::from_millis(20),
        ..options()
    }
}

async fn write(pool: &Pool, volume: VolumeId, at: u64, tag: u64) {
    pool.write(volume, at, vec![pattern(tag, BLOCK as usize)]).await.unwrap();
}

/// Blocks are destaged between a cut and its root, and the cut does not wait for the drive.
#[test]
fn destage_goes_on_while_a_checkpoint_is_under_way() {
    let rig = rig(1);
    let pool = rig.open_with(roomy());
    let slow = rig.disks[1].clone();
    let volume = rig.run(move |world| async move {
        let volume = create(&pool).await;
        let mut writes = stream::iter(0..96).map(|i| write(&pool, volume, i * APART, i)).buffer_unordered(8);
        while writes.next().await.is_some() {}
        drop(writes);
        slow.change_faults(|faults| (faults.latency, faults.slow) = (LATENCY..=LATENCY, 0.0));
        let checkpoints = pool.stats().checkpoints;
        let hosts = async {
            // Destaged by the time the checkpoint is half way.
            for i in 0..32 {
                write(&pool, volume, i * APART + BLOCK, 1000 + i).await;
                world.sleep(Duration::from_millis(5)).await;
            }
        };
        let checkpoint = async {
            world.sleep(Duration::from_millis(60)).await;
            pool.checkpoint().await.unwrap();
            pool.stats()
        };
        let ((), stats) = join(hosts, checkpoint).await;
        // One may have been under way for what the pool itself was in need of.
        assert!(stats.checkpoints > checkpoints, "{stats:#?}");
        assert!(stats.destaged_beside_checkpoints > 0, "{stats:#?}");
        assert!(stats.checkpoint_time >= 4 * LATENCY && stats.longest_cut < LATENCY, "{stats:#?}");
        volume
    });
    rig.disks[1].change_faults(|faults| faults.latency = Duration::ZERO..=Duration::ZERO);
    rig.world.crash();
    let pool = rig.open_with(roomy());
    rig.run(move |_| async move {
        for i in 0..32 {
            assert_eq!(read(&pool, volume, i * APART, BLOCK).await, pattern(i, BLOCK as usize).to_vec());
            let second = read(&pool, volume, i * APART + BLOCK, BLOCK).await;
            assert_eq!(second, pattern(1000 + i, BLOCK as usize).to_vec());
        }
        pool.close().await.unwrap();
    });
    rig.check();
}

/// A request that comes while a checkpoint is under way, or the closing of the pool, is answered by one that is
/// cut later.
#[test]
fn a_checkpoint_that_is_asked_for_was_cut_after_that() {
    let rig = rig(2);
    let pool = rig.open_with(roomy());
    let slow = rig.disks[1].clone();
    rig.run(move |world| async move {
        let volume = create(&pool).await;
        write(&pool, volume, 0, 1).await;
        pool.drain().await.unwrap();
        slow.change_faults(|faults| (faults.latency, faults.slow) = (LATENCY..=LATENCY, 0.0));
        let before = pool.stats().checkpoints;
        let ask = async |after: Duration| {
            world.sleep(after).await;
            pool.checkpoint().await.unwrap();
            pool.stats().checkpoints - before
        };
        // The first is under way when the other two are asked for: one more does for both.
        let ((first, second), third) = join(join(ask(Duration::ZERO), ask(LATENCY / 2)), ask(LATENCY)).await;
        assert_eq!((first, second, third), (1, 2, 2));
        let begun = async {
            let _ = join(pool.checkpoint(), async {
                world.sleep(LATENCY / 2).await;
                write(&pool, volume, BLOCK, 2).await;
                pool.close().await.unwrap();
            })
            .await;
        };
        begun.await;
        assert!(pool.stats().checkpoints - before >= 4);
    });
    let pool = rig.open_with(roomy());
    assert_eq!(pool.recovery().replayed_records, 0);
    rig.run(move |_| async move { pool.close().await.unwrap() });
    rig.check();
}
