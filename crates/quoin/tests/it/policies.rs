//! Policies on the real binary: volumes with different layouts and compression in one pool, changed while hosts use them and
//! over restarts.

use crate::{
    initiator::{Initiator, LONGEST_BYTES},
    lab::{Lab, Serving},
};
use serde_json::Value;
use std::time::Duration;

const NAME: &str = "iqn.2026-11.test:h1";
const PARTS: usize = 160;

fn part(lun: u8, at: usize) -> Vec<u8> {
    let seed = (at as u8).wrapping_mul(37) ^ lun;
    (0..LONGEST_BYTES).map(|byte| (byte / 512) as u8 ^ seed).collect()
}

fn login(lab: &Lab) -> Initiator {
    let status = lab.ready();
    Initiator::login(status["portals"][0].as_str().unwrap(), status["iqn"].as_str().unwrap(), NAME)
}

fn write(host: &mut Initiator, lun: u8, parts: usize) {
    for at in 0..parts {
        host.write(lun, (at * LONGEST_BYTES) as u64, &part(lun, at)).unwrap();
    }
}

#[track_caller]
fn check(host: &mut Initiator, lun: u8, parts: usize) {
    for at in 0..parts {
        let read = host.read(lun, (at * LONGEST_BYTES) as u64, LONGEST_BYTES).unwrap();
        assert!(read == part(lun, at), "part {at} of LUN {lun} differs");
    }
}

fn serve(lab: &Lab) -> Serving {
    let serving = lab.serve(&[]);
    lab.ready();
    serving
}

/// Waits until a volume is in this state.
fn until(lab: &Lab, volume: &str, state: &str) -> Value {
    lab.until(&["volume", "show", volume], |shown| shown["compliance"]["state"] == state)
}

#[test]
fn tables_on_parity_and_a_log_on_a_mirror_share_a_pool() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "4", "--drive-size", "256M", "--domain", "file", "--layout", "raid5"]);
    let mut serving = serve(&lab);
    lab.ok(&["policy", "create", "log", "--layout", "mirror"]);
    lab.ok(&["volume", "create", "data", "--size", "64M"]);
    lab.ok(&["volume", "create", "log", "--size", "64M", "--policy", "log"]);
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    lab.ok(&["map", "data", "log", "--host", "h1", "--lun", "1"]);
    let mut host = login(&lab);
    write(&mut host, 1, PARTS);
    write(&mut host, 2, PARTS);
    let log = until(&lab, "log", "compliant");
    assert_eq!((&log["policy"], &log["compliance"]["layout"]), (&"log".into(), &"mirror".into()));
    assert_eq!(lab.json(&["policy", "show", "default"])["layout"], "raid5");
    // A snapshot goes with its volume to another policy.
    lab.ok(&["snapshot", "create", "data", "before"]);
    lab.ok(&["volume", "set", "data", "--policy", "log"]);
    write(&mut host, 1, 20);
    let data = until(&lab, "data", "compliant");
    assert_eq!((&data["policy"], &data["compliance"]["layout"]), (&"log".into(), &"mirror".into()));
    let policy = lab.json(&["policy", "show", "log"]);
    assert_eq!((&policy["volumes"], &policy["converting"]), (&3.into(), &0.into()));
    check(&mut host, 1, PARTS);
    // A change of the policy is one of all its volumes; it goes on after a kill.
    lab.ok(&["policy", "set", "log", "--layout", "2+1"]);
    drop(host);
    serving.kill();
    let mut serving = serve(&lab);
    for volume in ["data", "log"] {
        let shown = until(&lab, volume, "compliant");
        assert_eq!(shown["compliance"]["layout"], "2+1");
    }
    let mut host = login(&lab);
    check(&mut host, 1, PARTS);
    check(&mut host, 2, PARTS);
    drop(host);
    assert!(serving.stop_within(Duration::from_secs(30)));
    lab.ok(&["check"]);
}

