//! Opening with a page of the journal or a root slot damaged or unreadable: what nothing needs refuses nothing, and what
//! was acknowledged is there or missed, never silently gone.

use super::*;
use crate::format::{ExtentFooter, ExtentHeader};
use crate::{
    ObjectKind, Pool, PoolError,
    integrity::check::tests::{ROOT_OFFSETS, Rig, SLAB, SLABS_START_BYTES, flip},
    store::roots::{following, newest},
};
use quoin_drive::{ROOT_BYTES, inspect_set, open_set, raise_set};
use quoin_world::{DiskOp, Slice as Bytes};
use quoin_world_sim::{FaultPlan, Image};
use zerocopy::IntoBytes;

const BLOCK: u64 = 8192;
const PAGE: u64 = PAGE_BYTES as u64;
/// Journal extents of each drive.
const EXTENTS: u64 = 8;

fn unreadable(only: ByteRange) -> FaultPlan {
    FaultPlan { read_error: 1.0, only: Some(only), ..FaultPlan::default() }
}

fn restore(rig: &Rig, images: &[Image]) {
    for (disk, image) in rig.disks.iter().zip(images) {
        disk.set_faults(FaultPlan::default());
        disk.restore(image.clone());
    }
}

fn images(rig: &Rig) -> Vec<Image> {
    rig.disks.iter().map(|disk| disk.image()).collect()
}

/// What the first blocks of the rig's volume hold, and whether both objects are there. `None`: it cannot be read.
fn content(rig: &Rig, pool: &Arc<Pool>) -> (Vec<Option<u8>>, usize) {
    let (pool, volume) = (pool.clone(), rig.volume);
    rig.run(async move {
        let mut bytes = Vec::new();
        for block in 0..64 {
            let read = pool.read(volume, ByteRange::new(block * BLOCK, BLOCK)).await;
            bytes.push(read.ok().map(|slices| slices[0][0]));
        }
        (bytes, pool.list(ObjectKind(1)).len())
    })
}

fn close(rig: &Rig, pool: &Arc<Pool>) {
    let pool = pool.clone();
    rig.run(async move { pool.close().await.unwrap() });
}

/// Makes each page of the journal unreadable, or zeroes it, one at a time.
fn each_page(rig: &Rig, mut opened: impl FnMut(&str, Result<Arc<Pool>, PoolError>)) {
    let images = images(rig);
    for disk in &rig.disks {
        for page in 0..EXTENTS * SLAB / PAGE {
            for damage in ["unreadable", "zeroed"] {
                let at = SLABS_START_BYTES + page * PAGE;
                match damage {
                    "zeroed" => disk.poke(at, &[0; PAGE_BYTES]),
                    _ => disk.set_faults(unreadable(ByteRange::new(at, 512))),
                }
                let what = format!("{damage} {} {at}: ", quoin_world::Disk::name(&**disk));
                opened(&what, rig.try_open());
                rig.world.crash();
                restore(rig, &images);
            }
        }
    }
}

#[test]
fn after_a_clean_stop_no_page_of_the_journal_is_needed() {
    let rig = Rig::new();
    let pool = rig.open();
    close(&rig, &pool);
    drop(pool);
    each_page(&rig, |what, outcome| {
        let pool = outcome.unwrap_or_else(|error| panic!("{what}{error}"));
        assert!(pool.mended().is_empty(), "{what}it was looked at: {:?}", pool.mended());
    });

    // Somebody who opened it since may have written, if only the epoch says that there was anybody.
    let disks = rig.disks();
    rig.run(async move { raise_set(&open_set(disks).await.unwrap()).await.unwrap() });
    rig.world.crash();
    let mut told = 0;
    each_page(&rig, |what, outcome| {
        let pool = outcome.unwrap_or_else(|error| panic!("{what}{error}"));
        told += pool.mended().len();
        if what.starts_with("unreadable") {
            let at = what.split(' ').nth(2).unwrap().trim_end_matches(':');
            assert!(
                pool.mended().iter().all(|text| text.contains(&format!("byte {at}"))),
                "{:?}",
                pool.mended()
            );
        }
    });
    // Each that is looked at: not payloads, nor what the root says is obsolete.
    assert!((16..100).contains(&told), "{told}");

    // All of it, whatever it held.
    let images = images(&rig);
    for disk in &rig.disks {
        disk.set_faults(unreadable(ByteRange::new(SLABS_START_BYTES, EXTENTS * SLAB)));
    }
    let pool = rig.open();
    let (bytes, objects) = content(&rig, &pool);
    assert_eq!((bytes[0], bytes[1], bytes[63], objects), (Some(99), Some(98), Some(64), 2));
    // It is written to, and what was written is needed from then on.
    let (volume, writer) = (rig.volume, pool.clone());
    rig.run(async move { writer.write(volume, 0, vec![Bytes::copy_of(&[77; 8192])]).await.unwrap() });
    rig.world.crash();
    let refused = rig.try_open().err().unwrap().to_string();
    assert!(refused.contains("fails to read it") && refused.contains("drive d"), "{refused}");
    rig.disks.iter().for_each(|disk| disk.set_faults(FaultPlan::default()));
    let pool = rig.open();
    assert_eq!(content(&rig, &pool).0[0], Some(77));
    restore(&rig, &images);
}

