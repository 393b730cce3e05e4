//! How much is buffered.

use super::Buffer;
use quoin_world::atomic::{AtomicU64, Ordering};

/// What is buffered and not yet destaged, in figures.
#[derive(Default)]
pub(crate) struct BufferUse {
    /// Blocks with data, each charged one pool block.
    pub charged_blocks: AtomicU64,
    /// Blocks that were not charged, since they only replace what is mapped.
    pub waived_blocks: AtomicU64,
    pub ram_bytes: AtomicU64,
}

impl Buffer {
    pub(crate) fn ram_bytes(&self) -> u64 {
        self.usage.ram_bytes.load(Ordering::Relaxed)
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
