//! Requests with an `Idempotency-Key` on an array that is killed: each is carried out once.

use crate::lab::Lab;
use serde_json::{Value, json};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::Duration,
};

/// How often the array is killed while requests are under way.
const ROUNDS: u64 = 6;

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Value,
}

impl Answer {
    fn is_replayed(&self) -> bool {
        self.head.contains("idempotency-replayed: true")
    }
}

/// Sends a request with a key; `None` if no whole answer came.
fn post(lab: &Lab, path: &str, key: &str, body: &Value) -> Option<Answer> {
    let address = fs::read_to_string(lab.data().join("run/api")).ok()?;
    let token = fs::read_to_string(lab.data().join("token")).unwrap();
    let body = body.to_string();
    let mut stream = TcpStream::connect(address.trim()).ok()?;
    let head = format!(
        "POST /api/v1{path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nIdempotency-Key: {key}\r\nConnection: close\r\n\r\n",
        token.trim(),
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, head: head.to_owned(), body: serde_json::from_str(body).ok()? })
}

fn location(answer: &Answer) -> &str {
    answer.head.lines().find_map(|line| line.strip_prefix("location: ")).unwrap_or_default()
}

fn snapshots(lab: &Lab) -> usize {
    lab.json(&["snapshot", "list"]).as_array().unwrap().len()
}

#[test]
fn a_request_that_was_answered_is_known_after_a_kill() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "1", "--drive-size", "1G"]);
    let mut serving = lab.serve(&[]);
    lab.ready();
    lab.ok(&["volume", "create", "v1", "--size", "64M"]);
    lab.ok(&["host", "create", "h1", "--initiator", "iqn.2026-11.test:h1"]);
    lab.ok(&["group", "create", "g1", "--volume", "v1"]);
    let requests = [
        ("/snapshots", json!({ "volume": "v1" })),
        ("/mappings", json!({ "volume": "v1", "host": "h1" })),
        ("/volumes/v1/clone", json!({ "name": "c1" })),
        ("/groups/g1/sets", json!({})),
        ("/schedules", json!({ "name": "n1", "volume": "v1", "rules": [{ "every": "daily", "keep": 3 }] })),
        ("/exports", json!({ "volume": "c1" })),
    ];
    let send = |number: usize, key: &str| {
        let (path, body) = &requests[number];
        post(&lab, path, key, body).unwrap_or_else(|| panic!("{path}: no answer"))
    };
    let first: Vec<_> = (0..requests.len()).map(|number| send(number, &format!("key-{number}"))).collect();
    assert!(first.iter().all(|answer| answer.status == 201 && !answer.is_replayed()), "{first:?}");
    serving.kill();

    let mut serving = lab.serve(&[]);
    lab.ready();
    for (number, first) in first.iter().enumerate() {
        let again = send(number, &format!("key-{number}"));
        assert!(again.status == 201 && again.is_replayed(), "{again:?}");
        assert_eq!((location(&again), &again.body["name"]), (location(first), &first.body["name"]));
        assert!(!location(&again).is_empty(), "{again:?}");
    }
    // One by itself, and one in the set of the group.
    assert_eq!(snapshots(&lab), 2);
    let reused = send(1, "key-0");
    assert_eq!((reused.status, &reused.body["type"]), (422, &json!("urn:quoin:problem:key-reused")));

    // What was made and deleted is not made again.
    lab.ok(&["snapshot", "delete", first[0].body["name"].as_str().unwrap()]);
    serving.terminate();
    let _serving = lab.serve(&[]);
    lab.ready();
    let again = send(0, "key-0");
    assert_eq!(
        (again.status, &again.body["type"]),
        (409, &json!("urn:quoin:problem:carried-out")),
        "{again:?}"
    );
    assert_eq!(send(0, "another").status, 201);
    assert_eq!(snapshots(&lab), 2);
}

/// The array is killed at any moment of a creation; the client sends again what was not answered.
#[test]
fn no_request_is_carried_out_twice_whenever_the_array_is_killed() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "1", "--drive-size", "1G"]);
    let mut serving = lab.serve(&[]);
    lab.ready();
    lab.ok(&["volume", "create", "v1", "--size", "64M"]);
    let body = json!({ "volume": "v1" });
    let (mut sent, mut replayed) = (0, 0);
    for round in 0..ROUNDS {
        let unanswered = thread::scope(|scope| {
            let client = scope.spawn(|| {
                (0..).map(|number| format!("{round}-{number}")).find(|key| {
                    let answer = post(&lab, "/snapshots", key, &body);
                    assert!(answer.as_ref().is_none_or(|answer| answer.status == 201), "{answer:?}");
                    sent += 1;
                    answer.is_none()
                })
            });
            thread::sleep(Duration::from_millis(40 + 7 * round));
            serving.kill();
            client.join().unwrap().unwrap()
        });
        serving = lab.serve(&[]);
        lab.ready();
        let again = post(&lab, "/snapshots", &unanswered, &body).unwrap();
        assert_eq!(again.status, 201, "{again:?}");
        replayed += usize::from(again.is_replayed());
        assert_eq!(snapshots(&lab), sent, "{replayed} of {} were on the drives already", round + 1);
    }
}
