//! The array over real drives: files, opened through io_uring, that fail when told to.

use crate::lab::{Lab, create};
use crate::years::{Day, Ending, Years};
use quoin_api::{Deletion, Event, HostCreate, MappingCreate, Severity, State};
use quoin_array::{Array, EventSelection};
use quoin_base::ByteRange;
use quoin_volume::{BlockDevice, DeviceError};
use quoin_world::Slice;
use quoin_world_sim::SimDisk;
use std::{sync::Arc, time::Duration};

const BLOCK: usize = 8192;

#[test]
fn everything_comes_back_after_a_restart() {
    let lab = Lab::new();
    let array = lab.start();
    let (volumes, hosts, mappings) = lab.on_array(&array, async |array| {
        array.create_volume(create("v1")).await.unwrap();
        array.create_volume(create("v2")).await.unwrap();
        let initiators = vec!["iqn.2026-11.test:H1".to_owned()];
        array.create_host(HostCreate { name: "h1".into(), initiators, chap: None }).await.unwrap();
        for (volume, lun) in [("v1", Some(5)), ("v2", None)] {
            let request = MappingCreate {
                volume: volume.into(),
                host: "h1".into(),
                lun,
                read_only: false,
                writable: false,
            };
            array.map(request).await.unwrap();
        }
        array.volume("v1").unwrap().write(0, vec![Slice::copy_of(&[7; BLOCK])]).await.unwrap();
        (array.list_volumes().unwrap(), array.list_hosts().unwrap(), array.list_mappings().unwrap())
    });
    assert_eq!(
        mappings.iter().map(|m| (m.volume.as_str(), m.lun)).collect::<Vec<_>>(),
        [("v2", 0), ("v1", 5)]
    );
    lab.stop(array);

    let array = lab.start();
    lab.on_array(&array, async move |array| {
        let after = array.list_volumes().unwrap();
        let identity = |v: &quoin_api::Volume| (v.name.clone(), v.uuid, v.size_bytes, v.created_ms);
        assert_eq!(
            after.iter().map(identity).collect::<Vec<_>>(),
            volumes.iter().map(identity).collect::<Vec<_>>()
        );
        assert_eq!(array.list_hosts().unwrap(), hosts);
        let shown = array.target().hosts();
        let units: Vec<_> = shown[0].mappings.iter().map(|m| (m.lun.number(), m.volume.clone())).collect();
        assert_eq!(units, [(0, "v2".to_owned()), (5, "v1".to_owned())]);
        let read = array.volume("v1").unwrap().read(ByteRange::new(0, BLOCK as u64)).await.unwrap();
        assert!(read.iter().all(|slice| slice.iter().all(|byte| *byte == 7)));

        let events: Vec<_> = array
            .events(EventSelection::default())
            .into_iter()
            .map(|e| format!("{}: {}", e.object, e.text))
            .collect();
        assert_eq!(events[0], "pool lab: online");
        assert_eq!(events[1], "array: stopped by request");
        assert_eq!(events[3], "volume v1: mapped to host h1 as LUN 5");

        array.delete_host("h1", false, false).await.unwrap_err();
        array.delete_volume("v1", Deletion::default()).await.unwrap_err();
        array.delete_volume("v1", Deletion { unmap: true, ..Deletion::default() }).await.unwrap();
        assert_eq!(array.target().hosts()[0].mappings.len(), 1);
        array.unmap("h1", "v1", false).await.unwrap_err();
        array.unmap("h1", "v2", false).await.unwrap();
        array.delete_host("h1", false, false).await.unwrap();
        assert!(array.target().hosts().is_empty());
        let numbers: Vec<_> = array.events(EventSelection::default()).iter().map(|e| e.number).collect();
        assert!(numbers.is_sorted_by(|a, b| a > b), "{numbers:?}");
    });
    lab.stop(array);
}

