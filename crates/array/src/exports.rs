//! The target shows what the mappings say.

use crate::{Array, access::Access, permit::permit};
use quoin_api as api;
use quoin_target::{Lun, TargetError};
use quoin_volume::BlockDevice;

impl Array {
    /// Who is logged in, by initiator.
    pub fn list_sessions(&self) -> Vec<api::Session> {
        let view = |session: quoin_target::SessionView| api::Session {
            initiator: session.initiator,
            host: session.host,
            peer: session.address,
            since_ms: session.since_ms,
        };
        self.target.sessions().into_iter().map(view).collect()
    }

    /// Changes hosts and mappings, and what the target shows with them. Called with `changes` held.
    pub(crate) fn change_access(&self, change: impl FnOnce(&mut Access)) {
        change(&mut self.access.lock());
        if let Err(error) = self.export() {
            // Both sides check the same rules, so this does not happen; if it did, less would be shown, never more.
            tracing::error!(%error, "the target does not show what the mappings say");
        }
    }

    /// Makes the target's hosts and units those of the mappings, touching only what differs.
    fn export(&self) -> Result<(), TargetError> {
        let access = self.access.lock();
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
                    Some((Lun::new(mapping.lun)?, self.volumes.by_id(mapping.volume)?, access))
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
