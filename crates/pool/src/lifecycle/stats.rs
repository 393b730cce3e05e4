//! What a pool counts, and how it reports it. Counters begin at zero each time the pool is opened.

use quoin_base::VolumeId;
use quoin_world::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Default)]
pub(crate) struct Counters {
    pub writes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub reads: AtomicU64,
    pub read_bytes: AtomicU64,
    pub unmapped_bytes: AtomicU64,
    pub copied_bytes: AtomicU64,
    pub placed_bytes: AtomicU64,
    pub throttled: AtomicU64,
    pub forks: AtomicU64,
    pub longest_fork_nanos: AtomicU64,
    pub refused_full: AtomicU64,
    pub claimed_slabs: AtomicU64,
    pub given_back_slabs: AtomicU64,
    pub commits: AtomicU64,
    pub destaged_blocks: AtomicU64,
    pub overlapped_blocks: AtomicU64,
    pub destaged_beside: AtomicU64,
    pub destaged_bytes: AtomicU64,
    pub cleaned_bytes: AtomicU64,
    pub cleaned_meta_segments: AtomicU64,
    pub checkpoints: AtomicU64,
    pub checkpoint_bytes: AtomicU64,
    pub catalog_pages: AtomicU64,
    pub checkpoint_nanos: AtomicU64,
    pub longest_cut_nanos: AtomicU64,
    pub medium_errors: AtomicU64,
    pub lost_blocks: AtomicU64,
    pub ram_faults: AtomicU64,
    pub uncleanable: AtomicU64,
    /// Blocks that were overwritten and whose places are given back later.
    pub dropped_blocks: AtomicU64,
    /// RAM for page numbers that came free and that readers may still come by.
    pub freed_pages_ram_bytes: AtomicU64,
    /// Buffered blocks while none of them can be destaged, for a drive does not read the records of some; 0 as a rule.
    pub stuck_blocks: AtomicU64,
}

impl Counters {
    /// Counts a transaction with forks, which held all writers for so long.
    pub(crate) fn forked(&self, held: Duration) {
        self.forks.fetch_add(1, Ordering::Relaxed);
        self.longest_fork_nanos.fetch_max(held.as_nanos() as u64, Ordering::Relaxed);
    }

    /// What hosts have done so far: it changes while they do something.
    pub(crate) fn host_operations(&self) -> u64 {
        self.writes.load(Ordering::Relaxed) + self.reads.load(Ordering::Relaxed)
    }
}

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

