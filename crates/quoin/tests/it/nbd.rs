//! The array over NBD: exports, fio's verification, and what survives a kill.

use crate::lab::{Lab, Outcome};
use serde_json::{Value, json};
use std::{
    io::Read,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

const KILLS: u32 = 3;

#[track_caller]
fn refused(outcome: &Outcome, code: i32, said: &[&str]) {
    assert_eq!(outcome.code, Some(code), "{outcome:?}");
    for part in said {
        assert!(outcome.stderr.contains(part), "{part}: {outcome:?}");
    }
}

fn with_volume(exported: bool) -> Lab {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "2", "--drive-size", "1G"]);
    let mut array = lab.serve(&[]);
    lab.ready();
    lab.ok(&["volume", "create", "v1", "--size", "256M"]);
    if exported {
        lab.ok(&["export", "create", "v1"]);
    }
    array.terminate();
    lab
}

fn uri(status: &Value, export: &str) -> String {
    format!("nbd://{}/{export}", status["nbd"][0].as_str().unwrap())
}

fn nbdinfo(uri: &str) -> Option<Value> {
    let output =
        Command::new("nbdinfo").args(["--json", uri]).output().expect("nbdinfo of libnbd-bin is needed");
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

/// Runs fio beside the array's data: it leaves a file behind where it runs.
#[track_caller]
fn fio(lab: &Lab, args: &[&str]) {
    let mut fio = Command::new("timeout");
    fio.args(["-k", "1", "100", "fio"]).args(args).current_dir(lab.data().parent().unwrap());
    let output = fio.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "fio {args:?}: {out} {err}");
}

#[test]
fn exports_are_made_seen_kept_and_taken_away() {
    let lab = with_volume(false);
    let sockets = tempfile::tempdir().unwrap();
    let socket = sockets.path().join("nbd.sock");
    let nbd = ["--nbd", "127.0.0.1:0", "--nbd-socket", socket.to_str().unwrap()];
    let mut array = lab.serve(&nbd);
    let status = lab.ready();
    assert!(nbdinfo(&uri(&status, "v1")).is_none(), "a volume is not seen before it is exported");
    let made = lab.json(&["export", "create", "v1"]);
    assert_eq!(
        (&made["name"], &made["read_only"], &made["allow"]),
        (&json!("v1"), &json!(false), &json!([]))
    );
    refused(
        &lab.run(&["export", "create", "v1"]),
        1,
        &["export v1 already exists", "next: choose another name\n"],
    );
    refused(&lab.run(&["export", "create", "v9"]), 1, &["volume v9 does not exist"]);
    let bad = lab.run(&["export", "create", "v1", "--name", "x", "--allow", "10.0.0.1/8"]);
    refused(&bad, 1, &["export x", "give 10.0.0.0/8 for all of it, or 10.0.0.1 for the one"]);
    refused(&lab.run(&["export", "create", "v1", "--name", "X"]), 1, &["export not created", "'X'"]);
    refused(&lab.run(&["volume", "delete", "v1"]), 1, &["exported as v1", "--unmap"]);
    lab.ok(&["export", "create", "v1", "--name", "ro", "--read-only", "--allow", "192.0.2.0/24"]);
    let seen = nbdinfo(&uri(&status, "v1")).unwrap();
    assert_eq!(seen["exports"][0]["export-size"], json!(256 << 20));
    assert!(nbdinfo(&uri(&status, "ro")).is_none(), "127.0.0.1 is not in 192.0.2.0/24");
    let unix = |export: &str| format!("nbd+unix:///{export}?socket={}", socket.display());
    assert_eq!(nbdinfo(&unix("ro")).unwrap()["exports"][0]["is_read_only"], json!(true));
    let listed = lab.ok(&["export", "list"]);
    assert!(listed.contains("read-only") && listed.contains("192.0.2.0/24"), "{listed}");

    array.kill();
    let mut array = lab.serve(&nbd);
    let status = lab.ready();
    assert_eq!(status["objects"]["exports"], json!(2));
    assert!(nbdinfo(&uri(&status, "v1")).is_some() && nbdinfo(&unix("ro")).is_some());
    lab.ok(&["export", "delete", "ro", "--force"]);
    assert!(nbdinfo(&unix("ro")).is_none());
    refused(&lab.run(&["export", "show", "ro"]), 1, &["export ro does not exist"]);
    lab.ok(&["volume", "delete", "v1", "--force"]);
    assert_eq!(lab.json(&["export", "list"]), json!([]));
    assert!(nbdinfo(&uri(&status, "v1")).is_none());
    array.terminate();
    assert!(!socket.exists());
    lab.ok(&["check"]);
}

