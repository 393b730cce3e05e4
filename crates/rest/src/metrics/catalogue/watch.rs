//! What an operator watches: objects, events, refusals, schedules and scrubs.

use super::{
    super::exposition::{Row, Table},
    some,
};
use quoin_api::Objects;
use quoin_array::Figures;

pub(super) static OBJECTS: Table<Objects> = Table {
    labels: &[],
    rows: &[
        Row::gauge("quoin_volumes", "Volumes, snapshots and clones included.", |o| some(o.volumes as u64)),
        Row::gauge("quoin_snapshots", "Of them, snapshots.", |o| some(o.snapshots as u64)),
        Row::gauge("quoin_groups", "Consistency groups.", |o| some(o.groups as u64)),
        Row::gauge("quoin_hosts", "Hosts.", |o| some(o.hosts as u64)),
        Row::gauge("quoin_mappings", "Mappings of a volume to a host.", |o| some(o.mappings as u64)),
        Row::gauge("quoin_exports", "Exports of a volume to NBD clients.", |o| some(o.exports as u64)),
        Row::gauge("quoin_sessions", "iSCSI sessions that are logged in.", |o| some(o.sessions as u64)),
    ],
};

pub(super) static WATCH: Table<Figures> = Table {
    labels: &[],
    rows: &[
        Row::gauge(
            "quoin_pool_used_ratio",
            "Part of the usable space that is taken: data, data on the way, and what is kept for thick volumes.",
            |f| f.pool.as_ref().map(|_| f.used_ratio),
        ),
        Row::counter("quoin_schedule_runs_total", "Times that a schedule was to take snapshots.", |f| {
            some(f.schedule_runs)
        }),
        Row::counter(
            "quoin_schedule_failures_total",
            "Times that a schedule could not take its snapshots.",
            |f| some(f.schedule_failures),
        ),
        Row::gauge(
            "quoin_scrub_due_timestamp_seconds",
            "When the next complete scrub was or is due, since the Unix epoch: in the past if it has not ended yet. Absent \
             while scrubs are not scheduled.",
            |f| f.scrub_due_ms.map(|ms| ms as f64 / 1000.0),
        ),
    ],
};

pub(super) static EVENTS: Table<u64> = Table {
    labels: &["severity"],
    rows: &[Row::counter("quoin_events_total", "Events recorded since the process started.", |count| {
        some(*count)
    })],
};

pub(super) static REFUSED: Table<u64> = Table {
    labels: &["protocol"],
    rows: &[Row::counter(
        "quoin_refusals_total",
        "Refused tokens and changes (rest), logins without proof (iscsi), and clients and exports (nbd).",
        |count| some(*count),
    )],
};
