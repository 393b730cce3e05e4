//! The file system under sparse file drives is full.
//!
//! A drive that has no room fails a write of a row without having harmed anything: what was to be written is in the
//! journal, and so is all that is acknowledged. So the pool stays online.
//!
//! 1. The committer keeps the row it could not write and tries again every [`RETRY_EVERY`]. It does nothing else meanwhile.
//! 2. Until that row is written, writes of hosts are refused as in a pool that is full. No write waits for the committer to
//!    make room in buffer or journal, and no transaction waits for slabs, for the catalog or for earlier forks to be
//!    destaged. Reads go on.
//! 3. A pool that is closed meanwhile stops as if it were killed: the next opening replays the journal.

use super::Store;
use crate::error::PoolError;
use futures_util::future::{Either, select};
use quoin_drive::DriveError;
use quoin_stripe::StripeError;
use quoin_world::{
    Mutex, World,
    atomic::{AtomicBool, Ordering},
};
use std::{collections::BTreeMap, pin::pin, time::Duration};

/// How often a row is tried again.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether the pool is being closed.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct Shortage {
    is_short: AtomicBool,
    /// How many rows wait, by the drive that has no room for them.
    waiting: Mutex<BTreeMap<String, u32>>,
    closing: AtomicBool,
}

impl Shortage {
    fn begin(&self, drive: &str) {
        *self.waiting.lock().entry(drive.to_owned()).or_default() += 1;
        self.is_short.store(true, Ordering::Release);
    }

    fn end(&self, drive: &str) {
        let mut waiting = self.waiting.lock();
        if let Some(rows) = waiting.get_mut(drive) {
            *rows -= 1;
            if *rows == 0 {
                waiting.remove(drive);
            }
        }
        self.is_short.store(!waiting.is_empty(), Ordering::Release);
    }
}

/// One row that waits; leaves when dropped.
struct WaitsForRoom<'a> {
    store: &'a Store,
    drive: String,
}

impl Drop for WaitsForRoom<'_> {
    fn drop(&mut self) {
        self.store.shortage.end(&self.drive);
        self.store.health.notify();
    }
}

impl Store {
    /// The drives whose file systems have no room; empty as a rule.
    pub(crate) fn drives_without_room(&self) -> Vec<String> {
        self.shortage.waiting.lock().keys().cloned().collect()
    }

    /// True while writes that need room are refused.
    pub(crate) fn is_short_of_room(&self) -> bool {
        self.shortage.is_short.load(Ordering::Acquire)
    }

    /// Waits until writes that need room are refused.
    pub(crate) async fn until_short_of_room(&self) {
        self.health.until(|| self.is_short_of_room().then_some(())).await;
    }

    /// Work that waits for the committer, unless that waits for room itself: then it is refused, and may be left half done.
    pub(crate) async fn unless_short_of_room<T>(
        &self,
        work: impl Future<Output = Result<T, PoolError>>,
    ) -> Result<T, PoolError> {
        match select(pin!(work), pin!(self.until_short_of_room())).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(((), _)) => Err(PoolError::NoSpace),
        }
    }

    /// Lets nobody wait for room any more.
    pub(crate) fn stop_waiting_for_room(&self) {
        self.shortage.closing.store(true, Ordering::Release);
    }

    /// Begins to wait for room on the drive that failed a write for want of it.
    fn lacks_room(&self, drive: &str) -> WaitsForRoom<'_> {
        self.shortage.begin(drive);
        tracing::warn!(pool = %self.pool_name(), drive, "the file system under the drive has no room; writes are refused");
        self.health.notify();
        WaitsForRoom { store: self, drive: drive.to_owned() }
    }

    /// Writes to drives; one without room is waited for.
    pub(crate) async fn write_patiently<F, T, E>(
        &self,
        world: &dyn World,
        mut write: impl FnMut() -> F,
    ) -> Result<T, PoolError>
    where
        F: Future<Output = Result<T, E>>,
        E: Into<PoolError>,
    {
        let mut waits = None;
        loop {
            let error = match write().await {
                Ok(written) => return Ok(written),
                Err(error) => error.into(),
            };
            let Some(drive) = without_room(&error) else { return Err(error) };
            waits.get_or_insert_with(|| self.lacks_room(drive));
            if !self.may_retry(world).await? {
                return Err(error);
            }
        }
    }

    /// Waits until a write is to be tried again. False: the pool is being closed.
    async fn may_retry(&self, world: &dyn World) -> Result<bool, PoolError> {
        let since = world.now();
        loop {
            self.health.check()?;
            if self.shortage.closing.load(Ordering::Acquire) {
                return Ok(false);
            }
            if world.now().since(since) >= RETRY_EVERY {
                return Ok(true);
            }
            world.sleep(LOOK_EVERY).await;
        }
    }
}

/// The drive that had no room for a write, if that was what is wrong.
fn without_room(error: &PoolError) -> Option<&str> {
    match error {
        PoolError::Stripe(StripeError::Drive(DriveError::NoRoom { drive }))
        | PoolError::Drive(DriveError::NoRoom { drive }) => Some(drive),
        _ => None,
    }
}
