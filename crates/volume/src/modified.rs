//! Snapshots that have changed since they were taken.
//!
//! Invariant: the catalog says that a snapshot is modified before the first change to it is acknowledged, whatever sort of
//! change it is and whenever the array stops. A write that then fails may leave the mark without a change.
//!
//! The mark is hardened before the writer enters the volume's gate. A task that closes a gate may hold the turn to
//! change volumes, for which a marking writer waits: a writer that marked inside could never leave.

use crate::{DeviceError, Volume};
use quoin_base::ByteRange;
use quoin_pool::Transaction;
use quoin_world::GatePass;
use std::sync::atomic::Ordering;

impl Volume {
    /// Admits a writer of this range. The first one to a snapshot marks it as modified.
    pub(crate) async fn enter_to_write(&self, range: ByteRange) -> Result<GatePass<'_>, DeviceError> {
        loop {
            self.require_mark(range).await?;
            let pass = self.enter(range).await?;
            // A refresh in between replaced its content by that of its source.
            if !self.pristine.load(Ordering::Acquire) {
                return Ok(pass);
            }
        }
    }

    /// The same for a writer that reads this range and writes it back: it holds the range exclusively.
    pub(crate) async fn enter_to_write_alone(&self, range: ByteRange) -> Result<GatePass<'_>, DeviceError> {
        loop {
            self.require_mark(range).await?;
            let pass = self.enter_alone(range).await?;
            if !self.pristine.load(Ordering::Acquire) {
                return Ok(pass);
            }
        }
    }

    /// Marks it before its first write. A write that is refused anyway leaves no mark.
    async fn require_mark(&self, range: ByteRange) -> Result<(), DeviceError> {
        if self.pristine.load(Ordering::Acquire) {
            self.writable_pool_for(range)?;
            self.mark_modified(range).await?;
        }
        Ok(())
    }

    async fn mark_modified(&self, range: ByteRange) -> Result<(), DeviceError> {
        let _turn = self.marking.changes.lock().await;
        if !self.pristine.load(Ordering::Acquire) {
            return Ok(());
        }
        let pool = self.writable_pool_for(range)?;
        let before = self.record();
        let mut record = before.clone();
        record.mark_modified(self.marking.world.wall_clock_ms());
        let marked = pool.commit(record.put(Transaction::new(), Some(&before))).await;
        marked.map_err(|error| self.device_error(range, error))?;
        self.update(&record);
        Ok(())
    }
}
