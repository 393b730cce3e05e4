//! Doors for the fuzz targets to parsers that nobody else outside may call. Each returns what it read as it
//! would be written, if it could be read.

use crate::meta::{CatalogImage, LayerImage, Operation, Transaction};

/// A catalog transaction.
pub fn transaction(bytes: &[u8]) -> Option<Vec<u8>> {
    Transaction::decode(bytes).ok().map(|transaction| transaction.encode())
}

/// The catalog of a checkpoint.
pub fn catalog(bytes: &[u8]) -> Option<Vec<u8>> {
    CatalogImage::decode(bytes).ok().map(|catalog| catalog.encode())
}

/// A transaction as it is in the journal.
pub fn encoded(transaction: &Transaction) -> Vec<u8> {
    transaction.encode()
}

/// A catalog that a transaction made of nothing.
pub fn encoded_catalog(transaction: &Transaction) -> Vec<u8> {
    let mut image = CatalogImage::default();
    for operation in transaction.operations.iter().cloned() {
        match operation {
            Operation::Put { kind, key, value } => drop(image.objects.insert((kind, key), value)),
            Operation::Delete { kind, key } => drop(image.objects.remove(&(kind, key))),
            Operation::CreateVolume(volume) => image.layers.push(LayerImage {
                volume,
                generation: 1,
                root: Some(1),
                mapped_blocks: 7,
                reserved_bytes: 0,
                deleting: false,
            }),
            Operation::DeleteVolume(volume) => image.layers.retain(|layer| layer.volume != volume),
            Operation::Reserve { volume, bytes } => {
                let layers = image.layers.iter_mut().filter(|layer| layer.volume == volume);
                layers.for_each(|layer| layer.reserved_bytes = bytes);
            }
        }
    }
    image.encode()
}
