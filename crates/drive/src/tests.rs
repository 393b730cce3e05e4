//! Drives in the simulated world: labels, epochs, sets, and what damage, power cuts and failing operations do to them.

use crate::*;
use futures_util::future::join_all;
use quoin_base::{ByteRange, DriveId, DriveIndex, Epoch, LabelGeneration, Layout, PoolId, SliceId};
use quoin_world::{Buf, Disk, Slice};
use quoin_world_sim::{FaultPlan, PowerCut, SimDisk, SimOptions, SimWorld};
use std::sync::Arc;

pub(crate) const LEN_BYTES: u64 = 7 << 20;
const SLABS_START_BYTES: u64 = 2 << 20;
const SLAB_BYTES: u32 = 1 << 20;

pub(crate) fn uuid(n: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(n)
}

pub(crate) fn label(index: u16) -> Label {
    Label {
        pool: PoolId(uuid(7)),
        pool_name: "tank".into(),
        drive: DriveId(uuid(100 + u128::from(index))),
        index: DriveIndex(index),
        roles: Roles { journal: true, data: true },
        len_bytes: 0,
        slab_bytes: SLAB_BYTES,
        row_bytes: 256 << 10,
        block_bytes: 8192,
        journal_slabs: 2,
        fences: Fences { epoch: Epoch(1), of: Vec::new() },
        generation: LabelGeneration(0),
        created_ms: 1234,
        slices: 1,
        slabs_start_bytes: 0,
        journal_columns: 1,
        layout: Layout::NONE,
    }
}

pub(crate) fn dynamic(disk: &Arc<SimDisk>) -> Arc<dyn Disk> {
    disk.clone()
}

pub(crate) async fn format(disk: Arc<dyn Disk>, label: Label) -> Result<Arc<Drive>, DriveError> {
    let session = WriterSession::unnamed(label.epoch());
    Drive::format(disk, label, session).await
}

/// A world with `drives` formatted drives of one pool.
pub(crate) fn pool(seed: u64, drives: u16) -> (Arc<SimWorld>, Vec<Arc<SimDisk>>) {
    let world = SimWorld::new(seed, SimOptions::default());
    let disks: Vec<_> = (0..drives).map(|i| world.disk(&format!("d{i}"), LEN_BYTES)).collect();
    let blank: Vec<_> = disks.iter().map(dynamic).collect();
    world
        .run(async move {
            let mut formatted = Vec::new();
            for (i, disk) in blank.into_iter().enumerate() {
                formatted.push(format(disk, label(i as u16)).await.unwrap());
            }
            let labels: Vec<_> = formatted.iter().map(|drive| drive.label()).collect();
            let members = Members::first(PoolId(uuid(7)), &labels, vec![String::new(); labels.len()]);
            for drive in formatted.iter().take(MAX_VOTERS) {
                drive.write_members(&members).await.unwrap();
            }
        })
        .unwrap();
    (world, disks)
}

fn open(world: &SimWorld, disk: &Arc<SimDisk>) -> Result<Arc<Drive>, DriveError> {
    world.run(Drive::open(dynamic(disk))).unwrap()
}

/// Opens a drive and joins those who write to it.
fn open_to_write(world: &SimWorld, disk: &Arc<SimDisk>) -> Arc<Drive> {
    let drive = open(world, disk).unwrap();
    world.run(join(drive.clone())).unwrap();
    drive
}

pub(crate) async fn join(drive: Arc<Drive>) {
    let holder = drive.writer_session().holder;
    drive.fence(holder, drive.fences().lowest_of(holder) + 1).await.unwrap();
}

pub(crate) fn refusal<T>(outcome: Result<T, DriveError>) -> String {
    outcome.err().expect("refused").to_string()
}

#[test]
fn the_bytes_of_a_label_are_the_documented_ones() {
    let (_, disks) = pool(1, 1);
    let bytes = disks[0].peek(65536, LABEL_BYTES);
    assert_eq!(bytes, disks[0].peek(0, LABEL_BYTES));
    assert_eq!(&bytes[..16], b"QUOINDRV\x0d\0\0\0\0\0\0\0");
    assert_eq!(&bytes[48..53], b"tank\0");
    assert_eq!(bytes[112..120], LEN_BYTES.to_le_bytes());
    assert_eq!(bytes[120..124], SLAB_BYTES.to_le_bytes());
    assert_eq!(bytes[136..152], [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], "epoch, generation");
    assert_eq!(bytes[168..172], [3, 0, 0, 0], "roles");
    assert_eq!(bytes[172..176], [1, 0, 0, 0], "slices");
    assert_eq!(bytes[176..184], SLABS_START_BYTES.to_le_bytes());
    assert_eq!(bytes[4088..], quoin_base::crc64(&bytes[..4088]).0.to_le_bytes());
}

