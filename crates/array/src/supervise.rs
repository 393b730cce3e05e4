//! Opens the pool, notices when it goes offline, opens it again when its drives are back.

use crate::{
    Array, access::Access, nbd::read_exports, schedules::read_schedules, snapshot_reserve::read_reserve,
};
use futures_util::future::select;
use quoin_api::Severity;
use quoin_drive::{Drive, open_set};
use quoin_pool::{Pool, PoolError, PoolState, Transaction};
use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// How often an open pool is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// When opening a pool that is offline is tried again first: a process that was killed lets go of its drives a moment
/// after it has ended. Then each time twice as long after the last, up to [`RETRY_EVERY`].
const RETRY_FIRST: Duration = Duration::from_millis(50);
/// How often it is tried in the long run.
const RETRY_EVERY: Duration = Duration::from_secs(3);

/// How often, and how many times, it is looked whether the drives of a closed pool are let go.
const LET_GO_LOOK_EVERY: Duration = Duration::from_millis(20);
const LET_GO_LOOKS: u32 = 250;

/// The drives of the configuration, and how each was when it was last opened.
pub(crate) struct Drives(pub(crate) Vec<DriveSlot>);

pub(crate) struct DriveSlot {
    pub(crate) path: String,
    /// The drive, held only while its pool is open: whoever holds it holds its lock.
    pub(crate) drive: Option<Arc<Drive>>,
    /// Why it could not be opened, or how it failed.
    pub(crate) fault: Option<String>,
}

impl Drives {
    pub(crate) fn new(paths: Vec<String>) -> Self {
        Self(paths.into_iter().map(|path| DriveSlot { path, drive: None, fault: None }).collect())
    }

    fn set(&mut self, path: &str, drive: Option<Arc<Drive>>, fault: Option<String>) {
        for slot in self.0.iter_mut().filter(|slot| slot.path == path) {
            (slot.drive, slot.fault) = (drive.clone(), fault.clone());
        }
    }

    /// True when nobody else holds any of the drives.
    fn all_let_go(&self) -> bool {
        self.0.iter().filter_map(|slot| slot.drive.as_ref()).all(|drive| Arc::strong_count(drive) == 1)
    }

    /// Lets go of all drives, remembering which had failed.
    fn release(&mut self, reason: &str) {
        for slot in &mut self.0 {
            if slot.drive.take().is_some_and(|drive| drive.is_failed()) {
                slot.fault = Some(reason.to_owned());
            }
        }
    }
}

impl Array {
    /// Opens the pool and keeps it open until [`Array::stop`] is called; then closes it, so that the next start
    /// has nothing to recover. Runs on a data thread.
    pub async fn run(self: Arc<Self>) {
        let mut retry = RETRY_FIRST;
        while !self.stopping.load(Ordering::Acquire) {
            let pause = match self.slot.get() {
                Ok(pool) => {
                    self.look_at(pool).await;
                    retry = RETRY_FIRST;
                    LOOK_EVERY
                }
                Err(before) => match self.open().await {
                    Ok(()) => LOOK_EVERY,
                    Err(reason) => {
                        self.stay_offline(&before, reason);
                        let pause = retry;
                        retry = (pause * 2).min(RETRY_EVERY);
                        pause
                    }
                },
            };
            let stopped = self.wake.until(|| self.stopping.load(Ordering::Acquire).then_some(()));
            select(self.world.sleep(pause), pin!(stopped)).await;
        }
        self.close().await;
    }

