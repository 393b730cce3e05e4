//! A journal with two columns: what happens to one of them costs nothing.

use crate::{
    ObjectKind, Pool, PoolOptions,
    format::{BATCH_MAGIC, BatchHeader, PAGE_BYTES, RecordHeader, zeroed},
    integrity::check::tests::{Rig, SLAB, SLABS_START_BYTES},
};
use quoin_base::{ByteRange, crc32c};
use quoin_drive::{Roles, open_set};
use quoin_world::{Disk, Slice as Bytes};
use quoin_world_sim::{FaultPlan, Image};
use std::sync::Arc;
use zerocopy::IntoBytes;

const BLOCK: u64 = 8192;
const PAGE: u64 = PAGE_BYTES as u64;
/// The journal of each drive.
const JOURNAL: ByteRange = ByteRange { offset: SLABS_START_BYTES, len: 8 * SLAB };

fn images(rig: &Rig) -> Vec<Image> {
    rig.disks.iter().map(|disk| disk.image()).collect()
}

fn restore(rig: &Rig, images: &[Image]) {
    for (disk, image) in rig.disks.iter().zip(images) {
        disk.set_faults(FaultPlan::default());
        disk.restore(image.clone());
    }
}

fn write(rig: &Rig, pool: &Arc<Pool>, block: u64, byte: u8) {
    let (pool, volume) = (pool.clone(), rig.volume);
    rig.run(
        async move { pool.write(volume, block * BLOCK, vec![Bytes::copy_of(&[byte; 8192])]).await.unwrap() },
    );
}

/// All that the rig wrote is there, and block 5 holds `fifth`.
fn assert_all(rig: &Rig, what: &str, fifth: u8) {
    let pool = rig.try_open().unwrap_or_else(|error| panic!("{what}: {error}"));
    let (reader, volume) = (pool.clone(), rig.volume);
    let (bytes, objects) = rig.run(async move {
        let mut bytes = Vec::new();
        for block in 0..64 {
            let slices = reader.read(volume, ByteRange::new(block * BLOCK, BLOCK)).await.unwrap();
            bytes.push(slices[0][0]);
        }
        (bytes, reader.list(ObjectKind(1)).len())
    });
    for (block, byte) in bytes.into_iter().enumerate() {
        let expected = match block {
            0 => 99,
            1 => 98,
            5 => fifth,
            block => block as u8 + 1,
        };
        assert_eq!(byte, expected, "{what}: block {block}");
    }
    assert_eq!(objects, 2, "{what}");
}

#[test]
fn both_columns_hold_the_same_and_either_may_be_damaged_anywhere() {
    let rig = Rig::with_columns(2);
    let images = images(&rig);
    assert!(rig.check().is_clean());
    let all = |disk: usize| rig.disks[disk].peek(JOURNAL.offset, JOURNAL.len as usize);
    assert!(all(0) == all(1) && all(0).iter().any(|byte| *byte != 0));
    for disk in &rig.disks {
        for page in (0..JOURNAL.len / PAGE).step_by(2) {
            let at = JOURNAL.offset + page * PAGE;
            match page % 4 {
                0 => disk.poke(at, &[0; PAGE_BYTES]),
                _ => disk.set_faults(FaultPlan {
                    read_error: 1.0,
                    only: Some(ByteRange::new(at, 512)),
                    ..FaultPlan::default()
                }),
            }
            assert!(page % 8 > 0 || rig.check().is_clean(), "{at}");
            assert_all(&rig, &format!("the page at {at}"), 6);
            rig.world.crash();
            restore(&rig, &images);
        }
        disk.poke(JOURNAL.offset, &vec![0; JOURNAL.len as usize]);
        assert_all(&rig, "all of it lost", 6);
        rig.world.crash();
        restore(&rig, &images);
        disk.set_faults(FaultPlan { read_error: 1.0, only: Some(JOURNAL), ..FaultPlan::default() });
        assert!(rig.check().is_clean());
        assert_all(&rig, "all of it unreadable", 6);
        rig.world.crash();
        restore(&rig, &images);
    }
}

