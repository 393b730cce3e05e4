//! Every metric: its name, its labels, what it means, and where it is read.

use super::{
    exposition::{Exposition, Row, Table},
    process::Process,
};
use quoin_api::Integrity;
use quoin_array::{DriveFigures, Figures, VolumeFigures};
use quoin_base::metrics::LatencySnapshot;
use quoin_pool::{PoolOptions, PoolStats, RecoveryStats};
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
    /// Peers it cut off; `None` if it cuts off nobody.
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

fn some(value: u64) -> Option<f64> {
    Some(value as f64)
}

static ARRAY: Table<Figures> = Table {
    labels: &[],
    rows: &[
        Row::gauge("quoin_pool_online", "1 when the pool is open and serves its volumes, else 0.", |f| {
            Some(f64::from(u8::from(f.online)))
        }),
        Row::gauge("quoin_volumes", "Volumes, snapshots and clones included.", |f| {
            some(f.objects.volumes as u64)
        }),
        Row::gauge("quoin_snapshots", "Of them, snapshots.", |f| some(f.objects.snapshots as u64)),
        Row::gauge("quoin_groups", "Consistency groups.", |f| some(f.objects.groups as u64)),
        Row::gauge("quoin_immutable_snapshots", "Snapshots that are immutable.", |f| {
            some(f.retention.as_ref().map_or(0, |retention| retention.immutable_snapshots))
        }),
        Row::gauge(
            "quoin_retention_clock_behind_seconds",
            "By how much the clock of immutable snapshots is behind the system's; below 0 the system's was set back.",
            |f| f.retention.as_ref().map(|retention| retention.behind_ms as f64 / 1000.0),
        ),
        Row::gauge(
            "quoin_snapshots_held_bytes",
            "Space that snapshots alone hold: at least so much comes back when all are deleted.",
            |f| f.reserve.as_ref().and_then(|reserve| reserve.held_bytes).map(|bytes| bytes as f64),
        ),
        Row::gauge("quoin_snapshot_reserve_bytes", "What snapshots may hold, if that is limited.", |f| {
            f.reserve.as_ref().and_then(|reserve| reserve.limit_bytes).map(|bytes| bytes as f64)
        }),
        Row::gauge(
            "quoin_stopped_volumes",
            "Volumes that refuse I/O because snapshots hold more than they may.",
            |f| some(f.reserve.as_ref().map_or(0, |reserve| reserve.offline_volumes.len() as u64)),
        ),
        Row::gauge("quoin_schedules", "Schedules of snapshots.", |f| some(f.schedules as u64)),
        Row::gauge("quoin_running_copies", "Copies of ranges that have not ended.", |f| {
            some(f.copies.running as u64)
        }),
        Row::counter(
            "quoin_copied_bytes_total",
            "What copies of ranges gave to volumes since the process started.",
            |f| some(f.copies.copied_bytes),
        ),
        Row::gauge("quoin_hosts", "Hosts.", |f| some(f.objects.hosts as u64)),
        Row::gauge("quoin_mappings", "Mappings of a volume to a host.", |f| some(f.objects.mappings as u64)),
    ],
};

static INFO: Table<()> = Table {
    labels: &["version"],
    rows: &[Row::gauge("quoin_build_info", "1; the label says which version runs.", |()| Some(1.0))],
};

static PROCESS: Table<Process> = Table {
    labels: &[],
    rows: &[
        Row::counter("process_cpu_seconds_total", "CPU time of all threads of the process.", |p| {
            Some(p.cpu_seconds)
        }),
        Row::gauge("process_virtual_memory_bytes", "Virtual memory of the process.", |p| p.virtual_bytes),
        Row::gauge("process_resident_memory_bytes", "Memory of the process that is in RAM.", |p| {
            p.resident_bytes
        }),
        Row::gauge("process_open_fds", "File descriptors that are open.", |p| p.open_fds),
        Row::gauge("process_max_fds", "File descriptors that may be open.", |p| p.max_fds),
    ],
};

static LIMIT: Table<u64> = Table {
    labels: &[],
    rows: &[Row::gauge("quoin_memory_limit_bytes", "The memory limit of the process.", |bytes| some(*bytes))],
};

