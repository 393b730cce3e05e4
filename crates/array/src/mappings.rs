//! Mappings: which host sees which volume, and as which LUN.

use crate::{
    Array, ArrayError,
    record::{MAPPING_OBJECT, MappingRecord, encode, mapping_key},
};
use quoin_api as api;
use quoin_base::VolumeId;
use quoin_pool::Transaction;
use quoin_volume::BlockDevice;

impl Array {
    /// Shows a volume to a host.
    pub async fn map(&self, request: api::MappingCreate) -> Result<api::Mapping, ArrayError> {
        let _turn = self.changes.lock().await;
        let volume = self.volume(&request.volume)?;
        let named = |id| self.volume_name(id);
        let api::MappingCreate { host, lun, read_only, .. } = &request;
        let mapping = self.access.lock().plan_mapping(volume.id(), host, *lun, *read_only, named)?;
        let key = mapping_key(&mapping.host, mapping.lun);
        let tx = Transaction::new().put(MAPPING_OBJECT, &key, encode(&mapping));
        let how = if mapping.read_only { ", for reading only" } else { "" };
        let text = format!("mapped to host {} as LUN {}{how}", mapping.host, mapping.lun);
        self.commit(tx, format!("volume {}", request.volume), text).await?;
        let view = self.mapping_view(&mapping);
        self.change_access(|access| access.add_mapping(mapping));
        Ok(view)
    }

    /// Takes a volume away from a host.
    pub async fn unmap(&self, host: &str, volume: &str) -> Result<(), ArrayError> {
        let _turn = self.changes.lock().await;
        let id = self.volume(volume)?.id();
        let mapping = {
            let access = self.access.lock();
            let host = access.host(host)?.name.clone();
            let theirs = access.mappings_of_host(&host).into_iter().find(|mapping| mapping.volume == id);
            theirs.ok_or_else(|| ArrayError::NotMapped { volume: volume.to_owned(), host })?
        };
        let tx = without(std::slice::from_ref(&mapping));
        let text = format!("unmapped from host {}, where it was LUN {}", mapping.host, mapping.lun);
        self.commit(tx, format!("volume {volume}"), text).await?;
        self.change_access(|access| access.remove_mapping(&mapping));
        Ok(())
    }

    /// All mappings, by host and LUN.
    pub fn list_mappings(&self) -> Result<Vec<api::Mapping>, ArrayError> {
        self.require_catalog()?;
        let mappings: Vec<_> = self.access.lock().mappings().collect();
        Ok(mappings.iter().map(|mapping| self.mapping_view(mapping)).collect())
    }

    pub(crate) fn volume_name(&self, id: VolumeId) -> String {
        self.volumes.by_id(id).map_or_else(|| format!("(id {id})"), |volume| volume.name())
    }

    fn mapping_view(&self, mapping: &MappingRecord) -> api::Mapping {
        let volume = self.volume_name(mapping.volume);
        api::Mapping { volume, host: mapping.host.clone(), lun: mapping.lun, read_only: mapping.read_only }
    }
}

/// The transaction that removes these mappings.
pub(crate) fn without(mappings: &[MappingRecord]) -> Transaction {
    mappings.iter().fold(Transaction::new(), |tx, mapping| {
        tx.delete(MAPPING_OBJECT, &mapping_key(&mapping.host, mapping.lun))
    })
}
