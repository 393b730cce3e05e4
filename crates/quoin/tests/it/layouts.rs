//! Layouts and fault domains on the real binary: what is chosen, what is refused, and drives that go away.

use crate::{
    initiator::{Initiator, LONGEST_BYTES},
    lab::{Lab, Serving},
};
use serde_json::Value;
use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
};

const NAME: &str = "iqn.2026-11.test:h1";
const LUN: u8 = 1;
const PARTS: usize = 96;

fn part(at: usize) -> Vec<u8> {
    (0..LONGEST_BYTES).map(|byte| (byte / 512) as u8 ^ (at as u8).wrapping_mul(37)).collect()
}

/// An array of file drives, each a fault domain, with a volume that a host sees.
fn serve(lab: &Lab, drives: &str, layout: &str) -> Serving {
    lab.ok(&["init", "--drives", drives, "--drive-size", "256M", "--domain", "file", "--layout", layout]);
    let serving = lab.serve(&["--drive-suspect", "1", "--drive-fail", "3"]);
    lab.ready();
    lab.ok(&["volume", "create", "v", "--size", "256M"]);
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    lab.ok(&["map", "v", "--host", "h1", "--lun", "1"]);
    serving
}

fn login(lab: &Lab) -> Initiator {
    let status = lab.ready();
    Initiator::login(status["portals"][0].as_str().unwrap(), status["iqn"].as_str().unwrap(), NAME)
}

fn write_all(host: &mut Initiator, from: usize) {
    for at in from..PARTS {
        host.write(LUN, (at * LONGEST_BYTES) as u64, &part(at)).unwrap();
    }
}

/// Waits until all that was written is in segments: what is in the journal only has other drives.
fn destaged(lab: &Lab) {
    let bytes = (PARTS * LONGEST_BYTES) as u64;
    lab.until(&["status"], |status| status["capacity"]["mapped_bytes"].as_u64() >= Some(bytes));
}

#[track_caller]
fn check_all(host: &mut Initiator) {
    for at in 0..PARTS {
        let read = host.read(LUN, (at * LONGEST_BYTES) as u64, LONGEST_BYTES).unwrap();
        assert!(read == part(at), "part {at} differs");
    }
}

fn states(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|drive| drive["state"].as_str().unwrap()).collect()
}

#[test]
fn the_layout_follows_the_fault_domains() {
    let lab = Lab::new();
    // Files on one disk fail together: nothing can be protected.
    let made = lab.json(&["init", "--drives", "4", "--drive-size", "256M"]);
    let protection = &made["protection"];
    assert_eq!((&protection["layout"], &protection["tolerates"]), (&"none".into(), &0.into()));
    assert_eq!(protection["domains"].as_object().unwrap().len(), 1);
    // Each file by itself: a mirror, and what else there is.
    let lab = Lab::new();
    let made = lab.json(&["init", "--drives", "4", "--drive-size", "256M", "--domain", "file"]);
    let protection = &made["protection"];
    assert_eq!((&protection["layout"], &protection["journal_columns"]), (&"mirror".into(), &2.into()));
    assert_eq!((&protection["data_percent"], &protection["each_file"]), (&50.into(), &true.into()));
    assert!(protection["shared_disk"].is_string(), "{made}");
    let held = |layout: &str| {
        let others = protection["others"].as_array().unwrap();
        others
            .iter()
            .find(|other| other["layout"] == layout)
            .map(|other| other["data_bytes"].as_u64().unwrap())
    };
    assert!(held("raid5") > protection["data_bytes"].as_u64() && held("none") > held("raid5"), "{made}");
    assert_eq!(held("raid6"), None, "six domains are needed");
    let lab = Lab::new();
    let text = lab.ok(&["init", "--drives", "3", "--drive-size", "256M", "--domain", "file"]);
    for said in [
        "layout mirror: tolerates 1 failure, 50 % of the drives' space holds data",
        "--layout 2+1 tolerates 1 failure, with room for about",
        "--layout none protects nothing",
        "fault domains: each file (all on one disk: no protection against its loss)",
    ] {
        assert!(text.contains(said), "{said:?} is not in {text}");
    }
    // Two of the drives are said to fail together.
    let lab = Lab::new();
    let by_name = ["--domain", "drive-1=left", "--domain", "drive-2=left", "--domain", "drive-3=right"];
    let made = lab.json(&[&["init", "--drives", "3", "--drive-size", "256M"][..], &by_name].concat());
    assert_eq!(made["protection"]["domains"]["left"].as_array().unwrap().len(), 2);
    assert_eq!(made["protection"]["layout"], "mirror");
}

