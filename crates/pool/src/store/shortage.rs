//! There is no room on the drives for what was admitted: the file system under sparse file drives is full, or drives were lost
//! and those that are left have no free slab.
//!
//! A drive that has no room fails a write of a row without having harmed anything: what was to be written is in the
//! journal, and so is all that is acknowledged. So the pool stays online.
//!
//! 1. The committer keeps the row it could not write and tries again every [`RETRY_EVERY`]. It does nothing else meanwhile.
//! 2. Until that row is written, writes of hosts are refused as in a pool that is full. No write waits for the committer to
//!    make room in buffer or journal, and no transaction waits for slabs, for the catalog or for earlier forks to be
//!    destaged. Reads go on.
//! 3. Nobody waits for such a committer with the turn of drives: a drive that is added may be what makes room.
//! 4. A pool that is closed meanwhile stops as if it were killed: the next opening replays the journal.
//!
//! Slabs lack when drives were lost that some were counted on. Of what is to be destaged the committer leaves in the buffer what
//! it finds no slab for; checkpoints keep theirs, and all else goes on. Slabs may come from the next checkpoint, from the cleaner
//! or from other slices: then hosts wait. If nothing brings any, hosts are refused until all data of a batch finds a place again,
//! because something was deleted, or because a drive brings slabs that is added, grows or comes back. A pool that lost no drive
//! lacks none: there it would be an error of its accounting.

use super::Store;
use crate::error::PoolError;
use futures_util::future::{Either, select};
use quoin_drive::DriveError;
use quoin_stripe::StripeError;
use quoin_world::{
    Mutex, World,
    atomic::{AtomicBool, Ordering},
};
use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

/// How often a row is tried again.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether the pool is being closed.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct Shortage {
    is_short: AtomicBool,
    waiting: Mutex<Waiting>,
    closing: AtomicBool,
    /// Drives were lost, as far as it was asked.
    has_lost: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    /// Writes that wait, by the drive that has no room for them.
    writes: BTreeMap<String, Writes>,
    /// How many slices lack slabs.
    slices: u32,
    /// How many checkpoints wait for slabs that are being cut.
    cuts: u32,
}

/// Writes that wait for room on a drive.
#[derive(Default)]
struct Writes {
    /// Those of committers, which do nothing else meanwhile.
    of_committers: u32,
    others: u32,
}

impl Writes {
    fn of(&mut self, writer: Writer) -> &mut u32 {
        match writer {
            Writer::Committer => &mut self.of_committers,
            Writer::Rebuild => &mut self.others,
        }
    }
}

/// Who writes.
#[derive(Clone, Copy)]
pub(crate) enum Writer {
    /// A committer, or a checkpoint that it waits for.
    Committer,
    /// The rebuild, beside committers.
    Rebuild,
}

/// What waits for room.
#[derive(Clone, Copy)]
enum Waiter<'a> {
    /// A write, for which this drive has no room.
    Write(&'a str, Writer),
    /// A slice, with blocks that find no slab.
    Slice,
    /// A slice, with a checkpoint that finds none.
    Cut,
}

impl Shortage {
    fn begin(&self, waiter: Waiter<'_>) {
        let mut waiting = self.waiting.lock();
        match waiter {
            Waiter::Write(drive, writer) => {
                *waiting.writes.entry(drive.to_owned()).or_default().of(writer) += 1;
            }
            Waiter::Slice => waiting.slices += 1,
            Waiter::Cut => waiting.cuts += 1,
        }
        self.is_short.store(true, Ordering::Release);
    }

    fn end(&self, waiter: Waiter<'_>) {
        let mut waiting = self.waiting.lock();
        match waiter {
            Waiter::Write(drive, writer) => {
                if let Some(writes) = waiting.writes.get_mut(drive) {
                    *writes.of(writer) -= 1;
                    if writes.of_committers + writes.others == 0 {
                        waiting.writes.remove(drive);
                    }
                }
            }
            Waiter::Slice => waiting.slices -= 1,
            Waiter::Cut => waiting.cuts -= 1,
        }
        let is_short = !waiting.writes.is_empty() || waiting.slices > 0 || waiting.cuts > 0;
        self.is_short.store(is_short, Ordering::Release);
    }
}

/// A write that waits; leaves when dropped.
struct WaitsForRoom<'a> {
    store: &'a Store,
    drive: String,
    writer: Writer,
}

/// A slice that waits for slabs; leaves when dropped.
pub(crate) struct WaitsForSlabs {
    store: Arc<Store>,
    waiter: Waiter<'static>,
}

