//! All layers of a slice, and what is summed up over them: what volumes were promised, what is shared, what waits.
//!
//! Locks are taken in this order: what is pledged, layers, sums. Only this file holds two of them at the same time, but for
//! callers that hold the layers meanwhile.

use crate::{
    error::PoolError,
    fork::{
        layer::Layer,
        layers::Layers,
        lending::Lending,
        tally::{LayerUse, Measure, Promised, Tally},
    },
    host::admission::Waiting,
    lifecycle::stats::{Removal, VolumeStats},
    meta::{Operation, Transaction},
    space::{
        Promise, Reserved, Space, Weight,
        report::{PoolSpace, VolumeSpace},
        reserve::Pledged,
    },
};
use quoin_base::{LayerId, VolumeId};
use quoin_world::{
    Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicU64, Ordering},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The forks of a slice.
pub(crate) struct Forks {
    measure: Measure,
    pledged: Mutex<Pledged>,
    layers: RwLock<Layers>,
    /// Sums over all layers.
    tally: Mutex<Tally>,
    /// Range copies that wait until nothing they wrote is in the journal any more.
    settling_copies: AtomicU64,
    lending: Lending,
}

/// Layers.
impl Forks {
    pub(crate) fn new(layers: Layers, measure: Measure) -> Self {
        Self {
            measure,
            pledged: Mutex::default(),
            layers: RwLock::new(layers),
            tally: Mutex::default(),
            settling_copies: AtomicU64::new(0),
            lending: Lending::default(),
        }
    }

    /// What deduplication is about to share.
    pub(crate) fn lending(&self) -> &Lending {
        &self.lending
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Layers> {
        self.layers.read()
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Layers> {
        self.layers.write()
    }

    /// The layer that a volume has now.
    pub(crate) fn of_volume(&self, volume: VolumeId) -> Result<Arc<Layer>, PoolError> {
        self.read().volumes.get(&volume).cloned().ok_or(PoolError::NoSuchVolume(volume))
    }

    /// A layer, if it is there.
    pub(crate) fn layer(&self, id: LayerId) -> Option<Arc<Layer>> {
        self.read().all.get(&id).cloned()
    }

    /// A layer that is there and was not given up.
    pub(crate) fn kept_layer(&self, id: LayerId) -> Option<Arc<Layer>> {
        self.layer(id).filter(|layer| !layer.is_gone())
    }

    /// The layer that owns what another bore, if it is there.
    pub(crate) fn owner_of(&self, birth: LayerId) -> Option<Arc<Layer>> {
        let layers = self.read();
        layers.all.get(&layers.owner(birth)).cloned()
    }

    /// Whether any layer waits for its map.
    pub(crate) fn are_pending(&self) -> bool {
        !self.read().pending.is_empty()
    }

    /// Counts a range copy that waits to settle, until what is returned is dropped.
    pub(crate) fn copy_settles(&self) -> Waiting<'_> {
        Waiting::new(&self.settling_copies)
    }

    /// Whether a fork or a copy waits until all that is buffered is destaged.
    pub(crate) fn await_destage(&self) -> bool {
        self.settling_copies.load(Ordering::Acquire) > 0 || self.are_pending()
    }

    /// For each volume the layer at the root of its tree: volumes with the same one are related by snapshots and clones, and
    /// what deleting one frees may depend on whether the others are there.
    pub(crate) fn families(&self) -> BTreeMap<VolumeId, LayerId> {
        let layers = self.read();
        let mut roots: BTreeMap<LayerId, LayerId> = BTreeMap::new();
        let mut families = BTreeMap::new();
        for (volume, leaf) in &layers.volumes {
            let (mut path, mut layer) = (Vec::new(), leaf.clone());
            let root = loop {
                if let Some(root) = roots.get(&layer.id) {
                    break *root;
                }
                path.push(layer.id);
                match layer.parent() {
                    Some(parent) => layer = parent,
                    None => break layer.id,
                }
            };
            roots.extend(path.into_iter().map(|id| (id, root)));
            families.insert(*volume, root);
        }
        families
    }
}

/// Promises.
impl Forks {
    /// What a transaction changes about reservations.
    pub(crate) fn pledged_by(&self, transaction: &Transaction) -> Pledged {
        let layers = self.read();
        let mut pledged = Pledged::new();
        let mut created = BTreeSet::new();
        for operation in &transaction.operations {
            match *operation {
                Operation::CreateVolume { volume, .. } => drop(created.insert(volume)),
                Operation::Reserve { volume, bytes }
                    if layers.volumes.contains_key(&volume) || created.contains(&volume) =>
                {
                    pledged.entry(volume).or_default().blocks =
                        Some(bytes.div_ceil(self.measure.block_bytes));
                }
                Operation::LayOut { volume, layout }
                    if layers.volumes.contains_key(&volume) || created.contains(&volume) =>
                {
                    pledged.entry(volume).or_default().layout = Some(layout);
                }
                Operation::Fork { source, target, .. } => {
                    created.insert(target);
                    for volume in [source, target] {
                        pledged.entry(volume).or_default().shared = true;
                    }
                }
                _ => {}
            }
        }
        pledged
    }