#[test]
fn a_batch_that_one_column_has_is_on_both_before_it_is_served() {
    for has_it in [0, 1] {
        let rig = Rig::with_columns(2);
        let before = images(&rig);
        let pool = rig.open();
        write(&rig, &pool, 5, 55);
        drop(pool);
        rig.world.crash();
        // The other one never got what was written since, the header of the extent included.
        let old = before[1 - has_it].clone();
        let other = &rig.disks[1 - has_it];
        let now = other.image();
        other.restore(old);
        let journal = other.peek(JOURNAL.offset, JOURNAL.len as usize);
        other.restore(now);
        other.poke(JOURNAL.offset, &journal);
        assert_all(&rig, "on one column", 55);
        rig.world.crash();
        // It was served, so that it must outlive the drive that had it.
        rig.disks[has_it].poke(JOURNAL.offset, &vec![0; JOURNAL.len as usize]);
        assert_all(&rig, "on the other", 55);
    }
}

#[test]
fn what_one_column_cannot_read_and_the_other_lacks_is_not_found_later() {
    let rig = Rig::with_columns(2);
    let pool = rig.open();
    write(&rig, &pool, 7, 8);
    let before: Vec<_> =
        rig.disks.iter().map(|disk| disk.peek(JOURNAL.offset, JOURNAL.len as usize)).collect();
    write(&rig, &pool, 5, 55);
    drop(pool);
    rig.world.crash();
    // Power failed before the second column had the batch, so that it was not acknowledged; the first one fails to read it.
    let after = rig.disks[0].peek(JOURNAL.offset, JOURNAL.len as usize);
    let at = (0..after.len())
        .step_by(PAGE_BYTES)
        .find(|at| after[*at..][..PAGE_BYTES] != before[0][*at..][..PAGE_BYTES]);
    let at = JOURNAL.offset + at.unwrap() as u64;
    rig.disks[1].poke(JOURNAL.offset, &before[1]);
    rig.disks[0].spoil(ByteRange::new(at, PAGE));
    assert_all(&rig, "it never counted", 6);
    rig.world.crash();
    // It was overwritten: else it would be readable now, and undo what was read.
    assert_all(&rig, "nor does it later", 6);
    assert_eq!(rig.disks[0].peek(at, PAGE_BYTES), vec![0; PAGE_BYTES]);
}

/// With every column unreadable where the extent begins, nothing tells whether it held what counted.
#[test]
fn an_extent_whose_beginning_no_column_can_read_refuses_the_pool_if_it_may_be_needed() {
    let rig = Rig::with_columns(2);
    let images = images(&rig);
    let mut refused = 0;
    for slab in 0..JOURNAL.len / SLAB {
        let only = Some(ByteRange::new(JOURNAL.offset + slab * SLAB, 2 * PAGE));
        for disk in &rig.disks {
            disk.set_faults(FaultPlan { read_error: 1.0, only, ..FaultPlan::default() });
        }
        match rig.try_open() {
            Ok(pool) => {
                drop(pool);
                rig.world.crash();
                assert_all(&rig, &format!("slab {slab} cannot be read"), 6);
            }
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("fails to read"), "{error}");
                rig.world.crash();
                refused += 1;
                // It is for the drives to be read again: nothing was overwritten.
                rig.disks.iter().for_each(|disk| disk.set_faults(FaultPlan::default()));
                assert_all(&rig, &format!("slab {slab} can be read again"), 6);
            }
        }
        rig.world.crash();
        restore(&rig, &images);
    }
    assert!(refused > 0);
}

/// Power failed while an extent was begun anew, and tore its header on both drives. What is behind it is of its earlier life,
/// and one drive fails to read that, or the header too.
#[test]
fn an_extent_without_a_header_is_free_if_one_column_tells_that_nothing_there_is_needed() {
    let rig = Rig::with_columns(2);
    let images = images(&rig);
    let (mut free, mut needed) = (0, 0);
    for slab in 0..JOURNAL.len / SLAB {
        let at = JOURNAL.offset + slab * SLAB;
        let has_batches = rig.disks[0].peek(at + PAGE, 8) == BATCH_MAGIC.to_le_bytes();
        let tear = || rig.disks.iter().for_each(|disk| disk.poke(at, &[0xEE; PAGE_BYTES]));
        tear();
        let is_free = rig.try_open().is_ok();
        rig.world.crash();
        restore(&rig, &images);
        for only in [ByteRange::new(at + PAGE, PAGE), ByteRange::new(at, 2 * PAGE)] {
            tear();
            let only = Some(only);
            rig.disks[1].set_faults(FaultPlan { read_error: 1.0, only, ..FaultPlan::default() });
            match rig.try_open() {
                Ok(pool) => {
                    assert!(is_free, "slab {slab} is needed");
                    drop(pool);
                    rig.world.crash();
                    assert_all(&rig, &format!("slab {slab}"), 6);
                    free += u64::from(has_batches);
                }
                Err(error) => {
                    assert!(!is_free, "slab {slab}: {error}");
                    needed += 1;
                }
            }
            rig.world.crash();
            restore(&rig, &images);
        }
    }
    assert!(free > 0 && needed > 0, "{free} {needed}");
}

