//! The file system under file drives is full: reads go on, writes of hosts are refused with the sense for that, and all
//! heals when there is room.
//!
//! A test target of its own: its process serves the file system that has no room.

#[allow(dead_code, reason = "shared by several tests")]
#[path = "it/lab/mod.rs"]
mod lab;

#[allow(dead_code, reason = "shared by several tests")]
#[path = "it/initiator/mod.rs"]
mod initiator;

use initiator::{Initiator, LONGEST_BYTES, Sense};
use lab::Lab;
use quoin_faultfs::{Command, Mounted, Options};
use serde_json::Value;
use std::{
    fs::{self, File},
    thread,
    time::{Duration, Instant},
};

const NAME: &str = "iqn.2026-11.test:h1";
const LUN: u8 = 1;
/// DATA PROTECT, SPACE ALLOCATION FAILED WRITE PROTECT.
const FULL: Sense = (0x7, 0x27, 0x07);

fn login(status: &Value) -> Initiator {
    let (portal, target) = (status["portals"][0].as_str().unwrap(), status["iqn"].as_str().unwrap());
    Initiator::login(portal, target, NAME)
}

fn content(n: u64) -> Vec<u8> {
    (0..LONGEST_BYTES as u64 / 8).flat_map(|i| (n << 32 | i).to_le_bytes()).collect()
}

fn until_written(initiator: &mut Initiator, n: u64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(sense) = initiator.write(LUN, n * LONGEST_BYTES as u64, &content(n)) {
        assert_eq!(sense, FULL);
        assert!(Instant::now() < deadline, "no room for a minute");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn writes_are_refused_reads_go_on_and_all_heals() {
    let lab = Lab::new();
    let beside = lab.data().parent().unwrap();
    let (backing, drives) = (beside.join("backing"), beside.join("drives"));
    fs::create_dir(&backing).unwrap();
    fs::create_dir(&drives).unwrap();
    File::create(backing.join("d0")).and_then(|file| file.set_len(256 << 20)).unwrap();
    let mounted = Mounted::new(&backing, &drives, Options::default()).expect("FUSE works here");
    let tell = |command: &Command| drop(mounted.shelf().apply(command).unwrap());
    lab.ok(&["init", "--drive", &drives.join("d0").display().to_string()]);
    let mut serving = lab.serve(&[]);
    let status = lab.ready();
    lab.ok(&["volume", "create", "v", "--size", "1G"]);
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    lab.ok(&["map", "v", "--host", "h1", "--lun", "1"]);
    let mut initiator = login(&status);
    initiator.write(LUN, 0, &content(0)).unwrap();

    tell(&Command::Full { drive: "d0".into() });
    // All that is accepted until it shows is acknowledged, and has to stay.
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut accepted = 1;
    loop {
        match initiator.write(LUN, accepted * LONGEST_BYTES as u64, &content(accepted)) {
            Ok(()) => accepted += 1,
            Err(sense) => {
                assert_eq!(sense, FULL);
                break;
            }
        }
        assert!(Instant::now() < deadline, "{accepted} writes were accepted");
        thread::sleep(Duration::from_millis(20));
    }
    let verify = |initiator: &mut Initiator| {
        for n in 0..accepted {
            let read = initiator.read(LUN, n * LONGEST_BYTES as u64, LONGEST_BYTES).unwrap();
            assert!(read == content(n), "write {n} of {accepted}");
        }
    };
    verify(&mut initiator);
    let status = lab.until(&["status"], |status| status["drives"][0]["no_room"] == true);
    assert_eq!((&status["state"], &status["ready"]), (&Value::from("online"), &Value::from(true)));
    assert_eq!(initiator.write(LUN, 0, &content(9)), Err(FULL));
    let told = |text: &str| {
        let events = lab.json(&["events"]).to_string();
        events.matches(text).count()
    };
    thread::sleep(Duration::from_secs(3));
    assert_eq!(told("is full: host writes fail"), 1);
    assert_eq!(told("offline"), 0);

    // Killed like that, all that was acknowledged is there.
    serving.kill();
    let mut serving = lab.serve(&[]);
    let mut initiator = login(&lab.ready());
    verify(&mut initiator);
    lab.until(&["status"], |status| status["drives"][0]["no_room"] == true);

    // A stop does not wait for room, nor for changes that do.
    for n in 0..10 {
        drop(lab.run(&["snapshot", "create", "v", &format!("s{n}")]));
    }
    serving.terminate();
    let mut serving = lab.serve(&[]);
    let mut initiator = login(&lab.ready());
    verify(&mut initiator);
    tell(&Command::Heal { drive: "d0".into() });
    lab.until(&["status"], |status| status["drives"][0]["no_room"] == false);
    until_written(&mut initiator, accepted);
    verify(&mut initiator);
    drop(initiator);
    serving.terminate();
    assert_eq!(lab.json(&["check"])["ok"], true);
}