#[test]
fn what_is_written_is_read_back_after_a_power_cut() {
    let (world, disks) = pool(2, 1);
    let drive = open_to_write(&world, &disks[0]);
    assert_eq!((drive.slabs(), drive.index(), drive.name()), (5, DriveIndex(0), "d0"));
    assert_eq!(drive.label().len_bytes, LEN_BYTES);
    let (before, d) = (drive.counters(), drive.clone());
    world
        .run(async move {
            let two = vec![Slice::copy_of(&[1; 4096]), Slice::copy_of(&[2; 8192])];
            d.write_slab(4, 4096, two, false).await.unwrap();
            d.flush().await.unwrap();
            d.write_slab(0, 0, vec![Slice::copy_of(&[3; 512])], true).await.unwrap();
            d.write_root(SliceId(0), 1, Buf::copy_of(&[4; ROOT_BYTES])).await.unwrap();
        })
        .unwrap();
    let counters = drive.counters();
    let written = (counters.writes - before.writes, counters.write_bytes - before.write_bytes);
    assert_eq!((written, counters.flushes), ((3, 12288 + 512 + 4096), 1));
    world.crash();
    let drive = open(&world, &disks[0]).unwrap();
    let d = drive.clone();
    let (slab, first, roots) = world
        .run(async move {
            let reads = (d.read_slab(4, 4096, 12288).await, d.read_slab(0, 0, 512).await);
            (reads.0.unwrap(), reads.1.unwrap(), d.read_roots(SliceId(0)).await.map(Result::unwrap))
        })
        .unwrap();
    assert!(slab[..4096].iter().all(|&b| b == 1) && slab[4096..].iter().all(|&b| b == 2) && first[0] == 3);
    assert!(*roots[0] == [0; ROOT_BYTES] && *roots[1] == [4; ROOT_BYTES]);
    assert_eq!((drive.counters().reads, drive.counters().errors), (4, 0));
}

#[test]
fn places_outside_or_unaligned_are_refused() {
    let (world, disks) = pool(3, 1);
    let drive = open(&world, &disks[0]).unwrap();
    for (slab, offset, len) in
        [(5, 0, 512), (0, 100, 512), (0, 0, 100), (4, 1 << 20, 512), (0, u64::MAX, 512), (0, 0, 0)]
    {
        let d = drive.clone();
        let read = world.run(async move { d.read_slab(slab, offset, len).await }).unwrap();
        assert!(matches!(read, Err(DriveError::OutOfRange { .. })), "{slab} {offset} {len}");
    }
    assert!(!drive.is_failed());
}

#[test]
fn formatting_wipes_and_zeroes_what_it_must() {
    let world = SimWorld::new(4, SimOptions::default());
    let disk = world.disk("d", LEN_BYTES + 512);
    disk.poke(0, &vec![0xAA; disk.len_bytes() as usize]);
    world.run(format(dynamic(&disk), label(0))).unwrap().unwrap();
    world.crash();
    assert!(disk.peek(131_072, (SLABS_START_BYTES - 131_072) as usize).iter().all(|&b| b == 0));
    assert!(disk.peek(SLABS_START_BYTES, 2 << 20).iter().all(|&b| b == 0), "the journal");
    assert_eq!(disk.peek(SLABS_START_BYTES + (2 << 20), 1), [0xAA], "data slabs stay");
    assert!(disk.peek(LEN_BYTES - 4096, 4608).iter().all(|&b| b == 0), "the end");
    open(&world, &disk).unwrap();

    let small = world.disk("small", 1 << 20);
    let refused = world.run(format(dynamic(&small), label(0))).unwrap();
    assert_eq!(refusal(refused), "drive small has 1048576 bytes and needs at least 3145728");
    let refused = world.run(format(dynamic(&disk), label(2016))).unwrap();
    assert_eq!(refusal(refused), "drive d cannot be initialised: no pool has a drive with number 2016");
}

