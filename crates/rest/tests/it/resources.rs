//! What all resources have in common: bodies, pages, conditions, requests that are sent again, jobs.

use crate::lab::{Answer, Lab, TOKEN};
use serde_json::{Value, json};

const VOLUMES: &str = "/api/v1/volumes";

fn volume(name: &str) -> Value {
    json!({ "name": name, "size_bytes": 64 << 20 })
}

fn is_problem(answer: &Answer, status: u16, kind: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.body["type"], format!("urn:quoin:problem:{kind}"), "{answer:?}");
}

/// A request with the token and these headers.
fn send(lab: &Lab, method: &str, path: &str, body: &Value, headers: &[(&str, &str)]) -> Answer {
    let bearer = format!("Bearer {TOKEN}");
    let all = [&[("authorization", bearer.as_str()), ("content-type", "application/json")], headers].concat();
    let body = (!body.is_null()).then(|| body.to_string());
    lab.with_headers(method, path, body.as_deref(), &all)
}

#[test]
fn bodies_are_objects_whose_fields_are_known() {
    let lab = Lab::new();
    let refused = lab.post(VOLUMES, &json!(["v1", 64 << 20]));
    is_problem(&refused, 422, "invalid");
    assert!(refused.body["why"].as_str().unwrap().contains("expected an object"), "{refused:?}");
    let inner =
        json!({ "name": "h1", "initiators": ["iqn.2026-11.test:h1"], "chap": [["u", "123456789012"]] });
    is_problem(&lab.post("/api/v1/hosts", &inner), 422, "invalid");
    let twice = r#"{"name":"v1","name":"v2","size_bytes":4096}"#;
    is_problem(&lab.send("POST", VOLUMES, Some(twice), Some("application/json")), 422, "invalid");
    is_problem(&lab.get("/api/v1/volumes/%ff"), 400, "invalid");
    assert_eq!(lab.get(VOLUMES).body, json!([]));
    // JSON has one kind of numbers: these are the same.
    let whole = r#"{"name":"v1","size_bytes":4096.0}"#;
    assert_eq!(lab.send("POST", VOLUMES, Some(whole), Some("application/json")).status, 201);
    is_problem(&lab.post(VOLUMES, &json!({ "name": "v2", "size_bytes": 4096.5 })), 422, "invalid");
}

#[test]
fn what_cannot_be_read_of_a_volume_is_listed() {
    let lab = Lab::new();
    lab.post(VOLUMES, &volume("v1"));
    let listed = lab.get(&format!("{VOLUMES}/v1/unreadable"));
    let nothing = json!({
        "volume": "v1", "size_bytes": 64 << 20, "ranges": [], "drives": [], "more_damaged": 0, "next_bytes": null,
    });
    assert_eq!((listed.status, &listed.body), (200, &nothing));
    // Beyond the end there is nothing either, as far as volumes can go.
    let largest = 64_u64 << 40;
    assert_eq!(lab.get(&format!("{VOLUMES}/v1/unreadable?from_bytes={largest}")).body, nothing);
    is_problem(&lab.get(&format!("{VOLUMES}/v9/unreadable")), 404, "not-found");
    let beyond = format!("from_bytes={}", largest + 1);
    for query in ["from_bytes=x", "from_bytes=-1", "from=0", &beyond] {
        is_problem(&lab.get(&format!("{VOLUMES}/v1/unreadable?{query}")), 422, "invalid");
    }
}

