//! Slabs that go where they are needed: slices of one pool that are granted more, and give some back.

use crate::rig::{Rig, create, pattern, read, settle};
use quoin_base::{MIB, VolumeId};
use quoin_pool::{Pool, PoolError, Transaction};
use quoin_world::World;
use quoin_world_sim::PowerCut;
use std::{sync::Arc, time::Duration};

const BLOCK: u64 = 8192;
const WRITE: u64 = 8 * BLOCK;

/// Three slices, whose fair share is some 16 MiB each.
fn three() -> Rig {
    Rig::with_slices(1, 2, 32 * MIB, 3)
}

/// A volume of each slice.
async fn one_each(pool: &Pool) -> [VolumeId; 3] {
    let volumes = [create(pool).await, create(pool).await, create(pool).await];
    assert_eq!(volumes.map(|volume| volume.slice().0), [0, 1, 2], "new volumes go where volumes take least");
    volumes
}

async fn write(pool: &Pool, volume: VolumeId, at: u64, tag: u64) -> Result<(), PoolError> {
    pool.write(volume, at * WRITE, vec![pattern(tag << 16 | at, WRITE as usize)]).await
}

/// Writes until the pool is full. Returns how many writes it took.
async fn fill(pool: &Pool, volume: VolumeId, from: u64) -> u64 {
    let mut at = from;
    loop {
        match write(pool, volume, at, volume.0.into()).await {
            Ok(()) => at += 1,
            Err(PoolError::NoSpace) => return at - from,
            Err(error) => panic!("{error}"),
        }
    }
}

async fn verify(pool: &Pool, volume: VolumeId, writes: u64) {
    for at in 0..writes {
        let tag = u64::from(volume.0) << 16 | at;
        assert!(read(pool, volume, at * WRITE, WRITE).await == pattern(tag, WRITE as usize).to_vec(), "{at}");
    }
}

