//! Changes of a volume that exists: name, tags, folder, size, whether the pool keeps space for it, how it is compressed,
//! whether it is deduplicated, and whether it is a template.
//!
//! A volume grows in one transaction. It shrinks in three steps, so that a crash in between harms nothing: writers are
//! fenced off the tail; one transaction gives the volume its new end and notes where the old one was; then the tail is
//! emptied, and another transaction removes the note. As long as the note exists the volume cannot grow: the data that
//! would reappear is not zeroes. The tail is emptied in the background, again from its beginning after a crash. That may
//! take minutes: what would have to wait for it is refused, since other changes would wait as well.
//!
//! Once a volume has become a template, no write to it is under way and none is admitted: its gate is closed while it
//! becomes one.

use crate::{
    Assigned, BlockDevice, Folder, Tags, Volume, VolumeError, Volumes, check_name, check_tags,
    error::refused, fence::Fence, record::VolumeRecord, reduction::reduce, spec::check_size,
};
use quoin_base::{Compression, VolumeId};
use quoin_pool::{Pool, PoolError, Transaction};
use quoin_world::AsyncMutexGuard;
use std::sync::{Arc, atomic::Ordering};

/// The changes to make; fields that are `None` stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeChange {
    /// Another name.
    pub name: Option<String>,
    /// Another size in bytes.
    pub size_bytes: Option<u64>,
    /// If it gets smaller: what lies beyond is lost. Without this a volume is shrunk only if nothing does.
    pub force: bool,
    /// Whether the pool keeps space for all of it.
    pub thick: Option<bool>,
    /// How what is written to it from now on is compressed.
    pub compression: Option<Compression>,
    /// Whether what is written to it from now on is deduplicated.
    pub deduplication: Option<bool>,
    /// All its tags, in place of those it has.
    pub tags: Option<Tags>,
    /// Another folder.
    pub folder: Option<Folder>,
    /// Another policy, also for its snapshots.
    pub policy: Option<Assigned>,
    /// Whether it is a template: it can be cloned, and rejects writes.
    pub template: Option<bool>,
    /// Whether hosts may only read it, unless a mapping or export lets them write.
    pub protected: Option<bool>,
}

impl Volume {
    /// Keeps its former tail from being emptied, until the returned value is dropped.
    ///
    /// # Errors
    /// [`VolumeError::Trimming`] while a task empties it, which may take minutes.
    pub(crate) async fn keep_tail(&self) -> Result<AsyncMutexGuard<'_>, VolumeError> {
        if !self.is_trimming() {
            return Ok(self.trimming.lock().await);
        }
        self.trimming.try_lock().ok_or_else(|| VolumeError::Trimming { name: self.name() })
    }
}

impl Volumes {
    /// The record a volume would have after a change, or why it cannot.
    fn plan(&self, volume: &Volume, change: &VolumeChange) -> Result<VolumeRecord, VolumeError> {
        let mut record = volume.record();
        if let Some(name) = change.name.as_ref().filter(|name| **name != record.name) {
            check_name(name)?;
            self.require_free(name)?;
            record.name.clone_from(name);
        }
        // Another size: not of what must stay as it is.
        if let Some(size_bytes) = change.size_bytes.filter(|size| *size != record.space.size_bytes) {
            if record.guards.template && change.template != Some(false) {
                return Err(VolumeError::IsTemplate { name: record.name, what: "another size" });
            }
            self.require_changeable(volume)?;
            if record.guards.protected && change.protected != Some(false) {
                return Err(VolumeError::Protected { name: record.name, what: "another size" });
            }
            check_size(&volume.name(), size_bytes, record.space.block_bytes)?;
            // The tail is emptied later, so where it ends is noted.
            if size_bytes < record.space.size_bytes {
                self.require_no_copy_into(volume, size_bytes)?;
                // The note where the old end was: up to there the tail is to be emptied.
                record.space.trim_end = record.space.trim_end.max(record.space.size_bytes);
            }
            record.space.size_bytes = size_bytes;
            record.mark_modified(self.now_ms());
        }
        if let Some(tags) = &change.tags {
            check_tags(tags)?;
            record.labels.tags.clone_from(tags);
        }
        if let Some(folder) = &change.folder {
            record.labels.folder.clone_from(folder);
        }
        if let Some(policy) = &change.policy {
            record.labels.policy.clone_from(&policy.name);
        }
        // A copy writes into it, which a template does not allow.
        if change.template == Some(true) && !record.guards.template {
            self.require_no_copy_into(volume, 0)?;
        }
        record.guards.template = change.template.unwrap_or(record.guards.template);
        record.guards.protected = change.protected.unwrap_or(record.guards.protected);
        record.space.thick = change.thick.unwrap_or(record.space.thick);
        Ok(record)
    }