#[test]
fn a_drive_that_is_not_ours_is_told_apart() {
    let world = SimWorld::new(5, SimOptions::default());
    let seen = |at: u64, bytes: &'static [u8]| {
        let disk = world.disk("d", LEN_BYTES);
        disk.poke(at, bytes);
        let probed = world.run({
            let disk = dynamic(&disk);
            async move { probe(&disk).await }
        });
        (probed.unwrap().unwrap(), refusal(open(&world, &disk)))
    };
    let foreign = |what: &str| {
        let refused = format!("drive d holds {what}, not part of a Quoin pool; it was not changed");
        (Probe::Foreign(what.into()), refused)
    };
    assert_eq!(seen(0, b""), (Probe::Blank, "drive d is blank; initialise it first".into()));
    assert_eq!(seen(1080, &[0x53, 0xEF]), foreign("an ext2, ext3 or ext4 file system"));
    assert_eq!(seen(65600, b"_BHRfS_M"), foreign("a Btrfs file system"));
    assert_eq!(seen(512, b"EFI PART"), foreign("a GPT partition table"));
    assert_eq!(seen(300_000, b"x"), foreign("data that is not Quoin's"));
    assert_eq!(seen(LEN_BYTES - 1, b"x"), foreign("data that is not Quoin's"));
}

#[test]
fn another_format_version_and_a_smaller_size_are_refused() {
    let (world, disks) = pool(6, 1);
    let image = disks[0].image();
    for found in [LEN_BYTES - 4096, LEN_BYTES, LEN_BYTES + 4096] {
        let disk = world.disk("resized", found);
        disk.restore(image.clone());
        let outcome = open(&world, &disk);
        assert_eq!(outcome.is_ok(), found >= LEN_BYTES);
        if let Err(error) = outcome {
            assert!(error.to_string().contains(&format!("{found} bytes but had {LEN_BYTES}")), "{error}");
        }
    }
    let mut bytes = disks[0].peek(0, LABEL_BYTES);
    for version in [FORMAT_VERSION - 1, FORMAT_VERSION + 1] {
        bytes[8] = version as u8;
        let sum = quoin_base::crc64(&bytes[..4088]).0.to_le_bytes();
        bytes[4088..].copy_from_slice(&sum);
        LABEL_OFFSETS.iter().for_each(|&at| disks[0].poke(at, &bytes));
        let said = format!("drive d0 has on-disk format {version}; this Quoin reads");
        assert!(refusal(open(&world, &disks[0])).starts_with(&said));
    }
}

#[test]
fn no_two_slots_share_a_place_and_those_of_a_slice_lie_far_apart() {
    let slices = || (0..MAX_SLICES).map(SliceId);
    let mut slots: Vec<_> = slices().flat_map(|slice| [0, 1].map(|slot| root_offset(slice, slot))).collect();
    slots.sort_unstable();
    assert!(slots[0] > LABEL_OFFSETS[1] && slots[31] + ROOT_BYTES as u64 <= HEAD_BYTES);
    assert!(slots.array_windows().all(|[a, b]| a + ROOT_BYTES as u64 <= *b));
    assert!(slices().all(|slice| root_offset(slice, 0) >> 16 != root_offset(slice, 1) >> 16));
}

#[test]
fn slabs_begin_behind_both_copies_of_the_grant_pages() {
    for (len_bytes, slab_bytes, start) in
        [(16 << 20, 256 << 10, 2 << 20), (1 << 40, 16 << 20, 3 << 20), (16 << 40, 1 << 20, 262 << 20)]
    {
        assert_eq!(slabs_start(len_bytes, slab_bytes), start, "{len_bytes} {slab_bytes}");
        let label =
            Label { len_bytes, slab_bytes, row_bytes: 64 << 10, slabs_start_bytes: start, ..label(0) };
        assert_eq!(label.problem(), None);
        let last = label.grant_pages() - 1;
        assert!(label.grant_page_offset(last, 1) + GRANT_PAGE_BYTES as u64 <= start);
        // There is room for several times as many slabs, and no more.
        let grown = Label { len_bytes: 8 * len_bytes, ..label.clone() };
        assert_eq!((grown.problem(), grown.slabs() <= grown.most_slabs()), (None, true));
        let last = label.most_grant_pages() - 1;
        assert!(grown.grant_page_offset(last, 0) < label.grant_page_offset(0, 1));
        assert!(label.grant_page_offset(last, 1) + GRANT_PAGE_BYTES as u64 <= start);
        let too_long = start + (u64::from(label.most_slabs()) + 1) * u64::from(slab_bytes);
        let too_long = Label { len_bytes: too_long, ..label.clone() };
        assert!(too_long.problem().unwrap().contains("leave no room for its grant pages"));
        let early = Label { slabs_start_bytes: HEAD_BYTES, ..label };
        assert!(early.problem().unwrap().contains("leave no room for its grant pages"));
    }
}

