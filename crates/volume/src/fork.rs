//! Snapshots, clones, restores: volumes made of others, and volumes whose content is replaced by that of others.
//!
//! Promises: the volumes that one call makes or replaces are of one moment, in one transaction. A volume whose content
//! is replaced keeps its identity; its size becomes that of the new content.

use crate::{
    BlockDevice, Folder, Origin, OriginKind, SetOf, Tags, Volume, VolumeError, Volumes, check_name,
    check_tags,
    error::refused,
    fence::Fence,
    record::{Guards, Labels, Space, VolumeRecord},
    reduction::reduce,
    retention_clock::until_ms,
};
use quoin_base::Compression;
use quoin_pool::{PoolError, Transaction};
use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// A snapshot or clone to be made.
#[derive(Clone, Debug)]
pub struct ForkSpec {
    /// The volume whose content it holds.
    pub source: Arc<Volume>,
    /// Its name.
    pub name: String,
    /// Whether it is a snapshot or a clone.
    pub kind: OriginKind,
    /// The pool keeps space for all of it.
    pub thick: bool,
    /// How what is written to it is compressed; `None`: as its source.
    pub compression: Option<Compression>,
    /// Whether what is written to it is deduplicated; `None`: as its source.
    pub deduplication: Option<bool>,
    /// Its tags.
    pub tags: Tags,
    /// The folder it begins in; its source's if not given.
    pub folder: Option<Folder>,
    /// The set that it is a part of.
    pub set: Option<SetOf>,
    /// Hosts may only read it, unless a mapping or export lets them write.
    pub protected: bool,
    /// Of a snapshot: it is immutable for this time.
    pub retain: Option<Duration>,
}

/// A volume whose content is to be replaced.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// The volume.
    pub target: Arc<Volume>,
    /// The volume whose content it takes.
    pub source: Arc<Volume>,
    /// The target has the source as its origin from now on.
    pub refreshes: bool,
}

/// Volumes that are held free of writers, since their content is about to be replaced.
#[must_use]
pub struct Held {
    replacements: Vec<Replacement>,
    _fence: Fence,
}

impl Volumes {
    /// Makes snapshots or clones, all of one moment; commits `with` in the same transaction.
    ///
    /// # Errors
    /// [`VolumeError::Name`], [`VolumeError::Tag`], [`VolumeError::Exists`], [`VolumeError::NamedTwice`] or
    /// [`VolumeError::RetentionTime`] for what is asked for; [`VolumeError::CannotReserve`].
    /// [`VolumeError::Offline`] if no pool is open, [`VolumeError::Pool`] if it refuses or fails the
    /// transaction. None of the forks is made then.
    pub async fn fork(
        &self,
        specs: Vec<ForkSpec>,
        with: Transaction,
    ) -> Result<Vec<Arc<Volume>>, VolumeError> {
        let _turn = self.changes.lock().await;
        let pool = self.pool()?;
        let now_ms = self.now_ms();
        let (mut tx, mut names, mut records) = (with, BTreeSet::new(), Vec::new());
        let what = specs.first().map_or_else(String::new, |spec| spec.source.name());
        // The retention clock runs from the first immutable snapshot on.
        let mut clock = None;
        if specs.iter().any(|spec| spec.retain.is_some()) {
            let (with_mark, started) = self.start_clock(tx);
            (tx, clock) = (with_mark, Some(started));
        }
        // Each fork is checked, and becomes a part of one transaction.
        for spec in specs {
            let reduction = (spec.compression, spec.deduplication);
            let ForkSpec { source, name, kind, thick, tags, folder, set, protected, retain, .. } = spec;
            check_name(&name)?;
            check_tags(&tags)?;
            self.require_free(&name)?;
            if !names.insert(name.clone()) {
                return Err(VolumeError::NamedTwice { name });
            }
            let from = source.record();
            // Each fork takes what its source holds at the commit.
            let origin =
                Origin { kind, source: source.id(), source_name: from.name.clone(), taken_ms: now_ms, set };
            let retain_until_ms = clock.zip(retain).map(|(clock, time)| until_ms(clock, time)).transpose()?;
            // A fork also gets the data beyond the end of a source that was shrunk.
            let record = VolumeRecord {
                id: pool.next_volume_id_near(source.id()),
                uuid: self.random_uuid(),
                name,
                created_ms: now_ms,
                space: Space { thick, ..from.space },
                labels: Labels {
                    tags,
                    folder: folder.unwrap_or(from.labels.folder),
                    policy: from.labels.policy,
                },
                guards: Guards { template: false, protected, retain_until_ms },
                origin: Some(origin),
                modified_ms: None,
                ..from
            };
            tx = with_own(record.put(tx.fork(source.id(), record.id), None), &record, reduction);
            records.push(record);
        }
        // The pool makes all of them at one moment.
        pool.commit(tx).await.map_err(|error| refused(&what, error))?;
        if let Some(clock) = clock {
            self.set_clock(clock);
        }
        Ok(records.iter().map(|record| self.add(record)).collect())
    }

