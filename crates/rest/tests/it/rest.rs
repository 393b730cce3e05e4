//! The management interface over a real array, by HTTP.

use crate::lab::{Answer, Lab, METRICS_TOKEN};
use serde_json::{Value, json};
use std::{
    io::Write,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const VOLUME: &str = "/api/v1/volumes/v1";

fn problem(answer: &Answer, status: u16, kind: &str) -> String {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.content_type, "application/problem+json");
    let problem: quoin_api::Problem = serde_json::from_value(answer.body.clone()).unwrap();
    assert_eq!((problem.status, problem.kind), (status, format!("urn:quoin:problem:{kind}")));
    for part in [&problem.title, &problem.which, &problem.why, &problem.next] {
        assert!(!part.is_empty(), "{answer:?}");
    }
    problem.detail
}

#[test]
fn a_volume_is_made_mapped_and_deleted() {
    let lab = Lab::new();
    let volume = json!({ "name": "v1", "size_bytes": 1 << 30 });
    let made = lab.post("/api/v1/volumes", &volume);
    assert_eq!((made.status, &made.body["block_bytes"]), (201, &json!(512)));
    assert!(problem(&lab.post("/api/v1/volumes", &volume), 409, "exists").contains("v1 already exists"));
    let host = json!({ "name": "h1", "initiators": ["iqn.2026-11.test:h1"] });
    assert_eq!(lab.post("/api/v1/hosts", &host).status, 201);
    let mapped = lab.post("/api/v1/mappings", &json!({ "volume": "v1", "host": "h1" }));
    assert_eq!((mapped.status, &mapped.body["lun"]), (201, &json!(0)));
    assert_eq!(lab.get(VOLUME).body["mappings"], json!([{ "host": "h1", "lun": 0 }]));
    assert_eq!(lab.get("/api/v1/hosts").body[0]["mappings"], json!([{ "lun": 0, "volume": "v1" }]));
    let refused = problem(&lab.delete(VOLUME), 409, "in-use");
    assert!(refused.contains("mapped to h1") && refused.contains("--unmap"), "{refused}");
    assert_eq!(lab.delete("/api/v1/mappings/h1/v1").status, 204);
    problem(&lab.delete("/api/v1/mappings/h1/v1"), 404, "not-found");
    assert_eq!(lab.delete(&format!("{VOLUME}?unmap=true")).status, 204);
    problem(&lab.get(VOLUME), 404, "not-found");
    let events = lab.get("/api/v1/events?limit=1").body;
    assert_eq!(events[0]["object"], "volume v1");
    let text = events[0]["text"].as_str().unwrap();
    assert!(text.starts_with("deleted; the recycle bin keeps the data until 20"), "{text}");

    let deleted = lab.get("/api/v1/recycle-bin/volumes").body;
    let place = format!("/api/v1/recycle-bin/volumes/{}", deleted[0]["uuid"].as_str().unwrap());
    assert_eq!(lab.get(&place).body["uuid"], deleted[0]["uuid"]);
    assert_eq!(lab.get("/api/v1/recycle-bin").body["volumes"], 1);
    assert_eq!(lab.post(&format!("{place}/restore"), &json!({})).status, 200);
    assert_eq!(lab.get(VOLUME).body["uuid"], deleted[0]["uuid"]);
    problem(&lab.get(&place), 404, "not-found");
    assert_eq!(lab.delete(VOLUME).status, 204);
    assert_eq!(lab.delete("/api/v1/recycle-bin/volumes/v1").status, 204);
    assert_eq!(lab.get("/api/v1/recycle-bin").body["volumes"], 0);
    let status = lab.get("/api/v1/status").body;
    assert_eq!((&status["ready"], &status["state"]), (&json!(true), &json!("online")));
    assert!(status["recovery"]["duration_ms"].is_number() && status["engine"]["checkpoints"].is_number());
}