#[test]
fn what_cannot_be_placed_is_refused_or_placed_in_part_until_drives_come() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "2", "--drive-size", "256M", "--domain", "file"]);
    let _serving = serve(&lab);
    let refused = lab.run(&["policy", "create", "wide", "--layout", "raid5"]);
    for said in [
        "layout raid5 (3+1) needs 4 fault domains, and the pool has 2: add drives in 2 others, or choose mirror",
        "--force-provisioning",
    ] {
        assert!(refused.code == Some(1) && refused.stderr.contains(said), "{said:?} is not in {refused:?}");
    }
    let refused = lab.run(&["policy", "create", "weak", "--layout", "none"]);
    assert!(
        refused.stderr.contains(
            "layout none tolerates 0 failures, and the layout of the pool 1 failure; the whole pool"
        ),
        "{refused:?}"
    );
    let refused = lab.run(&["policy", "set", "default", "--layout", "mirror"]);
    assert!(refused.stderr.contains("has the layout of the pool"), "{refused:?}");
    lab.ok(&["policy", "create", "wide", "--layout", "2+1", "--force-provisioning"]);
    lab.ok(&["volume", "create", "v", "--size", "64M", "--policy", "wide"]);
    let refused = lab.run(&["policy", "delete", "wide"]);
    assert!(refused.stderr.contains("is that of 1 volumes"), "{refused:?}");
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    lab.ok(&["map", "v", "--host", "h1", "--lun", "1"]);
    let mut host = login(&lab);
    write(&mut host, 1, PARTS);
    let reduced = until(&lab, "v", "reduced");
    assert_eq!(reduced["compliance"]["layout_now"], "mirror");
    assert!(lab.ok(&["policy", "status"]).contains("REDUCED to mirror"), "{}", lab.ok(&["policy", "status"]));
    // A drive in a third domain makes it good.
    let drive = lab.data().join("third");
    std::fs::File::create(&drive).and_then(|file| file.set_len(256 << 20)).unwrap();
    lab.ok(&["drive", "add", &drive.display().to_string(), "--domain", "third"]);
    let good = until(&lab, "v", "compliant");
    assert_eq!(good["compliance"]["layout_now"], "2+1");
    check(&mut host, 1, PARTS);
    lab.ok(&["volume", "delete", "v", "--unmap", "--force", "--now"]);
    lab.ok(&["policy", "delete", "wide"]);
}

#[test]
fn a_policy_makes_its_volumes_thick_or_thin_or_says_what_is_lacking() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "6", "--drive-size", "160M", "--domain", "file", "--journal-copies", "3"]);
    let mut serving = serve(&lab);
    let thick = |volume: &str| lab.json(&["volume", "show", volume])["thick"] == true;
    let state = |volume: &str| lab.json(&["volume", "show", volume])["compliance"]["state"].clone();
    let policy = lab.json(&["policy", "create", "gold", "--reservation", "thick"]);
    assert_eq!((&policy["layout"], &policy["reservation"]), (&"mirror".into(), &"thick".into()));
    let refused = lab.run(&["policy", "create", "none"]);
    assert!(refused.code == Some(2), "{refused:?}");
    // New volumes, those that get the policy, and clones.
    lab.ok(&["volume", "create", "a", "--size", "32M", "--policy", "gold"]);
    lab.ok(&["volume", "create", "b", "--size", "32M"]);
    assert!(thick("a") && !thick("b"));
    lab.ok(&["volume", "set", "b", "--policy", "gold"]);
    lab.ok(&["snapshot", "create", "b", "s"]);
    lab.ok(&["volume", "clone", "b", "c"]);
    assert!(thick("b") && thick("c") && !thick("s"));
    assert_eq!((state("s"), state("c")), ("compliant".into(), "compliant".into()));
    // One that is too large is refused, and stays what it was.
    lab.ok(&["volume", "create", "large", "--size", "4G"]);
    let refused = lab.run(&["volume", "set", "large", "--policy", "gold"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("large"), "{refused:?}");
    assert!(!thick("large") && lab.json(&["volume", "show", "large"])["policy"] == "default");
    // The policy is changed: all of its volumes, over a kill; and nothing, if one of them has no room.
    lab.ok(&["policy", "set", "gold", "--reservation", "thin"]);
    serving.kill();
    let mut serving = serve(&lab);
    assert!(!thick("a") && !thick("b") && !thick("c"));
    lab.ok(&["volume", "set", "large", "--policy", "gold"]);
    let refused = lab.run(&["policy", "set", "gold", "--reservation", "thick"]);
    assert!(refused.code == Some(1), "{refused:?}");
    assert!(!thick("a") && lab.json(&["policy", "show", "gold"])["reservation"] == "thin");
    // What is set for itself stays, and is told.
    lab.ok(&["volume", "set", "a", "--thick"]);
    assert_eq!(state("a"), "differs");
    assert_eq!(lab.json(&["policy", "show", "gold"])["differing"], 1);
    assert!(lab.ok(&["policy", "status"]).contains("thick, and its policy says thin"));
    lab.ok(&["policy", "set", "gold", "--reservation", "any"]);
    assert_eq!(state("a"), "compliant");
    // The array chooses how wide a layout is: one of six domains stays free.
    let wide = lab.json(&["policy", "create", "wide", "--layout", "wide"]);
    assert_eq!((&wide["layout"], &wide["failures_to_tolerate"]), (&"3+2".into(), &2.into()));
    assert!(serving.stop_within(Duration::from_secs(30)));
    lab.ok(&["check"]);
}

