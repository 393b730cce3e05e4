//! The keeper of hosts and mappings, and of what the target shows with them.
//!
//! Invariants:
//! 1. After each change the target shows what the mappings say; if it cannot, it shows less, never more.
//! 2. A change has the turn to make changes.

use crate::{access::Access, catalog::Turn, permit::permit};
use parking_lot::{RwLock, RwLockReadGuard};
use quoin_target::{Lun, Target, TargetError};
use quoin_volume::{BlockDevice, Volume, Volumes};
use std::sync::Arc;

/// The keeper of hosts and mappings.
pub(crate) struct HostAccess {
    access: RwLock<Access>,
    target: Arc<Target<Volume>>,
}

impl HostAccess {
    /// No hosts, of a target that shows nothing yet.
    pub(crate) fn new(target: Arc<Target<Volume>>) -> Self {
        Self { access: RwLock::default(), target }
    }

    /// Hosts and mappings as they are.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Access> {
        self.access.read()
    }

    /// The target that shows them.
    pub(crate) fn target(&self) -> &Arc<Target<Volume>> {
        &self.target
    }

    /// Changes hosts and mappings, and what the target shows with them.
    pub(crate) fn change(&self, _: &Turn<'_>, volumes: &Volumes, change: impl FnOnce(&mut Access)) {
        change(&mut self.access.write());
        if let Err(error) = self.show(volumes) {
            // Both sides check the same rules, so this does not happen; if it did, less would be shown, never more.
            tracing::error!(%error, "the target does not show what the mappings say");
        }
    }

    /// Makes the target's hosts and units those of the mappings, touching only what differs.
    fn show(&self, volumes: &Volumes) -> Result<(), TargetError> {
        let access = self.read();
        let shown = self.target.hosts();
        for host in shown.iter().filter(|host| access.host(&host.name).is_err()) {
            self.target.remove_host(&host.name)?;
        }
        for host in access.hosts() {
            let before = shown.iter().find(|shown| shown.name == host.name);
            let credentials = match &host.chap {
                Some(chap) => match chap.credentials() {
                    Some(credentials) => Some(credentials),
                    // A secret that cannot be used locks the host out; it must not let it in.
                    None => {
                        tracing::error!(host = host.name, "the host's secret is none; it is not shown");
                        drop(self.target.remove_host(&host.name));
                        continue;
                    }
                },
                None => None,
            };
            let same = |before: &quoin_target::HostView| {
                before.initiators == host.initiators && before.credentials == credentials
            };
            if !before.is_some_and(same) {
                self.target.set_host(&host.name, &host.initiators, credentials)?;
            }
            let before = before.map(|before| before.mappings.as_slice()).unwrap_or_default();
            let wanted: Vec<_> = access
                .mappings_of_host(&host.name)
                .into_iter()
                .filter_map(|mapping| {
                    let access = permit(mapping.access());
                    Some((Lun::new(mapping.lun)?, volumes.by_id(mapping.volume)?, access))
                })
                .collect();
            for unit in before {
                if !wanted.iter().any(|(lun, volume, _)| *lun == unit.lun && volume.uuid() == unit.uuid) {
                    self.target.unmap(&host.name, unit.lun)?;
                }
            }
            for (lun, volume, access) in wanted {
                let shown = |unit: &quoin_target::Mapping| {
                    (unit.lun, unit.uuid, unit.access) == (lun, volume.uuid(), access)
                };
                if !before.iter().any(shown) {
                    self.target.map(&host.name, lun, volume, access)?;
                }
            }
        }
        Ok(())
    }
}
