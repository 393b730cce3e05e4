//! What the engine counts: the pool, its space, its memory, its recovery, its integrity.

use super::super::exposition::{Row, Table};
use quoin_api::Integrity;
use quoin_pool::{PoolStats, Protection, RecoveryStats};

pub(super) static POOL: Table<PoolStats> = Table {
    labels: &[],
    rows: &[
        Row::level("quoin_pool_capacity_bytes", "Total capacity of the data segments.", |p| p.capacity_bytes),
        Row::level(
            "quoin_pool_usable_bytes",
            "Space for host data: the capacity less the internal reserve and metadata.",
            |p| p.usable_bytes,
        ),
        Row::level("quoin_pool_live_bytes", "Host data in segments.", |p| p.live_bytes),
        Row::level(
            "quoin_pool_free_bytes",
            "Space left for writes to thin volumes: usable space less data, buffered data and \
             reservations of thick volumes.",
            |p| p.free_bytes.saturating_sub(p.buffered_bytes),
        ),
        Row::level("quoin_pool_reserved_bytes", "Space reserved for thick volumes, used or not.", |p| {
            p.reserved_bytes
        }),
        Row::level(
            "quoin_pool_reserved_unused_bytes",
            "Space reserved for thick volumes that they do not use yet.",
            |p| p.reserved_unmapped_bytes,
        ),
        Row::level(
            "quoin_pool_reserve_bytes",
            "Internal reserve for checkpoints, cleaning and deletion, which host data cannot use.",
            |p| p.capacity_bytes.saturating_sub(p.usable_bytes + p.metadata_bytes),
        ),
        Row::level(
            "quoin_pool_removing_bytes",
            "The part of quoin_pool_live_bytes that was deleted, or replaced by a restore or refresh, and \
             is being reclaimed.",
            |p| p.removing_bytes,
        ),
        Row::level(
            "quoin_pool_dropped_bytes",
            "Overwritten data whose space is given back later, together or when space is short. Neither live nor free.",
            |p| p.dropped_bytes,
        ),
        Row::level("quoin_pool_metadata_bytes", "Metadata in segments.", |p| p.metadata_bytes),
        Row::level(
            "quoin_pool_buffered_bytes",
            "Space charged for host data that is acknowledged and not yet destaged.",
            |p| p.buffered_bytes,
        ),
        Row::level("quoin_pool_segments", "Segments, in total.", |p| p.segments),
        Row::level("quoin_pool_free_segments", "Free segments.", |p| p.free_segments),
        Row::level("quoin_pool_journal_extents", "Journal extents, in total.", |p| p.journal_extents),
        Row::level("quoin_pool_journal_used_extents", "Journal extents in use.", |p| p.journal_extents_used),
        Row::count("quoin_pool_journal_laps_total", "Times that the journal wrapped around.", |p| {
            p.journal_wraps
        }),
        Row::count("quoin_pool_journal_batches_total", "Batches hardened in the journal.", |p| {
            p.journal_batches
        }),
        Row::count(
            "quoin_pool_journal_records_total",
            "Records in the hardened batches. Divided by the batches: how many writes share one hardening.",
            |p| p.journal_records,
        ),
        Row::count("quoin_pool_writes_total", "Host writes.", |p| p.writes),
        Row::count("quoin_pool_reads_total", "Host reads.", |p| p.reads),
        Row::count("quoin_pool_host_written_bytes_total", "Data written by hosts.", |p| p.written_bytes),
        Row::count("quoin_pool_host_read_bytes_total", "Data read by hosts.", |p| p.read_bytes),
        Row::count("quoin_pool_host_unmapped_bytes_total", "Data unmapped by hosts.", |p| p.unmapped_bytes),
        Row::count("quoin_pool_journal_written_bytes_total", "Data written to the journal.", |p| {
            p.journal_bytes
        }),
        Row::count(
            "quoin_pool_placed_bytes_total",
            "Data of large writes, written to segments as it came in.",
            |p| p.placed_bytes,
        ),
        Row::count("quoin_pool_destaged_bytes_total", "Data written to segments by destage.", |p| {
            p.destaged_bytes
        }),
        Row::count(
            "quoin_pool_deduplicated_blocks_total",
            "Blocks that destage did not store, because there were others with the same content.",
            |p| p.deduplicated_blocks,
        ),
        Row::count("quoin_pool_compressed_blocks_total", "Blocks that destage stored compressed.", |p| {
            p.compressed_blocks
        }),
        Row::count("quoin_pool_compressed_bytes_total", "Space that these blocks took.", |p| {
            p.compressed_bytes
        }),
        Row::count(
            "quoin_pool_incompressible_blocks_total",
            "Blocks of compressed volumes that destage stored as they are, because they do not get shorter.",
            |p| p.incompressible_blocks,
        ),
        Row::count(
            "quoin_pool_not_compressed_blocks_total",
            "Blocks of compressed volumes that destage stored as they are for now, because hosts would have waited for a \
             processor.",
            |p| p.not_compressed_blocks,
        ),
        Row::count(
            "quoin_pool_recompressed_blocks_total",
            "Blocks that were compressed, or compressed better, after they were destaged: when the cleaner moved them, on \
             request, or once hosts left time for it.",
            |p| p.recompressed_blocks,
        ),
        Row::count(
            "quoin_pool_cleaned_bytes_total",
            "Data written to segments by the cleaner, and by what packs blocks that were stored in haste.",
            |p| p.cleaned_bytes,
        ),
        Row::count("quoin_pool_checkpoint_written_bytes_total", "Data written by checkpoints.", |p| {
            p.checkpoint_bytes
        }),
        Row::count("quoin_pool_checkpoints_total", "Completed checkpoints.", |p| p.checkpoints),
        Row::counter("quoin_pool_checkpoint_seconds_total", "Time spent in checkpoints.", |p| {
            Some(p.checkpoint_time.as_secs_f64())
        }),
        Row::count(
            "quoin_pool_throttled_writes_total",
            "Writes delayed because the buffer or the journal was filling up.",
            |p| p.throttled_writes,
        ),
        Row::count("quoin_pool_refused_writes_total", "Writes refused because the pool was full.", |p| {
            p.refused_writes
        }),
        Row::count("quoin_pool_cache_hits_total", "Blocks that reads found in the read cache.", |p| {
            p.cache_hits
        }),
        Row::count(
            "quoin_pool_cache_misses_total",
            "Blocks that reads did not find in the read cache.",
            |p| p.cache_misses,
        ),
        Row::count("quoin_pool_read_ahead_bytes_total", "Data read ahead of sequential reads.", |p| {
            p.ahead_bytes
        }),
        Row::count(
            "quoin_pool_read_ahead_unused_bytes_total",
            "Data read ahead and given up before anybody read it.",
            |p| p.ahead_unused_bytes,
        ),
        Row::gauge(
            "quoin_pool_longest_write_seconds",
            "Duration of the longest write since the pool was opened.",
            |p| Some(p.longest_write.as_secs_f64()),
        ),
        Row::count(
            "quoin_pool_forks_total",
            "Forks: snapshots, clones, restores, refreshes and starts of range copies. Forks made \
             together count once.",
            |p| p.forks,
        ),
        Row::gauge(
            "quoin_pool_longest_fork_seconds",
            "The longest time that a fork held writes back since the pool was opened.",
            |p| Some(p.longest_fork.as_secs_f64()),
        ),
        Row::count("quoin_pool_metadata_hits_total", "Metadata pages found in RAM.", |p| p.metadata_hits),
        Row::count(
            "quoin_pool_metadata_loads_total",
            "Metadata pages read from drives because they were not in RAM.",
            |p| p.metadata_loads,
        ),
        Row::count(
            "quoin_pool_medium_errors_total",
            "Reads of blocks that failed or returned damaged data.",
            |p| p.medium_errors,
        ),
        Row::count(
            "quoin_pool_lost_blocks_total",
            "Lost blocks: damaged under a partial write, or damaged both in RAM and in the journal.",
            |p| p.lost_blocks,
        ),
        Row::count(
            "quoin_pool_ram_faults_total",
            "Times that buffered data was found changed in RAM.",
            |p| p.ram_faults,
        ),
        Row::count(
            "quoin_pool_rebuilt_columns_total",
            "Columns of segments that were rebuilt on other drives, or moved there.",
            |p| p.rebuilt_columns,
        ),
        Row::count("quoin_pool_rebuilt_bytes_total", "Data written for that.", |p| p.rebuilt_bytes),
        Row::level(
            "quoin_pool_uncleanable_segments",
            "Segments that the cleaner skips because it cannot read them.",
            |p| p.uncleanable_segments,
        ),
    ],
};