/// A later batch, on whichever column, tells that the first one counted: then both headers are damaged, and not torn.
#[test]
fn an_extent_without_headers_is_needed_if_one_column_tells_that_its_first_batch_counted() {
    let rig = Rig::with_columns(2);
    let images = images(&rig);
    let mut needed = 0;
    for slab in 0..JOURNAL.len / SLAB {
        let at = JOURNAL.offset + slab * SLAB;
        let tear = || rig.disks.iter().for_each(|disk| disk.poke(at, &[0xEE; PAGE_BYTES]));
        tear();
        let is_free = rig.try_open().is_ok();
        rig.world.crash();
        restore(&rig, &images);
        if is_free {
            continue;
        }
        let is_batch = |page: &u64| rig.disks[0].peek(at + page * PAGE, 8) == BATCH_MAGIC.to_le_bytes();
        let second = (2..SLAB / PAGE).find(is_batch).expect("it tells of the first");
        for short in 0..2 {
            tear();
            let rest = (SLAB - second * PAGE) as usize;
            rig.disks[short].poke(at + second * PAGE, &vec![0; rest]);
            assert!(rig.try_open().is_err(), "slab {slab}, short on drive {short}");
            rig.world.crash();
            restore(&rig, &images);
            needed += 1;
        }
    }
    assert!(needed > 0);
}

/// Two drives that hold the journal and nothing else, and one for the rest.
fn apart() -> Rig {
    let journal = Roles { journal: true, data: false };
    let data = Roles { journal: false, data: true };
    Rig::with(&[journal, journal, data], 2)
}

/// A crash after a drive of the journal failed, and after the writes of these blocks since. They were acknowledged, so it is
/// durable that the drive does not count. It works again.
fn failed_before(failed: usize, blocks: std::ops::RangeInclusive<u64>) -> Rig {
    let rig = apart();
    let pool = rig.open();
    write(&rig, &pool, 5, 55);
    rig.disks[failed].fail();
    blocks.for_each(|block| write(&rig, &pool, block, 11 * block as u8));
    drop(pool);
    rig.world.crash();
    rig.disks[failed].revive();
    rig
}

fn open_with(rig: &Rig, which: &[usize]) -> Result<Arc<Pool>, String> {
    let disks: Vec<_> = which.iter().map(|i| rig.disks[*i].clone() as Arc<dyn Disk>).collect();
    let world = rig.world.clone();
    rig.run(async move {
        let drives = open_set(disks).await.map_err(|error| error.to_string())?;
        Pool::open(world, drives, PoolOptions::default()).await.map_err(|error| error.to_string())
    })
}

fn read(rig: &Rig, pool: &Arc<Pool>, block: u64) -> u8 {
    let (pool, volume) = (pool.clone(), rig.volume);
    rig.run(async move { pool.read(volume, ByteRange::new(block * BLOCK, BLOCK)).await.unwrap()[0][0] })
}

#[test]
fn a_drive_of_the_journal_that_fails_costs_nothing_and_is_never_believed_again() {
    for failed in [0, 1] {
        let rig = failed_before(failed, 6..=8);
        // It comes back with what it had; or it does not.
        let other = 1 - failed;
        for which in [&[0, 1, 2][..], &[other, 2]] {
            let pool = open_with(&rig, which).unwrap();
            assert_eq!([5, 6, 7, 8].map(|block| read(&rig, &pool, block)), [55, 66, 77, 88], "{which:?}");
            drop(pool);
            rig.world.crash();
        }
    }
}