#[test]
fn copies_of_a_grant_page_are_written_one_by_one() {
    let (world, disks) = pool(18, 1);
    let drive = open_to_write(&world, &disks[0]);
    let read = world
        .run(async move {
            drive.write_grant_page(0, 1, Buf::copy_of(&[5; GRANT_PAGE_BYTES])).await.unwrap();
            drive.read_grant_page(0).await.map(Result::unwrap)
        })
        .unwrap();
    assert!(read[0].iter().all(|&b| b == 0) && read[1].iter().all(|&b| b == 5));
}

#[test]
fn one_damaged_copy_of_the_label_is_mended_and_two_are_refused() {
    let (world, disks) = pool(7, 1);
    for copy in LABEL_OFFSETS {
        let before = disks[0].peek(copy, LABEL_BYTES);
        disks[0].flip_bit(ByteRange::new(copy, LABEL_BYTES as u64));
        open(&world, &disks[0]).unwrap();
        assert_eq!(disks[0].peek(copy, LABEL_BYTES), before);
    }
    LABEL_OFFSETS.iter().for_each(|&at| disks[0].poke(at + 200, b"x"));
    assert!(refusal(open(&world, &disks[0])).contains("no copy of its label is intact"));
}

#[test]
fn one_unreadable_copy_of_the_label_is_written_anew_and_two_are_named() {
    let (world, disks) = pool(17, 1);
    let unreadable = |only| FaultPlan { read_error: 1.0, only: Some(only), ..FaultPlan::default() };
    for copy in LABEL_OFFSETS {
        disks[0].set_faults(unreadable(ByteRange::new(copy, 512)));
        let before = disks[0].peek(copy, LABEL_BYTES);
        let looked = world.run(Drive::inspect(dynamic(&disks[0]))).unwrap().unwrap();
        let damage = world.run(async move { looked.label_damage().await }).unwrap();
        assert_eq!(damage.len(), 1, "{damage:?}");
        assert!(damage[0].0 == copy && damage[0].1.contains("cannot be read"), "{damage:?}");
        disks[0].poke(copy, &[0; LABEL_BYTES]);
        let drive = open(&world, &disks[0]).unwrap();
        assert_eq!(disks[0].peek(copy, LABEL_BYTES), before, "it was not written anew");
        let mended = drive.mended();
        assert!(
            mended.len() == 1 && mended[0].starts_with(&format!("the label at byte {copy}")),
            "{mended:?}"
        );
    }
    disks[0].set_faults(FaultPlan::default());
    assert_eq!(open(&world, &disks[0]).unwrap().mended(), [""; 0]);
    // Both: nobody may think that the drive is blank.
    disks[0].set_faults(unreadable(ByteRange::new(0, 128 << 10)));
    let refused = refusal(open(&world, &disks[0]));
    assert!(refused.contains("d0: read of 4096 bytes at"), "{refused}");
    let probed = world.run({
        let disk = dynamic(&disks[0]);
        async move { probe(&disk).await }
    });
    assert!(probed.unwrap().is_err());
}

