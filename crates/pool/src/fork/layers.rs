//! All layers of a pool: trees of them, whose leaves belong to volumes.
//!
//! Invariants:
//! 1. A volume has one layer, which is a leaf; every other layer is frozen, with one or two children, or gone.
//! 2. A block or tree page is owned by the layer that its birth names, or by the one that this became a part of. What a
//!    layer owns is reached from its own map, or is being sifted; what its descendants still use of it, too.
//! 3. In a layer's map what it owns stands in pages it owns: a walk through these meets all of it.
//! 4. Pending layers own nothing, and their parent has another pending child or had one.

use crate::{
    bugs::{Bug, planted},
    fork::{aliases::Aliases, changes::Changes, ids::LayerIds, layer::Layer},
    meta::{Alias, CatalogImage, Laid, Operation, Transaction},
};
use quoin_base::{LayerId, Layout, Sequence, VolumeId};
use quoin_world::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    sync::Arc,
};

#[derive(Default)]
pub(crate) struct Layers {
    pub volumes: BTreeMap<VolumeId, Arc<Layer>>,
    pub all: BTreeMap<LayerId, Arc<Layer>>,
    children: BTreeMap<LayerId, BTreeSet<LayerId>>,
    aliases: Aliases,
    changes: Arc<Changes>,
    /// Those without a map of their own.
    pub pending: BTreeSet<LayerId>,
    /// Frozen, with one child: the two shall become one.
    lonely: BTreeSet<LayerId>,
    /// Gone, and not yet given back.
    pub removing: VecDeque<Arc<Layer>>,
    pub ids: LayerIds,
    /// References to blocks beyond the first of each: so many blocks range copies save.
    pub copies: AtomicU64,
    /// Grows whenever what layers are to be laid out as may have changed.
    pub laid_out: AtomicU64,
    /// Grows whenever what a layer owns may have come to lie in two ways.
    pub uneven: AtomicU64,
    /// A volume is deduplicated, or was since the pool was opened.
    pub is_any_deduplicated: AtomicBool,
    /// The last catalog transaction that took effect.
    pub applied: Sequence,
}

impl Layers {
    /// As a checkpoint has them.
    pub(crate) fn from_image(image: &CatalogImage) -> Self {
        let changes = Arc::<Changes>::default();
        let mut layers = Self {
            aliases: Aliases::new(&image.aliases, &changes),
            changes: changes.clone(),
            ids: LayerIds::new(image.next_layer),
            copies: AtomicU64::new(image.copies),
            applied: image.applied,
            is_any_deduplicated: AtomicBool::new(image.layers.iter().any(|layer| layer.is_deduplicated)),
            ..Self::default()
        };
        // Leaves first: the former layers of a volume share what its leaf knows of it.
        let leaves = image.layers.iter().filter(|layer| layer.is_leaf());
        for layer in leaves.map(|image| Arc::new(Layer::from_image(image, None, &changes))) {
            layers.volumes.insert(layer.volume.id, layer.clone());
            layers.all.insert(layer.id, layer);
        }
        for image in image.layers.iter().filter(|layer| !layer.is_leaf()) {
            // What was given up is nobody's.
            let state = layers.volumes.get(&image.volume).filter(|_| !image.gone).map(|l| l.volume.clone());
            layers.all.insert(image.id, Arc::new(Layer::from_image(image, state, &changes)));
        }
        // Then what layers are to each other.
        for image in &image.layers {
            let layer = &layers.all[&image.id];
            if image.gone {
                layers.removing.push_back(layer.clone());
            } else if image.pending {
                layers.pending.insert(image.id);
            }
            if let Some(parent) = layers.all.get(&image.parent) {
                layer.set_parent(Some(parent.clone()));
                layers.children.entry(image.parent).or_default().insert(image.id);
            }
        }
        let lonely = layers.children.iter().filter(|(_, children)| children.len() == 1);
        layers.lonely = lonely.map(|(id, _)| *id).collect();
        // All are counted once. The checkpoint has them as they are.
        layers.all.values().for_each(|layer| layer.note_change());
        drop(changes.take());
        // Of volumes that are gone the layout is not recorded: what is destaged for them still is laid out as the pool.
        let is_orphan =
            |layer: &&Arc<Layer>| !layers.volumes.contains_key(&layer.volume.id) && !layer.is_gone();
        for layer in layers.all.values().filter(is_orphan).filter(|layer| layer.laid() != Laid::As(None)) {
            layer.mix();
        }
        layers
    }

    pub(crate) fn aliases(&self) -> &BTreeMap<LayerId, Alias> {
        self.aliases.all()
    }

