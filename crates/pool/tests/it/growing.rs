//! Drives that become longer while the pool serves: the pool uses the new room at once, and has it whatever happens.

use crate::rig::{Rig, SLAB, create, options, pattern, read};
use futures_util::future::join;
use quoin_base::{DriveIndex, Layout, MIB, VolumeId};
use quoin_drive::{DriveSet, MemberState, inspect_set, open_set};
use quoin_pool::{DriveGrowth, DriveLen, Pool, PoolError, PoolState, check};
use quoin_world::{Disk, World};
use quoin_world_sim::{FaultPlan, PowerCut, SimDisk, SimWorld};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

const WRITE: u64 = 64 << 10;

fn layout(text: &str) -> Layout {
    text.parse().unwrap()
}

async fn write(pool: &Pool, volume: VolumeId, at: u64) -> Result<(), PoolError> {
    pool.write(volume, at * WRITE, vec![pattern(at, WRITE as usize)]).await
}

/// Writes until the pool is full. Returns how much is written then.
async fn fill(pool: &Pool, volume: VolumeId, from: u64) -> u64 {
    for at in from.. {
        match write(pool, volume, at).await {
            Ok(()) => {}
            Err(PoolError::NoSpace) => return at,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("a pool is full some time")
}

async fn verify(pool: &Pool, volume: VolumeId, writes: u64) {
    for at in 0..writes {
        let expected = pattern(at, WRITE as usize).to_vec();
        assert!(read(pool, volume, at * WRITE, WRITE).await == expected, "{at}");
    }
}

fn dynamic(disks: &[Arc<SimDisk>]) -> Vec<Arc<dyn Disk>> {
    disks.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect()
}

/// Makes all disks longer by so much.
fn lengthen(disks: &[Arc<SimDisk>], bytes: u64) {
    disks.iter().for_each(|disk| disk.lengthen(disk.len_bytes() + bytes));
}

/// How long disks are, as lengths of the drives with their numbers.
fn lens(disks: &[Arc<SimDisk>]) -> Vec<DriveLen> {
    let len = |(drive, disk): (u16, &Arc<SimDisk>)| DriveLen {
        drive: DriveIndex(drive),
        len_bytes: disk.len_bytes(),
    };
    (0..).zip(disks).map(len).collect()
}

async fn grow_one(pool: &Pool, wanted: DriveLen) -> Result<DriveGrowth, PoolError> {
    let (mut grown, outcome) = pool.grow_drives(&[wanted]).await;
    outcome.map(|()| grown.remove(0))
}

/// Has the drives grow that have something to grow by.
async fn grow(pool: &Pool, wanted: &[DriveLen]) {
    for wanted in wanted {
        match grow_one(pool, *wanted).await {
            Ok(_) => {}
            Err(PoolError::Refused(why)) if why.contains("nothing to grow by") => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_full_pool_has_room_again_when_its_drives_grow_and_keeps_it() {
    for (seed, text, slices) in
        [(1, "none", 1), (2, "none", 3), (3, "mirror", 1), (4, "raid5", 1), (5, "mirror-3", 1)]
    {
        let rig = match slices {
            1 => Rig::protected(seed, layout(text), 32 * MIB),
            _ => Rig::with_slices(seed, 2, 32 * MIB, slices),
        };
        let disks = rig.disks.clone();
        let pool = rig.open();
        let (volume, writes) = rig.run(|world| async move {
            let volume = create(&pool).await;
            let first = fill(&pool, volume, 0).await;
            let before = pool.stats();
            lengthen(&disks, 24 * MIB);
            let planned = pool.growth(&lens(&disks)).unwrap();
            assert_eq!(planned.usable_before_bytes, before.usable_bytes);
            assert_eq!(pool.stats().usable_bytes, before.usable_bytes, "a plan changes nothing");
            for one in &planned.drives {
                assert_eq!((one.after.slabs - one.before.slabs, one.after.grant_pages), (96, 1));
            }
            let (grown, outcome) = pool.grow_drives(&lens(&disks)).await;
            outcome.unwrap();
            assert_eq!(grown, planned.drives);
            // At once, before any slice has taken what is new.
            let after = pool.stats();
            let gained = after.usable_bytes - before.usable_bytes;
            assert!(after.free_bytes >= before.free_bytes + gained - MIB, "{text}: {before:?} {after:?}");
            let planned = planned.usable_after_bytes - planned.usable_before_bytes;
            assert!(
                planned.abs_diff(gained) <= planned / 8,
                "{text} {slices}: {planned} planned, {gained} gained"
            );
            let second = fill(&pool, volume, first).await;
            assert!(
                (second - first) * WRITE > gained * 3 / 4,
                "{text} {slices}: {first}, {second}, {gained}"
            );
            let slabs: u64 = pool.drive_space().iter().map(|space| space.data_bytes).sum();
            assert!(slabs > disks.len() as u64 * 45 * MIB);
            verify(&pool, volume, second).await;
            // Once more, and then there is nothing to grow by.
            lengthen(&disks, MIB);
            grow(&pool, &lens(&disks)).await;
            let nothing = grow_one(&pool, lens(&disks)[0]).await.unwrap_err();
            assert!(nothing.to_string().contains("nothing to grow by"), "{nothing}");
            drop(world);
            pool.close().await.unwrap();
            (volume, second)
        });
        rig.check();
        let pool = rig.open();
        rig.run(|_| async move {
            verify(&pool, volume, writes).await;
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn what_cannot_grow_is_refused_with_the_reason_and_stays_as_it_was() {
    let rig = Rig::protected(1, layout("mirror"), 32 * MIB);
    let disks = rig.disks.clone();
    let pool = rig.open();
    rig.run(|world| async move {
        let volume = create(&pool).await;
        write(&pool, volume, 0).await.unwrap();
        let before = (pool.stats().capacity_bytes, pool.members());
        let len = |len_bytes| DriveLen { drive: DriveIndex(0), len_bytes };
        let own = disks[0].len_bytes();
        for (wanted, why) in [
            (len(own - 4096), "no drive becomes smaller"),
            (len(own), "nothing to grow by"),
            (len(own + u64::from(SLAB) - 512), "one more takes 512 bytes more"),
            (len(own + u64::from(SLAB)), "make it larger first"),
            (len(20 << 30), "more than it can keep count of"),
            (len(200 << 30), "add drives"),
            (DriveLen { drive: DriveIndex(9), len_bytes: own }, "does not have it"),
        ] {
            let refused = grow_one(&pool, wanted).await.unwrap_err();
            assert!(refused.to_string().contains(why), "{why}: {refused}");
        }
        assert_eq!((pool.stats().capacity_bytes, pool.members()), before);

        // One that is absent or leaves does not; the others do.
        lengthen(&disks, 8 * MIB);
        disks[1].vanish();
        for at in 1..20 {
            write(&pool, volume, at).await.unwrap();
        }
        pool.drain().await.unwrap();
        assert_eq!(pool.members().get(DriveIndex(1)).unwrap().state, MemberState::Absent);
        let refused = grow_one(&pool, lens(&disks)[1]).await.unwrap_err();
        assert!(refused.to_string().contains("it is absent"), "{refused}");
        for wanted in [0, 2] {
            grow_one(&pool, lens(&disks)[wanted]).await.unwrap();
        }
        // It comes back with its old label, and grows then.
        disks[1].revive();
        pool.take_back(disks[1].clone()).await.unwrap();
        let slabs = |pool: &Pool, drive| pool.members().get(DriveIndex(drive)).unwrap().slabs;
        assert!(slabs(&pool, 1) < slabs(&pool, 0));
        grow_one(&pool, lens(&disks)[1]).await.unwrap();
        assert_eq!(slabs(&pool, 1), slabs(&pool, 0));
        world.sleep(Duration::from_secs(5)).await;
        verify(&pool, volume, 20).await;
        pool.close().await.unwrap();
    });
    rig.check();
}

#[test]
fn a_drive_that_fails_while_it_grows_is_done_without() {
    let rig = Rig::protected(1, layout("mirror"), 32 * MIB);
    let disks = rig.disks.clone();
    let pool = rig.open();
    rig.run(|_| async move {
        let volume = create(&pool).await;
        for at in 0..20 {
            write(&pool, volume, at).await.unwrap();
        }
        lengthen(&disks, 8 * MIB);
        disks[2].set_faults(FaultPlan { write_error: 1.0, ..FaultPlan::default() });
        let refused = grow_one(&pool, lens(&disks)[2]).await.unwrap_err();
        assert!(refused.to_string().contains("the pool goes on without it"), "{refused}");
        assert!(matches!(pool.state(), PoolState::Online));
        for wanted in [0, 1] {
            grow_one(&pool, lens(&disks)[wanted]).await.unwrap();
        }
        verify(&pool, volume, 20).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn a_disk_that_became_longer_is_opened_with_the_length_of_its_label() {
    let rig = Rig::new(1, 2, 32 * MIB);
    lengthen(&rig.disks, 8 * MIB);
    let disks = rig.disks.clone();
    let pool = rig.open();
    rig.run(|_| async move {
        let volume = create(&pool).await;
        write(&pool, volume, 0).await.unwrap();
        let capacity = pool.stats().capacity_bytes;
        grow(&pool, &lens(&disks)).await;
        assert!(pool.stats().capacity_bytes >= capacity + 15 * MIB);
        pool.close().await.unwrap();
    });
    rig.check();
}

/// What is kept spare for the loss of a drive is kept of the new room too, at once.
#[test]
fn spare_capacity_reckons_with_the_new_room_at_once() {
    let rig = Rig::of_drives(1, layout("mirror"), 4, 32 * MIB);
    let disks = rig.disks.clone();
    let pool = rig.open();
    rig.run(|world| async move {
        pool.set_spare(1).await.unwrap();
        let volume = create(&pool).await;
        let first = fill(&pool, volume, 0).await;
        let (kept, usable) = (pool.spare().bytes, pool.stats().usable_bytes);
        lengthen(&disks, 24 * MIB);
        grow(&pool, &lens(&disks)).await;
        world.sleep(Duration::from_secs(1)).await;
        let (kept_now, usable_now) = (pool.spare().bytes, pool.stats().usable_bytes);
        // A quarter of what is new is kept spare, less what the pool takes for itself.
        let (more_kept, more_usable) = (kept_now.saturating_sub(kept), usable_now.saturating_sub(usable));
        assert!((6 * MIB..13 * MIB).contains(&more_kept), "{kept}, then {kept_now}");
        assert!((3 * more_kept - 4 * MIB..38 * MIB).contains(&more_usable), "{usable}, then {usable_now}");
        let second = fill(&pool, volume, first).await;
        assert!(pool.fail_drive(DriveIndex(1)).await.unwrap());
        for _ in 0..600 {
            if pool.protection().degraded_segments == 0 {
                break;
            }
            world.sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(pool.protection().degraded_segments, 0, "what was lost has room");
        verify(&pool, volume, second).await;
        pool.close().await.unwrap();
    });
}

/// Columns move to a drive that became emptier than others because it grew.
#[test]
fn balancing_uses_the_room_of_a_drive_that_grew() {
    let rig = Rig::of_drives(1, layout("none"), 3, 32 * MIB);
    let disks = rig.disks.clone();
    let pool = rig.open();
    rig.run(|world| async move {
        let volume = create(&pool).await;
        let writes = fill(&pool, volume, 0).await;
        disks[2].lengthen(disks[2].len_bytes() + 64 * MIB);
        grow_one(&pool, lens(&disks)[2]).await.unwrap();
        pool.set_balancing(true);
        let share = |pool: &Pool, at: usize| {
            let space = pool.drive_space()[at];
            space.used_bytes * 100 / space.data_bytes
        };
        let before = share(&pool, 0);
        for _ in 0..600 {
            if share(&pool, 0) + 10 < before {
                break;
            }
            world.sleep(Duration::from_millis(100)).await;
        }
        assert!(share(&pool, 0) + 10 < before, "{before} % before, {} %", share(&pool, 0));
        verify(&pool, volume, writes).await;
        pool.close().await.unwrap();
    });
}

/// The power fails at a step of growing, by so much that grant pages are new, or by less. Returns how many drives grew.
fn cut_while_growing(slices: u8, step: u64, grows_by: u64) -> u32 {
    let rig = Rig::with_slices(step, 2, 16 * MIB * u64::from(slices), slices);
    let pool = rig.open();
    let volume = rig.run(|_| async move {
        let volume = create(&pool).await;
        for at in 0..8 {
            write(&pool, volume, at).await.unwrap();
        }
        drop(pool);
        volume
    });
    rig.world.kill();
    let pool = rig.open();
    lengthen(&rig.disks, grows_by);
    rig.world.cut_power(PowerCut::AfterSteps(step));
    let told = Arc::new(AtomicU64::new(0));
    let (wanted, count) = (lens(&rig.disks), told.clone());
    let _ = rig.world.run(async move {
        for wanted in wanted {
            grow_one(&pool, wanted).await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    rig.world.crash();

    let (disks, wanted) = (dynamic(&rig.disks), lens(&rig.disks));
    let most = (16 * MIB * u64::from(slices) / u64::from(SLAB)) as u32;
    rig.run(|world| async move {
        let report = check(inspect_set(disks.clone()).await.unwrap()).await.unwrap();
        assert!(report.is_clean(), "{:#?}", report.problems);
        let pool = Pool::open(world, open_set(disks.clone()).await.unwrap(), options()).await.unwrap();
        verify(&pool, volume, 8).await;
        let grown = pool.members().all.iter().filter(|member| member.slabs > most).count() as u32;
        assert!(u64::from(grown) >= told.load(Ordering::SeqCst), "what was told of as grown did not");
        // It goes on where it ended.
        grow(&pool, &wanted).await;
        assert!(pool.members().all.iter().all(|member| member.slabs > most));
        for at in 8..80 {
            write(&pool, volume, at).await.unwrap();
        }
        pool.close().await.unwrap();
        let report = check(inspect_set(disks).await.unwrap()).await.unwrap();
        assert!(report.is_clean(), "{:#?}", report.problems);
        grown
    })
}

#[test]
fn growing_that_a_power_failure_cut_off_goes_on_where_it_ended() {
    let mut outcomes = [0; 3];
    for (slices, grows_by) in [(1, 8 * MIB), (1, 1100 * MIB), (3, 1100 * MIB)] {
        for step in (0..160).step_by(3) {
            outcomes[cut_while_growing(slices, step, grows_by) as usize] += 1;
        }
    }
    assert!(outcomes.iter().all(|count| *count > 5), "{outcomes:?}");
}

/// The power fails while hosts fill the pool and it grows, before or after data reached the new slabs.
fn cut_under_load(seed: u64, text: &str) -> (bool, bool) {
    let slices = if text == "none" { 1 + (seed % 2) as u8 * 2 } else { 1 };
    let rig = match slices {
        1 => Rig::protected(seed, layout(text), 16 * MIB),
        _ => Rig::with_slices(seed, 2, 16 * MIB * u64::from(slices), slices),
    };
    let pool = rig.open();
    let (volume, before) = rig.run(|_| async move {
        let volume = create(&pool).await;
        let before = fill(&pool, volume, 0).await;
        pool.close().await.unwrap();
        (volume, before)
    });
    let pool = rig.open();
    let (acknowledged, told) = (Arc::new(AtomicU64::new(before)), Arc::new(AtomicU64::new(0)));
    lengthen(&rig.disks, 16 * MIB);
    let wanted = lens(&rig.disks);
    let drives = wanted.len() as u64;
    let steps = if seed.is_multiple_of(4) { seed * 5 } else { seed * 97 };
    rig.world.cut_power(PowerCut::AfterSteps(steps));
    let (world, count, are_told) = (rig.world.clone(), acknowledged.clone(), told.clone());
    let load = async move {
        let growing = async {
            for wanted in wanted {
                grow_one(&pool, wanted).await.unwrap();
                are_told.fetch_add(1, Ordering::SeqCst);
            }
        };
        let writing = async {
            for at in before.. {
                // There is no room before the drives have grown.
                while write(&pool, volume, at).await.is_err() {
                    world.sleep(Duration::from_micros(500)).await;
                }
                count.store(at + 1, Ordering::SeqCst);
            }
        };
        join(growing, writing).await
    };
    assert!(rig.world.run(load).is_err(), "the power was cut");
    rig.world.crash();

    let (count, told) = (acknowledged.load(Ordering::SeqCst), told.load(Ordering::SeqCst));
    let disks = dynamic(&rig.disks);
    let most = rig.disks[0].len_bytes() - 16 * MIB;
    rig.run(|world| async move {
        let pool = Pool::open(world, open_set(disks).await.unwrap(), options()).await.unwrap();
        let grown = |drive| pool.drive(DriveIndex(drive)).is_some_and(|drive| drive.label().len_bytes > most);
        assert!((0..told as u16).all(grown), "what was told of as grown did not");
        verify(&pool, volume, count).await;
        pool.close().await.unwrap();
    });
    rig.check();
    (told == drives, count > before)
}

#[test]
fn what_is_acknowledged_while_a_pool_grows_survives_a_power_failure() {
    for text in ["none", "mirror", "raid5"] {
        let (mut early, mut written) = (0, 0);
        for seed in 0..32 {
            let (all, grew) = cut_under_load(seed, text);
            early += u32::from(!all);
            written += u32::from(all && grew);
        }
        assert!(early > 2 && written > 5, "{text}: {early} {written}");
    }
}

/// A drive that is missing at the next opening may have grown: what roots reckon with is in the table of members.
#[test]
fn a_pool_that_grew_is_opened_without_one_of_its_drives() {
    let rig = Rig::of_drives(1, layout("mirror"), 4, 24 * MIB);
    let disks = rig.disks.clone();
    let pool = rig.open();
    let (volume, writes) = rig.run(|_| async move {
        let volume = create(&pool).await;
        let first = fill(&pool, volume, 0).await;
        lengthen(&disks, 40 * MIB);
        grow(&pool, &lens(&disks)).await;
        let writes = first + 200;
        for at in first..writes {
            write(&pool, volume, at).await.unwrap();
        }
        pool.close().await.unwrap();
        (volume, writes)
    });
    let less = dynamic(&rig.disks[..3]);
    let away = rig.disks[3].clone();
    rig.run(|world: Arc<SimWorld>| async move {
        let set = DriveSet::open_some(less).await.unwrap();
        let pool = Pool::open(world, set.drives, options()).await.unwrap();
        verify(&pool, volume, writes).await;
        pool.take_back(away).await.unwrap();
        verify(&pool, volume, writes).await;
        pool.close().await.unwrap();
    });
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_length_that_counts_before_its_grant_pages_are_there_is_found() {
    use quoin_pool::bugs::{Bug, plant};
    plant(Some(Bug::GrowBeforeGrants));
    let found =
        (0..160).any(|step| std::panic::catch_unwind(|| cut_while_growing(1, step, 1100 * MIB)).is_err());
    plant(None);
    assert!(found, "a power failure shows it");
}