static BUDGET: Table<f64> = Table {
    labels: &["use"],
    rows: &[Row::gauge(
        "quoin_memory_budget_bytes",
        "RAM the memory limit grants for a use: buffer, metadata, cache of host data, or data of sessions' commands.",
        |bytes| Some(*bytes),
    )],
};

static FRONT_END: Table<FrontEnd> = Table {
    labels: &["protocol"],
    rows: &[
        Row::counter("quoin_frontend_connections_total", "Connections accepted.", |f| some(f.connections)),
        Row::counter(
            "quoin_frontend_connections_refused_total",
            "Connections refused because there were too many.",
            |f| some(f.connections_refused),
        ),
        Row::counter("quoin_frontend_logins_total", "Logins or negotiations completed.", |f| some(f.logins)),
        Row::counter(
            "quoin_frontend_logins_failed_total",
            "Logins or negotiations refused, given up or not completed in time.",
            |f| some(f.logins_failed),
        ),
        Row::counter("quoin_frontend_requests_total", "Requests received.", |f| some(f.requests)),
        Row::counter("quoin_frontend_errors_total", "Requests that failed or were refused.", |f| {
            some(f.errors)
        }),
        Row::counter("quoin_frontend_read_bytes_total", "Data sent to clients.", |f| some(f.read_bytes)),
        Row::counter("quoin_frontend_written_bytes_total", "Data received from clients.", |f| {
            some(f.written_bytes)
        }),
        Row::counter(
            "quoin_frontend_protocol_errors_total",
            "Messages that broke the protocol: rejected, or damaged on the way.",
            |f| some(f.protocol_errors),
        ),
    ],
};

static CUT_OFF: Table<u64> = Table {
    labels: &["protocol", "cause"],
    rows: &[Row::counter(
        "quoin_frontend_cut_off_total",
        "Connections ended because the peer was silent, or stalled: it did not take answers or did not send data that \
         was due.",
        |count| some(*count),
    )],
};

static INITIATOR: Table<TrafficView> = Table {
    labels: &["host", "initiator"],
    rows: &[
        Row::gauge(
            "quoin_initiator_sessions",
            "Sessions of an iSCSI initiator; without names, of strangers.",
            |t| some(t.sessions as u64),
        ),
        Row::gauge("quoin_initiator_outstanding_commands", "Commands received and not answered yet.", |t| {
            some(t.outstanding)
        }),
        Row::counter("quoin_initiator_commands_total", "Commands received.", |t| some(t.commands)),
        Row::counter(
            "quoin_initiator_errors_total",
            "Commands answered with another status than GOOD.",
            |t| some(t.errors),
        ),
        Row::counter("quoin_initiator_read_bytes_total", "Data sent to the initiator.", |t| {
            some(t.read_bytes)
        }),
        Row::counter("quoin_initiator_written_bytes_total", "Data received from the initiator.", |t| {
            some(t.written_bytes)
        }),
    ],
};

static VOLUME: Table<VolumeFigures> = Table {
    labels: &["volume"],
    rows: &[
        Row::gauge("quoin_volume_size_bytes", "Size of the volume as hosts see it.", |v| some(v.size_bytes)),
        Row::gauge("quoin_volume_mapped_bytes", "Space the volume takes in the pool.", |v| {
            v.mapped_bytes.map(|bytes| bytes as f64)
        }),
    ],
};

static VOLUME_INFO: Table<()> = Table {
    labels: &["volume", "folder", "kind"],
    rows: &[Row::gauge(
        "quoin_volume_info",
        "1; the labels say in which folder the volume is, and whether it is a volume, a snapshot, a clone or a template.",
        |()| Some(1.0),
    )],
};

static OPERATION: Table<OperationSnapshot> = Table {
    labels: &["volume", "operation"],
    rows: &[
        Row::histogram(
            "quoin_volume_latency_seconds",
            "From the arrival of a request to its answer's being queued; its count is the number of requests.",
            |o| Some(o.latency.clone()),
        ),
        Row::counter("quoin_volume_bytes_total", "Data read, written or unmapped.", |o| some(o.bytes)),
        Row::counter("quoin_volume_errors_total", "Requests that failed or were refused.", |o| {
            some(o.errors)
        }),
    ],
};

