//! Reads return what was written for as long as not too many columns are lost, and nothing else
//! ever.

use super::*;
use proptest::prelude::*;

/// How a column is lost.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// It is missing, and holds something else.
    Missing,
    /// Its drive fails all that it is asked.
    Fails,
    /// Its drive is not there.
    Gone,
    /// The caller knows that it is wrong.
    LeftOut,
}

const LOSSES: [Loss; 4] = [Loss::Missing, Loss::Fails, Loss::Gone, Loss::LeftOut];

fn layouts() -> impl Strategy<Value = (u8, u8)> {
    prop_oneof![(Just(1u8), 0u8..=3), (2u8..=23, 0u8..=2), (2u8..=5, 0u8..=2)]
}

/// The columns that go, picked without repetition.
fn lose(rig: &mut Rig, losses: &[(usize, usize)]) -> (ColumnSet, ColumnSet) {
    let (mut lost, mut left_out) = (ColumnSet::default(), ColumnSet::default());
    for (pick, kind) in losses {
        let rest: Vec<_> = rig.set.geometry.all().without(lost).iter().collect();
        let Some(column) = rest.get(pick % rest.len().max(1)).copied() else { continue };
        lost = lost.with(ColumnSet::one(column));
        match LOSSES[kind % LOSSES.len()] {
            Loss::Missing => {
                rig.corrupt(column, ByteRange::new(0, 8 * u64::from(STRIP)));
                rig.miss(column);
            }
            Loss::Fails => rig.disks[column].fail(),
            Loss::Gone => rig.remove(column),
            Loss::LeftOut => {
                rig.corrupt(column, ByteRange::new(0, 8 * u64::from(STRIP)));
                left_out = left_out.with(ColumnSet::one(column));
            }
        }
    }
    (lost, left_out)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_was_written_is_read_or_an_error(
        (data, parity) in layouts(),
        losses in proptest::collection::vec((0usize..1000, 0usize..4), 0..=4),
        ranges in proptest::collection::vec((0u64..1000, 1u64..1000), 1..=4),
        seed in 0u64..1000,
    ) {
        let mut rig = Rig::new(seed, geometry(data, parity));
        let bytes = rig.fill(2);
        let (lost, left_out) = lose(&mut rig, &losses);
        let units = bytes.len() as u64 / 4096;
        for (offset, len) in ranges {
            let offset = offset % units;
            let len = (len % (units - offset) + 1).min(units - offset);
            let range = ByteRange::new(offset * 4096, len * 4096);
            match rig.read_without(range, left_out) {
                Ok(read) => {
                    let expected = &bytes[range.offset as usize..range.end() as usize];
                    prop_assert!(read[..] == *expected, "{range:?} of {data}+{parity} without {lost:?}");
                }
                Err(error) => {
                    prop_assert!(lost.len() > usize::from(parity), "{}", error);
                    let concerns = columns_of(rig.set.geometry, range).both(lost);
                    prop_assert!(!concerns.is_empty(), "{range:?} lies on none that is lost: {error}");
                }
            }
        }
    }
}

#[test]
fn only_layouts_that_can_be_computed_are_possible() {
    let possible = [(1, 0), (1, 3), (2, 0), (2, 1), (23, 2), (62, 2)];
    let impossible = [(0, 0), (0, 1), (1, 4), (2, 3), (63, 2)];
    assert!(possible.into_iter().all(|(data, parity)| geometry(data, parity).is_possible()));
    assert!(!impossible.into_iter().any(|(data, parity)| geometry(data, parity).is_possible()));
    let three = geometry(3, 1);
    for (strip_bytes, row_bytes) in [(2048, 6144), (12288, 36864), (8192, 8192), (0, 0)] {
        assert!(!Geometry { strip_bytes, row_bytes, ..three }.is_possible(), "{strip_bytes} {row_bytes}");
    }
}

#[test]
fn a_range_lies_on_the_columns_that_the_layout_says() {
    let geometry = Geometry { data: 3, parity: 1, strip_bytes: 8192, row_bytes: 24576 };
    let on = |offset, len| columns_of(geometry, ByteRange::new(offset, len)).iter().collect::<Vec<_>>();
    assert_eq!(on(0, 8192), [0]);
    assert_eq!(on(4096, 8192), [0, 1]);
    assert_eq!(on(20480, 8192), [0, 2]);
    assert_eq!(on(8192, 24576), [0, 1, 2]);
    let parts = |offset, len| [0, 1, 2].map(|c| geometry.column_range(ByteRange::new(offset, len), c));
    let expected = [(8192, 8192), (4096, 12288), (0, 12288)].map(|(at, len)| ByteRange::new(at, len));
    assert_eq!(parts(12288, 32768), expected);
    assert_eq!(columns_of(Geometry::mirror(2, 4096), ByteRange::new(4096, 8192)), ColumnSet::one(0));
}