    /// What a checkpoint records of a layer or a former one changed there.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    pub(crate) fn alias(&self, id: LayerId) -> Option<&Alias> {
        self.aliases.get(id)
    }

    /// The layer that owns what this one bore.
    pub(crate) fn owner(&self, birth: LayerId) -> LayerId {
        self.aliases.get(birth).map_or(birth, |alias| alias.owner)
    }

    /// The layer that a record of a volume changed, if that is still of importance.
    pub(crate) fn changed_by(&self, volume: VolumeId, sequence: Sequence) -> Option<Arc<Layer>> {
        if let Some(leaf) = self.volumes.get(&volume).filter(|leaf| leaf.holds(sequence)) {
            return Some(leaf.clone());
        }
        // The volume may have gone on with another layer or be deleted: what was forked from it lives on. Once it is
        // destaged it does not change any more.
        let held =
            |layer: &Arc<Layer>| layer.volume.id == volume && layer.holds(sequence) && !layer.is_gone();
        self.below_pending().find(held)
    }

    /// The layers that pending ones come from.
    fn below_pending(&self) -> impl Iterator<Item = Arc<Layer>> {
        let others = self.all.values().filter(|_| planted(Bug::ReplayIntoForked)).cloned();
        let pending = self.pending.iter().filter_map(|id| self.all.get(id));
        others.chain(pending.filter_map(|layer| layer.parent()))
    }

    /// The layer that a transaction makes and that is there already, if there is one: no journal of this checkpoint says so.
    pub(crate) fn made_twice(&self, transaction: &Transaction) -> Option<LayerId> {
        transaction.made_layers().find(|id| self.all.contains_key(id) || self.aliases.get(*id).is_some())
    }

    /// Applies what a transaction says of volumes. Returns the layers that volumes hold by a fork into them.
    pub(crate) fn apply(&mut self, transaction: &Transaction, sequence: Sequence) -> Vec<Arc<Layer>> {
        // NOTE: the decision on a transaction over several slices takes effect before the slice's own part.
        self.applied = self.applied.max(sequence);
        let mut forked = Vec::new();
        for operation in &transaction.operations {
            match *operation {
                Operation::CreateVolume { volume, layer } => {
                    self.ids.taken(layer);
                    let layer = Arc::new(Layer::new(layer, volume, sequence, &self.changes));
                    self.all.insert(layer.id, layer.clone());
                    self.volumes.insert(volume, layer);
                }
                Operation::DeleteVolume(volume) => {
                    if let Some(layer) = self.volumes.remove(&volume) {
                        self.give_up(layer);
                    }
                }
                Operation::Reserve { volume, bytes } => {
                    if let Some(layer) = self.volumes.get(&volume) {
                        layer.volume.reserved_bytes.store(bytes, Ordering::Release);
                        layer.note_change();
                    }
                }
                Operation::LayOut { volume, layout } => self.lay_out(volume, layout),
                Operation::Compress { volume, compression } => {
                    if let Some(layer) = self.volumes.get(&volume) {
                        layer.volume.compress(compression);
                        layer.note_change();
                    }
                }
                Operation::Deduplicate { volume, is_on } => {
                    if let Some(layer) = self.volumes.get(&volume) {
                        layer.volume.deduplicate(is_on);
                        self.is_any_deduplicated.fetch_or(is_on, Ordering::Relaxed);
                        layer.note_change();
                    }
                }
                Operation::Fork { source, target, kept, given } => {
                    forked.extend(self.fork(source, target, (kept, given), sequence));
                }
                Operation::Put { .. } | Operation::Delete { .. } | Operation::Prepare(_) => {}
            }
        }
        forked
    }

    /// What a volume has may be laid out in two ways from now on, also where it shares it with others.
    fn lay_out(&mut self, volume: VolumeId, layout: Option<Layout>) {
        let Some(leaf) = self.volumes.get(&volume) else { return };
        if leaf.volume.layout() == layout {
            return;
        }
        leaf.volume.lay_out(layout);
        // What of a former layer is buffered still is laid out as its volume is, also where the volume went on elsewhere.
        let of_volume = self.all.values().filter(|layer| layer.volume.id == volume && !layer.is_gone());
        for layer in of_volume {
            layer.mix();
        }
        self.became_uneven();
    }

    /// Has layers looked through that lie in two ways.
    pub(crate) fn became_uneven(&self) {
        self.uneven.fetch_add(1, Ordering::AcqRel);
        self.laid_out.fetch_add(1, Ordering::AcqRel);
    }

    /// What each layer is to be laid out as: a leaf as its volume; a frozen one as the volume below it whose layout tolerates
    /// the most failures, of several the oldest. `None`: as the pool, whose layout goes behind all others.
    pub(crate) fn wanted(&self) -> BTreeMap<LayerId, Option<Layout>> {
        let mut wanted: BTreeMap<LayerId, Option<Layout>> = BTreeMap::new();
        let strength = |layout: Option<Layout>| layout.map_or(0, |layout| 1 + layout.parity());
        let is_enough = |there: Option<Layout>, layout: Option<Layout>| {
            let (there, wanted) = (strength(there), strength(layout));
            if planted(Bug::LowerShared) { there <= wanted } else { there >= wanted }
        };
        // NOTE: in the order of volumes, so that the oldest one is first.
        for leaf in self.volumes.values() {
            let layout = leaf.volume.layout();
            wanted.insert(leaf.id, layout);
            let mut above = leaf.parent();
            while let Some(layer) = above {
                match wanted.get(&layer.id) {
                    // What is above has at least this already.
                    Some(other) if is_enough(*other, layout) => break,
                    _ => drop(wanted.insert(layer.id, layout)),
                }
                above = layer.parent();
            }
        }
        wanted
    }

    fn fork(
        &mut self,
        source: VolumeId,
        target: VolumeId,
        (kept, given): (LayerId, LayerId),
        sequence: Sequence,
    ) -> Option<Arc<Layer>> {
        let parent = self.volumes.get(&source)?.clone();
        parent.freeze(sequence);
        // Its two children: the source goes on with one, and the target gets the other.
        let replaced = self.volumes.get(&target).cloned();
        let state =
            replaced.as_ref().map_or_else(|| parent.volume.forked(target), |layer| layer.volume.clone());
        let forks = [(kept, parent.volume.clone()), (given, state)]
            .map(|(id, state)| Arc::new(Layer::child(id, &parent, state, sequence, &self.changes)));
        forks[1].confirm(false);
        for fork in &forks {
            self.ids.taken(fork.id);
            self.volumes.insert(fork.volume.id, fork.clone());
            self.all.insert(fork.id, fork.clone());
            self.pending.insert(fork.id);
        }
        self.children.insert(parent.id, [kept, given].into());
        if let Some(replaced) = replaced {
            self.give_up(replaced);
        }
        let [_, given] = forks;
        Some(given)
    }

    fn give_up(&mut self, layer: Arc<Layer>) {
        layer.give_up();
        self.pending.remove(&layer.id);
        self.lonely.remove(&layer.id);
        self.removing.push_back(layer);
    }

    /// Whether a layer has children without a map of their own.
    pub(crate) fn is_below_pending(&self, id: LayerId) -> bool {
        let children = self.children.get(&id).into_iter().flatten();
        children.into_iter().any(|child| self.pending.contains(child))
    }

    /// How many layers a volume's lies above the nearest one with a map.
    pub(crate) fn pending_depth(&self, volume: VolumeId) -> usize {
        let Some(leaf) = self.volumes.get(&volume) else { return 0 };
        std::iter::successors(leaf.below(), |layer| layer.below()).count()
    }

    /// Pending layers whose parents have a map, with these.
    pub(crate) fn next_to_fork(&self) -> Vec<(Arc<Layer>, Arc<Layer>)> {
        let layers = self.pending.iter().filter_map(|id| self.all.get(id));
        let with_parent = layers.filter_map(|layer| Some((layer.clone(), layer.parent()?)));
        with_parent.filter(|(_, parent)| !parent.is_pending()).collect()
    }

    /// Notes that nothing of a layer that is gone is left.
    pub(crate) fn removed(&mut self, layer: &Layer) {
        assert!(layer.is_gone(), "layer {} is removed after it was given up", layer.id);
        // It is the one that is given back first, as a rule.
        if self.removing.front().is_some_and(|first| first.id == layer.id) {
            self.removing.pop_front();
        } else {
            self.removing.retain(|other| other.id != layer.id);
        }
        self.laid_out.fetch_add(1, Ordering::AcqRel);
        let departed = self.all.remove(&layer.id);
        departed.iter().for_each(|layer| self.ids.departed(layer));
        layer.note_change();
        self.aliases.forget_owner(layer.id);
        let Some(parent) = layer.parent() else { return };
        layer.set_parent(None);
        // A parent without children goes, too. One with a single child left is to become a part of that.
        let Some(siblings) = self.children.get_mut(&parent.id) else { return };
        siblings.remove(&layer.id);
        if siblings.is_empty() {
            self.children.remove(&parent.id);
            self.give_up(parent);
        } else {
            self.lonely.insert(parent.id);
        }
    }

    /// Makes a frozen layer with one child a part of that child. None is left to be so if it returns `None`.
    pub(crate) fn merge_one(&mut self) -> Option<Arc<Layer>> {
        let (parent, child) = self.lonely.iter().find_map(|id| {
            let (parent, children) = (self.all.get(id)?, self.children.get(id)?);
            let child = self.all.get(children.first()?)?;
            let is_ready = !child.is_pending()
                && !child.is_gone()
                && child.lists.lock().sifting.is_empty()
                && parent.lists.lock().sifting.is_empty();
            is_ready.then(|| (parent.clone(), child.clone()))
        })?;
        // The child takes the parent's place in the tree.
        self.lonely.remove(&parent.id);
        self.children.remove(&parent.id);
        self.all.remove(&parent.id);
        self.ids.departed(&parent);
        let above = parent.parent();
        if let Some(siblings) = above.as_ref().and_then(|above| self.children.get_mut(&above.id)) {
            siblings.remove(&parent.id);
            siblings.insert(child.id);
        }
        child.set_parent(above);
        parent.give_up();
        parent.set_parent(None);
        self.laid_out.fetch_add(1, Ordering::AcqRel);
        self.join(&parent, &child);
        Some(child)
    }

    /// What the parent owned and listed becomes the child's.
    fn join(&mut self, parent: &Layer, child: &Layer) {
        self.aliases.join(parent.id, child.id, parent.births.load(Ordering::Relaxed));
        child.owned_blocks.fetch_add(parent.owned_blocks.load(Ordering::Relaxed));
        child.lend(parent.lent());
        child.takes_over(parent);
        {
            let mut lists = child.lists.lock();
            lists.inherit(mem::take(&mut *parent.lists.lock()));
            if planted(Bug::KeepOldList) {
                lists.sift_nothing();
            }
        }
        // Only what descends from a layer lists what it owned.
        let mut next = vec![child.id];
        while let Some(id) = next.pop() {
            next.extend(self.children.get(&id).into_iter().flatten());
            let Some(layer) = self.all.get(&id) else { continue };
            let mut lists = layer.lists.lock();
            if lists.names(parent.id) {
                lists.rename(parent.id, child.id);
            }
        }
        debug_assert!(
            !self.all.values().any(|layer| layer.lists.lock().names(parent.id)),
            "a layer lists what a layer owns that it does not descend from"
        );
    }

    /// How many layers are still to become one with another.
    pub(crate) fn joining(&self) -> u64 {
        self.lonely.len() as u64
    }

    /// Whether ids of layers may come free without anything being deleted.
    pub(crate) fn may_free_ids(&self) -> bool {
        self.ids.may_any_come_free()
            || !self.removing.is_empty()
            || !self.lonely.is_empty()
            || self.sifting().is_some()
    }

    /// The layer whose list was being looked through; those that are gone do it when they are given back.
    pub(crate) fn sifting(&self) -> Option<Arc<Layer>> {
        let sifts = |layer: &&Arc<Layer>| !layer.is_gone() && !layer.lists.lock().sifting.is_empty();
        self.all.values().find(sifts).cloned()
    }

    /// Counts one less of what this layer bore.
    pub(crate) fn forget_birth(&mut self, birth: LayerId) {
        if let Some(layer) = self.all.get(&birth) {
            layer.births.fetch_sub(1);
        } else {
            self.aliases.forget_birth(birth);
        }
    }

    /// The blocks that come back at least if a volume is deleted: others may have some of what it has lent.
    pub(crate) fn freed_by_delete(&self, volume: VolumeId) -> u64 {
        let (released, lent) = self.released_by_delete(volume);
        released.saturating_sub(lent.min(self.copies.load(Ordering::Relaxed)))
    }

    /// The references to blocks that go, and how many of them may be to blocks of others too.
    fn released_by_delete(&self, volume: VolumeId) -> (u64, u64) {
        let Some(mut layer) = self.volumes.get(&volume).cloned() else { return (0, 0) };
        let (mut released, mut lent) = (0, 0);
        loop {
            released += layer.held();
            lent += layer.lent();
            let Some(parent) = layer.parent() else { return (released, lent) };
            let siblings = self.children.get(&parent.id).into_iter().flatten();
            let mut siblings = siblings.filter(|id| **id != layer.id).filter_map(|id| self.all.get(id));
            // Without siblings the parent goes, too. With one, what that one does not use of the parent's goes.
            match (siblings.next(), siblings.next()) {
                (None, _) => layer = parent,
                (Some(only), None) => {
                    let dropped = only.lists.lock().dropped(parent.id);
                    return (released + dropped, lent + dropped.min(parent.lent()));
                }
                _ => return (released, lent),
            }
        }
    }
}
