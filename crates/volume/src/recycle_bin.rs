//! The recycle bin: deleted volumes that can be restored for a while.
//!
//! Promises:
//! 1. A volume in the bin keeps its identity, tags, folder and origin, and the content it had when its deletion
//!    returned: it rejects writes, and no list of volumes contains it. Its name is free.
//! 2. The pool reserves no space for it beyond its content, thick or not. Restoring it as a thick volume reserves its
//!    space again, or fails.
//! 3. Its time is measured by the retention clock, as that of immutable snapshots: setting the wall clock forward
//!    deletes no volume, and the time for which the array is off does not count.
//! 4. Moving a volume into the bin, restoring it and deleting it for good is one transaction each.

use crate::{
    BlockDevice, Deleted, OriginKind, Volume, VolumeError, Volumes, check_name, error::refused, fence::Fence,
    record::VolumeRecord, retention_clock::until_ms,
};
use quoin_base::VolumeId;
use quoin_pool::Transaction;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use uuid::Uuid;

/// How a volume is restored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Another name than the one it had.
    pub name: Option<String>,
    /// Without a reservation, though it had one.
    pub thin: bool,
}

impl Volume {
    /// The record of its deletion; `None` for a volume that is not in the recycle bin.
    pub fn deleted(&self) -> Option<Deleted> {
        self.record().deleted
    }
}

impl Volumes {
    /// The volumes in the recycle bin, oldest deletion first.
    pub fn binned(&self) -> Vec<Arc<Volume>> {
        let mut binned: Vec<_> = self.bin.lock().values().cloned().collect();
        binned
            .sort_by_cached_key(|volume| (volume.deleted().map_or(0, |deleted| deleted.at_ms), volume.id()));
        binned
    }

    /// The volume of this id, in the recycle bin or not.
    pub fn by_id_or_binned(&self, id: VolumeId) -> Option<Arc<Volume>> {
        let binned = self.bin.lock().get(&id).cloned();
        binned.or_else(|| self.by_id(id))
    }

    /// The volume in the recycle bin that has this identity.
    pub fn binned_by_uuid(&self, uuid: Uuid) -> Option<Arc<Volume>> {
        self.bin.lock().values().find(|volume| volume.uuid() == uuid).cloned()
    }

    /// When the time of a volume in the bin is over, by the wall clock as it is now and if the pool stays open until then.
    pub fn expires_ms(&self, volume: &Volume) -> Option<u64> {
        Some(self.by_wall_clock(volume.deleted()?.until_ms))
    }

    /// The volumes in the bin whose time is over, oldest deletion first.
    pub fn expired(&self) -> Vec<Arc<Volume>> {
        let Some(clock_ms) = self.clock_ms() else { return Vec::new() };
        let is_over = |volume: &Arc<Volume>| volume.deleted().is_some_and(|d| d.until_ms <= clock_ms);
        self.binned().into_iter().filter(is_over).collect()
    }

    /// Puts volumes into the recycle bin for this time; commits `with` in the same transaction. Waits for writers that
    /// are inside; later ones are refused.
    ///
    /// # Errors
    /// The error of the first volume that may not be deleted: it is immutable, has immutable snapshots, or is
    /// copied into. [`VolumeError::RetentionTime`] if no clock goes as far as `keep`.
    /// [`VolumeError::Offline`] if no pool is open, [`VolumeError::Pool`] if it refuses or fails the
    /// transaction.
    pub async fn discard(
        &self,
        volumes: &[Arc<Volume>],
        keep: Duration,
        by: Option<String>,
        with: Transaction,
    ) -> Result<(), VolumeError> {
        // Writers must not wait for a deletion that is refused anyway.
        self.require_deletable(volumes)?;
        // NOTE: before the turn, so that no other change waits for a writer.
        let _fence = Fence::close(volumes.to_vec()).await;
        let _turn = self.changes.lock().await;
        self.require_deletable(volumes)?;
        let pool = self.pool()?;
        let mut groups = self.groups.lock().clone();
        // The clock by which they are kept runs from the first of them on.
        let (mut tx, clock) = self.start_clock(with);
        let deleted = Deleted::new(self.now_ms(), until_ms(clock, keep)?, by.as_deref());
        let mut records = Vec::new();
        for volume in volumes {
            let before = volume.record();
            let record = VolumeRecord { deleted: Some(deleted.clone()), ..before.clone() };
            tx = record.put(tx, Some(&before));
            if before.reserved_bytes() > 0 {
                tx = tx.reserve(record.id, 0);
            }
            groups.forget(record.id);
            records.push(record);
        }
        tx = groups.put(tx, &self.groups.lock());
        pool.commit(tx).await?;
        // Committed: now the volumes are what the catalog says.
        self.set_clock(clock);
        *self.groups.lock() = groups;
        for (volume, record) in volumes.iter().zip(&records) {
            volume.mark_deleted();
            self.known.lock().remove(record.id);
            volume.update(record);
            self.bin.lock().insert(record.id, volume.clone());
        }
        Ok(())
    }

