//! Drives that are added for the journal while the pool serves.

use crate::rig::{Rig, create, options, pattern, read};
use quoin_base::{DriveIndex, Layout, MIB, VolumeId};
use quoin_drive::{Probe, Roles, open_set, probe};
use quoin_pool::{Pool, PoolError};
use quoin_world::{Disk, World};
use quoin_world_sim::PowerCut;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

const WRITE: u64 = 16 << 10;
const BOTH: Roles = Roles { journal: true, data: true };
const JOURNAL: Roles = Roles { journal: true, data: false };

async fn write(pool: &Pool, volume: VolumeId, at: u64) -> Result<(), PoolError> {
    // The same places again and again: the journal goes round.
    pool.write(volume, at % 64 * WRITE, vec![pattern(at, WRITE as usize)]).await
}

/// What so many writes left is there. One more may have been under way, to the place of the oldest.
async fn verify(pool: &Pool, volume: VolumeId, writes: u64) {
    for at in writes.saturating_sub(63)..writes {
        let expected = pattern(at, WRITE as usize).to_vec();
        assert!(read(pool, volume, at % 64 * WRITE, WRITE).await == expected, "{at} of {writes}");
    }
}

fn dynamic(disk: &Arc<quoin_world_sim::SimDisk>) -> Arc<dyn Disk> {
    disk.clone()
}

/// Opens with those of the disks that have a label.
async fn open_labelled(world: Arc<quoin_world_sim::SimWorld>, disks: Vec<Arc<dyn Disk>>) -> Arc<Pool> {
    let mut labelled = Vec::new();
    for disk in disks {
        if matches!(probe(&disk).await, Ok(Probe::Quoin(_))) {
            labelled.push(disk);
        }
    }
    Pool::open(world, open_set(labelled).await.unwrap(), options()).await.unwrap()
}

#[test]
fn a_journal_that_lost_a_drive_has_all_its_columns_again_with_another() {
    for (seed, roles) in [(1, BOTH), (2, JOURNAL)] {
        let mut rig = Rig::of_drives(seed, Layout::mirror(1), 2, 32 * MIB);
        let added = rig.world.disk("added", 34 * MIB);
        let (pool, disk) = (rig.open(), dynamic(&added));
        let volume = rig.run(|world| async move {
            let volume = create(&pool).await;
            for at in 0..200 {
                write(&pool, volume, at).await.unwrap();
            }
            pool.fail_drive(DriveIndex(0)).await.unwrap();
            assert!(pool.journal_lacks_columns());
            for at in 200..400 {
                write(&pool, volume, at).await.unwrap();
            }
            assert_eq!(pool.protection().journal_columns, 1);
            assert_eq!(pool.add_drive_for(&*world, disk, String::new(), roles).await.unwrap(), DriveIndex(2));
            assert!(!pool.journal_lacks_columns());
            for at in 400..1200 {
                write(&pool, volume, at).await.unwrap();
            }
            assert_eq!(pool.protection().journal_columns, 2, "new extents have a column on the new drive");
            verify(&pool, volume, 1200).await;
            pool.close().await.unwrap();
            volume
        });
        rig = rig.without(0);
        rig.disks.push(added);
        let pool = rig.open();
        rig.run(|_| async move {
            verify(&pool, volume, 1200).await;
            let members = pool.members();
            let added = members.get(DriveIndex(2)).unwrap();
            assert!(added.in_journal && added.roles == roles, "{added:?}");
            pool.close().await.unwrap();
        });
    }
}

/// Adds a drive to a journal of one column after so many writes, while others are acknowledged, and cuts the power after some
/// steps. Returns whether the addition was told of as done.
fn cut_while_joining(seed: u64, before: u64, steps: u64) -> bool {
    let rig = Rig::new(seed, 2, 24 * MIB);
    let added = rig.world.disk("added", 24 * MIB);
    let pool = rig.open();
    let (volume, pool) = rig.run(|_| async move {
        let volume = create(&pool).await;
        for at in 0..before {
            write(&pool, volume, at).await.unwrap();
        }
        (volume, pool)
    });
    let (acknowledged, told) = (Arc::new(AtomicU64::new(before)), Arc::new(AtomicBool::new(false)));
    let (world, disk) = (rig.world.clone(), dynamic(&added));
    rig.world.cut_power(PowerCut::AfterSteps(steps));
    let (count, is_told) = (acknowledged.clone(), told.clone());
    let load = async move {
        let adding = async {
            pool.add_drive_for(&*world, disk, String::new(), BOTH).await.unwrap();
            is_told.store(true, Ordering::SeqCst);
        };
        let writing = async {
            for at in before.. {
                while write(&pool, volume, at).await.is_err() {
                    world.sleep(Duration::from_micros(500)).await;
                }
                count.store(at + 1, Ordering::SeqCst);
            }
        };
        futures_util::future::join(adding, writing).await
    };
    assert!(rig.world.run(load).is_err(), "the power was cut");
    rig.world.crash();
    let disks: Vec<_> = rig.disks.iter().map(dynamic).chain([dynamic(&added)]).collect();
    let (count, told) = (acknowledged.load(Ordering::SeqCst), told.load(Ordering::SeqCst));
    rig.run(|world| async move {
        let pool = open_labelled(world, disks).await;
        assert!(pool.members().next_index == 3 || !told, "what was told of as added was not");
        verify(&pool, volume, count).await;
        pool.close().await.unwrap();
    });
    told
}

#[test]
fn what_is_acknowledged_while_a_drive_joins_the_journal_survives_a_power_failure() {
    let told = (0..60).filter(|seed| cut_while_joining(*seed, 40, 20 + seed * 4)).count();
    assert!((5..55).contains(&told), "{told}");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_drive_that_joins_before_it_is_a_member_is_found() {
    use quoin_pool::bugs::{Bug, plant};
    plant(Some(Bug::JoinBeforeMember));
    // The journal has to go on to another extent in the meantime, which it does after every so many writes.
    let mut moments = (30..70).flat_map(|before| (60..140).step_by(4).map(move |steps| (before, steps)));
    let found = moments.any(|(before, steps)| {
        std::panic::catch_unwind(|| cut_while_joining(before, before, steps)).is_err()
    });
    plant(None);
    assert!(found, "a power failure shows it");
}
