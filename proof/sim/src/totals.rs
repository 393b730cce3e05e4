//! What seeds exercised, in figures.

use quoin_pool::PoolStats;
use quoin_world_sim::Injected;

crate::figures! {
    /// What was exercised, summed over seeds.
    pub Totals, rare: [carried_records, cancelled_evacuations, unreadable_segments, spared_sectors, rebuilt_columns, repairs, vanished_drives, returned_drives, given_up_drives, openings_without, layouts_given, layout_checks], {
        /// Seeds run to their end.
        seeds,
        /// Times a pool was opened or that was tried.
        boots,
        /// Boots in which the power was cut.
        power_cuts,
        /// Boots in which the process was killed.
        kills,
        /// Cuts before the pool was open.
        cuts_in_recovery,
        /// Times a pool was closed cleanly.
        closes,
        /// Times a pool went offline for a drive's failure.
        offline,
        /// Times a pool could not be opened for a drive's failure.
        failed_opens,
        /// Boots in which the pool went on without a drive of its journal.
        boots_without_drive,
        /// Steps of the simulation.
        steps,
        /// Disk operations.
        disk_ops,
        /// Writes acknowledged.
        writes,
        /// Bytes of them.
        written_bytes,
        /// Reads compared with the model.
        reads,
        /// Bytes of them.
        read_bytes,
        /// Of the reads, those that went on where the last one of their client ended.
        stream_reads,
        /// Bytes read ahead for them.
        ahead_bytes,
        /// Of these, bytes that were given up before anybody read them.
        ahead_unused_bytes,
        /// Unmaps acknowledged.
        unmaps,
        /// Catalog transactions acknowledged.
        transactions,
        /// Catalog transactions in doubt that turned out to have taken effect.
        doubtful_transactions,
        /// Volumes created.
        volumes_created,
        /// Volumes deleted.
        volumes_deleted,
        /// Volumes forked.
        forks,
        /// Transactions that forked several at once.
        group_forks,
        /// Forks into volumes that existed.
        forks_over,
        /// Bytes copied by reference.
        copied_bytes,
        /// Reservations of space granted, and taken back.
        reservations,
        /// Reservations refused for lack of space.
        refused_reservations,
        /// Writes acknowledged to volumes with a reservation.
        reserved_writes,
        /// Tails of volumes cut off.
        cut_tails,
        /// Writes refused because a tail was being cut off.
        refused_beyond_end,
        /// Writes refused for lack of space.
        refused_full,
        /// Slabs that slices of several were granted while they served.
        claimed_slabs,
        /// Slabs that slices gave back for others.
        given_back_slabs,
        /// Drives added while the pool served.
        added_drives,
        /// Drives that began to leave while it served.
        evacuations,
        /// Drives that could not leave.
        refused_evacuations,
        /// Drives that stayed after all.
        cancelled_evacuations,
        /// Drives removed.
        removed_drives,
        /// Times a drive became longer while the pool served.
        grown_drives,
        /// Slabs that these got.
        grown_slabs,
        /// Times a drive vanished that the pool could do without.
        vanished_drives,
        /// Segments that could not be read, as often as somebody looked.
        unreadable_segments,
        /// Times such a drive was taken back.
        returned_drives,
        /// Times it was away for too long, and was given up.
        given_up_drives,
        /// Times a pool was opened while drives were away.
        openings_without,
        /// Layouts that volumes got.
        layouts_given,
        /// Times all volumes had the pool's layout again, and nothing lay otherwise.
        layout_checks,
        /// Times that the reduction of what a volume has was begun.
        reductions,
        /// Blocks that became references to others with the same content.
        deduplicated_blocks,
        /// Blocks stored compressed.
        compressed_blocks,
        /// Blocks of compressed volumes that were stored as they are.
        incompressible_blocks,
        /// Blocks of compressed volumes that there was no time to compress.
        hasty_blocks,
        /// Blocks that were compressed when they were moved.
        recompressed_blocks,
        /// Writes that were slowed down.
        throttled,
        /// Reads that failed for damage or a drive's error.
        failed_reads,
        /// Blocks lost to damage below a partial write.
        lost_blocks,
        /// Blocks that changed in RAM before they were destaged, and were read from the journal again.
        ram_faults,
        /// Repairs of data, copies, parity and metadata.
        repairs,
        /// Bytes that scrubs read and verified.
        scrubbed_bytes,
        /// Times all that was mapped was compared with the model.
        space_checks,
        /// Offline checks of the drives.
        checks,
        /// Bytes of large writes that went to segments as they came in.
        placed_bytes,
        /// Blocks destaged.
        destaged_blocks,
        /// Of them, those that were written while the next were composed.
        overlapped_blocks,
        /// Of them, those that were destaged while a checkpoint was under way.
        beside_checkpoints,
        /// Records written anew, since what they brought waits for drives.
        carried_records,
        /// Checkpoints made.
        checkpoints,
        /// Bytes the cleaner moved.
        cleaned_bytes,
        /// Columns of segments rebuilt on other drives, of pools whose data is protected.
        rebuilt_columns,
        /// Laps of the journal.
        journal_wraps,
        /// Batches written to the journal.
        journal_batches,
        /// Records replayed.
        replayed_records,
        /// Batches torn at a cut and dropped.
        torn_batches,
        /// Metadata pages read from drives.
        metadata_loads,
        /// Reads, writes and flushes made to fail.
        injected_errors,
        /// Writes lost, misdirected or damaged on the way.
        injected_lies,
        /// Sectors of these that were mended before recovery, since batches in doubt led there.
        spared_sectors,
        /// Operations stuck in a drive that hung.
        hung_operations,
        /// Reads that took very long.
        late_reads,
        /// Places of drives that became unreadable.
        latent_errors,
        /// Writes a power cut undid or tore.
        undone_in_power_cuts,
    }
}

