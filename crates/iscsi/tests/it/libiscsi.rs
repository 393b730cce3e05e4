//! libiscsi's conformance suite, each test in a process and with a server state of its own worker.

use crate::support::{INITIATOR, READ_ONLY_LUN, SECOND_INITIATOR, SIZE_BYTES, Server, run, volume};
use quoin_target::{Access, Lun};
use std::{collections::BTreeMap, sync::Mutex};

const WORKERS: usize = 4;

/// The suite reports skipped tests as passed; what it prints between a test's name and its verdict,
/// which is the last thing it prints of it, tells.
fn outcome(said: &str) -> &'static str {
    let Some((_, body)) = said.split_once("  Test: ") else { return "fail" };
    match body.rsplit_once("passed") {
        Some((before, _)) if before.contains("[SKIPPED]") => "skip",
        Some((before, _)) if !before.contains("FAILED") => "pass",
        _ => "fail",
    }
}

/// The write-protected unit of 4096-byte blocks.
const READ_ONLY_4096_LUN: u16 = 3;

#[test]
fn every_test_comes_out_as_listed_with_blocks_of_512_bytes() {
    come_out_as_listed(include_str!("libiscsi.txt"), 0, READ_ONLY_LUN);
}

#[test]
fn every_test_comes_out_as_listed_with_blocks_of_4096_bytes() {
    come_out_as_listed(include_str!("libiscsi-4096.txt"), 1, READ_ONLY_4096_LUN);
}

fn come_out_as_listed(list: &'static str, lun: u16, read_only_lun: u16) {
    let listed: Vec<(&str, &str)> = list
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (test, reason) = line.split_once(": ").unwrap_or((line, ""));
            let (outcome, name) = test.split_once(' ').expect("outcome and name");
            assert_eq!(outcome == "pass", reason.is_empty(), "{line}: what does not pass says why");
            (outcome, name)
        })
        .collect();
    let todo = Mutex::new(listed.iter().map(|(_, name)| *name).collect::<Vec<_>>());
    let found = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let server = Server::start();
                let protected = volume(READ_ONLY_4096_LUN.into(), SIZE_BYTES, 4096);
                let number = Lun::new(READ_ONLY_4096_LUN).unwrap();
                server.target.map("h1", number, protected, Access::ReadOnly).unwrap();
                let (url, read_only) = (server.url(lun), server.url(read_only_lun));
                while let Some(name) = { todo.lock().unwrap().pop() } {
                    let test = format!("ALL.{name}");
                    // These leave a pattern where tests like `MultipathIO.CompareAndWrite` expect zeroes.
                    let own = name.starts_with("Sanitize.").then(Server::start);
                    let url = own.as_ref().map_or_else(|| url.clone(), |own| own.url(lun));
                    let initiators = ["-i", INITIATOR, "-I", SECOND_INITIATOR];
                    let urls = match name {
                        "ReadOnly.ReadOnlySBC" => vec![read_only.as_str(); 2],
                        // A session that was there at the reset has a unit attention, with which these do not reckon.
                        "Reserve6.TargetColdReset" | "Reserve6.TargetWarmReset" => vec![url.as_str()],
                        _ => vec![url.as_str(); 2],
                    };
                    // NOTE: -V, since with -v many tests leave themselves out without a word.
                    let arguments =
                        [&["-d", "-S", "-f", "-V"][..], &initiators, &["-t", &test], &urls[..]].concat();
                    let output = run("libiscsi-bin", "iscsi-test-cu", &arguments);
                    let said = String::from_utf8_lossy(&output.stdout).into_owned();
                    found.lock().unwrap().insert(name, (outcome(&said), said));
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    let different: Vec<String> = listed
        .iter()
        .filter(|(expected, name)| found[name].0 != *expected)
        .map(|(expected, name)| format!("{name}: {} instead of {expected}\n{}", found[name].0, found[name].1))
        .collect();
    assert!(different.is_empty(), "{}", different.join("\n"));
}
