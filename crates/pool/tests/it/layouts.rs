//! Volumes with layouts of their own in one pool.

use crate::rig::{Rig, create, options, pattern, read};
use quoin_base::{DriveIndex, Layout, MIB, VolumeId};
use quoin_pool::{LayoutUse, Pool, PoolError, PoolOptions, Transaction};
use quoin_world::World;
use std::{sync::Arc, time::Duration};

const WRITE: u64 = 64 << 10;

fn layout(text: &str) -> Layout {
    text.parse().unwrap()
}

async fn create_with(pool: &Pool, text: &str) -> VolumeId {
    let volume = pool.next_volume_id();
    pool.commit(Transaction::new().create_volume(volume).lay_out(volume, Some(layout(text)))).await.unwrap();
    volume
}

async fn fill(pool: &Pool, volume: VolumeId, tag: u64, writes: u64) {
    for at in 0..writes {
        pool.write(volume, at * WRITE, vec![pattern(tag + at, WRITE as usize)]).await.unwrap();
    }
}

async fn holds(pool: &Pool, volume: VolumeId, tag: u64, writes: u64) {
    for at in 0..writes {
        assert!(
            read(pool, volume, at * WRITE, WRITE).await == pattern(tag + at, WRITE as usize).to_vec(),
            "{at}"
        );
    }
}

fn used(pool: &Pool, text: &str) -> u64 {
    let of = |used: &LayoutUse| used.layout == layout(text);
    pool.layout_use().into_iter().find(of).map_or(0, |used| used.data_bytes)
}