#[test]
fn what_a_volume_has_is_reduced_on_request() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "2", "--drive-size", "256M", "--domain", "file", "--layout", "mirror"]);
    let mut serving = serve(&lab);
    lab.ok(&["volume", "create", "a", "--size", "64M"]);
    let refused = lab.run(&["volume", "reduce", "a"]);
    let next = "set --compression or --dedup first, such as: quoin volume set a --compression lz4";
    assert!(refused.code == Some(1) && refused.stderr.contains(next), "{refused:?}");
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    lab.ok(&["map", "a", "--host", "h1", "--lun", "1"]);
    let mut host = login(&lab);
    write(&mut host, 1, PARTS);
    drop(host);
    // When the array is stopped, what was written is stored as it is.
    assert!(serving.stop_within(Duration::from_secs(30)));
    let mut serving = serve(&lab);
    let physical = || lab.json(&["space"])["physical_bytes"].as_u64().unwrap();
    let before = physical();
    lab.ok(&["volume", "set", "a", "--compression", "lz4"]);
    assert_eq!(physical(), before);
    let told = lab.ok(&["volume", "reduce", "a", "--wait"]);
    for said in [": done, 100.0 %, 10.0 MiB of 10.0 MiB", "volume a, ", " bytes saved"] {
        assert!(told.contains(said), "{said:?} is not in {told}");
    }
    lab.until(&["space"], |space| space["physical_bytes"].as_u64().unwrap() < before / 2);
    let job = lab.json(&["job", "list", "--kind", "reduce"])[0].clone();
    assert_eq!((&job["state"], &job["survives_restart"]), (&"done".into(), &false.into()), "{job}");
    // A second pass finds nothing to do; one that has ended cannot be cancelled.
    let again = lab.json(&["volume", "reduce", "a", "--wait"]);
    assert_eq!((&again["id"], &again["object"]), (&job["id"], &"volume a, 0 bytes saved".into()));
    let refused = lab.run(&["job", "cancel", job["id"].as_str().unwrap()]);
    assert!(refused.code == Some(1) && refused.stderr.contains("has ended: it is done"), "{refused:?}");
    let events = lab.ok(&["events", "--object", "volume a"]);
    assert!(events.contains("what it has is reduced: of 1280 blocks 1280 became shorter"), "{events}");
    let mut host = login(&lab);
    check(&mut host, 1, PARTS);
    drop(host);
    assert!(serving.stop_within(Duration::from_secs(30)));
    lab.ok(&["check"]);
}

#[test]
fn volumes_are_deduplicated_as_they_or_their_policy_say() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "2", "--drive-size", "256M", "--domain", "file", "--layout", "mirror"]);
    let mut serving = serve(&lab);
    let deduplication = |volume: &str| lab.json(&["volume", "show", volume])["deduplication"].clone();
    let state = |volume: &str| lab.json(&["volume", "show", volume])["compliance"]["state"].clone();
    for command in [["volume", "set"], ["policy", "create"], ["policy", "set"]] {
        let refused = lab.run(&[&command[..], &["x", "--dedup", "yes"]].concat());
        let choices = if command[0] == "volume" { "on or off" } else { "on, off or any" };
        assert!(refused.code == Some(2) && refused.stderr.contains(choices), "{refused:?}");
    }
    // For a volume itself, from what is written next on.
    let made = lab.json(&["volume", "create", "a", "--size", "64M", "--dedup", "on"]);
    assert_eq!((&made["deduplication"], &made["compression"]), (&"on".into(), &"off".into()));
    lab.ok(&["volume", "create", "b", "--size", "64M"]);
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    lab.ok(&["map", "a", "b", "--host", "h1", "--lun", "1"]);
    let mut host = login(&lab);
    write(&mut host, 1, PARTS);
    assert_eq!(lab.json(&["volume", "set", "b", "--dedup", "on"])["deduplication"], "on");
    write(&mut host, 2, PARTS);
    let row = |line: &str| line.split_whitespace().eq(["deduplication", "on"]);
    assert!(lab.ok(&["volume", "show", "b"]).lines().any(row));
    // By a policy, which has the layout of the pool; what is said for a volume itself goes before it.
    let policy = lab.json(&["policy", "create", "desktops", "--dedup", "on"]);
    assert_eq!((&policy["layout"], &policy["deduplication"]), (&"mirror".into(), &"on".into()));
    lab.ok(&["volume", "create", "c", "--size", "64M", "--policy", "desktops"]);
    lab.ok(&["volume", "create", "d", "--size", "64M", "--policy", "desktops", "--dedup", "off"]);
    assert_eq!((state("c"), state("d")), ("compliant".into(), "differs".into()));
    let shown = lab.ok(&["policy", "status"]);
    assert!(shown.contains("deduplication off, and its policy says on: quoin volume set --dedup on"));
    lab.ok(&["policy", "set", "desktops", "--dedup", "any"]);
    // All of it is there over a kill.
    serving.kill();
    let mut serving = serve(&lab);
    for (volume, expected) in [("a", "on"), ("b", "on"), ("c", "on"), ("d", "off")] {
        assert_eq!((deduplication(volume), state(volume)), (expected.into(), "compliant".into()), "{volume}");
    }
    let mut host = login(&lab);
    check(&mut host, 1, PARTS);
    check(&mut host, 2, PARTS);
    assert!(serving.stop_within(Duration::from_secs(30)));
    lab.ok(&["check"]);
}

