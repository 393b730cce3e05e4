//! What volumes have of the pool's space: what they map, what nobody else has, what deleting them gives back.
//!
//! All of it follows from counts that layers keep, so it takes no walk of any map, and speaks of what is destaged. The
//! offline check derives the same figures from the maps themselves.

use crate::fork::{layer::Layer, layers::Layers};
use quoin_base::{LayerId, VolumeId};
use quoin_world::atomic::Ordering;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// What one volume, or several together, have of the pool's space. Bytes of whole pool blocks that are destaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeSpace {
    /// What their maps lead to: what hosts wrote and did not unmap, each volume by itself.
    pub written_bytes: u64,
    /// Of it, what was written, or copied there by reference, since the last fork of or into the volume: no fork has it.
    pub own_bytes: u64,
    /// What nobody refers to any more from these volumes if just they are deleted, each reference by itself.
    pub released_bytes: u64,
    /// What of that comes back at least: all of it, unless range copies may have it too.
    pub freed_bytes: u64,
}

impl VolumeSpace {
    /// Of what is written, what other volumes may have too.
    pub fn shared_bytes(&self) -> u64 {
        self.written_bytes.saturating_sub(self.own_bytes)
    }

    /// The most that deleting them gives back: all they map, once nobody else shares it.
    pub fn freed_at_most_bytes(&self) -> u64 {
        self.written_bytes.max(self.freed_bytes)
    }
}

/// What compression and deduplication save on a volume, by some of its blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReductionEstimate {
    /// How many blocks that is by. 0: nothing is known, and nothing saved.
    pub blocks: u64,
    /// What of their bytes is left once they are compressed, from 0 to 1, or somewhat more if they do not compress.
    pub compressed: f64,
    /// What of these bytes is left if each block counts for those that have it in equal parts: references of range copies and of
    /// deduplication, not those of forks. From 0 to 1.
    pub deduplicated: f64,
}

impl ReductionEstimate {
    /// From what so many blocks take as they are stored, and their part of it if each counts for all that have it.
    pub(crate) fn new(blocks: u64, block_bytes: u64, stored: f64, shared: f64) -> Self {
        if blocks == 0 {
            return Self { blocks, compressed: 1.0, deduplicated: 1.0 };
        }
        let whole = (blocks * block_bytes) as f64;
        Self { blocks, compressed: stored / whole, deduplicated: shared / stored }
    }

    /// What so many bytes of host data take once they are compressed, each block stored by itself.
    pub fn compressed_bytes(&self, written_bytes: u64) -> u64 {
        (written_bytes as f64 * self.compressed).round() as u64
    }

    /// What so many bytes of host data take of the pool.
    pub fn physical_bytes(&self, written_bytes: u64) -> u64 {
        (written_bytes as f64 * self.compressed * self.deduplicated).round() as u64
    }
}

/// What all volumes have of the pool's space. Bytes of whole pool blocks that are destaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSpace {
    /// What the maps of all volumes lead to, each volume by itself.
    pub written_bytes: u64,
    /// Blocks that there are, each once: the following three less what range copies have once more.
    pub unique_bytes: u64,
    /// References to blocks beyond the first of each: what range copies save.
    pub copied_bytes: u64,
    /// Those that were written, or copied there, since the last fork of or into their volume.
    pub own_bytes: u64,
    /// Those that forks share, or that only the past of one holds.
    pub shared_bytes: u64,
    /// Those of volumes that were deleted or replaced, which are being given back.
    pub removing_bytes: u64,
    /// Nothing is being given back: what a deletion frees is exact.
    pub settled: bool,
}

impl VolumeSpace {
    /// Takes in what volumes have of another slice.
    pub(crate) fn add(&mut self, other: &Self) {
        self.written_bytes += other.written_bytes;
        self.own_bytes += other.own_bytes;
        self.released_bytes += other.released_bytes;
        self.freed_bytes += other.freed_bytes;
    }
}

impl PoolSpace {
    /// Takes in what volumes have of another slice.
    pub(crate) fn add(&mut self, other: &Self) {
        self.written_bytes += other.written_bytes;
        self.unique_bytes += other.unique_bytes;
        self.copied_bytes += other.copied_bytes;
        self.own_bytes += other.own_bytes;
        self.shared_bytes += other.shared_bytes;
        self.removing_bytes += other.removing_bytes;
        self.settled &= other.settled;
    }
}

/// The layers that there would be without some volumes.
struct Remaining<'a> {
    layers: &'a Layers,
    /// Of each that remains, those of its children that do.
    children: BTreeMap<LayerId, Vec<LayerId>>,
}

impl<'a> Remaining<'a> {
    fn without(layers: &'a Layers, volumes: &BTreeSet<VolumeId>) -> Self {
        let mut children: BTreeMap<LayerId, Vec<LayerId>> = BTreeMap::new();
        let leaves = layers.volumes.iter().filter(|(id, _)| !volumes.contains(id)).map(|(_, leaf)| leaf);
        for leaf in leaves {
            children.entry(leaf.id).or_default();
            let mut below = leaf.clone();
            while let Some(parent) = below.parent() {
                let siblings = children.entry(parent.id).or_default();
                if siblings.contains(&below.id) {
                    break;
                }
                siblings.push(below.id);
                below = parent;
            }
        }
        Self { layers, children }
    }

