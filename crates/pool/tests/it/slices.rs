//! Pools that are divided into slices.

use crate::rig::{Rig, create, fork, pattern, read};
use quoin_base::{ByteRange, MIB, VolumeId};
use quoin_drive::Roles;
use quoin_pool::{ObjectKind, Pool, PoolError, Transaction};
use quoin_world::{Thread, World};
use quoin_world_sim::PowerCut;
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

const BLOCK: u64 = 8192;
const KIND: ObjectKind = ObjectKind(1);

fn three() -> Rig {
    Rig::with_slices(1, 2, 32 * MIB, 3)
}

async fn write(pool: &Pool, volume: VolumeId, tag: u64) {
    pool.write(volume, 0, vec![pattern(tag, 4 * BLOCK as usize)]).await.unwrap();
}

async fn holds(pool: &Pool, volume: VolumeId, tag: u64) -> bool {
    read(pool, volume, 0, 4 * BLOCK).await == pattern(tag, 4 * BLOCK as usize).to_vec()
}

/// A volume of each slice; each holds its own number.
async fn one_each(pool: &Pool) -> Vec<VolumeId> {
    let mut volumes = Vec::new();
    for tag in 0..pool.slice_count() as u64 {
        let volume = create(pool).await;
        write(pool, volume, tag).await;
        volumes.push(volume);
    }
    let slices: BTreeSet<_> = volumes.iter().map(|volume| volume.slice()).collect();
    assert_eq!(slices.len(), pool.slice_count(), "new volumes go where there is most room");
    volumes
}

#[test]
fn what_slices_hold_is_there_after_close_and_kill() {
    let rig = three();
    let pool = rig.open();
    let volumes = rig.run(|_| async move {
        let volumes = one_each(&pool).await;
        pool.close().await.unwrap();
        volumes
    });
    rig.check();
    for closes in [true, false] {
        let (pool, volumes) = (rig.open(), volumes.clone());
        assert_eq!(pool.slice_count(), 3);
        rig.run(|_| async move {
            for (tag, volume) in (0..).zip(&volumes) {
                assert!(holds(&pool, *volume, tag).await);
                pool.write(*volume, 8 * BLOCK, vec![pattern(99, BLOCK as usize)]).await.unwrap();
            }
            if closes {
                pool.close().await.unwrap();
            }
        });
        rig.world.kill();
        rig.check();
    }
}

#[test]
fn an_object_stays_in_its_slice_and_is_found_there() {
    let rig = three();
    let pool = rig.open();
    rig.run(|_| async move {
        let volumes = one_each(&pool).await;
        // New with the volume of each slice, then changed beside a volume of another one.
        for volume in &volumes {
            let key = format!("v{volume}");
            let tx = Transaction::new().reserve(*volume, 0).put(KIND, &key, b"old".to_vec());
            pool.commit(tx).await.unwrap();
        }
        for (volume, other) in volumes.iter().zip(volumes.iter().cycle().skip(1)) {
            let key = format!("v{volume}");
            let tx = Transaction::new().reserve(*other, 0).put(KIND, &key, b"new".to_vec());
            pool.commit(tx).await.unwrap();
        }
        let keys: Vec<_> = volumes.iter().map(|volume| (format!("v{volume}"), b"new".to_vec())).collect();
        assert_eq!(pool.list(KIND), keys);
        let gone = Transaction::new().delete(KIND, &keys[1].0).reserve(volumes[0], 0);
        pool.commit(gone).await.unwrap();
        assert_eq!((pool.get(KIND, &keys[1].0), pool.list(KIND).len()), (None, 2));
        pool.close().await.unwrap();
    });
    rig.check();
}

