//! Folders, filters, templates, immutable snapshots and schedules, as the command line has them.

use crate::lab::{Lab, Outcome};
use serde_json::{Value, json};

#[track_caller]
fn refused(outcome: &Outcome, code: i32, parts: &[&str]) {
    assert_eq!(outcome.code, Some(code), "{outcome:?}");
    for part in parts {
        assert!(outcome.stderr.contains(part), "{part:?} is not in {outcome:?}");
    }
}

fn names(volumes: &Value) -> Vec<&str> {
    volumes.as_array().unwrap().iter().map(|volume| volume["name"].as_str().unwrap()).collect()
}

#[test]
fn hundreds_of_volumes_are_kept_in_order() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "1", "--drive-size", "256M"]);
    let mut array = lab.serve(&[]);
    lab.ready();
    lab.ok(&["volume", "create", "gold", "--size", "64M", "--folder", "templates"]);
    lab.ok(&["volume", "set", "gold", "--template"]);
    for name in ["web-1", "web-2"] {
        lab.ok(&["volume", "clone", "gold", name]);
        lab.ok(&["volume", "set", name, "--folder", "prod/web", "--tag", "app=shop"]);
    }
    lab.ok(&["volume", "create", "pg-1", "--size", "1G", "--folder", "prod/sql"]);
    lab.ok(&["snapshot", "create", "pg-1", "pg-1.s"]);

    let tree = lab.ok(&["folder", "list"]);
    let rows: Vec<_> = tree.lines().map(|line| line.split_whitespace().take(3).collect::<Vec<_>>()).collect();
    let expected =
        [["/", "0", "5"], ["prod", "0", "4"], ["sql", "2", "2"], ["web", "2", "2"], ["templates", "1", "1"]];
    assert_eq!(rows[1..], expected.map(Vec::from));
    let list = |filters: &[&str]| {
        let found = lab.json(&[&["volume", "list"], filters].concat());
        names(&found).join(" ")
    };
    assert_eq!(list(&["--folder", "prod", "--kind", "clone"]), "web-1 web-2");
    assert_eq!(list(&["--source", "pg-1"]), "pg-1.s");
    assert_eq!(list(&["--name", "*g*", "--sort", "-size", "--limit", "2"]), "pg-1 pg-1.s");
    assert_eq!(list(&["--tag", "app=shop", "--sort", "-name"]), "web-2 web-1");
    refused(&lab.run(&["volume", "list", "--sort", "colour"]), 1, &["\"colour\" is none of name, folder"]);
    refused(&lab.run(&["volume", "list", "--kind", "disk"]), 2, &["template"]);
    refused(
        &lab.run(&["volume", "create", "v", "--size", "1G", "--folder", "a b"]),
        1,
        &["\"a b\" is not a folder"],
    );
    refused(
        &lab.run(&["volume", "resize", "gold", "--size", "1G"]),
        1,
        &["gold is a template", "--no-template"],
    );
    let over = lab.run(&["snapshot", "restore", "web-1", "--to", "gold"]);
    refused(&over, 1, &["gold is a template"]);
    assert!(lab.ok(&["volume", "show", "gold"]).contains("thin template"));
    lab.ok(&["volume", "set", "gold", "--no-template"]);
    lab.ok(&["volume", "delete", "gold"]);
    array.terminate();
    assert_eq!(lab.json(&["check"])["ok"], true);
}

#[test]
fn what_is_immutable_outlives_tokens_clocks_and_init() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "2", "--drive-size", "256M", "--name", "a1"]);
    let mut array = lab.serve(&[]);
    lab.ready();
    lab.ok(&["volume", "create", "v1", "--size", "64M"]);
    let made = lab.json(&["snapshot", "create", "v1", "s1", "--retain", "1h"]);
    assert!(made["retain_until_ms"].is_number(), "{made}");
    refused(&lab.run(&["snapshot", "delete", "s1", "--unmap"]), 1, &["s1 is immutable until 20"]);
    refused(&lab.run(&["volume", "delete", "v1"]), 1, &["snapshots of volume v1 (s1) are immutable until"]);
    refused(&lab.run(&["snapshot", "retain", "s1", "--for", "10m"]), 1, &["retention can only be extended"]);
    lab.ok(&["snapshot", "retain", "s1", "--for", "7d"]);
    assert!(lab.ok(&["status"]).contains("1 snapshot; the retention clock shows 20"));
    let rules = ["schedule", "create", "n", "--volume", "v1", "--every", "hourly:2,daily:1", "--at", "02:30"];
    let schedule = lab.json(&rules);
    assert_eq!(
        (&schedule["at"], &schedule["rules"][1]),
        (&json!("02:30"), &json!({ "every": "daily", "keep": 1 }))
    );
    assert_eq!(lab.json(&["schedule", "run", "n"])["snapshots"], 1);
    assert!(lab.ok(&["schedule", "list"]).contains("hourly:2,daily:1"));
    refused(
        &lab.run(&["schedule", "create", "m", "--volume", "v1", "--every", "yearly:1"]),
        2,
        &["weekly:4"],
    );
    array.kill();

    let drive = |n: u32| lab.data().join(format!("drives/drive-{n}")).to_str().unwrap().to_owned();
    let other = lab.data().with_file_name("other").to_str().unwrap().to_owned();
    let (one, two) = (drive(1), drive(2));
    let both = ["init", "--data", &other, "--force", "--drive", &one, "--drive", &two];
    refused(&lab.run(&both), 1, &["pool a1", "holds 1 immutable snapshots: s1", "--pool-name"]);
    refused(&lab.run(&[&both[..], &["--pool-name", "a2"]].concat()), 1, &["pool a1"]);
    refused(&lab.run(&both[..6]), 1, &["pool a1", "the pool has 2 drives; number 1"]);
    let mut array = lab.serve(&[]);
    lab.ready();
    refused(&lab.run(&["snapshot", "delete", "s1"]), 1, &["s1 is immutable until"]);
    array.terminate();
    assert_eq!(lab.json(&["check"])["ok"], true);
    lab.ok(&[&both[..], &["--pool-name", "a1"]].concat());
    // What is left has nothing to keep.
    let third = lab.data().with_file_name("third").to_str().unwrap().to_owned();
    lab.ok(&["init", "--data", &third, "--force", "--drive", &one, "--drive", &two]);
}
