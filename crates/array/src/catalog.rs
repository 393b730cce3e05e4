//! The keeper of the catalog: the pool that is open, whether its catalog was read, and whose turn it is to change it.
//!
//! Invariants:
//! 1. Changes are made one after the other: what changes the catalog, or what is known of it, asks for a [`Turn`].
//! 2. A pool is put in only where there is none.
//! 3. Once the catalog was read, it counts as known, also while the pool is offline.

use crate::ArrayError;
use quoin_pool::Pool;
use quoin_volume::{PoolSlot, Thresholds, VolumeError, Volumes};
use quoin_world::{AsyncMutex, AsyncMutexGuard, World};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// The keeper of the catalog.
pub(crate) struct Catalog {
    slot: Arc<PoolSlot>,
    turns: AsyncMutex,
    is_read: AtomicBool,
}

/// The right to make a change; as long as it is held, no other change is made.
pub(crate) struct Turn<'a> {
    _guard: AsyncMutexGuard<'a>,
}

impl Catalog {
    /// The keeper before any pool was opened.
    pub(crate) fn new() -> Self {
        let slot = Arc::new(PoolSlot::empty("the pool is being opened"));
        Self { slot, turns: AsyncMutex::new(), is_read: AtomicBool::new(false) }
    }

    /// The volumes of the pool that is open, whichever that is.
    pub(crate) fn volumes(&self, world: Arc<dyn World>) -> Volumes {
        Volumes::new(world, self.slot.clone())
    }

    /// Waits for the turn to make a change.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        Turn { _guard: self.turns.lock().await }
    }

    /// The open pool, or the reason why there is none.
    pub(crate) fn open_pool(&self) -> Result<Arc<Pool>, String> {
        self.slot.get()
    }

    /// The open pool, for a request.
    pub(crate) fn pool(&self) -> Result<Arc<Pool>, ArrayError> {
        self.slot.get().map_err(|reason| VolumeError::Offline { reason }.into())
    }

    /// Whether the catalog was read at least once.
    pub(crate) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Acquire)
    }

    /// Fails while the catalog has not been read yet: until then it is unknown which objects exist.
    pub(crate) fn require_read(&self) -> Result<(), ArrayError> {
        if self.is_read() { Ok(()) } else { self.pool().map(drop) }
    }

    /// Thresholds of the space that all volumes share.
    pub(crate) fn thresholds(&self) -> &Thresholds {
        &self.slot.thresholds
    }

    /// Puts a newly opened pool in.
    pub(crate) fn put(&self, _: &Turn<'_>, pool: Arc<Pool>) {
        assert!(self.slot.get().is_err(), "invariant 2: a pool is open already");
        self.slot.fill(pool);
    }

    /// Notes that what the catalog holds is known.
    pub(crate) fn note_read(&self, _: &Turn<'_>) {
        self.is_read.store(true, Ordering::Release);
    }

    /// Takes the pool out, which is about to be closed for this reason.
    pub(crate) fn take_out(&self, _: &Turn<'_>, reason: &str) {
        self.slot.clear(reason);
    }

    /// Says why there is still no pool.
    pub(crate) fn explain(&self, reason: String) {
        let before = self.slot.clear(reason);
        assert!(before.is_none(), "a pool that is open needs no reason for its absence");
    }
}
