//! The catalog as a checkpoint records it: layers, and objects of the layers above.

use crate::{
    error::PoolError,
    fork::layer::Lists,
    format::Root,
    meta::{ObjectKind, heap::RecordHeap, reader::Reader, records::CatalogRecord},
};
use quoin_base::{LayerId, Sequence, VolumeId};
use std::collections::{BTreeMap, BTreeSet};

#[cfg(any(test, feature = "fuzzing"))]
mod whole;

/// A list of entries in pages of the tree space, the page written last first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeadList {
    /// Page number; 0: the list is empty.
    pub head: u64,
    pub entries: u64,
}

/// A layer's flags. Without the last, no owners of blocks in the list that is being sifted are recorded.
const PENDING: u8 = 1;
const GONE: u8 = 2;
const SIFTING: u8 = 4;

/// A layer as a checkpoint records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LayerImage {
    pub id: LayerId,
    pub family: LayerId,
    /// The volume whose it is or was.
    pub volume: VolumeId,
    /// 0: none.
    pub parent: LayerId,
    pub born: Sequence,
    pub frozen_at: Option<Sequence>,
    /// The entry of the tree's root; 0: the tree is empty.
    pub root: u64,
    pub mapped_blocks: u64,
    pub owned_blocks: u64,
    /// Blocks and tree pages whose birth names it.
    pub births: u64,
    /// Of the blocks that it owns, at least those that others own too.
    pub lent_blocks: u64,
    /// Space promised to its volume; 0: none.
    pub reserved_bytes: u64,
    /// It has no map of its own yet.
    pub pending: bool,
    /// It was given up; what it owns is being given back.
    pub gone: bool,
    pub lists: Lists,
}

impl LayerImage {
    /// An empty one.
    pub(crate) fn new(id: LayerId, volume: VolumeId, born: Sequence) -> Self {
        Self {
            id,
            family: id,
            volume,
            parent: LayerId(0),
            born,
            frozen_at: None,
            root: 0,
            mapped_blocks: 0,
            owned_blocks: 0,
            births: 0,
            lent_blocks: 0,
            reserved_bytes: 0,
            pending: false,
            gone: false,
            lists: Lists::default(),
        }
    }

    /// Whether a volume writes to it.
    pub(crate) fn is_leaf(&self) -> bool {
        self.frozen_at.is_none() && !self.gone
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let ids = [self.id.0, self.family.0, self.volume.0, self.parent.0];
        ids.iter().for_each(|id| out.extend(id.to_le_bytes()));
        let frozen_at = self.frozen_at.map_or(0, |sequence| sequence.0);
        let words = [
            self.born.0,
            frozen_at,
            self.root,
            self.mapped_blocks,
            self.owned_blocks,
            self.births,
            self.lent_blocks,
            self.reserved_bytes,
            self.lists.dead.head,
            self.lists.dead.entries,
            self.lists.sifting.head,
            self.lists.sifting.entries,
        ];
        words.iter().for_each(|word| out.extend(word.to_le_bytes()));
        let flags = [(self.pending, PENDING), (self.gone, GONE), (self.is_sifting(), SIFTING)];
        out.push(flags.iter().filter(|(is, _)| *is).map(|(_, flag)| flag).sum());
        encode_blocks(out, &self.lists.dead_blocks);
        if self.is_sifting() {
            encode_blocks(out, &self.lists.sifting_blocks);
        }
    }

