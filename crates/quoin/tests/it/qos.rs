//! Limits of IOPS and bandwidth on the real binary: for hosts over iSCSI, while they write, and over a kill.

use crate::{initiator::Initiator, lab::Lab};
use std::time::{Duration, Instant};

const NAME: &str = "iqn.2026-11.test:h1";

/// Writes, one after the other. Returns how long that took.
fn write(host: &mut Initiator, writes: u64) -> Duration {
    let begun = Instant::now();
    for at in 0..writes {
        host.write(1, at * 4096, &[at as u8; 4096]).unwrap();
    }
    begun.elapsed()
}

fn login(lab: &Lab) -> Initiator {
    let status = lab.ready();
    Initiator::login(status["portals"][0].as_str().unwrap(), status["iqn"].as_str().unwrap(), NAME)
}

#[test]
fn a_host_gets_no_more_than_a_limit_says_also_after_a_kill() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "1", "--drive-size", "256M"]);
    let mut serving = lab.serve(&[]);
    lab.ready();
    lab.ok(&["volume", "create", "v1", "--size", "64M"]);
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    lab.ok(&["map", "v1", "--host", "h1", "--lun", "1"]);
    let mut host = login(&lab);
    write(&mut host, 30);
    assert_eq!(lab.json(&["qos", "--volume", "v1"])["delayed"], 0);
    // It holds for the session that is logged in. The first write is let in at once.
    lab.ok(&["qos", "--volume", "v1", "--iops", "50", "--burst", "0s"]);
    let took = write(&mut host, 21);
    assert!(took >= Duration::from_millis(390), "20 intervals of 20 ms took {took:?}");
    let shown = lab.json(&["qos", "--volume", "v1"]);
    assert_eq!((&shown["iops"], &shown["waiting"]), (&50.into(), &0.into()));
    assert!(shown["delayed"].as_u64().unwrap() > 0, "{shown}");
    let metrics = lab.metrics();
    let line = metrics.lines().find(|line| line.starts_with("quoin_volume_throttled_seconds_total"));
    let seconds: f64 = line.and_then(|line| line.split(' ').next_back()).unwrap().parse().unwrap();
    assert!(seconds > 0.0, "{seconds}");
    serving.kill();
    drop(serving);
    let _serving = lab.serve(&[]);
    let mut host = login(&lab);
    let took = write(&mut host, 21);
    assert!(took >= Duration::from_millis(390), "20 intervals of 20 ms took {took:?}");
    lab.ok(&["qos", "--volume", "v1", "--off"]);
    assert_eq!(lab.json(&["qos"]), serde_json::json!([]));
}
