//! The catalog: objects of the layers above, by kind and key, and the list of volumes.
//!
//! A change is a [`Transaction`]: one journal record that carries the full new values, applied in RAM once it
//! is hardened. A checkpoint writes the whole catalog as one byte string; it is small.

use crate::{error::PoolError, tree::MAX_BLOCKS};
use quoin_base::{KIB, VolumeId};
use quoin_world::Mutex;
use std::collections::BTreeMap;

/// What sort of object a catalog entry is. Numbers belong to the layers above and are never given another
/// meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct ObjectKind(pub u16);

/// Changes to the catalog that take effect together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    pub(crate) operations: Vec<Operation>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Put { kind: ObjectKind, key: String, value: Vec<u8> },
    Delete { kind: ObjectKind, key: String },
    CreateVolume(VolumeId),
    DeleteVolume(VolumeId),
    Reserve { volume: VolumeId, bytes: u64 },
}

impl Transaction {
    /// One without changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets an object. Keys are at most 65,535 bytes long, a transaction at most 64 KiB.
    pub fn put(mut self, kind: ObjectKind, key: &str, value: Vec<u8>) -> Self {
        self.operations.push(Operation::Put { kind, key: key.into(), value });
        self
    }

    /// Removes an object; nothing happens if there is none.
    pub fn delete(mut self, kind: ObjectKind, key: &str) -> Self {
        self.operations.push(Operation::Delete { kind, key: key.into() });
        self
    }

    /// Creates an empty volume.
    pub fn create_volume(mut self, volume: VolumeId) -> Self {
        self.operations.push(Operation::CreateVolume(volume));
        self
    }

    /// Deletes a volume. Its space comes back in the background.
    pub fn delete_volume(mut self, volume: VolumeId) -> Self {
        self.operations.push(Operation::DeleteVolume(volume));
        self
    }

    /// Promises space to a volume, in place of what it was promised before: so many bytes of it, rounded up to blocks,
    /// can be written whatever other volumes take. 0 takes the promise back. No more may ever be mapped in the volume
    /// than is promised; that is for the caller to see to.
    pub fn reserve(mut self, volume: VolumeId, bytes: u64) -> Self {
        self.operations.push(Operation::Reserve { volume, bytes });
        self
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend((self.operations.len() as u32).to_le_bytes());
        for operation in &self.operations {
            match operation {
                Operation::Put { kind, key, value } => {
                    out.push(1);
                    encode_key(&mut out, *kind, key);
                    out.extend((value.len() as u32).to_le_bytes());
                    out.extend(value);
                }
                Operation::Delete { kind, key } => {
                    out.push(2);
                    encode_key(&mut out, *kind, key);
                }
                Operation::CreateVolume(volume) => {
                    out.push(3);
                    out.extend(volume.0.to_le_bytes());
                }
                Operation::DeleteVolume(volume) => {
                    out.push(4);
                    out.extend(volume.0.to_le_bytes());
                }
                Operation::Reserve { volume, bytes } => {
                    out.push(5);
                    out.extend(volume.0.to_le_bytes());
                    out.extend(bytes.to_le_bytes());
                }
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, PoolError> {
        let mut reader = Reader { bytes, what: "a catalog record" };
        let count = reader.u32()?;
        let mut operations = Vec::new();
        for _ in 0..count {
            operations.push(match reader.u8()? {
                1 => {
                    let (kind, key) = reader.key()?;
                    Operation::Put { kind, key, value: reader.value()? }
                }
                2 => {
                    let (kind, key) = reader.key()?;
                    Operation::Delete { kind, key }
                }
                3 => Operation::CreateVolume(VolumeId(reader.u32()?)),
                4 => Operation::DeleteVolume(VolumeId(reader.u32()?)),
                5 => Operation::Reserve { volume: VolumeId(reader.u32()?), bytes: reader.reservation()? },
                other => return Err(reader.damaged(&format!("operation {other} is unknown"))),
            });
        }
        Ok(Self { operations })
    }
}

fn encode_key(out: &mut Vec<u8>, kind: ObjectKind, key: &str) {
    out.extend(kind.0.to_le_bytes());
    out.extend((key.len() as u16).to_le_bytes());
    out.extend(key.as_bytes());
}

/// All that a thin map can lead to.
const MOST_RESERVED_BYTES: u64 = MAX_BLOCKS * 8 * KIB;

struct Reader<'a> {
    bytes: &'a [u8],
    what: &'static str,
}

impl Reader<'_> {
    fn reservation(&mut self) -> Result<u64, PoolError> {
        match self.u64()? {
            bytes if bytes > MOST_RESERVED_BYTES => {
                Err(self.damaged("more is reserved than a volume can hold"))
            }
            bytes => Ok(bytes),
        }
    }

    fn damaged(&self, problem: &str) -> PoolError {
        PoolError::corrupt(self.what, problem)
    }

    fn take(&mut self, len: usize) -> Result<&[u8], PoolError> {
        if len > self.bytes.len() {
            return Err(self.damaged("it ends too early"));
        }
        let (head, tail) = self.bytes.split_at(len);
        self.bytes = tail;
        Ok(head)
    }

    fn u8(&mut self) -> Result<u8, PoolError> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16, PoolError> {
        let b = self.take(2)?;
        Ok(u16::from_le_bytes([b[0], b[1]]))
    }

    fn u32(&mut self) -> Result<u32, PoolError> {
        let b = self.take(4)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    fn u64(&mut self) -> Result<u64, PoolError> {
        Ok(u64::from(self.u32()?) | u64::from(self.u32()?) << 32)
    }

    fn value(&mut self) -> Result<Vec<u8>, PoolError> {
        let len = self.u32()? as usize;
        Ok(self.take(len)?.to_vec())
    }

    fn key(&mut self) -> Result<(ObjectKind, String), PoolError> {
        let kind = ObjectKind(self.u16()?);
        let len = usize::from(self.u16()?);
        let key = String::from_utf8(self.take(len)?.to_vec());
        key.map(|key| (kind, key)).map_err(|_| self.damaged("a key is not text"))
    }
}

/// A volume's thin map as a checkpoint records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LayerImage {
    pub volume: VolumeId,
    pub generation: u32,
    /// Page number of the tree's root.
    pub root: Option<u64>,
    pub mapped_blocks: u64,
    /// Space promised to its volume; 0: none.
    pub reserved_bytes: u64,
    /// Its volume was deleted; its blocks are being given back.
    pub deleting: bool,
}

/// The catalog as a checkpoint records it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CatalogImage {
    pub objects: BTreeMap<(ObjectKind, String), Vec<u8>>,
    pub layers: Vec<LayerImage>,
}

