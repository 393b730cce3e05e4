//! Copies of ranges, from one volume into another or into itself.
//!
//! A copy has a *hidden volume*: a fork of the source as of the moment at which the copy began. No record describes it
//! and no list shows it; an object of the catalog names it and says what it is for. One transaction creates both, and
//! one deletes both.
//!
//! Promises:
//! 1. A copy takes the content that the source held when the copy began, whatever is written to it since, also if
//!    source and target are the same volume.
//! 2. A copy continues only in the opening of the pool in which it began. After the pool was reopened, hosts may have
//!    written to the target, and the copy can only be ended.
//! 3. Until a copy is ended nothing deletes or replaces its target, shrinks it into the range, or makes it reject
//!    writes.

use crate::{
    BlockDevice, DeviceError, Volume, VolumeError, Volumes,
    record::{encode, key},
    volumes::refused,
};
use quoin_base::{ByteRange, VolumeId};
use quoin_pool::{ObjectKind, Pool, PoolError, Transaction};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
};
use uuid::Uuid;

/// The kind of catalog object that holds a copy; the key is that of its hidden volume, the value JSON.
pub const COPY_OBJECT: ObjectKind = ObjectKind(9);
/// How many copies there may be at a time.
pub const COPIES_MAX: usize = 8;

const RECORD_VERSION: u32 = 1;
const OPENED_ANEW: &str = "it went offline and was opened again";

/// The range to copy.
#[derive(Clone, Debug)]
pub struct CopySpec {
    /// Where from.
    pub source: Arc<Volume>,
    /// Where to.
    pub target: Arc<Volume>,
    /// The first byte of the source.
    pub from_bytes: u64,
    /// Where that goes in the target.
    pub to_bytes: u64,
    /// How many bytes; all the rest of the source if it is `None`.
    pub length_bytes: Option<u64>,
}

/// A copy as the catalog keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyRecord {
    version: u32,
    /// Its hidden volume, whose id is that of the copy.
    pub id: VolumeId,
    /// The name of the source when the copy began.
    pub source: String,
    /// Its identity.
    pub source_uuid: Uuid,
    /// The name of the target when the copy began.
    pub target: String,
    /// Its identity.
    pub target_uuid: Uuid,
    /// The first byte of the source.
    pub from_bytes: u64,
    /// Where that goes in the target.
    pub to_bytes: u64,
    /// How many bytes.
    pub length_bytes: u64,
    /// When it began, in milliseconds since the Unix epoch.
    pub started_ms: u64,
}

impl CopyRecord {
    fn decode(key: &str, bytes: &[u8]) -> Result<Self, VolumeError> {
        let bad = |why: String| VolumeError::Record { key: key.to_owned(), why };
        let record: Self = serde_json::from_slice(bytes).map_err(|e| bad(e.to_string()))?;
        match record.version {
            RECORD_VERSION => Ok(record),
            other => Err(bad(format!("is of version {other}, not {RECORD_VERSION}"))),
        }
    }
}

/// The copies of a pool that is open, by hidden volume.
pub(crate) type Copies = BTreeMap<VolumeId, CopyRecord>;

pub(crate) fn read_copies(pool: &Pool) -> Result<Copies, VolumeError> {
    let decoded =
        |(key, value): (String, Vec<u8>)| CopyRecord::decode(&key, &value).map(|record| (record.id, record));
    pool.list(COPY_OBJECT).into_iter().map(decoded).collect()
}

/// A copy that has begun.
pub struct RangeCopy {
    record: CopyRecord,
    target: Arc<Volume>,
    pool: Weak<Pool>,
}

impl RangeCopy {
    /// What it copies.
    pub fn record(&self) -> &CopyRecord {
        &self.record
    }

