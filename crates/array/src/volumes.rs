//! Volumes, as management sees them.

use crate::{Array, ArrayError, ExportError, mappings::without, nbd::without_exports};
use quoin_api as api;
use quoin_pool::Transaction;
use quoin_volume::{BlockDevice, Volume, VolumeSpec};
use std::sync::Arc;

impl Array {
    /// Creates a volume.
    pub async fn create_volume(&self, request: api::VolumeCreate) -> Result<api::Volume, ArrayError> {
        let _turn = self.changes.lock().await;
        let api::VolumeCreate { name, size_bytes, block_bytes } = request;
        let spec = VolumeSpec { name, size_bytes, block_bytes };
        let text = format!("created, {size_bytes} bytes in blocks of {block_bytes}");
        let own = (format!("volume {}", spec.name), text);
        let (tx, staged) = self.events.stage(Transaction::new(), Some(own));
        let volume = self.volumes.create(spec, tx).await?;
        self.events.saved(staged);
        Ok(self.volume_view(&volume))
    }

    /// All volumes, oldest first.
    pub fn list_volumes(&self) -> Result<Vec<api::Volume>, ArrayError> {
        self.require_catalog()?;
        Ok(self.volumes.list().iter().map(|volume| self.volume_view(volume)).collect())
    }

    /// The volume of this name, to serve.
    pub fn volume(&self, name: &str) -> Result<Arc<Volume>, ArrayError> {
        self.require_catalog()?;
        Ok(self.volumes.get(name)?)
    }

    /// One volume.
    pub fn show_volume(&self, name: &str) -> Result<api::Volume, ArrayError> {
        Ok(self.volume_view(&*self.volume(name)?))
    }

    /// Deletes a volume; if hosts see it, only when `unmap` says that they shall lose it.
    pub async fn delete_volume(&self, name: &str, unmap: bool) -> Result<(), ArrayError> {
        let _turn = self.changes.lock().await;
        let volume = self.volume(name)?;
        let mappings = self.access.lock().mappings_of_volume(volume.id());
        if !mappings.is_empty() && !unmap {
            let hosts = mappings.into_iter().map(|mapping| mapping.host).collect();
            return Err(ArrayError::VolumeMapped { volume: name.to_owned(), hosts });
        }
        let exports = self.exports_of(volume.id());
        if !exports.is_empty() && !unmap {
            return Err(ExportError::VolumeExported { volume: name.to_owned(), exports }.into());
        }
        let own = (format!("volume {name}"), "deleted".to_owned());
        let (tx, staged) = self.events.stage(without_exports(without(&mappings), &exports), Some(own));
        self.volumes.delete(name, tx).await?;
        self.events.saved(staged);
        self.change_access(|access| mappings.iter().for_each(|mapping| access.remove_mapping(mapping)));
        self.change_exports(|exported| exported.retain(|name, _| !exports.contains(name)));
        Ok(())
    }

    fn volume_view(&self, volume: &Volume) -> api::Volume {
        let mappings = self.access.lock().mappings_of_volume(volume.id());
        api::Volume {
            name: volume.name(),
            uuid: volume.uuid(),
            size_bytes: volume.size_bytes(),
            block_bytes: volume.block_bytes(),
            mapped_bytes: volume.mapped_bytes(),
            created_ms: volume.created_ms(),
            mappings: mappings
                .into_iter()
                .map(|mapping| api::VolumeMapping { host: mapping.host, lun: mapping.lun })
                .collect(),
        }
    }
}
