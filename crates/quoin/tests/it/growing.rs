//! A pool that grows with its drives on the real binary, while a host fills a volume, and across kills.

use crate::{
    initiator::{Initiator, LONGEST_BYTES, Sense},
    lab::Lab,
};
use serde_json::Value;
use std::{fs, path::PathBuf};

const NAME: &str = "iqn.2026-11.test:h1";
const LUN: u8 = 1;
const UNIT: u64 = LONGEST_BYTES as u64;
/// DATA PROTECT, SPACE ALLOCATION FAILED WRITE PROTECT.
const FULL: Sense = (0x7, 0x27, 0x07);

fn part(at: u64) -> Vec<u8> {
    (0..UNIT / 8).flat_map(|word| (at << 32 | word).to_le_bytes()).collect()
}

fn login(lab: &Lab) -> Initiator {
    let status = lab.ready();
    Initiator::login(status["portals"][0].as_str().unwrap(), status["iqn"].as_str().unwrap(), NAME)
}

/// Writes one part behind the other until the pool is full. Returns where it stopped.
fn fill(lab: &Lab, from: u64) -> u64 {
    let mut host = login(lab);
    let full = (from..).find(|at| match host.write(LUN, at * UNIT, &part(*at)) {
        Ok(()) => false,
        Err(FULL) => true,
        Err(sense) => panic!("part {at}: {sense:x?}"),
    });
    full.unwrap()
}

#[track_caller]
fn check_all(lab: &Lab, parts: u64) {
    let mut host = login(lab);
    for at in 0..parts {
        assert!(host.read(LUN, at * UNIT, LONGEST_BYTES).unwrap() == part(at), "part {at}");
    }
}

fn files(lab: &Lab) -> Vec<PathBuf> {
    (1..=3).map(|drive| lab.data().join(format!("drives/drive-{drive}"))).collect()
}

fn lens(lab: &Lab) -> Vec<u64> {
    files(lab).iter().map(|path| fs::metadata(path).unwrap().len()).collect()
}

fn lengthen(path: &PathBuf, bytes: u64) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() + bytes).unwrap();
}

#[track_caller]
fn refused(lab: &Lab, args: &[&str], said: &[&str]) {
    let outcome = lab.run(&[&["pool", "expand"], args].concat());
    assert_eq!(outcome.code, Some(1), "{args:?}: {outcome:?}");
    for said in said {
        assert!(outcome.stderr.contains(said), "{said:?} is not in {outcome:?}");
    }
}