    fn is_sifting(&self) -> bool {
        !self.lists.sifting_blocks.is_empty()
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, PoolError> {
        let (id, family) = (reader.layer()?, reader.layer()?);
        let (volume, parent) = (VolumeId(reader.u32()?), LayerId(reader.u32()?));
        let born = Sequence(reader.u64()?);
        let frozen_at = Some(Sequence(reader.u64()?)).filter(|sequence| sequence.0 != 0);
        let (root, mapped_blocks) = (reader.u64()?, reader.u64()?);
        let (owned_blocks, births) = (reader.u64()?, reader.u64()?);
        let (lent_blocks, reserved_bytes) = (reader.u64()?, reader.reservation()?);
        let dead = DeadList { head: reader.u64()?, entries: reader.u64()? };
        let sifting = DeadList { head: reader.u64()?, entries: reader.u64()? };
        let flags = reader.u8()?;
        if flags > PENDING + GONE + SIFTING {
            return Err(reader.damaged("a layer has unknown flags"));
        }
        let dead_blocks = decode_blocks(reader)?;
        let sifting_blocks = if flags & SIFTING != 0 { decode_blocks(reader)? } else { BTreeMap::new() };
        let lists = Lists { dead, dead_blocks, sifting, sifting_blocks };
        let (pending, gone) = (flags & PENDING != 0, flags & GONE != 0);
        Ok(Self {
            id,
            family,
            volume,
            parent,
            born,
            frozen_at,
            root,
            mapped_blocks,
            owned_blocks,
            births,
            lent_blocks,
            reserved_bytes,
            pending,
            gone,
            lists,
        })
    }
}

/// How many blocks of a list each layer owns.
fn encode_blocks(out: &mut Vec<u8>, blocks: &BTreeMap<LayerId, u64>) {
    out.extend((blocks.len() as u32).to_le_bytes());
    for (owner, blocks) in blocks {
        out.extend(owner.0.to_le_bytes());
        out.extend(blocks.to_le_bytes());
    }
}

fn decode_blocks(reader: &mut Reader<'_>) -> Result<BTreeMap<LayerId, u64>, PoolError> {
    let mut blocks = BTreeMap::new();
    for _ in 0..reader.u32()? {
        blocks.insert(reader.layer()?, reader.u64()?);
    }
    Ok(blocks)
}

/// What became of a layer that is a part of another by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alias {
    pub owner: LayerId,
    /// Blocks and tree pages whose birth names it still.
    pub births: u64,
}

/// The catalog as a checkpoint records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CatalogImage {
    pub objects: BTreeMap<(ObjectKind, String), Vec<u8>>,
    pub layers: Vec<LayerImage>,
    pub aliases: BTreeMap<LayerId, Alias>,
    /// Layer ids from here on were not given out.
    pub next_layer: u32,
    /// References to blocks beyond the first of each.
    pub copies: u64,
    /// The last catalog transaction in it.
    pub applied: Sequence,
}

/// What a root says of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CatalogHead {
    /// Numbers of its pages are below.
    pub pages_end: u64,
    pub records: u64,
    pub next_layer: u32,
    pub copies: u64,
    pub applied: Sequence,
}

impl CatalogHead {
    pub(crate) fn of(root: &Root) -> Self {
        Self {
            pages_end: root.catalog_pages.get(),
            records: root.catalog_records.get(),
            // The empty catalog of a new pool.
            next_layer: root.next_layer.get().max(1),
            copies: root.copies.get(),
            applied: Sequence(root.applied.get()),
        }
    }

    pub(crate) fn enter(&self, root: &mut Root) {
        root.catalog_pages = self.pages_end.into();
        root.catalog_records = self.records.into();
        root.next_layer = self.next_layer.into();
        root.copies = self.copies.into();
        root.applied = self.applied.0.into();
    }
}

impl Default for CatalogImage {
    fn default() -> Self {
        let (objects, layers, aliases) = Default::default();
        Self { objects, layers, aliases, next_layer: 1, copies: 0, applied: Sequence(0) }
    }
}

impl CatalogImage {
    /// What the pages of a checkpoint hold, by number, with what its root says of it.
    pub(crate) fn read(
        pages: &BTreeMap<u64, Vec<u8>>,
        root: &CatalogHead,
    ) -> Result<(Self, RecordHeap), PoolError> {
        let CatalogHead { next_layer, copies, applied, .. } = *root;
        let (image, heap) = Self::collect(pages)?;
        let image = Self { next_layer, copies, applied, ..image };
        if heap.count() != root.records {
            let problem = format!("it has {} records, and {} were written", heap.count(), root.records);
            return Err(PoolError::corrupt("the catalog", problem));
        }
        match image.check() {
            Some(why) => Err(PoolError::corrupt("the catalog", why)),
            None => Ok((image, heap)),
        }
    }

    fn collect(pages: &BTreeMap<u64, Vec<u8>>) -> Result<(Self, RecordHeap), PoolError> {
        let mut image = Self::default();
        let heap = RecordHeap::read(pages, |bytes| {
            let record = CatalogRecord::decode(bytes)?;
            let key = record.key();
            match record {
                CatalogRecord::Layer(layer) => image.layers.push(*layer),
                CatalogRecord::Alias(id, alias) => drop(image.aliases.insert(id, alias)),
                CatalogRecord::Object(key, value) => drop(image.objects.insert(key, value)),
            }
            Ok(key)
        })?;
        image.layers.sort_unstable_by_key(|layer| layer.id);
        Ok((image, heap))
    }

