//! Rows reach all columns, and those that they do not reach are told.

use super::*;
use crate::parity::{power_of_two, product};
use quoin_base::{ByteRange, HolderId};

/// What the columns are to hold of whole stripes, byte by byte from the definition.
fn expected(geometry: Geometry, data: &[u8]) -> Vec<Vec<u8>> {
    let (strip, k) = (geometry.strip_bytes as usize, usize::from(geometry.data));
    if k == 1 {
        return vec![data.to_vec(); geometry.columns()];
    }
    let mut columns = vec![vec![0; data.len() / k]; geometry.columns()];
    for (o, byte) in data.iter().enumerate() {
        let (column, at) = (o / strip % k, o / strip / k * strip + o % strip);
        columns[column][at] = *byte;
        if geometry.parity > 0 {
            columns[k][at] ^= byte;
        }
        if geometry.parity > 1 {
            columns[k + 1][at] ^= product(*byte, power_of_two(column as i32));
        }
    }
    columns
}

#[test]
fn every_column_holds_its_part_and_parity_that_of_all() {
    for (data, parity) in [(1, 0), (1, 1), (1, 3), (2, 0), (2, 1), (3, 1), (2, 2), (4, 2), (23, 2)] {
        let rig = Rig::new(1, geometry(data, parity));
        let stripe = rig.set.geometry.row_unit_bytes();
        for (offset, stripes, piece) in [(0, 1, 4096), (stripe, 3, 12288), (4 * stripe, 2, 20480)] {
            let bytes = content((stripes * stripe) as usize, offset);
            let written = rig.write(offset, cut(&bytes, piece)).unwrap();
            assert!(written.failed.is_empty());
            for (column, expected) in expected(rig.set.geometry, &bytes).into_iter().enumerate() {
                let at = offset / u64::from(data);
                assert!(rig.peek(column, at, expected.len()) == expected, "{data}+{parity}: {column}");
            }
        }
    }
}

#[test]
fn as_many_columns_may_fail_as_there_are_of_parity() {
    for (data, parity) in [(1, 1), (1, 2), (2, 1), (3, 2)] {
        for failing in 0..=data + parity {
            let rig = Rig::new(2, geometry(data, parity));
            let stripe = rig.set.geometry.row_unit_bytes();
            rig.disks.iter().take(failing.into()).for_each(|disk| disk.fail());
            let row = || cut(&content(stripe as usize, 3), 4096);
            for _ in 0..2 {
                match rig.write(stripe, row()) {
                    Ok(written) => {
                        let failed: Vec<_> = written.failed.iter().map(|(column, _)| *column).collect();
                        assert!(failed.iter().copied().eq(0..failing.into()) && failing <= parity);
                    }
                    Err(error) => assert!(failing > parity && error.is_of_the_drive(), "{error}"),
                }
            }
            let lost = |column: &Column| rig.columns.is_lost(*column);
            assert_eq!(rig.set.columns.iter().filter(|column| lost(column)).count(), failing.into());
            assert_eq!(rig.columns.tolerates(&rig.set), parity.saturating_sub(failing).into());
        }
    }
}

#[test]
fn missing_columns_are_not_written_and_count() {
    let mut rig = Rig::new(3, geometry(3, 2));
    let stripe = rig.set.geometry.row_unit_bytes();
    let bytes = content(stripe as usize, 4);
    rig.set.missing = ColumnSet::one(1);
    assert!(rig.write(0, cut(&bytes, 4096)).unwrap().failed.is_empty());
    assert!(rig.peek(1, 0, 8192) == [0; 8192] && rig.peek(2, 0, 8192) == bytes[16384..]);
    // A drive that is not there is told of, and is one too many together with another.
    let mut columns = rig.set.columns.to_vec();
    columns[3].drive = DriveIndex(9);
    rig.set.columns = columns.into();
    let written = rig.write(0, cut(&bytes, 4096)).unwrap();
    assert!(matches!(written.failed[..], [(3, StripeError::NoSuchDrive(DriveIndex(9)))]));
    assert_eq!(rig.columns.tolerates(&rig.set), 0);
    rig.set.missing = rig.set.missing.with(ColumnSet::one(0));
    assert!(matches!(rig.write(0, cut(&bytes, 4096)), Err(StripeError::NoSuchDrive(_))));
    rig.set.missing = rig.set.missing.with(ColumnSet::one(4));
    let refused = rig.write(0, cut(&bytes, 4096));
    assert!(matches!(refused, Err(StripeError::NotEnoughColumns { have: 2, need: 3 })), "{refused:?}");
}

#[test]
fn a_full_file_system_is_told_and_fails_no_drive() {
    let rig = Rig::new(4, geometry(3, 1));
    let bytes = content(rig.set.geometry.row_unit_bytes() as usize, 5);
    let full = Some(ByteRange::new(rig.on_disk(2, 0), 512));
    rig.disks[2].change_faults(|plan| plan.no_room = full);
    // Also beside a column that fails: the row is written again when there is room.
    for fails in [false, true] {
        if fails {
            rig.disks[0].fail();
        }
        let refused = rig.write(0, cut(&bytes, 4096));
        assert!(matches!(refused, Err(StripeError::Drive(DriveError::NoRoom { .. }))), "{refused:?}");
    }
    assert!(!rig.drive(2).is_failed() && !rig.drive(1).is_failed() && rig.drive(0).is_failed());
    rig.disks[2].set_faults(FaultPlan::default());
    assert!(matches!(rig.write(0, cut(&bytes, 4096)).unwrap().failed[..], [(0, _)]));
    assert!(rig.peek(2, 0, 8192) == bytes[16384..]);
}

#[test]
fn a_fence_is_not_taken_for_the_failure_of_a_drive() {
    let rig = Rig::new(5, geometry(2, 2));
    let bytes = content(rig.set.geometry.row_unit_bytes() as usize, 6);
    let other = rig.drive(1).attach(HolderId(Uuid::from_u128(9)));
    rig.world.run(async move { other.raise_epoch(Epoch(2)).await.unwrap() }).unwrap();
    let refused = rig.write(0, cut(&bytes, 4096));
    assert!(matches!(refused, Err(StripeError::Drive(DriveError::Expelled { .. }))), "{refused:?}");
    assert_eq!(rig.columns.tolerates(&rig.set), 2);
}
