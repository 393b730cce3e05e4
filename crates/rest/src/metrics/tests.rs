//! The page of metrics, the alert rules and the dashboard agree with the catalogue.

use super::{catalogue, exposition::Kind};
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write,
    fs,
    path::Path,
};

const HEAD: &str = include_str!("metrics.md");

fn document() -> String {
    let mut text = HEAD.to_owned();
    for (layer, metrics) in catalogue::all() {
        write!(text, "\n## {layer}\n\n| metric | kind | labels | meaning |\n| --- | --- | --- | --- |\n")
            .unwrap();
        for (metric, labels) in metrics {
            let kind = match metric.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
                Kind::Summary => "summary",
            };
            let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
            writeln!(text, "| `{}` | {kind} | {} | {} |", metric.name, labels.join(" "), metric.help)
                .unwrap();
        }
    }
    text
}

/// `UPDATE=1 cargo test -p quoin-rest` writes the page that is checked in.
#[test]
fn the_page_checked_in_lists_every_metric() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, document()).unwrap();
    }
    let checked_in = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        checked_in == document(),
        "docs/metrics.md differs from the catalogue; run UPDATE=1 cargo test -p quoin-rest"
    );
}

#[test]
fn names_are_unique_and_end_in_their_unit() {
    let mut names = BTreeSet::new();
    for (metric, _) in catalogue::all().into_iter().flat_map(|(_, metrics)| metrics) {
        let name = metric.name;
        assert!(names.insert(name), "{name} is there twice");
        assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}");
        let is_latency = matches!(metric.kind, Kind::Histogram | Kind::Summary);
        assert_eq!(name.ends_with("_latency_seconds"), is_latency, "{name}");
        assert!(metric.help.ends_with('.'), "{name}: {}", metric.help);
    }
}

/// The page says how many series an object has.
#[test]
fn the_page_counts_the_series_of_each_object() {
    // Buckets for each doubling, the one without bound, sum and count.
    const HISTOGRAM: usize = 24;
    let series = |labels: &[&[&str]]| -> usize {
        let metrics = catalogue::all().into_iter().flat_map(|(_, metrics)| metrics);
        let of_object = metrics.filter(|(_, own)| labels.contains(own));
        of_object
            .map(|(metric, own)| {
                let of_one = match metric.kind {
                    Kind::Histogram => HISTOGRAM,
                    Kind::Summary => 2,
                    Kind::Counter | Kind::Gauge => 1,
                };
                match own {
                    ["volume", "operation"] => 2 * of_one,
                    ["drive", "operation"] => 4 * of_one,
                    _ => of_one,
                }
            })
            .sum()
    };
    let objects: [(&str, &[&[&str]]); 3] = [
        ("volume, clone, template", &[&["volume"], &["volume", "operation"], &["volume", "folder", "kind"]]),
        ("drive", &[&["drive"], &["drive", "operation"]]),
        ("initiator of a host", &[&["host", "initiator"]]),
    ];
    for (object, labels) in objects {
        let line = HEAD.lines().find(|line| line.starts_with(&format!("| {object} |"))).unwrap();
        let stated = line.split('|').nth(2).unwrap().trim().split(':').next().unwrap().parse::<usize>();
        assert_eq!(stated, Ok(series(labels)), "{line}");
    }
}

/// The metrics that the alert rules and the dashboard use exist.
#[test]
fn rules_and_dashboard_name_metrics_that_exist() {
    let names: BTreeMap<_, _> = catalogue::all()
        .into_iter()
        .flat_map(|(_, metrics)| metrics)
        .map(|(metric, _)| (metric.name, metric.kind))
        .collect();
    for file in [
        "deploy/prometheus/quoin-rules.yml",
        "deploy/prometheus/quoin-rules-test.yml",
        "deploy/grafana/quoin.json",
    ] {
        let text =
            fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)).unwrap();
        let mut used = 0;
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':') {
            if !word.starts_with("quoin_") && !word.starts_with("process_") {
                continue;
            }
            // A name that ends like a part of a histogram or summary is such a part.
            let of = |ends: &[&str], kinds: &[Kind]| {
                let base = ends.iter().find_map(|end| word.strip_suffix(end));
                base.and_then(|base| names.get(base)).is_some_and(|kind| kinds.contains(kind))
            };
            let is_part = of(&["_bucket"], &[Kind::Histogram])
                || of(&["_sum", "_count"], &[Kind::Histogram, Kind::Summary]);
            let is_whole = names.get(word).is_some_and(|kind| matches!(kind, Kind::Counter | Kind::Gauge));
            assert!(is_part || is_whole, "{file}: there is no metric {word}");
            used += 1;
        }
        assert!(used > 5, "{file} names {used} metrics");
    }
}