    /// The layers, each behind its parent, if it has one; without those that descend from themselves.
    pub(crate) fn parents_first(&self) -> Vec<&LayerImage> {
        let ids: BTreeSet<LayerId> = self.layers.iter().map(|layer| layer.id).collect();
        let mut children: BTreeMap<LayerId, Vec<&LayerImage>> = BTreeMap::new();
        for layer in &self.layers {
            let parent = Some(layer.parent).filter(|parent| ids.contains(parent)).unwrap_or(LayerId(0));
            children.entry(parent).or_default().push(layer);
        }
        let mut ordered = children.remove(&LayerId(0)).unwrap_or_default();
        let mut next = 0;
        while let Some(layer) = ordered.get(next) {
            let below = children.remove(&layer.id).unwrap_or_default();
            ordered.extend(below);
            next += 1;
        }
        ordered
    }

    /// Why no pool has such layers, if so.
    fn check(&self) -> Option<String> {
        let ids: BTreeMap<LayerId, &LayerImage> = self.layers.iter().map(|layer| (layer.id, layer)).collect();
        if ids.len() != self.layers.len() {
            return Some("a layer is there twice".into());
        }
        if self.parents_first().len() != self.layers.len() {
            return Some("a layer descends from itself".into());
        }
        for layer in &self.layers {
            let id = layer.id;
            let parent_fits = match layer.parent {
                LayerId(0) => true,
                parent => ids.get(&parent).is_some_and(|p| p.family == layer.family),
            };
            if !parent_fits {
                return Some(format!("layer {id} has an impossible parent"));
            }
            if id.0 >= self.next_layer || layer.pending && layer.parent == LayerId(0) {
                return Some(format!("layer {id} is impossible"));
            }
        }
        let lost = self.aliases.iter().find(|(id, alias)| {
            ids.contains_key(*id) || !ids.contains_key(&alias.owner) || id.0 >= self.next_layer
        });
        lost.map(|(id, _)| format!("what became of layer {id} is impossible"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::encode_layer;

    #[test]
    fn what_is_encoded_decodes_and_what_is_cut_short_or_impossible_is_refused() {
        let mut image =
            CatalogImage { next_layer: 9, copies: 2, applied: Sequence(44), ..CatalogImage::default() };
        image.objects.insert((ObjectKind(1), "v1".into()), b"{}".to_vec());
        let parent = LayerImage::new(LayerId(3), VolumeId(3), Sequence(1));
        image.layers.push(LayerImage { frozen_at: Some(Sequence(5)), births: 2, ..parent });
        image.layers.push(LayerImage {
            family: LayerId(3),
            parent: LayerId(3),
            root: 9 | 3 << 40,
            mapped_blocks: 7,
            owned_blocks: 2,
            lent_blocks: 1,
            reserved_bytes: 8 << 13,
            gone: true,
            lists: Lists {
                dead: DeadList { head: 4, entries: 3 },
                dead_blocks: [(LayerId(3), 3)].into(),
                sifting: DeadList { head: 5, entries: 1 },
                sifting_blocks: [(LayerId(4), 1)].into(),
            },
            ..LayerImage::new(LayerId(4), VolumeId(4), Sequence(5))
        });
        image.aliases.insert(LayerId(1), Alias { owner: LayerId(3), births: 1 });
        let read = |pages: &BTreeMap<u64, Vec<u8>>, head| CatalogImage::read(pages, &head);
        let (pages, head) = image.to_pages();
        assert_eq!(read(&pages, head).unwrap().0, image);
        assert!(read(&BTreeMap::new(), head).is_err());
        for layer in &image.layers {
            let bytes = encode_layer(layer);
            assert_eq!(CatalogRecord::decode(&bytes).unwrap(), CatalogRecord::Layer(Box::new(layer.clone())));
            for len in 0..bytes.len() {
                assert!(CatalogRecord::decode(&bytes[..len]).is_err());
            }
        }
        for spoil in [
            |image: &mut CatalogImage| image.layers[0].parent = LayerId(4),
            |image: &mut CatalogImage| image.layers[0].pending = true,
            |image: &mut CatalogImage| image.next_layer = 4,
            |image: &mut CatalogImage| {
                image.aliases.extend([(LayerId(2), Alias { owner: LayerId(8), births: 1 })])
            },
        ] {
            let mut spoilt = image.clone();
            spoil(&mut spoilt);
            let (pages, head) = spoilt.to_pages();
            assert!(read(&pages, head).is_err());
        }
    }
}