    /// Waits until there can be a first step.
    ///
    /// # Errors
    /// [`DeviceError::Offline`] if the pool is offline or was opened anew since the copy began, and
    /// [`DeviceError`]s of a target that was deleted or takes no writes.
    pub async fn settle(&self) -> Result<(), DeviceError> {
        let range = self.rest(0);
        self.pool_for(range)?.settle_fork(self.record.id).await.map_err(|e| self.told(range, e))
    }

    /// Copies a part of the range from `done` bytes on, and returns its length in bytes. The part is hardened on
    /// return.
    ///
    /// # Errors
    /// [`DeviceError::Medium`], of the source, if it cannot be read. The errors of a write to the target, and
    /// [`DeviceError::Offline`] if the pool was opened anew since the copy began.
    pub async fn step(&self, done: u64) -> Result<u64, DeviceError> {
        let range = self.rest(done);
        let _pass = self.target.enter(range).await?;
        let pool = self.pool_for(range)?;
        let from = self.record.from_bytes + done;
        let copied = pool.copy_some(self.record.id, from, self.target.id(), range).await;
        let copied = copied.map_err(|error| self.told(range, error))?;
        assert!(copied <= range.len, "{copied} bytes of a copy are done, and {} were left", range.len);
        Ok(copied)
    }

    fn rest(&self, done: u64) -> ByteRange {
        ByteRange::new(self.record.to_bytes + done, self.record.length_bytes.saturating_sub(done))
    }

    fn pool_for(&self, range: ByteRange) -> Result<Arc<Pool>, DeviceError> {
        let pool = self.target.writable_pool_for(range)?;
        match Arc::as_ptr(&pool) == self.pool.as_ptr() {
            true => Ok(pool),
            false => {
                let reason = OPENED_ANEW.to_owned();
                Err(DeviceError::Offline { volume: self.target.name(), reason })
            }
        }
    }

    /// An error of the hidden volume is one of the source, at the same byte.
    fn told(&self, range: ByteRange, error: PoolError) -> DeviceError {
        match error {
            PoolError::Medium { volume, offset, reason, .. } if volume == self.record.id => {
                DeviceError::Medium { volume: self.record.source.clone(), offset, reason }
            }
            error => self.target.device_error(range, error),
        }
    }
}

/// Copies that had stopped before can be ended, as long as the pool stays open.
#[must_use]
pub struct Settled(Weak<Pool>);

impl Volumes {
    /// Begins a copy; commits what `with` makes of it in the same transaction.
    ///
    /// # Errors
    /// The errors of a range that is empty, not aligned, outside one of the volumes, or onto itself. Those of
    /// a target that may not be written to; [`VolumeError::NotFound`] if it is gone;
    /// [`VolumeError::TooManyCopies`]. [`VolumeError::Offline`] if no pool is open, [`VolumeError::Pool`] if
    /// it refuses or fails the transaction.
    pub async fn begin_copy(
        &self,
        spec: CopySpec,
        with: impl FnOnce(&CopyRecord) -> Transaction,
    ) -> Result<RangeCopy, VolumeError> {
        let _turn = self.changes.lock().await;
        let pool = self.pool()?;
        let length_bytes = check_range(&spec)?;
        let CopySpec { source, target, from_bytes, to_bytes, .. } = spec;
        target.require_replaceable()?;
        self.require_changeable(&target)?;
        target.require_unprotected("a copy into it")?;
        if self.by_id(target.id()).is_none() {
            return Err(VolumeError::NotFound { name: target.name() });
        }
        if self.copies.lock().len() >= COPIES_MAX {
            return Err(VolumeError::TooManyCopies { name: target.name() });
        }
        let record = CopyRecord {
            version: RECORD_VERSION,
            id: pool.next_volume_id_near(source.id()),
            source: source.name(),
            source_uuid: source.uuid(),
            target: target.name(),
            target_uuid: target.uuid(),
            from_bytes,
            to_bytes,
            length_bytes,
            started_ms: self.now_ms(),
        };
        let mut tx = with(&record).put(COPY_OBJECT, &key(record.id), encode(&record));
        let before = target.record();
        let mut changed = before.clone();
        changed.mark_modified(record.started_ms);
        tx = changed.put(tx, Some(&before));
        let begun = pool.commit(tx.fork(source.id(), record.id)).await;
        begun.map_err(|error| refused(&record.source, error))?;
        target.update(&changed);
        self.copies.lock().insert(record.id, record.clone());
        Ok(RangeCopy { record, target, pool: Arc::downgrade(&pool) })
    }

