//! Scrubs of the pool: when they begin, how far one is, what the last one found, and which parts of volumes are
//! damaged.
//!
//! All of this is one object of the pool's catalog, so that it survives restarts: an interrupted scrub continues where
//! it was saved last. Damage stays listed until it is overwritten or unmapped, whether a scrub, a read or destage found
//! it.

mod due;
mod record;
mod state;

pub(crate) use {record::scrub_problem, state::Scrubs};

use crate::{
    Array, ArrayError, JobError, current_actor,
    events::Told,
    record::{SCRUB_OBJECT, decode, encode},
};
use parking_lot::Mutex;
use quoin_api::{
    DamagedRange, Integrity, ScrubFindings, ScrubOutcome, ScrubProgress, ScrubResult, ScrubStatus,
    ScrubUpdate, Severity,
};
use quoin_base::ByteRange;
use quoin_pool::{Damage, Pool, Scrub, ScrubCounts, ScrubPosition, Transaction};
use quoin_volume::BlockDevice;
use quoin_world::Thread;
use record::{Begun, DEFAULT_RATE_BYTES_S, Damaged, KEY, Record};
use state::{Running, counts, findings};
use std::{sync::Arc, time::Duration};
/// The most events of single ranges recorded for the findings of one look.
const MOST_EVENTS: usize = 20;
/// How often the place of a scrub is saved, and damage is looked at again.
const SAVE_EVERY: Duration = Duration::from_secs(60);

