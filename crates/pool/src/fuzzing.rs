//! Doors for the fuzz targets to parsers that nobody else outside may call. Each returns what it read as it
//! would be written, if it could be read.

use crate::{
    format::PAGE_BYTES,
    meta::{CatalogImage, LayerImage, Operation, Transaction},
};
use quoin_base::{LayerId, PageNumber, Sequence};

/// A catalog transaction.
pub fn transaction(bytes: &[u8]) -> Option<Vec<u8>> {
    Transaction::decode(bytes).ok().map(|transaction| transaction.encode())
}

/// The pages of a checkpoint's catalog, one behind the other.
pub fn catalog(bytes: &[u8]) -> Option<Vec<u8>> {
    let pages = (0..).map(PageNumber).zip(bytes.chunks(PAGE_BYTES).map(<[u8]>::to_vec)).collect();
    let image = CatalogImage::of_pages(&pages).ok()?;
    Some(image.to_pages().0.into_values().flatten().collect())
}

/// A transaction as it is in the journal.
pub fn encoded(transaction: &Transaction) -> Vec<u8> {
    transaction.encode()
}

/// A catalog that a transaction made of nothing.
pub fn encoded_catalog(transaction: &Transaction) -> Vec<u8> {
    let mut image = CatalogImage::default();
    let mut transaction = transaction.clone();
    transaction.number_layers((1..).map(LayerId));
    image.next_layer = 1 + transaction.made_layers().count() as u32;
    for operation in transaction.operations {
        match operation {
            Operation::Put { kind, key, value } => drop(image.objects.insert((kind, key), value)),
            Operation::Delete { kind, key } => drop(image.objects.remove(&(kind, key))),
            Operation::CreateVolume { volume, layer } => image.layers.push(LayerImage {
                root: 1 | u64::from(layer.0) << 40,
                mapped_blocks: 7,
                ..LayerImage::new(layer, volume, Sequence(1))
            }),
            Operation::Fork { source, target, kept, given } => {
                let Some(parent) = image.layers.iter_mut().find(|l| l.volume == source && l.is_leaf()) else {
                    continue;
                };
                parent.frozen_at = Some(Sequence(2));
                let (family, parent) = (parent.family, parent.id);
                for (id, volume) in [(kept, source), (given, target)] {
                    let layer = LayerImage::new(id, volume, Sequence(2));
                    image.layers.push(LayerImage { family, parent, pending: true, ..layer });
                }
            }
            Operation::DeleteVolume(volume) => {
                let layers =
                    image.layers.iter_mut().filter(|layer| layer.volume == volume && layer.is_leaf());
                layers.for_each(|layer| layer.gone = true);
            }
            Operation::Reserve { volume, bytes } => {
                let layers = image.layers.iter_mut().filter(|layer| layer.volume == volume);
                layers.for_each(|layer| layer.reserved_bytes = bytes);
            }
            Operation::LayOut { volume, layout } => {
                let layers = image.layers.iter_mut().filter(|layer| layer.volume == volume);
                layers.for_each(|layer| layer.layout = layout);
            }
            Operation::Compress { volume, compression } => {
                let layers = image.layers.iter_mut().filter(|layer| layer.volume == volume);
                layers.for_each(|layer| layer.compression = compression);
            }
            Operation::Deduplicate { volume, is_on } => {
                let layers = image.layers.iter_mut().filter(|layer| layer.volume == volume);
                layers.for_each(|layer| layer.is_deduplicated = is_on);
            }
            Operation::Prepare(_) => {}
        }
    }
    image.to_pages().0.into_values().flatten().collect()
}
