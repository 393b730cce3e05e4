//! The load generator against a real target: what it wrote is there, and it notices when it is not.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

const BENCH: &str = env!("CARGO_BIN_EXE_quoin-bench");

/// tgtd on a file of its own; ends when dropped.
struct Target {
    server: Child,
    args: Vec<String>,
    pid: String,
}

impl Target {
    fn start(file: &Path, store: &str) -> Target {
        let tgtd = Command::new("tgtd").arg("-V").output();
        assert!(tgtd.is_ok(), "this test needs tgtd: install Debian's package 'tgt'");
        std::fs::File::create(file).unwrap().set_len(64 << 20).unwrap();
        let mut server = Command::new(BENCH)
            .args(["tgtd", "--store", store, "--file"])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let about: Value = serde_json::from_str(&line).expect("the server says where it listens");
        let text = |key: &str| about[key].as_str().unwrap().to_owned();
        let args = ["--portal".into(), text("portal"), "--target".into(), text("target")].into();
        Target { server, args, pid: about["pid"].to_string() }
    }

    fn bench(&self, command: &str, args: &[&str]) -> Output {
        Command::new(BENCH).arg(command).args(&self.args).args(args).output().unwrap()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        drop(self.server.stdin.take());
        self.server.wait().unwrap();
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_is_written_is_read_back_and_corruption_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let (file, ledger) = (dir.path().join("disk.img"), dir.path().join("ledger"));
    let target = Target::start(&file, "rdwr");
    let ledger = ledger.to_str().unwrap();
    let load = ["--rw", "randrw", "--bs", "8k", "--depth", "32", "--mix", "60", "--working-set", "16M"];
    let load = [&load[..], &["--seconds", "1", "--warmup", "0.2", "--verify", "--ledger", ledger]].concat();
    let output = target.bench("load", &[&load[..], &["--target-pid", &target.pid, "-o", "json"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |pointer: &str| report.pointer(pointer).and_then(Value::as_f64).expect(pointer);
    assert!(number("/verified/blocks") >= 2048.0, "at least the closing sweep over 16 MiB");
    assert_eq!(number("/verified/mismatches"), 0.0);
    assert!(number("/read/ios") > 0.0 && number("/write/ios") > 0.0);
    assert!(number("/read/latency_us/p50") <= number("/read/latency_us/p999"));
    assert!(number("/generator/seconds") > 0.0 && number("/target/cpu/seconds") >= 0.0);

    let good = target.bench("verify", &["--ledger", ledger]);
    assert!(good.status.success(), "{}", stderr(&good));

    let disk = std::fs::File::options().read(true).write(true).open(&file).unwrap();
    let mut byte = [0];
    let at = (5 << 20) + 1234;
    disk.read_exact_at(&mut byte, at).unwrap();
    disk.write_all_at(&[byte[0] ^ 4], at).unwrap();
    let bad = target.bench("verify", &["--ledger", ledger]);
    assert_eq!(bad.status.code(), Some(1));
    let sector = at / 512 * 512;
    assert!(stderr(&bad).contains(&format!("byte {sector}")), "{}", stderr(&bad));
    assert!(stderr(&bad).contains("corrupt"));
}

#[test]
fn several_sessions_and_solicited_data_are_verified_too() {
    let dir = tempfile::tempdir().unwrap();
    let target = Target::start(&dir.path().join("disk.img"), "rdwr-sync-direct");
    let load = ["--rw", "write", "--bs", "1M", "--depth", "4", "--sessions", "2", "--fua"];
    let output =
        target.bench("load", &[&load[..], &["--seconds", "0.5", "--warmup", "0", "--verify"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("Verified       64 blocks, 0 mismatches"));
}

#[test]
fn refusals_say_what_and_why() {
    let dir = tempfile::tempdir().unwrap();
    let target = Target::start(&dir.path().join("disk.img"), "rdwr");
    for (args, why) in [
        (&["--lun", "7", "--seconds", "0.1"][..], "LUN 7 does not become ready"),
        (&["--working-set", "1T"], "larger than the unit"),
        (&["--working-set", "64k"], "too few for depth 32"),
        (&["--bs", "1000"], "multiple of 512"),
    ] {
        let output = target.bench("load", args);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
    let wrong = ["load", "--portal", &target.args[1], "--target", "iqn.2026-11.test:none"];
    let output = Command::new(BENCH).args(wrong).output().unwrap();
    assert!(stderr(&output).contains("login to iqn.2026-11.test:none"), "{}", stderr(&output));
}