    /// The only child that a layer has left, of which it becomes a part.
    fn becomes(&self, layer: LayerId) -> Option<&'a Arc<Layer>> {
        match self.children.get(&layer).map(Vec::as_slice) {
            Some([only]) => self.layers.all.get(only),
            _ => None,
        }
    }

    /// References to blocks that are not needed any more, and at most how many of them lead to blocks of others too.
    fn released(&self) -> (u64, u64) {
        let (mut released, mut lent) = (0, 0);
        for layer in self.layers.all.values() {
            if !self.children.contains_key(&layer.id) {
                released += layer.owned_blocks.load(Ordering::Relaxed);
                lent += if layer.is_gone() { 0 } else { layer.lent() };
                continue;
            }
            // What it owns and a layer that it becomes a part of has dropped.
            let chain = std::iter::successors(self.becomes(layer.id), |below| self.becomes(below.id));
            let dropped: u64 = chain.map(|below| below.lists.lock().dropped(layer.id)).sum();
            released += dropped + layer.unreached();
            lent += dropped.min(layer.lent());
        }
        (released, lent)
    }
}

impl Layers {
    /// The references to blocks that go if these volumes are deleted, beside what goes anyway, and the blocks that come
    /// back with them at least.
    fn freed_without(&self, volumes: &BTreeSet<VolumeId>) -> (u64, u64) {
        let anyway = Remaining::without(self, &BTreeSet::new()).released();
        let (released, lent) = Remaining::without(self, volumes).released();
        let released = released.saturating_sub(anyway.0);
        let shared = lent.min(self.copies.load(Ordering::Relaxed));
        (released, released.saturating_sub(shared))
    }

    /// What volumes have of the space, all together; those that there are not have nothing.
    pub(crate) fn space_of(&self, volumes: &BTreeSet<VolumeId>, block_bytes: u64) -> VolumeSpace {
        let mut space = VolumeSpace::default();
        for leaf in volumes.iter().filter_map(|id| self.volumes.get(id)) {
            space.written_bytes += leaf.mapped() * block_bytes;
            space.own_bytes += leaf.held() * block_bytes;
        }
        let (released, freed) = self.freed_without(volumes);
        (space.released_bytes, space.freed_bytes) = (released * block_bytes, freed * block_bytes);
        space
    }

    /// What all volumes have of the space.
    pub(crate) fn space(&self, block_bytes: u64) -> PoolSpace {
        let copied_bytes = self.copies.load(Ordering::Relaxed) * block_bytes;
        let mut space = PoolSpace { settled: self.joining() == 0, copied_bytes, ..PoolSpace::default() };
        for layer in self.all.values() {
            space.settled &= !layer.is_gone() && layer.lists.lock().sifting.is_empty();
            let owned = layer.owned_blocks.load(Ordering::Relaxed) * block_bytes;
            space.unique_bytes += owned;
            if layer.is_gone() {
                space.removing_bytes += owned;
                continue;
            }
            space.removing_bytes += layer.unreached() * block_bytes;
            let held = layer.held() * block_bytes;
            if layer.is_live() {
                space.own_bytes += held;
                space.written_bytes += layer.mapped() * block_bytes;
            } else {
                space.shared_bytes += held;
            }
        }
        space.unique_bytes = space.unique_bytes.saturating_sub(copied_bytes);
        space
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fork::lists::{DeadList, Lists},
        meta::{CatalogImage, LayerImage},
    };
    use quoin_base::{PageNumber, Sequence};

    const FIRST: LayerId = LayerId(1);

    /// Layer 1, of which 2 and the snapshot 3 came, and of 2 the leaf 4.
    fn image() -> CatalogImage {
        let layer = |id: u32, parent: u32, volume: u32, owned_blocks: u64, dead: &[(u32, u64)]| LayerImage {
            family: FIRST,
            parent: LayerId(parent),
            frozen_at: (id < 3).then_some(Sequence(9)),
            owned_blocks,
            lists: Lists {
                dead: DeadList {
                    head: PageNumber(10 + u64::from(id)),
                    entries: dead.iter().map(|(_, count)| count).sum(),
                },
                dead_blocks: dead.iter().map(|(id, count)| (LayerId(*id), *count)).collect(),
                ..Lists::default()
            },
            ..LayerImage::new(LayerId(id), VolumeId(volume), Sequence(1))
        };
        let layers = vec![
            layer(1, 0, 1, 10, &[]),
            layer(2, 1, 1, 4, &[(1, 2)]),
            layer(3, 1, 2, 1, &[]),
            layer(4, 2, 1, 5, &[(1, 3), (2, 1)]),
        ];
        CatalogImage { layers, next_layer: 5, ..CatalogImage::default() }
    }

    #[test]
    fn what_a_layer_takes_in_changes_no_figure() {
        let mut layers = Layers::from_image(&image());
        let [volume, snapshot] = [1, 2].map(|id| BTreeSet::from([VolumeId(id)]));
        let figures = |layers: &Layers| {
            let [volume, snapshot] = [&volume, &snapshot].map(|of| layers.space_of(of, 1));
            (volume.released_bytes, snapshot.released_bytes, layers.space(1).unique_bytes)
        };
        // Of the snapshot: its own, and what 2 and 4 dropped of the first. Of the volume: what 2 and 4 own but for one
        // block of 2 that 4 dropped.
        let before = figures(&layers);
        assert_eq!(before, (8, 6, 20));
        let taken = layers.merge_one().unwrap();
        assert_eq!((taken.id, taken.unreached(), taken.held()), (LayerId(4), 1, 8));
        assert_eq!(figures(&layers), before);
        let space = layers.space(1);
        assert_eq!((space.own_bytes, space.shared_bytes, space.removing_bytes), (9, 10, 1));
        // Written down and read again it is the same.
        let kept = CatalogImage {
            layers: layers.all.values().map(|layer| layer.image()).collect(),
            aliases: layers.aliases().clone(),
            next_layer: 5,
            ..CatalogImage::default()
        };
        let (pages, head) = kept.to_pages();
        let (kept, _) = CatalogImage::read(&pages, &head).unwrap();
        assert_eq!(figures(&Layers::from_image(&kept)), before);
    }
}
