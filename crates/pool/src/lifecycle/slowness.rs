//! Drives that answer late: what the layers above set about them.

use crate::{error::PoolError, lifecycle::pool::Pool};
use quoin_base::DriveIndex;
use quoin_stripe::{Column, HedgedReads, Hedging};
use quoin_world::Compiled;

/// What a drive is asked for to find out how fast it answers.
const ASKED_BYTES: usize = 4096;

impl Pool {
    /// Sets when reads of a drive are late and are made from the other drives too, and allows so many more reads for that.
    pub fn set_hedging(&self, hedging: Hedging) {
        self.store().columns().set_hedging(hedging);
    }

    /// Marks a drive as slow: segments are read from it only where there is no other way. Or takes the mark away.
    pub fn mark_slow(&self, drive: DriveIndex, slow: bool) {
        self.store().columns().mark_slow(drive, slow);
    }

    /// Whether a drive is marked as slow.
    pub fn is_slow(&self, drive: DriveIndex) -> bool {
        self.store().columns().is_marked_slow(drive)
    }

    /// What reading around late drives came to since the pool was opened.
    pub fn hedged_reads(&self) -> HedgedReads {
        self.store().columns().hedged_reads()
    }

    /// Reads something small from a drive, whatever it is, to find out how fast it answers. `place`, any number, says where: what
    /// was read before may be in a cache of the drive.
    ///
    /// # Errors
    /// [`PoolError::Drive`] if the drive fails to read it.
    pub fn ask_drive(&self, drive: DriveIndex, place: u64) -> Compiled<'_, Result<(), PoolError>> {
        Box::pin(async move {
            let slabs = self.store().columns().drive(drive)?.slabs();
            let slab = (place % u64::from(slabs.max(1))) as u32;
            self.store().read_slab(Column { drive, slab }, 0, ASKED_BYTES).await?;
            Ok(())
        })
    }
}
