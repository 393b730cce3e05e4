//! Ids of layers are used again when nothing is left of what had them.

use crate::rig::{Rig, create, options, pattern, read, settle};
use quoin_base::MIB;
use quoin_pool::{PoolError, PoolOptions, Transaction};
use quoin_world::World;
use std::{collections::BTreeMap, time::Duration};

const BLOCK: u64 = 8192;

fn few_ids() -> PoolOptions {
    PoolOptions { layer_ids: 24, ..options() }
}

#[test]
fn many_more_snapshots_than_ids_are_taken_over_crashes_and_each_holds_what_it_should() {
    let rig = Rig::new(3, 2, 24 * MIB);
    let pool = rig.open_with(few_ids());
    let volume = rig.run(|_| async move { create(&pool).await });
    rig.world.crash();
    let (mut tag, mut held, mut refused) = (0u64, BTreeMap::new(), 0);
    for round in 0..12 {
        let pool = rig.open_with(few_ids());
        (tag, held, refused) = rig.run(|world| async move {
            for (&snapshot, &tag) in &held {
                assert!(read(&pool, snapshot, 0, BLOCK).await == *pattern(tag, BLOCK as usize), "{snapshot}");
            }
            for turn in 0..8u64 {
                tag += 1;
                for block in [0, tag % 7, 600 * (tag % 3)] {
                    pool.write(volume, block * BLOCK, vec![pattern(tag, BLOCK as usize)]).await.unwrap();
                }
                let snapshot = pool.next_volume_id();
                match pool.commit(Transaction::new().fork(volume, snapshot)).await {
                    Ok(()) => drop(held.insert(snapshot, tag)),
                    Err(PoolError::Refused(why)) if why.contains("tell more volumes") => refused += 1,
                    Err(error) => panic!("{error}"),
                }
                // The oldest goes, or one in the middle.
                while held.len() > 4 || refused > 0 && held.len() > 2 {
                    let at = (tag % 2) as usize * held.len() / 2;
                    let victim = *held.keys().nth(at).unwrap();
                    held.remove(&victim);
                    pool.commit(Transaction::new().delete_volume(victim)).await.unwrap();
                }
                if turn % 3 == 0 {
                    settle(&*world, &pool).await;
                }
            }
            if round % 3 == 0 {
                pool.close().await.unwrap();
            }
            (tag, held, refused)
        });
        rig.world.crash();
        rig.check();
    }
    assert_eq!(tag, 96);
    // Each fork takes two: without using any again, eleven could be made.
    assert!(refused < 20, "{refused}");
}

#[test]
fn where_no_id_is_left_a_fork_is_refused_until_something_is_deleted() {
    let rig = Rig::new(4, 2, 24 * MIB);
    let pool = rig.open_with(few_ids());
    rig.run(|world| async move {
        let volume = create(&pool).await;
        let mut snapshots = Vec::new();
        let refused = loop {
            pool.write(volume, 0, vec![pattern(snapshots.len() as u64, BLOCK as usize)]).await.unwrap();
            let snapshot = pool.next_volume_id();
            match pool.commit(Transaction::new().fork(volume, snapshot)).await {
                Ok(()) => snapshots.push(snapshot),
                Err(error) => break error.to_string(),
            }
        };
        assert!(refused.contains("delete some"), "{refused}");
        assert_eq!(snapshots.len(), 11);
        // Nothing is on its way to come free: to be refused again takes no second checkpoint and no waiting.
        let (began, before) = (world.now(), pool.stats().checkpoints);
        let snapshot = pool.next_volume_id();
        assert!(pool.commit(Transaction::new().fork(volume, snapshot)).await.is_err());
        let (took, checkpoints) = (world.now().since(began), pool.stats().checkpoints - before);
        assert!(took < Duration::from_millis(200) && checkpoints <= 1, "{took:?}, {checkpoints} checkpoints");
        for snapshot in snapshots.drain(..6) {
            pool.commit(Transaction::new().delete_volume(snapshot)).await.unwrap();
        }
        settle(&*world, &pool).await;
        for _ in 0..3 {
            let snapshot = pool.next_volume_id();
            pool.commit(Transaction::new().fork(volume, snapshot)).await.unwrap();
        }
        pool.close().await.unwrap();
    });
    rig.check();
}
