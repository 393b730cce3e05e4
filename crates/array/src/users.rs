//! Who is logged in and uses what: sessions by mapping, clients by export.

use crate::{Array, ArrayError, guard::require_unused, record::MappingRecord};
use quoin_api as api;
use quoin_base::VolumeId;
use quoin_target::SessionView;
use quoin_volume::{BlockDevice, Volume};
use std::sync::Arc;

impl Array {
    /// Who is logged in and sees a volume.
    pub(crate) fn users_of(&self, volume: &Volume) -> Vec<String> {
        self.users_who(volume, |_| true)
    }

    /// Who is logged in and may write to a volume, as things are now.
    pub(crate) fn writers_of(&self, volume: &Volume) -> Vec<String> {
        self.users_who(volume, |access| !self.is_read_only_with(volume, access))
    }

    /// Who is logged in and could no longer write to a volume if it were read-only by default.
    pub(crate) fn writers_by_default(&self, volume: &Volume) -> Vec<String> {
        self.users_who(volume, |access| {
            access == api::Access::Default && !self.is_read_only_with(volume, access)
        })
    }

    /// Refuses to take their writers from volumes.
    pub(crate) fn require_no_writers(
        &self,
        title: &'static str,
        volumes: &[Arc<Volume>],
        force: bool,
    ) -> Result<String, ArrayError> {
        let writers = volumes.iter().flat_map(|volume| self.writers_of(volume)).collect();
        require_unused(title, which(volumes), writers, force)
    }

    /// Refuses to change or remove volumes that connected hosts or clients see.
    pub(crate) fn require_no_users(
        &self,
        title: &'static str,
        volumes: &[Arc<Volume>],
        force: bool,
    ) -> Result<String, ArrayError> {
        let users = volumes.iter().flat_map(|volume| self.users_of(volume)).collect();
        require_unused(title, which(volumes), users, force)
    }

    /// Whether this access to a volume does not allow writing to it.
    pub(crate) fn is_read_only_with(&self, volume: &Volume, access: api::Access) -> bool {
        match access {
            api::Access::ReadOnly => true,
            api::Access::ReadWrite => volume.is_read_only(),
            api::Access::Default => volume.is_read_only() || volume.is_read_only_by_default(),
        }
    }

    /// Who is logged in through a mapping.
    pub(crate) fn users_through(&self, mapping: &MappingRecord) -> Vec<String> {
        let sessions = self.target().sessions();
        let theirs = sessions.iter().filter(|session| session.host.as_ref() == Some(&mapping.host));
        theirs.map(|session| self.seen(mapping, session)).collect()
    }

    /// Those of these initiators that are logged in while their host, of these mappings, sees volumes.
    pub(crate) fn users_as(&self, initiators: &[String], mappings: &[MappingRecord]) -> Vec<String> {
        let sessions = self.target().sessions();
        let theirs: Vec<_> =
            sessions.iter().filter(|session| initiators.contains(&session.initiator)).collect();
        let seen = |mapping| theirs.iter().map(move |session| self.seen(mapping, session));
        mappings.iter().flat_map(seen).collect()
    }

    /// Who is connected to an export.
    pub(crate) fn clients_of(&self, export: &str) -> Vec<String> {
        let clients = self.export_list().clients_of(export);
        clients.iter().map(|client| format!("NBD client {} of export {export}", client.address)).collect()
    }

    fn users_who(&self, volume: &Volume, may: impl Fn(api::Access) -> bool) -> Vec<String> {
        let mappings = self.hosts().read().mappings_of_volume(volume.id());
        let mappings = mappings.iter().filter(|mapping| may(mapping.access()));
        let mut users: Vec<_> = mappings.flat_map(|mapping| self.users_through(mapping)).collect();
        for name in self.export_list().names_of(volume.id()) {
            if self.export_list().access_of(&name).is_some_and(&may) {
                users.extend(self.clients_of(&name));
            }
        }
        users
    }

    fn seen(&self, mapping: &MappingRecord, session: &SessionView) -> String {
        let MappingRecord { host, lun, volume, .. } = mapping;
        let volume: VolumeId = *volume;
        let SessionView { initiator, address, .. } = session;
        let name = self.volume_name(volume);
        format!("host {host} sees {name} as LUN {lun}, logged in as {initiator} from {address}")
    }
}

fn which(volumes: &[Arc<Volume>]) -> String {
    let names: Vec<_> = volumes.iter().map(|volume| volume.name()).collect();
    format!("volume {}", names.join(", "))
}
