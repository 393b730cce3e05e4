//! The recycle bin of the real array: what a command deletes, another brings back, with what hosts wrote, also after a kill.

use crate::initiator::Initiator;
use crate::lab::{Lab, Outcome};
use serde_json::Value;

const NAME: &str = "iqn.2026-11.test:h1";
const LEN: usize = 65_536;

#[track_caller]
fn refused(outcome: &Outcome, code: i32, parts: &[&str]) {
    assert_eq!(outcome.code, Some(code), "{outcome:?}");
    parts.iter().for_each(|part| assert!(outcome.stderr.contains(part), "no {part:?} in {}", outcome.stderr));
}

fn login(status: &Value) -> Initiator {
    let (portal, target) = (status["portals"][0].as_str().unwrap(), status["iqn"].as_str().unwrap());
    Initiator::login(portal, target, NAME)
}

#[test]
fn a_deleted_volume_comes_back_with_what_hosts_wrote() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "2", "--drive-size", "256M"]);
    let mut serving = lab.serve(&[]);
    let status = lab.ready();
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    lab.ok(&["volume", "create", "v1", "--size", "64M", "--tag", "app=db"]);
    lab.ok(&["map", "v1", "--host", "h1", "--lun", "1"]);
    let before = lab.json(&["volume", "show", "v1"]);
    let mut host = login(&status);
    host.write(1, 0, &[7; LEN]).unwrap();
    refused(&lab.run(&["volume", "delete", "v1"]), 1, &["host h1 sees v1 as LUN 1", "--force"]);
    let told = lab.ok(&["volume", "delete", "v1", "--force"]);
    assert!(told.contains("to undo this within 1d 0h: quoin recycle-bin restore v1"), "{told}");
    assert!(host.read(1, 0, LEN).is_err(), "the host has it no more");
    drop(host);

    // Its name is another's, and the array dies.
    lab.ok(&["volume", "create", "v1", "--size", "32M"]);
    serving.kill();
    let mut serving = lab.serve(&[]);
    let status = lab.ready();
    let deleted = lab.json(&["recycle-bin", "list"]);
    assert_eq!((deleted[0]["name"].as_str(), &deleted[0]["uuid"]), (Some("v1"), &before["uuid"]));
    assert!(deleted[0]["deleted_by"].as_str().is_some_and(|by| by.contains("admin")), "{deleted}");
    let day_ms = deleted[0]["expires_ms"].as_u64().unwrap() - deleted[0]["deleted_ms"].as_u64().unwrap();
    assert!((86_000_000..=86_500_000).contains(&day_ms), "{day_ms}");
    assert!(lab.ok(&["recycle-bin", "list"]).contains("EXPIRES"), "the table");
    assert!(lab.ok(&["recycle-bin", "show", "v1"]).contains("app=db"), "one");
    let bin = lab.json(&["recycle-bin", "show"]);
    assert_eq!((bin["volumes"].as_u64(), bin["keep_s"].as_u64()), (Some(1), Some(86_400)));
    assert_eq!(lab.json(&["status"])["recycle_bin"]["volumes"], 1);
    assert!(lab.ok(&["status"]).contains("1 deleted volume, holding"), "status");
    assert!(lab.ok(&["space"]).contains("held by recycle bin"), "space");
    refused(&lab.run(&["recycle-bin", "restore", "v1"]), 1, &["a volume v1 exists", "--name NAME"]);
    lab.ok(&["recycle-bin", "restore", "v1", "--name", "v1-old"]);
    let after = lab.json(&["volume", "show", "v1-old"]);
    assert_eq!((&after["uuid"], &after["tags"]["app"]), (&before["uuid"], &Value::from("db")));
    lab.ok(&["map", "v1-old", "--host", "h1", "--lun", "1"]);
    let mut host = login(&status);
    assert_eq!(host.read(1, 0, LEN).unwrap(), vec![7; LEN]);
    drop(host);

    // What is in it can be deleted for good; without --yes nothing is.
    lab.until(&["session", "list"], |sessions| sessions.as_array().unwrap().is_empty());
    lab.ok(&["volume", "delete", "v1", "v1-old", "--unmap"]);
    // Both may have been deleted in the same millisecond, so that either comes first.
    refused(&lab.run(&["recycle-bin", "empty"]), 1, &["with all data: v1", ", v1", "--yes"]);
    assert_eq!(lab.json(&["recycle-bin", "list"]).as_array().unwrap().len(), 2);
    lab.ok(&["recycle-bin", "empty", "v1-old", "--yes"]);
    refused(&lab.run(&["recycle-bin", "restore", "v1-old"]), 1, &["quoin recycle-bin list"]);
    lab.ok(&["recycle-bin", "empty", "--yes"]);
    assert!(lab.run(&["recycle-bin", "list"]).stderr.contains("the recycle bin is empty"));
    lab.until(&["status"], |status| status["capacity"]["used_bytes"] == 0);

    // Nothing comes there with --now, or while it is off.
    lab.ok(&["volume", "create", "v2", "--size", "8M"]);
    assert_eq!(lab.ok(&["volume", "delete", "v2", "--now"]), "volume v2 deleted\n");
    lab.ok(&["recycle-bin", "set", "--keep", "off"]);
    lab.ok(&["volume", "create", "v2", "--size", "8M"]);
    assert_eq!(lab.ok(&["volume", "delete", "v2"]), "volume v2 deleted\n");
    lab.ok(&["recycle-bin", "set", "--keep", "1s"]);
    lab.ok(&["volume", "create", "v2", "--size", "8M"]);
    lab.ok(&["volume", "delete", "v2"]);
    lab.until(&["recycle-bin", "list"], |deleted| deleted.as_array().unwrap().is_empty());
    let events = lab.ok(&["events"]);
    for said in [
        "the recycle bin keeps the data until",
        "restored from the recycle bin; it was called v1",
        "deleted for good from the recycle bin",
        "the time to restore them is over: v2",
    ] {
        assert!(events.contains(said), "no {said:?} in {events}");
    }
    serving.terminate();
    assert!(lab.ok(&["check"]).contains("no problems found"), "check");
}
