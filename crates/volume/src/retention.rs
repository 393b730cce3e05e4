//! Immutable snapshots, and the clock by which they are kept.
//!
//! Promises:
//! 1. Until a snapshot's retention ends, nothing here deletes it, replaces or changes its content, lets a host write to
//!    it, shortens its retention, or deletes the volume from which it was taken. A request that began before has ended,
//!    or has been refused, when the snapshot becomes immutable: its gate is closed meanwhile, and the pool refuses each
//!    record of a request that got in regardless.
//! 2. Retention is measured by the *retention clock*: it runs only while the pool is open, as fast as the monotonic
//!    clock, whatever the wall clock is set to. While the pool is closed it stands still.
//! 3. The catalog has a mark of the clock as long as a snapshot is immutable, or anything is in the recycle bin. A pool
//!    that is opened continues from the mark: time that passed since it was written does not count, so that a crash
//!    lengthens a retention and never shortens it.

use crate::{
    BlockDevice, OriginKind, Volume, VolumeError, Volumes,
    fence::Fence,
    record::{Guards, VOLUME_OBJECT, VolumeRecord, encode},
    retention_clock::{CLOCK_OBJECT, ClockMark, KEY, RetentionClock, until_ms},
};
use quoin_pool::{ObjectKind, Pool, Transaction};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

const RELEASED_AT_ONCE: usize = 50;
/// How old a mark gets while something is immutable: a crash lengthens a retention by at most this.
const MARK_EVERY: Duration = Duration::from_secs(60);

/// How the clock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionState {
    /// Snapshots that are immutable.
    pub snapshots: usize,
    /// The time of the retention clock, in milliseconds.
    pub clock_ms: u64,
    /// The time of the wall clock, in milliseconds since the Unix epoch.
    pub wall_ms: u64,
    /// The mark in the catalog.
    pub mark: ClockMark,
}

/// The snapshots to make immutable, each with its record before and after.
struct Retention<'a> {
    tx: Transaction,
    clock: RetentionClock,
    changed: Vec<(&'a Arc<Volume>, VolumeRecord, VolumeRecord)>,
}

impl Volumes {
    /// How the clock is; `None` while nothing is immutable.
    pub fn retention(&self) -> Option<RetentionState> {
        let clock = (*self.retention.lock())?;
        let snapshots = self.known.lock().immutable().count();
        (snapshots > 0).then(|| RetentionState {
            snapshots,
            clock_ms: clock.now_ms(self.world.now()),
            wall_ms: self.now_ms(),
            mark: clock.mark(),
        })
    }

    /// Until when a snapshot is immutable, by the wall clock as it is now and if the pool stays open until then.
    pub fn retained_until_ms(&self, volume: &Volume) -> Option<u64> {
        Some(self.by_wall_clock(volume.record().guards.retain_until_ms?))
    }

    /// The wall clock time at which the retention clock shows this, if the wall clock is not set and the pool stays
    /// open until then.
    pub(crate) fn by_wall_clock(&self, until_ms: u64) -> u64 {
        self.now_ms().saturating_add(until_ms.saturating_sub(self.clock_ms().unwrap_or(0)))
    }

    /// The time of the retention clock; `None` while it does not run.
    pub(crate) fn clock_ms(&self) -> Option<u64> {
        Some((*self.retention.lock())?.now_ms(self.world.now()))
    }

    /// Makes snapshots immutable for this time from now, or extends their retention to that; commits `with` in the same
    /// transaction. Waits for writers that are inside; later ones wait, and are refused.
    ///
    /// # Errors
    /// [`VolumeError::NoSnapshot`], [`VolumeError::RetainedLonger`] or [`VolumeError::CopiedInto`] for the
    /// first that cannot be; [`VolumeError::RetentionTime`] for the time. [`VolumeError::Offline`] if no pool
    /// is open, [`VolumeError::Pool`] if it refuses or fails the transaction.
    pub async fn retain(
        &self,
        snapshots: &[Arc<Volume>],
        time: Duration,
        with: Transaction,
    ) -> Result<(), VolumeError> {
        // Writers must not wait for a retention that is refused anyway.
        self.plan_retention(snapshots, time, Transaction::new())?;
        // NOTE: before the turn, so that no other change waits for a writer.
        let _fence = Fence::freeze(snapshots).await;
        let _turn = self.changes.lock().await;
        let pool = self.pool()?;
        let Retention { tx, clock, changed } = self.plan_retention(snapshots, time, with)?;
        // Writes are rejected before the transaction, so that none is acknowledged behind it.
        // NOTE: the pool refuses records before the catalog says so: nothing is written in between.
        for (volume, ..) in &changed {
            volume.set_immutable(true);
            pool.end_volume(volume.id(), 0)?;
        }
        let outcome = pool.commit(tx).await;
        // After a failure those that were not immutable before take writes again.
        // A failure opens again what was closed for this, and only that.
        for (volume, before, record) in changed {
            match &outcome {
                Ok(_) => self.known.lock().update(volume, &record),
                Err(_) if before.guards.retain_until_ms.is_none() && !before.guards.template => {
                    volume.set_immutable(false);
                    drop(pool.end_volume(before.id, before.space.size_bytes));
                }
                Err(_) => {}
            }
        }
        outcome?;
        self.set_clock(clock);
        Ok(())
    }