/// A copy that could not be read at first may be the newer one. Read the second time, it is not written over with the older.
#[test]
fn a_newer_copy_of_the_label_that_is_read_late_is_taken() {
    let mut taken = 0;
    for seed in 0..60 {
        let (world, disks) = pool(seed, 1);
        let older = disks[0].peek(LABEL_OFFSETS[0], LABEL_BYTES);
        let drive = open(&world, &disks[0]).unwrap();
        world.run(async move { drive.raise_epoch(Epoch(2)).await.unwrap() }).unwrap();
        // A raise that was interrupted leaves the older one in one place.
        disks[0].poke(LABEL_OFFSETS[0], &older);
        let only = Some(ByteRange::new(LABEL_OFFSETS[1], 512));
        disks[0].set_faults(FaultPlan { read_error: 0.5, only, ..FaultPlan::default() });
        let drive = open(&world, &disks[0]).unwrap();
        match drive.epoch() {
            Epoch(2) => taken += 1,
            Epoch(1) => assert_eq!(drive.mended().len(), 1, "seed {seed}: it was read in the end"),
            other => panic!("{other}"),
        }
    }
    assert!((30..60).contains(&taken), "{taken}");
}

/// A drive whose label held it could not be opened any more.
#[test]
fn a_fence_that_no_label_can_hold_changes_nothing() {
    let (world, disks) = pool(19, 1);
    let drive = open_to_write(&world, &disks[0]);
    let (before, d) = (drive.label(), drive.clone());
    let too_high = 1 << 62;
    let refused = world.run(async move {
        let other = quoin_base::HolderId(uuid(9));
        [d.raise_epoch(Epoch(too_high)).await, d.fence(other, too_high).await]
    });
    for refused in refused.unwrap() {
        let refused = refusal(refused);
        assert!(refused.contains("cannot be fenced so, and was not changed"), "{refused}");
    }
    assert!(drive.label() == before && !drive.is_failed());
    assert_eq!(open(&world, &disks[0]).unwrap().label(), before);
}

/// Its copies may differ then, and which one counts is known again only when the drive is opened.
#[test]
fn a_label_for_which_there_is_no_room_fails_the_drive() {
    let (world, disks) = pool(20, 1);
    let drive = open_to_write(&world, &disks[0]);
    let only = Some(ByteRange::new(LABEL_OFFSETS[0], LABEL_BYTES as u64));
    disks[0].change_faults(|plan| plan.no_room = only);
    let d = drive.clone();
    let refused = world.run(async move { d.raise_epoch(Epoch(2)).await }).unwrap();
    assert!(matches!(refused, Err(DriveError::NoRoom { .. })), "{refused:?}");
    assert!(drive.is_failed());
    disks[0].set_faults(FaultPlan::default());
    assert!(!open(&world, &disks[0]).unwrap().is_failed());
}

#[test]
fn an_epoch_raise_cut_at_any_point_leaves_the_old_or_the_new_one() {
    let (mut old, mut new) = (0, 0);
    for seed in 0..120 {
        let (world, disks) = pool(seed, 1);
        let drive = open(&world, &disks[0]).unwrap();
        world.cut_power(PowerCut::AfterSteps(seed % 12));
        let raised = world.run(async move { drive.raise_epoch(Epoch(9)).await });
        world.crash();
        let label = open(&world, &disks[0]).unwrap().label();
        match label.epoch() {
            Epoch(1) if raised.is_err() => old += 1,
            Epoch(9) => new += 1,
            other => panic!("seed {seed}: {other} after {raised:?}"),
        }
    }
    assert!(old > 10 && new > 10, "{old} {new}");
}

#[test]
fn an_epoch_only_grows_and_waits_for_older_writes() {
    let (world, disks) = pool(8, 1);
    let drive = open_to_write(&world, &disks[0]);
    let d = drive.clone();
    world
        .run(async move {
            let writes: Vec<_> =
                (0..8).map(|i| d.write_slab(3, i * 4096, vec![Slice::copy_of(&[1; 4096])], false)).collect();
            let raise = d.raise_epoch(Epoch(2));
            let (outcomes, raised) = futures_util::future::join(join_all(writes), raise).await;
            assert!(outcomes.iter().all(|o| o.is_ok()) && raised.is_ok());
        })
        .unwrap();
    assert_eq!((drive.epoch(), drive.label().generation), (Epoch(2), LabelGeneration(3)));
    for asked in [Epoch(2), Epoch(1)] {
        let d = drive.clone();
        let refused = world.run(async move { d.raise_epoch(asked).await }).unwrap();
        assert!(matches!(refused, Err(DriveError::Fenced { current: Epoch(2), .. })));
    }
}