#[test]
fn compression_is_one_of_those_that_there_are_for_volumes_and_policies() {
    let lab = Lab::new();
    let (v1, policies) = (format!("{VOLUMES}/v1"), "/api/v1/policies");
    let patch = |path: &str, body: Value| send(&lab, "PATCH", path, &body, &[]);
    let unknown = |answer: &Answer, choices: &str| {
        is_problem(answer, 422, "invalid");
        let why = answer.body["why"].as_str().unwrap();
        assert!(why.contains("`gzip`") && why.contains(choices), "{why}");
    };
    let of_volumes = "expected one of `off`, `lz4`, `zstd`";
    let of_policies = "expected one of `any`, `off`, `lz4`, `zstd`";
    let gzip = json!({ "name": "v1", "size_bytes": 4096, "compression": "gzip" });
    unknown(&lab.post(VOLUMES, &gzip), of_volumes);
    unknown(&lab.post(policies, &json!({ "name": "gold", "compression": "gzip" })), of_policies);
    let made = lab.post(policies, &json!({ "name": "gold", "compression": "lz4" }));
    assert_eq!((made.status, &made.body["compression"]), (201, &json!("lz4")));
    let volume = json!({ "name": "v1", "size_bytes": 4096, "policy": "gold" });
    assert_eq!(lab.post(VOLUMES, &volume).body["compression"], "lz4");
    assert_eq!(lab.get(&v1).body["compliance"]["compression"], "lz4");
    assert_eq!(lab.get(&format!("{policies}/default")).body["compression"], "any");
    unknown(&patch(&v1, json!({ "compression": "gzip" })), of_volumes);
    is_problem(&patch(&v1, json!({ "compression": "any" })), 422, "invalid");
    assert_eq!(patch(&v1, json!({ "compression": "zstd" })).body["compliance"]["state"], "differs");
    assert_eq!(lab.get(&v1).body["compression"], "zstd");
    let gold = format!("{policies}/gold");
    assert_eq!(lab.get(&gold).body["differing"], 1);
    unknown(&patch(&gold, json!({ "compression": "gzip" })), of_policies);
    assert_eq!(patch(&gold, json!({ "compression": "off" })).body["compression"], "off");
    assert_eq!(lab.get(&v1).body["compression"], "off");
}

#[test]
fn deduplication_is_on_or_off_for_volumes_and_policies() {
    let lab = Lab::new();
    let (v1, policies) = (format!("{VOLUMES}/v1"), "/api/v1/policies");
    let gold = format!("{policies}/gold");
    let patch = |path: &str, value: &str| send(&lab, "PATCH", path, &json!({ "deduplication": value }), &[]);
    let made = lab.post(policies, &json!({ "name": "gold", "deduplication": "on" }));
    assert_eq!((made.status, &made.body["deduplication"]), (201, &json!("on")));
    let volume = json!({ "name": "v1", "size_bytes": 4096, "policy": "gold" });
    assert_eq!(lab.post(VOLUMES, &volume).body["deduplication"], "on");
    assert_eq!(lab.get(&v1).body["compliance"]["deduplication"], "on");
    assert_eq!(lab.get(&format!("{policies}/default")).body["deduplication"], "any");
    assert_eq!(patch(&v1, "off").body["compliance"]["state"], "differs");
    assert_eq!(lab.get(&gold).body["differing"], 1);
    for (path, value, choices) in [(&v1, "any", "`off` or `on`"), (&gold, "yes", "`any`, `off`, `on`")] {
        let refused = patch(path, value);
        is_problem(&refused, 422, "invalid");
        assert!(refused.body["why"].as_str().unwrap().contains(choices), "{:?}", refused.body);
    }
    assert_eq!(patch(&gold, "any").body["deduplication"], "any");
    assert_eq!(lab.get(&v1).body["deduplication"], "off");
}

#[test]
fn lists_are_read_in_pages_and_filtered() {
    let lab = Lab::new();
    for name in ["a1", "a2", "b1", "a3"] {
        let made = lab.post(VOLUMES, &volume(name));
        assert_eq!((made.status, made.header("location")), (201, format!("{VOLUMES}/{name}")));
        assert_eq!(lab.get(&made.header("location")).body["name"], name);
    }
    let (mut path, mut names) = (format!("{VOLUMES}?limit=2&name=a*"), Vec::new());
    loop {
        let page = lab.get(&path);
        let items = page.body.as_array().unwrap_or_else(|| panic!("{page:?}"));
        assert!((1..=2).contains(&items.len()));
        names.extend(items.iter().map(|item| item["name"].as_str().unwrap().to_owned()));
        let link = page.header("link");
        let Some(next) = link.strip_suffix(">; rel=\"next\"") else { break };
        path = next.trim_start_matches('<').to_owned();
        // What comes and goes meanwhile shifts no page.
        assert_eq!(lab.delete("/api/v1/volumes/a1").status, 204);
    }
    assert_eq!(names, ["a1", "a2", "a3"]);
    let first = lab.get(&format!("{VOLUMES}?limit=1"));
    let cursor = first.header("link");
    let cursor = cursor.split("cursor=").nth(1).unwrap().split('>').next().unwrap();
    assert_eq!(lab.delete("/api/v1/volumes/a2").status, 204);
    is_problem(&lab.get(&format!("{VOLUMES}?cursor={cursor}")), 409, "cursor-gone");
    for bad in ["limit=0", "limit=x", "limit=1&limit=2", "cursor=zz", "colour=red"] {
        is_problem(&lab.get(&format!("{VOLUMES}?{bad}")), 422, "invalid");
    }
    let host = json!({ "name": "h1", "initiators": ["iqn.2026-11.test:h1"] });
    assert_eq!(lab.post("/api/v1/hosts", &host).header("location"), "/api/v1/hosts/h1");
    let mapped = lab.post("/api/v1/mappings", &json!({ "volume": "b1", "host": "h1" }));
    assert_eq!(lab.get(&mapped.header("location")).body["lun"], 0);
    for (path, count) in [
        ("hosts?initiator=IQN.2026-11.test:h1", 1),
        ("hosts?name=x*", 0),
        ("hosts?volume=b1", 1),
        ("mappings?host=h1", 1),
        ("mappings?volume=a3", 0),
        ("exports?volume=b1", 0),
        ("groups?name=*", 0),
        ("schedules?paused=true", 0),
        ("sessions?host=h1", 0),
        ("snapshots?name=*", 0),
        ("copies?state=done", 0),
        ("folders?path=nowhere", 0),
        ("jobs?kind=copy&state=running", 0),
        ("events?severity=info&limit=1", 1),
    ] {
        let list = lab.get(&format!("/api/v1/{path}"));
        assert_eq!(list.body.as_array().map(Vec::len), Some(count), "{path}: {list:?}");
    }
}

