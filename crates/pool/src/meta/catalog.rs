//! The catalog: objects of the layers above, by kind and key, and the list of volumes.
//!
//! A change is a [`Transaction`]: one journal record that carries the full new values, applied in RAM once it
//! is hardened.

use crate::{
    error::PoolError,
    meta::{
        laid::Laid,
        object::{ObjectKind, encode_key},
        reader::Reader,
    },
};
use quoin_base::{Compression, Epoch, LayerId, Layout, VolumeId};
use quoin_world::{Mutex, MutexGuard};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, mem,
};

/// Changes to the catalog that take effect together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    pub(crate) operations: Vec<Operation>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Put {
        kind: ObjectKind,
        key: String,
        value: Vec<u8>,
    },
    Delete {
        kind: ObjectKind,
        key: String,
    },
    /// With its first layer, which is given when it is committed.
    CreateVolume {
        volume: VolumeId,
        layer: LayerId,
    },
    DeleteVolume(VolumeId),
    Reserve {
        volume: VolumeId,
        bytes: u64,
    },
    /// `None`: as the pool.
    LayOut {
        volume: VolumeId,
        layout: Option<Layout>,
    },
    Compress {
        volume: VolumeId,
        compression: Compression,
    },
    Deduplicate {
        volume: VolumeId,
        is_on: bool,
    },
    /// The others of the transaction take effect only if another slice's catalog says that it is decided.
    Prepare(TransactionId),
    /// With the layers that the two go on with.
    Fork {
        source: VolumeId,
        target: VolumeId,
        kept: LayerId,
        given: LayerId,
    },
}

/// Names a transaction that spans slices. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TransactionId {
    /// The epoch in which it was made.
    pub epoch: Epoch,
    /// Its number in that epoch.
    pub number: u64,
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.epoch.0, self.number)
    }
}