    /// Changes a volume; commits `with` in the same transaction. Call [`Volumes::trim`] after it has shrunk.
    ///
    /// # Errors
    /// [`VolumeError::NotFound`]; the error of the first change that the volume or its state does not allow,
    /// [`VolumeError::TailMapped`] if it would lose data by shrinking without force,
    /// [`VolumeError::Trimming`] if it would grow, shrink without force or become thick while its former tail
    /// is being emptied, [`VolumeError::CannotReserve`]. [`VolumeError::Offline`] if no pool is open,
    /// [`VolumeError::Pool`] if it refuses or fails the transaction.
    pub async fn change(
        &self,
        name: &str,
        change: VolumeChange,
        with: Transaction,
    ) -> Result<Arc<Volume>, VolumeError> {
        let (volume, _fence, _turn) = self.turn_to_change(name, &change).await?;
        let before = volume.record();
        let mut record = self.plan(&volume, &change)?;
        let pool = self.pool()?;
        // What the change means for the end of the volume and its reservation.
        let grows = record.space.size_bytes > before.space.size_bytes;
        let shrinks = record.space.size_bytes < before.space.size_bytes;
        let thickens = record.space.thick && !before.space.thick;
        // The tail must not be emptied while it becomes a part of the volume again, is examined, or would be reserved.
        let waits = grows || thickens || shrinks && !change.force;
        let turn = if waits { Some(self.empty_tail_first(&pool, &volume, &before).await?) } else { None };
        if waits && !shrinks {
            record.space.trim_end = 0;
        }
        if shrinks {
            fence(&pool, &before, record.space.size_bytes, change.force).await?;
        }
        // A template rejects writes before the transaction, so that none is acknowledged behind it.
        // NOTE: writers are kept out before the record says that it is a template.
        let freezes = record.guards.template && !before.guards.template;
        if freezes {
            volume.set_template(true);
            pool.end_volume(before.id, 0)?;
        }
        let (tx, followers) = self.all_of(with, (&before, &record), &change);
        // A failure leaves the volume as it was: what was closed is opened again.
        if let Err(error) = pool.commit(tx).await {
            volume.set_template(before.guards.template);
            if shrinks || freezes {
                drop(pool.end_volume(before.id, before.space.size_bytes));
            }
            return Err(refused(name, error));
        }
        // NOTE: hosts reach further only when the new record is durable.
        if !record.guards.template && (grows || before.guards.template) {
            pool.end_volume(record.id, record.space.size_bytes)?;
        }
        if shrinks {
            volume.shrinks.fetch_add(1, Ordering::Relaxed);
        }
        {
            let mut known = self.known.lock();
            known.update(&volume, &record);
            followers.iter().for_each(|(snapshot, record)| known.update(snapshot, record));
        }
        drop(turn);
        Ok(volume)
    }

