//! What a slice counts, by what is counted. Counters begin at zero each time the pool is opened.
//!
//! A figure orders nothing: who reads one may see it before or after what it counts. What threads wait by is in
//! [`Progress`] and is ordered.

use crate::{commit::composed::Form, lifecycle::stats::PoolStats};
use quoin_world::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A figure that changes while the pool serves.
#[derive(Default)]
pub(crate) struct Figure(AtomicU64);

impl Figure {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Makes it what it is now.
    pub(crate) fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The longest of what was timed.
#[derive(Default)]
pub(crate) struct Longest(AtomicU64);

impl Longest {
    pub(crate) fn note(&self, took: Duration) {
        self.0.fetch_max(took.as_nanos() as u64, Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) host: HostCounters,
    pub(crate) forks: ForkCounters,
    pub(crate) slabs: SlabCounters,
    pub(crate) destage: DestageCounters,
    pub(crate) cleaning: CleaningCounters,
    pub(crate) rebuild: RebuildCounters,
    pub(crate) checkpoints: CheckpointCounters,
    pub(crate) damage: DamageCounters,
    pub(crate) held: Held,
    pub(crate) progress: Progress,
}

/// What hosts did, and what was done for them at once.
#[derive(Default)]
pub(crate) struct HostCounters {
    pub(crate) writes: Figure,
    pub(crate) written_bytes: Figure,
    pub(crate) reads: Figure,
    pub(crate) read_bytes: Figure,
    pub(crate) unmapped_bytes: Figure,
    pub(crate) copied_bytes: Figure,
    pub(crate) placed_bytes: Figure,
    pub(crate) throttled: Figure,
    pub(crate) refused_full: Figure,
}

impl HostCounters {
    /// Counts a write that was acknowledged.
    pub(crate) fn wrote(&self, bytes: u64) {
        self.written_bytes.add(bytes);
        self.writes.add(1);
    }

    /// Counts a read that was answered.
    pub(crate) fn read(&self, bytes: u64) {
        self.read_bytes.add(bytes);
        self.reads.add(1);
    }

    /// What they have done so far: it changes while they do something.
    pub(crate) fn operations(&self) -> u64 {
        self.writes.get() + self.reads.get()
    }
}

/// Transactions with forks.
#[derive(Default)]
pub(crate) struct ForkCounters {
    forks: Figure,
    longest: Longest,
}

impl ForkCounters {
    /// Counts a transaction with forks, which held all writers for so long.
    pub(crate) fn forked(&self, held: Duration) {
        self.forks.add(1);
        self.longest.note(held);
    }
}

#[derive(Default)]
pub(crate) struct SlabCounters {
    pub(crate) claimed: Figure,
    pub(crate) given_back: Figure,
}

#[derive(Default)]
pub(crate) struct DestageCounters {
    pub(crate) bytes: Figure,
    pub(crate) blocks: Figure,
    /// Of them, those that were written while the next were composed.
    pub(crate) overlapped_blocks: Figure,
    /// Of them, those that were destaged while a checkpoint was under way.
    pub(crate) blocks_beside_checkpoints: Figure,
    /// Records that were written anew, since what they brought waits for drives.
    pub(crate) carried: Figure,
    pub(crate) reduction: ReductionCounters,
}

/// Blocks of volumes that are compressed or deduplicated.
#[derive(Default)]
pub(crate) struct ReductionCounters {
    /// Those that became references to others with the same content.
    pub(crate) deduplicated_blocks: Figure,
    /// Those that were stored compressed, and what they take.
    pub(crate) compressed_blocks: Figure,
    pub(crate) compressed_bytes: Figure,
    /// Those that were stored as they are, since they did not get shorter.
    pub(crate) incompressible_blocks: Figure,
    /// Those that were stored as they are, since hosts would have waited.
    pub(crate) hasty_blocks: Figure,
    /// Those that were compressed when they were moved.
    pub(crate) recompressed_blocks: Figure,
}

impl ReductionCounters {
    /// Counts blocks that were destaged.
    pub(crate) fn destaged<'a>(&self, forms: impl Iterator<Item = &'a Form>) {
        for form in forms {
            match form {
                Form::Packed(packed) => {
                    self.compressed_blocks.add(1);
                    self.compressed_bytes.add(packed.stored.len() as u64);
                }
                Form::Incompressible => self.incompressible_blocks.add(1),
                Form::Hasty => self.hasty_blocks.add(1),
                Form::Untried | Form::Plain => {}
            }
        }
    }
}

#[derive(Default)]
pub(crate) struct CleaningCounters {
    pub(crate) bytes: Figure,
    /// Segments that are left alone.
    pub(crate) uncleanable: Figure,
}

/// Columns that were made again on other drives.
#[derive(Default)]
pub(crate) struct RebuildCounters {
    pub(crate) columns: Figure,
    pub(crate) bytes: Figure,
}

#[derive(Default)]
pub(crate) struct CheckpointCounters {
    checkpoints: Figure,
    bytes: Figure,
    nanos: Figure,
    pub(crate) catalog_pages: Figure,
    pub(crate) longest_cut: Longest,
}

impl CheckpointCounters {
    /// Counts one that is durable.
    pub(crate) fn made(&self, written_bytes: u64, took: Duration) {
        self.checkpoints.add(1);
        self.bytes.add(written_bytes);
        self.nanos.add(took.as_nanos() as u64);
    }
}

#[derive(Default)]
pub(crate) struct DamageCounters {
    pub(crate) medium_errors: Figure,
    pub(crate) lost_blocks: Figure,
    pub(crate) ram_faults: Figure,
}

/// What the committer holds, as of its last step.
#[derive(Default)]
pub(crate) struct Held {
    /// Blocks that were overwritten and whose places are given back later.
    pub(crate) dropped_blocks: Figure,
    /// RAM for page numbers that came free and that readers may still come by.
    pub(crate) freed_pages_ram_bytes: Figure,
}

/// How far the committer is, for those who wait for it.
#[derive(Default)]
pub(crate) struct Progress {
    commits: AtomicU64,
    /// Buffered blocks while none of them can be destaged, for a drive does not read the records of some; 0 as a rule.
    stuck_blocks: AtomicU64,
    /// Blocks that are tried again, because a drive did not read what they were written over in part.
    unread_blocks: AtomicU64,
}

impl Progress {
    /// Notes that it has committed something.
    pub(crate) fn committed(&self) {
        self.commits.fetch_add(1, Ordering::AcqRel);
    }