/// What a flush that failed has lost, no flush that was called after it is to vouch for.
#[test]
fn no_flush_succeeds_beside_one_that_fails_before_it() {
    let mut failed = 0;
    for seed in 0..50 {
        let (world, disks) = pool(seed, 1);
        let drive = open_to_write(&world, &disks[0]);
        disks[0].change_faults(|plan| plan.flush_error = 0.3);
        let outcomes = world
            .run(async move { futures_util::future::join_all((0..3).map(|_| drive.flush())).await })
            .unwrap();
        let outcomes: Vec<bool> = outcomes.into_iter().map(|outcome| outcome.is_ok()).collect();
        assert!(outcomes.is_sorted_by(|first, next| *first || !next), "{outcomes:?}");
        failed += usize::from(outcomes.contains(&false));
    }
    assert!(failed > 0);
}

#[test]
fn a_failed_write_or_flush_poisons_and_a_failed_read_does_not() {
    type Change = fn(&mut FaultPlan);
    let faults: [(Change, bool); 3] =
        [(|p| p.read_error = 1.0, false), (|p| p.write_error = 1.0, true), (|p| p.flush_error = 1.0, true)];
    for (change, poisons) in faults {
        let (world, disks) = pool(9, 1);
        let drive = open_to_write(&world, &disks[0]);
        disks[0].change_faults(change);
        let d = drive.clone();
        let write = || vec![Slice::copy_of(&[1; 4096])];
        world
            .run(async move {
                let read = d.read_slab(3, 0, 4096).await.is_ok();
                let write = d.write_slab(3, 0, write(), false).await.is_ok();
                let flush = d.flush().await.is_ok();
                assert!(!(read && write && flush));
            })
            .unwrap();
        disks[0].set_faults(FaultPlan::default());
        assert_eq!(drive.is_failed(), poisons);
        assert!(drive.counters().errors > 0);
        let d = drive.clone();
        let again = world.run(async move { d.write_slab(3, 0, write(), true).await }).unwrap();
        assert_eq!(again.is_err(), poisons);
        if let Err(error) = again {
            assert!(
                matches!(&error, DriveError::Failed { cause, .. } if cause.contains("simulated")),
                "{error}"
            );
        }
        assert!(!open(&world, &disks[0]).unwrap().is_failed());
    }
}

#[test]
fn an_abandoned_write_fails_the_drive_and_an_epoch_raise_does_not_wait_for_it() {
    let (world, disks) = pool(10, 1);
    let drive = open_to_write(&world, &disks[0]);
    let d = drive.clone();
    world
        .run(async move {
            drop(d.write_slab(3, 0, vec![Slice::copy_of(&[1; 4096])], true));
            assert!(d.raise_epoch(Epoch(2)).await.is_err());
        })
        .unwrap();
    assert!(drive.is_failed());
}

#[test]
fn a_set_opens_in_order_and_its_defects_are_named() {
    let (world, disks) = pool(11, 3);
    let set = |pick: &[usize]| {
        let picked = pick.iter().map(|&i| dynamic(&disks[i])).collect();
        world.run(open_set(picked)).unwrap()
    };
    let indices: Vec<_> = set(&[2, 0, 1]).unwrap().iter().map(|d| d.index().0).collect();
    assert_eq!(indices, [0, 1, 2]);
    assert!(refusal(set(&[2, 0])).starts_with(&format!(
        "the pool has 3 drives; number 1 ({}) missing, present are 0 (d0), 2 (d2)",
        uuid(101)
    )));
    assert!(refusal(set(&[2, 0, 1, 1])).starts_with("drives d1 and d1 are both number 1"));
    assert!(matches!(set(&[]), Err(DriveError::NoDrives)));
    let stranger = world.disk("other", LEN_BYTES);
    let other = Label { pool: PoolId(uuid(8)), ..label(1) };
    world.run(format(dynamic(&stranger), other)).unwrap().unwrap();
    let mixed = world.run(open_set(vec![dynamic(&disks[0]), dynamic(&stranger)])).unwrap();
    assert!(refusal(mixed).starts_with("drive other belongs to pool"));
}

