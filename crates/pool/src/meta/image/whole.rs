//! A whole catalog to pages and back, for tests and fuzz targets.

use crate::meta::{
    CatalogHead, CatalogImage, LayerImage, RecordHeap, RecordKey, encode_alias, encode_layer, encode_object,
};
#[cfg(feature = "fuzzing")]
use crate::{error::PoolError, format::LAYERS_END};
use quoin_base::{LayerId, PageNumber};
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

impl CatalogImage {
    /// What pages hold, whatever their root says.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn of_pages(pages: &BTreeMap<PageNumber, Vec<u8>>) -> Result<Self, PoolError> {
        let image = Self { next_layer: LAYERS_END, ..Self::collect(pages)?.0 };
        image.check().map_or(Ok(image), |why| Err(PoolError::corrupt("the catalog", why)))
    }

    /// Its records, in pages of their own.
    pub(crate) fn to_pages(&self) -> (BTreeMap<PageNumber, Vec<u8>>, CatalogHead) {
        let layers: BTreeMap<LayerId, &LayerImage> = self.layers.iter().map(|l| (l.id, l)).collect();
        let mut heap = RecordHeap::new(usize::MAX);
        layers.keys().for_each(|id| heap.note(RecordKey::Layer(*id)));
        self.aliases.keys().for_each(|id| heap.note(RecordKey::Alias(*id)));
        let objects = self.objects.keys();
        objects.for_each(|(kind, key)| heap.note(RecordKey::Object(*kind, key.as_str().into())));
        let cut = heap.cut(|key| match key {
            RecordKey::Layer(id) => layers.get(id).map(|layer| encode_layer(layer)),
            RecordKey::Alias(id) => self.aliases.get(id).map(|alias| encode_alias(*id, alias)),
            RecordKey::Object(kind, key) => {
                let value = self.objects.get(&(*kind, key.to_string()))?;
                Some(encode_object(*kind, key, value))
            }
        });
        let pages = cut.into_iter().filter_map(|(page, words)| Some((page, words?.as_bytes().to_vec())));
        let CatalogImage { next_layer, copies, applied, .. } = *self;
        let (pages_end, records) = (heap.pages_end(), heap.count());
        (pages.collect(), CatalogHead { pages_end, records, next_layer, copies, applied })
    }
}