    /// The copies that have begun and are not ended, those of an earlier opening of the pool included.
    pub fn copies(&self) -> Vec<CopyRecord> {
        self.copies.lock().values().cloned().collect()
    }

    /// Waits until copies that have stopped can be ended.
    ///
    /// # Errors
    /// [`VolumeError::Offline`] if no pool is open, [`VolumeError::Pool`] if it goes offline meanwhile.
    pub async fn settle_copies(&self) -> Result<Settled, VolumeError> {
        let pool = self.pool()?;
        pool.settle_copies().await?;
        Ok(Settled(Arc::downgrade(&pool)))
    }

    /// Ends a copy and deletes its hidden volume; commits `with` in the same transaction. The copy must have stopped
    /// before `settled` was obtained. Fails if the pool was reopened since.
    ///
    /// # Errors
    /// [`VolumeError::Offline`] if no pool is open or it was opened anew since `settled` was obtained,
    /// [`VolumeError::Pool`] if it refuses or fails the transaction.
    pub async fn end_copy(
        &self,
        id: VolumeId,
        settled: &Settled,
        with: Transaction,
    ) -> Result<(), VolumeError> {
        let _turn = self.changes.lock().await;
        let pool = self.pool()?;
        if Arc::as_ptr(&pool) != settled.0.as_ptr() {
            return Err(VolumeError::Offline { reason: OPENED_ANEW.to_owned() });
        }
        pool.commit(with.delete(COPY_OBJECT, &key(id)).delete_volume(id)).await?;
        self.copies.lock().remove(&id);
        Ok(())
    }

    /// Whether a copy that is not ended writes into a volume.
    pub fn is_copied_into(&self, volume: &Volume) -> bool {
        self.require_no_copy_into(volume, 0).is_err()
    }

    /// Refuses to remove the range from byte `from` of the volume on if a copy writes to it.
    pub(crate) fn require_no_copy_into(&self, volume: &Volume, from: u64) -> Result<(), VolumeError> {
        let copies = self.copies.lock();
        let is_hit = |copy: &&CopyRecord| {
            copy.target_uuid == volume.uuid() && copy.to_bytes.saturating_add(copy.length_bytes) > from
        };
        match copies.values().find(is_hit) {
            None => Ok(()),
            Some(copy) => {
                let (copy, source_name) = (copy.id, copy.source.clone());
                Err(VolumeError::CopiedInto { name: volume.name(), copy, source_name })
            }
        }
    }
}

/// How many bytes are copied, if they can be.
fn check_range(spec: &CopySpec) -> Result<u64, VolumeError> {
    let CopySpec { source, target, from_bytes: from, to_bytes: to, length_bytes } = spec;
    let name = || source.name();
    let size = source.size_bytes();
    let length = length_bytes.unwrap_or_else(|| size.saturating_sub(*from));
    let block = u64::from(source.block_bytes().max(target.block_bytes()));
    let parts = [("the first byte", *from), ("the byte it goes to", *to), ("the length", length)];
    if let Some((what, bytes)) = parts.into_iter().find(|(_, bytes)| !bytes.is_multiple_of(block)) {
        return Err(VolumeError::CopyUnaligned { name: name(), what, bytes, block_bytes: block });
    }
    if from.checked_add(length).is_none_or(|end| end > size) || length == 0 {
        let (from_bytes, length_bytes) = (*from, length);
        return Err(VolumeError::CopyRange { name: name(), from_bytes, length_bytes, size_bytes: size });
    }
    let needed = to.saturating_add(length);
    if needed > target.size_bytes() {
        let (name, size_bytes) = (target.name(), target.size_bytes());
        return Err(VolumeError::CopyTooSmall { name, size_bytes, needed_bytes: needed });
    }
    match source.id() == target.id() && from == to {
        true => Err(VolumeError::CopyOntoItself { name: name() }),
        false => Ok(length),
    }
}