#[test]
fn what_is_wrong_is_refused_and_named() {
    let lab = Lab::new();
    let volumes = "/api/v1/volumes";
    let detail = problem(&lab.post(volumes, &json!({ "name": "v1", "size": 5 })), 422, "invalid");
    assert!(detail.contains("unknown field `size`"), "{detail}");
    let detail = problem(&lab.post(volumes, &json!({ "name": "v1" })), 422, "invalid");
    assert!(detail.contains("missing field `size_bytes`"), "{detail}");
    for (name, size, block) in [("V", 4096, 512), ("v", 0, 512), ("v", 513, 512), ("v", 4096, 1000)] {
        let body = json!({ "name": name, "size_bytes": size, "block_bytes": block });
        problem(&lab.post(volumes, &body), 422, "invalid");
    }
    problem(&lab.send("POST", volumes, Some("{"), Some("application/json")), 400, "not-json");
    problem(&lab.send("POST", volumes, Some("{}"), Some("text/plain")), 415, "not-json");
    let large = format!("{{\"name\":\"{}\"}}", "x".repeat(100_000));
    problem(&lab.send("POST", volumes, Some(&large), Some("application/json")), 413, "too-large");
    problem(&lab.get("/api/v1/nothing"), 404, "not-found");
    problem(&lab.send("PUT", volumes, None, None), 405, "method");
    problem(&lab.get("/api/v1/events?count=1"), 422, "invalid");
    let detail = problem(&lab.get("/api/v1/volumes?colour=red"), 422, "invalid");
    assert!(detail.contains("unknown field `colour`, expected name, folder"), "{detail}");
    let both = json!({ "percent": 10, "bytes": 5, "policy": "delete-oldest" }).to_string();
    let reserve = lab.send("PUT", "/api/v1/snapshot-reserve", Some(&both), Some("application/json"));
    problem(&reserve, 422, "invalid");
    let schedule = json!({ "name": "s", "volume": "v9", "rules": [{ "every": "daily", "keep": 1 }] });
    problem(&lab.post("/api/v1/schedules", &schedule), 404, "not-found");
    assert_eq!(lab.post(volumes, &json!({ "name": "v1", "size_bytes": 1 << 20 })).status, 201);
    let rules = json!([{ "every": "daily", "keep": 1 }]);
    let schedule = json!({ "name": "s", "volume": "v1", "rules": rules, "retain_s": 3_162_240_001u64 });
    assert!(problem(&lab.post("/api/v1/schedules", &schedule), 422, "invalid").contains("100 years"));
    problem(&lab.post("/api/v1/snapshots/s9/retain", &json!({ "retain_s": 60 })), 404, "not-found");
    problem(&lab.post("/api/v1/hosts", &json!({ "name": "h1", "initiators": ["h1"] })), 422, "invalid");
    problem(&lab.post("/api/v1/mappings", &json!({ "volume": "v9", "host": "h1" })), 404, "not-found");
}

