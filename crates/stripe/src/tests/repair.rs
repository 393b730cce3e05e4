//! Wrong data is found, read from elsewhere and written again.

use super::*;

const LAYOUTS: [(u8, u8); 8] = [(1, 1), (1, 2), (1, 3), (2, 1), (5, 1), (2, 2), (4, 2), (23, 2)];

fn listed(rig: &Rig, offset: u64, len: u64) -> Vec<Vec<usize>> {
    let sets = alternatives(&rig.set, ByteRange::new(offset, len));
    sets.into_iter().map(|set| set.iter().collect()).collect()
}

#[test]
fn alternatives_come_in_order_and_only_those_that_are_possible() {
    let mut rig = Rig::new(1, geometry(3, 2));
    let expected: [&[usize]; 4] = [&[1], &[0, 1], &[1, 2], &[1, 3]];
    assert_eq!(listed(&rig, 8192, 8192), expected);
    let expected: [&[usize]; 7] = [&[0], &[1], &[0, 1], &[0, 2], &[0, 3], &[1, 2], &[1, 3]];
    assert_eq!(listed(&rig, 4096, 8192), expected);
    rig.miss(2);
    assert_eq!(listed(&rig, 8192, 8192), [[1]]);
    assert_eq!(listed(&rig, 16384, 4096), [[0], [1], [3]], "what a missing column follows from");
    rig.miss(4);
    assert_eq!(listed(&rig, 8192, 8192), [[0; 0]; 0]);
    assert_eq!(listed(&Rig::new(1, geometry(2, 1)), 0, 4096), [[0]]);
    assert_eq!(listed(&Rig::new(1, geometry(1, 0)), 0, 4096), [[0; 0]; 0]);
    assert_eq!(listed(&Rig::new(1, geometry(1, 1)), 0, 4096), [[0], [1]]);
    let mut rig = Rig::new(1, geometry(1, 2));
    let expected: [&[usize]; 6] = [&[0], &[1], &[2], &[0, 1], &[0, 2], &[1, 2]];
    assert_eq!(listed(&rig, 0, 4096), expected);
    rig.miss(0);
    assert_eq!(listed(&rig, 0, 4096), [[1], [2]]);
}

/// With one column wrong, then with as many as parity makes up for; and with one missing besides.
#[test]
fn one_of_the_alternatives_brings_the_data_and_what_was_wrong_is_written_again() {
    for (data, parity) in LAYOUTS {
        let count = geometry(data, parity).columns();
        // Of many columns the first ones, and parity.
        let most = if count > 8 { 2 } else { count };
        let some = || (0..most).chain(count.saturating_sub(2).max(most)..count);
        for first in some() {
            for second in some().filter(|second| first <= *second) {
                let mut rig = Rig::new(2, geometry(data, parity));
                let bytes = rig.fill(1);
                let wrong = ColumnSet::one(first).with(ColumnSet::one(second));
                if wrong.len() > usize::from(parity) {
                    continue;
                }
                if first > 0 && wrong.len() < usize::from(parity) {
                    rig.miss((first + 1) % count);
                }
                let wrong = wrong.without(rig.set.missing);
                wrong.iter().for_each(|column| rig.corrupt(column, ByteRange::new(0, 16384)));
                // Each strip of the first stripe, and the end of one with the beginning of the
                // next.
                for offset in (0..u64::from(data).min(5) * 8192 - 4096).step_by(4096) {
                    let range = ByteRange::new(offset, 8192);
                    let expected = &bytes[offset as usize..][..8192];
                    if rig.read(range).unwrap()[..] == *expected {
                        continue;
                    }
                    let tried = alternatives(&rig.set, range).into_iter().find(|without| {
                        matches!(rig.read_without(range, *without), Ok(read) if read[..] == *expected)
                    });
                    let without = tried.unwrap_or_else(|| panic!("{data}+{parity}: {wrong:?}, {range:?}"));
                    let content = Slice::copy_of(expected);
                    rig.run(|columns, set| async move {
                        columns.rewrite(&set, range, without, &content).await.unwrap();
                    });
                    assert!(rig.read_without(range, rig.set.missing).unwrap()[..] == *expected);
                }
            }
        }
    }
}

