//! Drives that fail to read: whether what they cannot read is damaged for good.

use super::{Store, TRIES};
use crate::{error::PoolError, format::PAGE_BYTES};
use quoin_base::SliceId;
use quoin_drive::{Drive, DriveError};
use quoin_stripe::StripeError;
use quoin_world::DiskError;
use std::sync::Arc;

/// Drives that fail to read.
impl Store {
    /// Whether what failed is damaged: its content is not what it should be, or cannot be read.
    pub(crate) async fn is_damage(&self, error: &PoolError) -> bool {
        matches!(error, PoolError::Corrupt { .. }) || self.is_unreadable(error).await
    }

    /// Whether what failed will not be read by trying again, while its drive reads other places: then it is damaged. A
    /// drive that reads nothing is away, and may come back with all it holds.
    pub(crate) async fn is_unreadable(&self, error: &PoolError) -> bool {
        let (PoolError::Drive(error) | PoolError::Stripe(StripeError::Drive(error))) = error else {
            return false;
        };
        let DriveError::Disk(DiskError::Io { disk, operation: "read", offset, .. }) = error else {
            return false;
        };
        let Some(drive) = self.drive_named(disk) else {
            return false;
        };
        let slab_bytes = u64::from(self.slab_bytes());
        let Some(at) = offset.checked_sub(drive.label().slabs_start_bytes) else { return false };
        let (slab, at) = ((at / slab_bytes) as u32, at % slab_bytes);
        for _ in 0..TRIES {
            if drive.read_slab(slab, at, PAGE_BYTES).await.is_ok() {
                return false;
            }
        }
        reads_otherwise(drive).await
    }

    /// Whether every drive reads what it certainly holds.
    pub(crate) async fn every_drive_reads(&self) -> bool {
        for drive in self.needed_drives() {
            if !reads_otherwise(drive).await {
                return false;
            }
        }
        true
    }
}

/// Whether a drive reads what it certainly holds.
pub(super) async fn reads_otherwise(drive: &Arc<Drive>) -> bool {
    drive.read_roots(SliceId(0)).await.iter().all(Result::is_ok)
}