    /// The transaction that [`Volumes::retain`] will commit, or why it cannot.
    fn plan_retention<'a>(
        &self,
        snapshots: &'a [Arc<Volume>],
        time: Duration,
        with: Transaction,
    ) -> Result<Retention<'a>, VolumeError> {
        // The clock starts with the first snapshot, in the same transaction.
        let (mut tx, clock) = self.start_clock(with);
        let until_ms = until_ms(clock, time)?;
        let mut changed = Vec::new();
        for volume in snapshots {
            self.require_no_copy_into(volume, 0)?;
            let before = volume.record();
            if before.origin.as_ref().is_none_or(|origin| origin.kind != OriginKind::Snapshot) {
                return Err(VolumeError::NoSnapshot { name: before.name });
            }
            // A retention is never shortened.
            if before.guards.retain_until_ms.is_some_and(|before| before > until_ms) {
                let until_ms = self.retained_until_ms(volume).unwrap_or_default();
                return Err(VolumeError::RetainedLonger { name: before.name, until_ms });
            }
            let guards = Guards { retain_until_ms: Some(until_ms), ..before.guards };
            let record = VolumeRecord { guards, ..before.clone() };
            tx = record.put(tx, Some(&before));
            changed.push((volume, before, record));
        }
        Ok(Retention { tx, clock, changed })
    }

    /// Makes those whose time is over volumes that can be written to and deleted again; commits what `with` makes of them
    /// in the same transaction, and returns them.
    ///
    /// # Errors
    /// [`VolumeError::Offline`] if no pool is open, [`VolumeError::Pool`] if it refuses or fails the
    /// transaction. If that fails, nothing is released.
    pub async fn release(
        &self,
        with: impl FnOnce(&[Arc<Volume>]) -> Transaction,
    ) -> Result<Vec<Arc<Volume>>, VolumeError> {
        let _turn = self.changes.lock().await;
        let Some(clock) = *self.retention.lock() else { return Ok(Vec::new()) };
        let clock_ms = clock.now_ms(self.world.now());
        let immutable: Vec<_> = self.known.lock().immutable().cloned().collect();
        let is_over = |volume: &&Arc<Volume>| {
            volume.record().guards.retain_until_ms.is_none_or(|until| until <= clock_ms)
        };
        // This many fit one transaction; the others follow in the next.
        let over: Vec<_> = immutable.iter().filter(is_over).take(RELEASED_AT_ONCE).cloned().collect();
        if over.is_empty() {
            return Ok(over);
        }
        let pool = self.pool()?;
        let released = |volume: &Arc<Volume>| {
            let record = volume.record();
            VolumeRecord { guards: Guards { retain_until_ms: None, ..record.guards }, ..record }
        };
        let mut tx = with(&over);
        for volume in &over {
            tx = released(volume).put(tx, Some(&volume.record()));
        }
        // The clock goes on as long as anything needs it.
        // The clock is needed while a snapshot is immutable or a volume is in the recycle bin.
        let needed = immutable.len() > over.len() || !self.bin.lock().is_empty();
        let clock = needed.then(|| self.marked(clock));
        tx = match clock {
            Some(clock) => tx.put(CLOCK_OBJECT, KEY, encode(&clock.mark())),
            None => tx.delete(CLOCK_OBJECT, KEY),
        };
        pool.commit(tx).await?;
        for volume in &over {
            self.known.lock().update(volume, &released(volume));
            if !volume.is_template() {
                pool.end_volume(volume.id(), volume.size_bytes())?;
            }
        }
        *self.retention.lock() = clock;
        Ok(over)
    }

    /// Whether the time of any immutable snapshot is over.
    pub fn any_to_release(&self) -> bool {
        let Some(clock) = *self.retention.lock() else { return false };
        let clock_ms = clock.now_ms(self.world.now());
        let is_over = |volume: &Arc<Volume>| {
            volume.record().guards.retain_until_ms.is_none_or(|until| until <= clock_ms)
        };
        self.known.lock().immutable().any(is_over)
    }

    /// Writes the mark if it is old, or if it `must` be.
    ///
    /// # Errors
    /// [`VolumeError::Offline`] if no pool is open, [`VolumeError::Pool`] if it refuses or fails the
    /// transaction. The mark before stays.
    pub async fn mark_retention(&self, must: bool) -> Result<(), VolumeError> {
        let is_due = |clock: &RetentionClock| must || self.world.now().since(clock.since()) >= MARK_EVERY;
        if !self.retention.lock().as_ref().is_some_and(is_due) {
            return Ok(());
        }
        let _turn = self.changes.lock().await;
        let Some(clock) = *self.retention.lock() else { return Ok(()) };
        let clock = self.marked(clock);
        self.pool()?.commit(Transaction::new().put(CLOCK_OBJECT, KEY, encode(&clock.mark()))).await?;
        *self.retention.lock() = Some(clock);
        Ok(())
    }

    /// Continues from the mark in the catalog of a newly opened pool.
    pub(crate) fn restore_clock(&self, pool: &Pool, records: &[VolumeRecord]) -> Result<(), VolumeError> {
        let any_immutable = records.iter().any(|record| record.guards.retain_until_ms.is_some());
        let found = pool.list(CLOCK_OBJECT).into_iter().find(|(key, _)| key == KEY);
        let mark = ClockMark::read(found.as_ref().map(|(_, value)| value.as_slice()))?;
        if mark.is_none() && any_immutable {
            let why = "there is none, though snapshots are immutable".to_owned();
            return Err(VolumeError::Record { key: KEY.to_owned(), why });
        }
        // Volumes in the bin need a clock, too, but its lack is no reason to refuse the pool.
        let any_deleted = records.iter().any(|record| record.deleted.is_some());
        let mark = mark.or_else(|| any_deleted.then(|| self.first_mark()));
        *self.retention.lock() = mark.map(|mark| RetentionClock::from_mark(mark, self.world.now()));
        Ok(())
    }

    /// Refuses to delete immutable snapshots, volumes that have such snapshots, and targets of running copies.
    pub(crate) fn require_deletable(&self, volumes: &[Arc<Volume>]) -> Result<(), VolumeError> {
        for volume in volumes {
            self.require_changeable(volume)?;
            self.require_no_copy_into(volume, 0)?;
            // An immutable snapshot keeps the volume from which it was taken.
            let is_held = |snapshot: &&Arc<Volume>| {
                let origin = snapshot.record().origin;
                snapshot.is_immutable() && origin.is_some_and(|origin| origin.kind == OriginKind::Snapshot)
            };
            let held: Vec<_> = self.known.lock().forks_of(volume.id()).filter(is_held).cloned().collect();
            if let Some(until_ms) = held.iter().filter_map(|held| self.retained_until_ms(held)).max() {
                let snapshots = held.iter().map(|held| held.name()).collect();
                return Err(VolumeError::HasImmutable { name: volume.name(), snapshots, until_ms });
            }
        }
        Ok(())
    }

    /// Refuses to change an immutable snapshot.
    pub(crate) fn require_changeable(&self, volume: &Volume) -> Result<(), VolumeError> {
        match self.retained_until_ms(volume) {
            Some(until_ms) => Err(VolumeError::Immutable { name: volume.name(), until_ms }),
            None => Ok(()),
        }
    }

    /// The clock as of now, begun if it does not run, and its mark in the transaction. It runs from then on only once
    /// [`Volumes::set_clock`] is called.
    pub(crate) fn start_clock(&self, tx: Transaction) -> (Transaction, RetentionClock) {
        let clock = match *self.retention.lock() {
            Some(clock) => self.marked(clock),
            None => RetentionClock::from_mark(self.first_mark(), self.world.now()),
        };
        (tx.put(CLOCK_OBJECT, KEY, encode(&clock.mark())), clock)
    }

    /// The mark of a clock that begins now.
    fn first_mark(&self) -> ClockMark {
        let wall_ms = self.now_ms();
        ClockMark::new(wall_ms, wall_ms)
    }

    /// The clock stops when the transaction is committed, once [`Volumes::stop_clock`] is called.
    pub(crate) fn without_clock(&self, tx: Transaction) -> Transaction {
        tx.delete(CLOCK_OBJECT, KEY)
    }

    pub(crate) fn stop_clock(&self) {
        *self.retention.lock() = None;
    }

    pub(crate) fn set_clock(&self, clock: RetentionClock) {
        *self.retention.lock() = Some(clock);
    }

    /// The same clock, with a mark of now.
    fn marked(&self, clock: RetentionClock) -> RetentionClock {
        let now = self.world.now();
        RetentionClock::from_mark(ClockMark::new(clock.now_ms(now), self.now_ms()), now)
    }
}

/// The objects of a catalog.
type Objects = BTreeMap<(ObjectKind, String), Vec<u8>>;

/// The snapshots in a catalog that are immutable, by name.
///
/// # Errors
/// The records cannot be read.
pub fn immutable_snapshots(objects: &Objects) -> Result<Vec<String>, VolumeError> {
    let clock_ms = ClockMark::of(objects)?.map_or(0, |mark| mark.mark_ms);
    let mut names = Vec::new();
    for ((_, key), value) in objects.iter().filter(|((kind, _), _)| *kind == VOLUME_OBJECT) {
        let record = VolumeRecord::decode(key, value, None)?;
        if record.guards.retain_until_ms.is_some_and(|until| until > clock_ms) {
            names.push(record.name);
        }
    }
    Ok(names)
}

/// The problem of the retention clock of a catalog, if it has one.
pub(crate) fn clock_problem(objects: &Objects) -> Option<String> {
    match (ClockMark::of(objects), immutable_snapshots(objects)) {
        (Err(error), _) => Some(error.to_string()),
        (Ok(None), Ok(names)) if !names.is_empty() => {
            Some(format!("it is missing, though snapshots are immutable: {}", names.join(", ")))
        }
        _ => None,
    }
}