    /// What is promised beside, once `pledged` holds.
    pub(crate) fn pending(&self, pledged: &Pledged) -> Promise {
        self.promises(pledged).pending
    }

    /// Counts `pledged` as promised, until it is taken back. One transaction pledges at a time.
    pub(crate) fn pledge(&self, pledged: Pledged) {
        *self.pledged.lock() = pledged;
    }

    /// Takes back what was pledged.
    pub(crate) fn take_back_pledge(&self) {
        self.pledged.lock().clear();
    }

    /// Counts anew how much is promised, and how much of the promised space is not mapped.
    pub(crate) fn count_reserved(&self, space: &Space) {
        let pledged = self.pledged.lock();
        let counted = self.promises(&pledged);
        space.update_reserved(|reserved| *reserved = counted);
    }

    /// What is promised, and what is promised beside once `pledged` holds.
    fn promises(&self, pledged: &Pledged) -> Reserved {
        let layers = self.read();
        let mut tally = self.tally.lock();
        tally.catch_up(&layers, self.measure);
        let (now, mut then) = (tally.promised, tally.promised);
        let weight = |layout| Weight::of(layout, self.measure.layout);
        for (volume, pledge) in pledged {
            let Some(layer) = layers.volumes.get(volume) else { continue };
            let reserved = layer.volume.reserved_bytes.load(Ordering::Acquire);
            let blocks = pledge.blocks.unwrap_or(reserved.div_ceil(self.measure.block_bytes));
            let weight = weight(pledge.layout.unwrap_or(layer.volume.layout()));
            then.subtract(tally.promised_to(*volume));
            then.add(if pledge.shared || pledge.layout.is_some() && weight.is_more() {
                // All it has will be shared, or is to lie elsewhere.
                let shares = pledge.shared || layer.parent().is_some();
                Promised { promise: Promise::of(blocks, 0, shares).weighed(weight), lent: 0 }
            } else {
                Promised::of(layer, blocks, weight)
            });
        }
        drop(tally);
        // Of two that share a block only one must be able to overwrite it.
        let copies = layers.copies.load(Ordering::Relaxed);
        let layouts = layers.volumes.values().map(|leaf| weight(leaf.volume.layout()));
        let heaviest = if copies > 0 { layouts.max().unwrap_or(Weight::ONE) } else { Weight::ONE };
        let with_lent = |Promised { mut promise, lent }: Promised| {
            promise.unmapped += lent.min(heaviest.weigh(copies));
            promise
        };
        let (now, mut then) = (with_lent(now), with_lent(then));
        // Volumes that the same transaction creates.
        let new = pledged.iter().filter(|(volume, _)| !layers.volumes.contains_key(volume));
        new.for_each(|(_, pledge)| {
            let promise = Promise::of(pledge.blocks.unwrap_or(0), 0, pledge.shared);
            then.add(promise.weighed(weight(pledge.layout.flatten())));
        });
        let sharing = layers.all.len() > layers.volumes.len() || pledged.values().any(|pledge| pledge.shared);
        Reserved { now, pending: then.beyond(now), sharing }
    }
}

/// Figures.
impl Forks {
    /// How many volumes there are.
    pub(crate) fn volume_count(&self) -> u64 {
        self.read().volumes.len() as u64
    }

    /// How many layers there are, how many are to become one with another, and what they hold.
    pub(crate) fn layer_use(&self) -> (u64, u64, LayerUse) {
        let layers = self.read();
        let mut tally = self.tally.lock();
        tally.catch_up(&layers, self.measure);
        (layers.all.len() as u64, layers.joining(), tally.layer_use)
    }

    /// A volume in figures; `None` if there is none of this id.
    pub(crate) fn volume_stats(&self, volume: VolumeId) -> Option<VolumeStats> {
        let layers = self.read();
        let layer = layers.volumes.get(&volume)?;
        Some(VolumeStats {
            mapped_bytes: layer.mapped() * self.measure.block_bytes,
            owned_bytes: layer.held() * self.measure.block_bytes,
            freed_by_delete_bytes: layers.freed_by_delete(volume) * self.measure.block_bytes,
            reserved_bytes: layer.volume.reserved_bytes.load(Ordering::Relaxed),
            written_bytes: layer.volume.written_bytes.load(Ordering::Relaxed),
            read_bytes: layer.volume.read_bytes.load(Ordering::Relaxed),
        })
    }

    /// What was given up and is not given back yet, by volume, what is next first.
    pub(crate) fn being_removed(&self) -> Vec<Removal> {
        let layers = self.read();
        let removal = |layer: &Arc<Layer>| Removal {
            volume: layer.volume.id,
            owned_bytes: layer.owned_blocks.load(Ordering::Relaxed) * self.measure.block_bytes,
        };
        layers.removing.iter().map(removal).collect()
    }

    /// What volumes have of the pool's space, all together: what deleting all of them frees may be more than the sum of
    /// what deleting each frees.
    pub(crate) fn space_of(&self, volumes: &BTreeSet<VolumeId>) -> VolumeSpace {
        self.read().space_of(volumes, self.measure.block_bytes)
    }

    /// What all volumes have of the pool's space.
    pub(crate) fn space(&self) -> PoolSpace {
        self.read().space(self.measure.block_bytes)
    }
}
