//! From rows of a catalogue to the text of an exposition.

use prometheus::{
    Encoder, TextEncoder,
    proto::{self, LabelPair, MetricFamily, MetricType},
};
use quoin_base::metrics::LatencySnapshot;
use std::collections::BTreeMap;

/// The type of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Only grows, until the process or, where said so, the pool is opened anew.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Durations by their length, in seconds.
    Histogram,
    /// Durations in all, in seconds, and how many.
    Summary,
}

/// A metric: its name, which ends in its unit, and what it means.
#[derive(Clone, Copy, Debug)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
}

/// Metrics of some `T` under the same labels.
pub(super) struct Table<T: 'static> {
    pub(super) labels: &'static [&'static str],
    pub(super) rows: &'static [Row<T>],
}

/// A metric of some `T`, and how it is read; `None` when there is no value at the moment.
pub(super) struct Row<T> {
    pub(super) metric: Metric,
    pub(super) read: Read<T>,
}

pub(super) enum Read<T> {
    /// A whole number that is always there.
    Whole(fn(&T) -> u64),
    Number(fn(&T) -> Option<f64>),
    Latency(fn(&T) -> Option<LatencySnapshot>),
    /// A sum of seconds, and of how many.
    Sum(fn(&T) -> Option<(f64, u64)>),
}

impl<T> Row<T> {
    /// A counter of a whole number that is always there.
    pub(super) const fn count(name: &'static str, help: &'static str, read: fn(&T) -> u64) -> Self {
        Self { metric: Metric { name, kind: Kind::Counter, help }, read: Read::Whole(read) }
    }

    /// A gauge of a whole number that is always there.
    pub(super) const fn level(name: &'static str, help: &'static str, read: fn(&T) -> u64) -> Self {
        Self { metric: Metric { name, kind: Kind::Gauge, help }, read: Read::Whole(read) }
    }

    pub(super) const fn counter(name: &'static str, help: &'static str, read: fn(&T) -> Option<f64>) -> Self {
        let metric = Metric { name, kind: Kind::Counter, help };
        Self { metric, read: Read::Number(read) }
    }

    pub(super) const fn gauge(name: &'static str, help: &'static str, read: fn(&T) -> Option<f64>) -> Self {
        let metric = Metric { name, kind: Kind::Gauge, help };
        Self { metric, read: Read::Number(read) }
    }

    pub(super) const fn summary(
        name: &'static str,
        help: &'static str,
        read: fn(&T) -> Option<(f64, u64)>,
    ) -> Self {
        let metric = Metric { name, kind: Kind::Summary, help };
        Self { metric, read: Read::Sum(read) }
    }

    pub(super) const fn histogram(
        name: &'static str,
        help: &'static str,
        read: fn(&T) -> Option<LatencySnapshot>,
    ) -> Self {
        let metric = Metric { name, kind: Kind::Histogram, help };
        Self { metric, read: Read::Latency(read) }
    }
}

/// The families of an exposition, by name.
#[derive(Default)]
pub(super) struct Exposition {
    families: BTreeMap<&'static str, MetricFamily>,
}

impl Exposition {
    /// Adds the values of a table's metrics for `item`, under these values of their labels.
    pub(super) fn add<T>(&mut self, table: &Table<T>, item: &T, labels: &[&str]) {
        debug_assert_eq!(table.labels.len(), labels.len());
        for row in table.rows {
            let pairs = table.labels.iter().zip(labels).map(|(name, value)| {
                let mut pair = LabelPair::default();
                pair.set_name((*name).to_owned());
                pair.set_value((*value).to_owned());
                pair
            });
            // One sample of each metric of the table; none where there is no value.
            let mut sample = proto::Metric::from_label(pairs.collect());
            let mut set = |value| match row.metric.kind {
                Kind::Counter => sample.set_counter(counter(value)),
                _ => sample.set_gauge(gauge(value)),
            };
            match row.read {
                Read::Whole(read) => set(read(item) as f64),
                Read::Number(read) => {
                    let Some(value) = read(item) else { continue };
                    set(value);
                }
                Read::Latency(read) => {
                    let Some(snapshot) = read(item) else { continue };
                    sample.set_histogram(histogram(&snapshot));
                }
                Read::Sum(read) => {
                    let Some((sum, count)) = read(item) else { continue };
                    sample.set_summary(summary(sum, count));
                }
            }
            self.family(&row.metric).mut_metric().push(sample);
        }
    }

    fn family(&mut self, metric: &Metric) -> &mut MetricFamily {
        self.families.entry(metric.name).or_insert_with(|| {
            let mut family = MetricFamily::default();
            family.set_name(metric.name.to_owned());
            family.set_help(metric.help.to_owned());
            family.set_field_type(match metric.kind {
                Kind::Counter => MetricType::COUNTER,
                Kind::Gauge => MetricType::GAUGE,
                Kind::Histogram => MetricType::HISTOGRAM,
                Kind::Summary => MetricType::SUMMARY,
            });
            family
        })
    }

    /// The text.
    pub(super) fn encode(self) -> prometheus::Result<String> {
        let families: Vec<_> = self.families.into_values().collect();
        let mut text = Vec::new();
        TextEncoder::new().encode(&families, &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

fn counter(value: f64) -> proto::Counter {
    let mut counter = proto::Counter::default();
    counter.set_value(value);
    counter
}

fn gauge(value: f64) -> proto::Gauge {
    let mut gauge = proto::Gauge::default();
    gauge.set_value(value);
    gauge
}

fn summary(sum: f64, count: u64) -> proto::Summary {
    let mut summary = proto::Summary::default();
    summary.set_sample_sum(sum);
    summary.set_sample_count(count);
    summary
}

fn histogram(snapshot: &LatencySnapshot) -> proto::Histogram {
    let buckets = snapshot.cumulative().map(|(bound, count)| {
        let mut bucket = proto::Bucket::default();
        bucket.set_upper_bound(bound.as_secs_f64());
        bucket.set_cumulative_count(count);
        bucket
    });
    let mut histogram = proto::Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(snapshot.count());
    histogram.set_sample_sum(snapshot.sum().as_secs_f64());
    histogram
}