impl Array {
    /// Begins a scrub.
    ///
    /// # Errors
    /// [`JobError::ScrubRunning`] while one runs. `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn start_scrub(&self) -> Result<ScrubStatus, ArrayError> {
        {
            let _turn = self.changes.lock().await;
            let pool = self.pool()?;
            let now_ms = self.world.wall_clock_ms();
            let begun = Begun { started_ms: now_ms, ..Begun::default() };
            let record = {
                let scrubs = self.scrubs.lock();
                if scrubs.running.is_some() {
                    return Err(JobError::ScrubRunning.into());
                }
                let record = scrubs.record.clone().unwrap_or_else(|| Record::new(now_ms));
                Record { begun: Some(begun), ..record }
            };
            let tx = Transaction::new().put(SCRUB_OBJECT, KEY, encode(&record));
            let own =
                Told::new(self.pool_name(), "scrub started by request").change("scrub", "idle", "running");
            self.commit_told(tx, own).await?;
            // NOTE: one that a schedule began meanwhile is as good.
            self.begin_scrub(&pool, Some(begun));
        }
        self.scrub_status().await
    }

    /// Ends the scrub that runs.
    ///
    /// # Errors
    /// [`JobError::NoScrub`] while none runs. `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn stop_scrub(&self) -> Result<ScrubStatus, ArrayError> {
        let pool = self.pool()?;
        match &mut self.scrubs.lock().running {
            Some(running) => {
                running.stopped_by = current_actor();
                running.scrub.stop();
            }
            None => return Err(JobError::NoScrub.into()),
        }
        while self.is_scrubbing() {
            self.end_scrub();
            self.world.sleep(Duration::from_millis(5)).await;
        }
        self.save_scrubs(&pool).await?;
        self.scrub_status().await
    }

    /// Changes when scrubs begin and how fast they read.
    ///
    /// # Errors
    /// `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn change_scrubs(&self, update: ScrubUpdate) -> Result<ScrubStatus, ArrayError> {
        {
            let _turn = self.changes.lock().await;
            self.pool()?;
            let now_ms = self.world.wall_clock_ms();
            let before = self.scrubs.lock().record.clone().unwrap_or_else(|| Record::new(now_ms));
            let mut record = before.clone();
            record.set(&update, now_ms);
            let Record { schedule, at, rate_bytes_s, .. } = &record;
            let rate = match rate_bytes_s {
                0 => "without a rate limit".to_owned(),
                rate => format!("at most {rate} bytes per second"),
            };
            let text = format!("scrub settings changed: {schedule} at {at} UTC, {rate}");
            let own = Told::new(self.pool_name(), text)
                .change("schedule", before.schedule, schedule)
                .change("at", before.at, at)
                .change("rate_bytes_s", before.rate_bytes_s, rate_bytes_s);
            if !own.changes.is_empty() {
                self.commit_told(Transaction::new().put(SCRUB_OBJECT, KEY, encode(&record)), own).await?;
                let mut scrubs = self.scrubs.lock();
                let Scrubs { record, running, .. } = &mut *scrubs;
                let record = record.get_or_insert(before);
                record.set(&update, now_ms);
                if let Some(running) = running {
                    running.scrub.set_rate(record.rate_bytes_s);
                }
            }
        }
        self.scrub_status().await
    }

    /// The settings of scrubs, the state of a running one, and what is damaged now.
    ///
    /// # Errors
    /// `Offline` while the pool is not open, `Pool` if the listed damage cannot be read again.
    pub async fn scrub_status(&self) -> Result<ScrubStatus, ArrayError> {
        let pool = self.pool()?;
        self.note_damage(&pool);
        self.look_at_damage(&pool).await?;
        self.scrub_view()
    }

    /// The same, without checking the listed damage again.
    pub(crate) fn scrub_view(&self) -> Result<ScrubStatus, ArrayError> {
        let pool = self.pool()?;
        let stats = pool.stats();
        let scrubs = self.scrubs.lock();
        let record = scrubs.record.clone().unwrap_or_else(|| Record::new(self.world.wall_clock_ms()));
        let total_bytes = stats.live_bytes + stats.metadata_bytes;
        let running = scrubs.running.as_ref().map(|running| self.progress(running, total_bytes));
        Ok(ScrubStatus {
            schedule: record.schedule,
            at: record.at,
            rate_bytes_s: record.rate_bytes_s,
            next_ms: record.next_ms(),
            running,
            last: record.last,
            damaged: record.damaged.iter().filter_map(|damaged| self.named(damaged)).collect(),
            more_damaged: record.more_damaged,
        })
    }

    /// Scrubs and damage in short.
    pub(crate) fn integrity(&self) -> Integrity {
        let stats = self.slot.get().ok().map(|pool| pool.stats()).unwrap_or_default();
        let scrubs = self.scrubs.lock();
        let record = scrubs.record.as_ref();
        let progress = |running: &Running| self.progress(running, stats.live_bytes + stats.metadata_bytes);
        Integrity {
            damaged_ranges: record.map_or(0, |record| record.damaged.len() as u64 + record.more_damaged),
            scrub_percent: scrubs.running.as_ref().map(|running| progress(running).percent),
            last_scrub_ms: record.and_then(|record| record.completed_ms),
        }
    }

    fn is_scrubbing(&self) -> bool {
        self.scrubs.lock().running.is_some()
    }

    fn progress(&self, running: &Running, total_bytes: u64) -> ScrubProgress {
        let (_, counts) = running.scrub.progress();
        let elapsed_s = self.world.now().since(running.since).as_secs_f64();
        let bytes_s = (counts.bytes - running.bytes_then) as f64 / elapsed_s.max(0.001);
        let left = total_bytes.saturating_sub(counts.bytes) as f64;
        ScrubProgress {
            started_ms: running.started_ms,
            verified_bytes: counts.bytes,
            total_bytes,
            // The scrub may also read data written meanwhile: its end is known only when it is reached.
            percent: (counts.bytes as f64 * 100.0 / total_bytes.max(1) as f64).min(99.9),
            remaining_s: (elapsed_s >= 1.0 && bytes_s > 0.0).then(|| (left / bytes_s) as u64),
            found: findings(&counts),
        }
    }

    fn named(&self, damaged: &Damaged) -> Option<DamagedRange> {
        let volume = self.volumes.by_id_or_binned(damaged.volume)?;
        let deleted = if volume.deleted().is_some() { " (deleted)" } else { "" };
        Some(DamagedRange {
            volume: format!("{}{deleted}", volume.name()),
            offset_bytes: damaged.offset_bytes,
            length_bytes: damaged.length_bytes,
            found_ms: damaged.found_ms,
            reason: damaged.reason.clone(),
        })
    }

    /// Reads the state of scrubs from a newly opened pool.
    pub(crate) fn restore_scrubs(&self, pool: &Pool) -> Result<(), ArrayError> {
        let kept = pool.get(SCRUB_OBJECT, KEY).map(|bytes| decode::<Record>(KEY, &bytes)).transpose()?;
        let mut scrubs = self.scrubs.lock();
        scrubs.changed = kept.is_none();
        scrubs.record = Some(kept.unwrap_or_else(|| Record::new(self.world.wall_clock_ms())));
        Ok(())
    }

    /// Does what is due: lists new findings, begins or continues a scrub, and saves its progress.
    pub(crate) async fn tend_scrubs(&self, pool: &Arc<Pool>) {
        self.note_damage(pool);
        self.end_scrub();
        let now_ms = self.world.wall_clock_ms();
        let (begun, is_due, is_running) = {
            let mut scrubs = self.scrubs.lock();
            let is_running = scrubs.running.is_some();
            let Some(record) = &mut scrubs.record else { return };
            let is_due = record.next_ms().is_some_and(|due| due <= now_ms);
            if is_due {
                record.settled_ms = now_ms;
            }
            (record.begun.filter(|_| !is_running), is_due, is_running)
        };
        if begun.is_some() {
            self.begin_scrub(pool, begun);
        } else if is_due && !is_running && self.begin_scrub(pool, None) {
            self.events.record(Severity::Info, self.pool_name(), "scrub started by schedule");
        }
        let now = self.world.now();
        let is_time = {
            let mut scrubs = self.scrubs.lock();
            let is_time = scrubs.looked.is_none_or(|looked| now.since(looked) >= SAVE_EVERY);
            if is_time {
                scrubs.looked = Some(now);
                scrubs.note_progress();
            }
            is_time
        };
        if is_time && let Err(error) = self.look_at_damage(pool).await {
            tracing::debug!(%error, "damage is looked at again later");
        }
        if let Err(error) = self.save_scrubs(pool).await {
            tracing::debug!(%error, "what scrubs did waits to be saved");
        }
    }

    /// Begins or continues a scrub; false if one runs.
    fn begin_scrub(&self, pool: &Arc<Pool>, begun: Option<Begun>) -> bool {
        let mut scrubs = self.scrubs.lock();
        if scrubs.running.is_some() {
            return false;
        }
        let started_ms = begun.map_or_else(|| self.world.wall_clock_ms(), |begun| begun.started_ms);
        let position = begun.map_or_else(ScrubPosition::default, |b| ScrubPosition {
            slice: b.slice,
            space: b.space,
            page: b.page,
        });
        let counts = begun.map_or_else(ScrubCounts::default, |begun| counts(begun.bytes, &begun.found));
        let rate = scrubs.record.as_ref().map_or(DEFAULT_RATE_BYTES_S, |record| record.rate_bytes_s);
        let scrub = Scrub::new(pool.clone(), position, counts, rate);
        let outcome = Arc::new(Mutex::new(None));
        let (task, end) = (scrub.clone(), outcome.clone());
        self.world.spawn(
            Thread::Background,
            Box::pin(async move {
                let ended = task.run().await.map_err(|error| error.to_string());
                *end.lock() = Some(ended);
            }),
        );
        let (since, bytes_then, stopped_by) = (self.world.now(), counts.bytes, None);
        scrubs.running = Some(Running { scrub, started_ms, since, bytes_then, outcome, stopped_by });
        scrubs.note_progress();
        true
    }

    /// Notes how the scrub ended, if it did; true if so.
    fn end_scrub(&self) -> bool {
        let ended_ms = self.world.wall_clock_ms();
        let mut scrubs = self.scrubs.lock();
        let Some(outcome) = scrubs.running.as_ref().and_then(|running| running.outcome.lock().take()) else {
            return false;
        };
        let Some(running) = scrubs.running.take() else { return false };
        let (_, counts) = running.scrub.progress();
        let (outcome, reason) = match outcome {
            Ok(true) => (ScrubOutcome::Completed, None),
            Ok(false) => (ScrubOutcome::Stopped, None),
            Err(reason) => (ScrubOutcome::Failed, Some(reason)),
        };
        let result = ScrubResult {
            started_ms: running.started_ms,
            ended_ms,
            outcome,
            reason,
            verified_bytes: counts.bytes,
            found: findings(&counts),
            notes: running.scrub.notes(),
        };
        let (severity, text) = told(&result, counts.damage());
        let own = Told::new(self.pool_name(), text).change("scrub", "running", outcome);
        let actor = running.stopped_by.filter(|_| outcome == ScrubOutcome::Stopped);
        if let Some(record) = &mut scrubs.record {
            record.begun = None;
            if outcome == ScrubOutcome::Completed {
                record.completed_ms = Some(ended_ms);
            }
            record.last = Some(result);
        }
        scrubs.changed = true;
        drop(scrubs);
        self.events.record_by(actor, severity, own);
        true
    }

    /// Releases the pool, which is about to be closed. The scrub continues when the pool is open again.
    pub(crate) async fn suspend_scrub(&self, pool: &Pool) {
        self.scrubs.lock().note_progress();
        if let Err(error) = self.save_scrubs(pool).await {
            tracing::debug!(%error, "how far the scrub is was not saved");
        }
        if let Some(running) = self.scrubs.lock().running.take() {
            running.scrub.stop();
        }
    }

    /// Adds new findings to the list, and records events.
    fn note_damage(&self, pool: &Pool) {
        let found = pool.take_damage();
        if found.is_empty() {
            return;
        }
        let now_ms = self.world.wall_clock_ms();
        let mut told = 0;
        for mut damage in found {
            let Some(volume) = self.volumes.by_id_or_binned(damage.volume) else { continue };
            let end = damage.range.end().min(volume.size_bytes());
            let Some(len) = end.checked_sub(damage.range.offset).filter(|len| *len > 0) else { continue };
            damage.range.len = len;
            let mut scrubs = self.scrubs.lock();
            let is_new = scrubs.record.as_mut().is_some_and(|record| record.add_damage(&damage, now_ms));
            scrubs.changed |= is_new;
            drop(scrubs);
            if !is_new {
                continue;
            }
            told += 1;
            if told <= MOST_EVENTS {
                let (first, reason) = (damage.range.offset, &damage.reason);
                let text = format!(
                    "bytes {first} to {} cannot be read: {reason}; hosts get medium errors there until they are \
                     overwritten: restore them from a snapshot or a backup",
                    end - 1
                );
                self.events.record(Severity::Error, format!("volume {}", volume.name()), text);
            }
        }
        if told > MOST_EVENTS {
            let text = format!("{} more ranges cannot be read; see quoin scrub status", told - MOST_EVENTS);
            self.events.record(Severity::Error, self.pool_name(), text);
        }
    }

    /// Takes what can be read again off the list.
    async fn look_at_damage(&self, pool: &Pool) -> Result<(), ArrayError> {
        let listed =
            self.scrubs.lock().record.as_ref().map_or_else(Vec::new, |record| record.damaged.clone());
        for damaged in listed {
            let range = ByteRange::new(damaged.offset_bytes, damaged.length_bytes);
            let still = match self.volumes.by_id_or_binned(damaged.volume) {
                Some(_) => pool.still_damaged(damaged.volume, range).await?,
                None => Vec::new(),
            };
            if still == [range] {
                continue;
            }
            let mut scrubs = self.scrubs.lock();
            let Some(record) = &mut scrubs.record else { continue };
            record.damaged.retain(|d| (d.volume, d.offset_bytes) != (damaged.volume, damaged.offset_bytes));
            for range in still {
                let reason = damaged.reason.clone();
                record.add_damage(&Damage { volume: damaged.volume, range, reason }, damaged.found_ms);
            }
            if record.damaged.is_empty() {
                record.more_damaged = 0;
            }
            scrubs.changed = true;
        }
        Ok(())
    }

    /// Saves what changed.
    async fn save_scrubs(&self, pool: &Pool) -> Result<(), ArrayError> {
        let _turn = self.changes.lock().await;
        let record = {
            let mut scrubs = self.scrubs.lock();
            if !std::mem::take(&mut scrubs.changed) {
                return Ok(());
            }
            scrubs.record.clone()
        };
        let Some(record) = record else { return Ok(()) };
        let (tx, staged) =
            self.events.stage(Transaction::new().put(SCRUB_OBJECT, KEY, encode(&record)), None);
        if let Err(error) = pool.commit(tx).await {
            self.scrubs.lock().changed = true;
            return Err(error.into());
        }
        self.events.saved(staged);
        Ok(())
    }
}

/// The severity and text of the event of a scrub that ended.
fn told(result: &ScrubResult, damage: u64) -> (Severity, String) {
    let ScrubFindings { damaged_blocks, damaged_pages, damaged_rows, repaired_pages, failed_reads, .. } =
        result.found;
    let mut text = format!("a scrub {}: {} bytes verified", result.outcome, result.verified_bytes);
    if let Some(reason) = &result.reason {
        text += &format!("; {reason}");
    }
    if damage + failed_reads + repaired_pages == 0 {
        text += ", nothing damaged";
    } else {
        text += &format!(
            ", damaged: {damaged_blocks} blocks, {damaged_pages} metadata pages of which {repaired_pages} were \
             rewritten, {damaged_rows} row heads; {failed_reads} reads failed; see quoin scrub status"
        );
    }
    let severity = match result.outcome {
        _ if damage + failed_reads > 0 => Severity::Error,
        ScrubOutcome::Failed => Severity::Warning,
        _ if repaired_pages > 0 => Severity::Warning,
        ScrubOutcome::Completed | ScrubOutcome::Stopped => Severity::Info,
    };
    (severity, text)
}