    /// How often it has.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    /// Notes how many blocks are stuck. True if that has changed.
    pub(crate) fn stuck(&self, blocks: u64) -> bool {
        self.stuck_blocks.swap(blocks, Ordering::AcqRel) != blocks
    }

    pub(crate) fn stuck_blocks(&self) -> u64 {
        self.stuck_blocks.load(Ordering::Acquire)
    }

    /// Notes how many blocks could not be put together so far, because a drive does not read what they were written over.
    pub(crate) fn unread(&self, blocks: u64) {
        self.unread_blocks.store(blocks, Ordering::Release);
    }

    pub(crate) fn unread_blocks(&self) -> u64 {
        self.unread_blocks.load(Ordering::Acquire)
    }
}

impl Counters {
    /// All of it, in a report that says nothing else.
    pub(crate) fn figures(&self) -> PoolStats {
        let Self { host, forks, slabs, destage, cleaning, rebuild, checkpoints, damage, held, .. } = self;
        PoolStats {
            freed_pages_ram_bytes: held.freed_pages_ram_bytes.get(),
            writes: host.writes.get(),
            written_bytes: host.written_bytes.get(),
            reads: host.reads.get(),
            read_bytes: host.read_bytes.get(),
            unmapped_bytes: host.unmapped_bytes.get(),
            copied_bytes: host.copied_bytes.get(),
            placed_bytes: host.placed_bytes.get(),
            throttled_writes: host.throttled.get(),
            refused_writes: host.refused_full.get(),
            claimed_slabs: slabs.claimed.get(),
            given_back_slabs: slabs.given_back.get(),
            forks: forks.forks.get(),
            longest_fork: forks.longest.get(),
            destaged_bytes: destage.bytes.get(),
            destaged_blocks: destage.blocks.get(),
            overlapped_blocks: destage.overlapped_blocks.get(),
            destaged_beside_checkpoints: destage.blocks_beside_checkpoints.get(),
            carried_records: destage.carried.get(),
            deduplicated_blocks: destage.reduction.deduplicated_blocks.get(),
            compressed_blocks: destage.reduction.compressed_blocks.get(),
            compressed_bytes: destage.reduction.compressed_bytes.get(),
            incompressible_blocks: destage.reduction.incompressible_blocks.get(),
            not_compressed_blocks: destage.reduction.hasty_blocks.get(),
            recompressed_blocks: destage.reduction.recompressed_blocks.get(),
            cleaned_bytes: cleaning.bytes.get(),
            uncleanable_segments: cleaning.uncleanable.get(),
            rebuilt_columns: rebuild.columns.get(),
            rebuilt_bytes: rebuild.bytes.get(),
            checkpoints: checkpoints.checkpoints.get(),
            checkpoint_bytes: checkpoints.bytes.get(),
            checkpoint_time: Duration::from_nanos(checkpoints.nanos.get()),
            catalog_pages: checkpoints.catalog_pages.get(),
            longest_cut: checkpoints.longest_cut.get(),
            medium_errors: damage.medium_errors.get(),
            lost_blocks: damage.lost_blocks.get(),
            ram_faults: damage.ram_faults.get(),
            ..PoolStats::default()
        }
    }
}
