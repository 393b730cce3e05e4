//! Who did what, over the wire.

use crate::lab::Lab;
use serde_json::{Value, json};

fn events(lab: &Lab, filter: &str) -> Vec<Value> {
    lab.get(&format!("/api/v1/events?limit=1000&{filter}")).body.as_array().unwrap().clone()
}

#[test]
fn a_change_names_its_token_address_and_request() {
    let lab = Lab::new();
    assert_eq!(lab.post("/api/v1/volumes", &json!({ "name": "v1", "size_bytes": 1 << 30 })).status, 201);
    let body = json!({ "size_bytes": 2u64 << 30 }).to_string();
    assert_eq!(lab.send("PATCH", "/api/v1/volumes/v1", Some(&body), Some("application/json")).status, 200);
    let grown = events(&lab, "audit=true&object=v1").remove(0);
    let actor = &grown["actor"];
    assert_eq!((&actor["token"], &actor["request"]), (&json!("admin"), &json!("PATCH /api/v1/volumes/v1")));
    assert!(actor["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{actor}");
    // SHA-256 of "secret".
    assert_eq!(actor["fingerprint"], "2bb80d53");
    assert_eq!(grown["changes"], json!([{ "field": "size_bytes", "before": 1 << 30, "after": 2u64 << 30 }]));
    assert_eq!(events(&lab, "audit=true&actor=127.0.0.1").len(), 2);
    assert_eq!(events(&lab, "audit=true&actor=nobody").len(), 0);
    // What the array does by itself has no actor.
    assert!(events(&lab, "").iter().any(|event| event["text"] == "online" && event["actor"].is_null()));
}

#[test]
fn refused_tokens_and_changes_are_recorded_and_a_flood_of_them_is_counted() {
    let lab = Lab::new();
    for _ in 0..50 {
        for header in [None, Some("Bearer wrong")] {
            assert_eq!(lab.request("DELETE", "/api/v1/volumes/v1", None, None, header).status, 401);
        }
        assert_eq!(lab.delete("/api/v1/volumes/v1").status, 404);
    }
    let told: Vec<_> = events(&lab, "audit=true")
        .iter()
        .map(|event| format!("{} {} {}", event["kind"], event["object"], event["text"]).replace('"', ""))
        .collect();
    assert_eq!(
        told,
        [
            "refusal volume v1 refused: no such volume: volume v1 does not exist",
            "refusal management interface refused: the token shown is not this array's",
            "refusal management interface refused: the request has no bearer token",
        ]
    );
    let (_, _, text) = lab.text("/metrics", "secret");
    assert!(text.contains("\nquoin_refusals_total{protocol=\"rest\"} 150\n"), "{text}");
    assert!(
        !events(&lab, "").iter().any(|event| event.to_string().contains("wrong")),
        "no token is recorded"
    );
}