/// The objects of a catalog.
type Objects = BTreeMap<(ObjectKind, String), Vec<u8>>;

/// The hidden volumes of the copies in a catalog.
pub fn hidden_volumes(objects: &Objects) -> BTreeSet<VolumeId> {
    let copies = objects.iter().filter(|((kind, _), _)| *kind == COPY_OBJECT);
    copies.filter_map(|((_, key), value)| Some(CopyRecord::decode(key, value).ok()?.id)).collect()
}

/// The problems of the copies in a catalog of a pool with these volumes.
pub(crate) fn copy_problems(objects: &Objects, volumes: &BTreeSet<VolumeId>) -> Vec<(String, String)> {
    let problem = |own_key: &str, value: &[u8]| match CopyRecord::decode(own_key, value) {
        Err(error) => Some(error.to_string()),
        Ok(record) if key(record.id) != own_key => Some(format!("it says volume {}", record.id)),
        Ok(record) if !volumes.contains(&record.id) => {
            Some(format!("the pool has no volume {}, the hidden one of this copy", record.id))
        }
        Ok(_) => None,
    };
    let copies = objects.iter().filter(|((kind, _), _)| *kind == COPY_OBJECT);
    copies
        .filter_map(|((_, key), value)| Some((format!("copy object {key}"), problem(key, value)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: u32) -> CopyRecord {
        CopyRecord {
            version: RECORD_VERSION,
            id: VolumeId(id),
            source: "v1".into(),
            source_uuid: Uuid::from_u128(1),
            target: "v2".into(),
            target_uuid: Uuid::from_u128(2),
            from_bytes: 0,
            to_bytes: 4096,
            length_bytes: 8192,
            started_ms: 5,
        }
    }

    #[test]
    fn records_keep_their_form_and_each_fault_of_a_catalog_is_named() {
        let text = r#"{"version":1,"id":7,"source":"v1","source_uuid":"00000000-0000-0000-0000-000000000001","target":"v2","target_uuid":"00000000-0000-0000-0000-000000000002","from_bytes":0,"to_bytes":4096,"length_bytes":8192,"started_ms":5}"#;
        assert_eq!(String::from_utf8(encode(&record(7))).unwrap(), text);
        let found = |own_key: &str, value: &[u8]| {
            let objects = Objects::from([((COPY_OBJECT, own_key.to_owned()), value.to_vec())]);
            let problems = copy_problems(&objects, &BTreeSet::from([VolumeId(7)]));
            (problems.into_iter().next().map(|(what, problem)| format!("{what}: {problem}")), objects)
        };
        let (problem, objects) = found("0000000007", text.as_bytes());
        assert_eq!((problem, hidden_volumes(&objects)), (None, BTreeSet::from([VolumeId(7)])));
        let newer = text.replace("\"version\":1", "\"version\":2");
        for (own_key, value, expected) in [
            (
                "0000000007",
                newer.as_bytes(),
                "copy object 0000000007: catalog object 0000000007: is of version 2",
            ),
            ("0000000007", b"{}".as_slice(), "copy object 0000000007: "),
            ("0000000006", text.as_bytes(), "copy object 0000000006: it says volume 7"),
            ("0000000008", &encode(&record(8)), "copy object 0000000008: the pool has no volume 8"),
        ] {
            let problem = found(own_key, value).0.unwrap_or_default();
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}