impl TransactionId {
    /// What [`TransactionId`]'s text says.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (epoch, number) = text.split_once('-')?;
        let parse = |digits| u64::from_str_radix(digits, 16).ok();
        Some(Self { epoch: Epoch(parse(epoch)?), number: parse(number)? })
    }
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
        self.operations.push(Operation::CreateVolume { volume, layer: LayerId(0) });
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

    /// Lays out in this way what is written to a volume from now on; `None`: as the pool. What it has is moved in the
    /// background. The caller has asked [`Pool::layout_lacks`](crate::Pool::layout_lacks).
    pub fn lay_out(mut self, volume: VolumeId, layout: Option<Layout>) -> Self {
        self.operations.push(Operation::LayOut { volume, layout });
        self
    }

    /// Compresses in this way what is written to a volume from now on. What it has stays as it is until the cleaner moves it.
    pub fn compress(mut self, volume: VolumeId, compression: Compression) -> Self {
        self.operations.push(Operation::Compress { volume, compression });
        self
    }

    /// Whether what is written to a volume from now on is stored once with what else of the pool has the same content.
    pub fn deduplicate(mut self, volume: VolumeId, is_on: bool) -> Self {
        self.operations.push(Operation::Deduplicate { volume, is_on });
        self
    }

    /// Gives `target` what `source` holds at the moment of the transaction; both go on independently. A target that
    /// exists gives up what it held, whose space comes back in the background; another comes to be. Takes as long for a
    /// large volume as for a small one. All forks of a transaction are of one moment. Size and reservation are not
    /// taken over; a new target gets the layout, compression and deduplication of `source`.
    pub fn fork(mut self, source: VolumeId, target: VolumeId) -> Self {
        let (kept, given) = (LayerId(0), LayerId(0));
        self.operations.push(Operation::Fork { source, target, kept, given });
        self
    }

    /// What it is a part of, if it spans slices.
    pub(crate) fn prepares(&self) -> Option<TransactionId> {
        self.operations.iter().find_map(|operation| match operation {
            Operation::Prepare(id) => Some(*id),
            _ => None,
        })
    }

    /// The layouts that volumes get.
    pub(crate) fn layouts(&self) -> impl Iterator<Item = Layout> {
        self.operations.iter().filter_map(|operation| match operation {
            Operation::LayOut { layout, .. } => *layout,
            _ => None,
        })
    }

    /// Whether it forks any volume.
    pub(crate) fn forks(&self) -> bool {
        self.operations.iter().any(|operation| matches!(operation, Operation::Fork { .. }))
    }

    /// The layers that it makes.
    pub(crate) fn made_layers(&self) -> impl Iterator<Item = LayerId> {
        let made = |operation: &Operation| match operation {
            Operation::CreateVolume { layer, .. } => [Some(*layer), None],
            Operation::Fork { kept, given, .. } => [Some(*kept), Some(*given)],
            _ => [None, None],
        };
        self.operations.iter().flat_map(made).flatten()
    }

    /// Gives these ids to the layers it makes, one to each.
    pub(crate) fn number_layers(&mut self, ids: impl IntoIterator<Item = LayerId>) {
        let mut ids = ids.into_iter();
        let mut take = || ids.next().unwrap_or(LayerId(0));
        for operation in &mut self.operations {
            match operation {
                Operation::CreateVolume { layer, .. } => *layer = take(),
                Operation::Fork { kept, given, .. } => (*kept, *given) = (take(), take()),
                _ => {}
            }
        }
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
                Operation::CreateVolume { volume, layer } => {
                    out.push(3);
                    out.extend(volume.0.to_le_bytes());
                    out.extend(layer.0.to_le_bytes());
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
                Operation::LayOut { volume, layout } => {
                    out.push(8);
                    out.extend(volume.0.to_le_bytes());
                    out.extend(Laid::As(*layout).pack().to_le_bytes());
                }
                Operation::Compress { volume, compression } => {
                    out.push(9);
                    out.extend(volume.0.to_le_bytes());
                    out.push(*compression as u8);
                }
                Operation::Deduplicate { volume, is_on } => {
                    out.push(10);
                    out.extend(volume.0.to_le_bytes());
                    out.push((*is_on).into());
                }
                Operation::Fork { source, target, kept, given } => {
                    out.push(6);
                    [source.0, target.0, kept.0, given.0].iter().for_each(|id| out.extend(id.to_le_bytes()));
                }
                Operation::Prepare(TransactionId { epoch, number }) => {
                    out.push(7);
                    out.extend(epoch.0.to_le_bytes());
                    out.extend(number.to_le_bytes());
                }
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, PoolError> {
        let mut reader = Reader::new(bytes, "a catalog record");
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
                3 => Operation::CreateVolume { volume: VolumeId(reader.u32()?), layer: reader.layer()? },
                4 => Operation::DeleteVolume(VolumeId(reader.u32()?)),
                5 => Operation::Reserve { volume: VolumeId(reader.u32()?), bytes: reader.reservation()? },
                6 => Operation::Fork {
                    source: VolumeId(reader.u32()?),
                    target: VolumeId(reader.u32()?),
                    kept: reader.layer()?,
                    given: reader.layer()?,
                },
                7 => Operation::Prepare(TransactionId { epoch: Epoch(reader.u64()?), number: reader.u64()? }),
                8 => {
                    let volume = VolumeId(reader.u32()?);
                    let Some(Laid::As(layout)) = Laid::unpack(reader.u16()?) else {
                        return Err(reader.damaged("the layout of a volume is impossible"));
                    };
                    Operation::LayOut { volume, layout }
                }
                9 => Operation::Compress {
                    volume: VolumeId(reader.u32()?),
                    compression: reader.compression()?,
                },
                10 => Operation::Deduplicate { volume: VolumeId(reader.u32()?), is_on: reader.is()? },
                other => return Err(reader.damaged(&format!("operation {other} is unknown"))),
            });
        }
        Ok(Self { operations })
    }
}