#[test]
fn a_stale_drive_is_refused_and_interrupted_raises_are_not() {
    let (world, disks) = pool(12, 3);
    let stale = disks[1].image();
    let open_all = || {
        let all: Vec<_> = disks.iter().map(dynamic).collect();
        world.run(open_set(all)).unwrap()
    };
    let mut interrupted = 0;
    for round in 0..60 {
        let drives = open_all().unwrap();
        world.cut_power(PowerCut::AfterSteps(round % 15));
        let before = drives.iter().map(|d| d.epoch()).max().unwrap();
        match world.run(async move { raise_set(&drives).await }) {
            Ok(raised) => assert_eq!(raised.unwrap(), Epoch(before.0 + 1)),
            Err(_) => interrupted += 1,
        }
        world.crash();
    }
    assert!(interrupted > 20, "{interrupted}");
    disks[1].restore(stale);
    assert!(
        refusal(open_all()).starts_with("drive d1 is stale: it was away at epoch 1 while the pool went on")
    );
}

#[test]
fn no_bytes_make_the_label_parser_panic() {
    let (world, disks) = pool(13, 1);
    let good = disks[0].peek(0, LABEL_BYTES);
    for at in 0..176 {
        for byte in [0, 1, 0x7F, 0x80, 0xFF] {
            let mut bytes = good.clone();
            bytes[at] = byte;
            crate::label::Label::decode(&bytes);
            let sum = quoin_base::crc64(&bytes[..4088]).0.to_le_bytes();
            bytes[4088..].copy_from_slice(&sum);
            crate::label::Label::decode(&bytes);
            crate::label::Label::decode(&bytes[..at]);
        }
    }
    world.end();
}

#[test]
fn a_drive_grows_to_what_its_disk_has_by_now_and_keeps_that() {
    let (world, disks) = pool(30, 1);
    let drive = open_to_write(&world, &disks[0]);
    let slab = u64::from(SLAB_BYTES);
    let d = drive.clone();
    world
        .run(async move {
            let longer = d.lengthen(LEN_BYTES + slab).await.unwrap_err();
            assert!(longer.to_string().contains("has 7340032 bytes but had 8388608"), "{longer}");
        })
        .unwrap();
    disks[0].lengthen(LEN_BYTES + 4 * slab);
    // What is behind its length is nobody's, and no reason not to open it.
    let beyond = world
        .run({
            let d = drive.clone();
            async move { d.read_slab(5, 0, 512).await }
        })
        .unwrap();
    assert!(matches!(beyond, Err(DriveError::OutOfRange { slabs: 5, .. })));
    drop(drive);
    world.crash();
    let drive = open_to_write(&world, &disks[0]);
    assert_eq!(
        (drive.slabs(), drive.label().len_bytes, drive.measure()),
        (5, LEN_BYTES, LEN_BYTES + 4 * slab)
    );
    let (d, generation) = (drive.clone(), drive.label().generation);
    world
        .run(async move {
            d.blank_end().await.unwrap();
            d.lengthen(LEN_BYTES + 2 * slab).await.unwrap();
            assert_eq!((d.slabs(), d.label().generation), (7, generation.next()));
            d.write_slab(6, 0, vec![Slice::copy_of(&[7; 4096])], true).await.unwrap();
            assert!(matches!(d.read_slab(7, 0, 512).await, Err(DriveError::OutOfRange { .. })));
            assert!(matches!(d.lengthen(LEN_BYTES).await, Err(DriveError::Shrunk { .. })));
        })
        .unwrap();
    world.crash();
    let drive = open(&world, &disks[0]).unwrap();
    assert_eq!((drive.slabs(), drive.mended()), (7, vec![]));
    let read = world.run(async move { drive.read_slab(6, 0, 4096).await.unwrap() }).unwrap();
    assert!(read.iter().all(|byte| *byte == 7));
}

#[test]
fn a_power_cut_leaves_a_drive_of_the_old_length_or_the_new_one() {
    let mut lens = std::collections::BTreeSet::new();
    for step in 0..40 {
        let (world, disks) = pool(32 + step, 1);
        let drive = open_to_write(&world, &disks[0]);
        disks[0].lengthen(2 * LEN_BYTES);
        world.cut_power(PowerCut::AfterSteps(step));
        let _ = world.run(async move { drive.lengthen(2 * LEN_BYTES).await });
        world.crash();
        let drive = open(&world, &disks[0]).unwrap();
        lens.insert(drive.label().len_bytes);
    }
    assert_eq!(lens.into_iter().collect::<Vec<_>>(), [LEN_BYTES, 2 * LEN_BYTES]);
}