    /// Brings a volume back from the recycle bin; commits `with` in the same transaction. Handles from before its
    /// deletion stay those of a deleted volume.
    ///
    /// # Errors
    /// [`VolumeError::NotFound`] if the volume is not in the bin; [`VolumeError::Name`] or
    /// [`VolumeError::Exists`] for its name; [`VolumeError::CannotReserve`] if it is thick.
    /// [`VolumeError::Offline`] if no pool is open, [`VolumeError::Pool`] if it refuses or fails the
    /// transaction.
    pub async fn recover(
        &self,
        volume: &Volume,
        recovery: Recovery,
        with: Transaction,
    ) -> Result<Arc<Volume>, VolumeError> {
        let _turn = self.changes.lock().await;
        self.require_binned(volume)?;
        let before = volume.record();
        let name = recovery.name.unwrap_or_else(|| before.name.clone());
        check_name(&name)?;
        self.require_free(&name)?;
        let mut record = VolumeRecord { deleted: None, name, ..before.clone() };
        record.space.thick &= !recovery.thin;
        self.leave_strange_set(&mut record);
        let mut tx = record.put(with, Some(&before));
        if record.reserved_bytes() > 0 {
            tx = tx.reserve(record.id, record.reserved_bytes());
        }
        // The clock stops in the same transaction if nothing else needs it.
        let gone = BTreeSet::from([record.id]);
        let stops = self.clock_stops_without(&gone);
        let tx = if stops { self.without_clock(tx) } else { tx };
        self.pool()?.commit(tx).await.map_err(|error| refused(&record.name, error))?;
        self.leave_bin(&gone, stops);
        Ok(self.add_again(&record, volume))
    }

    /// Deletes volumes in the recycle bin for good; their space is reclaimed in the background. Commits `with` in the
    /// same transaction. Refuses volumes that have immutable snapshots.
    ///
    /// # Errors
    /// [`VolumeError::NotFound`] if one is not in the bin; the error of the first that has immutable
    /// snapshots. [`VolumeError::Offline`] if no pool is open, [`VolumeError::Pool`] if it refuses or fails
    /// the transaction.
    pub async fn purge(&self, volumes: &[Arc<Volume>], with: Transaction) -> Result<(), VolumeError> {
        let _turn = self.changes.lock().await;
        volumes.iter().try_for_each(|volume| self.require_binned(volume))?;
        self.require_deletable(volumes)?;
        let pool = self.pool()?;
        let tx =
            volumes.iter().fold(with, |tx, volume| volume.record().delete(tx).delete_volume(volume.id()));
        let gone: BTreeSet<_> = volumes.iter().map(|volume| volume.id()).collect();
        let stops = self.clock_stops_without(&gone);
        pool.commit(if stops { self.without_clock(tx) } else { tx }).await?;
        self.leave_bin(&gone, stops);
        Ok(())
    }

    /// Whether a volume in the recycle bin may be deleted for good now.
    pub fn is_purgeable(&self, volume: &Arc<Volume>) -> bool {
        self.require_deletable(std::slice::from_ref(volume)).is_ok()
    }

    fn require_binned(&self, volume: &Volume) -> Result<(), VolumeError> {
        // Not one that was restored and deleted again since: that has a time of its own.
        let is_there = |now: &Arc<Volume>| std::ptr::eq(&**now, volume);
        if self.bin.lock().get(&volume.id()).is_some_and(is_there) {
            Ok(())
        } else {
            Err(VolumeError::NotFound { name: volume.name() })
        }
    }

    /// Whether nothing needs the retention clock once these have left the bin.
    fn clock_stops_without(&self, gone: &BTreeSet<VolumeId>) -> bool {
        let is_empty = self.bin.lock().keys().all(|id| gone.contains(id));
        is_empty && self.known.lock().immutable().next().is_none()
    }

    fn leave_bin(&self, gone: &BTreeSet<VolumeId>, clock_stops: bool) {
        self.bin.lock().retain(|id, _| !gone.contains(id));
        if clock_stops {
            self.stop_clock();
        }
    }

    /// A snapshot of a set comes back as one of another moment than the set if that was taken or refreshed since: then it is a
    /// snapshot of its own.
    fn leave_strange_set(&self, record: &mut VolumeRecord) {
        let Some(origin) = record.origin.as_mut().filter(|origin| origin.kind == OriginKind::Snapshot) else {
            return;
        };
        let Some(set) = &origin.set else { return };
        let strange = |volume: &Arc<Volume>| {
            let other = volume.origin();
            other.is_some_and(|o| o.set.as_ref() == Some(set) && o.taken_ms != origin.taken_ms)
        };
        if self.list().iter().any(strange) {
            origin.set = None;
        }
    }
}