static DRIVE: Table<DriveFigures> = Table {
    labels: &["drive"],
    rows: &[
        Row::gauge("quoin_drive_online", "1 when the drive is open and has not failed, else 0.", |d| {
            Some(f64::from(u8::from(d.online)))
        }),
        Row::gauge("quoin_drive_size_bytes", "Size of the drive.", |d| {
            d.size_bytes.map(|bytes| bytes as f64)
        }),
        Row::gauge("quoin_drive_outstanding_operations", "Operations submitted and not completed.", |d| {
            d.latencies.as_ref().map(|latencies| latencies.outstanding as f64)
        }),
        Row::counter("quoin_drive_read_bytes_total", "Data read since it was opened.", |d| {
            some(d.counters.read_bytes)
        }),
        Row::counter("quoin_drive_written_bytes_total", "Data written since it was opened.", |d| {
            some(d.counters.write_bytes)
        }),
        Row::counter("quoin_drive_errors_total", "Operations that failed since it was opened.", |d| {
            some(d.counters.errors)
        }),
    ],
};

static DRIVE_LATENCY: Table<LatencySnapshot> = Table {
    labels: &["drive", "operation"],
    rows: &[Row::histogram(
        "quoin_drive_latency_seconds",
        "From an operation's submission to its completion; its count is the number of operations since the drive was \
     opened.",
        |latency| Some(latency.clone()),
    )],
};

