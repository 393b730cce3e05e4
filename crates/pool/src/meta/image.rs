//! The catalog as a checkpoint records it: layers, and objects of the layers above.

use crate::{
    error::PoolError,
    format::Root,
    meta::{
        ObjectKind,
        heap::RecordHeap,
        layer_image::{Alias, LayerImage},
        records::CatalogRecord,
    },
};
use quoin_base::{LayerId, PageNumber, Sequence};
use std::collections::{BTreeMap, BTreeSet};

#[cfg(any(test, feature = "fuzzing"))]
mod whole;

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
        pages: &BTreeMap<PageNumber, Vec<u8>>,
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

    fn collect(pages: &BTreeMap<PageNumber, Vec<u8>>) -> Result<(Self, RecordHeap), PoolError> {
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
    use crate::fork::lists::{DeadList, Lists};
    use crate::meta::{Laid, encode_layer};
    use quoin_base::{Layout, VolumeId};

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
            layout: Layout::of_columns((3, 1)),
            laid: Laid::Mixed,
            gone: true,
            lists: Lists {
                dead: DeadList { head: PageNumber(4), entries: 3 },
                dead_blocks: [(LayerId(3), 3)].into(),
                sifting: DeadList { head: PageNumber(5), entries: 1 },
                sifting_blocks: [(LayerId(4), 1)].into(),
            },
            ..LayerImage::new(LayerId(4), VolumeId(4), Sequence(5))
        });
        image.aliases.insert(LayerId(1), Alias { owner: LayerId(3), births: 1 });
        let read = |pages: &BTreeMap<PageNumber, Vec<u8>>, head| CatalogImage::read(pages, &head);
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
