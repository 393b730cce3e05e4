//! `quoin snapshot reserve` on the real array: it says what a reserve does at once, asks at a terminal, is refused elsewhere
//! without `--yes`, and a volume that it takes offline is said to be, until there is room again.

use crate::initiator::{Initiator, Sense};
use crate::lab::Lab;
use std::{
    io::Write,
    process::{Command, Stdio},
};

const NAME: &str = "iqn.2026-11.test:h1";
const MANUAL_INTERVENTION: Sense = (0x2, 0x04, 0x03);
const LEN: usize = 1 << 20;
const BLOCK: usize = 8192;

/// Runs a command at a terminal and types an answer; its exit code, and what the terminal showed.
fn typed(lab: &Lab, command: &str, answer: &str) -> (Option<i32>, String) {
    let line = format!("{} {command}", env!("CARGO_BIN_EXE_quoin"));
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env("QUOIN_DATA", lab.data());
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script is needed");
    child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn names(lab: &Lab) -> Vec<String> {
    let listed = lab.json(&["snapshot", "list"]);
    listed.as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_reserve_asks_before_it_deletes_or_takes_offline() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "2", "--drive-size", "256M"]);
    let _serving = lab.serve(&[]);
    let status = lab.ready();
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    lab.ok(&["volume", "create", "v1", "--size", "64M"]);
    lab.ok(&["group", "create", "g1", "--volume", "v1"]);
    lab.ok(&["map", "v1", "--host", "h1", "--lun", "1"]);
    let (portal, target) = (status["portals"][0].as_str().unwrap(), status["iqn"].as_str().unwrap());
    let mut host = Initiator::login(portal, target, NAME);
    let mut write =
        |byte: u8| (0..LEN / BLOCK).try_for_each(|at| host.write(1, (at * BLOCK) as u64, &[byte; BLOCK]));
    for (byte, name) in [(1, "old"), (2, "middle"), (3, "new")] {
        write(byte).unwrap();
        lab.ok(&["snapshot", "create", "v1", name]);
    }
    write(4).unwrap();
    let held = |bytes: usize| {
        let path = ["snapshot", "reserve", "--volume", "v1"];
        lab.until(&path, |reserve| reserve["held_bytes"] == bytes as u64);
    };
    held(3 * LEN);

    // Without a terminal it is refused, and says what would go.
    let set = ["snapshot", "reserve", "--volume", "v1", "--size", "2560K"];
    let outcome = lab.run(&set);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    for part in ["SNAPSHOT", "old ", "1.0 MiB", "snapshot reserve not set", "--yes"] {
        assert!(outcome.stderr.contains(part), "no {part:?} in {outcome:?}");
    }
    assert!(!outcome.stderr.contains("middle"), "{outcome:?}");
    // At a terminal it asks, and takes silence for no.
    let (code, shown) = typed(&lab, &set.join(" "), "\n");
    assert!(code == Some(1) && shown.contains("delete these snapshots? [y/N]"), "{code:?} {shown}");
    assert_eq!(names(&lab), ["old", "middle", "new"]);
    assert!(lab.ok(&["snapshot", "reserve", "--volume", "v1"]).contains("no snapshot reserve is set"));
    let (code, shown) = typed(&lab, &set.join(" "), "y\n");
    assert!(code == Some(0) && shown.contains("volume v1"), "{code:?} {shown}");
    held(2 * LEN);
    assert_eq!(names(&lab), ["middle", "new"]);
    let events = lab.ok(&["events", "--severity", "warning"]);
    assert!(events.contains("gives back 1048576 bytes: old"), "{events}");
    // What does nothing at once is not asked about.
    lab.ok(&["snapshot", "reserve", "--percent", "90"]);
    lab.ok(&["snapshot", "reserve", "--group", "g1", "--size", "1G"]);
    let all = lab.ok(&["snapshot", "reserve"]);
    for part in ["OF ", "pool ", "90 % of the pool", "volume v1", "2.5 MiB", "group g1", "delete-oldest"] {
        assert!(all.contains(part), "no {part:?} in {all}");
    }
    assert_eq!(lab.json(&["snapshot", "reserve"]).as_array().unwrap().len(), 3);
    lab.ok(&["snapshot", "reserve", "--volume", "v1", "--off"]);

    // Offline, said everywhere, and back.
    let stop = ["snapshot", "reserve", "--group", "g1", "--size", "1M", "--policy", "offline-volume"];
    let outcome = lab.run(&stop);
    assert!(outcome.code == Some(1) && outcome.stderr.contains("takes volumes offline at once:\nVOLUME\nv1"));
    assert!(write(5).is_ok());
    lab.ok(&[&stop[..], &["--yes"]].concat());
    assert_eq!(write(6), Err(MANUAL_INTERVENTION));
    let outcome = lab.run(&["status"]);
    assert!(outcome.code == Some(1) && outcome.stdout.contains("OFFLINE"), "{outcome:?}");
    assert!(
        outcome.stderr.contains("not all volumes are served") && outcome.stderr.contains("v1"),
        "{outcome:?}"
    );
    let outcome = lab.run(&["status", "-o", "json"]);
    assert!(outcome.stdout.contains("\"offline_volumes\": [\n    \"v1\""), "{outcome:?}");
    assert!(lab.ok(&["volume", "list", "--kind", "volume"]).contains("OFFLINE"));
    let shown = lab.ok(&["volume", "show", "v1"]);
    assert!(
        shown.contains("OFFLINE: the snapshots of group g1 hold more than its snapshot reserve"),
        "{shown}"
    );
    assert!(lab.ok(&["events", "--severity", "critical"]).contains("group g1"));
    for name in ["middle", "new"] {
        lab.ok(&["snapshot", "delete", name]);
    }
    lab.until(&["status"], |status| status["offline_volumes"].as_array().unwrap().is_empty());
    write(7).unwrap();
    lab.ok(&["status"]);
    assert!(lab.ok(&["events", "--severity", "notice"]).contains("volumes back online: v1"));
}
