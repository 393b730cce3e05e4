//! What lies between hosts and the log: the read cache, read-ahead, the admission of writes, and the placing of large ones.

use crate::{
    host::{admission::Admission, ahead::ReadAhead, cache::ReadCache, placed::Placer},
    lifecycle::options::PoolOptions,
};
use quoin_base::BlockNumber;

/// The front of a slice.
pub(crate) struct Front {
    pub(crate) cache: ReadCache,
    pub(crate) ahead: ReadAhead,
    pub(crate) admission: Admission,
    pub(crate) placer: Placer,
}

impl Front {
    pub(crate) fn new(options: &PoolOptions, block_bytes: u64, data_threads: usize, placer: Placer) -> Self {
        Self {
            cache: ReadCache::new(options.cache_bytes, block_bytes),
            ahead: ReadAhead::new(data_threads, options.ahead_bytes, block_bytes),
            admission: Admission::new(),
            placer,
        }
    }

    /// Forgets what RAM holds of a block: its number was freed, or is about to be used again.
    pub(crate) fn forget_content(&self, number: BlockNumber) {
        self.cache.purge(number);
        self.ahead.purge(number);
    }

    /// Waits until nothing is placed or read ahead any more.
    pub(crate) async fn end(&self) {
        self.placer.ended().await;
        self.ahead.end().await;
    }
}
