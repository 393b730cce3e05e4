//! Every metric: its name, its labels, what it means, and where it is read.

mod pool;
mod watch;

use self::{
    pool::{INTEGRITY, MEMORY, POOL, PROTECTION, RECOVERY, REPAIRS, STALLS},
    watch::{EVENTS, HEDGED, OBJECTS, REFUSED, SPARE, THRESHOLDS, WATCH},
};
use super::{
    exposition::{Exposition, Row, Table},
    process::Process,
};
use quoin_api::{Severity, VolumeKind};
use quoin_array::{DriveFigures, Figures, ReserveFigures, VolumeFigures};
use quoin_base::metrics::LatencySnapshot;
use quoin_pool::PoolOptions;
use quoin_target::{SessionMemory, TrafficView};
use quoin_volume::OperationSnapshot;
use std::sync::Arc;

/// What a front end counts since the process started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrontEnd {
    /// Its protocol, in lower case.
    pub protocol: &'static str,
    /// Connections accepted.
    pub connections: u64,
    /// Connections refused because there were too many.
    pub connections_refused: u64,
    /// Logins or negotiations that came to an end.
    pub logins: u64,
    /// Logins or negotiations refused or not ended in time.
    pub logins_failed: u64,
    /// Requests received.
    pub requests: u64,
    /// Requests that failed or were refused.
    pub errors: u64,
    /// Bytes of data sent to clients.
    pub read_bytes: u64,
    /// Bytes of data received from clients.
    pub written_bytes: u64,
    /// Messages that broke the protocol: rejected, or damaged on the way.
    pub protocol_errors: u64,
    /// Peers it cut off; `None` if it never cuts off a peer.
    pub cut_off: Option<CutOff>,
}

/// Connections a front end ended because the peer did not do its part, since the process started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CutOff {
    /// Nothing was heard of the peer, not even answers to pings.
    pub silent: u64,
    /// It did not take its answers, or did not send data that was due.
    pub stalled: u64,
}

/// The process's memory limit, and what sessions hold of it.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The limit.
    pub limit_bytes: u64,
    /// The sessions' part.
    pub sessions: Arc<SessionMemory>,
}

static ARRAY: Table<Figures> = Table {
    labels: &[],
    rows: &[
        Row::gauge("quoin_pool_online", "1 while the pool is open and serves its volumes, else 0.", |f| {
            Some(f64::from(u8::from(f.online)))
        }),
        Row::gauge("quoin_immutable_snapshots", "Snapshots that are immutable.", |f| {
            let immutable = f.retention.as_ref().map_or(0, |retention| retention.immutable_snapshots);
            f.online.then_some(immutable as f64)
        }),
        Row::gauge(
            "quoin_retention_clock_behind_seconds",
            "By how much the retention clock is behind the system's clock. Negative: the system's clock \
             was set back.",
            |f| f.retention.as_ref().map(|retention| retention.behind_ms as f64 / 1000.0),
        ),
        Row::gauge(
            "quoin_snapshots_held_bytes",
            "Space that only snapshots use. Deleting all of them frees at least as much.",
            |f| f.reserve.as_ref().and_then(|reserve| reserve.held_bytes).map(|bytes| bytes as f64),
        ),
        Row::gauge(
            "quoin_snapshot_reserve_bytes",
            "The snapshot reserve: how much space snapshots may hold. Absent while there is no reserve.",
            |f| f.reserve.as_ref().and_then(|reserve| reserve.limit_bytes).map(|bytes| bytes as f64),
        ),
        Row::gauge("quoin_recycle_bin_volumes", "Deleted volumes and snapshots in the recycle bin.", |f| {
            f.recycle_bin.as_ref().map(|bin| bin.volumes as f64)
        }),
        Row::gauge(
            "quoin_recycle_bin_bytes",
            "Space that only the recycle bin uses. Emptying it frees at least as much.",
            |f| f.recycle_bin.as_ref().and_then(|bin| bin.held_bytes).map(|bytes| bytes as f64),
        ),
        Row::level(
            "quoin_stopped_volumes",
            "Volumes that are offline because snapshots hold more than a snapshot reserve allows.",
            |f| f.stopped_volumes,
        ),
        Row::gauge("quoin_schedules", "Snapshot schedules.", |f| {
            f.objects.is_some().then_some(f.schedules as f64)
        }),
        Row::level("quoin_running_copies", "Running range copies.", |f| f.copies.running as u64),
        Row::count(
            "quoin_copied_bytes_total",
            "Data copied by range copies since the process started.",
            |f| f.copies.copied_bytes,
        ),
    ],
};