#[test]
fn a_copy_is_begun_followed_and_cancelled() {
    let lab = Lab::new();
    for name in ["v1", "v2"] {
        // So large that a copy of all of it does not end before it is cancelled.
        assert_eq!(
            lab.post("/api/v1/volumes", &json!({ "name": name, "size_bytes": 1u64 << 40 })).status,
            201
        );
    }
    assert_eq!(lab.get("/api/v1/copies").body, json!([]));
    let copy = "/api/v1/volumes/v1/copy";
    let range = json!({ "target": "v2", "to_bytes": 4096, "length_bytes": 8192 });
    let begun = lab.post(copy, &range);
    assert_eq!((begun.status, &begun.body["state"]), (202, &json!("running")));
    assert_eq!((&begun.body["from_bytes"], &begun.body["error"]), (&json!(0), &Value::Null));
    let path = format!("/api/v1/copies/{}", begun.body["id"]);
    let deadline = Instant::now() + Duration::from_secs(60);
    while lab.get(&path).body["state"] != "done" {
        assert!(Instant::now() < deadline, "{:?}", lab.get(&path));
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(lab.get("/api/v1/copies").body[0]["done_bytes"], 8192);
    problem(&lab.delete(&path), 409, "not-running");
    let begun = copied_into(&lab, copy);
    // It may have ended by itself.
    let cancelled = lab.delete(&format!("/api/v1/copies/{}", begun.body["id"]));
    if cancelled.status != 204 {
        problem(&cancelled, 409, "not-running");
    }
    assert_eq!(lab.delete("/api/v1/volumes/v2").status, 204);
    problem(&lab.post(copy, &json!({ "target": "v1", "length": 5 })), 422, "invalid");
    problem(&lab.post(copy, &json!({ "target": "v9" })), 404, "not-found");
    for path in ["/api/v1/copies/99", "/api/v1/copies/x"] {
        problem(&lab.get(path), 404, "not-found");
        problem(&lab.delete(path), 404, "not-found");
    }
    let (_, _, text) = lab.text("/metrics", METRICS_TOKEN);
    assert!(text.contains("\nquoin_running_copies 0\n"), "{text}");
    let copied = text.lines().find_map(|line| line.strip_prefix("quoin_copied_bytes_total "));
    assert!(copied.is_some_and(|bytes| bytes.parse::<u64>().unwrap() >= 8192), "{copied:?}");
}

/// Begins a copy of all of v1 during which v2 cannot be deleted. By reference it takes milliseconds, so it may end before that
/// is tried.
fn copied_into(lab: &Lab, copy: &str) -> Answer {
    for _ in 0..100 {
        let begun = lab.post(copy, &json!({ "target": "v2" }));
        let deleted = lab.delete("/api/v1/volumes/v2");
        if deleted.status != 204 {
            problem(&deleted, 409, "copied-into");
            return begun;
        }
        let again = json!({ "name": "v2", "size_bytes": 1u64 << 40 });
        assert_eq!(lab.post("/api/v1/volumes", &again).status, 201);
    }
    panic!("no copy was under way when its target was deleted");
}

#[test]
fn only_the_token_opens() {
    let lab = Lab::new();
    for header in [None, Some("Bearer wrong"), Some("Basic secret"), Some("secret")] {
        for path in ["/api/v1/status", "/api/v1/nothing", "/"] {
            problem(&lab.request("GET", path, None, None, header), 401, "unauthorized");
        }
    }
    let document = lab.request("GET", "/api/v1/openapi.json", None, None, None);
    assert_eq!((document.status, &document.body["openapi"]), (200, &Value::from("3.1.0")));
}

/// `promtool check metrics` of a text: what it objects to.
fn lint(text: &str) -> String {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is installed: deploy/packages.sh test");
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(output.status.success(), said.is_empty(), "{said}");
    said
}

/// Rules and dashboard name what is really there, or will be when there is something to tell.
fn rules_and_dashboard_find_what_they_name(text: &str) {
    let later = [
        "quoin_scrub_progress_ratio",
        "quoin_snapshot_reserve_bytes",
        "quoin_own_snapshots_held_bytes",
        "quoin_own_snapshot_reserve_bytes",
        "quoin_retention_clock_behind_seconds",
    ];
    let there = |name: &str| {
        text.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
    };
    for file in ["prometheus/quoin-rules.yml", "grafana/quoin.json"] {
        let path = format!("{}/../../deploy/{file}", env!("CARGO_MANIFEST_DIR"));
        let named = std::fs::read_to_string(path).unwrap();
        let words = named.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
        let metrics = words.filter(|word| word.starts_with("quoin_") || word.starts_with("process_"));
        for metric in metrics.filter(|metric| !later.contains(metric)) {
            assert!(there(metric), "{file} names {metric}, which is not in:\n{text}");
        }
    }
    assert!(!there("quoin_pool"), "a part of a name is none");
}

/// A snapshot has series of its own only while somebody sees it.
fn series_of_snapshots(lab: &Lab) {
    let made = lab.post("/api/v1/snapshots", &json!({ "volume": "v1", "name": "s1" }));
    assert_eq!(made.status, 201);
    let series = || lab.text("/metrics", METRICS_TOKEN).2.matches("volume=\"s1\"").count();
    assert_eq!(series(), 0);
    assert_eq!(lab.post("/api/v1/exports", &json!({ "volume": "s1" })).status, 201);
    let seen = series();
    assert!((10..=62).contains(&seen), "{seen} series; docs/metrics.md says at most 62");
    let volume = lab.text("/metrics", METRICS_TOKEN).2.matches("volume=\"v1\"").count();
    assert_eq!(seen, volume);
}

#[test]
fn metrics_are_what_prometheus_expects_and_open_with_their_own_token() {
    let lab = Lab::new();
    assert_eq!(lab.post("/api/v1/volumes", &json!({ "name": "v1", "size_bytes": 1 << 30 })).status, 201);
    let (status, content_type, text) = lab.text("/metrics", METRICS_TOKEN);
    assert_eq!((status, content_type.as_str()), (200, "text/plain; version=0.0.4"));
    for line in [
        "quoin_pool_online 1",
        "quoin_events_total{severity=\"critical\"} 0",
        "quoin_refusals_total{protocol=\"nbd\"} 0",
        "quoin_schedule_failures_total 0",
        "quoin_initiator_latency_seconds_count{host=\"\",initiator=\"\"} 0",
        "quoin_pool_reserved_bytes 0",
        "quoin_volume_unmaps_total{volume=\"v1\"} 0",
        "quoin_volumes 1",
        "quoin_build_info{version=\"0\"} 1",
        "quoin_volume_size_bytes{volume=\"v1\"} 1073741824",
        "quoin_volume_latency_seconds_count{volume=\"v1\",operation=\"read\"} 0",
        "quoin_frontend_logins_total{protocol=\"iscsi\"} 3",
        "quoin_initiator_sessions{host=\"\",initiator=\"\"} 0",
        "quoin_frontend_cut_off_total{protocol=\"iscsi\",cause=\"silent\"} 2",
        "quoin_frontend_cut_off_total{protocol=\"iscsi\",cause=\"stalled\"} 5",
        "quoin_memory_limit_bytes 3221225472",
        "quoin_memory_budget_bytes{use=\"sessions\"} 1048576",
        "quoin_memory_used_bytes{use=\"sessions\"} 4096",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in:\n{text}");
    }
    assert!(!text.contains("quoin_frontend_cut_off_total{protocol=\"nbd\""), "it cuts off nobody");
    let of = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} is not in:\n{text}")).parse().unwrap()
    };
    assert!(of("quoin_pool_journal_records_total") >= of("quoin_pool_journal_batches_total"));
    assert!(of("quoin_pool_journal_batches_total") > 0, "the volume was made");
    let flushes =
        text.lines().find(|l| l.starts_with("quoin_drive_latency_seconds_count") && l.contains("flush"));
    assert!(
        flushes.is_some_and(|line| !line.ends_with(" 0")),
        "{flushes:?}: opening a pool flushes its drives"
    );
    assert!(text.contains("\nprocess_start_time_seconds "), "{text}");
    assert_eq!(lint(&text), "");
    rules_and_dashboard_find_what_they_name(&text);
    series_of_snapshots(&lab);
    assert_ne!(
        lint(&text.replace("quoin_volumes", "quoin_volumes_total")),
        "",
        "promtool finds what is wrong"
    );

    assert_eq!(lab.text("/metrics", "secret").0, 200);
    let refused = lab.request("GET", "/metrics", None, None, Some("Bearer wrong"));
    assert!(problem(&refused, 401, "unauthorized").contains("metrics_token"));
    let elsewhere =
        lab.request("GET", "/api/v1/status", None, None, Some(&format!("Bearer {METRICS_TOKEN}")));
    problem(&elsewhere, 401, "unauthorized");

    let stats = lab.get("/api/v1/stats").body;
    let volume = &stats["volumes"][0];
    assert_eq!((&volume["name"], &volume["read"]["count"]), (&json!("v1"), &json!(0)));
}

/// Every alert is tried by `promtool test rules` in a state in which it has to fire and in one in which it must not.
#[test]
fn the_alert_rules_are_valid_and_each_alert_is_tried() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus");
    for (verb, file) in [("check", "quoin-rules.yml"), ("test", "quoin-rules-test.yml")] {
        let output = Command::new("promtool").args([verb, "rules", file]).current_dir(directory).output();
        let output = output.expect("promtool is installed: deploy/packages.sh test");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{said}");
    }
    let read = |file: &str| std::fs::read_to_string(format!("{directory}/{file}")).unwrap();
    let (rules, tests) = (read("quoin-rules.yml"), read("quoin-rules-test.yml"));
    let alerts: Vec<_> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 20);
    for alert in alerts {
        for outcome in ["fires", "stays quiet"] {
            assert!(tests.contains(&format!("name: {alert} {outcome}\n")), "{alert} {outcome}: not tried");
        }
    }
}