#[test]
fn after_a_crash_a_page_that_is_needed_refuses_by_name_and_no_other_does() {
    let rig = Rig::new();
    let (mut opened, mut refused) = (0, 0);
    each_page(&rig, |what, outcome| {
        let pool = match outcome {
            Ok(pool) => pool,
            Err(error) => {
                refused += 1;
                let (text, place) = (error.to_string(), what.split(' ').collect::<Vec<_>>());
                let says = text.contains("fails to read") || text.contains("read of");
                assert!(text.contains(place[1]) && (place[0] == "zeroed" || says), "{what}{text}");
                return;
            }
        };
        opened += 1;
        let (bytes, objects) = content(&rig, &pool);
        // The last two batches may look torn where they were damaged.
        if what.starts_with("unreadable") {
            assert_eq!(objects, 2, "{what}");
            assert!(
                matches!(bytes[0], None | Some(99)) && matches!(bytes[1], None | Some(98)),
                "{what}{bytes:?}"
            );
        }
        assert!((2..64).all(|block| bytes[block] == Some(block as u8 + 1)), "{what}{bytes:?}");
    });
    // Headers and what cannot be told from a batch that was acknowledged.
    assert!(opened > 2000 && (4..=40).contains(&refused), "{opened} {refused}");
}

#[test]
fn what_a_footer_tells_is_read_nowhere_else_and_without_it_all_is_read_where_it_lies() {
    let rig = Rig::new();
    let (pool, volume) = (rig.open(), rig.volume);
    let written = |block: u64| (block % 251) as u8 + 1;
    let disks = rig.disks();
    rig.run(async move {
        for block in 0..120 {
            pool.write(volume, block * BLOCK, vec![Bytes::copy_of(&[written(block); 8192])]).await.unwrap();
        }
        // Footers are not hardened by themselves.
        for disk in disks {
            disk.submit(DiskOp::Flush).await.unwrap();
        }
    });
    rig.world.crash();
    let images = images(&rig);
    let footer_at = |disk: &quoin_world_sim::SimDisk, extent: u64| {
        let at = SLABS_START_BYTES + (extent + 1) * SLAB - PAGE;
        let footer = ExtentFooter::parse(&disk.peek(at, PAGE_BYTES))?;
        let header = ExtentHeader::parse(&disk.peek(at + PAGE - SLAB, PAGE_BYTES))?;
        (footer.extent == header.number && footer.tag == header.crc).then_some((at, footer))
    };
    let check = |what: &str| {
        let pool = rig.try_open().unwrap_or_else(|error| panic!("{what}: {error}"));
        // A payload that was damaged is missed when it is read; nothing else is.
        let (reader, volume) = (pool.clone(), rig.volume);
        let wrong = rig.run(async move {
            let mut wrong = 0;
            for block in 0..120 {
                match reader.read(volume, ByteRange::new(block * BLOCK, BLOCK)).await {
                    Ok(slices) => assert_eq!(slices[0][0], written(block), "block {block}"),
                    Err(_) => wrong += 1,
                }
            }
            wrong
        });
        assert!(wrong <= 1, "{what}: {wrong} blocks");
        rig.world.crash();
        restore(&rig, &images);
    };
    let mut sealed = 0;
    for disk in &rig.disks {
        for extent in 0..EXTENTS {
            let Some((at, footer)) = footer_at(disk, extent) else { continue };
            sealed += 1;
            let begin = at + PAGE - SLAB;
            let index = at - u64::from(footer.index_bytes.get()).next_multiple_of(PAGE);
            for page in (begin + PAGE..at + PAGE).step_by(PAGE_BYTES) {
                disk.poke(page, &[0xa5; PAGE_BYTES]);
                check(&format!("a damaged page at {page}"));
            }
            for page in [begin + PAGE, index, at] {
                disk.set_faults(unreadable(ByteRange::new(page, 512)));
                check(&format!("an unreadable page at {page}"));
            }
            // With neither, acknowledged writes are missing.
            disk.poke(at, &[0xa5; PAGE_BYTES]);
            disk.poke(begin + PAGE, &[0xa5; PAGE_BYTES]);
            assert!(rig.try_open().is_err());
            restore(&rig, &images);
        }
    }
    assert!(sealed >= 3, "{sealed}");
}