#[test]
fn a_change_may_depend_on_what_was_read() {
    let lab = Lab::new();
    let path = "/api/v1/volumes/v1";
    let tag = lab.post(VOLUMES, &volume("v1")).header("etag");
    assert!(tag.len() == 18 && lab.get(path).header("etag") == tag, "{tag}");
    let changed = send(&lab, "PATCH", path, &json!({ "folder": "prod" }), &[("if-match", &tag)]);
    assert_eq!(changed.status, 200);
    assert_ne!(changed.header("etag"), tag);
    assert_eq!(changed.header("etag"), lab.get(path).header("etag"));
    let late = send(&lab, "PATCH", path, &json!({ "folder": "test" }), &[("if-match", &tag)]);
    is_problem(&late, 412, "changed");
    assert_eq!(late.header("etag"), changed.header("etag"));
    assert_eq!(lab.get(path).body["folder"], "prod");
    is_problem(&send(&lab, "DELETE", path, &Value::Null, &[("if-match", "W/\"x\"")]), 412, "changed");
    is_problem(&send(&lab, "DELETE", path, &Value::Null, &[("if-match", "x")]), 422, "invalid");
    let elsewhere = send(&lab, "PUT", path, &json!({}), &[("if-match", "x")]);
    is_problem(&elsewhere, 405, "method");
    assert_eq!(elsewhere.header("allow"), "GET,HEAD,PATCH,DELETE");
    is_problem(
        &send(&lab, "DELETE", "/api/v1/volumes/v2", &Value::Null, &[("if-match", "*")]),
        404,
        "not-found",
    );
    assert_eq!(send(&lab, "DELETE", path, &Value::Null, &[("if-match", "*")]).status, 204);
}

#[test]
fn a_request_that_is_sent_again_is_carried_out_once() {
    let lab = Lab::new();
    assert_eq!(lab.post(VOLUMES, &volume("v1")).status, 201);
    let take = |key: &str, volume: &str| {
        send(&lab, "POST", "/api/v1/snapshots", &json!({ "volume": volume }), &[("idempotency-key", key)])
    };
    let first = take("key-1", "v1");
    let again = take("key-1", "v1");
    assert_eq!((first.status, again.status, &again.body), (201, 201, &first.body));
    assert_eq!(again.header("location"), first.header("location"));
    assert_eq!(
        (first.header("idempotency-replayed"), again.header("idempotency-replayed")),
        (String::new(), "true".into())
    );
    is_problem(&take("key-1", "v2"), 422, "key-reused");
    assert_eq!(lab.get("/api/v1/snapshots").body.as_array().map(Vec::len), Some(1));
    is_problem(&take("key-2", "v2"), 404, "not-found");
    assert_eq!(lab.post(VOLUMES, &volume("v2")).status, 201);
    assert_eq!(take("key-2", "v2").status, 201, "a request that was refused may be sent again");
}

