//! What a pool reports of itself in figures.

use quoin_base::VolumeId;
use std::time::Duration;

/// What opening a pool took.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecoveryStats {
    /// From the first read to the moment the pool served.
    pub duration: Duration,
    /// Of it, to take the drives over: epochs raised, everything flushed.
    pub takeover: Duration,
    /// Of it, to read root, segment table and catalog.
    pub checkpoint: Duration,
    /// Of it, to read headers and checksums of the journal.
    pub journal: Duration,
    /// Of it, to put the records back into the buffer.
    pub replay: Duration,
    /// Journal records applied.
    pub replayed_records: u64,
    /// Bytes of host data they carry. It stays in the journal until it is wanted.
    pub replayed_bytes: u64,
    /// Batches found in the journal, obsolete ones included.
    pub batches: u64,
    /// Batches that were torn, never acknowledged, and dropped.
    pub torn_batches: u64,
    /// The checkpoint it started from.
    pub checkpoint_generation: u64,
}

/// A report of figures, each with the way in which those of slices make one of the pool: their sum, or the longest of them.
macro_rules! figures {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $field:ident: $kind:ty = $way:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name {
            $($(#[$about])* pub $field: $kind,)*
        }

        impl $name {
            /// Takes in those of another slice.
            pub(crate) fn add(&mut self, other: &Self) {
                $(figures!($way self.$field, other.$field);)*
            }
        }
    };
    (sum $one:expr, $other:expr) => { $one += $other };
    (longest $one:expr, $other:expr) => { $one = $one.max($other) };
}

figures! {
    /// A pool in figures. Bytes unless named otherwise.
    PoolStats {
        /// What data segments could hold in all.
        capacity_bytes: u64 = sum,
        /// What host data may take: the capacity less reserve and metadata.
        usable_bytes: u64 = sum,
        /// What host data outside reservations can still take, before what is buffered.
        free_bytes: u64 = sum,
        /// Promised to volumes, whether they use it or not.
        reserved_bytes: u64 = sum,
        /// Promised to volumes, beside what they own.
        reserved_unmapped_bytes: u64 = sum,
        /// Host data in segments.
        live_bytes: u64 = sum,
        /// How many blocks that is, each as it is stored.
        stored_blocks: u64 = sum,
        /// Overwritten, and given back when enough of it has gathered or space is short: it takes space beside what is live.
        dropped_bytes: u64 = sum,
        /// How many blocks that is.
        dropped_blocks: u64 = sum,
        /// Of it, what is owned by deleted volumes and is being given back.
        removing_bytes: u64 = sum,
        /// Of it, what volumes share, or only a snapshot's past holds.
        shared_bytes: u64 = sum,
        /// Entries of deadlists still to be looked through for what deletions freed.
        sifting_entries: u64 = sum,
        /// Layers that shall become one with the only one that came of them and still is.
        joining_layers: u64 = sum,
        /// Layers that volumes and their forks are made of.
        layers: u64 = sum,
        /// Metadata in segments.
        metadata_bytes: u64 = sum,
        /// Host data charged and not destaged yet.
        buffered_bytes: u64 = sum,
        /// RAM the write buffer takes.
        buffer_ram_bytes: u64 = sum,
        /// RAM that metadata pages take, and page numbers that came free.
        metadata_ram_bytes: u64 = sum,
        /// Of it, page numbers that came free and that readers may still come by.
        freed_pages_ram_bytes: u64 = sum,
        /// RAM that the read cache takes.
        cache_ram_bytes: u64 = sum,
        /// Blocks that reads found in the read cache.
        cache_hits: u64 = sum,
        /// Blocks that reads looked for in the read cache and did not find.
        cache_misses: u64 = sum,
        /// RAM that what was read ahead takes.
        ahead_ram_bytes: u64 = sum,
        /// Read ahead for sequential reads.
        ahead_bytes: u64 = sum,
        /// Of it, what was given up before anybody read it.
        ahead_unused_bytes: u64 = sum,
        /// Free segments, including ungranted slabs.
        free_segments: u64 = sum,
        /// Segments in all.
        segments: u64 = sum,
        /// Journal extents in use, and in all.
        journal_extents_used: u64 = sum,
        /// Journal extents in all.
        journal_extents: u64 = sum,
        /// Written to the journal.
        journal_bytes: u64 = sum,
        /// Batches written to the journal.
        journal_batches: u64 = sum,
        /// Records in them.
        journal_records: u64 = sum,
        /// How many times the journal has been gone through.
        journal_wraps: u64 = sum,
        /// Slabs that slices were granted since the pool was opened.
        claimed_slabs: u64 = sum,
        /// Slabs that slices gave back since then, for others to use.
        given_back_slabs: u64 = sum,
        /// Host writes.
        writes: u64 = sum,
        /// Written by hosts.
        written_bytes: u64 = sum,
        /// Host reads.
        reads: u64 = sum,
        /// Read by hosts.
        read_bytes: u64 = sum,
        /// Unmapped by hosts.
        unmapped_bytes: u64 = sum,
        /// Copied within the array, by reference or as data.
        copied_bytes: u64 = sum,
        /// Writes that were delayed because buffer or journal were filling up.
        throttled_writes: u64 = sum,
        /// Writes refused because the pool was full.
        refused_writes: u64 = sum,
        /// Writes that took longer than 50 ms, most of it waiting for room in buffer and journal.
        stalls_for_room: u64 = sum,
        /// Writes that took longer than 50 ms, most of it waiting for space that was being given back.
        stalls_for_space: u64 = sum,
        /// Writes that took longer than 50 ms, most of it until the journal was written.
        stalls_for_hardening: u64 = sum,
        /// The longest a write took.
        longest_write: Duration = longest,
        /// Transactions that forked volumes: those of one moment are one.
        forks: u64 = sum,
        /// The longest that one of them held writes.
        longest_fork: Duration = longest,
        /// Blocks destaged.
        destaged_blocks: u64 = sum,
        /// Of them, those that were written while the next were composed.
        overlapped_blocks: u64 = sum,
        /// Of them, those that were destaged while a checkpoint was under way.
        destaged_beside_checkpoints: u64 = sum,
        /// Records that were written anew, so that the journal goes on: what they brought waits for drives.
        carried_records: u64 = sum,
        /// Large writes of hosts, written to segments as they came in.
        placed_bytes: u64 = sum,
        /// Written to segments by destage.
        destaged_bytes: u64 = sum,
        /// Of the blocks destaged, those that became references to others with the same content.
        deduplicated_blocks: u64 = sum,
        /// Of the blocks destaged, those that were stored compressed.
        compressed_blocks: u64 = sum,
        /// What they take.
        compressed_bytes: u64 = sum,
        /// Of the blocks destaged, those of compressed volumes that were stored as they are, since they do not get shorter.
        incompressible_blocks: u64 = sum,
        /// The same that were stored as they are for now, since hosts would have waited for a processor.
        not_compressed_blocks: u64 = sum,
        /// Blocks that were compressed, or compressed better, when the cleaner moved them.
        recompressed_blocks: u64 = sum,
        /// Written to segments by the cleaner.
        cleaned_bytes: u64 = sum,
        /// Checkpoints made.
        checkpoints: u64 = sum,
        /// Written by checkpoints.
        checkpoint_bytes: u64 = sum,
        /// Pages of the catalog that checkpoints wrote or gave back.
        catalog_pages: u64 = sum,
        /// Time that checkpoints took. The committer does other things for most of it.
        checkpoint_time: Duration = sum,
        /// The longest time that the committer spent on one cut.
        longest_cut: Duration = longest,
        /// Times that a metadata page was looked for and found in RAM.
        metadata_hits: u64 = sum,
        /// Metadata pages read from drives.
        metadata_loads: u64 = sum,
        /// Blocks that could not be read back correctly, each time one was met.
        medium_errors: u64 = sum,
        /// Blocks lost: what lay below a partial write was unreadable, or what was buffered changed in RAM and the journal
        /// could not help.
        lost_blocks: u64 = sum,
        /// Times that buffered data was found to have changed in RAM. The journal's copy is taken instead.
        ram_faults: u64 = sum,
        /// Segments with live data that lack a column.
        degraded_segments: u64 = sum,
        /// Live data in them.
        degraded_bytes: u64 = sum,
        /// Columns of segments that were rebuilt on other drives.
        rebuilt_columns: u64 = sum,
        /// Written by that.
        rebuilt_bytes: u64 = sum,
        /// Repairs: data that was wrong on a drive, or could not be read, was computed from parity and written again.
        repaired_data: u64 = sum,
        /// The same of copies of data.
        repaired_copies: u64 = sum,
        /// Parity that was wrong, or could not be read, and was computed again.
        repaired_parity: u64 = sum,
        /// Copies of metadata pages that were wrong, or could not be read: the pages were written anew elsewhere.
        repaired_metadata: u64 = sum,
        /// Segments left alone by the cleaner because it could not read them.
        uncleanable_segments: u64 = sum,
    }
}

impl RecoveryStats {
    /// Takes in those of another slice, but for the whole duration.
    pub(crate) fn add(&mut self, other: &Self) {
        self.takeover += other.takeover;
        self.checkpoint += other.checkpoint;
        self.journal += other.journal;
        self.replay += other.replay;
        self.replayed_records += other.replayed_records;
        self.replayed_bytes += other.replayed_bytes;
        self.batches += other.batches;
        self.torn_batches += other.torn_batches;
        self.checkpoint_generation = self.checkpoint_generation.max(other.checkpoint_generation);
    }
}

impl PoolStats {
    /// Bytes written to journal and segments for each byte that hosts wrote; 0 before the first.
    pub fn write_amplification(&self) -> f64 {
        let segments = self.placed_bytes + self.destaged_bytes + self.cleaned_bytes + self.checkpoint_bytes;
        let written = self.journal_bytes + segments;
        match self.written_bytes {
            0 => 0.0,
            host => written as f64 / host as f64,
        }
    }
}

/// A volume in figures.
#[derive(Clone, Copy, Debug, Default)]
pub struct VolumeStats {
    /// Space its destaged blocks map, shared with others or not.
    pub mapped_bytes: u64,
    /// Of it, what was written since it was last forked, or forked into: nobody else has it.
    pub owned_bytes: u64,
    /// What comes back if it alone is deleted. Behind while what was deleted before is still being given back.
    pub freed_by_delete_bytes: u64,
    /// Space promised to it; 0: none.
    pub reserved_bytes: u64,
    /// Written by hosts since the pool was opened.
    pub written_bytes: u64,
    /// Read by hosts since the pool was opened.
    pub read_bytes: u64,
}

/// The part of the pool's space that a slice holds. It takes ungranted slabs when it needs more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceSpace {
    /// Its volumes.
    pub volumes: u64,
    /// What host data may take.
    pub usable_bytes: u64,
    /// What host data outside reservations can still take, what is buffered included.
    pub free_bytes: u64,
}

/// What a volume held that was deleted, or that another was forked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The volume.
    pub volume: VolumeId,
    /// What nobody else has of it, and is not given back yet.
    pub owned_bytes: u64,
}