#[test]
fn a_root_slot_that_one_drive_cannot_read_is_taken_from_another() {
    let rig = Rig::new();
    let images = images(&rig);
    let newest = rig.opened().root;
    for disk in &rig.disks {
        for (slot, at) in ROOT_OFFSETS.into_iter().enumerate() {
            disk.set_faults(unreadable(ByteRange::new(at, 512)));
            let report = rig.check();
            let name = quoin_world::Disk::name(&**disk);
            let note = format!("root slot {slot} of drive {name}: it cannot be read");
            assert!(report.notes.iter().any(|p| p.to_string().starts_with(&note)), "{:?}", report.notes);
            assert!(report.is_clean(), "{:?}", report.problems);
            let pool = rig.open();
            assert_eq!(pool.mended().len(), 1, "{:?}", pool.mended());
            assert!(pool.mended()[0].contains(&format!("drive {name}: the root slot at byte {at}")));
            assert_eq!(content(&rig, &pool).0[0], Some(99));
            let is_newest = newest.generation.get() as usize % 2 == slot;
            assert!(!is_newest || disk.peek(at, ROOT_BYTES) == newest.as_bytes());
            rig.world.crash();
            restore(&rig, &images);
        }
    }
    // Where no drive can tell, the newest root may be there.
    for at in ROOT_OFFSETS {
        rig.disks.iter().for_each(|disk| disk.set_faults(unreadable(ByteRange::new(at, 512))));
        let refused = rig.try_open().err().unwrap().to_string();
        assert!(
            refused.contains(&format!("the root slot at byte {at} can be read on no drive")),
            "{refused}"
        );
        restore(&rig, &images);
    }
}

/// How a voter fails to read a root.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Misread {
    Fails,
    /// It reads it when it is asked again.
    FailsOnce,
    /// What it returns is not what was written.
    Garbles,
}

/// A root that was written to one voter only did not count. If that voter fails to read it, the pool goes on from the one before,
/// and what it then writes may lie where the lost root leads to.
#[test]
fn a_newer_root_that_could_not_be_read_is_never_taken_later() {
    for misread in [Misread::Fails, Misread::FailsOnce, Misread::Garbles] {
        let rig = Rig::new();
        drop(rig.open());
        rig.world.crash();
        let current = rig.opened().root;
        let lost = following(&current, Epoch(current.epoch.get()), false);
        let at = ROOT_OFFSETS[lost.generation.get() as usize % 2];
        let mut written = lost.as_bytes().to_vec();
        if misread == Misread::Garbles {
            written[100] ^= 1;
        }
        rig.disks[1].poke(at, &written);
        let faults = unreadable(ByteRange::new(at, 512));
        if misread == Misread::Fails {
            rig.disks[1].set_faults(faults);
            drop(rig.open());
            rig.disks[1].set_faults(FaultPlan::default());
        } else {
            let disks = rig.disks();
            let disk = rig.disks[1].clone();
            rig.run(async move {
                let set = open_set(disks).await.unwrap();
                raise_set(&set).await.unwrap();
                let store = Store::inspect(set).await.unwrap();
                if misread == Misread::FailsOnce {
                    disk.set_faults(faults);
                }
                let root = store.newest_root(SliceId(0)).await.unwrap();
                disk.set_faults(FaultPlan::default());
                store.mend_roots(SliceId(0), &root).await.unwrap();
            });
        }
        rig.world.crash();
        assert_ne!(rig.disks[1].peek(at, ROOT_BYTES), written, "{misread:?}");
        assert_eq!(content(&rig, &rig.open()).0[0], Some(99));
    }
}

