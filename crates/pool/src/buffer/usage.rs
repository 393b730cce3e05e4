//! How much is buffered.

use super::Buffer;
use quoin_world::atomic::{AtomicU64, Ordering};

/// Writers wait when runs hold about so many blocks, of 8 KiB 32 GiB.
const MOST_RUN_BLOCKS: u64 = 4 << 20;

/// What is buffered and not yet destaged, in figures.
#[derive(Default)]
pub(crate) struct BufferUse {
    /// Blocks with data, each charged one pool block.
    pub charged_blocks: AtomicU64,
    /// Blocks that were not charged, since they only replace what is mapped.
    pub waived_blocks: AtomicU64,
    pub ram_bytes: AtomicU64,
    /// Blocks in runs, which take next to no RAM, but as long to destage as others.
    pub run_blocks: AtomicU64,
}

impl Buffer {
    pub(crate) fn ram_bytes(&self) -> u64 {
        self.usage.ram_bytes.load(Ordering::Relaxed)
    }

    /// How much of what runs may hold they hold: as many blocks as are destaged in some seconds.
    pub(crate) fn run_fill(&self) -> f64 {
        self.usage.run_blocks.load(Ordering::Relaxed) as f64 / MOST_RUN_BLOCKS as f64
    }

    pub(crate) fn charged_blocks(&self) -> u64 {
        self.usage.charged_blocks.load(Ordering::Acquire)
    }

    /// Blocks that were not charged, with all that writes brought which were admitted before the call.
    pub(crate) fn waived_by_now(&self) -> u64 {
        // A write is admitted with its shard locked.
        self.shards.iter().for_each(|shard| drop(shard.lock()));
        self.usage.waived_blocks.load(Ordering::Relaxed)
    }
}
