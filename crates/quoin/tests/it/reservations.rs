//! Persistent reservations of two hosts, as a cluster uses them to fence, and over a kill of the array.

use crate::{
    initiator::{CONFLICT, Initiator},
    lab::{Lab, Serving},
};
use serde_json::json;

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

/// A volume that two nodes see.
fn two_nodes() -> (Lab, Serving) {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "1", "--drive-size", "512M"]);
    let array = lab.serve(&[]);
    lab.ready();
    lab.ok(&["volume", "create", "v1", "--size", "16M"]);
    for (host, name) in ["n1", "n2"].into_iter().zip(NAMES) {
        lab.ok(&["host", "create", host, "--initiator", name]);
        lab.ok(&["map", "v1", "--host", host, "--lun", "1"]);
    }
    (lab, array)
}

/// Registers both nodes, each with its number as the key, and has the first one reserve the volume.
fn reserve(nodes: &mut [Initiator; 2]) {
    for (node, key) in nodes.iter_mut().zip(1..) {
        node.reserve_out(LUN, (REGISTER, 0), 0, key).unwrap();
    }
    nodes[0].reserve_out(LUN, (RESERVE, WRITE_EXCLUSIVE_REGISTRANTS), 1, 0).unwrap();
}

#[test]
fn a_node_that_was_fenced_stays_so_after_the_array_was_killed() {
    let (lab, mut array) = two_nodes();
    let mut nodes = login(&lab);
    reserve(&mut nodes);
    let [mut first, mut second] = nodes;
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

#[test]
fn an_administrator_ends_what_no_node_is_left_to_release() {
    let (lab, mut array) = two_nodes();
    let mut nodes = login(&lab);
    assert_eq!(lab.json(&["reservation", "list"]), json!([]));
    reserve(&mut nodes);
    nodes[0].reserve_out(LUN, (PREEMPT_AND_ABORT, WRITE_EXCLUSIVE_REGISTRANTS), 1, 2).unwrap();
    drop(nodes);
    lab.until(&["session", "list"], |sessions| sessions == &json!([]));

    // The node that holds it is gone, and keeps the other one out, also over a kill.
    array.kill();
    let mut array = lab.serve(&[]);
    lab.ready();
    let shown = lab.json(&["reservation", "show", "v1"]);
    assert_eq!(lab.json(&["reservation", "list"]), json!([shown]));
    assert_eq!(shown["reservation"], "write-exclusive-registrants-only");
    let holder = &shown["registrations"][0];
    for (field, value) in [
        ("initiator", json!(NAMES[0])),
        ("host", json!("n1")),
        ("key", json!("0x1")),
        ("holder", json!(true)),
        ("connected", json!(false)),
    ] {
        assert_eq!(holder[field], value, "{field} of {holder}");
    }
    let [first, mut second] = login(&lab);
    drop(first);
    assert_eq!(second.write(LUN, 0, &[2; 512]), Err(CONFLICT));

    let refused = lab.run(&["reservation", "clear", "v1"]);
    let told = &refused.stderr;
    assert!(refused.code == Some(1) && told.contains(NAMES[0]) && told.contains("--force"), "{told}");
    lab.ok(&["reservation", "clear", "v1", "--force"]);
    second.write(LUN, 0, &[2; 512]).unwrap();
    lab.ok(&["reservation", "clear", "v1"]);
    let told = lab.ok(&["events"]);
    assert_eq!(told.matches("reservations cleared, by force").count(), 1, "{told}");

    drop(second);
    array.kill();
    let mut array = lab.serve(&[]);
    lab.ready();
    assert_eq!(lab.json(&["reservation", "list"]), json!([]));
    array.terminate();
}
