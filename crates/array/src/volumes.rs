//! Volumes, as management sees them.

use crate::{
    Array, ArrayError, BinError, ExportError,
    bin_setting::deleted_by,
    catalog::Turn,
    compression::{of_api, to_api, told as compression_text},
    deduplication::told as deduplication_text,
    events::Told,
    guard::require_unused,
    origin::{is_snapshot, kind},
    record::{without_exports, without_mappings},
};
use quoin_api::{self as api, Deduplication};
use quoin_volume::{BlockDevice, Folder, Tags, Volume, VolumeChange, VolumeSpec};
use quoin_world::Thread;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use uuid::Uuid;

impl Array {
    /// Creates a volume.
    ///
    /// # Errors
    /// `Name`, `Size`, `BlockSize`, `Tag` or `Folder` for what cannot be, `Exists` if the name is taken;
    /// `NotFound` if the volume to be near to does not exist; `CannotReserve` or `HoldsSpace` if the pool has
    /// too little space. `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn create_volume(&self, request: api::VolumeCreate) -> Result<api::Volume, ArrayError> {
        let turn = self.catalog().turn().await;
        let api::VolumeCreate { name, size_bytes, block_bytes, thick, tags, folder, .. } = request;
        let (near, compression, deduplication) = (request.near, request.compression, request.deduplication);
        let mut policy = self.assigned(request.policy)?;
        let thick = thick || policy.thick == Some(true);
        // What is said for the volume itself goes before its policy.
        policy.compression = compression.map(of_api).or(policy.compression);
        let compression = to_api(policy.compression.unwrap_or_default());
        policy.deduplication = deduplication.map(Deduplication::is_on).or(policy.deduplication);
        let deduplication = Deduplication::from(policy.deduplication.unwrap_or_default());
        let folder = Folder::parse(&folder)?;
        let near = near.map(|near| self.volume(&near)).transpose()?;
        let spec = VolumeSpec { name, size_bytes, block_bytes, thick, tags, folder, policy };
        let mut kind = if thick { "thick" } else { "thin" }.to_owned();
        if compression != api::Compression::Off {
            kind += &format!(", {}", compression_text(compression));
        }
        if deduplication.is_on() {
            kind += &format!(", {}", deduplication_text(deduplication));
        }
        let text = format!("created, {kind}, {size_bytes} bytes in blocks of {block_bytes}");
        let own = Told::new(format!("volume {}", spec.name), text)
            .with("size_bytes", size_bytes)
            .with("block_bytes", block_bytes)
            .with("thick", thick)
            .with("compression", compression)
            .with("deduplication", deduplication)
            .with("folder", spec.folder.to_string())
            .with("policy", &spec.policy.name)
            .with("tags", &spec.tags);
        let (tx, staged) = self.stage(&turn, own);
        let created = match near {
            Some(near) => self.volumes().create_near(spec, &near, tx).await,
            None => self.volumes().create(spec, tx).await,
        };
        let volume = created.map_err(|error| self.not_for_bin("volume not created", error))?;
        self.log().saved(staged);
        self.follow_qos();
        Ok(self.volume_view(&volume))
    }

    /// All volumes, oldest first.
    ///
    /// # Errors
    /// `Offline` while the pool has not been open since the array started.
    pub fn list_volumes(&self) -> Result<Vec<api::Volume>, ArrayError> {
        self.require_catalog()?;
        Ok(self.volumes().list().iter().map(|volume| self.volume_view(volume)).collect())
    }

    /// The volume of this name, to serve.
    ///
    /// # Errors
    /// `NotFound` if no volume has the name, [`BinError::Deleted`] if the recycle bin has one of this name.
    /// `Offline` while the pool has not been open since the array started.
    pub fn volume(&self, name: &str) -> Result<Arc<Volume>, ArrayError> {
        self.require_catalog()?;
        self.volumes().get(name).map_err(|error| {
            if self.volumes().binned().iter().any(|v| v.name() == name) {
                BinError::Deleted { name: name.to_owned() }.into()
            } else {
                error.into()
            }
        })
    }

    /// One volume.
    ///
    /// # Errors
    /// As [`Array::volume`].
    pub fn show_volume(&self, name: &str) -> Result<api::Volume, ArrayError> {
        Ok(self.volume_view(&*self.volume(name)?))
    }

    /// Changes a volume: name, size, tags, folder, whether the pool keeps space for it, how it is compressed, whether it is
    /// deduplicated, and whether it is a template.
    ///
    /// # Errors
    /// As [`Array::volume`] if it does not exist; `Name`, `Exists`, `Size`, `Tag` or `Folder` for what cannot
    /// be; `IsTemplate`, `Immutable` or `TailMapped` for what is in the way; `InUse` without `force`;
    /// `CannotReserve` or `HoldsSpace` for want of space. `Offline` or `Pool` if the pool cannot commit the
    /// change.
    pub async fn change_volume(
        self: &Arc<Self>,
        name: &str,
        request: api::VolumeUpdate,
    ) -> Result<api::Volume, ArrayError> {
        let turn = self.catalog().turn().await;
        let volume = self.volume(name)?;
        let api::VolumeUpdate { name: new_name, size_bytes, force, thick, tags, folder, .. } = request;
        let (policy, template, writable) = (request.policy, request.template, request.writable);
        let policy = self.assigned_anew(&volume, policy)?;
        // Its policy makes it thick, thin, compressed or deduplicated, unless that is said for itself; not a snapshot.
        let new = policy.as_ref().filter(|_| !is_snapshot(&volume));
        let thick = thick.or_else(|| new?.thick);
        let compression = request.compression.map(of_api).or_else(|| new?.compression);
        let deduplication = request.deduplication.map(Deduplication::is_on).or_else(|| new?.deduplication);
        let folder = folder.map(|path| Folder::parse(&path)).transpose().map_err(ArrayError::VolumeChange)?;
        let one = std::slice::from_ref(&volume);
        let mut forced = String::new();
        if template == Some(true) && !volume.is_template() {
            forced += &self.require_no_writers("volume not made a template", one, force)?;
        }
        if writable == Some(false) && !volume.is_protected() {
            let writers = self.writers_by_default(&volume);
            forced += &require_unused("volume not made read-only", format!("volume {name}"), writers, force)?;
        }
        if size_bytes.is_some_and(|size| size < volume.size_bytes()) {
            forced += &self.require_no_users("volume not shrunk", one, force)?;
        }
        let tags = tags.map(|changes| changed_tags(volume.tags(), changes));
        let protected = writable.map(|writable| !writable);
        let change = VolumeChange {
            name: new_name,
            size_bytes,
            force,
            thick,
            compression,
            deduplication,
            tags,
            folder,
            policy,
            template,
            protected,
        };
        let told = told(&volume, &change);
        if told.is_empty() {
            return Ok(self.volume_view(&volume));
        }
        let own = fields(Told::new(format!("volume {name}"), told.join("; ")), &volume, &change).and(&forced);
        let (tx, staged) = self.stage(&turn, own);
        let changed = self.volumes().change(name, change, tx).await;
        let volume = changed.map_err(|error| self.not_for_bin("volume not changed", error))?;
        self.log().saved(staged);
        self.follow_qos();
        self.trim_volumes();
        Ok(self.volume_view(&volume))
    }

    /// Gives back, in the background, what lay beyond the end of volumes that were shrunk.
    pub(crate) fn trim_volumes(self: &Arc<Self>) {
        if !self.volumes().is_any_trimming() {
            return;
        }
        let array = self.clone();
        let task = async move {
            if let Err(error) = array.volumes().trim().await {
                tracing::debug!(%error, "the space of shrunk volumes is given back when the pool is open again");
            }
        };
        self.world().spawn(Thread::Background, Box::pin(task));
    }

    /// Deletes, in the background, images from which hosts had ranges copied and have no more.
    pub(crate) fn tend_images(self: &Arc<Self>) {
        if !self.volumes().has_idle_images() {
            return;
        }
        let array = self.clone();
        let task = async move {
            if let Err(error) = array.volumes().delete_idle_images().await {
                tracing::debug!(%error, "images are deleted when the pool is open again");
            }
        };
        self.world().spawn(Thread::Background, Box::pin(task));
    }

    /// Deletes a volume; if hosts see it, only when `unmap` says that they shall lose it, and if any of them is logged in, or
    /// it is one of a consistency group, only by force.
    ///
    /// # Errors
    /// As [`Array::volume`] if it does not exist; `VolumeMapped` or `VolumeExported` without `unmap`; `InUse`
    /// or `GroupMember` without `force`; `Immutable` or `HasImmutable` while retention lasts. `Offline` or
    /// `Pool` if the pool cannot commit the change.
    pub async fn delete_volume(&self, name: &str, deletion: api::Deletion) -> Result<(), ArrayError> {
        let api::Deletion { unmap, force, now } = deletion;
        let turn = self.catalog().turn().await;
        let volume = self.volume(name)?;
        let forced = self.require_no_users("volume not deleted", std::slice::from_ref(&volume), force)?;
        if let Some(group) = self.volumes().group_of(volume.id()).filter(|_| !force) {
            return Err(ArrayError::GroupMember { volume: name.to_owned(), group: group.name });
        }
        let unmap = unmap || force;
        let mappings = self.hosts().read().mappings_of_volume(volume.id());
        if !mappings.is_empty() && !unmap {
            let hosts = mappings.into_iter().map(|mapping| mapping.host).collect();
            return Err(ArrayError::VolumeMapped { volume: name.to_owned(), hosts });
        }
        let exports = self.export_list().names_of(volume.id());
        if !exports.is_empty() && !unmap {
            return Err(ExportError::VolumeExported { volume: name.to_owned(), exports }.into());
        }
        let own = Told::new(format!("volume {name}"), "deleted")
            .and(&forced)
            .without("uuid", volume.uuid())
            .without("group", self.volumes().group_of(volume.id()).map(|group| group.name))
            .without("size_bytes", volume.size_bytes())
            .without("folder", volume.folder().to_string())
            .without("tags", volume.tags())
            .without("mappings", mappings.iter().map(|m| format!("{}:{}", m.host, m.lun)).collect::<Vec<_>>())
            .without("exports", exports);
        self.discard_all(&turn, &[volume], own, now).await
    }

    /// Deletes volumes for good, with their mappings and exports.
    pub(crate) async fn delete_all(
        &self,
        turn: &Turn<'_>,
        volumes: &[Arc<Volume>],
        own: impl Into<Told>,
    ) -> Result<(), ArrayError> {
        self.remove_all(turn, volumes, own.into(), None).await
    }

    /// Deletes volumes with their mappings and exports: for good, or into the recycle bin for this time.
    pub(crate) async fn remove_all(
        &self,
        turn: &Turn<'_>,
        volumes: &[Arc<Volume>],
        own: Told,
        keep: Option<Duration>,
    ) -> Result<(), ArrayError> {
        let mappings: Vec<_> = {
            let access = self.hosts().read();
            volumes.iter().flat_map(|volume| access.mappings_of_volume(volume.id())).collect()
        };
        let exports: Vec<_> =
            volumes.iter().flat_map(|volume| self.export_list().names_of(volume.id())).collect();
        let tx = self.without_reserves(without_exports(without_mappings(&mappings), &exports), volumes);
        let tx = self.without_limits_of(tx, volumes);
        let (tx, staged) = self.stage_with(turn, tx, own);
        let outcome = match keep {
            Some(keep) => self.volumes().discard(volumes, keep, deleted_by(), tx).await,
            None => self.volumes().delete(volumes, tx).await,
        };
        outcome.map_err(ArrayError::not("volume not deleted"))?;
        self.log().saved(staged);
        self.hosts().change(turn, self.volumes(), |access| {
            mappings.iter().for_each(|mapping| access.remove_mapping(mapping))
        });
        self.export_list()
            .change(turn, self.volumes(), |exported| exported.retain(|name, _| !exports.contains(name)));
        self.forget_reserves();
        self.forget_limits();
        Ok(())
    }

    pub(crate) fn volume_view(&self, volume: &Volume) -> api::Volume {
        let stats = volume.stats();
        let mappings = self.hosts().read().mappings_of_volume(volume.id());
        api::Volume {
            name: volume.name(),
            uuid: volume.uuid(),
            wwn: wwn(volume.uuid()),
            size_bytes: volume.size_bytes(),
            block_bytes: volume.block_bytes(),
            mapped_bytes: stats.map(|stats| stats.mapped_bytes),
            freed_by_delete_bytes: stats.map(|stats| stats.freed_by_delete_bytes),
            thick: volume.is_thick(),
            reserved_bytes: stats.map(|stats| stats.reserved_bytes),
            trimming: volume.is_trimming(),
            tags: volume.tags(),
            folder: volume.folder().into(),
            policy: volume.policy().unwrap_or_else(|| api::DEFAULT_POLICY.to_owned()),
            compliance: self.compliance(volume),
            compression: volume.compression().map(to_api),
            deduplication: volume.deduplication().map(Deduplication::from),
            kind: kind(volume),
            writable: !volume.is_protected() && !volume.is_read_only(),
            modified_ms: volume.modified_ms(),
            retain_until_ms: self.volumes().retained_until_ms(volume),
            created_ms: volume.created_ms(),
            origin: volume.origin().map(|origin| self.origin_view(&origin)),
            offline: self.why_offline(volume),
            group: self.volumes().group_of(volume.id()).map(|group| group.name),
            mappings: mappings
                .into_iter()
                .map(|mapping| api::VolumeMapping { host: mapping.host, lun: mapping.lun })
                .collect(),
        }
    }
}

