//! An array whose data is protected over drives: drives that fail, hang and are taken out while hosts use it.

use crate::lab::{Lab, create};
use quoin_api::{Drive, DriveState, Protection, Severity, State};
use quoin_array::{Array, EventSelection};
use quoin_base::{ByteRange, Layout};
use quoin_volume::{BlockDevice, Volume};
use quoin_world::Slice;
use std::sync::Arc;

const BLOCK: usize = 8192;
const BLOCKS: u64 = 400;

fn content(block: u64, round: u8) -> Vec<u8> {
    vec![block as u8 ^ round; BLOCK]
}

async fn write_all(volume: &Volume, round: u8) {
    for block in 0..BLOCKS {
        let data = vec![Slice::copy_of(&content(block, round))];
        volume.write(block * BLOCK as u64, data).await.unwrap();
    }
}

async fn check_all(volume: &Volume, round: u8) {
    for block in 0..BLOCKS {
        let range = ByteRange::new(block * BLOCK as u64, BLOCK as u64);
        let read: Vec<u8> =
            volume.read(range).await.unwrap().iter().flat_map(|slice| slice.to_vec()).collect();
        assert!(read == content(block, round), "block {block} differs");
    }
}

/// An array with a volume that was written to.
fn written(lab: &Lab) -> (Arc<Array>, Arc<Volume>) {
    let array = lab.start();
    let volume = lab.on_array(&array, async |array| {
        array.create_volume(create("v1")).await.unwrap();
        let volume = array.volume("v1").unwrap();
        write_all(&volume, 1).await;
        volume
    });
    (array, volume)
}

fn protection(array: &Array) -> Protection {
    array.status().protection.unwrap()
}

fn last(array: &Array) -> Drive {
    array.list_drives().pop().unwrap()
}

fn told(array: &Array, severity: Severity, part: &str) -> bool {
    let events = array.events(EventSelection { limit: 1000, ..EventSelection::default() });
    events.iter().any(|event| event.severity == severity && event.text.contains(part))
}

#[test]
fn the_pool_goes_on_without_a_data_drive_that_fails_and_says_so() {
    let lab = Lab::with_layout(4, "raid5".parse().unwrap());
    let (array, volume) = written(&lab);
    let before = protection(&array);
    assert_eq!((before.tolerates, before.tolerates_now, before.journal_columns), (1, 1, 2), "{before:?}");
    assert_eq!((before.failed_drives, before.degraded_bytes, before.next), (0, 0, None));

    lab.break_drive();
    let writing = volume.clone();
    lab.on_array(&array, async move |_| write_all(&writing, 2).await);
    // A checkpoint flushes all drives, if no write of the journal has met the broken one.
    lab.until(|| last(&array).state == DriveState::Failed);
    let reading = volume.clone();
    lab.on_array(&array, async move |_| check_all(&reading, 2).await);
    let status = array.status();
    assert!(status.ready, "{:?}", status.reason);
    // What it held is made up for on the three that are left, in narrower segments.
    lab.until(|| protection(&array).tolerates_now == 1);
    let after = protection(&array);
    assert_eq!((after.layout_now.as_str(), after.failed_drives), ("2+1", 1), "{after:?}");
    assert_eq!(after.next.map(|next| next.contains("quoin drive add")), Some(true));
    lab.until(|| told(&array, Severity::Critical, "the pool goes on without it"));
    let figures = array.figures();
    assert_eq!(figures.protection.map(|found| (found.tolerates, found.layout.parity())), Some((1, 1)));
    lab.stop(array);

    // Without the drive, which cannot be opened.
    let array = lab.start();
    assert_eq!(protection(&array).failed_drives, 1);
    assert_eq!(last(&array).state, DriveState::Failed);
    assert!(told(&array, Severity::Warning, "the pool goes on without it"));
    lab.on_array(&array, async move |array| check_all(&array.volume("v1").unwrap(), 2).await);
    lab.stop(array);
}

#[test]
fn a_drive_that_hangs_is_taken_out_though_hosts_only_read() {
    let lab = Lab::with_layout(3, Layout::mirror(1));
    let (array, volume) = written(&lab);
    lab.hang_drive();
    // Reads that need it wait until it has failed, and are answered from the others then.
    let reading = volume.clone();
    lab.on_array(&array, async move |_| {
        write_all(&reading, 3).await;
        check_all(&reading, 3).await;
    });
    lab.until(|| last(&array).state == DriveState::Absent && protection(&array).absent_drives == 1);
    lab.wait(&array, State::Online);
    assert!(told(&array, Severity::Critical, "went away, and the pool goes on without it"));
    // When it answers again, it is taken back.
    lab.wake_drive();
    lab.until(|| last(&array).state == DriveState::Active && protection(&array).absent_drives == 0);
    lab.until(|| told(&array, Severity::Info, "is back"));
    lab.until(|| protection(&array).tolerates_now == 1);
    lab.on_array(&array, async move |_| check_all(&volume, 3).await);
    lab.stop(array);
}

#[test]
fn a_drive_is_taken_out_by_hand_unless_data_would_be_lost() {
    // What one of two holds cannot be made up for.
    let lab = Lab::with_layout(2, Layout::mirror(1));
    let (array, volume) = written(&lab);
    lab.on_array(&array, async move |array| {
        let failed = array.fail_drive("drive-0").await.unwrap();
        assert_eq!((failed.state, failed.online, failed.number), (DriveState::Failed, false, Some(0)));
        check_all(&volume, 1).await;
        write_all(&volume, 4).await;
        assert_eq!(array.fail_drive("drive-0").await.unwrap().state, DriveState::Failed, "it is out already");
        let refused = array.fail_drive("drive-1").await.unwrap_err().problem();
        assert_eq!(
            (refused.status, refused.kind.as_str()),
            (409, "urn:quoin:problem:data-lost"),
            "{refused:?}"
        );
        assert!(refused.why.contains("cannot go on without drive"), "{refused:?}");
        let refused = array.fail_drive("drive-7").await.unwrap_err().problem();
        assert_eq!(refused.status, 404);
        check_all(&volume, 4).await;
    });
    assert!(told(&array, Severity::Warning, "was taken out, and the pool goes on without it"));
    // It is told once.
    assert!(!told(&array, Severity::Critical, "the pool goes on without it"));
    lab.stop(array);
}

#[test]
fn without_protection_no_drive_is_taken_out() {
    let lab = Lab::new();
    let (array, _) = written(&lab);
    let refused =
        lab.on_array(&array, async |array| array.fail_drive("drive-1").await.unwrap_err().problem());
    assert_eq!(refused.status, 409, "{refused:?}");
    let protection = protection(&array);
    assert_eq!((protection.layout.as_str(), protection.tolerates_now), ("none", 0));
    assert_eq!(protection.next, None, "it is as it was made");
    lab.stop(array);
}