    /// One transaction: the record, the space that is kept for it, how it is compressed and deduplicated, and its snapshots,
    /// which follow it to another policy. Returns them with their new records.
    fn all_of(
        &self,
        with: Transaction,
        (before, record): (&VolumeRecord, &VolumeRecord),
        change: &VolumeChange,
    ) -> (Transaction, Vec<(Arc<Volume>, VolumeRecord)>) {
        let mut tx = record.put(with, Some(before));
        if record.reserved_bytes() != before.reserved_bytes() {
            tx = tx.reserve(record.id, record.reserved_bytes());
        }
        tx = reduce(tx, record.id, (change.compression, change.deduplication));
        match &change.policy {
            Some(policy) => {
                let tx = tx.lay_out(record.id, policy.layout);
                self.snapshots_follow(tx, record.id, policy)
            }
            None => (tx, Vec::new()),
        }
    }

    /// Gives the snapshots of a volume its policy, in the same transaction. Returns them with their new records.
    fn snapshots_follow(
        &self,
        mut tx: Transaction,
        source: VolumeId,
        policy: &Assigned,
    ) -> (Transaction, Vec<(Arc<Volume>, VolumeRecord)>) {
        let mut followers = Vec::new();
        for snapshot in self.forks_of(source) {
            let before = snapshot.record();
            if !before.is_snapshot() {
                continue;
            }
            let mut record = before.clone();
            record.labels.policy.clone_from(&policy.name);
            tx = record.put(tx, Some(&before)).lay_out(record.id, policy.layout);
            followers.push((snapshot, record));
        }
        (tx, followers)
    }

    /// Lays out volumes anew whose policy is another one now, and makes those that hosts write to thick, thin, compressed or
    /// deduplicated if it says so; commits `with` in the same transaction.
    ///
    /// # Errors
    /// [`VolumeError::CannotReserve`] if there is no room for what is promised to them, [`VolumeError::Trimming`] if one
    /// would become thick while its former tail is being emptied. [`VolumeError::Offline`] if no pool is open,
    /// [`VolumeError::Pool`] if it refuses or fails the transaction.
    pub async fn lay_out(&self, policy: &Assigned, with: Transaction) -> Result<(), VolumeError> {
        let _turn = self.changes.lock().await;
        let mut volumes = self.list();
        volumes.extend(self.binned());
        volumes.retain(|volume| volume.policy() == policy.name);
        let (mut tx, mut changed) = (with, Vec::new());
        for volume in &volumes {
            tx = tx.lay_out(volume.id(), policy.layout);
            let before = volume.record();
            if !before.is_snapshot() {
                tx = reduce(tx, before.id, (policy.compression, policy.deduplication));
            }
            let thick = policy.thick.filter(|thick| *thick != before.space.thick && !before.is_snapshot());
            let Some(thick) = thick else { continue };
            // What is emptied is not to be reserved: a task may be at it for minutes.
            if thick && before.is_trimming() {
                return Err(VolumeError::Trimming { name: before.name });
            }
            let mut record = before.clone();
            record.space.thick = thick;
            tx = record.put(tx, Some(&before));
            if record.reserved_bytes() != before.reserved_bytes() {
                tx = tx.reserve(record.id, record.reserved_bytes());
            }
            changed.push((volume, record));
        }
        let which = policy.name.as_deref().unwrap_or_default();
        self.pool()?.commit(tx).await.map_err(|error| refused(which, error))?;
        let mut known = self.known.lock();
        changed.iter().for_each(|(volume, record)| known.update(volume, record));
        Ok(())
    }

