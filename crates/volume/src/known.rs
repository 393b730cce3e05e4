//! The volumes that are not in the recycle bin, and what is asked of them often: nobody goes through all of them for it.

use crate::{BlockDevice, Volume, record::VolumeRecord};
use quoin_base::VolumeId;
use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Values},
    mem,
    sync::Arc,
};

/// The volumes in the bin, by id.
pub(crate) type Bin = BTreeMap<VolumeId, Arc<Volume>>;

/// Each volume is there once, under its id, its name and its origin. Only [`Known::update`] changes what they are found by.
#[derive(Default)]
pub(crate) struct Known {
    by_id: BTreeMap<VolumeId, Arc<Volume>>,
    by_name: BTreeMap<String, VolumeId>,
    /// Snapshots and clones, by the volume that they came from.
    by_source: BTreeSet<(VolumeId, VolumeId)>,
    immutable: BTreeSet<VolumeId>,
    trimming: BTreeSet<VolumeId>,
}

impl Known {
    pub(crate) fn values(&self) -> Values<'_, VolumeId, Arc<Volume>> {
        self.by_id.values()
    }

    pub(crate) fn get(&self, id: VolumeId) -> Option<&Arc<Volume>> {
        self.by_id.get(&id)
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Arc<Volume>> {
        let found = self.by_name.get(name).and_then(|id| self.by_id.get(id));
        assert!(found.is_none_or(|volume| volume.name() == name), "a volume has another name");
        found
    }

    /// Snapshots and clones of a volume, oldest first.
    pub(crate) fn forks_of(&self, source: VolumeId) -> impl Iterator<Item = &Arc<Volume>> {
        let forks = self.by_source.range((source, VolumeId(0))..=(source, VolumeId(u32::MAX)));
        forks.filter_map(|(_, id)| self.by_id.get(id))
    }

    pub(crate) fn immutable(&self) -> impl Iterator<Item = &Arc<Volume>> {
        self.immutable.iter().filter_map(|id| self.by_id.get(id))
    }

    pub(crate) fn trimming(&self) -> impl Iterator<Item = &Arc<Volume>> {
        self.trimming.iter().filter_map(|id| self.by_id.get(id))
    }

    pub(crate) fn insert(&mut self, volume: Arc<Volume>) {
        self.remove(volume.id());
        self.enter(&volume.record());
        self.by_id.insert(volume.id(), volume);
    }

    pub(crate) fn remove(&mut self, id: VolumeId) {
        if let Some(volume) = self.by_id.remove(&id) {
            self.forget(&volume.record());
        }
    }

    /// Has a volume take over a record.
    pub(crate) fn update(&mut self, volume: &Volume, record: &VolumeRecord) {
        assert_eq!(volume.id(), record.id, "a volume takes over its own record");
        // NOTE: forgotten under the old record, entered under the new one.
        let is_known = self.get(volume.id()).is_some_and(|known| std::ptr::eq(&**known, volume));
        if is_known {
            self.forget(&volume.record());
        }
        volume.update(record);
        if is_known {
            self.enter(&volume.record());
        }
    }

    /// Takes all out.
    pub(crate) fn take(&mut self) -> BTreeMap<VolumeId, Arc<Volume>> {
        mem::take(self).by_id
    }

    fn enter(&mut self, record: &VolumeRecord) {
        self.by_name.insert(record.name.clone(), record.id);
        self.by_source.extend(record.origin.as_ref().map(|origin| (origin.source, record.id)));
        self.immutable.extend(record.guards.retain_until_ms.map(|_| record.id));
        self.trimming.extend(record.is_trimming().then_some(record.id));
    }

    fn forget(&mut self, record: &VolumeRecord) {
        if self.by_name.get(&record.name) == Some(&record.id) {
            self.by_name.remove(&record.name);
        }
        if let Some(origin) = &record.origin {
            self.by_source.remove(&(origin.source, record.id));
        }
        self.immutable.remove(&record.id);
        self.trimming.remove(&record.id);
    }
}