#[test]
fn hosts_and_groups_are_renamed() {
    let lab = Lab::new();
    assert_eq!(lab.post(VOLUMES, &volume("v1")).status, 201);
    for name in ["h1", "h2"] {
        let host = json!({ "name": name, "initiators": [format!("iqn.2026-11.test:{name}")] });
        assert_eq!(lab.post("/api/v1/hosts", &host).status, 201);
    }
    assert_eq!(lab.post("/api/v1/mappings", &json!({ "volume": "v1", "host": "h1", "lun": 7 })).status, 201);
    is_problem(&send(&lab, "PATCH", "/api/v1/hosts/h1", &json!({ "name": "h2" }), &[]), 409, "exists");
    is_problem(&send(&lab, "PATCH", "/api/v1/hosts/h1", &json!({ "name": "H" }), &[]), 422, "invalid");
    let renamed = send(&lab, "PATCH", "/api/v1/hosts/h1", &json!({ "name": "h3" }), &[]);
    assert_eq!((renamed.status, &renamed.body["mappings"][0]["lun"]), (200, &json!(7)));
    is_problem(&lab.get("/api/v1/hosts/h1"), 404, "not-found");
    assert_eq!(lab.get(VOLUMES).body[0]["mappings"], json!([{ "host": "h3", "lun": 7 }]));
    assert_eq!(lab.delete("/api/v1/mappings/h3/v1").status, 204);

    let group = json!({ "name": "g1", "volumes": ["v1"] });
    assert_eq!(lab.post("/api/v1/groups", &group).status, 201);
    let set = lab.post("/api/v1/groups/g1/sets", &json!({ "name": "s1" }));
    assert_eq!(lab.get(&set.header("location")).body["name"], "s1");
    let renamed = send(&lab, "PATCH", "/api/v1/groups/g1", &json!({ "name": "g2" }), &[]);
    assert_eq!((renamed.status, &renamed.body["sets"][0]["name"]), (200, &json!("s1")));
    assert_eq!(lab.get(VOLUMES).body[0]["group"], "g2");
    is_problem(&lab.get("/api/v1/groups/g1"), 404, "not-found");
}

#[test]
fn jobs_are_listed_shown_and_cancelled() {
    let lab = Lab::new();
    for name in ["v1", "v2"] {
        assert_eq!(lab.post(VOLUMES, &volume(name)).status, 201);
    }
    let copy = lab.post("/api/v1/volumes/v1/copy", &json!({ "target": "v2" }));
    assert_eq!(copy.status, 202);
    let job = lab.get(&copy.header("location"));
    assert_eq!((&job.body["kind"], &job.body["object"]), (&json!("copy"), &json!("volume v1 to volume v2")));
    assert_eq!(job.body["survives_restart"], false);
    assert_eq!(lab.post("/api/v1/scrub/start", &json!({})).status, 200);
    let scrub = lab.get("/api/v1/jobs?kind=scrub").body[0].clone();
    assert_eq!(scrub["survives_restart"], true);
    let path = format!("/api/v1/jobs/{}", scrub["id"].as_str().unwrap());
    let cancelled = lab.delete(&path);
    match cancelled.status {
        200 => assert_eq!(cancelled.body["state"], "cancelled"),
        // It ended by itself meanwhile: there is little to read.
        _ => is_problem(&cancelled, 409, "not-running"),
    }
    is_problem(&lab.delete(&path), 409, "not-running");
    is_problem(&lab.get("/api/v1/jobs/copy-99"), 404, "not-found");
}

#[test]
fn what_a_volume_has_is_reduced_as_a_job_if_it_is_set_so() {
    let lab = Lab::new();
    assert_eq!(lab.post(VOLUMES, &volume("v1")).status, 201);
    let reduce = |name: &str| lab.post(&format!("{VOLUMES}/{name}/reduce"), &json!({}));
    let refused = reduce("v1");
    is_problem(&refused, 409, "not-reduced");
    assert!(refused.body["next"].as_str().unwrap().contains("set --compression or --dedup first"));
    is_problem(&reduce("v9"), 404, "not-found");
    let set = send(&lab, "PATCH", &format!("{VOLUMES}/v1"), &json!({ "deduplication": "on" }), &[]);
    assert_eq!(set.status, 200, "{set:?}");
    let begun = reduce("v1");
    assert_eq!((begun.status, &begun.body["kind"]), (202, &json!("reduce")), "{begun:?}");
    let path = begun.header("location").to_owned();
    assert_eq!(path, format!("/api/v1/jobs/reduce-{}", set.body["uuid"].as_str().unwrap()));
    assert_eq!(lab.get(&path).body["survives_restart"], false);
    assert_eq!(lab.get("/api/v1/jobs?kind=reduce").body.as_array().unwrap().len(), 1);
    let cancelled = lab.delete(&path);
    match cancelled.status {
        200 => assert_eq!(cancelled.body["state"], "cancelled"),
        // It ended by itself meanwhile: the volume has nothing.
        _ => is_problem(&cancelled, 409, "not-running"),
    }
    is_problem(&lab.delete(&path), 409, "not-running");
}

