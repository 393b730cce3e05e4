//! Sums over all layers and volumes: how much is promised and how much is shared. They are kept up by what changed, without
//! going through all layers.

use crate::{
    fork::{layer::Layer, layers::Layers},
    space::{Promise, Weight},
};
use hashbrown::HashMap;
use quoin_base::{LayerId, Layout, VolumeId};
use quoin_world::atomic::Ordering;
use rustc_hash::FxBuildHasher;

/// What layers hold that is to be given back or is shared, in blocks, and the entries of lists to be looked through.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct LayerUse {
    pub removing: u64,
    pub shared: u64,
    pub sifting: u64,
}

impl LayerUse {
    fn of(layer: &Layer) -> Self {
        let sifting = layer.lists.lock().sifting.entries;
        if layer.is_gone() {
            return Self { removing: layer.owned_blocks.load(Ordering::Relaxed), shared: 0, sifting };
        }
        let shared = if layer.is_live() { 0 } else { layer.held() };
        Self { removing: layer.unreached(), shared, sifting }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            removing: self.removing + other.removing,
            shared: self.shared + other.shared,
            sifting: self.sifting + other.sifting,
        }
    }

    fn less(self, other: Self) -> Self {
        Self {
            removing: self.removing - other.removing,
            shared: self.shared - other.shared,
            sifting: self.sifting - other.sifting,
        }
    }
}

/// What is promised to a volume.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Promised {
    pub promise: Promise,
    /// Blocks that others may own too: the volume cannot overwrite them in place.
    pub lent: u64,
}

impl Promised {
    /// `blocks` are promised to the volume with this layer.
    pub(crate) fn of(layer: &Layer, blocks: u64, weight: Weight) -> Self {
        // What it shares with others it cannot overwrite in place.
        let (owned, shares) = (layer.owned_blocks.load(Ordering::Relaxed), layer.parent().is_some());
        let lent = if blocks > 0 { layer.lent() } else { 0 };
        let mut promise = Promise::of(blocks, owned, shares).weighed(weight);
        // What lies in a lighter layout still will take more.
        if weight.is_more() && layer.is_mixed() {
            promise.unmapped = promise.blocks.saturating_sub(owned);
        }
        Self { promise, lent: weight.weigh(lent) }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.promise.add(other.promise);
        self.lent += other.lent;
    }

    pub(crate) fn subtract(&mut self, other: Self) {
        self.promise = self.promise.beyond(other.promise);
        self.lent -= other.lent;
    }
}

/// What blocks are counted by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measure {
    pub block_bytes: u64,
    /// The pool's layout.
    pub layout: Layout,
}

impl Measure {
    /// What the volume of a layer weighs.
    pub(crate) fn weight(&self, layer: &Layer) -> Weight {
        Weight::of(layer.volume.layout(), self.layout)
    }
}

/// The sums, and what each layer and volume adds to them, if anything.
#[derive(Default)]
pub(crate) struct Tally {
    layers: HashMap<LayerId, LayerUse, FxBuildHasher>,
    volumes: HashMap<VolumeId, Promised, FxBuildHasher>,
    pub layer_use: LayerUse,
    pub promised: Promised,
}

impl Tally {
    /// Takes over what changed.
    pub(crate) fn catch_up(&mut self, layers: &Layers, measure: Measure) {
        for (id, volume) in layers.changes().take_to_count() {
            let now = layers.all.get(&id).map(|layer| LayerUse::of(layer)).unwrap_or_default();
            let before = self.layers.remove(&id).unwrap_or_default();
            self.layer_use = self.layer_use.plus(now).less(before);
            if now != LayerUse::default() {
                self.layers.insert(id, now);
            }

            let now = layers.volumes.get(&volume).map(|layer| promised_to(layer, measure));
            let before = self.volumes.remove(&volume).unwrap_or_default();
            self.promised.add(now.unwrap_or_default());
            self.promised.subtract(before);
            if let Some(now) = now.filter(|now| *now != Promised::default()) {
                self.volumes.insert(volume, now);
            }
        }
        debug_assert!(self.is_sum_of(layers, measure), "a layer changed, and nobody noted it");
    }

    /// What is promised to a volume now.
    pub(crate) fn promised_to(&self, volume: VolumeId) -> Promised {
        self.volumes.get(&volume).copied().unwrap_or_default()
    }

    /// Whether the promises are those of all volumes. Goes through all.
    fn is_sum_of(&self, layers: &Layers, measure: Measure) -> bool {
        let mut promised = Promised::default();
        layers.volumes.values().for_each(|layer| promised.add(promised_to(layer, measure)));
        // Who writes changes both meanwhile, but for what is promised.
        promised.promise.blocks == self.promised.promise.blocks
    }
}

fn promised_to(layer: &Layer, measure: Measure) -> Promised {
    let blocks = layer.volume.reserved_bytes.load(Ordering::Acquire).div_ceil(measure.block_bytes);
    Promised::of(layer, blocks, measure.weight(layer))
}
