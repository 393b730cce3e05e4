//! Which layers changed since the catalog was last asked. What a checkpoint records of a layer can be changed only through
//! types that note it, so no change is forgotten.

use crate::fork::lists::Lists;
use quoin_base::{LayerId, VolumeId};
use quoin_world::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering, fence},
};
use std::{
    collections::BTreeSet,
    mem,
    ops::{Deref, DerefMut},
    sync::Arc,
};

/// What changed among the layers of a slice.
#[derive(Default)]
pub(crate) struct Changes {
    layers: Mutex<Vec<Arc<LayerNote>>>,
    aliases: Mutex<BTreeSet<LayerId>>,
    /// Layers that changed since sums were last counted.
    to_count: Mutex<Vec<Arc<LayerNote>>>,
}

impl Changes {
    /// Notes that what is known of a former layer changed.
    pub(crate) fn note_alias(&self, id: LayerId) {
        self.aliases.lock().insert(id);
    }

    /// The layers and former layers that changed since this was last asked.
    pub(crate) fn take(&self) -> (Vec<LayerId>, BTreeSet<LayerId>) {
        let notes = mem::take(&mut *self.layers.lock());
        // NOTE: before the layers are looked at: what changes from here on is noted again.
        notes.iter().for_each(|note| _ = note.changed.swap(false, Ordering::SeqCst));
        fence(Ordering::SeqCst);
        let aliases = mem::take(&mut *self.aliases.lock());
        (notes.iter().map(|note| note.id).collect(), aliases)
    }

    /// The layers that changed since this was last asked, each with its volume.
    pub(crate) fn take_to_count(&self) -> Vec<(LayerId, VolumeId)> {
        let notes = mem::take(&mut *self.to_count.lock());
        notes.iter().for_each(|note| _ = note.is_to_count.swap(false, Ordering::SeqCst));
        fence(Ordering::SeqCst);
        notes.iter().map(|note| (note.id, note.volume)).collect()
    }
}

/// Notes changes of a layer.
pub(crate) struct LayerNote {
    id: LayerId,
    volume: VolumeId,
    /// It is among those that changed.
    changed: AtomicBool,
    /// It is among those to count.
    is_to_count: AtomicBool,
    changes: Arc<Changes>,
}

impl LayerNote {
    pub(crate) fn new(id: LayerId, volume: VolumeId, changes: &Arc<Changes>) -> Arc<Self> {
        let (changed, is_to_count) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { id, volume, changed, is_to_count, changes: changes.clone() })
    }

    /// Called after the change, by the committer or with the layers locked for writing.
    pub(crate) fn changed(self: &Arc<Self>) {
        // NOTE: most often it is noted already, and a look costs less than a swap.
        if !self.changed.load(Ordering::SeqCst) && !self.changed.swap(true, Ordering::SeqCst) {
            self.changes.layers.lock().push(self.clone());
        }
        if !self.is_to_count.load(Ordering::SeqCst) && !self.is_to_count.swap(true, Ordering::SeqCst) {
            self.changes.to_count.lock().push(self.clone());
        }
    }
}

/// A figure of a layer.
pub(crate) struct Noted {
    value: AtomicU64,
    note: Arc<LayerNote>,
}

impl Noted {
    pub(crate) fn new(value: u64, note: &Arc<LayerNote>) -> Self {
        Self { value: AtomicU64::new(value), note: note.clone() }
    }

    pub(crate) fn load(&self, order: Ordering) -> u64 {
        self.value.load(order)
    }

    pub(crate) fn store(&self, value: u64) {
        self.value.store(value, Ordering::SeqCst);
        self.note.changed();
    }

    pub(crate) fn swap(&self, value: u64) -> u64 {
        let old = self.value.swap(value, Ordering::SeqCst);
        self.note.changed();
        old
    }

    pub(crate) fn fetch_add(&self, more: u64) -> u64 {
        let old = self.value.fetch_add(more, Ordering::SeqCst);
        self.note.changed();
        old
    }

    pub(crate) fn fetch_sub(&self, less: u64) -> u64 {
        let old = self.value.fetch_sub(less, Ordering::SeqCst);
        self.note.changed();
        old
    }
}

/// The lists of a layer.
pub(crate) struct NotedLists {
    lists: Mutex<Lists>,
    note: Arc<LayerNote>,
}

impl NotedLists {
    pub(crate) fn new(lists: Lists, note: &Arc<LayerNote>) -> Self {
        Self { lists: Mutex::new(lists), note: note.clone() }
    }

    pub(crate) fn lock(&self) -> ListsGuard<'_> {
        ListsGuard { lists: self.lists.lock(), note: &self.note }
    }
}

pub(crate) struct ListsGuard<'a> {
    lists: MutexGuard<'a, Lists>,
    note: &'a Arc<LayerNote>,
}

impl Deref for ListsGuard<'_> {
    type Target = Lists;

    fn deref(&self) -> &Lists {
        &self.lists
    }
}

impl DerefMut for ListsGuard<'_> {
    fn deref_mut(&mut self) -> &mut Lists {
        self.note.changed();
        &mut self.lists
    }
}
