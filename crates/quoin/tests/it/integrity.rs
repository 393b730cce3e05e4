//! Damage to drives as people and hosts meet it: a scrub finds it, hosts get medium errors for exactly what is damaged, and
//! what is written over it reads well. And what is reported of space, against the offline check.

use crate::initiator::{Initiator, Sense};
use crate::lab::Lab;
use serde_json::{Value, json};
use std::{fs::File, os::unix::fs::FileExt};

const NAME: &str = "iqn.2026-11.test:h1";
const BLOCK: usize = 8192;
/// MEDIUM ERROR, UNRECOVERED READ ERROR.
const MEDIUM: Sense = (0x3, 0x11, 0x00);
const V1: u8 = 1;
const V2: u8 = 2;
const DRIVE_BYTES: u64 = 256 << 20;

fn content(lun: u8, block: u64) -> Vec<u8> {
    let stamp = u64::from(lun) << 56 | (block + 1) << 24;
    (0..BLOCK as u64 / 8).flat_map(|word| (stamp | word).to_le_bytes()).collect()
}

fn login(status: &Value) -> Initiator {
    let (portal, target) = (status["portals"][0].as_str().unwrap(), status["iqn"].as_str().unwrap());
    Initiator::login(portal, target, NAME)
}

fn write(host: &mut Initiator, lun: u8, blocks: std::ops::Range<u64>) {
    for block in blocks {
        host.write(lun, block * BLOCK as u64, &content(lun, block)).unwrap();
    }
}

/// Flips a bit in every page of the drive that `is_it` picks; how many there were.
fn damage(lab: &Lab, is_it: impl Fn(&[u8]) -> bool) -> usize {
    let drive = File::options().read(true).write(true).open(lab.data().join("drives/drive-1")).unwrap();
    let mut chunk = vec![0; 1 << 20];
    let mut found = 0;
    for at in (0..DRIVE_BYTES).step_by(chunk.len()) {
        drive.read_exact_at(&mut chunk, at).unwrap();
        for (n, page) in chunk.chunks(4096).enumerate().filter(|(_, page)| is_it(page)) {
            drive.write_all_at(&[page[4000] ^ 4], at + n as u64 * 4096 + 4000).unwrap();
            found += 1;
        }
    }
    found
}

/// A leaf of the first layer of the second volume: blocks it was given one after the other.
fn is_leaf_of_second(page: &[u8]) -> bool {
    let word = |i: usize| u64::from_le_bytes(page[i * 8..i * 8 + 8].try_into().unwrap());
    let first = word(0);
    first >> 40 == 2 && first & 0xff_ffff_ffff > 0 && (1..40).all(|i| word(i) == first + i as u64)
}

#[test]
fn a_scrub_finds_damage_hosts_get_medium_errors_for_it_alone_and_overwriting_heals() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "1", "--drive-size", "256M"]);
    let mut serving = lab.serve(&[]);
    let status = lab.ready();
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    for (name, lun) in [("v1", "1"), ("v2", "2")] {
        lab.ok(&["volume", "create", name, "--size", "64M"]);
        lab.ok(&["map", name, "--host", "h1", "--lun", lun]);
    }
    let mut host = login(&status);
    write(&mut host, V1, 0..300);
    write(&mut host, V2, 0..100);
    drop(host);
    let set = lab.json(&["scrub", "set", "--schedule", "daily", "--at", "04:05", "--rate", "0"]);
    assert_eq!(
        (&set["schedule"], &set["at"], &set["rate_bytes_s"]),
        (&json!("daily"), &json!("04:05"), &json!(0))
    );
    serving.terminate();

    for block in [7, 8, 200] {
        let begin = content(V1, block)[..512].to_vec();
        assert!(damage(&lab, |page| page[..512] == begin[..]) > 0, "block {block} is not on the drive");
    }
    assert!(damage(&lab, is_leaf_of_second) > 0, "the leaf is not on the drive");

    let mut serving = lab.serve(&[]);
    let status = lab.ready();
    let set = lab.json(&["scrub", "status"]);
    assert_eq!(
        (&set["schedule"], &set["at"], &set["last"]),
        (&json!("daily"), &json!("04:05"), &Value::Null)
    );
    assert_eq!(lab.run(&["scrub", "stop"]).code, Some(1));
    lab.ok(&["scrub", "start"]);
    let scrubbed = lab.until(&["scrub", "status"], |status| !status["last"].is_null());
    let last = &scrubbed["last"];
    assert_eq!(last["outcome"], "completed", "{scrubbed}");
    assert_eq!(
        (&last["found"]["damaged_blocks"], &last["found"]["damaged_pages"]),
        (&json!(3), &json!(1)),
        "{scrubbed}"
    );
    let ranges = |status: &Value| -> Vec<(String, u64, u64)> {
        let number = |value: &Value| value.as_u64().unwrap() / BLOCK as u64;
        let all = status["damaged"].as_array().unwrap();
        all.iter()
            .map(|d| {
                (
                    d["volume"].as_str().unwrap().to_owned(),
                    number(&d["offset_bytes"]),
                    number(&d["length_bytes"]),
                )
            })
            .collect()
    };
    let damaged = |v: &str, first, blocks| (v.to_owned(), first, blocks);
    assert_eq!(ranges(&scrubbed), [damaged("v1", 7, 2), damaged("v1", 200, 1), damaged("v2", 0, 512)]);
    assert_eq!(lab.json(&["status"])["integrity"]["damaged_ranges"], 3);
    assert!(lab.ok(&["status"]).contains("DAMAGED: 3 ranges"));
    let events = lab.json(&["events", "--severity", "error"]).to_string();
    assert!(
        events.contains("volume v1") && events.contains("bytes 57344 to 73727 cannot be read"),
        "{events}"
    );

    let mut host = login(&status);
    for block in 0..300 {
        let read = host.read(V1, block * BLOCK as u64, BLOCK);
        match block {
            7 | 8 | 200 => assert_eq!(read, Err(MEDIUM), "block {block}"),
            _ => assert_eq!(read.unwrap(), content(V1, block), "block {block}"),
        }
    }
    for block in [0, 99, 300, 511] {
        assert_eq!(host.read(V2, block * BLOCK as u64, BLOCK), Err(MEDIUM), "block {block} of v2");
    }
    assert!(host.read(V2, 512 * BLOCK as u64, BLOCK).unwrap().iter().all(|byte| *byte == 0));

    write(&mut host, V1, 7..9);
    assert_eq!(host.read(V1, 7 * BLOCK as u64, BLOCK).unwrap(), content(V1, 7));
    let now = lab.json(&["scrub", "status"]);
    assert_eq!(ranges(&now), [damaged("v1", 200, 1), damaged("v2", 0, 512)]);
    write(&mut host, V1, 200..201);
    drop(host);
    lab.ok(&["unmap", "v2", "--host", "h1", "--force"]);
    assert_eq!(ranges(&lab.json(&["scrub", "status"])), [damaged("v2", 0, 512)]);
    serving.terminate();

    // Kept over the restart, and what was healed stays so.
    let mut serving = lab.serve(&[]);
    let status = lab.ready();
    let kept = lab.json(&["scrub", "status"]);
    assert_eq!((&kept["last"], ranges(&kept)), (last, vec![damaged("v2", 0, 512)]));
    let mut host = login(&status);
    for block in [7, 8, 200] {
        assert_eq!(host.read(V1, block * BLOCK as u64, BLOCK).unwrap(), content(V1, block));
    }
    drop(host);
    serving.terminate();
}