impl Drop for WaitsForSlabs {
    fn drop(&mut self) {
        self.store.shortage.end(self.waiter);
        self.store.health.notify();
    }
}

impl Drop for WaitsForRoom<'_> {
    fn drop(&mut self) {
        self.store.shortage.end(Waiter::Write(&self.drive, self.writer));
        self.store.health.notify();
    }
}

impl Store {
    /// The drives whose file systems have no room; empty as a rule.
    pub(crate) fn drives_without_room(&self) -> Vec<String> {
        self.shortage.waiting.lock().writes.keys().cloned().collect()
    }

    /// Whether the drives that are left have no slab for what was admitted before others were lost.
    pub(crate) fn is_short_of_slabs(&self) -> bool {
        let waiting = self.shortage.waiting.lock();
        waiting.slices > 0 || waiting.cuts > 0
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

    /// Why a committer does nothing until there is room, if one waits for that.
    fn why_held_up(&self) -> Option<String> {
        let waiting = self.shortage.waiting.lock();
        if let Some((drive, _)) = waiting.writes.iter().find(|(_, writes)| writes.of_committers > 0) {
            return Some(format!("the file system under drive {drive} has no room: make some there first"));
        }
        let why =
            "the drives that are left have no slab for a checkpoint: add a drive first (quoin drive add)";
        (waiting.cuts > 0).then(|| why.to_owned())
    }

    /// Work that waits for committers, unless one of them does nothing until there is room: then it is refused, and may be left
    /// half done. Who waits for the turn of drives does so for this: another drive may be what makes room.
    pub(crate) async fn unless_held_up<T>(
        &self,
        work: impl Future<Output = Result<T, PoolError>>,
    ) -> Result<T, PoolError> {
        match select(pin!(work), pin!(self.health.until(|| self.why_held_up()))).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right((why, _)) => Err(PoolError::Refused(why)),
        }
    }

    /// Lets nobody wait for room any more.
    pub(crate) fn stop_waiting_for_room(&self) {
        self.shortage.closing.store(true, Ordering::Release);
    }

    /// Begins to wait for room on the drive that failed a write for want of it.
    fn lacks_room(&self, drive: &str, writer: Writer) -> WaitsForRoom<'_> {
        self.shortage.begin(Waiter::Write(drive, writer));
        tracing::warn!(pool = %self.pool_name(), drive, "the file system under the drive has no room; writes are refused");
        self.health.notify();
        WaitsForRoom { store: self, drive: drive.to_owned(), writer }
    }

    /// Whether slabs may lack for what was admitted: drives were lost. One may be back when that is noticed.
    pub(crate) fn may_lack_slabs(&self) -> bool {
        let has_lost = self.shortage.has_lost.load(Ordering::Relaxed) || self.has_lost_drives();
        self.shortage.has_lost.store(has_lost, Ordering::Relaxed);
        has_lost
    }

    /// Begins to wait for slabs for blocks. `None`: no drive was lost, so there are slabs for all that was admitted.
    pub(crate) fn wait_for_slabs(self: &Arc<Self>) -> Option<WaitsForSlabs> {
        self.wait_with(Waiter::Slice)
    }

    /// As [`Store::wait_for_slabs`], for a checkpoint: its committer does nothing else meanwhile.
    pub(crate) fn wait_for_slabs_of_cut(self: &Arc<Self>) -> Option<WaitsForSlabs> {
        self.wait_with(Waiter::Cut)
    }

    fn wait_with(self: &Arc<Self>, waiter: Waiter<'static>) -> Option<WaitsForSlabs> {
        if !self.may_lack_slabs() {
            return None;
        }
        self.shortage.begin(waiter);
        tracing::warn!(pool = %self.pool_name(), "the drives that are left have no room for what hosts wrote; writes are refused");
        self.health.notify();
        Some(WaitsForSlabs { store: self.clone(), waiter })
    }

    /// Writes to drives; one without room is waited for.
    pub(crate) async fn write_patiently<F, T, E>(
        &self,
        world: &dyn World,
        writer: Writer,
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
            waits.get_or_insert_with(|| self.lacks_room(drive, writer));
            if !self.may_retry(world).await? {
                return Err(error);
            }
        }
    }

    /// Waits until a write is to be tried again. False: the pool is being closed.
    pub(crate) async fn may_retry(&self, world: &dyn World) -> Result<bool, PoolError> {
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
