//! The keeper of hosts and mappings, and of what the target shows with them.
//!
//! Invariants:
//! 1. After each change the target shows what the mappings say; if it cannot, it shows less, never more.
//! 2. A change has the turn to make changes.

use crate::{
    access::Access,
    catalog::Turn,
    permit::permit,
    record::{HostRecord, MappingRecord},
};
use parking_lot::{RwLock, RwLockReadGuard};
use quoin_target::{HostView, Lun, Target, TargetError};
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
        self.show(volumes);
    }

    /// Makes the target's hosts and units those of the mappings, touching only what differs. Goes on after an error.
    fn show(&self, volumes: &Volumes) {
        // Both sides check the same rules, so this does not happen; if it does, less is shown, never more.
        let note = |host: &str, outcome: Result<(), TargetError>| {
            if let Err(error) = &outcome {
                tracing::error!(host, %error, "the target does not show what the mappings say");
            }
            outcome.is_ok()
        };
        let access = self.read();
        let shown = self.target.hosts();
        // NOTE: removals first, so that nothing that fails later leaves more than the mappings say.
        for host in &shown {
            if access.host(&host.name).is_err() {
                note(&host.name, self.target.remove_host(&host.name));
                continue;
            }
            let wanted = wanted(&access, volumes, &host.name);
            for unit in &host.mappings {
                if !wanted.iter().any(|(lun, volume, _)| *lun == unit.lun && volume.uuid() == unit.uuid) {
                    note(&host.name, self.target.unmap(&host.name, unit.lun));
                }
            }
        }
        for host in access.hosts() {
            let before = shown.iter().find(|shown| shown.name == host.name);
            let units = wanted(&access, volumes, &host.name);
            if !note(&host.name, self.show_host(host, before, units)) {
                // It may be shown to initiators that are not its own.
                drop(self.target.remove_host(&host.name));
            }
        }
    }

    /// Makes one of the target's hosts what it should be, given as what it was shown `before`.
    fn show_host(
        &self,
        host: &HostRecord,
        before: Option<&HostView>,
        units: Vec<Unit>,
    ) -> Result<(), TargetError> {
        let credentials = match &host.chap {
            Some(chap) => match chap.credentials() {
                Some(credentials) => Some(credentials),
                // A secret that cannot be used locks the host out; it must not let it in.
                None => {
                    tracing::error!(host = host.name, "the host's secret is none; it is not shown");
                    drop(self.target.remove_host(&host.name));
                    return Ok(());
                }
            },
            None => None,
        };
        let same =
            |before: &HostView| before.initiators == host.initiators && before.credentials == credentials;
        if !before.is_some_and(same) {
            self.target.set_host(&host.name, &host.initiators, credentials)?;
        }
        let before = before.map(|before| before.mappings.as_slice()).unwrap_or_default();
        for (lun, volume, access) in units {
            let shown = |unit: &quoin_target::Mapping| {
                (unit.lun, unit.uuid, unit.access) == (lun, volume.uuid(), access)
            };
            if !before.iter().any(shown) {
                self.target.map(&host.name, lun, volume, access)?;
            }
        }
        Ok(())
    }
}

/// A unit that a host shall see.
type Unit = (Lun, Arc<Volume>, quoin_target::Access);

/// What a host shall see.
fn wanted(access: &Access, volumes: &Volumes, host: &str) -> Vec<Unit> {
    let mappings = access.mappings_of_host(host).into_iter();
    let unit = |mapping: MappingRecord| {
        Some((Lun::new(mapping.lun)?, volumes.by_id(mapping.volume)?, permit(mapping.access())))
    };
    mappings.filter_map(unit).collect()
}