pub(super) static PROTECTION: Table<Protection> = Table {
    labels: &[],
    rows: &[
        Row::level(
            "quoin_degraded_segments",
            "Segments in use that lack a column, because a drive failed.",
            |p| p.degraded_segments,
        ),
        Row::level("quoin_degraded_bytes", "Data and metadata in segments that lack a column.", |p| {
            p.degraded_bytes
        }),
        Row::level(
            "quoin_rebuild_left_bytes",
            "Bytes of the columns that segments lack: what a rebuild has yet to make.",
            |p| p.lacking_bytes,
        ),
        Row::level(
            "quoin_absent_bytes",
            "Bytes of columns on drives that went away and may come back: no rebuild makes them before the repair delay is over.",
            |p| p.absent_bytes,
        ),
        Row::level(
            "quoin_unreadable_bytes",
            "Data in segments that lack more columns than their layout tolerates: hosts cannot read at most so much of it until \
             drives come back.",
            |p| p.unreadable_bytes,
        ),
        Row::level(
            "quoin_failures_tolerated",
            "Failures of fault domains that are tolerated now, without loss and without the pool going offline.",
            |p| u64::from(p.tolerates),
        ),
        Row::level(
            "quoin_layout_failures_tolerated",
            "Failures of fault domains that the layout tolerates while no drive has failed.",
            |p| u64::from(p.layout.parity()),
        ),
        Row::level("quoin_fault_domains", "Fault domains of the drives that take data.", |p| {
            p.domains as u64
        }),
    ],
};