static POOL: Table<PoolStats> = Table {
    labels: &[],
    rows: &[
        Row::gauge("quoin_pool_capacity_bytes", "What data segments could hold in all.", |p| {
            some(p.capacity_bytes)
        }),
        Row::gauge(
            "quoin_pool_usable_bytes",
            "What host data may take: capacity less reserve and metadata.",
            |p| some(p.usable_bytes),
        ),
        Row::gauge("quoin_pool_live_bytes", "Host data in segments.", |p| some(p.live_bytes)),
        Row::gauge(
            "quoin_pool_removing_bytes",
            "Of it, what was deleted, or replaced by a restore or refresh, and is being given back.",
            |p| some(p.removing_bytes),
        ),
        Row::gauge("quoin_pool_metadata_bytes", "Metadata in segments.", |p| some(p.metadata_bytes)),
        Row::gauge(
            "quoin_pool_buffered_bytes",
            "Host data acknowledged and not destaged, as charged.",
            |p| some(p.buffered_bytes),
        ),
        Row::gauge("quoin_pool_segments", "Segments in all.", |p| some(p.segments)),
        Row::gauge("quoin_pool_free_segments", "Segments that are free.", |p| some(p.free_segments)),
        Row::gauge("quoin_pool_journal_extents", "Journal extents in all.", |p| some(p.journal_extents)),
        Row::gauge("quoin_pool_journal_used_extents", "Journal extents in use.", |p| {
            some(p.journal_extents_used)
        }),
        Row::counter(
            "quoin_pool_journal_laps_total",
            "How many times the journal has been gone through.",
            |p| some(p.journal_wraps),
        ),
        Row::counter("quoin_pool_journal_batches_total", "Batches hardened in the journal.", |p| {
            some(p.journal_batches)
        }),
        Row::counter(
            "quoin_pool_journal_records_total",
            "Records in them: writes that shared a hardening, for each batch.",
            |p| some(p.journal_records),
        ),
        Row::counter("quoin_pool_writes_total", "Writes of hosts.", |p| some(p.writes)),
        Row::counter("quoin_pool_reads_total", "Reads of hosts.", |p| some(p.reads)),
        Row::counter("quoin_pool_host_written_bytes_total", "Data written by hosts.", |p| {
            some(p.written_bytes)
        }),
        Row::counter("quoin_pool_host_read_bytes_total", "Data read by hosts.", |p| some(p.read_bytes)),
        Row::counter("quoin_pool_host_unmapped_bytes_total", "Data unmapped by hosts.", |p| {
            some(p.unmapped_bytes)
        }),
        Row::counter("quoin_pool_journal_written_bytes_total", "Written to the journal.", |p| {
            some(p.journal_bytes)
        }),
        Row::counter("quoin_pool_destaged_bytes_total", "Written to segments by destage.", |p| {
            some(p.destaged_bytes)
        }),
        Row::counter("quoin_pool_cleaned_bytes_total", "Written to segments by the cleaner.", |p| {
            some(p.cleaned_bytes)
        }),
        Row::counter("quoin_pool_checkpoint_written_bytes_total", "Written by checkpoints.", |p| {
            some(p.checkpoint_bytes)
        }),
        Row::counter("quoin_pool_checkpoints_total", "Checkpoints made.", |p| some(p.checkpoints)),
        Row::counter("quoin_pool_checkpoint_seconds_total", "Time spent in checkpoints.", |p| {
            Some(p.checkpoint_time.as_secs_f64())
        }),
        Row::counter(
            "quoin_pool_throttled_writes_total",
            "Writes that were delayed because buffer or journal were filling up.",
            |p| some(p.throttled_writes),
        ),
        Row::counter("quoin_pool_refused_writes_total", "Writes refused because the pool was full.", |p| {
            some(p.refused_writes)
        }),
        Row::counter("quoin_pool_cache_hits_total", "Blocks that reads found in the read cache.", |p| {
            some(p.cache_hits)
        }),
        Row::counter("quoin_pool_cache_misses_total", "Blocks that reads looked for there in vain.", |p| {
            some(p.cache_misses)
        }),
        Row::gauge(
            "quoin_pool_longest_write_seconds",
            "The longest that a write took since the pool was opened.",
            |p| Some(p.longest_write.as_secs_f64()),
        ),
        Row::counter(
            "quoin_pool_forks_total",
            "Snapshots, clones, restores, refreshes and beginnings of range copies; those of one moment count once.",
            |p| some(p.forks),
        ),
        Row::gauge(
            "quoin_pool_longest_fork_seconds",
            "The longest that a snapshot, or another fork, held writes since the pool was opened.",
            |p| Some(p.longest_fork.as_secs_f64()),
        ),
        Row::counter(
            "quoin_pool_metadata_hits_total",
            "Metadata pages that were looked for and found in RAM.",
            |p| some(p.metadata_hits),
        ),
        Row::counter(
            "quoin_pool_metadata_loads_total",
            "Metadata pages read from drives, not found in RAM.",
            |p| some(p.metadata_loads),
        ),
        Row::counter(
            "quoin_pool_medium_errors_total",
            "Times that a block could not be read back correctly.",
            |p| some(p.medium_errors),
        ),
        Row::counter(
            "quoin_pool_lost_blocks_total",
            "Blocks lost: damaged below a partial write, or in RAM and in the journal.",
            |p| some(p.lost_blocks),
        ),
        Row::counter(
            "quoin_pool_ram_faults_total",
            "Times that buffered data was found to have changed in RAM.",
            |p| some(p.ram_faults),
        ),
        Row::gauge(
            "quoin_pool_uncleanable_segments",
            "Segments the cleaner leaves alone: it cannot read them.",
            |p| some(p.uncleanable_segments),
        ),
    ],
};

static INTEGRITY: Table<Integrity> = Table {
    labels: &[],
    rows: &[
        Row::gauge(
            "quoin_integrity_damaged_ranges",
            "Ranges of volumes that are known to be unreadable and were not overwritten since.",
            |i| some(i.damaged_ranges),
        ),
        Row::gauge("quoin_scrub_progress_ratio", "How far the scrub is that runs.", |i| {
            i.scrub_percent.map(|percent| percent / 100.0)
        }),
        Row::gauge(
            "quoin_scrub_last_completed_timestamp_seconds",
            "When the last complete scrub ended, since the Unix epoch.",
            |i| i.last_scrub_ms.map(|ms| ms as f64 / 1000.0),
        ),
    ],
};

static MEMORY: Table<f64> = Table {
    labels: &["use"],
    rows: &[Row::gauge(
        "quoin_memory_used_bytes",
        "RAM in use: buffer, metadata, cache of host data, or data of sessions' commands.",
        |bytes| Some(*bytes),
    )],
};