/// Small writes go through the journal, large ones are placed: both ways lead to segments of the volume's layout.
#[test]
fn each_volume_lies_in_segments_of_its_layout() {
    for (seed, place_from) in [(1, u64::MAX), (2, WRITE)] {
        let rig = Rig::of_drives(seed, layout("raid5"), 5, 24 * MIB);
        let opened = || rig.open_with(PoolOptions { place_from, ..options() });
        let pool = opened();
        let (data, log) = rig.run(|_| async move {
            let data = create(&pool).await;
            let log = create_with(&pool, "mirror").await;
            fill(&pool, data, 100, 60).await;
            fill(&pool, log, 500, 40).await;
            pool.drain().await.unwrap();
            assert_eq!((used(&pool, "raid5"), used(&pool, "mirror")), (60 * WRITE, 40 * WRITE));
            // What is overwritten and cleaned stays in segments of the same layout.
            for round in 0..6 {
                fill(&pool, data, 1000 * round + 100, 60).await;
                fill(&pool, log, 1000 * round + 500, 40).await;
            }
            pool.drain().await.unwrap();
            assert_eq!((used(&pool, "raid5"), used(&pool, "mirror")), (60 * WRITE, 40 * WRITE));
            pool.close().await.unwrap();
            (data, log)
        });
        rig.check();
        let pool = opened();
        rig.run(|_| async move {
            holds(&pool, data, 5100, 60).await;
            holds(&pool, log, 5500, 40).await;
            assert!(pool.fail_drive(DriveIndex(0)).await.unwrap());
            holds(&pool, data, 5100, 60).await;
            holds(&pool, log, 5500, 40).await;
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn a_layout_outlives_a_crash_and_goes_to_forks() {
    let rig = Rig::of_drives(3, layout("raid5"), 5, 24 * MIB);
    let pool = rig.open();
    let (log, fork) = rig.run(|_| async move {
        let log = create_with(&pool, "mirror").await;
        fill(&pool, log, 7, 10).await;
        let fork = crate::rig::fork(&pool, log).await;
        fill(&pool, fork, 70, 10).await;
        (log, fork)
    });
    // Nothing was closed: the journal alone says it.
    let pool = rig.open();
    rig.run(|_| async move {
        holds(&pool, log, 7, 10).await;
        holds(&pool, fork, 70, 10).await;
        pool.drain().await.unwrap();
        assert_eq!((used(&pool, "raid5"), used(&pool, "mirror")), (0, 20 * WRITE));
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn what_a_pool_cannot_place_is_refused_with_what_is_lacking() {
    let rig = Rig::of_drives(4, layout("mirror"), 4, 24 * MIB);
    let pool = rig.open();
    rig.run(|_| async move {
        let lacks = |text: &str, is_forced| pool.layout_lacks(layout(text), is_forced).unwrap_or_default();
        assert_eq!(lacks("raid5", false), "");
        let wide = lacks("8+1", false);
        assert!(wide.contains("needs 9 fault domains, and the pool has 4: add drives in 5 others, or choose raid5 or 2+1 or mirror"), "{wide}");
        assert_eq!(lacks("8+1", true), "");
        let strong = lacks("raid6", true);
        assert!(strong.contains("raid6 (4+2) tolerates 2 failures, and the journal, on 2 drives side by side, 1 failure"), "{strong}");
        let weak = lacks("none", true);
        assert!(weak.contains("layout none tolerates 0 failures, and the layout of the pool 1 failure; the whole pool"), "{weak}");
        let volume = pool.next_volume_id();
        let refused = Transaction::new().create_volume(volume).lay_out(volume, Some(layout("raid6")));
        assert!(matches!(pool.commit(refused).await, Err(PoolError::Refused(_))));
        pool.close().await.unwrap();
    });
}

/// A pool that is filled with two layouts says that it is full, and goes on.
#[test]
fn a_pool_of_two_layouts_fills_up_without_harm() {
    for (seed, (own, other)) in (5..).zip([("raid5", "mirror"), ("mirror", "raid5"), ("raid5", "2+1")]) {
        let rig = Rig::of_drives(seed, layout(own), 5, 16 * MIB);
        let pool = rig.open();
        rig.run(|world: Arc<_>| async move {
            let volumes = [create(&pool).await, create_with(&pool, other).await];
            let mut written = [0; 2];
            for at in 0..1000 {
                let which = at % 2;
                let data = vec![pattern(at as u64, WRITE as usize)];
                match pool.write(volumes[which], written[which] * WRITE, data).await {
                    Ok(()) => written[which] += 1,
                    Err(PoolError::NoSpace) => break,
                    Err(error) => panic!("{own}, {other}: {error}"),
                }
            }
            assert!(written[0] > 40, "{own}, {other}: {written:?}");
            // What is there can be overwritten.
            for round in 0..3 {
                for which in 0..2 {
                    fill(&pool, volumes[which], 10_000 * round + 1000 * which as u64, written[which]).await;
                }
            }
            world.sleep(Duration::from_millis(200)).await;
            for which in 0..2 {
                holds(&pool, volumes[which], 20_000 + 1000 * which as u64, written[which]).await;
            }
            pool.drain().await.unwrap();
            pool.close().await.unwrap();
        });
        rig.check();
    }
}

async fn lay_out(pool: &Pool, volume: VolumeId, text: &str) {
    pool.commit(Transaction::new().lay_out(volume, Some(layout(text)))).await.unwrap();
}

/// Waits until a volume is laid out as it is to be.
async fn converted(world: &dyn World, pool: &Pool, volume: VolumeId) {
    for _ in 0..600 {
        if !pool.volume_layout(volume).unwrap().is_converting {
            return;
        }
        world.sleep(Duration::from_millis(100)).await;
    }
    panic!("{:?}, {:?}", pool.volume_layout(volume), pool.layout_use());
}

/// Nothing has to move then, and it is known at once.
#[test]
fn a_volume_that_gets_the_layout_of_the_pool_is_soon_converted() {
    let rig = Rig::of_drives(19, layout("mirror"), 2, 40 * MIB);
    let pool = rig.open();
    rig.run(|world| async move {
        let volume = create(&pool).await;
        fill(&pool, volume, 100, 20).await;
        pool.drain().await.unwrap();
        lay_out(&pool, volume, "mirror").await;
        converted(&*world, &pool, volume).await;
        assert_eq!(pool.converted_bytes(), 0);
        pool.close().await.unwrap();
    });
}

#[test]
fn a_volume_is_converted_while_it_is_written() {
    for (seed, (own, other)) in (20..).zip([("mirror", "raid5"), ("raid5", "mirror"), ("mirror", "2+1")]) {
        let rig = Rig::of_drives(seed, layout(own), 5, 40 * MIB);
        let pool = rig.open();
        let (volume, beside) = rig.run(|world| async move {
            let (volume, beside) = (create(&pool).await, create(&pool).await);
            fill(&pool, volume, 100, 80).await;
            fill(&pool, beside, 900, 30).await;
            pool.drain().await.unwrap();
            lay_out(&pool, volume, other).await;
            fill(&pool, volume, 200, 20).await;
            assert!(pool.volume_layout(volume).unwrap().is_converting);
            converted(&*world, &pool, volume).await;
            pool.drain().await.unwrap();
            assert_eq!((used(&pool, own), used(&pool, other)), (30 * WRITE, 80 * WRITE));
            assert!(pool.converted_bytes() >= 60 * WRITE, "{}", pool.converted_bytes());
            // And back.
            lay_out(&pool, volume, own).await;
            converted(&*world, &pool, volume).await;
            assert_eq!(used(&pool, other), 0);
            lay_out(&pool, volume, other).await;
            (volume, beside)
        });
        // A crash at its beginning: it goes on.
        let pool = rig.open();
        rig.run(|world| async move {
            converted(&*world, &pool, volume).await;
            pool.drain().await.unwrap();
            assert_eq!((used(&pool, own), used(&pool, other)), (30 * WRITE, 80 * WRITE));
            holds(&pool, volume, 200, 20).await;
            holds(&pool, beside, 900, 30).await;
            pool.close().await.unwrap();
        });
        rig.check();
        // It was done: nothing is moved any more.
        let pool = rig.open();
        rig.run(|world| async move {
            world.sleep(Duration::from_secs(2)).await;
            assert!(!pool.volume_layout(volume).unwrap().is_converting);
            assert_eq!(pool.converted_bytes(), 0);
            pool.close().await.unwrap();
        });
    }
}

/// What a snapshot shares stays as strongly protected as either wants it.
#[test]
fn what_forks_share_has_the_strongest_layout_of_all() {
    let both = quoin_drive::Roles { journal: true, data: true };
    let rig = Rig::with_journal(30, layout("mirror"), &[both; 5], 3);
    let pool = rig.open();
    rig.run(|world| async move {
        let volume = create_with(&pool, "mirror-3").await;
        fill(&pool, volume, 100, 40).await;
        let clone = crate::rig::fork(&pool, volume).await;
        pool.drain().await.unwrap();
        lay_out(&pool, clone, "mirror").await;
        fill(&pool, clone, 300, 10).await;
        converted(&*world, &pool, clone).await;
        pool.drain().await.unwrap();
        assert_eq!((used(&pool, "mirror-3"), used(&pool, "mirror")), (40 * WRITE, 10 * WRITE));
        lay_out(&pool, volume, "mirror").await;
        lay_out(&pool, clone, "mirror-3").await;
        converted(&*world, &pool, clone).await;
        converted(&*world, &pool, volume).await;
        pool.drain().await.unwrap();
        assert_eq!((used(&pool, "mirror-3"), used(&pool, "mirror")), (50 * WRITE, 0));
        // With the clone goes the reason.
        pool.commit(Transaction::new().delete_volume(clone)).await.unwrap();
        crate::rig::settle(&*world, &pool).await;
        converted(&*world, &pool, volume).await;
        assert_eq!((used(&pool, "mirror-3"), used(&pool, "mirror")), (0, 40 * WRITE));
        holds(&pool, volume, 100, 40).await;
        pool.close().await.unwrap();
    });
    rig.check();
}

/// What two volumes share is on its way to another layout when one of them wants the former one again: what was moved by then
/// moves back.
#[test]
fn what_is_shared_moves_back_when_it_is_wanted_as_before() {
    let both = quoin_drive::Roles { journal: true, data: true };
    let rig = Rig::with_journal(31, layout("raid5"), &[both; 5], 3);
    let pool = rig.open();
    rig.run(|world| async move {
        // The volume that wrote it wants less than the clone.
        let volume = create_with(&pool, "2+1").await;
        fill(&pool, volume, 100, 60).await;
        let clone = crate::rig::fork(&pool, volume).await;
        pool.drain().await.unwrap();
        for round in 0..3 {
            lay_out(&pool, clone, "mirror-3").await;
            world.sleep(Duration::from_millis(10)).await;
            converted(&*world, &pool, clone).await;
            assert_eq!((used(&pool, "mirror-3"), used(&pool, "2+1")), (60 * WRITE, 0), "round {round}");
            lay_out(&pool, clone, "2+1").await;
            while used(&pool, "2+1") < 15 * WRITE {
                world.sleep(Duration::from_micros(200)).await;
            }
            assert!(used(&pool, "mirror-3") > 0, "round {round}: it was done before anything was changed");
        }
        lay_out(&pool, clone, "mirror-3").await;
        converted(&*world, &pool, clone).await;
        assert_eq!((used(&pool, "mirror-3"), used(&pool, "2+1")), (60 * WRITE, 0));
        holds(&pool, volume, 100, 60).await;
        pool.close().await.unwrap();
    });
    rig.check();
}

/// Drives allow less for a while: what is written meanwhile is laid out as all else once they allow what they did before, also
/// if the volume was not looked through in between.
#[test]
fn what_was_written_while_a_drive_was_away_is_laid_out_as_all_else() {
    /// So far apart that each is mapped by a leaf of its own: a step of the walk looks through some only.
    const APART: u64 = 8 * MIB;
    async fn put(pool: &Pool, volume: VolumeId, tag: u64, writes: u64) {
        for at in 0..writes {
            pool.write(volume, at * APART, vec![pattern(tag + at, WRITE as usize)]).await.unwrap();
        }
    }
    let rig = Rig::of_drives(32, layout("mirror"), 4, 24 * MIB);
    let pool = rig.open();
    let disk = rig.disks[3].clone();
    rig.run(|world| async move {
        let volume = create_with(&pool, "raid5").await;
        put(&pool, volume, 100, 60).await;
        pool.drain().await.unwrap();
        converted(&*world, &pool, volume).await;
        assert_eq!((used(&pool, "raid5"), used(&pool, "2+1")), (60 * WRITE, 0));
        disk.vanish();
        put(&pool, volume, 500, 10).await;
        pool.drain().await.unwrap();
        assert_eq!(used(&pool, "2+1"), 10 * WRITE);
        disk.revive();
        pool.take_back(disk).await.unwrap();
        converted(&*world, &pool, volume).await;
        pool.drain().await.unwrap();
        converted(&*world, &pool, volume).await;
        assert_eq!((used(&pool, "raid5"), used(&pool, "2+1")), (60 * WRITE, 0));
        for at in 0..60 {
            let tag = if at < 10 { 500 } else { 100 } + at;
            let expected = pattern(tag, WRITE as usize).to_vec();
            assert!(read(&pool, volume, at * APART, WRITE).await == expected, "{at}");
        }
        pool.close().await.unwrap();
    });
    rig.check();
}