#[test]
fn a_stale_root_of_a_higher_generation_and_a_lower_epoch_loses() {
    let rig = Rig::new();
    drop(rig.open());
    rig.world.crash();
    let current = rig.opened().root;
    assert!(current.epoch.get() >= 1);
    // An owner that was fenced off had got further, and had never heard of the objects.
    let mut stale = current;
    stale.epoch = (current.epoch.get() - 1).into();
    stale.generation = (current.generation.get() + 5).into();
    stale.catalog_pages = 0.into();
    stale.catalog_records = 0.into();
    stale.seal();
    let slot = stale.generation.get() as usize % 2;
    assert_ne!(slot, current.generation.get() as usize % 2);
    rig.disks[1].poke(ROOT_OFFSETS[slot], stale.as_bytes());

    let disks = rig.disks();
    let chosen = rig.run(async move {
        let store = Store::inspect(inspect_set(disks).await.unwrap()).await.unwrap();
        newest(&store.root_slots(SliceId(0)).await).unwrap()
    });
    assert_eq!(chosen.age(), current.age());
    let report = rig.check();
    assert!(report.is_clean() && report.objects.len() == 2, "{:?}", report.problems);
    let pool = rig.open();
    assert_eq!(
        content(&rig, &pool),
        (
            (0..64)
                .map(|b| Some(match b {
                    0 => 99,
                    1 => 98,
                    b => b + 1,
                }))
                .collect(),
            2
        )
    );
    // The next checkpoint covers it.
    close(&rig, &pool);
    assert!(rig.opened().root.epoch.get() > current.epoch.get());
    assert!(rig.check().is_clean());
}

/// The page of the journal whose bytes are all `byte`: the payload of a write. Its batch begins a page before.
fn payload_of(rig: &Rig, byte: u8) -> (usize, u64) {
    let pages = (0..EXTENTS * SLAB / PAGE).map(|page| SLABS_START_BYTES + page * PAGE);
    let places = pages.flat_map(|at| (0..rig.disks.len()).map(move |disk| (disk, at)));
    let mut found = places.filter(|(disk, at)| rig.disks[*disk].peek(*at, PAGE_BYTES) == [byte; PAGE_BYTES]);
    found.next().unwrap()
}

/// Without anything behind them, damage to the last batches of a lane looks like a write that was cut off. So a lane that
/// goes idle tells, once, that they are hardened.
#[test]
fn damage_to_the_last_batch_of_an_idle_lane_is_told() {
    for (idle_ms, part) in [(0, "head"), (0, "payload"), (1500, "head"), (1500, "payload")] {
        let rig = Rig::new();
        let (pool, volume, world) = (rig.open(), rig.volume, rig.world.clone());
        rig.run(async move {
            pool.write(volume, 6 * BLOCK, vec![Bytes::copy_of(&[66; 8192])]).await.unwrap();
            world.sleep(std::time::Duration::from_millis(idle_ms)).await;
        });
        let (world, before) = (rig.world.clone(), rig.world.progress().1);
        rig.run(async move { world.sleep(std::time::Duration::from_millis(idle_ms)).await });
        assert_eq!(rig.world.progress().1, before, "a lane that stays idle writes no more");
        rig.world.crash();
        let (disk, at) = payload_of(&rig, 66);
        let at = if part == "head" { at - PAGE } else { at };
        flip(&rig.disks[disk], at + 50);
        match (idle_ms, part, rig.try_open()) {
            (0, _, Ok(pool)) => assert_eq!(content(&rig, &pool).0[6], Some(7), "it counts as cut off"),
            (_, "head", Err(error)) => {
                assert!(error.to_string().contains("is unreadable, yet batch"), "{error}")
            }
            (_, "payload", Ok(pool)) => assert_eq!(content(&rig, &pool).0[6], None, "it is missed"),
            (_, _, outcome) => panic!("{idle_ms} {part}: {:?}", outcome.map(|_| ())),
        }
    }
}

#[test]
fn a_batch_that_tells_of_others_always_fits_behind_them() {
    let rig = Rig::new();
    let (pool, volume, world) = (rig.open(), rig.volume, rig.world.clone());
    // Batches of different lengths, each told of, through several extents.
    rig.run(async move {
        for i in 0..150u64 {
            let data = vec![i as u8 | 1; 512 * (1 + i as usize * 7 % 16)];
            pool.write(volume, (100 + i % 20) * BLOCK, vec![Bytes::copy_of(&data)]).await.unwrap();
            world.sleep(std::time::Duration::from_millis(600)).await;
        }
    });
    rig.world.crash();
    let pool = rig.open();
    assert_eq!(content(&rig, &pool).0[2], Some(3));
    assert!(rig.disks.len() == 2 && pool.recovery().torn_batches == 0);
}
