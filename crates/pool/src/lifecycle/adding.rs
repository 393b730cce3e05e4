//! Drives that are added to an open pool.

use crate::{
    error::PoolError,
    lifecycle::{create::random_uuid, pool::Pool},
};
use quoin_base::{DriveId, DriveIndex};
use quoin_drive::Roles;
use quoin_world::{Compiled, Disk, World};
use std::sync::Arc;

impl Pool {
    /// Adds a drive for data, in the fault domain of this name, while the pool serves: empty, it is a domain of its own.
    /// Returns its number. What is on the disk is overwritten: the caller has
    /// made sure that nobody needs it. No later opening does without the drive.
    ///
    /// If it fails and the pool is offline then, or if its future is dropped, the pool may have the drive or not. Keep it
    /// attached and open the pool with it: an opening leaves the drive out if it is no member, and says so. Where the pool is
    /// online, a disk that could not be added may be given again once all operations that it was asked for have ended.
    ///
    /// # Errors
    /// [`PoolError::Refused`] if the pool has the disk already, has had too many drives, or the size does not
    /// fit: the disk is unchanged then. [`PoolError::Drive`] if the disk fails, [`PoolError::Offline`] if the
    /// pool does.
    pub fn add_drive<'a>(
        &'a self,
        world: &'a dyn World,
        disk: Arc<dyn Disk>,
        domain: String,
    ) -> Compiled<'a, Result<DriveIndex, PoolError>> {
        let id = DriveId(random_uuid(world));
        let roles = Roles { journal: false, data: true };
        Box::pin(
            async move { self.store().add_drive(disk, domain, roles, (id, world.wall_clock_ms())).await },
        )
    }

    /// Adds a drive as [`Pool::add_drive`] does, for the journal, for data, or for both. Lanes of the journal begin extents on
    /// it as soon as it is a member, and extents have as many columns again as drives allow.
    ///
    /// # Errors
    /// Those of [`Pool::add_drive`]; [`PoolError::Refused`] too if it has neither role, or no room for its part of the journal.
    pub fn add_drive_for<'a>(
        &'a self,
        world: &'a dyn World,
        disk: Arc<dyn Disk>,
        domain: String,
        roles: Roles,
    ) -> Compiled<'a, Result<DriveIndex, PoolError>> {
        let id = DriveId(random_uuid(world));
        Box::pin(async move {
            if !roles.journal && !roles.data {
                return Err(PoolError::Refused("a drive is for the journal, for data, or for both".into()));
            }
            self.store().add_drive(disk, domain, roles, (id, world.wall_clock_ms())).await
        })
    }

    /// Whether new parts of the journal lie on fewer drives than failures are to be tolerated and one more.
    pub fn journal_lacks_columns(&self) -> bool {
        self.store().journal_lacks_columns()
    }
}
