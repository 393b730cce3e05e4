//! Drives that leave on the real binary: evacuated, removed and replaced while a host uses a volume.

use crate::{
    initiator::{Initiator, LONGEST_BYTES},
    lab::Lab,
};
use serde_json::Value;
use std::fs;

const NAME: &str = "iqn.2026-11.test:h1";
const LUN: u8 = 1;
const PARTS: usize = 64;

fn part(at: usize) -> Vec<u8> {
    (0..LONGEST_BYTES).map(|byte| (byte / 512) as u8 ^ (at as u8).wrapping_mul(41)).collect()
}

/// An array of file drives, each a fault domain, with a volume that a host sees.
fn init(lab: &Lab, drives: &str, layout: &str) {
    lab.ok(&["init", "--drives", drives, "--drive-size", "256M", "--domain", "file", "--layout", layout]);
}

fn fill(lab: &Lab) {
    lab.ready();
    lab.ok(&["volume", "create", "v", "--size", "256M"]);
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    lab.ok(&["map", "v", "--host", "h1", "--lun", "1"]);
    let mut host = login(lab);
    for at in 0..PARTS {
        host.write(LUN, (at * LONGEST_BYTES) as u64, &part(at)).unwrap();
    }
}

fn login(lab: &Lab) -> Initiator {
    let status = lab.ready();
    Initiator::login(status["portals"][0].as_str().unwrap(), status["iqn"].as_str().unwrap(), NAME)
}

#[track_caller]
fn check_all(lab: &Lab) {
    let mut host = login(lab);
    for at in 0..PARTS {
        assert!(host.read(LUN, (at * LONGEST_BYTES) as u64, LONGEST_BYTES).unwrap() == part(at), "part {at}");
    }
}

fn names(list: &Value) -> Vec<String> {
    let name = |drive: &Value| drive["path"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    list.as_array().unwrap().iter().map(name).collect()
}

#[test]
fn a_drive_is_removed_and_the_array_starts_without_it() {
    let lab = Lab::new();
    init(&lab, "5", "raid5");
    let mut serving = lab.serve(&[]);
    fill(&lab);
    let removed = lab.json(&["drive", "remove", "drive-2", "--wait"]);
    assert_eq!((&removed["state"], &removed["leaving"]), (&"removed".into(), &Value::Null));
    let list = lab.json(&["drive", "list"]);
    assert_eq!(names(&list), ["drive-1", "drive-3", "drive-4", "drive-5"]);
    let config = fs::read_to_string(lab.data().join("quoin.toml")).unwrap();
    assert!(!config.contains("drives/drive-2") && config.contains("drives/drive-3"), "{config}");
    let events = lab.ok(&["events"]);
    assert!(events.contains("drive-2") && events.contains("was removed"), "{events}");
    // The array does not hold it any more: it is not locked, and it can be added again.
    let removed = fs::File::open(lab.data().join("drives/drive-2")).unwrap();
    removed.try_lock().expect("a drive that was removed is not locked");
    drop(removed);
    let path = lab.data().join("drives/drive-2").display().to_string();
    let added = lab.json(&["drive", "add", &path, "--domain", "file:drive-2"]);
    assert_eq!(added["state"], "active", "{added}");
    let gone = lab.json(&["drive", "remove", "drive-2", "--wait"]);
    assert_eq!(gone["state"], "removed", "{gone}");
    check_all(&lab);
    // Killed, it starts without the drive, which is not there any more.
    serving.kill();
    fs::remove_file(lab.data().join("drives/drive-2")).unwrap();
    let mut serving = lab.serve(&[]);
    let status = lab.ready();
    assert_eq!(status["protection"]["tolerates_now"], 1, "{status}");
    check_all(&lab);
    serving.terminate();
    lab.ok(&["check"]);
}

#[test]
fn an_evacuation_says_what_it_lacks_can_be_cancelled_and_goes_on_after_a_restart() {
    let lab = Lab::new();
    init(&lab, "4", "raid5");
    let mut serving = lab.serve(&[]);
    fill(&lab);
    let refused = lab.run(&["drive", "evacuate", "drive-1"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for said in ["data would move to narrower ones, 2+1", "--narrower"] {
        assert!(refused.stderr.contains(said), "{said:?} is not in {refused:?}");
    }
    assert_eq!(lab.json(&["drive", "show", "drive-1"])["state"], "active");
    lab.ok(&["drive", "evacuate", "drive-1", "--narrower"]);
    let stays = lab.json(&["drive", "evacuate", "drive-1", "--cancel"]);
    assert_eq!(stays["state"], "active");
    assert_eq!(lab.run(&["drive", "evacuate", "drive-1", "--cancel"]).code, Some(1));
    // It is to be removed, and the array is killed before that is done, or not.
    lab.ok(&["drive", "remove", "drive-1", "--narrower"]);
    serving.kill();
    let mut serving = lab.serve(&[]);
    lab.ready();
    lab.until(&["drive", "list"], |list| list.as_array().is_some_and(|drives| drives.len() == 3));
    check_all(&lab);
    serving.terminate();
    lab.ok(&["check"]);
}

#[test]
fn a_drive_is_replaced_by_another_in_its_fault_domain() {
    let lab = Lab::new();
    init(&lab, "5", "raid5");
    let mut serving = lab.serve(&[]);
    fill(&lab);
    let new = lab.data().join("drives/drive-9");
    fs::File::create(&new).and_then(|file| file.set_len(256 << 20)).unwrap();
    let new = new.display().to_string();
    let replaced = lab.json(&["drive", "replace", "drive-3", &new, "--wait"]);
    assert_eq!(replaced["state"], "removed", "{replaced}");
    let list = lab.json(&["drive", "list"]);
    assert_eq!(names(&list), ["drive-1", "drive-2", "drive-4", "drive-5", "drive-9"]);
    assert_eq!(list[4]["domain"], "file:drive-3");
    check_all(&lab);
    serving.terminate();
    lab.ok(&["check"]);
    let mut serving = lab.serve(&[]);
    check_all(&lab);
    serving.terminate();
}