#[test]
fn what_is_unsafe_is_not_served_unless_it_is_said() {
    let lab = with_volume(true);
    let serve = ["serve", "--iscsi", "127.0.0.1:0", "--api", "127.0.0.1:0"];
    let with = |options: &[&str]| lab.run(&[&serve[..], options].concat());
    refused(
        &with(&["--nbd", "0.0.0.0:0"]),
        2,
        &["0.0.0.0:0 is not a loopback", "--nbd-tls-cert", "--nbd-remote"],
    );
    refused(&with(&["--nbd", "127.0.0.1:0", "--nbd-tls", "required"]), 2, &["--nbd-tls-cert FILE"]);
    let nothing =
        with(&["--nbd", "0.0.0.0:0", "--nbd-tls-cert", "/missing.pem", "--nbd-tls-key", "/missing.key"]);
    refused(&nothing, 1, &["NBD over TLS", "/missing.pem"]);
    let mut array = lab.serve(&["--nbd", "0.0.0.0:0", "--nbd-remote"]);
    lab.ready();
    array.terminate();
}

#[test]
fn fio_finds_what_it_wrote() {
    let lab = with_volume(true);
    let mut array = lab.serve(&["--nbd", "127.0.0.1:0"]);
    let uri = format!("--uri={}", uri(&lab.ready(), "v1"));
    let all = ["--ioengine=nbd", "--iodepth=32", "--verify=crc32c", "--verify_fatal=1", &uri];
    for shape in [
        &["--name=mixed", "--rw=randrw", "--bsrange=512-64k", "--size=96m", "--verify_backlog=512"][..],
        &["--name=large", "--rw=write", "--bs=1m", "--size=192m"],
        &[
            "--name=zipf",
            "--rw=randwrite",
            "--bs=8k",
            "--size=32m",
            "--io_size=64m",
            "--random_distribution=zipf:1.1",
            "--serialize_overlap=1",
        ],
    ] {
        fio(&lab, &[shape, &all].concat());
    }
    array.terminate();
    lab.ok(&["check"]);
}

fn ledger(mode: &str, uri: &str, path: &Path, seed: u32) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "1", "100", "/usr/bin/python3"]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ledger.py"));
    command.args([mode, uri]).arg(path).arg(seed.to_string());
    command
}

/// Blocks with stamps are written while the array is killed, and fio runs beside; afterwards each block holds what was
/// acknowledged last, or what was sent after that.
#[test]
fn what_was_acknowledged_survives_kills() {
    let lab = with_volume(true);
    let path = lab.data().with_file_name("ledger");
    for round in 0..KILLS {
        let mut array = lab.serve(&["--nbd", "127.0.0.1:0"]);
        let uri = uri(&lab.ready(), "v1");
        if round > 0 {
            let output = ledger("check", &uri, &path, round).output().unwrap();
            assert!(output.status.success(), "round {round}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let mut load =
            ledger("load", &uri, &path, round).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut beside = Command::new("fio")
            .args([
                "--name=beside",
                "--ioengine=nbd",
                "--rw=randrw",
                "--bs=8k",
                "--iodepth=16",
                "--offset=128m",
            ])
            .args(["--size=64m", "--time_based", "--runtime=60", &format!("--uri={uri}")])
            .current_dir(lab.data().parent().unwrap())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_secs(2));
        array.kill();
        let mut said = String::new();
        load.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(load.wait().unwrap().success());
        beside.wait().unwrap();
        assert!(said.trim().parse::<u64>().unwrap() > 100, "hardly anything was acknowledged: {said}");
    }
    let mut array = lab.serve(&["--nbd", "127.0.0.1:0"]);
    let uri = uri(&lab.ready(), "v1");
    let output = ledger("check", &uri, &path, 0).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let verify =
        ["--name=after", "--ioengine=nbd", "--rw=randrw", "--bs=8k", "--size=16m", "--verify=crc32c"];
    fio(&lab, &[&verify[..], &["--verify_fatal=1", &format!("--uri={uri}")]].concat());
    array.terminate();
    lab.ok(&["check"]);
}