    /// Makes [`Array::run`] close the pool and return.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake.notify();
    }

    async fn look_at(self: &Arc<Self>, pool: Arc<Pool>) {
        match pool.state() {
            PoolState::Online => {
                let stats = pool.stats();
                self.watch_space(&stats);
                self.giving_back.lock().look(self.world.now(), &stats);
                self.keep_retention().await;
                if self.look_at_reserve(&pool, &stats) {
                    self.recover_reserve().await;
                }
                self.serve_schedules().await;
                self.tend_scrubs(&pool).await;
                self.tend_copies().await;
                self.save_events(&pool).await;
            }
            PoolState::Offline { reason } => {
                let text = format!("offline: {reason}; it is opened again when its drives are back");
                self.events.record(Severity::Critical, self.pool_name(), text);
                if let Err(error) = self.close_pool(pool, &reason).await {
                    tracing::debug!(%error, "the pool that failed did not close cleanly");
                }
            }
        }
    }

    fn stay_offline(&self, before: &str, reason: String) {
        if before != reason {
            let text = format!("cannot be opened: {reason}; this is tried again every few seconds");
            self.events.record(Severity::Critical, self.pool_name(), text);
            self.slot.clear(reason);
        }
        self.attempted.store(true, Ordering::Release);
    }

    async fn open(self: &Arc<Self>) -> Result<(), String> {
        let mut disks = Vec::new();
        let mut faults = Vec::new();
        for path in self.bay.paths() {
            match self.bay.open(&path) {
                Ok(disk) => {
                    self.drives.lock().set(&path, None, None);
                    disks.push((path, disk));
                }
                Err(fault) => {
                    self.drives.lock().set(&path, None, Some(fault.clone()));
                    faults.push(fault);
                }
            }
        }
        if !faults.is_empty() {
            return Err(faults.join("; "));
        }
        let drives = open_set(disks.iter().map(|(_, disk)| disk.clone()).collect())
            .await
            .map_err(|e| e.to_string())?;
        let strange = drives.iter().find(|drive| drive.label().pool != self.options.pool);
        if let Some(drive) = strange {
            let (name, other, own) = (drive.name(), drive.label().pool, self.options.pool);
            return Err(format!("drive {name} belongs to pool {other}, not to this array's, {own}"));
        }
        let pool = Pool::open(self.world.clone(), drives.clone(), self.options.pool_options.clone())
            .await
            .map_err(|e| e.to_string())?;
        if let Err(error) = self.restore(&pool).await {
            drop(pool.close().await);
            return Err(error);
        }
        for drive in drives {
            if let Some((path, _)) = disks.iter().find(|(_, disk)| disk.name() == drive.name()) {
                self.drives.lock().set(path, Some(drive), None);
            }
        }
        self.events.record(Severity::Info, self.pool_name(), "online");
        self.note_pause();
        // Before initiators are let in: what they see then does not change at once.
        self.watch_space(&pool.stats());
        self.attempted.store(true, Ordering::Release);
        self.tend_copies().await;
        self.save_events(&pool).await;
        self.trim_volumes();
        Ok(())
    }

    /// Takes over what the catalog says, and serves it.
    async fn restore(&self, pool: &Arc<Pool>) -> Result<(), String> {
        let _turn = self.changes.lock().await;
        self.events.restore(pool).map_err(|e| e.to_string())?;
        let access = Access::read(pool).map_err(|e| e.to_string())?;
        let exported = read_exports(pool).map_err(|e| e.to_string())?;
        let schedules = read_schedules(pool).map_err(|e| e.to_string())?;
        let reserve = read_reserve(pool).map_err(|e| e.to_string())?;
        self.volumes.restore(pool).map_err(|e| e.to_string())?;
        self.restore_scrubs(pool).map_err(|e| e.to_string())?;
        self.slot.fill(pool.clone());
        self.change_access(|current| *current = access);
        self.change_exports(|current| *current = exported);
        *self.schedules.lock() = schedules;
        *self.reserve.lock() = reserve;
        self.look_at_reserve(pool, &pool.stats());
        self.restored.store(true, Ordering::Release);
        Ok(())
    }

    async fn save_events(&self, pool: &Pool) {
        if !self.events.any_waiting() {
            return;
        }
        let _turn = self.changes.lock().await;
        let (tx, staged) = self.events.stage(Transaction::new(), None);
        match pool.commit(tx).await {
            Ok(()) => self.events.saved(staged),
            Err(error) => tracing::debug!(%error, "events wait to be saved"),
        }
    }

    async fn close(&self) {
        let Ok(pool) = self.slot.get() else { return };
        self.events.record(Severity::Info, "array", "stopped as asked");
        self.stop_retention().await;
        self.save_events(&pool).await;
        if let Err(error) = self.close_pool(pool, "the array stops").await {
            tracing::error!(%error, "the pool was not closed cleanly; the next start recovers it");
        }
    }

    /// Empties the slot, closes the pool, and waits until nobody holds its drives any more, so that they can be
    /// opened again.
    async fn close_pool(&self, pool: Arc<Pool>, reason: &str) -> Result<(), PoolError> {
        self.suspend_scrub(&pool).await;
        let _turn = self.changes.lock().await;
        self.slot.clear(reason);
        let closed = pool.close().await;
        drop(pool);
        for _ in 0..LET_GO_LOOKS {
            if self.drives.lock().all_let_go() {
                break;
            }
            self.world.sleep(LET_GO_LOOK_EVERY).await;
        }
        self.drives.lock().release(reason);
        closed
    }

    pub(crate) fn pool_name(&self) -> String {
        format!("pool {}", self.options.name)
    }
}