/// The forks of one transaction and its object are there together or not at all, wherever the power fails.
#[test]
fn what_spans_slices_takes_effect_in_all_or_none() {
    let mut made = [0, 0];
    for cut in 1..60 {
        let rig = three();
        let pool = rig.open();
        let volumes = rig.run(|_| async move {
            let volumes = one_each(&pool).await;
            pool.drain().await.unwrap();
            volumes
        });
        let pool = {
            rig.world.kill();
            rig.open()
        };
        let forks: Vec<_> = volumes.iter().map(|volume| pool.next_volume_id_near(*volume)).collect();
        rig.world.cut_power(PowerCut::AtDiskOp(cut));
        let (sources, targets, task_pool) = (volumes.clone(), forks.clone(), pool.clone());
        let outcome = rig.world.run(async move {
            let pairs = sources.iter().zip(&targets);
            let tx = pairs.fold(Transaction::new(), |tx, (source, target)| tx.fork(*source, *target));
            let done = task_pool.commit(tx.put(KIND, "set", b"all".to_vec())).await.is_ok();
            // Both the decision and what came of it go through checkpoints.
            write(&task_pool, sources[0], 77).await;
            task_pool.drain().await.unwrap();
            done
        });
        drop(pool);
        rig.world.cut_power(PowerCut::Never);
        rig.check();
        let pool = rig.open();
        let (volumes, forks) = (volumes.clone(), forks.clone());
        let there = rig.run(|_| async move {
            let is_there = |volume: &VolumeId| pool.volume_stats(*volume).is_some();
            let there = forks.iter().filter(|fork| is_there(fork)).count();
            assert!(there == 0 || there == 3, "cut {cut}: {there} of 3 forks are there");
            assert_eq!(pool.get(KIND, "set").is_some(), there == 3, "cut {cut}");
            for (tag, (volume, fork)) in (0..).zip(volumes.iter().zip(&forks)) {
                assert!(
                    there == 0 || holds(&pool, *fork, tag).await,
                    "cut {cut}: a fork holds what was forked"
                );
                assert!(tag == 0 || holds(&pool, *volume, tag).await, "cut {cut}");
            }
            pool.close().await.unwrap();
            there
        });
        assert!(there == 3 || outcome != Ok(true), "cut {cut}: what was acknowledged is there");
        made[usize::from(there == 3)] += 1;
        rig.world.kill();
        rig.check();
    }
    // The parts of three slices are hardened before it is decided.
    assert!(made[0] >= 3 && made[1] > 3, "{made:?}");
}

