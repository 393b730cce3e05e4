//! What an operator watches: objects, events, refusals, schedules and scrubs.

use super::super::exposition::{Row, Table};
use quoin_api::{self as api, Objects};
use quoin_array::Figures;
use quoin_pool::HedgedReads;

pub(super) static OBJECTS: Table<Objects> = Table {
    labels: &[],
    rows: &[
        Row::level("quoin_volumes", "Volumes, including snapshots and clones.", |o| o.volumes as u64),
        Row::level("quoin_snapshots", "Snapshots.", |o| o.snapshots as u64),
        Row::level("quoin_groups", "Consistency groups.", |o| o.groups as u64),
        Row::level("quoin_hosts", "Hosts.", |o| o.hosts as u64),
        Row::level("quoin_mappings", "Mappings of volumes to hosts.", |o| o.mappings as u64),
        Row::level("quoin_exports", "Exports of volumes to NBD clients.", |o| o.exports as u64),
        Row::level("quoin_sessions", "Logged-in iSCSI sessions.", |o| o.sessions as u64),
    ],
};

pub(super) static WATCH: Table<Figures> = Table {
    labels: &[],
    rows: &[
        Row::gauge(
            "quoin_pool_used_ratio",
            "Used part of the usable space, from 0 to 1: data, buffered data and reservations of thick \
             volumes.",
            |f| f.pool.as_ref().map(|_| f.used_ratio),
        ),
        Row::count("quoin_schedule_runs_total", "Runs of snapshot schedules.", |f| f.schedule_runs),
        Row::count("quoin_schedule_failures_total", "Runs of snapshot schedules that failed.", |f| {
            f.schedule_failures
        }),
        Row::gauge(
            "quoin_scrub_due_timestamp_seconds",
            "Time by which the next complete scrub is due, since the Unix epoch; in the past while it is \
             overdue. Absent while no scrubs are scheduled.",
            |f| f.scrub_due_ms.map(|ms| ms as f64 / 1000.0),
        ),
    ],
};

pub(super) static HEDGED: Table<HedgedReads> = Table {
    labels: &[],
    rows: &[
        Row::count(
            "quoin_pool_hedged_reads_total",
            "Reads of a drive that were late, and were made from the other drives too.",
            |hedged| hedged.begun,
        ),
        Row::count(
            "quoin_pool_hedged_reads_won_total",
            "Those of them that the other drives answered first.",
            |hedged| hedged.won,
        ),
    ],
};

pub(super) static SPARE: Table<api::Spare> = Table {
    labels: &[],
    rows: &[
        Row::level(
            "quoin_pool_spare_bytes",
            "Space for host data that is kept free, so that what lost drives held can be made again on the others.",
            |spare| spare.bytes,
        ),
        Row::level(
            "quoin_pool_spare_domains",
            "Fault domains for whose loss space is to be kept free.",
            |spare| spare.domains.into(),
        ),
        Row::level(
            "quoin_pool_spare_domains_used",
            "Those of them that are in use: drives in them failed, are absent or leave.",
            |spare| spare.used_domains.into(),
        ),
        Row::level(
            "quoin_pool_spare_domains_lacking",
            "Those of them for which too little space is free.",
            |spare| spare.domains.saturating_sub(spare.kept_domains).into(),
        ),
    ],
};

pub(super) static THRESHOLDS: Table<f64> = Table {
    labels: &["threshold"],
    rows: &[Row::gauge(
        "quoin_pool_threshold_ratio",
        "Threshold of the pool's space, as quoin_pool_used_ratio counts; absent while it is off.",
        |ratio| Some(*ratio),
    )],
};

pub(super) static EVENTS: Table<u64> = Table {
    labels: &["severity"],
    rows: &[Row::count("quoin_events_total", "Events recorded since the process started.", |count| *count)],
};

pub(super) static REFUSED: Table<u64> = Table {
    labels: &["protocol"],
    rows: &[Row::count(
        "quoin_refusals_total",
        "Refused tokens and changes (rest), logins (iscsi), and clients and exports (nbd).",
        |count| *count,
    )],
};