#[test]
fn a_range_within_a_strip_is_one_read_and_a_longer_one_is_one_of_each_column() {
    for (data, parity) in [(1, 0), (1, 2), (4, 1), (4, 2)] {
        let rig = Rig::new(6, geometry(data, parity));
        let bytes = rig.fill(2);
        for (offset, len) in [(4096, 4096), (8192, 8192), (4096, 3 * 8192), (4096, 10 * 8192)] {
            let range = ByteRange::new(offset, len.min(bytes.len() as u64 - offset));
            let before = rig.reads();
            assert!(rig.read(range).unwrap()[..] == bytes[offset as usize..range.end() as usize]);
            let done: Vec<_> = rig.reads().iter().zip(before).map(|(a, b)| (a.0 - b.0, a.1 - b.1)).collect();
            assert_eq!(
                done.iter().map(|(_, bytes)| bytes).sum::<u64>(),
                range.len,
                "{data}+{parity} {range:?}"
            );
            let expected = if data == 1 { 1 } else { columns_of(rig.set.geometry, range).len() as u64 };
            assert_eq!(
                done.iter().map(|(reads, _)| reads).sum::<u64>(),
                expected,
                "{data}+{parity} {range:?}"
            );
            assert!(done.iter().all(|(reads, _)| *reads <= 1));
        }
    }
}

/// Most pools have one column: what the other layouts take must not weigh on it.
#[test]
fn the_futures_of_a_single_column_are_hardly_larger_than_those_of_the_drive() {
    let rig = Rig::new(6, geometry(1, 0));
    rig.run(|columns, set| async move {
        let drive = columns.drive(DriveIndex(0)).unwrap();
        let (read, row) = (drive.read_slab(SLAB, 0, 4096), vec![Slice::copy_of(&[1; 4096])]);
        let write = drive.write_slab(SLAB, 0, row.clone(), false);
        let through = columns.read(&set, ByteRange::new(0, 4096));
        assert!(size_of_val(&through) <= size_of_val(&read) + 128, "{}", size_of_val(&through));
        let through = columns.write_row(&set, 0, row, false);
        assert!(size_of_val(&through) <= size_of_val(&write) + 256, "{}", size_of_val(&through));
        write.await.unwrap();
    });
}

#[test]
fn of_other_columns_no_more_is_read_than_the_lost_part_takes() {
    let mut rig = Rig::new(7, geometry(4, 2));
    let bytes = rig.fill(2);
    rig.miss(1);
    let before = rig.reads();
    let range = ByteRange::new(12288, 4096);
    assert!(rig.read(range).unwrap()[..] == bytes[12288..16384]);
    let done: Vec<_> = rig.reads().iter().zip(before).map(|(a, b)| (a.0 - b.0, a.1 - b.1)).collect();
    assert_eq!(done, [(1, 4096), (0, 0), (1, 4096), (1, 4096), (1, 4096), (0, 0)]);
    // From half of column 0 to half of column 1: what is wanted of the two lies in different
    // halves.
    let before = rig.reads();
    assert!(rig.read(ByteRange::new(4096, 8192)).unwrap()[..] == bytes[4096..12288]);
    let done: Vec<_> = rig.reads().iter().zip(before).map(|(a, b)| (a.0 - b.0, a.1 - b.1)).collect();
    assert_eq!(done, [(1, 8192), (0, 0), (1, 4096), (1, 4096), (1, 4096), (0, 0)]);
}

#[test]
fn both_halves_of_an_idle_mirror_are_read_and_a_busy_one_is_spared() {
    let rig = Rig::new(8, Geometry::mirror(1, 256 << 10));
    rig.fill(2);
    let before = rig.reads();
    for at in 0..16 {
        rig.read(ByteRange::new(at * (32 << 10), 4096)).unwrap();
    }
    let done: Vec<_> = rig.reads().iter().zip(before).map(|(a, b)| a.0 - b.0).collect();
    assert_eq!(done, [8, 8]);

    // The first half has one in flight that does not end.
    rig.disks[0].hang();
    let (disk, world) = (rig.disks[0].clone(), rig.world.clone());
    let before = rig.reads();
    rig.run(|columns, set| async move {
        let stuck = columns.read(&set, ByteRange::new(0, 4096));
        let others = async {
            for _ in 0..10 {
                columns.read(&set, ByteRange::new(0, 4096)).await.unwrap();
            }
            disk.resume(std::time::Duration::ZERO);
        };
        let (stuck, ()) = futures_util::future::join(stuck, others).await;
        stuck.unwrap();
        drop(world);
    });
    let done: Vec<_> = rig.reads().iter().zip(before).map(|(a, b)| a.0 - b.0).collect();
    assert_eq!(done, [1, 10]);
    assert!(rig.set.columns.iter().all(|column| rig.columns.reads_in_flight(*column) == 0));
}