    /// Keeps the tail of a volume as it is until the returned value is dropped. What is left of a former tail is emptied.
    async fn empty_tail_first<'a>(
        &self,
        pool: &Pool,
        volume: &'a Volume,
        before: &VolumeRecord,
    ) -> Result<AsyncMutexGuard<'a>, VolumeError> {
        // NOTE: nothing is changed before this. A task that empties another tail first would begin with this one later.
        if before.is_trimming() && Arc::strong_count(&self.trims) > 1 {
            return Err(VolumeError::Trimming { name: before.name.clone() });
        }
        let turn = volume.keep_tail().await?;
        if before.is_trimming() {
            empty_tail(pool, before).await?;
        }
        Ok(turn)
    }

    /// The volume and the turn to change it; if it becomes a template, without writers inside.
    async fn turn_to_change(
        &self,
        name: &str,
        change: &VolumeChange,
    ) -> Result<(Arc<Volume>, Option<Fence>, AsyncMutexGuard<'_>), VolumeError> {
        loop {
            let volume = self.get(name)?;
            // NOTE: before the turn, so that no other change waits for a writer.
            let freezes = change.template == Some(true) && !volume.is_template();
            let fence = if freezes { Some(Fence::freeze(std::slice::from_ref(&volume)).await) } else { None };
            let turn = self.changes.lock().await;
            // Another may have the name by now, or it may have ceased to be a template.
            let is_same = Arc::ptr_eq(&self.get(name)?, &volume);
            if is_same && (fence.is_some() || change.template != Some(true) || volume.is_template()) {
                return Ok((volume, fence, turn));
            }
        }
    }

    /// Empties the former tails of volumes that were shrunk. Returns early if the pool goes offline; call it again when
    /// the pool is back.
    ///
    /// # Errors
    /// [`VolumeError::Offline`] or [`VolumeError::Pool`] if the pool goes offline before all tails are empty.
    pub async fn trim(&self) -> Result<(), VolumeError> {
        let _is_running = self.trims.clone();
        let trimming: Vec<_> = self.known.lock().trimming().cloned().collect();
        for volume in trimming {
            while volume.is_trimming() && self.is_current(&volume) {
                match self.trim_once(&volume).await {
                    Ok(()) => {}
                    // Deleted meanwhile.
                    Err(VolumeError::Pool(PoolError::NoSuchVolume(_))) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    async fn trim_once(&self, volume: &Arc<Volume>) -> Result<(), VolumeError> {
        let pool = self.pool()?;
        let shrinks = {
            let _turn = volume.trimming.lock().await;
            let shrinks = volume.shrinks.load(Ordering::Relaxed);
            let record = volume.record();
            // What came back from the recycle bin may have grown.
            if !record.is_trimming() || !self.is_current(volume) {
                return Ok(());
            }
            empty_tail(&pool, &record).await?;
            shrinks
        };
        let _turn = self.changes.lock().await;
        let mut record = volume.record();
        // It may have been shrunk again meanwhile, or grown and emptied on the way.
        let is_same = volume.shrinks.load(Ordering::Relaxed) == shrinks && self.is_current(volume);
        if !is_same || !record.is_trimming() {
            return Ok(());
        }
        record.space.trim_end = 0;
        let tx = record.put(Transaction::new(), Some(&volume.record()));
        let tx = if record.space.thick { tx.reserve(record.id, record.reserved_bytes()) } else { tx };
        pool.commit(tx).await?;
        self.known.lock().update(volume, &record);
        Ok(())
    }
}

/// Keeps writers off what lies beyond the end a volume is to have. Refuses, unless by force, if anything does.
async fn fence(pool: &Pool, before: &VolumeRecord, end: u64, force: bool) -> Result<(), VolumeError> {
    let mapped = || VolumeError::TailMapped { name: before.name.clone(), size_bytes: end };
    // First without a fence, so that hosts that use the tail do not notice.
    if !force && pool.is_mapped_from(before.id, end).await? {
        return Err(mapped());
    }
    // Then with one: what was written meanwhile is found, and nothing more comes.
    pool.end_volume(before.id, end)?;
    if force {
        return Ok(());
    }
    // Again, now with the fence: a host may have written there in between.
    let found = pool.is_mapped_from(before.id, end).await;
    if !matches!(found, Ok(false)) {
        pool.end_volume(before.id, before.space.size_bytes)?;
    }
    if found? { Err(mapped()) } else { Ok(()) }
}

/// Unmaps everything beyond a volume's end, so that it no longer counts as mapped.
async fn empty_tail(pool: &Pool, record: &VolumeRecord) -> Result<(), VolumeError> {
    pool.unmap_from(record.id, record.space.size_bytes).await?;
    Ok(pool.drain().await?)
}
