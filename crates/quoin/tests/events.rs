//! Events of an array that is killed while its pool is offline, and what it says of itself meanwhile.

#[allow(dead_code, reason = "shared by several tests")]
mod lab;

use lab::Lab;
use serde_json::Value;
use std::fs;

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