static RESERVE: Table<ReserveFigures> = Table {
    labels: &["scope", "name"],
    rows: &[
        Row::level(
            "quoin_own_snapshot_reserve_bytes",
            "Snapshot reserve of a volume or group: how much space its snapshots may hold.",
            |r| r.limit_bytes,
        ),
        Row::level(
            "quoin_own_snapshots_held_bytes",
            "Space that only the snapshots of a volume or group with a snapshot reserve of its own use.",
            |r| r.held_bytes,
        ),
    ],
};

static INFO: Table<()> = Table {
    labels: &["version"],
    rows: &[Row::gauge("quoin_build_info", "Always 1; the label holds the running version.", |()| Some(1.0))],
};

static PROCESS: Table<Process> = Table {
    labels: &[],
    rows: &[
        Row::counter("process_cpu_seconds_total", "CPU time of all threads of the process.", |p| {
            Some(p.cpu_seconds)
        }),
        Row::gauge("process_start_time_seconds", "Start time of the process, since the Unix epoch.", |p| {
            p.start_seconds
        }),
        Row::gauge("process_virtual_memory_bytes", "Virtual memory of the process.", |p| p.virtual_bytes),
        Row::gauge("process_resident_memory_bytes", "Resident memory of the process.", |p| p.resident_bytes),
        Row::gauge("process_open_fds", "Open file descriptors.", |p| p.open_fds),
        Row::gauge("process_max_fds", "Maximum number of open file descriptors.", |p| p.max_fds),
    ],
};

static LIMIT: Table<u64> = Table {
    labels: &[],
    rows: &[Row::level("quoin_memory_limit_bytes", "The configured memory limit.", |bytes| *bytes)],
};

static BUDGET: Table<f64> = Table {
    labels: &["use"],
    rows: &[Row::gauge(
        "quoin_memory_budget_bytes",
        "Share of the memory limit for each use: write buffer, metadata, read cache, read-ahead, or commands of \
         sessions.",
        |bytes| Some(*bytes),
    )],
};

static FRONT_END: Table<FrontEnd> = Table {
    labels: &["protocol"],
    rows: &[
        Row::count("quoin_frontend_connections_total", "Accepted connections.", |f| f.connections),
        Row::count(
            "quoin_frontend_connections_refused_total",
            "Connections refused because the limit was reached.",
            |f| f.connections_refused,
        ),
        Row::count("quoin_frontend_logins_total", "Completed logins (iSCSI) or negotiations (NBD).", |f| {
            f.logins
        }),
        Row::count(
            "quoin_frontend_logins_failed_total",
            "Logins or negotiations that were refused, abandoned or not completed in time.",
            |f| f.logins_failed,
        ),
        Row::count("quoin_frontend_requests_total", "Received requests.", |f| f.requests),
        Row::count("quoin_frontend_errors_total", "Requests that failed or were refused.", |f| f.errors),
        Row::count("quoin_frontend_read_bytes_total", "Data sent to clients.", |f| f.read_bytes),
        Row::count("quoin_frontend_written_bytes_total", "Data received from clients.", |f| f.written_bytes),
        Row::count(
            "quoin_frontend_protocol_errors_total",
            "Messages that violated the protocol or were damaged in transit.",
            |f| f.protocol_errors,
        ),
    ],
};

static CUT_OFF: Table<u64> = Table {
    labels: &["protocol", "cause"],
    rows: &[Row::count(
        "quoin_frontend_cut_off_total",
        "Connections closed because the peer was silent, or stalled: it did not receive answers or did \
         not send data that was due.",
        |count| *count,
    )],
};

static INITIATOR: Table<TrafficView> = Table {
    labels: &["host", "initiator"],
    rows: &[
        Row::level(
            "quoin_initiator_sessions",
            "iSCSI sessions of an initiator. Empty labels: initiators that belong to no host.",
            |t| t.sessions as u64,
        ),
        Row::summary(
            "quoin_initiator_latency_seconds",
            "Time from receiving a command to queuing its answer: sum and count.",
            |t| Some((t.latency.as_secs_f64(), t.answered)),
        ),
        Row::level("quoin_initiator_outstanding_commands", "Commands received and not yet answered.", |t| {
            t.outstanding
        }),
        Row::count("quoin_initiator_commands_total", "Received commands.", |t| t.commands),
        Row::count("quoin_initiator_errors_total", "Commands answered with a status other than GOOD.", |t| {
            t.errors
        }),
        Row::count("quoin_initiator_read_bytes_total", "Data sent to the initiator.", |t| t.read_bytes),
        Row::count("quoin_initiator_written_bytes_total", "Data received from the initiator.", |t| {
            t.written_bytes
        }),
    ],
};