/// Tags with those set that have a value, and those removed that have none.
fn changed_tags(mut tags: Tags, changes: BTreeMap<String, Option<String>>) -> Tags {
    for (key, value) in changes {
        match value {
            Some(value) => drop(tags.insert(key, value)),
            None => drop(tags.remove(&key)),
        }
    }
    tags
}

/// The fields that a change changes.
fn fields(told: Told, volume: &Volume, change: &VolumeChange) -> Told {
    let VolumeChange {
        name,
        size_bytes,
        thick,
        compression,
        deduplication,
        tags,
        folder,
        policy,
        template,
        protected,
        ..
    } = change;
    let (compressed, deduplicated) = (volume.compression(), volume.deduplication());
    let is_on = |deduplicated: Option<bool>| deduplicated.map(Deduplication::from);
    told.change("name", volume.name(), name.clone().unwrap_or_else(|| volume.name()))
        .change("size_bytes", volume.size_bytes(), size_bytes.unwrap_or(volume.size_bytes()))
        .change("thick", volume.is_thick(), thick.unwrap_or(volume.is_thick()))
        .change("compression", compressed.map(to_api), compression.or(compressed).map(to_api))
        .change("deduplication", is_on(deduplicated), is_on(deduplication.or(deduplicated)))
        .change("tags", volume.tags(), tags.clone().unwrap_or_else(|| volume.tags()))
        .change(
            "folder",
            volume.folder().to_string(),
            folder.clone().unwrap_or_else(|| volume.folder()).to_string(),
        )
        .change(
            "policy",
            volume.policy(),
            policy.as_ref().map_or_else(|| volume.policy(), |policy| policy.name.clone()),
        )
        .change("template", volume.is_template(), template.unwrap_or(volume.is_template()))
        .change("writable", !volume.is_protected(), !protected.unwrap_or(volume.is_protected()))
}