static STALLS: Table<u64> = Table {
    labels: &["cause"],
    rows: &[Row::counter(
        "quoin_pool_stalls_total",
        "Writes that took longer than 50 ms, by what they waited for most: room in buffer and journal, space being given \
         back, or the journal's hardening.",
        |count| some(*count),
    )],
};

static RECOVERY: Table<RecoveryStats> = Table {
    labels: &[],
    rows: &[
        Row::gauge(
            "quoin_pool_recovery_seconds",
            "What the last opening of the pool took until it served.",
            |r| Some(r.duration.as_secs_f64()),
        ),
        Row::gauge(
            "quoin_pool_recovery_replayed_records",
            "Journal records the last opening applied.",
            |r| some(r.replayed_records),
        ),
        Row::gauge("quoin_pool_recovery_replayed_bytes", "Host data they carried.", |r| {
            some(r.replayed_bytes)
        }),
    ],
};

/// Everything there is to tell.
pub(super) fn expose(figures: &Figures, front_ends: &[FrontEnd], memory: &Memory) -> Exposition {
    let mut out = Exposition::default();
    out.add(&ARRAY, figures, &[]);
    out.add(&INFO, &(), &[&figures.version]);
    out.add(&PROCESS, &Process::now(), &[]);
    out.add(&LIMIT, &memory.limit_bytes, &[]);
    out.add(&BUDGET, &(memory.sessions.limit_bytes() as f64), &["sessions"]);
    out.add(&MEMORY, &(memory.sessions.held_bytes() as f64), &["sessions"]);
    let PoolOptions { buffer_bytes, metadata_bytes, cache_bytes, .. } = figures.options;
    for (purpose, bytes) in [("buffer", buffer_bytes), ("metadata", metadata_bytes), ("cache", cache_bytes)] {
        out.add(&BUDGET, &(bytes as f64), &[purpose]);
    }
    for front_end in front_ends {
        out.add(&FRONT_END, front_end, &[front_end.protocol]);
        if let Some(CutOff { silent, stalled }) = front_end.cut_off {
            out.add(&CUT_OFF, &silent, &[front_end.protocol, "silent"]);
            out.add(&CUT_OFF, &stalled, &[front_end.protocol, "stalled"]);
        }
    }
    for traffic in &figures.initiators {
        let (host, initiator) = traffic.initiator.as_ref().map_or(("", ""), |(host, name)| (host, name));
        out.add(&INITIATOR, traffic, &[host, initiator]);
    }
    for volume in &figures.volumes {
        out.add(&VOLUME, volume, &[&volume.name]);
        out.add(&VOLUME_INFO, &(), &[&volume.name, &volume.folder, volume.kind.name()]);
        let asked = &volume.asked;
        for (name, operation) in [("read", &asked.read), ("write", &asked.write), ("unmap", &asked.unmap)] {
            out.add(&OPERATION, operation, &[&volume.name, name]);
        }
    }
    for drive in &figures.drives {
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
    if let Some(pool) = &figures.pool {
        out.add(&POOL, pool, &[]);
        for (cause, count) in [
            ("room", pool.stalls_for_room),
            ("space", pool.stalls_for_space),
            ("hardening", pool.stalls_for_hardening),
        ] {
            out.add(&STALLS, &count, &[cause]);
        }
        for (purpose, bytes) in [
            ("buffer", pool.buffer_ram_bytes),
            ("metadata", pool.metadata_ram_bytes),
            ("cache", pool.cache_ram_bytes),
        ] {
            out.add(&MEMORY, &(bytes as f64), &[purpose]);
        }
    }
    if let Some(recovery) = &figures.recovery {
        out.add(&RECOVERY, recovery, &[]);
    }
    out.add(&INTEGRITY, &figures.integrity, &[]);
    out
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
        ("Array", of(&ARRAY)),
        ("Front ends", [of(&FRONT_END), of(&CUT_OFF)].concat()),
        ("Initiators", of(&INITIATOR)),
        ("Volumes", [of(&OPERATION), of(&VOLUME), of(&VOLUME_INFO)].concat()),
        ("Pool", [of(&POOL), of(&STALLS), of(&RECOVERY), of(&INTEGRITY)].concat()),
        ("Drives", [of(&DRIVE_LATENCY), of(&DRIVE)].concat()),
    ]
}
