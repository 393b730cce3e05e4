//! Drives that ail, on the real binary: one that answers slowly is marked and read around, and one that errs again and again
//! is evacuated before it fails.

use crate::{
    initiator::{Initiator, LONGEST_BYTES},
    lab::{Lab, Serving},
};
use serde_json::Value;
use std::{
    thread,
    time::{Duration, Instant},
};

const NAME: &str = "iqn.2026-11.test:h1";
const LUN: u8 = 1;
const BLOCK_BYTES: usize = 8192;
const LIMIT: Duration = Duration::from_secs(120);

fn part(at: usize) -> Vec<u8> {
    (0..LONGEST_BYTES).map(|byte| (byte / 512) as u8 ^ (at as u8).wrapping_mul(53)).collect()
}

/// A mirror of emulated drives that serves a volume with so many parts of data, which the read cache does not hold.
fn serve(lab: &Lab, parts: usize) -> Serving {
    let init = ["init", "--drives", "4", "--drive-size", "512M", "--domain", "file", "--layout", "mirror"];
    lab.ok(&[&init[..], &["--emulate", "nvme"]].concat());
    let serving = lab.serve(&["--memory-limit", "64M"]);
    lab.ready();
    lab.ok(&["volume", "create", "v", "--size", "256M"]);
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    lab.ok(&["map", "v", "--host", "h1", "--lun", "1"]);
    let mut host = login(lab);
    for at in 0..parts {
        host.write(LUN, (at * LONGEST_BYTES) as u64, &part(at)).unwrap();
    }
    // What is in the write buffer is not read from drives, and cannot rot there.
    let bytes = (parts * LONGEST_BYTES) as u64;
    lab.until(&["status"], |status| status["capacity"]["mapped_bytes"].as_u64() >= Some(bytes));
    serving
}

fn login(lab: &Lab) -> Initiator {
    let status = lab.ready();
    Initiator::login(status["portals"][0].as_str().unwrap(), status["iqn"].as_str().unwrap(), NAME)
}

/// Reads blocks all over the volume until the array says this of a drive.
fn read_until(lab: &Lab, parts: usize, drive: &str, condition: impl Fn(&Value) -> bool) -> Value {
    let (mut host, began, mut at) = (login(lab), Instant::now(), 0);
    loop {
        for _ in 0..200 {
            // A stride without a common divisor visits all blocks.
            at = (at + 1009 * BLOCK_BYTES) % (parts * LONGEST_BYTES);
            let (whole, within) = (part(at / LONGEST_BYTES), at % LONGEST_BYTES);
            let read = host.read(LUN, at as u64, BLOCK_BYTES).unwrap();
            assert!(read == whole[within..within + BLOCK_BYTES], "the block at byte {at}");
        }
        let shown = lab.json(&["drive", "show", drive]);
        if condition(&shown) {
            return shown;
        }
        assert!(began.elapsed() < LIMIT, "waited in vain: {shown}");
    }
}

#[test]
fn a_slow_drive_is_marked_read_around_and_as_before_when_it_is_quick_again() {
    const PARTS: usize = 2048;
    let lab = Lab::new();
    let mut serving = serve(&lab, PARTS);
    lab.ok(&["drive", "emulate", "slow", "drive-2", "--factor", "300"]);
    read_until(&lab, PARTS, "drive-2", |drive| drive["slow"] == true);
    let list = lab.ok(&["drive", "list"]);
    assert!(list.contains("SLOW"), "{list}");
    let others = lab.json(&["drive", "list"]);
    let slow = others.as_array().unwrap().iter().filter(|drive| drive["slow"] == true);
    assert_eq!(slow.count(), 1, "{others}");
    lab.ok(&["drive", "emulate", "return", "drive-2"]);
    read_until(&lab, PARTS, "drive-2", |drive| drive["slow"] == false);
    let events = lab.ok(&["events"]);
    for said in ["answers slowly", "answers as fast as the others again"] {
        assert!(events.contains(said), "{said:?} is not in {events}");
    }
    serving.terminate();
    lab.ok(&["check"]);
}

#[test]
fn a_drive_that_errs_again_and_again_is_evacuated_before_it_fails() {
    const PARTS: usize = 512;
    let lab = Lab::new();
    let mut serving = serve(&lab, PARTS);
    lab.ok(&["pool", "set", "--evict-errors", "4"]);
    let corrupt = ["drive", "emulate", "corrupt", "drive-3", "--pages", "64", "--seed", "5"];
    let began = Instant::now();
    while lab.run(&corrupt).code != Some(0) {
        assert!(began.elapsed() < LIMIT, "nothing reaches the drive");
        thread::sleep(Duration::from_millis(100));
    }
    lab.ok(&["scrub", "set", "--rate", "0"]);
    lab.ok(&["scrub", "start"]);
    // It is told of, evacuated, and stays, empty.
    let list = lab.until(&["drive", "list"], |list| {
        let drive = list.as_array().and_then(|all| all.iter().find(|drive| is_named(drive, "drive-3")));
        drive.is_some_and(|drive| drive["failing"] == true && drive["used_bytes"] == 0)
    });
    let failing = list.as_array().unwrap().iter().filter(|drive| drive["failing"] == true);
    assert_eq!(failing.count(), 1, "{list}");
    let shown = lab.ok(&["drive", "list"]);
    assert!(shown.contains("FAILING"), "{shown}");
    let mut host = login(&lab);
    for at in 0..PARTS {
        assert!(host.read(LUN, (at * LONGEST_BYTES) as u64, LONGEST_BYTES).unwrap() == part(at), "part {at}");
    }
    assert_eq!(lab.json(&["status"])["protection"]["tolerates_now"], 1);
    serving.terminate();
    lab.ok(&["check"]);
}

fn is_named(drive: &Value, name: &str) -> bool {
    drive["path"].as_str().is_some_and(|path| path.ends_with(name))
}
