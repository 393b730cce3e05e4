//! Mappings: which host sees which volume, and as which LUN.

use crate::{
    Array, ArrayError, MappingError,
    events::Told,
    guard::require_unused,
    permit::{chosen_access, told},
    record::{MAPPING_OBJECT, MappingRecord, encode, mapping_key, without_mappings},
    words::shortened,
};
use quoin_api as api;
use quoin_base::VolumeId;
use quoin_pool::Transaction;
use quoin_volume::BlockDevice;

impl Array {
    /// Shows a volume to a host.
    ///
    /// # Errors
    /// `NotFound` if the volume or the host does not exist; [`MappingError`] if the host has the volume
    /// already or the LUN is taken; `ReadOnlyAndWritable` for both flags. `Offline` or `Pool` if the pool
    /// cannot commit the change.
    pub async fn map(&self, request: api::MappingCreate) -> Result<api::Mapping, ArrayError> {
        let turn = self.catalog().turn().await;
        let volume = self.volume(&request.volume)?;
        let named = |id| self.volume_name(id);
        let api::MappingCreate { host, lun, read_only, writable, .. } = &request;
        let access =
            chosen_access("volume not mapped", format!("volume {}", request.volume), *read_only, *writable)?;
        let mapping = self.hosts().read().plan_mapping(volume.id(), host, *lun, named)?.with_access(access);
        let key = mapping_key(&mapping.host, mapping.lun);
        let tx = Transaction::new().put(MAPPING_OBJECT, &key, encode(&mapping));
        let how = match access {
            api::Access::Default => String::new(),
            access => format!(", {}", told(access)),
        };
        let text = format!("mapped to host {} as LUN {}{how}", mapping.host, mapping.lun);
        let own = Told::new(format!("volume {}", request.volume), text)
            .answered_with(format!("mapping {}/{}", mapping.host, request.volume))
            .with("host", &mapping.host)
            .with("lun", mapping.lun)
            .with("access", access);
        self.commit_told(&turn, tx, own).await?;
        let view = self.mapping_view(&mapping);
        self.hosts().change(&turn, self.volumes(), |access| access.add_mapping(mapping));
        Ok(view)
    }

    /// Changes what a host may do with a volume that it sees. Its sessions continue, and are notified.
    ///
    /// # Errors
    /// `NotFound` if the volume, the host or the mapping does not exist; `InUse` while clients may write that
    /// could not any more, without `force`. `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn set_mapping(
        &self,
        host: &str,
        volume: &str,
        update: api::AccessUpdate,
    ) -> Result<api::Mapping, ArrayError> {
        let turn = self.catalog().turn().await;
        let before = self.mapping(host, volume)?;
        let mapping = before.clone().with_access(update.access);
        if mapping == before {
            return Ok(self.mapping_view(&mapping));
        }
        let device = self.volume(volume)?;
        let is_read_only = |mapping: &MappingRecord| self.is_read_only_with(&device, mapping.access());
        let writers = if is_read_only(&mapping) && !is_read_only(&before) {
            self.users_through(&before)
        } else {
            Vec::new()
        };
        let title = "mapping not made read-only";
        let forced = require_unused(title, format!("volume {volume}"), writers, update.force)?;
        let key = mapping_key(&mapping.host, mapping.lun);
        let tx = Transaction::new().put(MAPPING_OBJECT, &key, encode(&mapping));
        let (was, is) = (told(before.access()), told(mapping.access()));
        let text = format!("access of host {} changed from {was} to {is}{forced}", mapping.host);
        let own = Told::new(format!("volume {volume}"), shortened(&text)).change(
            "access",
            before.access(),
            mapping.access(),
        );
        self.commit_told(&turn, tx, own).await?;
        let view = self.mapping_view(&mapping);
        self.hosts().change(&turn, self.volumes(), |access| access.add_mapping(mapping));
        Ok(view)
    }

    /// Takes a volume away from a host; if the host is logged in, only by force.
    ///
    /// # Errors
    /// `NotFound` if the volume, the host or the mapping does not exist; `InUse` while the host is logged in,
    /// without `force`. `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn unmap(&self, host: &str, volume: &str, force: bool) -> Result<(), ArrayError> {
        let turn = self.catalog().turn().await;
        let mapping = self.mapping(host, volume)?;
        let users = self.users_through(&mapping);
        let forced = require_unused("volume not unmapped", format!("volume {volume}"), users, force)?;
        let tx = without_mappings(std::slice::from_ref(&mapping));
        let text = format!("unmapped from host {}, where it was LUN {}{forced}", mapping.host, mapping.lun);
        let own = Told::new(format!("volume {volume}"), shortened(&text))
            .without("host", &mapping.host)
            .without("lun", mapping.lun)
            .without("access", mapping.access());
        self.commit_told(&turn, tx, own).await?;
        self.hosts().change(&turn, self.volumes(), |access| access.remove_mapping(&mapping));
        Ok(())
    }

    /// All mappings, by host and LUN.
    ///
    /// # Errors
    /// `Offline` while the pool has not been open since the array started.
    pub fn list_mappings(&self) -> Result<Vec<api::Mapping>, ArrayError> {
        self.require_catalog()?;
        let mappings: Vec<_> = self.hosts().read().mappings().collect();
        Ok(mappings.iter().map(|mapping| self.mapping_view(mapping)).collect())
    }

    /// The mapping of a volume to a host.
    fn mapping(&self, host: &str, volume: &str) -> Result<MappingRecord, ArrayError> {
        let id = self.volume(volume)?.id();
        let access = self.hosts().read();
        let host = access.host(host)?.name.clone();
        let found = access.mappings_of_host(&host).into_iter().find(|mapping| mapping.volume == id);
        found.ok_or_else(|| MappingError::NotFound { volume: volume.to_owned(), host }.into())
    }

    pub(crate) fn volume_name(&self, id: VolumeId) -> String {
        self.volumes().by_id(id).map_or_else(|| format!("(id {id})"), |volume| volume.name())
    }

    fn mapping_view(&self, mapping: &MappingRecord) -> api::Mapping {
        let (volume, access) = (self.volume_name(mapping.volume), mapping.access());
        let device = self.volumes().by_id(mapping.volume);
        let read_only = device.is_some_and(|device| self.is_read_only_with(&device, access));
        api::Mapping { volume, host: mapping.host.clone(), lun: mapping.lun, read_only, access }
    }
}