#[test]
fn snapshot_reserves_are_of_the_pool_of_volumes_and_of_groups() {
    let lab = Lab::new();
    assert_eq!(lab.post(VOLUMES, &volume("v1")).status, 201);
    assert_eq!(lab.post("/api/v1/groups", &json!({ "name": "g1", "volumes": ["v1"] })).status, 201);
    let limit = json!({ "bytes": 1 << 20, "policy": "offline-volume" });
    for path in ["snapshot-reserve", "volumes/v1/snapshot-reserve", "groups/g1/snapshot-reserve"] {
        let path = format!("/api/v1/{path}");
        let preview = lab.post(&format!("{path}/preview"), &limit);
        assert_eq!((preview.status, &preview.body["would_take_offline"]), (200, &json!([])), "{preview:?}");
        assert_eq!(lab.get(&path).body["policy"], Value::Null, "a preview sets nothing");
        let set = send(&lab, "PUT", &path, &limit, &[("if-match", "*")]);
        assert_eq!((set.status, &set.body["limit_bytes"]), (200, &json!(1 << 20)), "{set:?}");
    }
    let of = |answer: Answer| {
        let scope = |reserve: &Value| reserve["scope"].as_str().unwrap().to_owned();
        answer.body.as_array().unwrap().iter().map(scope).collect::<Vec<_>>()
    };
    assert_eq!(of(lab.get("/api/v1/snapshot-reserves")), ["pool", "volume", "group"]);
    assert_eq!(of(lab.get("/api/v1/snapshot-reserves?scope=group")), ["group"]);
    let page = lab.get("/api/v1/snapshot-reserves?limit=2");
    let next = page.header("link").trim_start_matches('<').split('>').next().unwrap().to_owned();
    assert_eq!((of(page), of(lab.get(&next))), (vec!["pool".into(), "volume".into()], vec!["group".into()]));
    let text = lab.text("/metrics", TOKEN).2;
    for line in [
        "quoin_own_snapshot_reserve_bytes{scope=\"volume\",name=\"v1\"} 1048576",
        "quoin_own_snapshots_held_bytes{scope=\"group\",name=\"g1\"} 0",
        "quoin_volume_stopped{volume=\"v1\"} 0",
        "quoin_stopped_volumes 0",
    ] {
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
    is_problem(&lab.post("/api/v1/volumes/v9/snapshot-reserve/preview", &limit), 404, "not-found");
    let changed = send(&lab, "PUT", "/api/v1/volumes/v1/snapshot-reserve", &limit, &[("if-match", "\"0\"")]);
    assert_eq!(changed.status, 412);
    for path in ["volumes/v1", "groups/g1"] {
        assert_eq!(lab.delete(&format!("/api/v1/{path}/snapshot-reserve")).status, 200);
    }
    assert_eq!(of(lab.get("/api/v1/snapshot-reserves")), ["pool"]);
    assert_eq!(lab.get("/api/v1/status").body["offline_volumes"], json!([]));
    assert_eq!(lab.get("/api/v1/volumes/v1").body["offline"], Value::Null);
}

#[test]
fn portals_are_created_disabled_and_deleted() {
    let lab = Lab::new();
    let portals = "/api/v1/portals";
    let created = lab.post(portals, &json!({ "address": "127.0.0.9" }));
    assert_eq!((created.status, created.header("location")), (201, format!("{portals}/127.0.0.9:3260")));
    assert_eq!((&created.body["state"], &created.body["portal_group"]), (&json!("up"), &json!(1)));
    let six = lab.post(portals, &json!({ "address": "[::1]:3261" }));
    assert_eq!((six.status, &six.body["portal_group"]), (201, &json!(2)));
    let one = format!("{portals}/%5B::1%5D:3261");
    let disabled = send(&lab, "PATCH", &one, &json!({ "enabled": false }), &[]);
    assert_eq!((disabled.status, &disabled.body["state"]), (200, &json!("disabled")));
    assert_eq!(lab.get(&format!("{portals}?state=up")).body.as_array().unwrap().len(), 1);
    assert_eq!(lab.get(&one).body["sessions"], json!([]));
    assert_eq!(lab.delete(&one).status, 204);
    is_problem(&lab.get(&one), 404, "not-found");
    is_problem(&lab.post(portals, &json!({ "address": "127.0.0.9:3260" })), 409, "exists");
    for wrong in ["", "storage1", "127.0.0.9:0", "224.0.0.1:3260"] {
        is_problem(&lab.post(portals, &json!({ "address": wrong })), 422, "invalid");
    }
    is_problem(&lab.get(&format!("{portals}/storage1")), 404, "not-found");
}

#[test]
fn limits_are_of_volumes_of_groups_and_of_policies() {
    let lab = Lab::new();
    assert_eq!(lab.post(VOLUMES, &volume("v1")).status, 201);
    assert_eq!(lab.post("/api/v1/groups", &json!({ "name": "g1", "volumes": ["v1"] })).status, 201);
    let limit = json!({ "iops": 500, "bytes_per_s": 8 << 20 });
    for path in ["volumes/v1/qos", "groups/g1/qos", "policies/default/qos"] {
        let path = format!("/api/v1/{path}");
        assert_eq!(lab.get(&path).body["iops"], Value::Null);
        let set = send(&lab, "PUT", &path, &limit, &[]);
        assert_eq!((set.status, &set.body["iops"], &set.body["burst_ms"]), (200, &json!(500), &json!(100)));
        // In place of what there was.
        let set = send(&lab, "PUT", &path, &json!({ "iops": 600, "burst_ms": 0 }), &[]);
        assert_eq!((&set.body["iops"], &set.body["bytes_per_s"]), (&json!(600), &Value::Null));
    }
    let of = |answer: Answer| {
        let scope = |qos: &Value| qos["scope"].as_str().unwrap().to_owned();
        answer.body.as_array().unwrap().iter().map(scope).collect::<Vec<_>>()
    };
    assert_eq!(of(lab.get("/api/v1/qos")), ["volume", "group", "policy"]);
    assert_eq!(of(lab.get("/api/v1/qos?scope=group")), ["group"]);
    assert_eq!(lab.get("/api/v1/volumes/v1/qos").body["others"], json!(["group g1", "policy default"]));
    for wrong in [
        json!({}),
        json!({ "iops": 0 }),
        json!({ "bytes_per_s": 1 }),
        json!({ "iops": 50, "burst_ms": 3_600_001 }),
    ] {
        is_problem(&send(&lab, "PUT", "/api/v1/volumes/v1/qos", &wrong, &[]), 422, "invalid");
    }
    is_problem(&send(&lab, "PUT", "/api/v1/volumes/v9/qos", &limit, &[]), 404, "not-found");
    is_problem(&lab.get("/api/v1/policies/none/qos"), 404, "not-found");
    for path in ["volumes/v1", "groups/g1", "policies/default"] {
        assert_eq!(lab.delete(&format!("/api/v1/{path}/qos")).status, 200);
    }
    assert_eq!(lab.get("/api/v1/qos").body, json!([]));
}

/// Clients have signed integers of 64 bits: the document says so, and a larger one is no mistake that goes through.
#[test]
fn integers_above_the_signed_range_are_refused() {
    let lab = Lab::new();
    let above = 1u64 << 63;
    let reserve = json!({ "bytes": above, "policy": "offline-volume" });
    is_problem(&lab.post("/api/v1/snapshot-reserve/preview", &reserve), 422, "invalid");
    let reserve = json!({ "bytes": above - 1, "policy": "offline-volume" });
    assert_eq!(lab.post("/api/v1/snapshot-reserve/preview", &reserve).status, 200);
    let rate = send(&lab, "PATCH", "/api/v1/scrub", &json!({ "rate_bytes_s": above }), &[("if-match", "*")]);
    is_problem(&rate, 422, "invalid");
    for filter in ["since_ms", "after"] {
        is_problem(&lab.get(&format!("/api/v1/events?{filter}={above}")), 422, "invalid");
        assert_eq!(lab.get(&format!("/api/v1/events?{filter}={}", above - 1)).status, 200);
    }
}
