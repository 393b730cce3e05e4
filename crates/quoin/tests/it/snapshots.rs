//! Snapshots and consistency groups of the real array: taken under writes, restored under hosts that are logged in, and
//! through kills.

use crate::initiator::{Initiator, Sense};
use crate::lab::{Lab, Outcome};
use serde_json::Value;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

const NAME: &str = "iqn.2026-11.test:h1";
const CHANGED: Sense = (0x6, 0x28, 0x00);
const CAPACITY: Sense = (0x6, 0x2A, 0x09);
const MODES: Sense = (0x6, 0x2A, 0x01);
const MIB: u64 = 1 << 20;
const LEN: usize = 8192;

fn array(volumes: &[&str]) -> (Lab, crate::lab::Serving, Value) {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "2", "--drive-size", "256M"]);
    let serving = lab.serve(&[]);
    let status = lab.ready();
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    for (lun, volume) in volumes.iter().enumerate() {
        lab.ok(&["volume", "create", volume, "--size", "64M"]);
        lab.ok(&["map", volume, "--host", "h1", "--lun", &lun.to_string()]);
    }
    (lab, serving, status)
}

fn login(status: &Value) -> Initiator {
    let (portal, target) = (status["portals"][0].as_str().unwrap(), status["iqn"].as_str().unwrap());
    Initiator::login(portal, target, NAME)
}

fn block(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(LEN / 8)
}

fn number(block: &[u8]) -> u64 {
    let number = u64::from_le_bytes(block[..8].try_into().unwrap());
    assert!(block.chunks(8).all(|word| word == number.to_le_bytes()), "a block of two writes");
    number
}

#[track_caller]
fn refused(outcome: &Outcome, parts: &[&str]) {
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    parts.iter().for_each(|part| assert!(outcome.stderr.contains(part), "no {part:?} in {}", outcome.stderr));
}

#[test]
fn a_host_sees_a_restore_as_another_medium_in_the_same_device() {
    let (lab, mut serving, status) = array(&["v1"]);
    let mut host = login(&status);
    let identity = host.identity(0);
    host.write(0, 0, &block(1)).unwrap();
    let taken = lab.json(&["snapshot", "create", "v1", "v1.good", "--tag", "why=test"]);
    assert_eq!((&taken["origin"]["source"], &taken["tags"]["why"]), (&"v1".into(), &"test".into()));
    host.write(0, 0, &block(2)).unwrap();
    lab.ok(&["volume", "grow", "v1", "--size", "128M"]);
    assert_eq!(host.attention(0), Some(CAPACITY));
    host.write(0, 127 * MIB, &block(3)).unwrap();

    let outcome = lab.run(&["snapshot", "restore", "v1.good"]);
    refused(&outcome, &["volume v1 is in use", "host h1 sees v1 as LUN 0", NAME, "next: ", "--force"]);
    assert_eq!(host.attention(0), None);
    lab.ok(&["snapshot", "restore", "v1.good", "--keep", "v1.bad", "--force"]);
    assert_eq!(
        (host.attention(0), host.attention(0), host.attention(0)),
        (Some(CHANGED), Some(CAPACITY), None)
    );
    assert_eq!((host.identity(0), number(&host.read(0, 0, LEN).unwrap())), (identity, 1));
    assert_eq!(host.write(0, 127 * MIB, &block(4)), Err((0x5, 0x21, 0x00)));

    // What was there before the restore is kept, and mapped like any volume.
    lab.ok(&["map", "v1.bad", "--host", "h1", "--lun", "7"]);
    assert_eq!(host.write(7, 0, &block(5)), Err((0x7, 0x27, 0x00)), "a snapshot is write-protected");
    lab.ok(&["mapping", "set", "v1.bad", "--host", "h1", "--writable"]);
    assert_eq!(host.attention(7), Some(MODES), "the host is told that this has changed");
    assert_eq!(number(&host.read(7, 0, LEN).unwrap()), 2);
    assert_eq!(number(&host.read(7, 127 * MIB, LEN).unwrap()), 3);
    host.write(7, 0, &block(5)).unwrap();
    lab.ok(&["snapshot", "create", "v1.bad"]);
    lab.ok(&["volume", "clone", "v1.bad", "c1", "--thick"]);
    let shown = lab.ok(&["snapshot", "show", "v1.bad"]);
    assert!(shown.contains("snapshot of v1, as of 20") && shown.contains("freed by delete"), "{shown}");
    assert_eq!(lab.json(&["snapshot", "list", "--of", "v1"]).as_array().unwrap().len(), 2);
    assert!(lab.ok(&["snapshot", "list"]).contains("v1.good"));
    assert!(lab.ok(&["snapshot", "show", "v1.bad"]).contains("modified"));
    refused(&lab.run(&["snapshot", "restore", "v1.bad"]), &["v1.bad was modified on 20", "--force"]);
    refused(&lab.run(&["snapshot", "delete", "v1.bad"]), &["host h1 sees v1.bad as LUN 7", "--force"]);
    lab.ok(&["snapshot", "delete", "v1.bad", "--force", "--now"]);
    lab.ok(&["snapshot", "promote", "c1"]);
    refused(&lab.run(&["snapshot", "refresh", "c1"]), &["c1 is neither a snapshot nor a clone"]);
    let events = lab.ok(&["events"]);
    for said in
        ["snapshot taken of volume v1", "restored from v1.good", "clone made of volume v1.bad", "promoted"]
    {
        assert!(events.contains(said), "no {said:?} in {events}");
    }
    drop(host);
    for volume in ["v1", "c1"] {
        lab.ok(&["volume", "delete", volume, "--force", "--now"]);
    }
    for snapshot in lab.json(&["snapshot", "list"]).as_array().unwrap() {
        lab.ok(&["snapshot", "delete", snapshot["name"].as_str().unwrap(), "--now"]);
    }
    lab.until(&["status"], |status| {
        status["giving_back"]["bytes"] == 0 && status["capacity"]["used_bytes"] == 0
    });
    serving.terminate();
    assert!(lab.ok(&["check"]).contains("no problems found"), "check");
}