#[test]
fn a_full_pool_grows_with_its_files_and_what_was_written_is_there_after_a_kill() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "3", "--drive-size", "384M", "--domain", "file", "--layout", "mirror"]);
    let mut serving = lab.serve(&[]);
    lab.ready();
    lab.ok(&["volume", "create", "v", "--size", "2G"]);
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    lab.ok(&["map", "v", "--host", "h1", "--lun", "1"]);
    let first = fill(&lab, 0);
    let usable = |lab: &Lab| lab.json(&["space"])["usable_bytes"].as_u64().unwrap();
    let (before, old) = (usable(&lab), lens(&lab));

    // What it would come to, and nothing more.
    let planned = lab.json(&["pool", "expand", "--by", "50%", "--dry-run"]);
    assert_eq!((&planned["dry_run"], &planned["layout"]), (&true.into(), &"mirror".into()));
    assert_eq!(planned["drives"].as_array().unwrap().len(), 3, "{planned}");
    assert_eq!(planned["drives"][0]["size_after_bytes"], 576 << 20, "{planned}");
    assert_eq!((usable(&lab), lens(&lab)), (before, old.clone()));
    let shown = lab.ok(&["pool", "expand", "--by", "50%", "--dry-run"]);
    assert!(shown.contains("drive-3") && shown.contains("nothing was changed"), "{shown}");

    let grown = lab.json(&["pool", "expand", "--by", "50%"]);
    assert_eq!((&grown["dry_run"], &grown["drives"]), (&false.into(), &planned["drives"]));
    assert_eq!(lens(&lab), [576 << 20; 3]);
    let after = grown["usable_after_bytes"].as_u64().unwrap();
    assert!(after > before + (100 << 20), "{grown}");
    assert!(planned["usable_after_bytes"].as_u64().unwrap().abs_diff(after) < 16 << 20, "{planned} {grown}");
    let events = lab.ok(&["events"]);
    assert!(events.contains("3 drives") && events.contains("drive-2"), "{events}");

    // More than there was room for before, and it is there whatever happens.
    let second = fill(&lab, first);
    assert!((second - first) * UNIT > 100 << 20, "{first}, then {second}");
    serving.kill();
    let mut serving = lab.serve(&[]);
    check_all(&lab, second);
    // Until slabs are granted, what they hold is an estimate.
    let now = usable(&lab);
    assert!(now.abs_diff(after) < after / 10, "{now} instead of {after}");

    // From outside: only one drive, and then the others.
    lengthen(&files(&lab)[0], 64 << 20);
    let one = lab.json(&["pool", "expand", "--to-devices"]);
    assert_eq!(one["drives"].as_array().unwrap().len(), 1, "{one}");
    assert_eq!(one["drives"][0]["lengthens_file"], false, "{one}");
    refused(&lab, &["--to-devices"], &["nothing to grow by"]);
    let rest = lab.json(&["pool", "expand", "--by", "100M", "--drive", "drive-2", "--drive", "drive-3"]);
    assert_eq!(rest["drives"][1]["size_after_bytes"], 626 << 20, "{rest}");
    let third = fill(&lab, second);
    assert!(third > second);
    serving.terminate();
    lab.ok(&["check"]);

    // A longer file is no reason not to start, and a shorter one is.
    lengthen(&files(&lab)[2], 1 << 20);
    let mut serving = lab.serve(&[]);
    check_all(&lab, third);
    serving.terminate();
}

#[test]
fn what_cannot_grow_is_refused_with_the_reason() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "3", "--drive-size", "384M", "--domain", "file", "--layout", "mirror"]);
    let mut serving = lab.serve(&[]);
    lab.ready();
    let old = lens(&lab);
    refused(&lab, &["--to-devices"], &["nothing to grow by", "--by"]);
    refused(&lab, &["--to-devices", "--drive", "drive-1"], &["nothing to grow by", "4194304 bytes"]);
    refused(&lab, &["--by", "1G", "--drive", "drive-9"], &["no drive of the array"]);
    refused(&lab, &["--by", "100T"], &["bytes free, and growing takes"]);
    // More than the pages at the head of a drive tell of.
    refused(&lab, &["--by", "1000000G", "--dry-run", "--drive", "drive-1"], &["bytes free"]);
    assert_eq!(lab.run(&["pool", "expand"]).code, Some(2), "how is not said");
    assert_eq!(lab.run(&["pool", "expand", "--by", "5%", "--to-devices"]).code, Some(2));
    lab.ok(&["drive", "fail", "drive-2"]);
    refused(&lab, &["--by", "20%"], &["drive-2 (failed)", "quoin pool expand --drive"]);
    refused(&lab, &["--by", "20%", "--drive", "drive-2"], &["drive-2", "failed"]);
    assert_eq!(lens(&lab), old, "nothing was changed");
    let others: Value =
        lab.json(&["pool", "expand", "--by", "20%", "--drive", "drive-1", "--drive", "drive-3"]);
    assert!(others["usable_after_bytes"].as_u64() > others["usable_before_bytes"].as_u64(), "{others}");
    serving.terminate();
    lab.ok(&["check"]);
    // A drive that became shorter is refused by name.
    let shorter = fs::File::options().write(true).open(&files(&lab)[0]).unwrap();
    shorter.set_len(old[0]).unwrap();
    let outcome = lab.run(&["check"]);
    assert!(outcome.code != Some(0) && outcome.stderr.contains("give it its old size back"), "{outcome:?}");
}