static VOLUME: Table<VolumeFigures> = Table {
    labels: &["volume"],
    rows: &[
        Row::level("quoin_volume_size_bytes", "Size of the volume as hosts see it.", |v| v.size_bytes),
        Row::level(
            "quoin_volume_stopped",
            "1 while the volume is offline because snapshots hold more than a snapshot reserve allows, else 0.",
            |v| u64::from(v.is_stopped),
        ),
        Row::gauge(
            "quoin_volume_mapped_bytes",
            "Space allocated to the volume, including space that it shares with other volumes.",
            |v| v.mapped_bytes.map(|bytes| bytes as f64),
        ),
        Row::level("quoin_volume_throttle_waiting", "Requests that wait for limits now.", |v| {
            v.throttled.waiting
        }),
        Row::count(
            "quoin_volume_throttled_total",
            "Requests that waited for limits of IOPS or bandwidth.",
            |v| v.throttled.requests,
        ),
        Row::counter("quoin_volume_throttled_seconds_total", "How long they waited, all together.", |v| {
            Some(v.throttled.waited.as_secs_f64())
        }),
    ],
};

static VOLUME_INFO: Table<()> = Table {
    labels: &["volume", "folder", "kind"],
    rows: &[Row::gauge(
        "quoin_volume_info",
        "Always 1; the labels hold the folder of the volume and its kind: volume, snapshot, clone or \
         template.",
        |()| Some(1.0),
    )],
};

static UNMAPPED: Table<OperationSnapshot> = Table {
    labels: &["volume"],
    rows: &[
        Row::count("quoin_volume_unmaps_total", "Unmap requests.", |o| o.latency.count()),
        Row::count("quoin_volume_unmap_errors_total", "Unmap requests that failed or were refused.", |o| {
            o.errors
        }),
        Row::count("quoin_volume_unmapped_bytes_total", "Data unmapped by hosts.", |o| o.bytes),
    ],
};

static OPERATION: Table<OperationSnapshot> = Table {
    labels: &["volume", "operation"],
    rows: &[
        Row::histogram(
            "quoin_volume_latency_seconds",
            "Time from receiving a request to queuing its answer. The count is the number of requests.",
            |o| Some(o.latency.clone()),
        ),
        Row::count("quoin_volume_bytes_total", "Data read or written.", |o| o.bytes),
        Row::count("quoin_volume_errors_total", "Requests that failed or were refused.", |o| o.errors),
    ],
};

static DRIVE: Table<DriveFigures> = Table {
    labels: &["drive"],
    rows: &[
        Row::gauge("quoin_drive_online", "1 while the drive is open and has not failed, else 0.", |d| {
            Some(f64::from(u8::from(d.online)))
        }),
        Row::gauge(
            "quoin_drive_failed",
            "1 while the drive has failed or cannot be opened, else 0. A healthy drive of an offline pool \
             is neither online nor failed.",
            |d| Some(f64::from(u8::from(d.failed))),
        ),
        Row::gauge("quoin_drive_size_bytes", "Size of the drive.", |d| {
            d.size_bytes.map(|bytes| bytes as f64)
        }),
        Row::gauge(
            "quoin_drive_outstanding_operations",
            "Operations submitted and not yet completed.",
            |d| d.latencies.as_ref().map(|latencies| latencies.outstanding as f64),
        ),
        Row::count("quoin_drive_read_bytes_total", "Data read since the drive was opened.", |d| {
            d.counters.read_bytes
        }),
        Row::count("quoin_drive_written_bytes_total", "Data written since the drive was opened.", |d| {
            d.counters.write_bytes
        }),
        Row::count("quoin_drive_errors_total", "Operations that failed since the drive was opened.", |d| {
            d.counters.errors
        }),
        Row::count(
            "quoin_drive_repairs_total",
            "Repairs since the drive was opened: its data was wrong or unreadable and was rewritten from \
             other drives.",
            |d| d.counters.repairs,
        ),
        Row::gauge("quoin_drive_suspect", "1 while the drive does not answer in time, else 0.", |d| {
            Some(f64::from(u8::from(d.suspect)))
        }),
        Row::gauge(
            "quoin_drive_slow",
            "1 while the drive answers much later than the others and is read only where there is no other way, else 0.",
            |d| Some(f64::from(u8::from(d.slow))),
        ),
        Row::gauge(
            "quoin_drive_failing",
            "1 while the drive errs again and again and is evacuated for that, else 0.",
            |d| Some(f64::from(u8::from(d.failing))),
        ),
        Row::level(
            "quoin_drive_unfinished_operations",
            "Operations that the drive has not completed, including those that the array gave up.",
            |d| d.unfinished,
        ),
        Row::count(
            "quoin_drive_timeouts_total",
            "Operations that the array gave up because the drive did not answer in time.",
            |d| d.timeouts,
        ),
        Row::gauge(
            "quoin_drive_no_room",
            "1 while the file system under the drive is full and host writes fail, else 0.",
            |d| Some(f64::from(u8::from(d.no_room))),
        ),
    ],
};

