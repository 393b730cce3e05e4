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
    copy_record::{COPY_OBJECT, CopyRecord, RECORD_VERSION},
    error::refused,
    limits::COPIES_MAX,
    record::{encode, key},
};
use quoin_base::{ByteRange, VolumeId};
use quoin_pool::{Pool, PoolError, Transaction};
use std::{
    sync::{Arc, Weak},
    time::Duration,
};

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
        if Arc::as_ptr(&pool) == self.pool.as_ptr() {
            Ok(pool)
        } else {
            let reason = OPENED_ANEW.to_owned();
            Err(DeviceError::Offline { volume: self.target.name(), reason })
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
        // One transaction forks the source, records the copy, and marks the target as changed.
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
        // One transaction: the copy's record, that the target changes, and the hidden fork of the source, which is
        // what is copied from.
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
        pool.settle_copies(Duration::ZERO).await?;
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
        // NOTE: `settled` tells that replay finds no record any more that names the hidden volume.
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
    // Both ends and the length are multiples of the larger block of the two.
    // Whole blocks of both volumes.
    let parts = [("the first byte", *from), ("the byte it goes to", *to), ("the length", length)];
    if let Some((what, bytes)) = parts.into_iter().find(|(_, bytes)| !bytes.is_multiple_of(block)) {
        return Err(VolumeError::CopyUnaligned { name: name(), what, bytes, block_bytes: block });
    }
    if from.checked_add(length).is_none_or(|end| end > size) || length == 0 {
        let (from_bytes, length_bytes) = (*from, length);
        return Err(VolumeError::CopyRange { name: name(), from_bytes, length_bytes, size_bytes: size });
    }
    // The copy must be within the target.
    // Within the source, and within the target.
    let needed = to.saturating_add(length);
    if needed > target.size_bytes() {
        let (name, size_bytes) = (target.name(), target.size_bytes());
        return Err(VolumeError::CopyTooSmall { name, size_bytes, needed_bytes: needed });
    }
    if source.id() == target.id() && from == to {
        Err(VolumeError::CopyOntoItself { name: name() })
    } else {
        Ok(length)
    }
}
