//! Drives that are absent: how long they are waited for, and how they come back.

use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    lifecycle::pool::Pool,
};
use futures_util::future::join_all;
use quoin_base::{DriveIndex, MembersGeneration};
use quoin_drive::Drive;
use quoin_world::{Compiled, Disk};
use std::{sync::Arc, time::Duration};

/// Between two looks whether a loss is settled.
const SETTLE_EVERY: Duration = Duration::from_millis(1);
/// How often it is looked while slabs lack.
const SHORT_TRIES: u32 = 5;

/// Why a drive is not taken back while slabs lack.
const NO_SLABS: &str = "the pool is full without it, and what was written just before it went away must be destaged first: delete \
                        volumes or snapshots, or add a drive";

impl Pool {
    /// How long a drive that went away is waited for before what it holds is made again on the others.
    pub fn repair_delay(&self) -> Duration {
        self.store().repair_delay()
    }

    /// Sets how long that is, from now on also for drives that are away. Not kept when the pool is closed.
    pub fn set_repair_delay(&self, delay: Duration) {
        self.store().set_repair_delay(delay);
    }

    /// Gives up drives that were away for longer than the repair delay: what they hold is made again, and they come back no
    /// more. Returns which. To be called every second or so.
    ///
    /// # Errors
    /// [`PoolError::Offline`] if the pool is or goes offline.
    pub fn give_up_absent(&self) -> Compiled<'_, Result<Vec<DriveIndex>, PoolError>> {
        Box::pin(async move {
            let given_up = self.store().give_up_absent().await?;
            // Those that came back right before the pool was opened.
            if !self.store().returning().is_empty() {
                let _turn = self.store().turn_of_drives().await;
                self.settle_returned().await?;
            }
            Ok(given_up)
        })
    }

    /// Goes on without a drive that is away, as if an operation had found out: it is absent then. False if the pool goes on
    /// without it already.
    ///
    /// # Errors
    /// [`PoolError::Refused`] if anything would be lost: nothing changed then. [`PoolError::Offline`] if the pool is or
    /// goes offline.
    pub fn miss_drive(&self, drive: DriveIndex) -> Compiled<'_, Result<bool, PoolError>> {
        Box::pin(async move { self.store().miss_drive(drive).await })
    }

    /// Takes an absent drive back: it holds what it held, and what it missed is made again from the other drives. Returns its
    /// number.
    ///
    /// # Errors
    /// [`PoolError::Refused`] if the disk is not an absent drive of the pool, or has changed by itself; or if blocks that were
    /// written over in part wait for other drives: then this one is read from all the same, and [`Pool::finish_taking_back`] is
    /// to be called from time to time. [`PoolError::Drive`] if it fails: it is absent still, and may be tried again.
    /// [`PoolError::Offline`] if the pool is or goes offline.
    pub fn take_back(&self, disk: Arc<dyn Disk>) -> Compiled<'_, Result<DriveIndex, PoolError>> {
        Box::pin(async move {
            let store = self.store();
            let _turn = store.turn_of_drives().await;
            store.health().check()?;
            // Who it is, and that it writes for nobody else. The pool does not use it yet.
            let drive = store.open_absent(disk).await?;
            self.finish(drive).await
        })
    }

    /// Whether an absent drive is there again and read from, though it does not count yet.
    pub fn is_lent(&self, drive: DriveIndex) -> bool {
        self.store().is_lent(drive)
    }

    /// Goes on taking back a drive that [`Pool::take_back`] reads from already. `None`: there is no such drive, or it is away
    /// again.
    ///
    /// # Errors
    /// Those of [`Pool::take_back`].
    pub fn finish_taking_back(
        &self,
        drive: DriveIndex,
    ) -> Compiled<'_, Result<Option<DriveIndex>, PoolError>> {
        Box::pin(async move {
            let store = self.store();
            let _turn = store.turn_of_drives().await;
            store.health().check()?;
            match store.lent(drive).await {
                Some(drive) => self.finish(drive).await.map(Some),
                None => Ok(None),
            }
        })
    }

    async fn finish(&self, drive: Arc<Drive>) -> Result<DriveIndex, PoolError> {
        let (store, index) = (self.store(), drive.index());
        let lost_at = store
            .absent_at(index)
            .ok_or_else(|| PoolError::Refused(format!("drive {} is not absent any more", drive.name())))?;
        // NOTE: before it counts. What it lacks is marked durably then, whatever happens next.
        if !planted(Bug::ReturnBeforeFlags) {
            self.settle_loss(lost_at).await?;
        }
        store.take_back(drive).await?;
        // What it has counts for what is tolerated at once. What it missed is made again by the rebuild.
        self.settle_returned().await?;
        Ok(index)
    }

    /// Drives that are back count in full once nothing of the journal is needed that is on fewer drives because of them. If blocks
    /// wait for other drives, that is later: they are active all the same.
    async fn settle_returned(&self) -> Result<(), PoolError> {
        let returning = self.store().returning();
        if returning.is_empty() {
            return Ok(());
        }
        match self.settle_loss(MembersGeneration(0)).await {
            Ok(()) => self.store().settle_returned(&returning).await,
            Err(PoolError::Refused(why)) => {
                tracing::debug!(why, "drives that are back do not count in full so far");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Has checkpoints made until their roots know of a loss, and need nothing of the journal that began before it.
    async fn settle_loss(&self, lost_at: MembersGeneration) -> Result<(), PoolError> {
        let settle = self.slices().iter().map(async |slice| {
            let set_from = slice.log.journal.set_from();
            // Two checkpoints will do: one for the marks, one for the journal.
            let mut short_for = 0;
            loop {
                let root = slice.metadata.root();
                if root.members.get() >= lost_at.0 && root.first_extent.get() >= set_from {
                    return Ok(());
                }
                // Lanes leave what began before, which comes free when it is destaged.
                match slice.drain().await {
                    // What there is no slab for is carried forward, if it can be.
                    Err(PoolError::NoSpace) if short_for < SHORT_TRIES => short_for += 1,
                    Err(PoolError::NoSpace) => return Err(PoolError::Refused(NO_SLABS.to_owned())),
                    drained => drained?,
                }
                let unread = slice.counters.progress.unread_blocks();
                if unread > 0 {
                    return Err(PoolError::Refused(format!(
                        "{unread} blocks wait for other drives to be back: what they were written over in part is there"
                    )));
                }
                slice.world().sleep(SETTLE_EVERY).await;
                slice.checkpoint().await?;
            }
        });
        self.store().unless_held_up(async { join_all(settle).await.into_iter().collect() }).await
    }
}
