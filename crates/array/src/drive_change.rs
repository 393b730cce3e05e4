//! Drives that are added, and taken out by hand.

use crate::{Array, ArrayError, DriveChangeError, events::Told};
use quoin_api::{self as api, Severity};
use quoin_drive::{MemberState, Probe, Roles, probe};
use quoin_pool::{Pool, PoolError};
use std::sync::Arc;

impl Array {
    /// Takes a drive out for good, as if it had failed. `given` is its path or the end of it.
    ///
    /// # Errors
    /// [`DriveChangeError`] if no one drive is meant, if the pool does not have it, or if data would be lost;
    /// [`ArrayError::Pool`] if the pool is not open or goes offline.
    pub async fn fail_drive(&self, given: &str) -> Result<api::Drive, ArrayError> {
        let path = self.drives().path_of(given)?;
        let pool = self.pool()?;
        let number = self.drives().number_of(&path);
        let Some(index) = number.filter(|index| pool.members().get(*index).is_some()) else {
            return Err(DriveChangeError::NotInPool { drive: path }.into());
        };
        // NOTE: noted as reported before it is out: the event of this change is the one that tells.
        let failed = pool.fail_drive(index).await.map_err(|error| match error {
            PoolError::Refused(why) => {
                ArrayError::from(DriveChangeError::Needed { drive: path.clone(), why })
            }
            error => error.into(),
        })?;
        if failed {
            self.drives().note_given_up(index);
            let text = format!("was taken out, and the pool goes on without it: {}", self.left_text(&pool));
            let told = Told::new(format!("drive {path}"), text).change("state", "active", "failed");
            self.log().record_told(Severity::Warning, told);
        }
        self.show_drive(&path)
    }

    /// What the pool tolerates now, for events.
    pub(crate) fn left_text(&self, pool: &Pool) -> String {
        let found = pool.protection();
        let more = match found.tolerates {
            0 => "no further failure is tolerated".to_owned(),
            1 => "1 further failure is tolerated".to_owned(),
            count => format!("{count} further failures are tolerated"),
        };
        let lacking = match found.degraded_segments {
            0 => more,
            segments => {
                format!("{more}, and {segments} segments with {} bytes lack a column", found.degraded_bytes)
            }
        };
        match found.unreadable_bytes {
            0 => lacking,
            bytes => format!(
                "{lacking}; up to {bytes} bytes cannot be read until drives are back, and hosts get medium errors there"
            ),
        }
    }

    /// Takes out drives that do not answer and that the pool can do without, though nothing is written to them.
    pub(crate) async fn give_up_silent(&self, pool: &Arc<Pool>) {
        for index in self.drives().silent() {
            let is_active =
                pool.members().get(index).is_some_and(|member| member.state == MemberState::Active);
            if is_active && let Err(error) = pool.miss_drive(index).await {
                tracing::debug!(%error, "a drive that does not answer is still needed");
            }
        }
    }

    /// Adds a drive for data, the journal or both while the array serves, and to the configuration.
    ///
    /// # Errors
    /// [`DriveChangeError`] if there is such a drive already, or it cannot be used; [`ArrayError::Pool`] if the
    /// pool is not open, or refuses or fails.
    pub async fn add_drive(&self, request: api::DriveAdd) -> Result<api::Drive, ArrayError> {
        let api::DriveAdd { path, domain, role, force } = request;
        let refused = |why: String| ArrayError::from(DriveChangeError::NotAdded { drive: path.clone(), why });
        if !path.starts_with('/') {
            return Err(refused("its path is not absolute".into()));
        }
        if self.drives().each(|slot| slot.path() == path).contains(&true) {
            return Err(DriveChangeError::Exists { drive: path }.into());
        }
        let pool = self.pool()?;
        let roles = match role {
            Some(api::DriveRole::Journal) => Roles { journal: true, data: false },
            Some(api::DriveRole::Data) => Roles { journal: false, data: true },
            Some(api::DriveRole::Both) => Roles { journal: true, data: true },
            None => Roles { journal: pool.journal_lacks_columns() || has_lost_of_journal(&pool), data: true },
        };
        let slot = self.drives().add_slot(&path);
        let mut added = self.add_opened(&pool, slot, &path, (domain.clone(), roles, force)).await;
        // One that has no room for a part of the journal serves for data all the same.
        if added.is_err() && role.is_none() && !pool.journal_lacks_columns() && roles.journal {
            let for_data = Roles { journal: false, ..roles };
            added = self.add_opened(&pool, slot, &path, (domain, for_data, force)).await;
        }
        let index = match added {
            Ok(index) => index,
            Err(error) => {
                self.drives().remove_slot(slot);
                return Err(error);
            }
        };
        self.drives().take_in(slot, index, pool.drive(index));
        let what = match (roles.journal, roles.data) {
            (true, true) => "data and the journal",
            (true, false) => "the journal",
            _ => "data",
        };
        let text = format!("added as number {index}, for {what}: {}", self.left_text(&pool));
        let told = Told::new(format!("drive {path}"), text).with("state", "active");
        self.log().record_told(Severity::Info, told);
        self.show_drive(&path)
    }

    async fn add_opened(
        &self,
        pool: &Arc<Pool>,
        slot: usize,
        path: &str,
        (domain, roles, force): (Option<String>, Roles, bool),
    ) -> Result<quoin_base::DriveIndex, ArrayError> {
        let refused =
            |why: String| ArrayError::from(DriveChangeError::NotAdded { drive: path.to_owned(), why });
        let disk = self.open_disk(slot, path).await.map_err(|fault| refused(fault.reason))?;
        match probe(&disk).await.map_err(|error| refused(error.to_string()))? {
            Probe::Blank => {}
            Probe::Foreign(_) if force => {}
            // One that this pool once had, and goes on without.
            Probe::Quoin(label)
                if force
                    && label.pool == pool.id()
                    && !pool.members().all.iter().any(|m| m.drive == label.drive && m.is_needed()) => {}
            Probe::Foreign(what) => {
                return Err(DriveChangeError::Holds { drive: path.to_owned(), what }.into());
            }
            Probe::Quoin(label) => {
                let what =
                    format!("drive {} of the Quoin pool {} ({})", label.index, label.pool_name, label.pool);
                return Err(DriveChangeError::Holds { drive: path.to_owned(), what }.into());
            }
        }
        let bay = self.drives().bay();
        let domain = domain.or_else(|| bay.domain(path)).unwrap_or_default();
        // NOTE: in the configuration first: once the pool has the drive, no opening does without it.
        bay.add(path).map_err(refused)?;
        match pool.add_drive_for(&**self.world(), disk, domain, roles).await {
            Ok(index) => Ok(index),
            Err(PoolError::Refused(why)) => {
                bay.remove(path);
                Err(refused(why))
            }
            Err(error) => {
                if matches!(pool.state(), quoin_pool::PoolState::Online) {
                    bay.remove(path);
                }
                Err(error.into())
            }
        }
    }
}

/// Whether a drive of the journal failed that is still in the table.
fn has_lost_of_journal(pool: &Pool) -> bool {
    pool.members().all.iter().any(|member| member.state == MemberState::Failed && member.roles.journal)
}