static DRIVE_LATENCY: Table<LatencySnapshot> = Table {
    labels: &["drive", "operation"],
    rows: &[Row::histogram(
        "quoin_drive_latency_seconds",
        "Time from submitting an operation to its completion. The count is the number of operations since \
         the drive was opened.",
        |latency| Some(latency.clone()),
    )],
};

/// Returns all metrics with their values.
pub(super) fn expose(figures: &Figures, front_ends: &[FrontEnd], memory: &Memory) -> Exposition {
    let mut out = Exposition::default();
    add_array(&mut out, figures);
    add_process(&mut out, figures, memory);
    add_front_ends(&mut out, front_ends);
    add_initiators(&mut out, &figures.initiators);
    add_volumes(&mut out, &figures.volumes);
    add_drives(&mut out, &figures.drives);
    add_pool(&mut out, figures);
    out
}

fn add_array(out: &mut Exposition, figures: &Figures) {
    out.add(&ARRAY, figures, &[]);
    out.add(&WATCH, figures, &[]);
    if let Some(spare) = &figures.spare {
        out.add(&SPARE, spare, &[]);
    }
    for (name, ratio) in &figures.space_thresholds {
        out.add(&THRESHOLDS, ratio, &[name]);
    }
    if let Some(objects) = &figures.objects {
        out.add(&OBJECTS, objects, &[]);
    }
    for (severity, count) in Severity::ALL.iter().zip(figures.events.by_severity) {
        out.add(&EVENTS, &count, &[&severity.to_string()]);
    }
    for protocol in ["rest", "iscsi", "nbd"] {
        // From the start: an increase from nothing would be none to Prometheus.
        let count = figures.events.refused.get(protocol).copied().unwrap_or(0);
        out.add(&REFUSED, &count, &[protocol]);
    }
    for reserve in &figures.own_reserves {
        out.add(&RESERVE, reserve, &[&reserve.scope.to_string(), &reserve.name]);
    }
}

fn add_process(out: &mut Exposition, figures: &Figures, memory: &Memory) {
    out.add(&INFO, &(), &[&figures.version]);
    out.add(&PROCESS, &Process::now(), &[]);
    out.add(&LIMIT, &memory.limit_bytes, &[]);
    out.add(&BUDGET, &(memory.sessions.limit_bytes() as f64), &["sessions"]);
    out.add(&MEMORY, &(memory.sessions.held_bytes() as f64), &["sessions"]);
    let PoolOptions { buffer_bytes, metadata_bytes, cache_bytes, ahead_bytes, .. } = figures.options;
    for (purpose, bytes) in [
        ("buffer", buffer_bytes),
        ("metadata", metadata_bytes),
        ("cache", cache_bytes),
        ("read_ahead", ahead_bytes),
    ] {
        out.add(&BUDGET, &(bytes as f64), &[purpose]);
    }
}

fn add_front_ends(out: &mut Exposition, front_ends: &[FrontEnd]) {
    for front_end in front_ends {
        out.add(&FRONT_END, front_end, &[front_end.protocol]);
        if let Some(CutOff { silent, stalled }) = front_end.cut_off {
            out.add(&CUT_OFF, &silent, &[front_end.protocol, "silent"]);
            out.add(&CUT_OFF, &stalled, &[front_end.protocol, "stalled"]);
        }
    }
}

fn add_initiators(out: &mut Exposition, initiators: &[TrafficView]) {
    for traffic in initiators {
        let (host, initiator) = traffic.initiator.as_ref().map_or(("", ""), |(host, name)| (host, name));
        out.add(&INITIATOR, traffic, &[host, initiator]);
    }
}

