//! What is reported of space, against what deletions really give back and against who reaches what.

use crate::rig::{Rig, create, fork, pattern, read, settle};
use quoin_base::{MIB, VolumeId};
use quoin_pool::{Pool, Transaction, VolumeSpace};
use quoin_world::World;
use std::collections::BTreeSet;

const BLOCK: u64 = 8192;

async fn write(pool: &Pool, volume: VolumeId, blocks: std::ops::Range<u64>) {
    for block in blocks {
        pool.write(volume, block * BLOCK, vec![pattern(u64::from(volume.0) << 16 | block, 8192)])
            .await
            .unwrap();
    }
}

/// What volumes have, in blocks: written, their own, freed by deleting them.
fn has(pool: &Pool, volumes: &[VolumeId]) -> [u64; 3] {
    let VolumeSpace { written_bytes, own_bytes, freed_bytes, .. } =
        pool.space_of(&volumes.iter().copied().collect::<BTreeSet<_>>());
    [written_bytes, own_bytes, freed_bytes].map(|bytes| bytes / BLOCK)
}

#[test]
fn a_deletion_gives_back_what_was_reported() {
    for deleted in
        [vec![0], vec![1], vec![2], vec![3], vec![1, 2], vec![0, 3], vec![1, 2, 3], vec![0, 1, 2, 3]]
    {
        let rig = Rig::new(1, 2, 16 * MIB);
        let pool = rig.open();
        rig.run(move |world| async move {
            let v = create(&pool).await;
            write(&pool, v, 0..100).await;
            let first = fork(&pool, v).await;
            write(&pool, v, 0..10).await;
            let second = fork(&pool, v).await;
            write(&pool, v, 5..30).await;
            let clone = fork(&pool, first).await;
            write(&pool, clone, 90..110).await;
            write(&pool, first, 90..95).await;
            settle(&*world, &pool).await;
            let all = [v, first, second, clone];
            let chosen: Vec<_> = deleted.iter().map(|i: &usize| all[*i]).collect();
            let [written, own, freed] = has(&pool, &chosen);
            assert!(own <= freed && own <= written, "{deleted:?}: {written} {own} {freed}");
            let before = pool.space();
            assert_eq!(before.unique_bytes, pool.stats().live_bytes);
            assert_eq!(before.unique_bytes, before.own_bytes + before.shared_bytes);
            let mut delete = Transaction::new();
            for volume in &chosen {
                delete = delete.delete_volume(*volume);
            }
            pool.commit(delete).await.unwrap();
            settle(&*world, &pool).await;
            let after = pool.space();
            assert_eq!(before.unique_bytes - after.unique_bytes, freed * BLOCK, "{deleted:?}");
            pool.close().await.unwrap();
        });
        rig.check();
    }
}

#[test]
fn the_worked_example_of_the_documentation() {
    let rig = Rig::new(2, 2, 16 * MIB);
    let pool = rig.open();
    rig.run(move |world| async move {
        let db = create(&pool).await;
        write(&pool, db, 0..100).await;
        settle(&*world, &pool).await;
        assert_eq!(has(&pool, &[db]), [100, 100, 100]);
        let monday = fork(&pool, db).await;
        write(&pool, db, 0..30).await;
        settle(&*world, &pool).await;
        assert_eq!((has(&pool, &[db]), has(&pool, &[monday])), ([100, 30, 30], [100, 0, 30]));
        let tuesday = fork(&pool, db).await;
        write(&pool, db, 20..40).await;
        settle(&*world, &pool).await;
        // 0..20 as of after Monday are in Tuesday's and in the volume.
        assert_eq!(has(&pool, &[db]), [100, 20, 20]);
        assert_eq!(has(&pool, &[tuesday]), [100, 0, 10]);
        assert_eq!(has(&pool, &[monday]), [100, 0, 30]);
        // Blocks 30 to 39 as of Monday are in both snapshots: neither frees them, both together do.
        assert_eq!(has(&pool, &[monday, tuesday]), [200, 0, 50]);
        assert_eq!(read(&pool, monday, 0, BLOCK).await, *pattern(u64::from(db.0) << 16, 8192));
        assert_eq!(pool.space().unique_bytes, 150 * BLOCK);
        assert_eq!(pool.space().written_bytes, 300 * BLOCK);
        pool.close().await.unwrap();
    });
    rig.check();
}

/// A volume that takes in what lay below it still has to look through what it had dropped before. It counts all the same.
#[test]
fn a_report_is_exact_while_a_volume_takes_in_what_lay_below_it() {
    let mut interrupted = 0;
    for seed in 0..20 {
        let rig = Rig::new(seed, 2, 16 * MIB);
        let pool = rig.open();
        let is_cut = rig.run(move |world| async move {
            let volume = create(&pool).await;
            write(&pool, volume, 0..40).await;
            let monday = fork(&pool, volume).await;
            write(&pool, volume, 0..10).await;
            let tuesday = fork(&pool, volume).await;
            write(&pool, volume, 5..20).await;
            settle(&*world, &pool).await;
            let frees = [has(&pool, &[volume])[2], has(&pool, &[monday])[2]];
            pool.commit(Transaction::new().delete_volume(tuesday)).await.unwrap();
            while pool.stats().sifting_entries == 0 && !pool.space().settled {
                world.yield_now().await;
            }
            // Monday's alone are 0..20 now: what the volume wrote over, before Tuesday and after.
            assert_eq!((frees, has(&pool, &[monday])[2]), ([15, 10], 20));
            // The committer goes on looking while the checkpoint is written: what is cut may be half way.
            let is_sifting = pool.stats().sifting_entries > 0;
            pool.checkpoint().await.unwrap();
            is_sifting
        });
        interrupted += u32::from(is_cut);
        rig.world.kill();
        rig.check();
    }
    assert!(interrupted > 0);
}