#[test]
fn volumes_are_compressed_as_they_or_their_policy_say() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "2", "--drive-size", "256M", "--domain", "file", "--layout", "mirror"]);
    let mut serving = serve(&lab);
    let compression = |volume: &str| lab.json(&["volume", "show", volume])["compression"].clone();
    let state = |volume: &str| lab.json(&["volume", "show", volume])["compliance"]["state"].clone();
    // What is none is refused with those that there are.
    for command in [["volume", "create"], ["volume", "set"], ["policy", "create"], ["policy", "set"]] {
        let size: &[&str] = if command == ["volume", "create"] { &["--size", "1G"] } else { &[] };
        let refused = lab.run(&[&command, &["x", "--compression", "gzip"][..], size].concat());
        let choices = if command[0] == "volume" { "off, lz4 or zstd" } else { "off, lz4, zstd or any" };
        assert!(refused.code == Some(2) && refused.stderr.contains(choices), "{refused:?}");
    }
    // For a volume itself, from what is written next on.
    let made = lab.json(&["volume", "create", "a", "--size", "64M", "--compression", "lz4"]);
    assert_eq!(made["compression"], "lz4");
    lab.ok(&["volume", "create", "b", "--size", "64M"]);
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    lab.ok(&["map", "a", "b", "--host", "h1", "--lun", "1"]);
    let mut host = login(&lab);
    write(&mut host, 1, PARTS);
    assert_eq!(lab.json(&["volume", "set", "b", "--compression", "zstd"])["compression"], "zstd");
    write(&mut host, 2, PARTS);
    let row = |line: &str| line.split_whitespace().eq(["compression", "zstd"]);
    assert!(lab.ok(&["volume", "show", "b"]).lines().any(row));
    // By a policy, which has the layout of the pool; what is said for a volume itself goes before it.
    let policy = lab.json(&["policy", "create", "packed", "--compression", "zstd"]);
    assert_eq!((&policy["layout"], &policy["compression"]), (&"mirror".into(), &"zstd".into()));
    lab.ok(&["volume", "create", "c", "--size", "64M", "--policy", "packed"]);
    lab.ok(&["volume", "create", "d", "--size", "64M", "--policy", "packed", "--compression", "off"]);
    assert_eq!((compression("c"), compression("d")), ("zstd".into(), "off".into()));
    assert_eq!((state("c"), state("d")), ("compliant".into(), "differs".into()));
    let shown = lab.ok(&["policy", "status"]);
    assert!(shown.contains("compression off, and its policy says zstd: quoin volume set --compression zstd"));
    lab.ok(&["snapshot", "create", "d", "s"]);
    lab.ok(&["policy", "set", "packed", "--compression", "lz4"]);
    assert_eq!(
        (compression("c"), compression("d"), compression("s")),
        ("lz4".into(), "lz4".into(), "off".into())
    );
    let metrics = lab.metrics();
    for name in ["compressed_blocks", "compressed_bytes", "incompressible_blocks", "not_compressed_blocks"] {
        assert!(metrics.contains(&format!("\nquoin_pool_{name}_total ")), "{name}: {metrics}");
    }
    // All of it is there over a kill.
    serving.kill();
    let mut serving = serve(&lab);
    for (volume, expected) in [("a", "lz4"), ("b", "zstd"), ("c", "lz4"), ("d", "lz4"), ("s", "off")] {
        assert_eq!((compression(volume), state(volume)), (expected.into(), "compliant".into()), "{volume}");
    }
    assert_eq!(lab.json(&["policy", "show", "packed"])["compression"], "lz4");
    let mut host = login(&lab);
    check(&mut host, 1, PARTS);
    check(&mut host, 2, PARTS);
    assert!(serving.stop_within(Duration::from_secs(30)));
    lab.ok(&["check"]);
}