fn add_volumes(out: &mut Exposition, volumes: &[VolumeFigures]) {
    // Snapshots that are neither mapped nor exported have no I/O: a thousand of them would be thousands of useless
    // series.
    for volume in volumes.iter().filter(|volume| volume.is_shown || volume.kind != VolumeKind::Snapshot) {
        out.add(&VOLUME, volume, &[&volume.name]);
        out.add(&VOLUME_INFO, &(), &[&volume.name, &volume.folder, volume.kind.name()]);
        let asked = &volume.asked;
        for (name, operation) in [("read", &asked.read), ("write", &asked.write)] {
            out.add(&OPERATION, operation, &[&volume.name, name]);
        }
        out.add(&UNMAPPED, &asked.unmap, &[&volume.name]);
    }
}

fn add_drives(out: &mut Exposition, drives: &[DriveFigures]) {
    for drive in drives {
        out.add(&DRIVE, drive, &[&drive.path]);
        if let Some(latencies) = &drive.latencies {
            for (name, latency) in [
                ("read", &latencies.read),
                ("write", &latencies.write),
                ("durable_write", &latencies.durable_write),
                ("flush", &latencies.flush),
            ] {
                out.add(&DRIVE_LATENCY, latency, &[&drive.path, name]);
            }
        }
    }
}

fn add_pool(out: &mut Exposition, figures: &Figures) {
    if let Some(pool) = &figures.pool {
        out.add(&POOL, pool, &[]);
        for (cause, count) in [
            ("room", pool.stalls_for_room),
            ("space", pool.stalls_for_space),
            ("hardening", pool.stalls_for_hardening),
        ] {
            out.add(&STALLS, &count, &[cause]);
        }
        for (kind, count) in [
            ("data", pool.repaired_data),
            ("copy", pool.repaired_copies),
            ("parity", pool.repaired_parity),
            ("metadata", pool.repaired_metadata),
        ] {
            out.add(&REPAIRS, &count, &[kind]);
        }
        for (purpose, bytes) in [
            ("buffer", pool.buffer_ram_bytes),
            ("metadata", pool.metadata_ram_bytes),
            ("cache", pool.cache_ram_bytes),
            ("read_ahead", pool.ahead_ram_bytes),
        ] {
            out.add(&MEMORY, &(bytes as f64), &[purpose]);
        }
    }
    if let Some(hedged) = &figures.hedged {
        out.add(&HEDGED, hedged, &[]);
    }
    if let Some(recovery) = &figures.recovery {
        out.add(&RECOVERY, recovery, &[]);
    }
    if let Some(protection) = &figures.protection {
        out.add(&PROTECTION, protection, &[]);
    }
    if let Some(integrity) = &figures.integrity {
        out.add(&INTEGRITY, integrity, &[]);
    }
}

/// A metric and its labels.
#[cfg(test)]
type Listed = (super::exposition::Metric, &'static [&'static str]);

/// Every metric with its labels, by layer.
#[cfg(test)]
pub(super) fn all() -> Vec<(&'static str, Vec<Listed>)> {
    fn of<T>(table: &Table<T>) -> Vec<Listed> {
        table.rows.iter().map(|row| (row.metric, table.labels)).collect()
    }
    vec![
        ("Process", [of(&INFO), of(&PROCESS), of(&LIMIT), of(&BUDGET), of(&MEMORY)].concat()),
        (
            "Array",
            [
                of(&ARRAY),
                of(&OBJECTS),
                of(&RESERVE),
                of(&WATCH),
                of(&SPARE),
                of(&THRESHOLDS),
                of(&EVENTS),
                of(&REFUSED),
            ]
            .concat(),
        ),
        ("Front ends", [of(&FRONT_END), of(&CUT_OFF)].concat()),
        ("Initiators", of(&INITIATOR)),
        ("Volumes", [of(&OPERATION), of(&UNMAPPED), of(&VOLUME), of(&VOLUME_INFO)].concat()),
        (
            "Pool",
            [
                of(&POOL),
                of(&STALLS),
                of(&HEDGED),
                of(&PROTECTION),
                of(&REPAIRS),
                of(&RECOVERY),
                of(&INTEGRITY),
            ]
            .concat(),
        ),
        ("Drives", [of(&DRIVE_LATENCY), of(&DRIVE)].concat()),
    ]
}
