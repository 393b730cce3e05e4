//! More drives are lost than the layout tolerates, on the real binary: the array names the volumes and ranges that cannot be
//! read, hosts get medium errors for exactly these, and when the drives are back all is there.

use crate::{
    initiator::{Initiator, LONGEST_BYTES, Sense},
    lab::Lab,
};
use serde_json::Value;

const NAME: &str = "iqn.2026-11.test:h1";
/// MEDIUM ERROR, UNRECOVERED READ ERROR.
const MEDIUM: Sense = (0x3, 0x11, 0x00);
const BLOCK: usize = 8192;
/// The volume that was written before the losses, and the one that is written meanwhile.
const OLD: u8 = 1;
const BUSY: u8 = 2;
const PARTS: usize = 512;
const LOST: [&str; 3] = ["drive-1", "drive-2", "drive-4"];

fn part(at: usize) -> Vec<u8> {
    (0..LONGEST_BYTES).map(|byte| (byte / 512) as u8 ^ (at as u8).wrapping_mul(29)).collect()
}

fn login(lab: &Lab) -> Initiator {
    let status = lab.ready();
    Initiator::login(status["portals"][0].as_str().unwrap(), status["iqn"].as_str().unwrap(), NAME)
}

fn metric(lab: &Lab, name: &str) -> u64 {
    let told = lab.metrics();
    let value = told.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in {told}")).parse().unwrap()
}

/// What is listed of a volume: the blocks, and the drives that are away.
fn listed(all: &Value, volume: &str) -> (Vec<usize>, Vec<String>) {
    let of = all.as_array().unwrap().iter().find(|of| of["volume"] == volume);
    let of = of.unwrap_or_else(|| panic!("{volume} is not in {all}"));
    let (mut blocks, number) = (Vec::new(), |value: &Value| value.as_u64().unwrap() as usize);
    for range in of["ranges"].as_array().unwrap() {
        assert_eq!(range["cause"], "away", "{of}");
        let (offset, length) = (number(&range["offset_bytes"]), number(&range["length_bytes"]));
        assert!(length > 0 && offset.is_multiple_of(BLOCK) && length.is_multiple_of(BLOCK), "{range}");
        blocks.extend((offset..offset + length).step_by(BLOCK).map(|at| at / BLOCK));
    }
    assert!(blocks.is_sorted_by(|a, b| a < b), "{of}");
    assert_eq!((number(&of["away_bytes"]), &of["more_ranges"]), (blocks.len() * BLOCK, &0.into()), "{of}");
    let name = |drive: &Value| drive.as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    (blocks, of["drives"].as_array().unwrap().iter().map(name).collect())
}

#[test]
fn three_drives_of_a_mirror_are_lost_and_come_back() {
    let lab = Lab::new();
    let speed = "15k,iops=2000,latency_ms=0.5";
    lab.ok(&[
        "init",
        "--drives",
        "6",
        "--drive-size",
        "256M",
        "--domain",
        "file",
        "--layout",
        "mirror",
        "--emulate",
        speed,
    ]);
    let mut serving = lab.serve(&[]);
    lab.ready();
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    for (name, lun) in [("v1", "1"), ("v2", "2")] {
        lab.ok(&["volume", "create", name, "--size", "64M"]);
        lab.ok(&["map", name, "--host", "h1", "--lun", lun]);
    }
    let mut host = login(&lab);
    for at in 0..PARTS {
        host.write(OLD, (at * LONGEST_BYTES) as u64, &part(at)).unwrap();
    }
    lab.ok(&["snapshot", "create", "v1", "before"]);
    assert_eq!(lab.json(&["volume", "unreadable"]), Value::Array(Vec::new()));

    for (n, drive) in (1..).zip(LOST) {
        lab.ok(&["drive", "emulate", "detach", drive]);
        // The loss is noticed by what hosts write, which goes on, and is settled before the next one.
        lab.until(&["status"], |status| {
            host.write(BUSY, 0, &part(n)).unwrap();
            let protection = &status["protection"];
            protection["absent_drives"] == n && protection["settled"] == true
        });
    }
    let status = lab.until(&["status"], |status| status["state"] == "online");
    assert!(status["protection"]["unreadable_bytes"].as_u64() > Some(0), "{status}");
    let shown = lab.ok(&["status"]);
    for said in ["unreadable", "see quoin volume unreadable", "bring the drives back that are away"] {
        assert!(shown.contains(said), "{said:?} is not in {shown}");
    }
    assert!(metric(&lab, "quoin_unreadable_bytes") > 0);
    let all = lab.json(&["volume", "unreadable"]);
    let (blocks, drives) = listed(&all, "v1");
    assert!(!blocks.is_empty() && blocks.len() < PARTS * LONGEST_BYTES / BLOCK, "{blocks:?}");
    assert!(drives.iter().all(|drive| LOST.contains(&drive.as_str())) && drives.len() > 1, "{drives:?}");
    assert_eq!(listed(&all, "before"), (blocks.clone(), drives), "the snapshot shares them");
    assert_eq!(listed(&lab.json(&["volume", "unreadable", "v1"]), "v1").0, blocks);
    let text = lab.ok(&["volume", "unreadable", "v1", "--limit", "1"]);
    assert!(text.contains("CANNOT BE READ") && text.contains("until drives are back"), "{text}");
    let events = lab.until(&["events", "--severity", "error"], |events| {
        events.to_string().contains("until drives are back, these cannot be read")
    });
    let text = events.to_string();
    assert!(text.contains(&format!("{} bytes of v1", blocks.len() * BLOCK)), "{text}");
    assert!(text.contains("bytes of before"), "{text}");

    let is_listed = |block: usize| blocks.binary_search(&block).is_ok();
    let read_all = |host: &mut Initiator, is_listed: &dyn Fn(usize) -> bool| {
        for block in 0..PARTS * LONGEST_BYTES / BLOCK {
            let at = block * BLOCK;
            let read = host.read(OLD, at as u64, BLOCK);
            if is_listed(block) {
                assert_eq!(read, Err(MEDIUM), "block {block}");
            } else {
                let whole = part(at / LONGEST_BYTES);
                assert!(read.unwrap() == whole[at % LONGEST_BYTES..][..BLOCK], "block {block}");
            }
        }
    };
    read_all(&mut host, &is_listed);
    assert!(host.read(BUSY, 0, LONGEST_BYTES).unwrap() == part(LOST.len()), "new data serves");

    for drive in LOST {
        lab.ok(&["drive", "emulate", "return", drive]);
    }
    lab.until(&["status"], |status| status["protection"]["absent_drives"] == 0);
    assert_eq!(lab.json(&["volume", "unreadable"]), Value::Array(Vec::new()));
    read_all(&mut host, &|_| false);
    lab.until(&["events"], |events| events.to_string().contains("can be read again"));
    let told = lab.json(&["events"]).to_string();
    assert_eq!(told.matches("while drives were away can be read again").count(), 1, "{told}");
    drop(host);
    serving.terminate();
    assert_eq!(lab.json(&["check"])["ok"], true);
}