#[test]
fn what_is_reported_of_space_is_what_the_check_finds() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "1", "--drive-size", "256M"]);
    let mut serving = lab.serve(&[]);
    let status = lab.ready();
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    lab.ok(&["volume", "create", "v1", "--size", "64M"]);
    lab.ok(&["volume", "create", "v2", "--size", "32M", "--thick"]);
    for (name, lun) in [("v1", "1"), ("v2", "2")] {
        lab.ok(&["map", name, "--host", "h1", "--lun", lun]);
    }
    let mut host = login(&status);
    write(&mut host, V1, 0..300);
    write(&mut host, V2, 0..100);
    write(&mut host, V1, 50..60);
    drop(host);
    serving.terminate();
    let mut serving = lab.serve(&[]);
    lab.ready();
    let mib = |bytes: u64| json!(bytes << 20);
    let blocks = |count: u64| json!(count * BLOCK as u64);
    let pool = lab.json(&["space"]);
    assert_eq!((&pool["provisioned_bytes"], &pool["written_bytes"]), (&mib(96), &blocks(400)));
    assert_eq!((&pool["unique_bytes"], &pool["buffered_bytes"]), (&blocks(400), &json!(0)));
    assert_eq!((&pool["sharing_ratio"], &pool["settled"]), (&json!(1.0), &json!(true)));
    assert_eq!(pool["thin_ratio"], pool["efficiency_ratio"]);
    assert!(pool["metadata_bytes"].as_u64().unwrap() > 0);
    let v2 = lab.json(&["space", "volume", "v2"]);
    assert_eq!(
        (&v2["written_bytes"], &v2["own_bytes"], &v2["shared_bytes"]),
        (&blocks(100), &blocks(100), &json!(0))
    );
    assert_eq!((&v2["freed_min_bytes"], &v2["freed_max_bytes"]), (&blocks(100), &blocks(100)));
    assert_eq!(v2["reserved_unused_bytes"], json!((32 << 20) - 100 * BLOCK as u64));
    // A snapshot shares all; what is written since, only it holds.
    lab.ok(&["snapshot", "create", "v1", "v1.s"]);
    let mut host = login(&lab.ready());
    write(&mut host, V1, 0..30);
    drop(host);
    serving.terminate();
    let mut serving = lab.serve(&[]);
    lab.ready();
    lab.ok(&["group", "create", "g1", "--volume", "v1", "--volume", "v2"]);
    let figures = |args: &[&str], names: &[&str]| -> Vec<Value> {
        let space = lab.json(args);
        names.iter().map(|name| space[*name].clone()).collect()
    };
    let names =
        ["written_bytes", "own_bytes", "held_by_snapshots_bytes", "freed_min_bytes", "freed_max_bytes"];
    let expected = |counts: [u64; 5]| counts.map(blocks).to_vec();
    assert_eq!(figures(&["space", "volume", "v1"], &names), expected([300, 30, 30, 30, 300]));
    assert_eq!(figures(&["space", "volume", "v1.s"], &names), expected([300, 0, 0, 30, 300]));
    assert_eq!(figures(&["space", "group", "g1"], &names), expected([400, 130, 30, 130, 400]));
    let names = ["written_bytes", "unique_bytes", "held_by_snapshots_bytes"];
    assert_eq!(figures(&["space"], &names), [blocks(700), blocks(430), blocks(30)]);
    let pool = lab.json(&["space"]);
    assert!(lab.ok(&["space"]).contains("efficiency"));
    assert!(lab.ok(&["space", "volume", "v1"]).contains("a deletion frees"));
    assert_eq!(lab.run(&["space", "volume", "v9"]).code, Some(1));
    serving.terminate();
    let checked = lab.json(&["check"]);
    assert_eq!((&checked["ok"], &checked["space"]["unique_bytes"]), (&json!(true), &pool["unique_bytes"]));
    assert_eq!(checked["space"]["volumes"]["v2"]["freed_bytes"], v2["freed_min_bytes"], "{checked}");
}
