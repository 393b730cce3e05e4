//! An image of a volume, and those that are to be deleted. What images are for is told in [`crate::images`].

use parking_lot::Mutex;
use quoin_base::VolumeId;
use quoin_pool::{ObjectKind, Pool};
use quoin_world::{AsyncMutex, Nanos};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
};

/// The kind of catalog object that holds an image; the key is that of its hidden volume, the value JSON.
pub const IMAGE_OBJECT: ObjectKind = ObjectKind(15);

const RECORD_VERSION: u32 = 1;
/// An image as the catalog keeps it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImageRecord {
    version: u32,
    id: VolumeId,
    source: VolumeId,
}

/// What a volume held when it was made.
pub struct Image {
    pub(crate) id: VolumeId,
    /// The source's name, for errors.
    pub(crate) source: String,
    pub(crate) pool: Weak<Pool>,
    pub(crate) images: Arc<Images>,
}

impl Drop for Image {
    fn drop(&mut self) {
        self.images.retire(self.id, self.pool.clone());
    }
}

/// Images that are to be deleted.
#[derive(Default)]
pub(crate) struct Images {
    pub(crate) retired: Mutex<BTreeMap<VolumeId, Weak<Pool>>>,
    /// Held by the one who deletes them.
    pub(crate) deleting: AsyncMutex,
}

impl Images {
    fn retire(&self, id: VolumeId, pool: Weak<Pool>) {
        // What an opening found in the catalog counts.
        self.retired.lock().entry(id).or_insert(pool);
    }

    /// Takes up what an earlier opening of the pool left.
    pub(crate) fn restore(&self, pool: &Arc<Pool>) {
        let left = hidden_images(pool.list(IMAGE_OBJECT).into_iter().map(|(key, _)| key));
        self.retired.lock().extend(left.into_iter().map(|id| (id, Arc::downgrade(pool))));
    }
}

/// The image that a volume has for the next command.
#[derive(Default)]
pub(crate) struct Latest(pub(crate) Mutex<Option<(Arc<Image>, Nanos)>>);

impl ImageRecord {
    pub(crate) fn new(id: VolumeId, source: VolumeId) -> Self {
        Self { version: RECORD_VERSION, id, source }
    }
}

/// The hidden volumes of the images in a catalog.
pub(crate) fn hidden_images(keys: impl Iterator<Item = impl AsRef<str>>) -> BTreeSet<VolumeId> {
    keys.filter_map(|key| key.as_ref().parse().ok().map(VolumeId)).collect()
}
