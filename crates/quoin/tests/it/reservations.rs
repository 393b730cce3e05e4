//! Persistent reservations of two hosts, as a cluster uses them to fence, and over a kill of the array.

use crate::initiator::{CONFLICT, Initiator};
use crate::lab::Lab;

const LUN: u8 = 1;
const NAMES: [&str; 2] = ["iqn.2026-11.test:n1", "iqn.2026-11.test:n2"];
const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const PREEMPT_AND_ABORT: u8 = 5;
/// Write exclusive, registrants only: what clusters take.
const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 5;

fn login(lab: &Lab) -> [Initiator; 2] {
    let status = lab.ready();
    let (portal, target) = (status["portals"][0].as_str().unwrap(), status["iqn"].as_str().unwrap());
    NAMES.map(|name| Initiator::login(portal, target, name))
}

#[test]
fn a_node_that_was_fenced_stays_so_after_the_array_was_killed() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "1", "--drive-size", "512M"]);
    let mut array = lab.serve(&[]);
    lab.ready();
    lab.ok(&["volume", "create", "v1", "--size", "16M"]);
    for (host, name) in ["n1", "n2"].into_iter().zip(NAMES) {
        lab.ok(&["host", "create", host, "--initiator", name]);
        lab.ok(&["map", "v1", "--host", host, "--lun", "1"]);
    }
    let [mut first, mut second] = login(&lab);
    for (node, key) in [(&mut first, 1), (&mut second, 2)] {
        node.reserve_out(LUN, (REGISTER, 0), 0, key).unwrap();
    }
    first.reserve_out(LUN, (RESERVE, WRITE_EXCLUSIVE_REGISTRANTS), 1, 0).unwrap();
    second.write(LUN, 0, &[2; 512]).unwrap();
    // The second node takes over.
    second.reserve_out(LUN, (PREEMPT_AND_ABORT, WRITE_EXCLUSIVE_REGISTRANTS), 2, 1).unwrap();
    assert_eq!(first.write(LUN, 0, &[1; 512]), Err(CONFLICT));
    drop((first, second));
    array.kill();
    let mut array = lab.serve(&[]);
    let [mut first, mut second] = login(&lab);
    assert_eq!(second.reservation_keys(LUN), [2]);
    assert_eq!(first.write(LUN, 0, &[1; 512]), Err(CONFLICT));
    second.write(LUN, 512, &[3; 512]).unwrap();
    assert_eq!(first.read(LUN, 0, 512).unwrap(), [2; 512]);
    drop((first, second));
    array.terminate();
    lab.ok(&["check"]);
}
