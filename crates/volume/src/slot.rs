//! Where the open pool is found, and the reason when there is none.

use crate::Thresholds;
use parking_lot::RwLock;
use quoin_pool::Pool;
use std::sync::Arc;

/// Holds the pool that is open now. A pool whose drives failed is taken out and a newly opened instance put
/// in; volumes and front ends hold the slot and stay.
pub struct PoolSlot {
    pool: RwLock<Result<Arc<Pool>, String>>,
    /// Thresholds of the space that all volumes share.
    pub thresholds: Thresholds,
}

impl PoolSlot {
    /// An empty slot, and why it is empty.
    pub fn empty(reason: impl Into<String>) -> Self {
        Self { pool: RwLock::new(Err(reason.into())), thresholds: Thresholds::default() }
    }

    /// The open pool, or the reason why there is none.
    ///
    /// # Errors
    /// The reason why no pool is open, in words.
    pub fn get(&self) -> Result<Arc<Pool>, String> {
        self.pool.read().clone()
    }

    /// Puts an open pool in.
    pub fn fill(&self, pool: Arc<Pool>) {
        *self.pool.write() = Ok(pool);
    }

    /// Empties the slot, or changes the reason why it is empty; returns the pool that was in it.
    pub fn clear(&self, reason: impl Into<String>) -> Option<Arc<Pool>> {
        std::mem::replace(&mut *self.pool.write(), Err(reason.into())).ok()
    }
}