#[test]
fn a_drive_that_refuses_writes_is_read_as_the_last_resort() {
    for (data, parity) in [(1, 1), (3, 1), (3, 2)] {
        let mut rig = Rig::new(9, geometry(data, parity));
        let bytes = rig.fill(2);
        rig.disks[0].change_faults(|plan| plan.flush_error = 1.0);
        let drive = rig.drive(0);
        rig.world.run(async move { drive.flush().await.unwrap_err() }).unwrap();
        assert!(rig.columns.is_lost(rig.set.columns[0]));
        let whole = ByteRange::new(0, bytes.len() as u64);
        for gone in 0..=parity {
            let before = rig.reads()[0].0;
            assert!(rig.read(ByteRange::new(0, 4096)).unwrap()[..] == bytes[..4096]);
            assert!(rig.read(whole).unwrap()[..] == bytes[..]);
            assert_eq!(rig.reads()[0].0 > before, gone == parity, "{data}+{parity}, {gone} gone");
            let next = usize::from(gone) + 1;
            (next < rig.set.columns.len()).then(|| rig.remove(next));
        }
        let refused = rig.read(whole).err().filter(|_| data > 1);
        let is_it = |e: &StripeError| matches!(e, StripeError::NotEnoughColumns { have: 2, need: 3 });
        assert!(refused.is_none_or(|error| is_it(&error)));
    }
}

#[test]
fn what_cannot_be_read_says_why() {
    let mut rig = Rig::new(10, geometry(2, 1));
    rig.fill(2);
    let range = ByteRange::new(0, 65536);
    rig.disks[0].fail();
    rig.miss(1);
    let error = rig.read(ByteRange::new(0, 32768)).unwrap_err();
    assert!(error.to_string().starts_with("d0: read of 16384 bytes"), "{error}");
    rig.remove(0);
    let error = rig.read(ByteRange::new(0, 32768)).unwrap_err();
    let said = "of the columns of a segment only 1 can be read or written and 2 are needed; bring back \
                the drives that are missing or failed";
    assert_eq!(error.to_string(), said);
    // Outside the slab: no other column is asked.
    let rig = Rig::new(11, geometry(2, 1));
    let before = rig.reads();
    let beyond = rig.read(ByteRange::new(4 << 20, range.len)).unwrap_err();
    assert!(matches!(beyond, StripeError::Drive(DriveError::OutOfRange { .. })), "{beyond}");
    assert_eq!(rig.reads(), before);
    let columns = rig.set.columns[..2].into();
    let short = StripeSet { columns, ..rig.set.clone() };
    let refused = rig.run(|columns, _| async move { columns.read(&short, ByteRange::new(0, 4096)).await });
    assert!(matches!(refused, Err(StripeError::Unsupported { data: 2, parity: 1 })));
}

/// A read that did without a column because its drive failed to read it says so; one that never asked the drive does not.
#[test]
fn a_read_tells_which_columns_could_not_be_read() {
    for (data, parity) in [(3, 1), (3, 2), (1, 1), (1, 2)] {
        let mut rig = Rig::new(11, geometry(data, parity));
        let bytes = rig.fill(1);
        let range = ByteRange::new(0, 8192);
        let tell = |rig: &Rig| {
            let read =
                rig.run(|columns, set| async move { columns.read_telling(&set, range).await }).unwrap();
            assert!(read.content[..] == bytes[..8192], "{data}+{parity}");
            read.unread
        };
        assert_eq!(tell(&rig), ColumnSet::default());
        rig.disks[0].spoil(ByteRange::new(rig.on_disk(0, 4096), 512));
        assert_eq!(tell(&rig), ColumnSet::one(0), "{data}+{parity}");
        // A range over all columns.
        let whole = ByteRange::new(0, bytes.len() as u64);
        let read = rig.run(|columns, set| async move { columns.read_telling(&set, whole).await }).unwrap();
        assert!(read.content[..] == bytes[..] && read.unread.both(ColumnSet::one(0)) == read.unread);
        rig.miss(0);
        assert_eq!(tell(&rig), ColumnSet::default());
    }
}
