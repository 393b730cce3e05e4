//! A volume as the pool's catalog keeps it.
//!
//! Two objects of the same key: the record, of bounded length, so that one transaction can change those of a whole group;
//! and the tags, if it has any.

mod stored;

use self::stored::Stored;
use crate::{Deleted, Folder, Origin, OriginKind, Tags, VolumeError, VolumeSpec};
use quoin_base::VolumeId;
use quoin_pool::{ObjectKind, Transaction};
use serde::Serialize;
use uuid::Uuid;

/// The kind of catalog object that holds a volume; the key is its id as ten digits, the value JSON.
pub const VOLUME_OBJECT: ObjectKind = ObjectKind(1);
/// The kind of catalog object that holds a volume's tags; the key is the volume's, the value JSON.
pub const TAGS_OBJECT: ObjectKind = ObjectKind(7);
/// The kind of catalog object that holds a volume's reservations; the key is the volume's, the value JSON.
pub const RESERVATIONS_OBJECT: ObjectKind = ObjectKind(14);
/// The kind of catalog object that holds how a volume is set for hosts; the key is the volume's, the value JSON.
pub const SETTINGS_OBJECT: ObjectKind = ObjectKind(16);

const RECORD_VERSION: u32 = 3;

/// The properties of one volume. Keyed by id, so that a volume can be renamed by changing its record alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeRecord {
    pub(crate) id: VolumeId,
    pub(crate) uuid: Uuid,
    pub(crate) name: String,
    /// Milliseconds since the Unix epoch.
    pub(crate) created_ms: u64,
    pub(crate) space: Space,
    pub(crate) labels: Labels,
    pub(crate) guards: Guards,
    /// Of a snapshot: when it was first changed after it was taken, in milliseconds since the Unix epoch.
    pub(crate) modified_ms: Option<u64>,
    pub(crate) origin: Option<Origin>,
    /// It is in the recycle bin.
    pub(crate) deleted: Option<Deleted>,
}

/// How large a volume is, and what of the pool it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) size_bytes: u64,
    pub(crate) block_bytes: u32,
    /// The pool keeps space for all of it.
    pub(crate) thick: bool,
    /// Where it ended before it was shrunk, while what lies between is not emptied yet; else 0.
    pub(crate) trim_end: u64,
}

/// How people sort a volume among others, and what they want of the array for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels {
    /// A catalog object of their own.
    pub(crate) tags: Tags,
    /// Where people keep it.
    pub(crate) folder: Folder,
    /// The name of its policy; `None`: the default one.
    pub(crate) policy: Option<String>,
}

/// What keeps writes away from a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Guards {
    /// Nothing writes to it: it is there to be cloned.
    pub(crate) template: bool,
    /// Hosts may only read it, unless a mapping or export lets them write.
    pub(crate) protected: bool,
    /// A snapshot that is immutable until the retention clock shows this.
    pub(crate) retain_until_ms: Option<u64>,
}

impl VolumeRecord {
    pub(crate) fn new(id: VolumeId, uuid: Uuid, created_ms: u64, spec: VolumeSpec) -> Self {
        let VolumeSpec { name, size_bytes, block_bytes, thick, tags, folder, policy } = spec;
        let policy = policy.name;
        Self {
            id,
            uuid,
            name,
            created_ms,
            space: Space { size_bytes, block_bytes, thick, trim_end: 0 },
            labels: Labels { tags, folder, policy },
            guards: Guards::default(),
            modified_ms: None,
            origin: None,
            deleted: None,
        }
    }

    /// What the pool reserves for it. Until its tail is emptied, the tail counts too, since it is mapped. A volume in
    /// the recycle bin has no reservation.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        let Space { size_bytes, trim_end, thick, .. } = self.space;
        if thick && self.deleted.is_none() { size_bytes.max(trim_end) } else { 0 }
    }

    /// Whether it is a snapshot, and not a clone or a volume in its own right.
    pub(crate) fn is_snapshot(&self) -> bool {
        self.origin.as_ref().is_some_and(|origin| origin.kind == OriginKind::Snapshot)
    }

    /// Whether the next write is the first since the snapshot was taken.
    pub(crate) fn is_pristine(&self) -> bool {
        self.is_snapshot() && self.modified_ms.is_none()
    }

    /// Notes that it changes now, if it is a snapshot that has not changed since it was taken.
    pub(crate) fn mark_modified(&mut self, now_ms: u64) {
        if self.is_snapshot() {
            self.modified_ms.get_or_insert(now_ms);
        }
    }

    /// Whether a tail waits to be emptied.
    pub(crate) fn is_trimming(&self) -> bool {
        self.space.trim_end > self.space.size_bytes
    }

    /// Sets what of it differs from `before`.
    pub(crate) fn put(&self, tx: Transaction, before: Option<&Self>) -> Transaction {
        let key = key(self.id);
        let (record, tags) = (self.encode(), before.map(|before| &before.labels.tags));
        let tx = if before.is_some_and(|before| before.encode() == record) {
            tx
        } else {
            tx.put(VOLUME_OBJECT, &key, record)
        };
        if tags.is_some_and(|tags| *tags == self.labels.tags) {
            tx
        } else if !self.labels.tags.is_empty() {
            tx.put(TAGS_OBJECT, &key, encode(&self.labels.tags))
        } else if tags.is_some() {
            tx.delete(TAGS_OBJECT, &key)
        } else {
            tx
        }
    }

    /// Removes it.
    pub(crate) fn delete(&self, tx: Transaction) -> Transaction {
        // With what front ends keep of it.
        let tx = [VOLUME_OBJECT, RESERVATIONS_OBJECT, SETTINGS_OBJECT]
            .into_iter()
            .fold(tx, |tx, object| tx.delete(object, &key(self.id)));
        if self.labels.tags.is_empty() { tx } else { tx.delete(TAGS_OBJECT, &key(self.id)) }
    }

    fn encode(&self) -> Vec<u8> {
        Stored::write(self)
    }

    /// From its two objects.
    pub(crate) fn decode(key: &str, bytes: &[u8], tags: Option<&[u8]>) -> Result<Self, VolumeError> {
        let bad = |why: String| VolumeError::Record { key: key.to_owned(), why };
        let mut record = Stored::read(bytes).map_err(bad)?;
        if let Some(tags) = tags {
            record.labels.tags = serde_json::from_slice(tags).map_err(|e| bad(format!("its tags: {e}")))?;
        }
        Ok(record)
    }
}

pub(crate) fn encode(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain fields are always JSON")
}

/// The catalog key of a volume: its id, so padded that keys sort as ids do.
pub(crate) fn key(id: VolumeId) -> String {
    format!("{:010}", id.0)
}