/// A writer that puts each number into the log before it puts it into the data, in whatever it finds there.
fn write_on(status: &Value, last: Arc<AtomicU64>, stop: Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let status = status.clone();
    thread::spawn(move || {
        let mut host = login(&status);
        for n in last.load(Ordering::Acquire) + 1.. {
            if stop.load(Ordering::Acquire) {
                return;
            }
            host.write(0, 0, &block(n)).unwrap();
            host.write(1, 0, &block(n)).unwrap();
            last.store(n, Ordering::Release);
        }
    })
}

#[test]
fn sets_are_of_one_moment_and_come_back_after_a_kill() {
    let (lab, mut serving, mut status) = array(&["log", "data"]);
    lab.ok(&["group", "create", "db", "--volume", "log", "--volume", "data"]);
    let last = Arc::new(AtomicU64::new(0));
    for round in 0..4 {
        let stop = Arc::new(AtomicBool::new(false));
        let writer = write_on(&status, last.clone(), stop.clone());
        let mut sets = Vec::new();
        for n in 0..8 {
            let before = last.load(Ordering::Acquire);
            let set = lab.json(&["group", "snapshot", "db", &format!("s{round}-{n}")]);
            sets.push((set["name"].as_str().unwrap().to_owned(), before, last.load(Ordering::Acquire) + 1));
        }
        stop.store(true, Ordering::Release);
        writer.join().unwrap();
        // What was acknowledged is there after a kill at any moment: nothing is flushed on the way out.
        serving.kill();
        serving = lab.serve(&[]);
        status = lab.ready();
        let mut host = login(&status);
        let written = last.load(Ordering::Acquire);
        assert_eq!(number(&host.read(0, 0, LEN).unwrap()), written);
        assert_eq!(number(&host.read(1, 0, LEN).unwrap()), written);
        drop(host);
        lab.until(&["session", "list"], |sessions| sessions.as_array().unwrap().is_empty());
        let keep = format!("k{round}");
        for (set, earliest, latest) in &sets {
            let restore: &[&str] = if set == &sets[0].0 {
                &["group", "restore", "db", set, "--keep", &keep]
            } else {
                &["group", "restore", "db", set]
            };
            lab.ok(restore);
            let mut host = login(&status);
            let (log, data) = (host.read(0, 0, LEN).unwrap(), host.read(1, 0, LEN).unwrap());
            let (log, data) = (number(&log), number(&data));
            assert!(log == data || log == data + 1, "{set}: {log} in the log, {data} in the data");
            assert!((*earliest..=*latest).contains(&data), "{set}: {data} not in {earliest}..={latest}");
            drop(host);
            lab.until(&["session", "list"], |sessions| sessions.as_array().unwrap().is_empty());
        }
        lab.ok(&["group", "restore", "db", &keep]);
    }
    let group = lab.json(&["group", "show", "db"]);
    assert_eq!(group["sets"].as_array().unwrap().len(), 4 * 9);
    assert!(lab.ok(&["group", "show", "db"]).contains("s3-7"), "the table");
    lab.ok(&["group", "refresh", "db", "s0-0"]);
    refused(&lab.run(&["snapshot", "refresh", "log.s0-0"]), &["belongs to set s0-0 of group db"]);
    for set in group["sets"].as_array().unwrap() {
        lab.ok(&["group", "delete-snapshot", "db", set["name"].as_str().unwrap()]);
    }
    lab.ok(&["group", "remove", "db", "log"]);
    lab.ok(&["group", "delete", "db"]);
    lab.until(&["status"], |status| {
        status["giving_back"]["bytes"] == 0 && status["objects"]["snapshots"] == 0
    });
    serving.kill();
    assert!(lab.ok(&["check"]).contains("no problems found"), "check");
}
