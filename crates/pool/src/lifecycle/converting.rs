//! How far a slice is with the conversion of its layers, for those who ask.

use quoin_base::LayerId;
use quoin_world::{
    Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use std::collections::BTreeMap;

/// What is being converted. The committer alone changes it.
#[derive(Default)]
pub(crate) struct Converting {
    /// Layers that wait or are walked, and how many of their blocks were met.
    layers: Mutex<BTreeMap<LayerId, u64>>,
    moved_bytes: AtomicU64,
    lacks_room: AtomicBool,
    lacks_slabs: AtomicBool,
    /// What was admitted before a layout was reckoned with is to be destaged.
    owes_drain: AtomicBool,
}

impl Converting {
    /// These wait, and are where they were.
    pub(crate) fn set_waiting(&self, waiting: impl Iterator<Item = LayerId>) {
        let mut layers = self.layers.lock();
        *layers = waiting.map(|id| (id, layers.get(&id).copied().unwrap_or(0))).collect();
    }

    /// Bytes of a layer were moved, of which so many blocks were met by now.
    pub(crate) fn moved(&self, layer: LayerId, met_blocks: u64, bytes: u64) {
        self.layers.lock().insert(layer, met_blocks);
        self.moved_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A layer is done with.
    pub(crate) fn ended(&self, layer: LayerId) {
        self.layers.lock().remove(&layer);
    }

    /// Notes that what was admitted so far is to be destaged.
    pub(super) fn owe_drain(&self) {
        self.owes_drain.store(true, Ordering::Relaxed);
    }

    pub(super) fn owes_drain(&self) -> bool {
        self.owes_drain.load(Ordering::Relaxed)
    }

    pub(super) fn drained(&self) {
        self.owes_drain.store(false, Ordering::Relaxed);
    }

    pub(crate) fn set_lacks_room(&self, lacks: bool) {
        self.lacks_room.store(lacks, Ordering::Relaxed);
    }

    pub(crate) fn set_lacks_slabs(&self, lacks: bool) {
        self.lacks_slabs.store(lacks, Ordering::Relaxed);
    }

    /// Whether it waits for space.
    pub(crate) fn waits_for_space(&self) -> bool {
        self.lacks_room.load(Ordering::Relaxed) || self.lacks_slabs.load(Ordering::Relaxed)
    }

    /// How many blocks of a layer were met by its walk, if it is to be converted.
    pub(crate) fn met_blocks(&self, layer: LayerId) -> Option<u64> {
        self.layers.lock().get(&layer).copied()
    }

    /// Bytes moved since the pool was opened.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.moved_bytes.load(Ordering::Relaxed)
    }
}
