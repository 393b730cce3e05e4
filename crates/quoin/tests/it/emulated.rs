//! Emulated drives on the real binary: configured, shown, and told what to do while hosts use them.

use crate::{
    initiator::{Initiator, LONGEST_BYTES},
    lab::Lab,
};
use serde_json::Value;
use std::{fs::File, thread, time::Instant};

const NAME: &str = "iqn.2026-11.test:h1";
const LUN: u8 = 1;

/// Two emulated data drives and a journal drive that is not emulated, served, with a volume that a host sees.
fn serve(lab: &Lab) -> crate::lab::Serving {
    let journal = lab.data().with_file_name("journal");
    File::create(&journal).and_then(|file| file.set_len(256 << 20)).unwrap();
    let journal = journal.display().to_string();
    let speed = "15k,iops=500,latency_ms=2";
    lab.ok(&[
        "init",
        "--drives",
        "2",
        "--drive-size",
        "256M",
        "--emulate",
        speed,
        "--journal-drive",
        &journal,
    ]);
    let serving = lab.serve(&["--drive-suspect", "1", "--drive-fail", "3"]);
    lab.ready();
    lab.ok(&["volume", "create", "v", "--size", "128M"]);
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    lab.ok(&["map", "v", "--host", "h1", "--lun", "1"]);
    serving
}

fn login(lab: &Lab) -> Initiator {
    let status = lab.ready();
    Initiator::login(status["portals"][0].as_str().unwrap(), status["iqn"].as_str().unwrap(), NAME)
}

fn content(round: u8) -> Vec<u8> {
    (0..LONGEST_BYTES).map(|at| (at / 512) as u8 ^ round).collect()
}

fn emulated(status: &Value, at: usize) -> &Value {
    &status["drives"][at]["emulated"]
}

#[test]
fn an_emulated_drive_is_shown_slowed_and_returned() {
    let lab = Lab::new();
    let mut serving = serve(&lab);
    let mut host = login(&lab);
    host.write(LUN, 0, &content(1)).unwrap();

    let status = lab.ready();
    let shown = emulated(&status, 0);
    assert_eq!(
        (&shown["technology"], &shown["iops"], &shown["latency_ms"], &shown["condition"]),
        (&"15k".into(), &500.into(), &2.0.into(), &"healthy".into())
    );
    assert!(emulated(&status, 2).is_null(), "{status}");
    assert!(lab.ok(&["status"]).contains("15k 500 IOPS 2 ms 150 MB/s"));
    assert!(lab.ok(&["config", "show"]).contains("drive.emulate"));

    let slow = lab.json(&["drive", "emulate", "slow", "drive-2", "--factor", "7"]);
    assert_eq!(
        (&slow["emulated"]["condition"], &slow["emulated"]["slow_factor"]),
        (&"slow".into(), &7.into())
    );
    assert_eq!(emulated(&lab.ready(), 1)["condition"], "slow");
    assert!(lab.ok(&["status"]).contains("7 times as slow"));
    host.write(LUN, 1 << 20, &content(2)).unwrap();
    lab.ok(&["drive", "emulate", "return", "drive-2"]);
    let status = lab.ready();
    assert!([0, 1].iter().all(|at| emulated(&status, *at)["condition"] == "healthy"), "{status}");
    let events = lab.json(&["events"]).to_string();
    assert!(events.contains("7 times as long") && events.contains("is back"), "{events}");

    // What is refused says why, and what to do.
    for (words, said) in [
        (vec!["drive", "emulate", "fail", "journal"], "is not emulated"),
        (vec!["drive", "emulate", "fail", "drive-9"], "no drive of the array has the path drive-9"),
        (vec!["drive", "emulate", "slow", "drive-1", "--factor", "1"], "2..=10000"),
    ] {
        let refused = lab.run(&words);
        assert!(refused.code != Some(0) && refused.stderr.contains(said), "{refused:?}");
    }
    let refused = lab.run(&["drive", "emulate", "hang", "journal", "-o", "json"]);
    assert!(refused.stderr.contains("urn:quoin:problem:not-emulated"), "{refused:?}");
    assert!(refused.stderr.contains("quoin.toml"), "{refused:?}");
    serving.terminate();
    assert_eq!(lab.json(&["check"])["ok"], true);
}

#[test]
fn drives_that_hang_fail_and_are_detached_come_back_with_their_content() {
    let lab = Lab::new();
    let mut serving = serve(&lab);
    let mut host = login(&lab);
    host.write(LUN, 0, &content(1)).unwrap();
    drop(host);
    for (action, state) in [("hang", "hung"), ("fail", "failing"), ("detach", "detached")] {
        let drives = ["drive-1", "drive-2"];
        let mut host = login(&lab);
        for drive in drives {
            let shown = lab.json(&["drive", "emulate", action, drive]);
            assert_eq!(shown["emulated"]["condition"], state);
        }
        // The checkpoint of a write needs the drives: the pool goes offline.
        let writer = thread::spawn(move || {
            (0..).take_while(|n| host.write(LUN, (n % 64) << 20, &content(2)).is_ok()).count()
        });
        lab.until(&["status"], |status| status["state"] == "offline");
        for drive in drives {
            lab.ok(&["drive", "emulate", "return", drive]);
        }
        writer.join().unwrap();
        let mut host = login(&lab);
        let read = host.read(LUN, 0, LONGEST_BYTES).unwrap();
        assert!(read == content(1) || read == content(2), "after {action}");
        host.write(LUN, 0, &content(1)).unwrap();
    }
    serving.terminate();
    assert_eq!(lab.json(&["check"])["ok"], true);
}

#[test]
fn a_scrub_finds_what_was_corrupted_at_rest() {
    let lab = Lab::new();
    let mut serving = serve(&lab);
    let mut host = login(&lab);
    for at in (0..32 << 20).step_by(LONGEST_BYTES) {
        host.write(LUN, at, &content(at as u8)).unwrap();
    }
    drop(host);
    // Until it is on the drive there is nothing to corrupt.
    let begun = Instant::now();
    while lab.run(&["drive", "emulate", "corrupt", "drive-1", "--pages", "40", "--seed", "3"]).code != Some(0)
    {
        assert!(begun.elapsed().as_secs() < 60, "nothing reaches the drive");
    }
    let shown = emulated(&lab.ready(), 0).clone();
    assert!(shown["corrupted_pages"].as_u64() > Some(0), "{shown}");
    lab.ok(&["scrub", "start"]);
    let scrub = lab.until(&["scrub", "status"], |scrub| !scrub["last"].is_null());
    assert!(!scrub["damaged"].as_array().unwrap().is_empty(), "{scrub}");
    serving.terminate();
}