/// What the other column fails to read is missed, whatever the drive that failed says: it lacks the batch, and with a drive of
/// the set that would prove that the batch never counted.
#[test]
fn a_batch_that_only_the_other_column_got_is_missed_if_that_one_fails_to_read_it() {
    for failed in [0, 1] {
        let rig = failed_before(failed, 6..=6);
        let other = &rig.disks[1 - failed];
        let (journal, page) = (other.peek(JOURNAL.offset, JOURNAL.len as usize), vec![66; PAGE_BYTES]);
        let at = (0..journal.len())
            .step_by(PAGE_BYTES)
            .find(|at| journal[*at..][..PAGE_BYTES] == page[..])
            .unwrap();
        // The lane has left the extent, so the footer has the headers as well: the pool opens, knows of the write and fails reads of
        // it, where the drive that failed would say that it never was.
        other.spoil(ByteRange::new(JOURNAL.offset + at as u64 - PAGE, 2 * PAGE));
        let pool = open_with(&rig, &[0, 1, 2]).unwrap();
        assert_eq!(read(&rig, &pool, 5), 55);
        let (p, volume) = (pool.clone(), rig.volume);
        let outcome = rig.run(async move { p.read(volume, ByteRange::new(6 * BLOCK, BLOCK)).await });
        assert!(
            matches!(outcome, Err(crate::PoolError::Medium { .. })),
            "{:?}",
            outcome.map(|found| found[0][0])
        );
        drop(pool);
        rig.world.crash();
    }
}

#[test]
fn without_its_last_column_and_without_data_a_pool_goes_offline() {
    let rig = apart();
    let pool = rig.open();
    let attempt = |block: u64| {
        let (pool, volume) = (pool.clone(), rig.volume);
        rig.run(async move { pool.write(volume, block * BLOCK, vec![Bytes::copy_of(&[200; 8192])]).await.is_ok() })
    };
    rig.disks[0].fail();
    assert!(attempt(5));
    rig.disks[1].fail();
    assert!(!attempt(6));

    // What is in the journal on one drive alone keeps that drive, though there is a third one.
    let journal = Roles { journal: true, data: false };
    let rig = Rig::with(&[journal, journal, journal, Roles { journal: false, data: true }], 2);
    let pool = rig.open();
    let attempt = |block: u64| {
        let (pool, volume) = (pool.clone(), rig.volume);
        rig.run(async move { pool.write(volume, block * BLOCK, vec![Bytes::copy_of(&[200; 8192])]).await.is_ok() })
    };
    assert!(attempt(5));
    let on = |disk: usize| {
        rig.disks[disk]
            .peek(JOURNAL.offset, JOURNAL.len as usize)
            .chunks(PAGE_BYTES)
            .any(|page| page == [200; PAGE_BYTES])
    };
    let holding: Vec<_> = (0..3).filter(|disk| on(*disk)).collect();
    assert_eq!(holding.len(), 2);
    rig.disks[holding[0]].fail();
    assert!(attempt(6));
    rig.disks[holding[1]].fail();
    assert!(!attempt(7));
}

/// What stands in a slab that begins with no header may be anything, with a right checksum too.
#[test]
fn a_batch_of_an_extent_with_an_impossible_number_is_none() {
    let rig = Rig::new();
    let is_unused = |slab: &u64| {
        let bytes = rig.disks[0].peek(JOURNAL.offset + slab * SLAB, 2 * PAGE_BYTES);
        bytes.iter().all(|byte| *byte == 0)
    };
    let slab = (0..JOURNAL.len / SLAB).find(is_unused).unwrap();
    for extent in [1 << 62, u64::MAX - 1, u64::MAX] {
        let (mut header, record): (BatchHeader, RecordHeader) = (zeroed(), zeroed());
        (header.magic, header.extent, header.records) = (BATCH_MAGIC.into(), extent.into(), 1.into());
        (header.meta_bytes, header.total_bytes) = (128.into(), (PAGE_BYTES as u32).into());
        header.meta_crc = crc32c(&[header.as_bytes(), record.as_bytes()].concat()).0.into();
        let batch = [header.as_bytes(), record.as_bytes()].concat();
        rig.disks[0].poke(JOURNAL.offset + slab * SLAB + PAGE, &batch);
        assert!(rig.check().is_clean(), "{extent}");
        assert_all(&rig, &format!("extent {extent}"), 6);
        rig.world.crash();
    }
}
