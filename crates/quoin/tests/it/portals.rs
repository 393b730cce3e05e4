//! Portals that come and go while the array runs, as hosts meet them.

use crate::{initiator::Initiator, lab::Lab};
use serde_json::Value;
use std::net::{TcpListener, TcpStream};

const NAME: &str = "iqn.2026-11.test:h1";
const LUN: u8 = 1;

/// An address at which nothing listens.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn portals(lab: &Lab) -> Vec<(String, u64, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let row = |p: &Value| (text(&p["address"]), p["portal_group"].as_u64().unwrap(), text(&p["state"]));
    lab.json(&["portal", "list"]).as_array().unwrap().iter().map(row).collect()
}

fn row(address: &str, group: u64, state: &str) -> (String, u64, String) {
    (address.to_owned(), group, state.to_owned())
}

/// The command must fail and say this.
fn refused(lab: &Lab, args: &[&str], why: &str) {
    let outcome = lab.run(args);
    assert!(outcome.code == Some(1) && outcome.stderr.contains(why), "{outcome:?}");
}

#[test]
fn a_portal_comes_and_goes_and_the_others_notice_nothing() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "1", "--drive-size", "512M"]);
    let mut array = lab.serve(&[]);
    let status = lab.ready();
    let (first, target) = (status["portals"][0].as_str().unwrap(), status["iqn"].as_str().unwrap());
    lab.ok(&["volume", "create", "v1", "--size", "16M"]);
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    lab.ok(&["map", "v1", "--host", "h1", "--lun", "1"]);
    let second = free_address();
    assert_eq!(lab.json(&["portal", "create", &second])["portal_group"], 2);
    assert_eq!(portals(&lab), [row(first, 1, "up"), row(&second, 2, "up")]);
    // Two sessions of one host: two paths to one unit.
    let mut paths = [first, &second].map(|portal| Initiator::login(portal, target, NAME));
    paths[1].write(LUN, 0, &[7; 512]).unwrap();
    assert_eq!(paths[0].read(LUN, 0, 512).unwrap(), [7; 512]);
    let named = |path: &mut Initiator| path.identity(LUN);
    let [own, other] = [named(&mut paths[0]), named(&mut paths[1])];
    assert!(own != other, "the paths come through one target port");
    refused(&lab, &["portal", "disable", &second], NAME);
    lab.ok(&["portal", "disable", &second, "--force"]);
    assert!(TcpStream::connect(&second).is_err(), "a portal that is disabled accepts connections");
    paths[1].is_asked_to_log_out();
    paths[0].write(LUN, 512, &[8; 512]).unwrap();
    lab.ok(&["portal", "enable", &second]);
    paths[1] = Initiator::login(&second, target, NAME);
    assert_eq!(paths[1].read(LUN, 512, 512).unwrap(), [8; 512]);
    // What another process listens at is not taken, and nothing is left behind.
    let taken = TcpListener::bind("127.0.0.3:0").unwrap();
    refused(&lab, &["portal", "create", &taken.local_addr().unwrap().to_string()], "something else listens");
    refused(&lab, &["portal", "delete", first, "--force"], "quoin portal disable");
    drop(paths);
    array.kill();
    // Its address is taken when the array starts again, and free a moment later.
    let taken = TcpListener::bind(&second).unwrap();
    let mut array = lab.serve(&[]);
    lab.ready();
    let is_up = |state: &'static str| {
        move |portals: &Value| {
            portals.as_array().unwrap().iter().any(|p| p["portal_group"] == 2 && p["state"] == state)
        }
    };
    lab.until(&["portal", "list"], is_up("down"));
    drop(taken);
    lab.until(&["portal", "list"], is_up("up"));
    assert_eq!(Initiator::login(&second, target, NAME).read(LUN, 0, 512).unwrap(), [7; 512]);
    lab.ok(&["portal", "delete", &second, "--force"]);
    assert_eq!(portals(&lab).len(), 1);
    array.terminate();
    lab.ok(&["check"]);
}
