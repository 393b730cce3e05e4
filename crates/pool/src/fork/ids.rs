//! Ids of layers: which one a new layer gets.
//!
//! Ids are given out in order. When all have been given out, ids that name nothing any more are reused.
//!
//! Invariants:
//! 1. An id that is reused names nothing in the last durable checkpoint: no layer, no former layer that still
//!    has births, no tree of layers. So no entry of a map or a deadlist has it as its birth, and no catalog
//!    record that names it is replayed. Records of copies name layers that live until the tail has passed them.
//! 2. Nor does it name anything in RAM: nothing is buffered under it, and no thread holds the layer that had it.
//!
//! Which ids are free is not recorded. Opening looks for them, and so does the cut of a checkpoint: the ids
//! that a cut finds are used once that checkpoint is durable and readers that began before have left.

use crate::{
    bugs::{Bug, planted},
    fork::{layer::Layer, layers::Layers},
    format::LAYERS_END,
};
use quoin_base::{CheckpointGeneration, LayerId};
use quoin_world::Mutex;
use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Weak},
};

/// When fewer ids are left, a cut looks for this many free ones.
const ENOUGH: usize = 1024;

#[derive(Default)]
pub(crate) struct LayerIds {
    inner: Mutex<Inner>,
}

struct Inner {
    /// Ids from here on were never given out.
    next: u32,
    /// All ids are below.
    end: u32,
    /// To be reused, in this order.
    free: VecDeque<LayerId>,
    /// Ids that the checkpoint of this generation does not name.
    found: Option<(CheckpointGeneration, Vec<LayerId>)>,
    /// Where the next search begins, so that an id that came free is reused as late as possible.
    cursor: u32,
    /// Some of the ids that were found last are still held and could not be freed.
    is_any_held: bool,
    /// Deleted layers that some thread may still hold.
    departed: Vec<Weak<Layer>>,
}

impl Default for Inner {
    fn default() -> Self {
        let (free, departed) = Default::default();
        Self { next: 1, end: LAYERS_END, free, found: None, cursor: 1, is_any_held: false, departed }
    }
}

impl LayerIds {
    /// Ids from `next` on were never given out.
    pub(crate) fn new(next: u32) -> Self {
        Self { inner: Mutex::new(Inner { next, ..Inner::default() }) }
    }

    /// Gives out none from `end` on. For tests.
    pub(crate) fn limit(&self, end: u32) {
        self.inner.lock().end = end.min(LAYERS_END);
    }

    /// Ids from here on were never given out.
    pub(crate) fn next(&self) -> u32 {
        self.inner.lock().next
    }

    /// The ids that the next layers get; `None` if there are not as many.
    pub(crate) fn peek(&self, count: usize) -> Option<Vec<LayerId>> {
        let inner = self.inner.lock();
        let (new, free) = ((inner.next..inner.end).map(LayerId), inner.free.iter().copied());
        let early = free.clone().filter(|_| planted(Bug::ReuseLayersEarly));
        let ids: Vec<_> = early.chain(new).chain(free).take(count).collect();
        (ids.len() == count).then_some(ids)
    }

    /// Notes that a layer has this id.
    pub(crate) fn taken(&self, id: LayerId) {
        let mut inner = self.inner.lock();
        inner.next = inner.next.max(id.0 + 1);
        inner.free.retain(|other| *other != id);
    }

    /// Notes that a layer was deleted.
    pub(crate) fn departed(&self, layer: &Arc<Layer>) {
        let mut inner = self.inner.lock();
        inner.departed.push(Arc::downgrade(layer));
        inner.free.extend(planted(Bug::ReuseLayersEarly).then_some(layer.id));
    }

    /// Looks for free ids if few are left. `generation` is that of the checkpoint that is being cut.
    pub(crate) fn find(&self, layers: &Layers, generation: CheckpointGeneration) {
        let mut inner = self.inner.lock();
        inner.departed.retain(|layer| layer.strong_count() > 0);
        let left = (inner.end.saturating_sub(inner.next) as usize).saturating_add(inner.free.len());
        if left >= ENOUGH || inner.found.is_some() {
            return;
        }
        // Beside layers and former ones: first layers of trees, and ids that are free already.
        let mut named: BTreeSet<LayerId> = layers.all.values().map(|layer| layer.family).collect();
        named.extend(&inner.free);
        let is_named = |id: &LayerId| {
            named.contains(id) || layers.all.contains_key(id) || layers.aliases().contains_key(id)
        };
        let (first, end) = (inner.cursor, inner.next.min(inner.end));
        let ids = (first..end).chain(1..first.min(end)).map(LayerId);
        let found: Vec<_> = ids.filter(|id| !is_named(id)).take(ENOUGH).collect();
        inner.cursor = found.last().map_or(1, |last| last.0 + 1);
        if !found.is_empty() {
            inner.found = Some((generation, found));
        }
    }

    /// Whether ids that nothing durable names may be about to come free.
    pub(crate) fn may_any_come_free(&self) -> bool {
        let inner = self.inner.lock();
        inner.found.is_some() || inner.is_any_held
    }

    /// Takes what was found for a checkpoint up to `generation`, which is durable and whose earlier readers
    /// have left.
    pub(crate) fn take_found(&self, generation: CheckpointGeneration) -> Option<Vec<LayerId>> {
        let found = self.inner.lock().found.take_if(|(of, _)| *of <= generation);
        found.map(|(_, ids)| ids)
    }

    /// Frees the ids that were found, except those with buffered data and those of layers that a thread still holds.
    pub(crate) fn free(&self, found: Vec<LayerId>, buffered: &BTreeSet<LayerId>) {
        let mut inner = self.inner.lock();
        let held: BTreeSet<_> = inner.departed.iter().filter_map(|layer| Some(layer.upgrade()?.id)).collect();
        let is_held = |id: &LayerId| buffered.contains(id) || held.contains(id);
        let (held, free): (Vec<_>, Vec<_>) = found.into_iter().partition(is_held);
        inner.is_any_held = !held.is_empty();
        inner.free.extend(free);
    }
}