/// The objects, in RAM.
#[derive(Default)]
pub(crate) struct Catalog {
    objects: Mutex<Objects>,
}

/// Objects, and which of them changed since this was last asked.
#[derive(Default)]
pub(crate) struct Objects {
    all: BTreeMap<(ObjectKind, String), Vec<u8>>,
    changed: BTreeSet<(ObjectKind, String)>,
}

impl Objects {
    pub(crate) fn get(&self, kind: ObjectKind, key: &str) -> Option<&[u8]> {
        self.all.get(&(kind, key.to_owned())).map(Vec::as_slice)
    }

    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn take_changed(&mut self) -> BTreeSet<(ObjectKind, String)> {
        mem::take(&mut self.changed)
    }

    fn put(&mut self, kind: ObjectKind, key: &str, value: Vec<u8>) {
        self.all.insert((kind, key.to_owned()), value);
        self.changed.insert((kind, key.to_owned()));
    }
}

impl Catalog {
    pub(crate) fn new(objects: BTreeMap<(ObjectKind, String), Vec<u8>>) -> Self {
        Self { objects: Mutex::new(Objects { all: objects, changed: BTreeSet::new() }) }
    }

    /// The objects; they do not change while this is held.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock()
    }

    pub(crate) fn get(&self, kind: ObjectKind, key: &str) -> Option<Vec<u8>> {
        self.objects.lock().get(kind, key).map(<[u8]>::to_vec)
    }

    pub(crate) fn list(&self, kind: ObjectKind) -> Vec<(String, Vec<u8>)> {
        let objects = self.objects.lock();
        let from = (kind, String::new());
        objects
            .all
            .range(from..)
            .take_while(|((k, _), _)| *k == kind)
            .map(|((_, key), v)| (key.clone(), v.clone()))
            .collect()
    }

    /// Sets an object that is the pool's own, beside any transaction: the next checkpoint holds it.
    pub(crate) fn put(&self, kind: ObjectKind, key: &str, value: Vec<u8>) {
        self.objects.lock().put(kind, key, value);
    }

    /// Applies the object changes of a transaction.
    pub(crate) fn apply(&self, transaction: &Transaction) {
        let mut objects = self.objects.lock();
        for operation in &transaction.operations {
            match operation {
                Operation::Put { kind, key, value } => {
                    objects.put(*kind, key, value.clone());
                }
                Operation::Delete { kind, key } => {
                    objects.all.remove(&(*kind, key.clone()));
                    objects.changed.insert((*kind, key.clone()));
                }
                Operation::CreateVolume { .. }
                | Operation::DeleteVolume(_)
                | Operation::Reserve { .. }
                | Operation::LayOut { .. }
                | Operation::Compress { .. }
                | Operation::Deduplicate { .. }
                | Operation::Prepare(_)
                | Operation::Fork { .. } => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_decodes_and_what_is_cut_short_is_refused() {
        let mut tx = Transaction::new()
            .create_volume(VolumeId(3))
            .fork(VolumeId(3), VolumeId(4))
            .put(ObjectKind(1), "v1", b"{}".to_vec())
            .delete(ObjectKind(2), "h1")
            .reserve(VolumeId(3), 1 << 40)
            .lay_out(VolumeId(3), Layout::of_columns((4, 2)))
            .lay_out(VolumeId(3), None)
            .compress(VolumeId(3), Compression::Zstd)
            .deduplicate(VolumeId(3), true)
            .delete_volume(VolumeId(2));
        tx.operations.push(Operation::Prepare(TransactionId { epoch: Epoch(9), number: u64::MAX }));
        tx.number_layers((7..).map(LayerId));
        assert_eq!(tx.made_layers().collect::<Vec<_>>(), [7, 8, 9].map(LayerId));
        let bytes = tx.encode();
        assert_eq!(Transaction::decode(&bytes).unwrap(), tx);
        for len in 1..bytes.len() {
            assert!(Transaction::decode(&bytes[..len]).is_err());
        }
    }
}