#[test]
fn what_cannot_be_placed_is_refused_with_what_it_lacks() {
    let lab = Lab::new();
    let files = ["init", "--drives", "4", "--drive-size", "256M"];
    for (more, code, said) in [
        (&["--layout", "raid6", "--domain", "file"][..], 1, "layout raid6 (4+2) needs 6 fault domains"),
        (&["--layout", "raid6", "--domain", "file"], 1, "are in 4: add drives in 2 more, or choose raid5 or"),
        (&["--layout", "mirror"], 1, "are in 1: add drives in 1 more"),
        (&["--layout", "raid7"], 2, "\"raid7\" is no layout: say none, mirror"),
        (&["--domain", "drives"], 2, "PATH=NAME"),
        (&["--domain", "drive-9=a"], 2, "--domain drive-9=a names no drive"),
    ] {
        let refused = lab.run(&[&files[..], more].concat());
        assert_eq!(refused.code, Some(code), "{refused:?}");
        assert!(refused.stderr.contains(said), "{said:?} is not in {refused:?}");
        assert!(!lab.data().join("quoin.toml").exists() && !lab.data().join("drives/drive-1").exists());
    }
    let journal = lab.data().with_file_name("journal");
    fs::File::create(&journal).and_then(|file| file.set_len(256 << 20)).unwrap();
    let journal = journal.display().to_string();
    let refused = lab.run(&[&files[..], &["--domain", "file", "--journal-drive", &journal]].concat());
    assert!(
        refused.stderr.contains("a journal on 2 drives side by side needs 2 fault domains"),
        "{refused:?}"
    );
}

