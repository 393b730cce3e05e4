//! Copies of ranges with the real array: by command line, under a kill, and what the offline check says of it.

use crate::initiator::Initiator;
use crate::lab::{Lab, Outcome};
use serde_json::{Value, json};

const NAME: &str = "iqn.2026-11.test:h1";
const MIB: u64 = 1 << 20;
const LEN: usize = 1 << 20;
const PIECE: usize = 8 << 10;

fn login(status: &Value) -> Initiator {
    let (portal, target) = (status["portals"][0].as_str().unwrap(), status["iqn"].as_str().unwrap());
    Initiator::login(portal, target, NAME)
}

fn content(number: u64) -> Vec<u8> {
    (0..LEN as u64 / 8).flat_map(|word| (number << 32 | word).to_le_bytes()).collect()
}

/// Writes a MiB to the first volume, as much at a time as goes with a command.
fn write(host: &mut Initiator, offset: u64, data: &[u8]) {
    for (n, piece) in data.chunks(PIECE).enumerate() {
        host.write(0, offset + (n * PIECE) as u64, piece).unwrap();
    }
}

/// A MiB of the second volume.
fn read(host: &mut Initiator, offset: u64) -> Vec<u8> {
    (0..LEN / PIECE).flat_map(|n| host.read(1, offset + (n * PIECE) as u64, PIECE).unwrap()).collect()
}

#[track_caller]
fn refused(outcome: &Outcome, code: i32, parts: &[&str]) {
    assert_eq!(outcome.code, Some(code), "{outcome:?}");
    parts.iter().for_each(|part| assert!(outcome.stderr.contains(part), "no {part:?} in {}", outcome.stderr));
}

#[test]
fn a_copy_is_begun_followed_cancelled_and_after_a_kill_interrupted() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "2", "--drive-size", "256M"]);
    let mut serving = lab.serve(&[]);
    let status = lab.ready();
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    for (lun, volume) in ["v1", "v2"].iter().enumerate() {
        lab.ok(&["volume", "create", volume, "--size", "32M"]);
        lab.ok(&["map", volume, "--host", "h1", "--lun", &lun.to_string()]);
    }
    let mut host = login(&status);
    for number in 0..32 {
        write(&mut host, number * MIB, &content(number));
    }
    let none = lab.run(&["volume", "copies"]);
    assert!(none.code == Some(0) && none.stderr.contains("no copies"), "{none:?}");
    let in_use = lab.run(&["volume", "copy", "v1", "v2"]);
    refused(&in_use, 1, &["volume v2 is in use", "host h1 sees v2 as LUN 1", "--force"]);
    let range = ["--from", "4M", "--to", "1M", "--length", "8M", "--force"];
    let outcome = lab.run(&[["volume", "copy", "v1", "v2"].as_slice(), &range].concat());
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    for part in
        ["v1, from byte 4194304", "v2, to byte 1048576", "state    done", "100.0 %, 8.0 MiB of 8.0 MiB"]
    {
        assert!(outcome.stdout.contains(part), "no {part:?} in {}", outcome.stdout);
    }
    for number in 0..8 {
        assert!(read(&mut host, (1 + number) * MIB) == content(4 + number), "MiB {number}");
    }
    assert!(read(&mut host, 0) == vec![0; LEN] && read(&mut host, 9 * MIB) == vec![0; LEN]);
    // It reads like written content: no host was told anything.
    assert_eq!(host.attention(1), None);
    drop(host);
    lab.until(&["session", "list"], |sessions| sessions.as_array().unwrap().is_empty());

    lab.ok(&["volume", "create", "small", "--size", "1M"]);
    let small = lab.run(&["volume", "copy", "v1", "small"]);
    refused(&small, 1, &["must have at least 33554432", "quoin volume grow small --size 33554432"]);
    refused(&lab.run(&["volume", "copy", "v1", "v2", "--from", "x"]), 2, &["\"x\" is not a size"]);
    refused(&lab.run(&["volume", "copies", "999"]), 1, &["there is no copy 999", "quoin volume copies"]);
    // One may have ended before it is cancelled.
    let cancel = || {
        let begun = lab.json(&["volume", "copy", "v1", "v2", "--no-wait"]);
        assert_eq!((&begun["state"], &begun["length_bytes"]), (&json!("running"), &json!(32 * MIB)));
        let outcome = lab.run(&["volume", "copy-cancel", &begun["id"].to_string(), "-o", "json"]);
        (outcome.code == Some(0)).then(|| serde_json::from_str::<Value>(&outcome.stdout).unwrap())
    };
    let cancelled = (0..20).find_map(|_| cancel()).unwrap();
    let id = cancelled["id"].to_string();
    refused(
        &lab.run(&["volume", "copy-cancel", &id]),
        1,
        &["has already ended", &format!("quoin volume copies {id}")],
    );
    assert!(lab.ok(&["volume", "copies"]).contains(cancelled["state"].as_str().unwrap()));

    let begun = lab.json(&["volume", "copy", "v1", "v2", "--no-wait"]);
    serving.kill();
    // The check waits until the kernel has let go of the drives. It knows what the copy was, and reports its volume nowhere.
    let checked = lab.json(&["check"]);
    assert_eq!((&checked["ok"], &checked["problems"]), (&json!(true), &json!([])));
    let names: Vec<_> = checked["space"]["volumes"].as_object().unwrap().keys().collect();
    assert!(names.iter().all(|name| ["v1", "v2", "small"].contains(&name.as_str())), "{names:?}");
    let mut serving = lab.serve(&[]);
    lab.ready();
    let id = begun["id"].to_string();
    let copy = lab.until(&["volume", "copies", &id], |copy| copy["state"] == "failed");
    assert!(copy["error"].as_str().unwrap().contains("interrupted"), "{copy}");
    let events = lab.ok(&["events", "--severity", "warning"]);
    assert!(events.contains(&format!("copy {id} of volume v1 was interrupted")), "{events}");
    assert_eq!(lab.json(&["volume", "list"]).as_array().unwrap().len(), 3);
    lab.ok(&["volume", "copy", "v1", "v2"]);
    serving.terminate();
    assert!(lab.ok(&["check"]).contains("no problems found: 3 volumes"), "check");
}
