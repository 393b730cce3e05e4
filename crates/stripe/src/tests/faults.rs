//! Drives that fail or do not answer while rows are written and read.

use super::*;
use futures_util::future::join;
use quoin_world::World;
use std::time::Duration;

const LONG: Duration = Duration::from_millis(50);

/// All columns are under way before any is waited for: one that does not answer keeps no other from
/// its part.
#[test]
fn columns_are_written_and_read_at_the_same_time() {
    for (data, parity) in [(1, 2), (3, 0), (3, 2)] {
        let count = geometry(data, parity).columns();
        for stuck in 0..count {
            let rig = Rig::new(12, geometry(data, parity));
            let row = content(rig.set.geometry.row_bytes as usize, 1);
            let (disk, world, data) = (rig.disks[stuck].clone(), rig.world.clone(), cut(&row, 4096));
            disk.hang();
            let peek = {
                let (disks, offsets) = (rig.disks.clone(), (0..count).map(|c| rig.on_disk(c, 0)));
                let offsets: Vec<_> = offsets.collect();
                move || -> Vec<bool> {
                    let first = |(disk, at): (&Arc<SimDisk>, &u64)| disk.peek(*at, 4096) != [0; 4096];
                    disks.iter().zip(&offsets).map(first).collect()
                }
            };
            let landed = rig.run(|columns, set| async move {
                let write = columns.write_row(&set, 0, data, true);
                let look = async {
                    world.sleep(LONG).await;
                    let landed = peek();
                    disk.resume(Duration::ZERO);
                    landed
                };
                let (written, landed) = join(write, look).await;
                assert!(written.unwrap().failed.is_empty());
                landed
            });
            assert!((0..count).all(|column| landed[column] == (column != stuck)), "{landed:?}");

            if usize::from(rig.set.geometry.data) <= stuck || rig.set.geometry.data == 1 {
                continue;
            }
            let (disk, world, before) = (rig.disks[stuck].clone(), rig.world.clone(), rig.reads());
            let range = ByteRange::new(0, row.len() as u64);
            disk.hang();
            let drives: Vec<_> = (0..count).map(|column| rig.drive(column)).collect();
            let (read, answered) = rig.run(|columns, set| async move {
                let look = async {
                    world.sleep(LONG).await;
                    let reads: Vec<_> = drives.iter().map(|drive| drive.counters().reads).collect();
                    disk.resume(Duration::ZERO);
                    reads
                };
                join(columns.read(&set, range), look).await
            });
            assert!(read.unwrap()[..] == row[..]);
            let answered: Vec<_> = answered.iter().zip(before).map(|(now, before)| now - before.0).collect();
            let expected =
                |column: usize| u64::from(column != stuck && column < rig.set.geometry.data.into());
            assert!((0..count).all(|column| answered[column] == expected(column)), "{answered:?}");
        }
    }
}

/// A write that nobody waits for fails its drive.
#[test]
fn an_error_of_one_column_does_not_abandon_the_writes_of_the_others() {
    let rig = Rig::new(13, geometry(3, 0));
    let row = content(rig.set.geometry.row_bytes as usize, 1);
    for slow in &rig.disks[1..] {
        slow.change_faults(|plan| plan.latency = LONG..=LONG);
    }
    rig.disks[0].fail();
    assert!(rig.write(0, cut(&row, 4096)).is_err());
    assert!(rig.drive(0).is_failed() && !rig.drive(1).is_failed() && !rig.drive(2).is_failed());
}

#[test]
fn a_drive_that_fails_during_a_read_is_made_up_for() {
    for (data, parity) in [(1, 1), (1, 3), (2, 1), (4, 2)] {
        let rig = Rig::new(14, geometry(data, parity));
        let bytes = rig.fill(2);
        let failing = rig.disks[..parity.into()].to_vec();
        failing.iter().for_each(|disk| disk.change_faults(|plan| plan.latency = LONG..=LONG));
        let world = rig.world.clone();
        let len = bytes.len() as u64;
        let (short, long) = rig.run(|columns, set| async move {
            let reads = join(
                columns.read(&set, ByteRange::new(4096, 4096)),
                columns.read(&set, ByteRange::new(0, len)),
            );
            let fail = async {
                world.sleep(LONG / 2).await;
                failing.iter().for_each(|disk| disk.fail());
            };
            join(reads, fail).await.0
        });
        assert!(short.unwrap()[..] == bytes[4096..8192], "{data}+{parity}");
        assert!(long.unwrap()[..] == bytes[..], "{data}+{parity}");
    }
}

/// Sectors here and there that cannot be read, of at most as many columns as there are of parity.
#[test]
fn unreadable_sectors_are_made_up_for() {
    for seed in 0..20 {
        let rig = Rig::new(seed, geometry(4, 2));
        let bytes = rig.fill(2);
        for column in [seed as usize % 6, (seed as usize + 2) % 6] {
            let at = rig.on_disk(column, seed % 4 * 8192 + 512);
            rig.disks[column].spoil(ByteRange::new(at, 512));
        }
        assert!(rig.read(ByteRange::new(0, bytes.len() as u64)).unwrap()[..] == bytes[..]);
        for (at, expected) in bytes.chunks(4096).enumerate() {
            assert!(rig.read(ByteRange::new(at as u64 * 4096, 4096)).unwrap()[..] == *expected);
        }
    }
}

/// Rows of which one column after the other fails: what was acknowledged is read with what is known
/// then.
#[test]
fn rows_written_while_drives_fail_are_read_back() {
    for seed in 0..40 {
        let mut rig = Rig::new(seed, geometry(3, 2));
        let row_bytes = u64::from(rig.set.geometry.row_bytes);
        let faulty = [seed as usize % 5, (seed as usize + 3) % 5];
        for column in faulty {
            rig.disks[column].change_faults(|plan| plan.write_error = 0.3);
        }
        for row in 0..6 {
            let bytes = content(row_bytes as usize, row);
            let written = rig.write(row * row_bytes, cut(&bytes, 8192)).unwrap();
            let failed: Vec<_> = written.failed.iter().map(|(column, _)| *column).collect();
            assert!(failed.iter().all(|column| faulty.contains(column)));
            failed.into_iter().for_each(|column| rig.miss(column));
            for back in 0..=row {
                let range = ByteRange::new(back * row_bytes, row_bytes);
                assert!(rig.read(range).unwrap()[..] == content(row_bytes as usize, back)[..], "seed {seed}");
            }
        }
    }
}