    /// Keeps writers out of volumes that are to be replaced. When it returns, no writer is inside; later ones wait
    /// until the returned value is dropped. Refuses impossible replacements.
    ///
    /// # Errors
    /// [`VolumeError::Itself`] or [`VolumeError::OtherBlock`] if the volumes do not go together, and the
    /// error of a target whose content may not change: a template, immutable, protected or copied into.
    /// [`VolumeError::Trimming`] while the former tail of a target is being emptied.
    pub async fn hold(&self, replacements: Vec<Replacement>) -> Result<Held, VolumeError> {
        replacements.iter().try_for_each(|replacement| self.check_replacement(replacement))?;
        for Replacement { target, .. } in &replacements {
            drop(target.keep_tail().await?);
        }
        let targets = replacements.iter().map(|replacement| replacement.target.clone()).collect();
        Ok(Held { replacements, _fence: Fence::close(targets).await })
    }

    /// Replaces the content of volumes that are held, all as of one moment; commits `with` in the same transaction.
    /// Writes that waited for them are refused.
    ///
    /// # Errors
    /// Those of [`Volumes::hold`], since a volume may have changed meanwhile; [`VolumeError::CannotReserve`].
    /// [`VolumeError::Offline`] if no pool is open, [`VolumeError::Pool`] if it refuses or fails the
    /// transaction. After an error other than a refusal the content may be replaced or not.
    pub async fn replace(&self, held: &Held, with: Transaction) -> Result<(), VolumeError> {
        let _turn = self.changes.lock().await;
        let pool = self.pool()?;
        held.replacements.iter().try_for_each(|replacement| self.check_replacement(replacement))?;
        let mut trimming = Vec::new();
        for Replacement { target, .. } in &held.replacements {
            // Its former tail must not be emptied while it becomes a part of the volume again.
            trimming.push(target.keep_tail().await?);
        }
        let now_ms = self.now_ms();
        // One transaction replaces all of them.
        // Each target keeps its identity, and gets the size of its source.
        let (mut tx, mut changed) = (with, Vec::new());
        for Replacement { target, source, refreshes } in &held.replacements {
            let (before, from) = (target.record(), source.record());
            let Space { size_bytes, trim_end, .. } = from.space;
            let space = Space { size_bytes, trim_end, ..before.space };
            let mut record = VolumeRecord { space, ..before.clone() };
            if *refreshes {
                record.modified_ms = None;
            } else {
                record.mark_modified(now_ms);
            }
            if let Some(origin) = record.origin.as_mut().filter(|_| *refreshes) {
                (origin.source, origin.taken_ms) = (from.id, now_ms);
                origin.source_name.clone_from(&from.name);
            }
            tx = record.put(tx.fork(from.id, record.id), Some(&before));
            if record.reserved_bytes() != before.reserved_bytes() {
                tx = tx.reserve(record.id, record.reserved_bytes());
            }
            changed.push((target, record));
        }
        // NOTE: readers are not held. None may see the former tail of a source, which the pool has as a part of the target from
        // within the transaction on.
        changed.iter().for_each(|(target, record)| target.end_at(record.space.size_bytes));
        let outcome = pool.commit(tx).await;
        for (target, record) in &changed {
            if outcome.is_err() {
                target.end_as_recorded();
            } else {
                // It may have had another end since it was shrunk.
                drop(pool.end_volume(record.id, record.space.size_bytes));
                self.known.lock().update(target, record);
                target.shrinks.fetch_add(1, Ordering::Relaxed);
            }
            // A failure may leave it open whether the content was replaced.
            if !matches!(outcome, Err(PoolError::CannotReserve { .. } | PoolError::Refused(_))) {
                target.content_replaced();
            }
        }
        let what = changed.first().map_or_else(String::new, |(target, _)| target.name());
        outcome.map_err(|error| refused(&what, error))
    }

    /// Makes a snapshot or clone a volume in its own right; commits `with` in the same transaction.
    ///
    /// # Errors
    /// The error of a volume that may not change. [`VolumeError::Offline`] if no pool is open,
    /// [`VolumeError::Pool`] if it refuses or fails the transaction.
    pub async fn promote(&self, volume: &Volume, with: Transaction) -> Result<(), VolumeError> {
        let _turn = self.changes.lock().await;
        self.require_changeable(volume)?;
        let before = volume.record();
        let mut record = VolumeRecord { origin: None, modified_ms: None, ..before.clone() };
        record.guards.protected = false;
        self.pool()?.commit(record.put(with, Some(&before))).await?;
        self.known.lock().update(volume, &record);
        Ok(())
    }

    fn check_replacement(&self, replacement: &Replacement) -> Result<(), VolumeError> {
        let Replacement { target, source, refreshes } = replacement;
        if target.id() == source.id() {
            return Err(VolumeError::Itself { name: target.name() });
        }
        target.require_replaceable()?;
        self.require_changeable(target)?;
        if !refreshes {
            target.require_unprotected("other content")?;
        }
        self.require_no_copy_into(target, 0)?;
        if target.block_bytes() != source.block_bytes() {
            return Err(VolumeError::OtherBlock {
                name: target.name(),
                block_bytes: target.block_bytes(),
                source_name: source.name(),
                source_block_bytes: source.block_bytes(),
            });
        }
        Ok(())
    }
}

/// Adds what a fork may have otherwise than its source: how it is compressed and deduplicated, and the space that is kept for
/// it.
fn with_own(
    tx: Transaction,
    record: &VolumeRecord,
    reduction: (Option<Compression>, Option<bool>),
) -> Transaction {
    let tx = reduce(tx, record.id, reduction);
    if record.space.thick { tx.reserve(record.id, record.reserved_bytes()) } else { tx }
}