#[test]
fn one_slice_takes_what_the_others_do_not_need_and_gives_it_back() {
    let rig = three();
    let pool = rig.open();
    let (volumes, filled) = rig.run(|world| async move {
        let [a, b, _] = one_each(&pool).await;
        let before = pool.stats();
        assert!(before.capacity_bytes == 50 * MIB && before.free_bytes > 24 * MIB, "{before:?}");
        let first = fill(&pool, a, 0).await;
        let stats = pool.stats();
        // More than its third of what the pool holds, and than what all had at first.
        assert!(first * WRITE > before.usable_bytes * 3 / 4, "{} of {}", first * WRITE, before.usable_bytes);
        assert!(stats.claimed_slabs > 50, "{stats:?}");
        assert_eq!((stats.capacity_bytes, stats.segments), (before.capacity_bytes, before.segments));
        verify(&pool, a, first).await;

        // The first is emptied, and another takes what it had.
        pool.commit(Transaction::new().delete_volume(a)).await.unwrap();
        settle(&*world, &pool).await;
        let second = fill(&pool, b, 0).await;
        assert!(second * 10 > first * 9, "{second} writes of {first}");
        assert!(pool.stats().given_back_slabs > 50, "{:?}", pool.stats());
        verify(&pool, b, second).await;
        pool.close().await.unwrap();
        ([b], second)
    });
    rig.check();
    let pool = rig.open();
    rig.run(|_| async move {
        verify(&pool, volumes[0], filled).await;
        assert!(matches!(write(&pool, volumes[0], filled, 0).await, Err(PoolError::NoSpace)));
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_promise_is_kept_whatever_other_slices_write() {
    let rig = three();
    let pool = rig.open();
    rig.run(|_| async move {
        let [a, b, c] = one_each(&pool).await;
        let promise = |volume, bytes| pool.commit(Transaction::new().reserve(volume, bytes));
        // More than the slice has at first.
        let promised = 10 * MIB;
        promise(a, promised).await.unwrap();
        let Err(PoolError::CannotReserve { free_bytes, .. }) = promise(b, 1 << 40).await else {
            panic!("1 TiB was promised")
        };
        assert!(free_bytes > 4 * MIB && free_bytes < 16 * MIB, "{free_bytes}");
        let held: Vec<_> = pool.slice_space().map(|slice| slice.usable_bytes).collect();
        assert!(held[1] < 5 * MIB, "a promise that is refused takes nothing: {held:?}");
        // What it was told to be left can be promised, and no more.
        promise(b, free_bytes).await.unwrap();
        assert!(matches!(promise(c, 8 * MIB).await, Err(PoolError::CannotReserve { .. })));
        fill(&pool, c, 0).await;
        for (volume, bytes) in [(a, promised), (b, free_bytes)] {
            for at in 0..bytes / WRITE {
                write(&pool, volume, at, volume.0.into()).await.unwrap();
            }
        }
        for (volume, bytes) in [(a, promised), (b, free_bytes)] {
            verify(&pool, volume, bytes / WRITE).await;
        }
        pool.close().await.unwrap();
    });
    rig.check();
}

/// Its last checkpoint still has the promise, and the slabs are another slice's by then.
#[test]
fn a_promise_that_was_taken_back_may_be_anothers_room_before_the_next_checkpoint() {
    let rig = three();
    let pool = rig.open();
    let [a, b] = rig.run(|_| async move {
        let [a, b, _] = one_each(&pool).await;
        pool.commit(Transaction::new().reserve(a, 10 * MIB)).await.unwrap();
        pool.close().await.unwrap();
        [a, b]
    });
    let pool = rig.open();
    rig.run(|_| async move {
        pool.commit(Transaction::new().reserve(a, 0)).await.unwrap();
        fill(&pool, b, 0).await;
        assert!(pool.stats().given_back_slabs > 20, "{:?}", pool.stats());
    });
    rig.world.crash();
    rig.check();
    let pool = rig.open();
    rig.run(|_| async move { pool.close().await.unwrap() });
    rig.check();
}

/// Power fails anywhere while slabs change hands.
#[test]
fn what_was_written_to_slabs_that_changed_hands_is_there_after_a_power_cut() {
    for cut in (1..400).step_by(23) {
        let rig = three();
        let pool = rig.open();
        let [a, b, _] = rig.run(|_| async move {
            let volumes = one_each(&pool).await;
            fill(&pool, volumes[0], 0).await;
            pool.close().await.unwrap();
            volumes
        });
        let pool = rig.open();
        let written = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let noted = written.clone();
        rig.world.cut_power(PowerCut::AtDiskOp(cut * 4));
        let ended = rig.world.run(async move {
            pool.commit(Transaction::new().delete_volume(a)).await.unwrap();
            loop {
                let at = noted.load(std::sync::atomic::Ordering::Relaxed);
                match write(&pool, b, at, b.0.into()).await {
                    Ok(()) => noted.store(at + 1, std::sync::atomic::Ordering::Relaxed),
                    // What was deleted comes back by and by.
                    Err(PoolError::NoSpace) => pool.drain().await.unwrap(),
                    Err(error) => panic!("{error}"),
                }
            }
        });
        assert!(ended.is_err(), "power fails while it works");
        rig.world.crash();
        rig.world.cut_power(PowerCut::Never);
        rig.check();
        let pool = rig.open();
        let count = written.load(std::sync::atomic::Ordering::Relaxed);
        rig.run(|_| async move {
            verify(&pool, b, count).await;
            pool.close().await.unwrap();
        });
        rig.check();
    }
}

/// A pool of one slice has all slabs from the start.
#[test]
fn the_only_slice_holds_everything() {
    let rig = Rig::new(1, 2, 32 * MIB);
    let pool = rig.open();
    rig.run(|world| async move {
        let volume = create(&pool).await;
        let held: Vec<_> = pool.slice_space().collect();
        assert_eq!((held.len(), held[0].usable_bytes), (1, pool.stats().usable_bytes));
        fill(&pool, volume, 0).await;
        world.sleep(Duration::from_millis(100)).await;
        assert_eq!((pool.stats().claimed_slabs, pool.stats().given_back_slabs), (0, 0));
        pool.close().await.unwrap();
    });
    rig.check();
}