/// A pool in figures. Bytes unless named otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolStats {
    /// What data segments could hold in all.
    pub capacity_bytes: u64,
    /// What host data may take: the capacity less reserve and metadata.
    pub usable_bytes: u64,
    /// What host data outside reservations can still take, before what is buffered.
    pub free_bytes: u64,
    /// Promised to volumes, whether they use it or not.
    pub reserved_bytes: u64,
    /// Promised to volumes, beside what they own.
    pub reserved_unmapped_bytes: u64,
    /// Host data in segments.
    pub live_bytes: u64,
    /// Overwritten, and given back when enough of it has gathered or space is short: it takes space beside what is live.
    pub dropped_bytes: u64,
    /// Of it, what is owned by deleted volumes and is being given back.
    pub removing_bytes: u64,
    /// Of it, what volumes share, or only a snapshot's past holds.
    pub shared_bytes: u64,
    /// Entries of deadlists still to be looked through for what deletions freed.
    pub sifting_entries: u64,
    /// Layers that shall become one with the only one that came of them and still is.
    pub joining_layers: u64,
    /// Layers that volumes and their forks are made of.
    pub layers: u64,
    /// Metadata in segments.
    pub metadata_bytes: u64,
    /// Host data charged and not destaged yet.
    pub buffered_bytes: u64,
    /// RAM the write buffer takes.
    pub buffer_ram_bytes: u64,
    /// RAM that metadata pages take, and page numbers that came free.
    pub metadata_ram_bytes: u64,
    /// Of it, page numbers that came free and that readers may still come by.
    pub freed_pages_ram_bytes: u64,
    /// RAM that the read cache takes.
    pub cache_ram_bytes: u64,
    /// Blocks that reads found in the read cache.
    pub cache_hits: u64,
    /// Blocks that reads looked for in the read cache and did not find.
    pub cache_misses: u64,
    /// RAM that what was read ahead takes.
    pub ahead_ram_bytes: u64,
    /// Read ahead for sequential reads.
    pub ahead_bytes: u64,
    /// Of it, what was given up before anybody read it.
    pub ahead_unused_bytes: u64,
    /// Free segments, including ungranted slabs.
    pub free_segments: u64,
    /// Segments in all.
    pub segments: u64,
    /// Journal extents in use, and in all.
    pub journal_extents_used: u64,
    /// Journal extents in all.
    pub journal_extents: u64,
    /// Written to the journal.
    pub journal_bytes: u64,
    /// Batches written to the journal.
    pub journal_batches: u64,
    /// Records in them.
    pub journal_records: u64,
    /// How many times the journal has been gone through.
    pub journal_wraps: u64,
    /// Slabs that slices were granted since the pool was opened.
    pub claimed_slabs: u64,
    /// Slabs that slices gave back since then, for others to use.
    pub given_back_slabs: u64,
    /// Host writes.
    pub writes: u64,
    /// Written by hosts.
    pub written_bytes: u64,
    /// Host reads.
    pub reads: u64,
    /// Read by hosts.
    pub read_bytes: u64,
    /// Unmapped by hosts.
    pub unmapped_bytes: u64,
    /// Copied within the array, by reference or as data.
    pub copied_bytes: u64,
    /// Writes that were delayed because buffer or journal were filling up.
    pub throttled_writes: u64,
    /// Writes refused because the pool was full.
    pub refused_writes: u64,
    /// Writes that took longer than 50 ms, most of it waiting for room in buffer and journal.
    pub stalls_for_room: u64,
    /// Writes that took longer than 50 ms, most of it waiting for space that was being given back.
    pub stalls_for_space: u64,
    /// Writes that took longer than 50 ms, most of it until the journal was written.
    pub stalls_for_hardening: u64,
    /// The longest a write took.
    pub longest_write: Duration,
    /// Transactions that forked volumes: those of one moment are one.
    pub forks: u64,
    /// The longest that one of them held writes.
    pub longest_fork: Duration,
    /// Blocks destaged.
    pub destaged_blocks: u64,
    /// Of them, those that were written while the next were composed.
    pub overlapped_blocks: u64,
    /// Of them, those that were destaged while a checkpoint was under way.
    pub destaged_beside_checkpoints: u64,
    /// Large writes of hosts, written to segments as they came in.
    pub placed_bytes: u64,
    /// Written to segments by destage.
    pub destaged_bytes: u64,
    /// Written to segments by the cleaner.
    pub cleaned_bytes: u64,
    /// Checkpoints made.
    pub checkpoints: u64,
    /// Written by checkpoints.
    pub checkpoint_bytes: u64,
    /// Pages of the catalog that checkpoints wrote or gave back.
    pub catalog_pages: u64,
    /// Time that checkpoints took. The committer does other things for most of it.
    pub checkpoint_time: Duration,
    /// The longest time that the committer spent on one cut.
    pub longest_cut: Duration,
    /// Times that a metadata page was looked for and found in RAM.
    pub metadata_hits: u64,
    /// Metadata pages read from drives.
    pub metadata_loads: u64,
    /// Blocks that could not be read back correctly, each time one was met.
    pub medium_errors: u64,
    /// Blocks lost: what lay below a partial write was unreadable, or what was buffered changed in RAM and the journal
    /// could not help.
    pub lost_blocks: u64,
    /// Times that buffered data was found to have changed in RAM. The journal's copy is taken instead.
    pub ram_faults: u64,
    /// Segments left alone by the cleaner because it could not read them.
    pub uncleanable_segments: u64,
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
    /// Takes in those of another slice.
    pub(crate) fn add(&mut self, other: &Self) {
        self.capacity_bytes += other.capacity_bytes;
        self.usable_bytes += other.usable_bytes;
        self.free_bytes += other.free_bytes;
        self.reserved_bytes += other.reserved_bytes;
        self.reserved_unmapped_bytes += other.reserved_unmapped_bytes;
        self.live_bytes += other.live_bytes;
        self.dropped_bytes += other.dropped_bytes;
        self.removing_bytes += other.removing_bytes;
        self.shared_bytes += other.shared_bytes;
        self.sifting_entries += other.sifting_entries;
        self.joining_layers += other.joining_layers;
        self.layers += other.layers;
        self.metadata_bytes += other.metadata_bytes;
        self.buffered_bytes += other.buffered_bytes;
        self.buffer_ram_bytes += other.buffer_ram_bytes;
        self.metadata_ram_bytes += other.metadata_ram_bytes;
        self.freed_pages_ram_bytes += other.freed_pages_ram_bytes;
        self.cache_ram_bytes += other.cache_ram_bytes;
        self.cache_hits += other.cache_hits;
        self.cache_misses += other.cache_misses;
        self.free_segments += other.free_segments;
        self.segments += other.segments;
        self.journal_extents_used += other.journal_extents_used;
        self.journal_extents += other.journal_extents;
        self.journal_bytes += other.journal_bytes;
        self.journal_batches += other.journal_batches;
        self.journal_records += other.journal_records;
        self.journal_wraps += other.journal_wraps;
        self.ahead_ram_bytes += other.ahead_ram_bytes;
        self.add_counted(other);
    }

    /// The same of what was done since the pool was opened.
    fn add_counted(&mut self, other: &Self) {
        self.writes += other.writes;
        self.written_bytes += other.written_bytes;
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.unmapped_bytes += other.unmapped_bytes;
        self.copied_bytes += other.copied_bytes;
        self.throttled_writes += other.throttled_writes;
        self.refused_writes += other.refused_writes;
        self.claimed_slabs += other.claimed_slabs;
        self.given_back_slabs += other.given_back_slabs;
        self.stalls_for_room += other.stalls_for_room;
        self.stalls_for_space += other.stalls_for_space;
        self.stalls_for_hardening += other.stalls_for_hardening;
        self.longest_write = self.longest_write.max(other.longest_write);
        self.forks += other.forks;
        self.longest_fork = self.longest_fork.max(other.longest_fork);
        self.destaged_blocks += other.destaged_blocks;
        self.placed_bytes += other.placed_bytes;
        self.destaged_bytes += other.destaged_bytes;
        self.cleaned_bytes += other.cleaned_bytes;
        self.checkpoints += other.checkpoints;
        self.checkpoint_bytes += other.checkpoint_bytes;
        self.catalog_pages += other.catalog_pages;
        self.checkpoint_time += other.checkpoint_time;
        self.metadata_hits += other.metadata_hits;
        self.metadata_loads += other.metadata_loads;
        self.medium_errors += other.medium_errors;
        self.lost_blocks += other.lost_blocks;
        self.ram_faults += other.ram_faults;
        self.uncleanable_segments += other.uncleanable_segments;
        self.ahead_bytes += other.ahead_bytes;
        self.ahead_unused_bytes += other.ahead_unused_bytes;
        self.overlapped_blocks += other.overlapped_blocks;
        self.destaged_beside_checkpoints += other.destaged_beside_checkpoints;
        self.longest_cut = self.longest_cut.max(other.longest_cut);
    }

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