#[test]
fn a_drive_is_taken_out_by_hand_and_the_next_one_is_refused() {
    let lab = Lab::new();
    // With two drives nothing can be made again elsewhere: one loss is all that the pool tolerates, however fast a rebuild is.
    let mut serving = serve(&lab, "2", "mirror");
    let mut host = login(&lab);
    write_all(&mut host, 0);
    destaged(&lab);

    let list = lab.json(&["drive", "list"]);
    assert_eq!(states(&list), ["active"; 2]);
    assert_eq!(list[1]["domain"], "file:drive-2");
    assert!(list[1]["data_bytes"].as_u64() > Some(0) && list[1]["votes"] == true, "{list}");
    let located = lab.json(&["drive", "locate", "drive-2"]);
    assert!(located["path"].as_str().unwrap().ends_with("drives/drive-2"), "{located}");
    assert!(located["is_device"] == false && !located["disk"].as_str().unwrap().is_empty());
    assert!(lab.ok(&["drive", "show", "drive-2"]).contains("file:drive-2"));
    let status = lab.ok(&["status"]);
    assert!(status.contains("layout mirror: tolerates 1 failure; the journal is on 2 drives"), "{status}");
    assert!(status.contains("2, each file (all on one disk: no protection against its loss)"), "{status}");

    let failed = lab.json(&["drive", "fail", "drive-2"]);
    assert_eq!((&failed["state"], &failed["online"]), (&"failed".into(), &false.into()));
    assert!(failed["next"].as_str().unwrap().contains("quoin drive replace"), "{failed}");
    let status = lab.ready();
    let protection = &status["protection"];
    assert_eq!(
        (&protection["tolerates_now"], &protection["failed_drives"]),
        (&0.into(), &1.into()),
        "{status}"
    );
    assert!(lab.ok(&["status"]).contains("DEGRADED, tolerates 0 of 1 failure"));
    check_all(&mut host);
    write_all(&mut host, PARTS / 2);

    let refused = lab.run(&["drive", "fail", "drive-1"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("cannot go on without drive"), "{refused:?}");
    assert!(refused.stderr.contains("next: keep it in service"), "{refused:?}");
    let refused = lab.run(&["drive", "fail", "drive-9"]);
    assert!(refused.stderr.contains("no drive of the array has the path drive-9"), "{refused:?}");
    let events = lab.json(&["events"]).to_string();
    assert!(events.contains("was taken out, and the pool goes on without it"), "{events}");
    drop(host);
    serving.terminate();

    // The drive is gone when the array starts again.
    fs::remove_file(lab.data().join("drives/drive-2")).unwrap();
    let mut serving = lab.serve(&[]);
    let mut host = login(&lab);
    check_all(&mut host);
    assert_eq!(states(&lab.json(&["drive", "list"]))[1], "failed");
    // Another one takes its place.
    let added = lab.data().with_file_name("added");
    fs::File::create(&added).and_then(|file| file.set_len(256 << 20)).unwrap();
    let path = added.display().to_string();
    let shown = lab.json(&["drive", "add", &path, "--domain", "file:added"]);
    assert_eq!((&shown["number"], &shown["state"]), (&2.into(), &"active".into()), "{shown}");
    let refused = lab.run(&["drive", "add", &path]);
    assert!(refused.stderr.contains("has drive") && refused.stderr.contains("already"), "{refused:?}");
    let other = lab.data().join("drives/drive-1").display().to_string() + "/../drive-1";
    assert_eq!(lab.run(&["drive", "add", &other]).code, Some(1), "it is in use");
    write_all(&mut host, 0);
    drop(host);
    serving.terminate();
    let mut serving = lab.serve(&[]);
    let mut host = login(&lab);
    check_all(&mut host);
    assert_eq!(states(&lab.json(&["drive", "list"])), ["active", "failed", "active"]);
    drop(host);
    serving.terminate();
    assert_eq!(lab.json(&["check"])["ok"], true);
}

#[test]
fn a_drive_that_fails_every_operation_is_done_without_while_hosts_go_on() {
    let lab = Lab::new();
    let files = ["--drives", "4", "--drive-size", "256M", "--domain", "file", "--layout", "raid5"];
    lab.ok(&[&["init"][..], &files, &["--emulate", "nvme"]].concat());
    let mut serving = lab.serve(&["--drive-suspect", "1", "--drive-fail", "2"]);
    lab.ready();
    lab.ok(&["volume", "create", "v", "--size", "256M"]);
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    lab.ok(&["map", "v", "--host", "h1", "--lun", "1"]);
    let mut host = login(&lab);
    write_all(&mut host, 0);
    lab.ok(&["drive", "emulate", "fail", "drive-3"]);
    check_all(&mut host);
    // The journal, or a checkpoint, needs all drives: that takes it out.
    write_all(&mut host, 0);
    lab.until(&["status"], |status| status["protection"]["failed_drives"] == 1);
    check_all(&mut host);
    let status = lab.ready();
    assert_eq!(status["drives"][2]["state"], "failed", "{status}");
    let is_told =
        |events: &Value| events.to_string().contains("has failed, and the pool goes on without it: ");
    lab.until(&["events"], is_told);
    drop(host);
    serving.terminate();
    assert_eq!(lab.json(&["check"])["ok"], true);
}

/// Flips a bit wherever a drive holds the first block of a part; how many there were.
fn rot(lab: &Lab, drive: &str) -> usize {
    let path = lab.data().join("drives").join(drive);
    let held = fs::read(&path).unwrap();
    let drive = File::options().write(true).open(&path).unwrap();
    let firsts: Vec<_> = (0..PARTS).map(|at| part(at)[..4096].to_vec()).collect();
    let rotten = (0..held.len() as u64).step_by(512).filter(|at| {
        let at = *at as usize;
        firsts.iter().any(|first| held[at..].starts_with(first))
    });
    let flip = |at: u64| drive.write_all_at(&[held[at as usize] ^ 16], at).unwrap();
    rotten.map(flip).count()
}

#[test]
fn a_check_tells_what_a_scrub_repairs_from_what_is_lost() {
    let lab = Lab::new();
    let mut serving = serve(&lab, "3", "mirror");
    let mut host = login(&lab);
    write_all(&mut host, 0);
    destaged(&lab);
    drop(host);
    serving.terminate();
    assert!(rot(&lab, "drive-2") > 0);
    let found = lab.run(&["check"]);
    assert_eq!(found.code, Some(1), "{found:?}");
    assert!(found.stderr.contains("quoin scrub start") && !found.stderr.contains("backup"), "{found:?}");
    let found = lab.run(&["check", "-o", "json"]);
    let found: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(found["problems"][0]["is_repairable"], true, "{found}");
    let mut serving = lab.serve(&[]);
    lab.ready();
    lab.ok(&["scrub", "start"]);
    lab.until(&["scrub", "status"], |status| status["last"]["outcome"] == "completed");
    check_all(&mut login(&lab));
    serving.terminate();
    assert_eq!(lab.json(&["check"])["ok"], true);
}

fn why_refused(lab: &Lab, args: &[&str]) -> String {
    let outcome = lab.run(args);
    assert!(outcome.code != Some(0), "{args:?} succeeded: {}", outcome.stdout);
    outcome.stderr
}

#[test]
fn a_full_pool_with_a_spare_domain_makes_up_for_a_drive_and_takes_writes_as_before() {
    let lab = Lab::new();
    // Too few fault domains for it, and the drives stay blank.
    let refused = why_refused(
        &lab,
        &["init", "--drives", "2", "--drive-size", "256M", "--domain", "file", "--spare", "1"],
    );
    assert!(refused.contains("1 more must be there"), "{refused}");
    let made = lab.json(&[
        "init",
        "--drives",
        "4",
        "--drive-size",
        "256M",
        "--domain",
        "file",
        "--layout",
        "mirror",
        "--spare",
        "1",
    ]);
    assert_eq!(made["protection"]["spare_domains"], 1, "{made}");
    assert!(made["protection"]["spare_bytes"].as_u64() > Some(32 << 20), "{made}");
    let serving = lab.serve(&["--drive-suspect", "1", "--drive-fail", "3"]);
    let status = lab.ready();
    let spare = |status: &Value| status["capacity"]["spare"].clone();
    assert_eq!(
        (&spare(&status)["domains"], &spare(&status)["kept_domains"]),
        (&1.into(), &1.into()),
        "{status}"
    );
    assert!(spare(&status)["bytes"].as_u64() > Some(32 << 20), "{status}");
    let usable = |status: &Value| status["capacity"]["usable_bytes"].as_u64().unwrap();
    let before = usable(&status);
    // Hosts fill it.
    lab.ok(&["volume", "create", "v", "--size", "4G"]);
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    lab.ok(&["map", "v", "--host", "h1", "--lun", "1"]);
    let mut host = login(&lab);
    let parts = (0..).find(|at| host.write(LUN, (at * LONGEST_BYTES) as u64, &part(*at)).is_err()).unwrap();
    assert!((parts * LONGEST_BYTES) as u64 > before / 2, "{parts} parts of {before} bytes");
    // Nothing is left for a second one.
    let refused = why_refused(&lab, &["pool", "set", "--spare", "2"]);
    assert!(
        refused.contains("2 largest fault domains hold takes") && refused.contains("bytes are free"),
        "{refused}"
    );
    // A drive fails: it is made up for, and hosts have what they had.
    lab.ok(&["drive", "fail", "drive-2"]);
    lab.until(&["status"], |status| status["protection"]["degraded_segments"] == 0);
    let status = lab.json(&["status"]);
    assert_eq!(
        (&spare(&status)["used_domains"], &spare(&status)["bytes"]),
        (&1.into(), &0.into()),
        "{status}"
    );
    // Metadata takes a little of it meanwhile, twice what it is for each copy.
    assert!(usable(&status) + (4 << 20) >= before, "{} of {before}", usable(&status));
    for at in 0..parts {
        host.write(LUN, (at * LONGEST_BYTES) as u64, &part(at + 1)).unwrap();
        assert!(host.read(LUN, (at * LONGEST_BYTES) as u64, LONGEST_BYTES).unwrap() == part(at + 1), "{at}");
    }
    // It stays set, and can be turned off.
    drop(serving);
    let _serving = lab.serve(&[]);
    lab.ready();
    assert_eq!(lab.json(&["pool", "show"])["spare"]["domains"], 1);
    assert_eq!(lab.json(&["pool", "set", "--spare", "off"])["spare"]["domains"], 0);
    assert_eq!(lab.json(&["space"])["spare"]["bytes"], 0);
}
