//! The memory limit is kept by the process as the system counts it, whatever hosts do.

use crate::initiator::{Initiator, LONGEST_BYTES};
use crate::lab::Lab;
use std::{process::Command, thread};

const MIB: u64 = 1 << 20;
const LIMIT_BYTES: u64 = 256 * MIB;
/// iSCSI sessions that write and read at the same time.
const SESSIONS: u64 = 24;
/// NBD connections that ask for much at the same time.
const CONNECTIONS: u64 = 12;
/// The longest command. Each session may have one beyond the limit.
const LONGEST_COMMAND_BYTES: u64 = MIB;
/// What the system gives more than was asked for: rounding up, pages half used.
const ROUNDING_BYTES: u64 = LIMIT_BYTES / 16;

fn fio(uri: &str, lab: &Lab, options: &[&str]) {
    let directory = lab.data().parent().unwrap();
    let mut fio = Command::new("timeout");
    fio.args(["-k", "1", "120", "fio", "--ioengine=nbd", "--iodepth=32", "--group_reporting", uri])
        .args(options)
        .current_dir(directory);
    let output = fio.output().unwrap();
    assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn sessions(portal: &str, target: &str) {
    thread::scope(|scope| {
        for session in 0..SESSIONS {
            scope.spawn(move || {
                let mut initiator = Initiator::login(portal, target, &format!("iqn.2026-11.test:h{session}"));
                let content = vec![session as u8 + 1; LONGEST_BYTES];
                for step in 0..64u64 {
                    let offset = (session * 64 + step * 7 % 64) * LONGEST_BYTES as u64;
                    initiator.write(1, offset, &content).unwrap();
                    assert_eq!(initiator.read(1, offset, LONGEST_BYTES).unwrap(), content);
                }
            });
        }
    });
}

#[test]
fn small_writes_are_counted_with_what_they_take() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "2", "--drive-size", "3G"]);
    let mut array = lab.serve(&["--nbd", "127.0.0.1:0", "--memory-limit", &LIMIT_BYTES.to_string()]);
    let status = lab.ready();
    lab.ok(&["volume", "create", "v1", "--size", "2G"]);
    lab.ok(&["export", "create", "v1"]);
    let uri = format!("--uri=nbd://{}/v1", status["nbd"][0].as_str().unwrap());
    // A sector at a time all over the volume: a page for each would be eight times the write buffer's share.
    let sectors = ["--name=sectors", "--rw=randwrite", "--bs=512", "--size=2g", "--io_size=40m"];
    fio(&uri, &lab, &[&sectors[..], &["--numjobs=4"]].concat());
    let peak_bytes = array.peak_bytes();
    let most_bytes = LIMIT_BYTES + 4 * LONGEST_COMMAND_BYTES + ROUNDING_BYTES;
    assert!(peak_bytes < most_bytes, "{} MiB of {}", peak_bytes / MIB, most_bytes / MIB);
    array.terminate();
}

#[test]
fn the_process_keeps_to_its_memory_limit() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "2", "--drive-size", "3G"]);
    let mut array = lab.serve(&["--nbd", "127.0.0.1:0", "--memory-limit", &LIMIT_BYTES.to_string()]);
    let status = lab.ready();
    lab.ok(&["volume", "create", "v1", "--size", "2G"]);
    lab.ok(&["export", "create", "v1"]);
    let mut host = vec!["host".to_owned(), "create".to_owned(), "h1".to_owned()];
    host.extend((0..SESSIONS).map(|session| format!("--initiator=iqn.2026-11.test:h{session}")));
    lab.ok(&host.iter().map(String::as_str).collect::<Vec<_>>());
    lab.ok(&["map", "v1", "--host", "h1", "--lun", "1"]);
    let uri = format!("--uri=nbd://{}/v1", status["nbd"][0].as_str().unwrap());

    fio(&uri, &lab, &["--name=large", "--rw=write", "--bs=1m", "--size=1g"]);
    fio(
        &uri,
        &lab,
        &["--name=small", "--rw=randwrite", "--bs=8k", "--size=1g", "--io_size=96m", "--numjobs=4"],
    );
    sessions(status["portals"][0].as_str().unwrap(), status["iqn"].as_str().unwrap());
    fio(
        &uri,
        &lab,
        &["--name=read", "--rw=randread", "--bs=8k", "--size=1g", "--io_size=96m", "--numjobs=4"],
    );
    let connections = format!("--numjobs={CONNECTIONS}");
    fio(&uri, &lab, &["--name=wide", "--rw=randrw", "--bs=1m", "--size=1g", "--io_size=96m", &connections]);
    let peak_bytes = array.peak_bytes();
    let most_bytes = LIMIT_BYTES + CONNECTIONS * LONGEST_COMMAND_BYTES + ROUNDING_BYTES;
    assert!(peak_bytes < most_bytes, "{} MiB of {}", peak_bytes / MIB, most_bytes / MIB);
    // All that was done filled what the limit grants; else this would show nothing.
    assert!(peak_bytes > LIMIT_BYTES / 2, "{} MiB", peak_bytes / MIB);
    let told = lab.metrics();
    for line in [
        format!("quoin_memory_limit_bytes {LIMIT_BYTES}"),
        format!("quoin_memory_budget_bytes{{use=\"sessions\"}} {}", (LIMIT_BYTES - 32 * MIB) / 8),
        "quoin_frontend_cut_off_total{protocol=\"iscsi\",cause=\"stalled\"} 0".to_owned(),
    ] {
        assert!(told.lines().any(|told| told == line), "{line} is not in:\n{told}");
    }
    array.terminate();
}
