//! A second owner takes a pool over while the first one goes on: what the first acknowledged is there, and nothing that it
//! does later.

use crate::rig::{Rig, create, options, pattern, read};
use quoin_base::{HolderId, MIB};
use quoin_drive::open_set;
use quoin_pool::{Pool, PoolState};
use quoin_world::{Disk, Thread, World};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use uuid::Uuid;

const BLOCK: u64 = 8192;
const BLOCKS: u64 = 8;

/// A number of a block, which it is filled with.
fn block(tag: u64) -> Vec<quoin_world::Slice> {
    vec![pattern(tag, BLOCK as usize)]
}

async fn tag_of(pool: &Pool, volume: quoin_base::VolumeId, at: u64) -> u64 {
    let found = read(pool, volume, at * BLOCK, BLOCK).await;
    let tag = u64::from_le_bytes(found[..8].try_into().unwrap()) >> 32;
    assert!(found == pattern(tag, BLOCK as usize).to_vec(), "block {at} is torn");
    tag
}

fn taken_over(seed: u64) {
    let rig = Rig::with_slices(seed, 2, 32 * MIB, 1 + (seed % 2) as u8 * 2);
    let disks: Vec<_> = rig.disks.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect();
    rig.run(|world| async move {
        let drives = open_set(disks).await.unwrap();
        let open = |holder: u128| {
            let holder = HolderId(Uuid::from_u128(holder));
            let drives = drives.iter().map(|drive| drive.attach(holder)).collect();
            Pool::open(world.clone(), drives, options())
        };
        let first = open(1).await.unwrap();
        let volume = create(&first).await;

        // The first owner writes until it is refused.
        let acknowledged: Arc<Vec<AtomicU64>> = Arc::new((0..BLOCKS).map(|_| AtomicU64::new(0)).collect());
        let ended = Arc::new(AtomicU64::new(0));
        for at in 0..BLOCKS {
            let (pool, acknowledged, ended) = (first.clone(), acknowledged.clone(), ended.clone());
            let writer = async move {
                for tag in 1.. {
                    if pool.write(volume, at * BLOCK, block(tag)).await.is_err() {
                        break;
                    }
                    acknowledged[at as usize].store(tag, Ordering::SeqCst);
                }
                ended.fetch_add(1, Ordering::SeqCst);
            };
            world.spawn(Thread::Data((at % 2) as usize), Box::pin(writer));
        }
        world.sleep(Duration::from_millis(world.random_u64() % 300)).await;

        // The second one finds all that was acknowledged, however long the first went on.
        let second = open(2).await.unwrap();
        let before: Vec<_> = acknowledged.iter().map(|tag| tag.load(Ordering::SeqCst)).collect();
        for at in 0..BLOCKS {
            let found = tag_of(&second, volume, at).await;
            let acknowledged = before[at as usize];
            assert!(found == acknowledged || found == acknowledged + 1, "{found}, not {acknowledged}");
        }
        for at in 0..BLOCKS {
            second.write(volume, at * BLOCK, block(1 << 20 | at)).await.unwrap();
        }
        world.sleep(Duration::from_secs(2)).await;
        assert_eq!(ended.load(Ordering::SeqCst), BLOCKS, "no write of the first owner waits for ever");
        let after: Vec<_> = acknowledged.iter().map(|tag| tag.load(Ordering::SeqCst)).collect();
        assert_eq!(before, after, "the first owner acknowledged something after it was fenced");
        assert!(first.is_taken_over() && !second.is_taken_over());
        match first.state() {
            PoolState::Offline { reason: why } => {
                assert!(why.contains("another owner has taken it over"), "{why}")
            }
            other => panic!("the first owner is {other:?}"),
        }
        for drained in [false, true] {
            if drained {
                second.drain().await.unwrap();
            }
            for at in 0..BLOCKS {
                assert_eq!(tag_of(&second, volume, at).await, 1 << 20 | at);
            }
        }
        drop(first);
        second.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn an_owner_that_was_taken_over_from_acknowledges_nothing_and_changes_nothing() {
    (0..24).for_each(taken_over);
}
