//! A full pool as hosts see it: what needs space is refused with the sense for that, all else goes on, and space that
//! comes back is there without anybody doing anything.

use crate::initiator::{Initiator, LONGEST_BYTES, Sense};
use crate::lab::Lab;
use serde_json::Value;
use std::{
    thread,
    time::{Duration, Instant},
};

const NAME: &str = "iqn.2026-11.test:h1";
/// DATA PROTECT, SPACE ALLOCATION FAILED WRITE PROTECT.
const FULL: Sense = (0x7, 0x27, 0x07);
/// Thin volumes: each alone could fill the pool.
const LARGE: u8 = 1;
const OTHER: u8 = 2;
const UNIT: u64 = LONGEST_BYTES as u64;

fn array() -> Lab {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "2", "--drive-size", "160M"]);
    lab
}

/// Contents that tell where and when they were written.
fn content(offset: u64, round: u64, len: usize) -> Vec<u8> {
    let words = (0..len as u64 / 8).map(|i| (offset + 8 * i) ^ (round + 1) << 48);
    words.flat_map(u64::to_le_bytes).collect()
}

fn login(status: &Value) -> Initiator {
    let (portal, target) = (status["portals"][0].as_str().unwrap(), status["iqn"].as_str().unwrap());
    Initiator::login(portal, target, NAME)
}

/// Writes one unit behind the other from `from` on until the pool is full, and the odd blocks that still find room
/// elsewhere. Where it stopped.
fn fill(initiator: &mut Initiator, from: u64) -> u64 {
    let mut until_full = |from: u64, step: usize, len: usize| {
        let mut offsets = (from..).step_by(step);
        let full = offsets.find(|&offset| match initiator.write(LARGE, offset, &content(offset, 0, len)) {
            Ok(()) => false,
            Err(FULL) => true,
            Err(sense) => panic!("at {offset}: {sense:x?}"),
        });
        full.unwrap_or_default()
    };
    let end = until_full(from, LONGEST_BYTES, LONGEST_BYTES);
    until_full(end + (32 << 20), 8192, 4096);
    end
}

#[test]
fn what_needs_space_is_refused_all_else_goes_on_and_space_comes_back() {
    let lab = array();
    let mut serving = lab.serve(&[]);
    let status = lab.ready();
    for (name, lun) in [("large", "1"), ("other", "2")] {
        lab.ok(&["volume", "create", name, "--size", "1G"]);
        if lun == "1" {
            lab.ok(&["host", "create", "h1", "--initiator", NAME]);
        }
        lab.ok(&["map", name, "--host", "h1", "--lun", lun]);
    }
    let mut initiator = login(&status);
    initiator.write(OTHER, 0, &content(0, 9, LONGEST_BYTES)).unwrap();
    let end = fill(&mut initiator, 0);
    assert!(end > 64 << 20, "full after {end} bytes");

    // Nothing new, for no volume.
    assert_eq!(initiator.write(LARGE, end + (16 << 20), &content(1, 1, 4096)), Err(FULL));
    assert_eq!(initiator.write(LARGE, end - 4096, &content(1, 1, LONGEST_BYTES)), Err(FULL));
    assert_eq!(initiator.write(OTHER, 512 << 20, &content(1, 1, 4096)), Err(FULL));
    assert!(initiator.read(LARGE, end + (16 << 20), 4096).unwrap().iter().all(|byte| *byte == 0));
    // All that is there is overwritten, more than once, in whole and in part, and read; so is the other volume.
    for round in 1..3 {
        for n in 0..end / UNIT {
            let offset = n * [389, 1009][round as usize - 1] % (end / UNIT) * UNIT;
            let written = initiator.write(LARGE, offset, &content(offset, round, LONGEST_BYTES));
            written.unwrap_or_else(|sense| panic!("round {round}, {n} of {}: {sense:x?}", end / UNIT));
        }
        initiator.write(LARGE, 512, &content(512, 7 + round, 512)).unwrap();
        assert_eq!(initiator.read(LARGE, 512, 512).unwrap(), content(512, 7 + round, 512));
        assert_eq!(initiator.read(LARGE, end - UNIT, 4096).unwrap(), content(end - UNIT, round, 4096));
        assert_eq!(initiator.read(OTHER, 0, LONGEST_BYTES).unwrap(), content(0, 9, LONGEST_BYTES));
        initiator.write(OTHER, 4096, &content(4096, 9, 4096)).unwrap();
    }
    let status = lab.json(&["status"]);
    assert_eq!(status["state"], "online");
    assert!(status["engine"]["cleaned_bytes"].as_u64() > Some(0), "{}", status["engine"]);

    let tells = |text: &str| lab.until(&["events"], |events| events.to_string().contains(text));
    tells("writes that need space fail");

    // Volumes and mappings are managed on.
    lab.ok(&["volume", "create", "third", "--size", "1G"]);
    lab.ok(&["volume", "delete", "third"]);

    // What is unmapped comes back, without a restart and in the same session.
    initiator.unmap(LARGE, 0, 16 << 20).unwrap();
    until_written(&mut initiator, OTHER, 512 << 20);
    let more = fill(&mut initiator, end) - end;
    assert!((8 << 20..20 << 20).contains(&more), "{more} bytes came back of 16 MiB");

    // The same after a kill: what was acknowledged is there, and it is full.
    serving.kill();
    let mut serving = lab.serve(&[]);
    let mut initiator = login(&lab.ready());
    assert_eq!(initiator.write(OTHER, 800 << 20, &content(1, 1, LONGEST_BYTES)), Err(FULL));
    assert_eq!(initiator.read(LARGE, end - UNIT, 4096).unwrap(), content(end - UNIT, 2, 4096));
    assert_eq!(initiator.read(LARGE, end, 4096).unwrap(), content(end, 0, 4096));
    initiator.write(LARGE, end, &content(end, 5, LONGEST_BYTES)).unwrap();

    // A volume that is deleted gives back all it had.
    lab.ok(&["volume", "delete", "large", "--force"]);
    until_written(&mut initiator, OTHER, 800 << 20);
    tells("space is available again");
    drop(initiator);
    serving.terminate();
    assert_eq!(lab.json(&["check"])["ok"], true);
}

/// Writes a unit as soon as there is space for it.
fn until_written(initiator: &mut Initiator, lun: u8, offset: u64) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(sense) = initiator.write(lun, offset, &content(offset, 3, LONGEST_BYTES)) {
        assert_eq!(sense, FULL);
        assert!(Instant::now() < deadline, "no space came back for half a minute");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(initiator.read(lun, offset, LONGEST_BYTES).unwrap(), content(offset, 3, LONGEST_BYTES));
}
