//! Drives that become longer while the pool serves.

use crate::{
    error::PoolError,
    lifecycle::pool::Pool,
    meta::Domain,
    store::{DriveGrowth, DriveLen},
};
use quoin_base::DriveIndex;
use quoin_world::Compiled;
use std::collections::BTreeMap;

/// What growing drives comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Growth {
    /// Each of them.
    pub drives: Vec<DriveGrowth>,
    /// Space for host data, as it is.
    pub usable_before_bytes: u64,
    /// The same once they have grown, about, in the pool's layout.
    pub usable_after_bytes: u64,
}

impl Pool {
    /// What growing drives to these lengths would come to. Changes nothing, and does not look whether their files or devices are so
    /// long.
    ///
    /// # Errors
    /// [`PoolError::Refused`] with the drive and the reason, if one cannot grow so.
    pub fn growth(&self, wanted: &[DriveLen]) -> Result<Growth, PoolError> {
        let drives = self.store().growth_of(wanted)?;
        if let Some(refused) = self.store().too_much_growth(&drives) {
            return Err(refused);
        }
        let usable_before_bytes = self.stats().usable_bytes;
        let more = self.net_with(&drives).saturating_sub(self.net_with(&[]));
        let usable_after_bytes = usable_before_bytes + self.slices()[0].space.bytes_of(more);
        Ok(Growth { drives, usable_before_bytes, usable_after_bytes })
    }

    /// Has drives grow, one after the other, to lengths that their files or devices have by now, while the pool serves. On return the
    /// pool uses the new room of those that grew, which are returned, the first ones of those wanted. The first one that does not
    /// grow ends it, with the reason.
    ///
    /// # Errors
    /// Beside the drives that grew: [`PoolError::Refused`] with the reason, if one cannot grow so, and if it failed and the pool goes
    /// on without it. [`PoolError::Drive`] if the drive fails, [`PoolError::Offline`] if the pool is or goes offline. The drive may
    /// be longer then: growing it can be tried again.
    pub fn grow_drives<'a>(
        &'a self,
        wanted: &'a [DriveLen],
    ) -> Compiled<'a, (Vec<DriveGrowth>, Result<(), PoolError>)> {
        Box::pin(self.store().grow_drives(wanted))
    }

    /// The net slabs of all drives that hosts may fill, once these have grown.
    fn net_with(&self, grown: &[DriveGrowth]) -> u64 {
        let layouts = self.store().layouts();
        let new: BTreeMap<DriveIndex, u64> = grown
            .iter()
            .map(|one| (one.drive, u64::from(one.after.slabs.saturating_sub(one.before.slabs))))
            .collect();
        let mut by_domain: BTreeMap<Domain, u64> = BTreeMap::new();
        for (drive, slabs) in self.store().data_slabs() {
            if let Some(domain) = layouts.domain(drive) {
                *by_domain.entry(domain).or_default() += slabs + new.get(&drive).copied().unwrap_or(0);
            }
        }
        layouts.net_for_hosts(&by_domain)
    }
}