#[test]
fn a_drive_that_fails_takes_the_pool_offline_and_brings_it_back() {
    let lab = Lab::new();
    let array = lab.start();
    let volume = lab.on_array(&array, async |array| {
        array.create_volume(create("v1")).await.unwrap();
        let volume = array.volume("v1").unwrap();
        volume.write(0, vec![Slice::copy_of(&[7; BLOCK])]).await.unwrap();
        volume
    });
    lab.break_drive();
    let writing = volume.clone();
    let error = lab.on_array(&array, async move |_| {
        // The journal is on both drives: sooner or later a write goes to the broken one.
        loop {
            if let Err(error) = writing.write(0, vec![Slice::copy_of(&[8; BLOCK])]).await {
                return error;
            }
        }
    });
    assert!(matches!(error, DeviceError::Offline { .. }), "{error}");
    lab.wait(&array, State::Offline);
    let status = array.status();
    assert!(!status.ready && status.reason.is_some(), "{status:?}");
    let faults = || array.status().drives.into_iter().filter_map(|drive| drive.reason).collect::<Vec<_>>();
    lab.until(|| faults().len() == 1);
    assert!(faults()[0].contains("broken"), "{:?}", faults());
    assert_eq!(array.list_volumes().unwrap().len(), 1);
    let refused = lab.on_array(&array, async |array| array.create_volume(create("v2")).await.unwrap_err());
    assert_eq!(refused.problem().status, 503);

    lab.mend_drive();
    lab.wait(&array, State::Online);
    let read = lab.on_array(&array, async move |array| {
        array.create_volume(create("v2")).await.unwrap();
        volume.read(ByteRange::new(0, BLOCK as u64)).await.unwrap()
    });
    assert!(read.iter().all(|slice| slice.iter().all(|byte| [7, 8].contains(byte))));
    let events = array.events(at_least(Severity::Error));
    assert!(events.iter().any(|event| event.text.starts_with("offline: ")), "{events:?}");
    lab.stop(array);
}

#[test]
fn a_missing_drive_leaves_management_up() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| array.create_volume(create("v1")).await.unwrap());
    lab.stop(array);

    lab.break_drive();
    let array = lab.start_unready();
    lab.wait(&array, State::Offline);
    let status = array.status();
    assert!(status.reason.is_some_and(|reason| reason.contains("broken")));
    assert_eq!(array.list_volumes().unwrap_err().problem().status, 503);
    assert_eq!(array.events(at_least(Severity::Error)).len(), 1);
    lab.mend_drive();
    lab.wait(&array, State::Online);
    assert_eq!(array.list_volumes().unwrap().len(), 1);
    lab.stop(array);
}

/// Writes, as long as it takes until `condition` holds.
fn write_until(lab: &Lab, array: &Arc<Array>, condition: impl Fn() -> bool) {
    let volume = array.volume("v1").unwrap();
    lab.until(|| {
        let writing = volume.clone();
        lab.on_array(array, async move |_| {
            writing.write(0, vec![Slice::copy_of(&[7; BLOCK])]).await.unwrap();
        });
        condition()
    });
}

fn told(array: &Array, severity: Severity) -> usize {
    let is_it = |event: &&Event| event.severity == severity && event.text.contains("goes on without it");
    array.events(EventSelection::default()).iter().filter(is_it).count()
}

fn last_reason(array: &Array) -> String {
    array.status().drives.pop().unwrap().reason.unwrap_or_default()
}

#[test]
fn the_loss_of_a_column_of_the_journal_is_told_and_the_drive_is_not_needed_in_whatever_state() {
    let lab = Lab::with_columns();
    let array = lab.start();
    lab.on_array(&array, async |array| array.create_volume(create("v1")).await.unwrap());
    lab.break_drive();
    write_until(&lab, &array, || told(&array, Severity::Critical) > 0);
    assert_eq!(array.status().state, State::Online);
    lab.stop(array);

    // It cannot be opened, is back as it was, and has lost what it held.
    let again = |expected: &str| {
        let array = lab.start();
        assert!(last_reason(&array).contains(expected), "{}", last_reason(&array));
        write_until(&lab, &array, || true);
        assert_eq!((told(&array, Severity::Critical), array.list_volumes().unwrap().len()), (1, 1));
        let warnings = told(&array, Severity::Warning);
        lab.stop(array);
        warnings
    };
    assert_eq!(again("broken"), 1);
    lab.mend_drive();
    assert_eq!(again("it failed and the pool went on without it"), 2);
    lab.wipe_drive();
    assert_eq!(again("is blank"), 3);

    // A drive that is needed refuses the pool, and each is named.
    lab.set_broken(0, true);
    let array = lab.start_unready();
    lab.wait(&array, State::Offline);
    let reason = array.status().reason.unwrap();
    assert!(reason.contains("drive-0: broken") && reason.contains("drive-1 is blank"), "{reason}");
    lab.stop(array);
}

