//! Events of an array that is killed while its pool is offline, and what it says of itself meanwhile; and clients that it
//! refuses.

use crate::initiator::Initiator;
use crate::lab::Lab;
use serde_json::Value;
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

fn events(lab: &Lab, args: &[&str]) -> Vec<Value> {
    let outcome = lab.run(&[&["events", "--limit", "1000", "-o", "json"], args].concat());
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
}

fn numbers(events: &[Value]) -> Vec<u64> {
    events.iter().rev().map(|event| event["number"].as_u64().unwrap()).collect()
}

#[test]
fn an_offline_pool_claims_nothing_and_its_events_survive_a_kill() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "2", "--drive-size", "256M"]);
    let mut serving = lab.serve(&[]);
    lab.ready();
    lab.ok(&["volume", "create", "v1", "--size", "1G"]);
    let created = events(&lab, &["--audit"]).remove(0);
    assert_eq!(created["actor"]["token"], "admin");
    assert!(created["actor"]["command"].as_str().unwrap().starts_with("quoin volume create v1"), "{created}");
    assert!(created["actor"]["user"].as_str().unwrap().contains('@'), "{created}");
    serving.terminate();
    let drive = fs::read_dir(lab.data().join("drives")).unwrap().next().unwrap().unwrap().path();
    // Beside the other drives it would be found by its label.
    let away = lab.data().join("away");
    fs::rename(&drive, &away).unwrap();

    let mut serving = lab.serve(&[]);
    let status = lab.until(&["status"], |status| status["state"] == "offline");
    assert!(
        status["objects"].is_null() && status["integrity"].is_null() && status["capacity"].is_null(),
        "{status}"
    );
    assert!(status["since_ms"].as_u64() > created["at_ms"].as_u64());
    let shown = lab.run(&["status"]);
    assert_eq!(shown.code, Some(1), "{shown:?}");
    assert!(shown.stdout.contains("offline since 20") && !shown.stdout.contains("damaged"), "{shown:?}");
    assert!(shown.stderr.contains("the pool is offline"), "{shown:?}");
    let told = events(&lab, &[]);
    let before = numbers(&told);
    assert!(told.iter().any(|event| event["severity"] == "critical"), "{told:?}");
    serving.kill();

    let mut serving = lab.serve(&[]);
    lab.until(&["status"], |status| status["state"] == "offline");
    let both = numbers(&events(&lab, &[]));
    assert_eq!(both[..before.len()], before[..], "the events of the process that was killed are there");
    assert!(both.len() > before.len() && both.is_sorted_by(|a, b| a < b), "{both:?}");

    fs::rename(&away, &drive).unwrap();
    lab.ready();
    let all = events(&lab, &[]);
    let saved = numbers(&all);
    assert!(saved.is_sorted_by(|a, b| a < b), "{saved:?}");
    assert!(both.iter().all(|number| saved.contains(number)), "{both:?} in {saved:?}");
    assert!(all.iter().any(|event| event["number"] == created["number"] && event["text"] == created["text"]));
    serving.terminate();

    // After a clean stop numbers go on without a gap.
    let mut serving = lab.serve(&[]);
    lab.ready();
    let again = numbers(&events(&lab, &[]));
    assert!(again.len() > saved.len() && again.last().unwrap() - saved.last().unwrap() < 10, "{again:?}");
    serving.terminate();
}

/// Asks for an export in the old way, which has no answer but yes; true if the array closes the connection.
fn is_refused(address: &str, export: &str) -> bool {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    let option = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &1u32.to_be_bytes()].concat();
    let name = [&(export.len() as u32).to_be_bytes()[..], export.as_bytes()].concat();
    stream.write_all(&[option, name].concat()).unwrap();
    matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_))
}

#[test]
fn clients_that_are_refused_are_in_the_audit_and_a_flood_of_them_is_counted() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "1", "--drive-size", "256M"]);
    let mut serving = lab.serve(&["--nbd", "127.0.0.1:0"]);
    let status = lab.ready();
    let (portal, nbd) = (status["portals"][0].as_str().unwrap(), status["nbd"][0].as_str().unwrap());
    let target = status["iqn"].as_str().unwrap();
    let (known, stranger) = ("iqn.2026-11.test:h1", "iqn.2026-11.test:stranger");
    lab.ok(&["host", "create", "h1", "--initiator", known]);

    let other = "iqn.2026-11.test:another-array";
    for _ in 0..3 {
        assert_eq!(Initiator::login_status(portal, other, known), (2, 3));
    }
    assert_eq!(Initiator::login_status(portal, target, stranger), (0, 0));
    assert_eq!(Initiator::login_status(portal, target, known), (0, 0));
    for export in ["no-such-export", "no-such-export"] {
        assert!(is_refused(nbd, export));
    }
    let refused = |count: usize| -> Vec<Value> {
        let all = lab.until(&["events", "--audit"], |all| {
            let refusals = all.as_array().unwrap().iter().filter(|event| event["kind"] == "refusal");
            refusals.count() >= count
        });
        all.as_array().unwrap().iter().filter(|event| event["kind"] == "refusal").rev().cloned().collect()
    };
    let told = refused(3);
    let said: Vec<_> = told
        .iter()
        .map(|event| (event["object"].as_str().unwrap(), event["text"].as_str().unwrap()))
        .collect();
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said.contains(&(
        "host h1",
        "refused: login: there is no target of that name: it asked for iqn.2026-11.test:another-array"
    )));
    let sees_none = "refused: login: no host has this initiator, so it sees no volume";
    assert!(said.contains(&("initiator iqn.2026-11.test:stranger", sees_none)), "{said:?}");
    assert!(said.contains(&("export no-such-export", "refused: there is no such export")), "{said:?}");
    for event in &told {
        assert!(event["actor"]["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{event}");
    }
    assert_eq!(told[0]["actor"]["name"], known);

    // Those that were only counted are told when the array stops, at the latest.
    serving.terminate();
    let mut serving = lab.serve(&[]);
    lab.ready();
    let counted: Vec<_> = refused(5).iter().map(|event| event["suppressed"].as_u64().unwrap()).collect();
    assert_eq!(counted.iter().sum::<u64>(), 3, "{counted:?}");
    serving.terminate();
}
