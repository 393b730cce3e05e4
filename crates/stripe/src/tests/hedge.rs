//! Drives that answer late are read around.

use super::*;
use quoin_world::World;
use std::time::Duration;

const READ: u64 = 8192;

fn late(ms: u64, extra_reads: usize) -> Hedging {
    Hedging { late_after: Some(Duration::from_millis(ms)), extra_reads }
}

/// Each operation of a drive takes so long from now on.
fn delay(rig: &Rig, disk: usize, by: Duration) {
    rig.disks[disk].change_faults(|plan| (plan.latency, plan.slow) = (by..=by, 0.0));
}

/// Reads one strip of each column while the drive of the first one does not answer. Returns how long the reads took
/// together.
fn read_all(rig: &Rig, bytes: &[u8]) -> Duration {
    let world: Arc<dyn World> = rig.world.clone();
    let began = world.now();
    let stripe = rig.set.geometry.stripe_bytes();
    for offset in (0..stripe).step_by(READ as usize) {
        let read = rig.read(ByteRange::new(offset, READ)).unwrap();
        assert_eq!(read[..], bytes[offset as usize..][..READ as usize], "at {offset}");
    }
    world.now().since(began)
}

#[test]
fn a_read_that_is_late_is_answered_from_the_other_columns_within_what_is_allowed() {
    for (data, parity) in [(1, 1), (3, 1), (4, 2)] {
        let rig = Rig::new(40, geometry(data, parity));
        let bytes = rig.fill(1);
        rig.columns.keep_time_by(rig.world.clone());
        let quick = read_all(&rig, &bytes);
        let slow = Duration::from_secs(2);
        delay(&rig, 0, slow);
        assert!(read_all(&rig, &bytes) >= slow, "without a deadline reads wait");
        rig.columns.set_hedging(late(50, 100));
        let hedged = read_all(&rig, &bytes);
        assert!(hedged < quick + Duration::from_millis(200), "{data}+{parity}: {hedged:?} after {quick:?}");
        let counted = rig.columns.hedged_reads();
        assert!(counted.begun >= 1 && counted.won == counted.begun, "{counted:?}");
        // Nothing more may be read: reads wait.
        rig.columns.set_hedging(late(50, usize::from(data) - 1));
        assert!(read_all(&rig, &bytes) >= slow);
        assert_eq!(rig.columns.hedged_reads(), counted);
    }
}

#[test]
fn a_drive_that_is_marked_as_slow_is_read_only_where_there_is_no_other_way() {
    for (data, parity) in [(1, 1), (3, 1)] {
        let mut rig = Rig::new(41, geometry(data, parity));
        let bytes = rig.fill(1);
        rig.columns.mark_slow(DriveIndex(0), true);
        assert!(rig.columns.is_marked_slow(DriveIndex(0)));
        let before = rig.reads()[0];
        read_all(&rig, &bytes);
        assert_eq!(rig.reads()[0], before, "{data}+{parity}");
        // Another column is missing: there is no other way.
        rig.miss(1);
        read_all(&rig, &bytes);
        assert!(rig.reads()[0] > before);
        rig.columns.mark_slow(DriveIndex(0), false);
        assert!(!rig.columns.is_marked_slow(DriveIndex(0)));
    }
}

/// What the other columns hold of a row that did not reach one of them is not used, however late the rest is.
#[test]
fn a_column_that_lacks_a_row_does_not_answer_for_a_late_one() {
    let mut rig = Rig::new(42, geometry(1, 2));
    let bytes = rig.fill(1);
    rig.columns.keep_time_by(rig.world.clone());
    // The second copy holds something else, and is known to lack what was written.
    rig.corrupt(1, ByteRange::new(0, u64::from(rig.set.geometry.row_bytes)));
    rig.miss(1);
    for (disk, delay_ms) in [(0, 300), (2, 500)] {
        delay(&rig, disk, Duration::from_millis(delay_ms));
    }
    rig.columns.set_hedging(late(10, 1000));
    read_all(&rig, &bytes);
    assert!(rig.columns.hedged_reads().begun > 0);
}

/// What the others hold may be what is wrong: then only what the slow drive holds is right.
#[test]
fn what_a_checksum_asks_for_is_read_from_slow_drives_too() {
    for (data, parity) in [(1, 1), (3, 1), (4, 2)] {
        let rig = Rig::new(43, geometry(data, parity));
        let bytes = rig.fill(1);
        let range = ByteRange::new(0, READ);
        (1..usize::from(data + parity)).for_each(|disk| rig.corrupt(disk, range));
        rig.columns.keep_time_by(rig.world.clone());
        rig.columns.set_hedging(late(50, 100));
        delay(&rig, 0, Duration::from_secs(2));
        let others = match data {
            // Of a mirror the copy is named.
            1 => rig.set.geometry.all().without(ColumnSet::one(0)),
            _ => ColumnSet::default(),
        };
        let right = |rig: &Rig| rig.read_without(range, others).unwrap()[..] == bytes[..READ as usize];
        assert!(right(&rig), "{data}+{parity}: it is late");
        rig.columns.mark_slow(DriveIndex(0), true);
        assert!(right(&rig), "{data}+{parity}: it is marked as slow");
        assert_eq!(rig.columns.hedged_reads().begun, 0);
    }
}