#[test]
fn a_rewrite_changes_the_columns_it_is_for_and_no_others() {
    for (data, parity, columns, changed) in [(3, 2, 0b11010, &[1][..]), (1, 2, 0b101, &[0, 2])] {
        let rig = Rig::new(3, geometry(data, parity));
        let bytes = rig.fill(1);
        let count = rig.set.geometry.columns();
        (0..count).for_each(|column| rig.corrupt(column, ByteRange::new(0, 16384)));
        let before: Vec<_> = (0..count).map(|column| rig.peek(column, 0, 16384)).collect();
        let (range, content) = (ByteRange::new(4096, 8192), Slice::copy_of(&bytes[4096..12288]));
        rig.run(|all, set| async move {
            all.rewrite(&set, range, ColumnSet(columns), &content).await.unwrap();
        });
        rig.world.crash();
        for (column, before) in before.into_iter().enumerate() {
            let after = rig.peek(column, 0, 16384);
            let part = rig.set.geometry.column_range(range, column.min(usize::from(data) - 1));
            let part = part.offset as usize..part.end() as usize;
            let is_changed = changed.contains(&column);
            assert_eq!(after != before, is_changed, "{data}+{parity}: {column}");
            assert!(after[..part.start] == before[..part.start] && after[part.end..] == before[part.end..]);
        }
    }
    // A range may end where a strip does, and be all of several.
    for range in [ByteRange::new(8192, 8192), ByteRange::new(12288, 36864)] {
        let rig = Rig::new(8, geometry(3, 1));
        let bytes = rig.fill(1);
        (0..3).for_each(|column| rig.corrupt(column, ByteRange::new(0, 16384)));
        let content = Slice::copy_of(&bytes[range.offset as usize..range.end() as usize]);
        rig.run(|all, set| async move {
            all.rewrite(&set, range, ColumnSet(0b111), &content).await.unwrap();
        });
        assert!(rig.read(range).unwrap()[..] == bytes[range.offset as usize..range.end() as usize]);
    }
    // It says when it did not reach a drive.
    let rig = Rig::new(4, geometry(2, 1));
    let bytes = rig.fill(1);
    rig.disks[1].fail();
    let content = Slice::copy_of(&bytes[..16384]);
    let refused = rig.run(|all, set| async move {
        all.rewrite(&set, ByteRange::new(0, 16384), ColumnSet(0b11), &content).await
    });
    assert!(matches!(refused, Err(StripeError::Drive(DriveError::Disk(_)))));
}

#[test]
fn a_rebuilt_column_is_what_was_written_to_it() {
    for (data, parity) in LAYOUTS {
        let count = geometry(data, parity).columns();
        for column in 0..count {
            let mut rig = Rig::new(5, geometry(data, parity));
            rig.fill(2);
            // As many others are lost as may be, and what the column itself holds is not used.
            for other in 1..parity.into() {
                rig.disks[(column + other) % count].fail();
            }
            let (range, expected) = (ByteRange::new(4096, 20480), rig.peek(column, 4096, 20480));
            rig.corrupt(column, ByteRange::new(0, 32768));
            for is_missing in [false, true] {
                if is_missing {
                    rig.miss(column);
                }
                let rebuilt =
                    rig.run(|columns, set| async move { columns.rebuild(&set, column, range).await });
                assert!(rebuilt.unwrap()[..] == expected, "{data}+{parity}: {column}");
            }
            rig.disks[(column + count - 1) % count].fail();
            let refused = rig.run(|columns, set| async move { columns.rebuild(&set, column, range).await });
            assert!(refused.is_err(), "{data}+{parity}: {column}");
        }
    }
}

#[test]
fn a_column_that_does_not_agree_with_the_others_is_noticed() {
    for (data, parity) in LAYOUTS {
        let count = geometry(data, parity).columns();
        for column in 0..count {
            let mut rig = Rig::new(6, geometry(data, parity));
            rig.fill(2);
            let whole = ByteRange::new(0, 32768);
            assert!(rig.verify(whole).unwrap());
            rig.disks[column].flip_bit(ByteRange::new(rig.on_disk(column, 12288), 4096));
            assert!(!rig.verify(whole).unwrap(), "{data}+{parity}: {column}");
            assert!(!rig.verify(ByteRange::new(12288, 4096)).unwrap());
            assert!(rig.verify(ByteRange::new(0, 12288)).unwrap());
            // With others lost it is noticed for as long as anything can be compared.
            for lost in 1..count.min(4) {
                let other = (column + lost) % count;
                if lost % 2 == 0 {
                    rig.miss(other)
                } else {
                    rig.remove(other)
                }
                let notices = lost < parity.into();
                assert_eq!(rig.verify(whole).unwrap(), !notices, "{data}+{parity}: {column}, {lost} lost");
            }
        }
    }
    let rig = Rig::new(7, geometry(3, 1));
    rig.disks[1].change_faults(|plan| plan.read_error = 1.0);
    assert!(rig.verify(ByteRange::new(0, 4096)).is_err());
}