#[test]
fn decisions_are_forgotten_once_nobody_will_ask() {
    let rig = three();
    let pool = rig.open();
    rig.run(|_| async move {
        let volumes = one_each(&pool).await;
        for _ in 0..20 {
            let both = volumes.iter().fold(Transaction::new(), |tx, volume| tx.reserve(*volume, 0));
            pool.commit(both).await.unwrap();
            pool.drain().await.unwrap();
        }
        // The number of the kind is the pool's own.
        let known = pool.list(ObjectKind(41)).len();
        assert!(known <= 2, "{known} decisions are kept");
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_copy_between_slices_is_one_of_data() {
    let rig = three();
    let pool = rig.open();
    rig.run(|_| async move {
        let volumes = one_each(&pool).await;
        write(&pool, volumes[1], 7).await;
        pool.write(volumes[1], 64 * BLOCK, vec![pattern(8, BLOCK as usize)]).await.unwrap();
        let from = fork(&pool, volumes[0]).await;
        pool.settle_fork(from).await.unwrap();
        let all = ByteRange::new(0, 128 * BLOCK);
        let mut done = 0;
        while done < all.len {
            let rest = ByteRange::from(done..all.len);
            done += pool.copy_some(from, done, volumes[1], rest).await.unwrap();
        }
        assert!(holds(&pool, volumes[1], 0).await);
        assert_eq!(
            read(&pool, volumes[1], 64 * BLOCK, BLOCK).await,
            vec![0; BLOCK as usize],
            "a hole is copied"
        );
        pool.settle_copies(Duration::ZERO).await.unwrap();
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_fork_stays_in_the_slice_of_its_source() {
    let rig = three();
    let pool = rig.open();
    rig.run(|_| async move {
        let volumes = one_each(&pool).await;
        let elsewhere = pool.next_volume_id_near(volumes[1]);
        let refused = pool.commit(Transaction::new().fork(volumes[0], elsewhere)).await;
        assert!(
            matches!(&refused, Err(PoolError::Refused(why)) if why.contains("different slices")),
            "{refused:?}"
        );
        // No slice has it: 12 are not there.
        let nowhere = VolumeId(12 << 28 | 1);
        assert!(pool.volume_stats(nowhere).is_none());
        let refused = pool.commit(Transaction::new().create_volume(nowhere)).await;
        assert!(
            matches!(&refused, Err(PoolError::Refused(why)) if why.contains("no slice 12")),
            "{refused:?}"
        );
        let missing = pool.read(nowhere, ByteRange::new(0, BLOCK)).await;
        assert!(matches!(missing, Err(PoolError::NoSuchVolume(_))));
        pool.close().await.unwrap();
    });
}

#[test]
fn a_part_that_is_refused_leaves_the_others_undone() {
    let rig = three();
    let pool = rig.open();
    rig.run(|_| async move {
        let volumes = one_each(&pool).await;
        let missing = pool.next_volume_id_near(volumes[2]);
        let tx = Transaction::new().delete_volume(volumes[0]).delete_volume(missing);
        assert!(matches!(pool.commit(tx).await, Err(PoolError::NoSuchVolume(_))));
        assert!(holds(&pool, volumes[0], 0).await);
        // Nothing is left locked by it.
        let tx = Transaction::new().delete_volume(volumes[0]).delete_volume(volumes[2]);
        pool.commit(tx).await.unwrap();
        assert!(pool.volume_stats(volumes[0]).is_none() && pool.volume_stats(volumes[2]).is_none());
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn figures_are_sums_over_the_slices() {
    let rig = three();
    let pool: Arc<Pool> = rig.open();
    rig.run(|_| async move {
        let volumes = one_each(&pool).await;
        pool.drain().await.unwrap();
        let stats = pool.stats();
        assert_eq!((stats.layers, stats.live_bytes), (3, 3 * 4 * BLOCK));
        let space = pool.space_of(&volumes.iter().copied().collect());
        assert_eq!((space.written_bytes, space.freed_bytes), (3 * 4 * BLOCK, 3 * 4 * BLOCK));
        assert_eq!(pool.space().unique_bytes, 3 * 4 * BLOCK);
        assert_eq!(
            pool.families().values().collect::<BTreeSet<_>>().len(),
            3,
            "slices have no family in common"
        );
        pool.close().await.unwrap();
    });
}

/// The one drive with a journal hangs, and is no voter: only the rule that checkpoints wait keeps them from being made.
#[test]
fn no_checkpoint_takes_in_what_is_not_decided() {
    let data = Roles { journal: false, data: true };
    let mut roles = vec![data; 6];
    roles.push(Roles { journal: true, data: false });
    let rig = Rig::with_roles(1, &roles, 16 * MIB, 3);
    let journal = rig.disks[6].clone();
    let pool = rig.open();
    rig.run(|world| async move {
        let volumes = one_each(&pool).await;
        pool.drain().await.unwrap();
        journal.hang();
        let before = pool.stats().checkpoints;
        pool.checkpoint().await.unwrap();
        assert_eq!(pool.stats().checkpoints, before + 3, "a checkpoint needs no journal");

        let forks: Vec<_> = volumes.iter().map(|volume| pool.next_volume_id_near(*volume)).collect();
        let both = volumes.iter().zip(&forks).fold(Transaction::new(), |tx, (of, to)| tx.fork(*of, *to));
        let (done, task_pool, ended) = (pool.clone(), pool.clone(), Arc::new(AtomicU64::new(0)));
        let (of_commit, of_checkpoint) = (ended.clone(), ended.clone());
        let commit = async move {
            done.commit(both).await.unwrap();
            of_commit.fetch_add(1, Ordering::Relaxed);
        };
        world.spawn(Thread::Data(0), Box::pin(commit));
        world.sleep(Duration::from_millis(10)).await;
        let checkpoint = async move {
            task_pool.checkpoint().await.unwrap();
            of_checkpoint.fetch_add(1, Ordering::Relaxed);
        };
        world.spawn(Thread::Data(0), Box::pin(checkpoint));
        world.sleep(Duration::from_millis(400)).await;
        assert_eq!(pool.stats().checkpoints, before + 3, "an undecided fork is not in a checkpoint");
        assert_eq!(ended.load(Ordering::Relaxed), 0);
        journal.resume(Duration::from_millis(1));
        world.sleep(Duration::from_millis(400)).await;
        assert_eq!(ended.load(Ordering::Relaxed), 2, "both go on");
        for (tag, fork) in (0..).zip(&forks) {
            assert!(holds(&pool, *fork, tag).await);
        }
        pool.close().await.unwrap();
    });
    rig.check();
}
