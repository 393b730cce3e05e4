//! How a limit on the process's RAM is divided.

use crate::PoolOptions;
use quoin_base::{GIB, MIB};

/// The shares of a memory limit, in bytes. They add up to the limit.
///
/// What is counted: data in the write buffer and the read cache, what is read ahead, metadata pages, the index of
/// fingerprints, the data of commands in
/// flight, and memory kept for use again. The allowance for the process is for what is not: code, threads,
/// indices, the catalog, the segment table, what the allocator loses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryShares {
    /// Set aside for the process itself.
    pub process_bytes: u64,
    /// Data of commands in flight, all sessions together.
    pub sessions_bytes: u64,
    /// Dropped buffers kept for use again: for [`quoin_world::limit_spare_bytes`].
    pub spare_bytes: u64,
    /// [`PoolOptions::buffer_bytes`].
    pub buffer_bytes: u64,
    /// [`PoolOptions::metadata_bytes`].
    pub metadata_bytes: u64,
    /// [`PoolOptions::dirty_bytes`]. Counted beside the metadata: a checkpoint under way keeps copies of pages
    /// that change meanwhile.
    pub dirty_bytes: u64,
    /// [`PoolOptions::ahead_bytes`].
    pub ahead_bytes: u64,
    /// [`PoolOptions::index_bytes`].
    pub index_bytes: u64,
    /// [`PoolOptions::cache_bytes`]: what remains.
    pub cache_bytes: u64,
}

impl MemoryShares {
    /// Divides `limit_bytes`, or [`PoolOptions::LEAST_MEMORY_BYTES`] if that is more.
    pub fn of_limit(limit_bytes: u64) -> Self {
        let limit = limit_bytes.max(PoolOptions::LEAST_MEMORY_BYTES);
        let process_bytes = 24 * MIB + limit / 32;
        let rest = limit - process_bytes;
        let sessions_bytes = (rest / 8).min(512 * MIB);
        let spare_bytes = (rest / 16).min(64 * MIB);
        let buffer_bytes = (rest / 4).min(256 * MIB);
        let metadata_bytes = (rest / 5).min(GIB);
        // The more changes a page gathers before it is written, the fewer bytes each costs.
        let dirty_bytes = (metadata_bytes / 2).min(256 * MIB);
        let ahead_bytes = (rest / 16).min(64 * MIB);
        let index_bytes = rest / 16;
        let metadata = metadata_bytes + dirty_bytes + index_bytes;
        let cache_bytes = rest - sessions_bytes - spare_bytes - buffer_bytes - metadata - ahead_bytes;
        Self {
            process_bytes,
            sessions_bytes,
            spare_bytes,
            buffer_bytes,
            metadata_bytes,
            dirty_bytes,
            ahead_bytes,
            index_bytes,
            cache_bytes,
        }
    }

    /// What they divide.
    pub fn limit_bytes(&self) -> u64 {
        self.process_bytes
            + self.sessions_bytes
            + self.spare_bytes
            + self.buffer_bytes
            + self.metadata_bytes
            + self.dirty_bytes
            + self.ahead_bytes
            + self.index_bytes
            + self.cache_bytes
    }

    /// Options for a pool that keeps to its shares.
    pub fn pool_options(&self) -> PoolOptions {
        let Self { buffer_bytes, metadata_bytes, dirty_bytes, ahead_bytes, index_bytes, cache_bytes, .. } =
            *self;
        PoolOptions {
            buffer_bytes,
            metadata_bytes,
            dirty_bytes,
            ahead_bytes,
            index_bytes,
            cache_bytes,
            ..PoolOptions::default()
        }
    }
}

impl PoolOptions {
    /// The least limit that is divided; below it the parts would be too small to work with.
    pub const LEAST_MEMORY_BYTES: u64 = 64 * MIB;

    /// Options for a pool in a process that is to take about `limit_bytes` of RAM in all; a limit below
    /// [`PoolOptions::LEAST_MEMORY_BYTES`] counts as that. The other shares are in [`MemoryShares`].
    pub fn of_memory_limit(limit_bytes: u64) -> Self {
        MemoryShares::of_limit(limit_bytes).pool_options()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_add_up_to_the_limit_and_each_has_something() {
        for limit in [0, 64 * MIB, 65 * MIB, 256 * MIB, GIB, 4 * GIB, 100 * GIB] {
            let s = MemoryShares::of_limit(limit);
            let parts = [
                s.process_bytes,
                s.sessions_bytes,
                s.spare_bytes,
                s.buffer_bytes,
                s.metadata_bytes,
                s.dirty_bytes,
                s.ahead_bytes,
                s.index_bytes,
                s.cache_bytes,
            ];
            assert_eq!(s.limit_bytes(), limit.max(PoolOptions::LEAST_MEMORY_BYTES));
            assert!(parts.iter().all(|&part| part >= 2 * MIB), "{limit}: {s:?}");
            assert!(s.dirty_bytes < s.metadata_bytes);
            let options = PoolOptions::of_memory_limit(limit);
            assert_eq!((options.cache_bytes, options.buffer_bytes), (s.cache_bytes, s.buffer_bytes));
        }
    }
}
