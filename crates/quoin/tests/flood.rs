//! Half-sent requests to the management interface: they hold up neither it nor the front ends.
//!
//! A test target of its own: it opens nearly as many files as a process may.

#[allow(dead_code, reason = "shared by several tests")]
#[path = "it/lab/mod.rs"]
mod lab;

use lab::{Lab, Serving};
use std::{fs, io::Write, net::TcpStream, process::Command};

/// More than the array may have files open, and fewer than the test may.
const FLOOD: usize = 500;
/// What the array may have open at most: `--nofile=SOFT:HARD` of prlimit.
const FILES: &str = "128:320";

fn with_export() -> Lab {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "1", "--drive-size", "1G"]);
    lab
}

fn api_address(lab: &Lab) -> String {
    fs::read_to_string(lab.data().join("run/api")).unwrap().trim().to_owned()
}

/// Connects, sends `text` and keeps the connection.
fn send(address: &str, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    // Fails if the array has closed the connection already.
    drop(stream.write_all(text.as_bytes()));
    stream
}

fn open_files(serving: &Serving) -> usize {
    fs::read_dir(format!("/proc/{}/fd", serving.id())).unwrap().count()
}

#[test]
fn half_sent_requests_hold_up_nobody() {
    let lab = with_export();
    let array = lab.serve_with_files(FILES, &["--nbd", "127.0.0.1:0"]);
    let status = lab.ready();
    lab.ok(&["volume", "create", "v1", "--size", "64M"]);
    lab.ok(&["export", "create", "v1"]);
    let limits = fs::read_to_string(format!("/proc/{}/limits", array.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(
        files.split_whitespace().nth(3),
        Some("320"),
        "the soft limit is raised to the hard one: {files}"
    );

    let api = api_address(&lab);
    let half = "POST /api/v1/volumes HTTP/1.1\r\nHost: a\r\nContent-";
    let flood: Vec<_> = (0..FLOOD).map(|_| send(&api, half)).collect();
    assert!(open_files(&array) < 250, "{} files are open", open_files(&array));
    lab.ok(&["status"]);
    let uri = format!("nbd://{}/v1", status["nbd"][0].as_str().unwrap());
    let info = Command::new("nbdinfo").arg(&uri).output().expect("nbdinfo of libnbd-bin is needed");
    assert!(info.status.success(), "{}", String::from_utf8_lossy(&info.stderr));
    let portal = TcpStream::connect(status["portals"][0].as_str().unwrap()).unwrap();
    drop(portal);
    assert_eq!(flood.len(), FLOOD);
    lab.ok(&["volume", "create", "v2", "--size", "64M"]);
}

#[test]
fn connections_beyond_the_share_of_a_front_end_are_refused_and_told() {
    let lab = with_export();
    let _array = lab.serve_with_files(FILES, &["--nbd", "127.0.0.1:0"]);
    let status = lab.ready();
    for (front, protocol) in [("portals", "initiator"), ("nbd", "NBD")] {
        let address = status[front][0].as_str().unwrap();
        let flood: Vec<_> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
        lab.until(&["events", "--audit"], |all| {
            let told = |event: &serde_json::Value| {
                let (object, text) = (event["object"].as_str().unwrap(), event["text"].as_str().unwrap());
                object.contains(protocol) && text.contains("too many connections are open")
            };
            all.as_array().unwrap().iter().any(told)
        });
        drop(flood);
    }
}