pub(super) static INTEGRITY: Table<Integrity> = Table {
    labels: &[],
    rows: &[
        Row::level(
            "quoin_integrity_damaged_ranges",
            "Ranges of volumes known to be unreadable and not overwritten since.",
            |i| i.damaged_ranges,
        ),
        Row::gauge(
            "quoin_scrub_progress_ratio",
            "Progress of the running scrub, from 0 to 1. Absent while none runs.",
            |i| i.scrub_percent.map(|percent| percent / 100.0),
        ),
        Row::gauge(
            "quoin_scrub_last_completed_timestamp_seconds",
            "Time when the last complete scrub ended, since the Unix epoch.",
            |i| i.last_scrub_ms.map(|ms| ms as f64 / 1000.0),
        ),
    ],
};

pub(super) static MEMORY: Table<f64> = Table {
    labels: &["use"],
    rows: &[Row::gauge(
        "quoin_memory_used_bytes",
        "RAM in use: write buffer, metadata, read cache, read-ahead, or commands of sessions.",
        |bytes| Some(*bytes),
    )],
};

pub(super) static STALLS: Table<u64> = Table {
    labels: &["cause"],
    rows: &[Row::count(
        "quoin_pool_stalls_total",
        "Writes that took longer than 50 ms, by what they waited for most: room in buffer and journal, \
         reclaimed space, or hardening in the journal.",
        |count| *count,
    )],
};

pub(super) static REPAIRS: Table<u64> = Table {
    labels: &["kind"],
    rows: &[Row::count(
        "quoin_pool_repairs_total",
        "Repairs from redundancy: data computed from parity, copies of data, parity, and copies of metadata \
         pages that were wrong or unreadable and were rewritten.",
        |count| *count,
    )],
};

pub(super) static RECOVERY: Table<RecoveryStats> = Table {
    labels: &[],
    rows: &[
        Row::gauge(
            "quoin_pool_recovery_seconds",
            "Time that the last opening of the pool took until volumes were served.",
            |r| Some(r.duration.as_secs_f64()),
        ),
        Row::level(
            "quoin_pool_recovery_replayed_records",
            "Journal records replayed by the last opening of the pool.",
            |r| r.replayed_records,
        ),
        Row::level(
            "quoin_pool_recovery_replayed_bytes",
            "Host data in the journal records that the last opening of the pool replayed.",
            |r| r.replayed_bytes,
        ),
    ],
};