/// The changes of a request, for the event.
fn told(volume: &Volume, change: &VolumeChange) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(name) = change.name.as_ref().filter(|name| **name != volume.name()) {
        told.push(format!("renamed to {name}"));
    }
    let before = volume.size_bytes();
    match change.size_bytes {
        Some(size) if size > before => told.push(format!("grown from {before} to {size} bytes")),
        Some(size) if size < before && change.force => {
            told.push(format!("shrunk from {before} to {size} bytes by force"));
        }
        Some(size) if size < before => told.push(format!("shrunk from {before} to {size} bytes")),
        _ => {}
    }
    match change.thick {
        Some(true) if !volume.is_thick() => told.push("made thick".to_owned()),
        Some(false) if volume.is_thick() => told.push("made thin".to_owned()),
        _ => {}
    }
    if let Some(compression) = change.compression.filter(|new| Some(*new) != volume.compression()) {
        told.push(format!("{} from now on", compression_text(to_api(compression))));
    }
    if let Some(is_on) = change.deduplication.filter(|new| Some(*new) != volume.deduplication()) {
        told.push(format!("{} from now on", deduplication_text(is_on.into())));
    }
    if let Some(folder) = change.folder.as_ref().filter(|folder| **folder != volume.folder()) {
        told.push(if folder.is_top() {
            "removed from its folder".to_owned()
        } else {
            format!("moved to folder {folder}")
        });
    }
    if let Some(policy) = &change.policy {
        let name = policy.name.as_deref().unwrap_or(api::DEFAULT_POLICY);
        told.push(format!("given policy {name}, also its snapshots; what it has is converted"));
    }
    match change.template {
        Some(true) if !volume.is_template() => {
            told.push("made a template, which is write-protected".to_owned());
        }
        Some(false) if volume.is_template() => {
            told.push("made an ordinary volume, no longer a template".to_owned())
        }
        _ => {}
    }
    match change.protected {
        Some(true) if !volume.is_protected() => told.push("made read-only".to_owned()),
        Some(false) if volume.is_protected() => told.push("made writable".to_owned()),
        _ => {}
    }
    if let Some(tags) = change.tags.as_ref().filter(|tags| **tags != volume.tags()) {
        let tags: Vec<_> = tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
        told.push(format!("tags: {}", if tags.is_empty() { "none".to_owned() } else { tags.join(", ") }));
    }
    told
}

/// The name of a volume's disk, as hosts write it.
fn wwn(uuid: Uuid) -> String {
    format!("naa.{:032x}", u128::from_be_bytes(quoin_target::naa(uuid)))
}
