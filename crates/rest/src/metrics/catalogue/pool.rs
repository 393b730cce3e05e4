//! What the engine counts: the pool, its space, its memory, its recovery, its integrity.

use super::{
    super::exposition::{Row, Table},
    some,
};
use quoin_api::Integrity;
use quoin_pool::{PoolStats, RecoveryStats};

pub(super) static POOL: Table<PoolStats> = Table {
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
            "quoin_pool_free_bytes",
            "What writes to thin volumes can still take: usable space less data, data on the way and thick reservations.",
            |p| some(p.free_bytes.saturating_sub(p.buffered_bytes)),
        ),
        Row::gauge("quoin_pool_reserved_bytes", "Space kept for thick volumes, used by them or not.", |p| {
            some(p.reserved_bytes)
        }),
        Row::gauge("quoin_pool_reserved_unused_bytes", "Of it, what thick volumes do not use yet.", |p| {
            some(p.reserved_unmapped_bytes)
        }),
        Row::gauge(
            "quoin_pool_reserve_bytes",
            "Space that host data may not take although it is not metadata: for checkpoints, cleaning and deletion.",
            |p| some(p.capacity_bytes.saturating_sub(p.usable_bytes + p.metadata_bytes)),
        ),
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

pub(super) static INTEGRITY: Table<Integrity> = Table {
    labels: &[],
    rows: &[
        Row::gauge(
            "quoin_integrity_damaged_ranges",
            "Ranges of volumes that are known to be unreadable and were not overwritten since.",
            |i| some(i.damaged_ranges),
        ),
        Row::gauge(
            "quoin_scrub_progress_ratio",
            "Progress of the running scrub, from 0 to 1; absent while none runs.",
            |i| i.scrub_percent.map(|percent| percent / 100.0),
        ),
        Row::gauge(
            "quoin_scrub_last_completed_timestamp_seconds",
            "When the last complete scrub ended, since the Unix epoch.",
            |i| i.last_scrub_ms.map(|ms| ms as f64 / 1000.0),
        ),
    ],
};

pub(super) static MEMORY: Table<f64> = Table {
    labels: &["use"],
    rows: &[Row::gauge(
        "quoin_memory_used_bytes",
        "RAM in use: buffer, metadata, cache of host data, or data of sessions' commands.",
        |bytes| Some(*bytes),
    )],
};

pub(super) static STALLS: Table<u64> = Table {
    labels: &["cause"],
    rows: &[Row::counter(
        "quoin_pool_stalls_total",
        "Writes that took longer than 50 ms, by what they waited for most: room in buffer and journal, space being given \
         back, or the journal's hardening.",
        |count| some(*count),
    )],
};

pub(super) static RECOVERY: Table<RecoveryStats> = Table {
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