impl CatalogImage {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend((self.layers.len() as u32).to_le_bytes());
        for layer in &self.layers {
            out.extend(layer.volume.0.to_le_bytes());
            out.extend(layer.generation.to_le_bytes());
            // Page 0 of the tree space is never used.
            out.extend(layer.root.unwrap_or(0).to_le_bytes());
            out.extend(layer.mapped_blocks.to_le_bytes());
            out.extend(layer.reserved_bytes.to_le_bytes());
            out.push(u8::from(layer.deleting));
        }
        out.extend((self.objects.len() as u32).to_le_bytes());
        for ((kind, key), value) in &self.objects {
            encode_key(&mut out, *kind, key);
            out.extend((value.len() as u32).to_le_bytes());
            out.extend(value);
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, PoolError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut reader = Reader { bytes, what: "the catalog" };
        let mut image = Self::default();
        for _ in 0..reader.u32()? {
            image.layers.push(LayerImage {
                volume: VolumeId(reader.u32()?),
                generation: reader.u32()?,
                root: Some(reader.u64()?).filter(|&r| r != 0),
                mapped_blocks: reader.u64()?,
                reserved_bytes: reader.reservation()?,
                deleting: reader.u8()? != 0,
            });
        }
        for _ in 0..reader.u32()? {
            let key = reader.key()?;
            image.objects.insert(key, reader.value()?);
        }
        match reader.bytes {
            [] => Ok(image),
            rest => Err(PoolError::corrupt("the catalog", format!("{} bytes too many", rest.len()))),
        }
    }
}

/// The objects, in RAM.
#[derive(Default)]
pub(crate) struct Catalog {
    objects: Mutex<BTreeMap<(ObjectKind, String), Vec<u8>>>,
}

impl Catalog {
    pub(crate) fn new(objects: BTreeMap<(ObjectKind, String), Vec<u8>>) -> Self {
        Self { objects: Mutex::new(objects) }
    }

    pub(crate) fn get(&self, kind: ObjectKind, key: &str) -> Option<Vec<u8>> {
        self.objects.lock().get(&(kind, key.to_owned())).cloned()
    }

    pub(crate) fn list(&self, kind: ObjectKind) -> Vec<(String, Vec<u8>)> {
        let objects = self.objects.lock();
        let from = (kind, String::new());
        objects
            .range(from..)
            .take_while(|((k, _), _)| *k == kind)
            .map(|((_, key), v)| (key.clone(), v.clone()))
            .collect()
    }

    /// Applies the object changes of a transaction.
    pub(crate) fn apply(&self, transaction: &Transaction) {
        let mut objects = self.objects.lock();
        for operation in &transaction.operations {
            match operation {
                Operation::Put { kind, key, value } => {
                    objects.insert((*kind, key.clone()), value.clone());
                }
                Operation::Delete { kind, key } => {
                    objects.remove(&(*kind, key.clone()));
                }
                Operation::CreateVolume(_) | Operation::DeleteVolume(_) | Operation::Reserve { .. } => {}
            }
        }
    }

    pub(crate) fn all(&self) -> BTreeMap<(ObjectKind, String), Vec<u8>> {
        self.objects.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_decodes_and_what_is_cut_short_is_refused() {
        let tx = Transaction::new()
            .create_volume(VolumeId(3))
            .put(ObjectKind(1), "v1", b"{}".to_vec())
            .delete(ObjectKind(2), "h1")
            .reserve(VolumeId(3), 1 << 40)
            .delete_volume(VolumeId(2));
        let bytes = tx.encode();
        assert_eq!(Transaction::decode(&bytes).unwrap(), tx);
        let mut image = CatalogImage::default();
        image.objects.insert((ObjectKind(1), "v1".into()), b"{}".to_vec());
        image.layers.push(LayerImage {
            volume: VolumeId(3),
            generation: 1,
            root: Some(9),
            mapped_blocks: 7,
            reserved_bytes: 8 << 13,
            deleting: true,
        });
        let blob = image.encode();
        assert_eq!(CatalogImage::decode(&blob).unwrap(), image);
        for len in 1..bytes.len() {
            assert!(Transaction::decode(&bytes[..len]).is_err());
        }
        for len in 1..blob.len() {
            assert!(CatalogImage::decode(&blob[..len]).is_err());
        }
    }
}