impl Totals {
    pub(crate) fn add_pool(&mut self, stats: &PoolStats) {
        self.throttled += stats.throttled_writes;
        self.claimed_slabs += stats.claimed_slabs;
        self.given_back_slabs += stats.given_back_slabs;
        self.placed_bytes += stats.placed_bytes;
        self.ahead_bytes += stats.ahead_bytes;
        self.ahead_unused_bytes += stats.ahead_unused_bytes;
        self.destaged_blocks += stats.destaged_blocks;
        self.overlapped_blocks += stats.overlapped_blocks;
        self.deduplicated_blocks += stats.deduplicated_blocks;
        self.compressed_blocks += stats.compressed_blocks;
        self.incompressible_blocks += stats.incompressible_blocks;
        self.hasty_blocks += stats.not_compressed_blocks;
        self.recompressed_blocks += stats.recompressed_blocks;
        self.beside_checkpoints += stats.destaged_beside_checkpoints;
        self.carried_records += stats.carried_records;
        self.checkpoints += stats.checkpoints;
        self.cleaned_bytes += stats.cleaned_bytes;
        self.rebuilt_columns += stats.rebuilt_columns;
        self.journal_wraps += stats.journal_wraps;
        self.journal_batches += stats.journal_batches;
        self.metadata_loads += stats.metadata_loads;
        self.lost_blocks += stats.lost_blocks;
        self.repairs += stats.repaired_data + stats.repaired_copies;
        self.repairs += stats.repaired_parity + stats.repaired_metadata;
        self.ram_faults += stats.ram_faults;
    }

    pub(crate) fn add_injected(&mut self, injected: &Injected) {
        self.injected_errors += injected.read_errors + injected.write_errors + injected.flush_errors;
        self.injected_lies += injected.lost_writes + injected.misdirected_writes + injected.bit_flips;
        self.hung_operations += injected.hung;
        self.late_reads += injected.late_reads;
        self.latent_errors += injected.latent_errors;
        self.undone_in_power_cuts += injected.lost_in_power_cuts + injected.torn_in_power_cuts;
    }
}