#[test]
fn a_drive_that_hangs_and_left_the_pool_does_not_keep_it_from_opening_again() {
    let lab = Lab::with_columns();
    // Not where the configuration says, so that the pool has another name for it.
    lab.move_drive();
    let array = lab.start();
    lab.on_array(&array, async |array| array.create_volume(create("v1")).await.unwrap());
    lab.hang_drive();
    write_until(&lab, &array, || told(&array, Severity::Critical) > 0);
    lab.wait(&array, State::Online);

    lab.set_broken(0, true);
    let volume = array.volume("v1").unwrap();
    lab.on_array(&array, async move |_| {
        volume.write(0, vec![Slice::copy_of(&[8; BLOCK])]).await.unwrap_err()
    });
    lab.wait(&array, State::Offline);
    lab.until(|| array.status().reason.is_some_and(|reason| reason.contains("drive-0: broken")));
    let reason = array.status().reason.unwrap();
    assert!(reason.contains("operations outstanding"), "{reason}");
    lab.set_broken(0, false);
    lab.wait(&array, State::Online);
    assert!(array.status().drives[1].unfinished > 0);
    assert!(last_reason(&array).contains("operations outstanding"), "{}", last_reason(&array));
    write_until(&lab, &array, || true);
    lab.wake_drive();
    lab.stop(array);
}

fn at_least(severity: Severity) -> EventSelection {
    EventSelection { severity, ..EventSelection::default() }
}

/// A block that does not compress.
fn noise() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..BLOCK).map(|_| next()).collect()
}

/// Flips bits wherever the drive holds the block.
fn damage(drive: &SimDisk, block: &[u8]) {
    const CHUNK: u64 = 1 << 20;
    let mut found = 0;
    for at in (0..256 * CHUNK).step_by(CHUNK as usize) {
        let chunk = drive.peek(at, CHUNK as usize);
        for (n, _) in chunk.chunks(512).enumerate().filter(|(_, sector)| sector.starts_with(&block[..16])) {
            drive.poke(at + n as u64 * 512 + 100, &[!block[100]]);
            found += 1;
        }
    }
    assert!(found > 0, "the block is on the drive");
}

/// It was reported, and hosts still get medium errors there.
#[test]
fn damage_that_a_failing_drive_kept_from_being_saved_is_listed_and_reported_once() {
    for is_offline_first in [true, false] {
        let years = Years::new(62);
        years.boot(Ending::Stop, async |day: Day| {
            day.array.create_volume(create("v1")).await.unwrap();
            let volume = day.array.volume("v1").unwrap();
            volume.write(0, vec![Slice::copy_of(&noise())]).await.unwrap();
            day.pass(Duration::from_secs(60)).await;
        });
        years.boot(Ending::Stop, async move |day: Day| {
            let volume = day.array.volume("v1").unwrap();
            damage(&day.drive, &noise());
            let range = ByteRange::new(0, BLOCK as u64);
            // Between two looks of the array: it knows of no damage yet.
            day.pass(Duration::from_millis(10)).await;
            volume.read(range).await.unwrap_err();
            let notice = async {
                if is_offline_first {
                    drop(volume.write(0, vec![Slice::copy_of(&[1; 512])]).await);
                }
            };
            day.lose_drive(notice).await;
            day.pass(Duration::from_secs(5)).await;
            volume.read(range).await.unwrap_err();
            let listed = day.array.scrub_status().await.unwrap().damaged;
            assert_eq!(listed.len(), 1, "offline first: {is_offline_first}");
            assert_eq!((listed[0].offset_bytes, listed[0].length_bytes), (0, BLOCK as u64));
            assert_eq!(day.times_told("cannot be read"), 1, "{:?}", day.told());
        });
    }
}
