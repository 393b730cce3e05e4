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
    Array, ArrayError, JobError,
    catalog::Turn,
    current_actor,
    events::Told,
    record::{SCRUB_OBJECT, decode, encode},
};
use quoin_api::{
    DamagedRange, DriveRepairs, Integrity, NextStep, ScrubFindings, ScrubOutcome, ScrubRepairs, ScrubResult,
    ScrubStatus, ScrubUpdate, Severity,
};
use quoin_base::{ByteRange, VolumeId};
use quoin_pool::{Pool, RepairCounts, Transaction};
use quoin_volume::{BlockDevice, VolumeError};
use quoin_world::Thread;
use record::{Begun, Damaged, KEY, Record};
use state::{Due, Ended};
use std::{sync::Arc, time::Duration};

/// The most events of single ranges recorded for the findings of one look.
const MOST_EVENTS: usize = 20;

impl Array {
    /// Begins a scrub.
    ///
    /// # Errors
    /// [`JobError::ScrubRunning`] while one runs. `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn start_scrub(&self) -> Result<ScrubStatus, ArrayError> {
        {
            let turn = self.catalog().turn().await;
            let pool = self.pool()?;
            let now_ms = self.world().wall_clock_ms();
            let begun = Begun { started_ms: now_ms, ..Begun::default() };
            let record = {
                let scrubs = self.scrubs();
                if scrubs.is_running() {
                    return Err(JobError::ScrubRunning.into());
                }
                Record { begun: Some(begun), ..scrubs.record(now_ms) }
            };
            let tx = Transaction::new().put(SCRUB_OBJECT, KEY, encode(&record));
            let own =
                Told::new(self.pool_name(), "scrub started by request").change("scrub", "idle", "running");
            self.commit_told(&turn, tx, own).await?;
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
        // NOTE: weak, since this waits, and closing the pool waits until all handles on it are dropped.
        let before = Arc::downgrade(&self.pool()?);
        if !self.scrubs().stop(current_actor()) {
            return Err(JobError::NoScrub.into());
        }
        while self.scrubs().is_running() {
            self.end_scrub();
            self.world().sleep(Duration::from_millis(5)).await;
        }
        {
            let turn = self.catalog().turn().await;
            let pool = self.pool()?;
            if before.as_ptr() != Arc::as_ptr(&pool) {
                let reason = "it was closed before the scrub had ended, and the scrub continues".to_owned();
                return Err(VolumeError::Offline { reason }.into());
            }
            self.save_scrubs_in(&turn, &pool).await?;
        }
        self.scrub_status().await
    }

    /// Changes when scrubs begin and how fast they read.
    ///
    /// # Errors
    /// `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn change_scrubs(&self, update: ScrubUpdate) -> Result<ScrubStatus, ArrayError> {
        {
            let turn = self.catalog().turn().await;
            self.pool()?;
            let now_ms = self.world().wall_clock_ms();
            let before = self.scrubs().record(now_ms);
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
                self.commit_told(&turn, Transaction::new().put(SCRUB_OBJECT, KEY, encode(&record)), own)
                    .await?;
                self.scrubs().set(before, &update, now_ms);
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
        self.pool()?;
        let scrubs = self.scrubs();
        let record = scrubs.record(self.world().wall_clock_ms());
        let running = scrubs.progress(self.world().now());
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
        self.scrubs().integrity(self.world().now())
    }

    /// When the next complete scrub was or is due.
    pub(crate) fn scrub_due_ms(&self) -> Option<u64> {
        self.scrubs().due_ms()
    }

    /// The damaged ranges of a volume that are listed, ascending, each with what was found; and how many ranges of all volumes
    /// are not listed.
    pub(crate) fn damage_of(&self, pool: &Pool, volume: VolumeId) -> (Vec<(ByteRange, String)>, u64) {
        self.note_damage(pool);
        let Record { damaged, more_damaged, .. } = self.scrubs().record(self.world().wall_clock_ms());
        let of_volume = damaged.into_iter().filter(|damaged| damaged.volume == volume);
        let range = |of: Damaged| (ByteRange::new(of.offset_bytes, of.length_bytes), of.reason);
        (of_volume.map(range).collect(), more_damaged)
    }

    fn named(&self, damaged: &Damaged) -> Option<DamagedRange> {
        let volume = self.volumes().by_id_or_binned(damaged.volume)?;
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
        self.scrubs().restore(kept, self.world().wall_clock_ms());
        Ok(())
    }

    /// Does what is due: lists new findings, begins or continues a scrub, and saves its progress.
    pub(crate) async fn tend_scrubs(&self, pool: &Arc<Pool>) {
        self.note_damage(pool);
        self.end_scrub();
        let due = self.scrubs().due(self.world().wall_clock_ms());
        match due {
            Due::Continue(begun) => drop(self.begin_scrub(pool, Some(begun))),
            Due::Begin if self.begin_scrub(pool, None) => {
                self.log().record(Severity::Info, self.pool_name(), "scrub started by schedule");
            }
            Due::Begin | Due::Nothing => {}
        }
        let is_time = self.scrubs().look(self.world().now());
        if is_time {
            self.tell_repairs(pool);
        }
        if is_time && let Err(error) = self.look_at_damage(pool).await {
            tracing::debug!(%error, "damage is looked at again later");
        }
        if let Err(error) = self.save_scrubs(pool).await {
            tracing::debug!(%error, "what scrubs did waits to be saved");
        }
    }

    /// Begins or continues a scrub; false if one runs.
    fn begin_scrub(&self, pool: &Arc<Pool>, begun: Option<Begun>) -> bool {
        let (now, now_ms) = (self.world().now(), self.world().wall_clock_ms());
        let task = self.scrubs().begin(pool, begun, now, now_ms);
        task.map(|task| self.world().spawn(Thread::Background, Box::pin(task))).is_some()
    }

    /// Reports how the scrub ended, if it did.
    fn end_scrub(&self) {
        let ended = self.scrubs().end(self.world().wall_clock_ms());
        let Some(Ended { result, damage, stopped_by }) = ended else { return };
        let (severity, text) = told(&result, damage);
        let own = Told::new(self.pool_name(), text).change("scrub", "running", result.outcome);
        self.log().record_by(stopped_by, severity, own);
    }

    /// Lists what was found, and releases the pool, which is about to be closed. The scrub continues when the pool is open
    /// again.
    pub(crate) async fn suspend_scrub(&self, pool: &Pool) {
        self.tell_repairs(pool);
        // NOTE: the place before the findings, so that all that was found before it is listed.
        self.scrubs().note_progress();
        self.note_damage(pool);
        if let Err(error) = self.save_scrubs(pool).await {
            tracing::debug!(%error, "how far the scrub is was not saved");
        }
        self.scrubs().suspend();
    }

    /// Adds new findings to the list, and records events.
    fn note_damage(&self, pool: &Pool) {
        let found = pool.take_damage();
        if found.is_empty() {
            return;
        }
        let now_ms = self.world().wall_clock_ms();
        let mut told = 0;
        for mut damage in found {
            let Some(volume) = self.volumes().by_id_or_binned(damage.volume) else { continue };
            let end = damage.range.end().min(volume.size_bytes());
            let Some(len) = end.checked_sub(damage.range.offset).filter(|len| *len > 0) else { continue };
            damage.range.len = len;
            if !self.scrubs().add_damage(&damage, now_ms) {
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
                self.log().record(Severity::Error, format!("volume {}", volume.name()), text);
            }
        }
        if told > MOST_EVENTS {
            let text = format!("{} more ranges cannot be read; {}", told - MOST_EVENTS, NextStep::SeeScrub);
            self.log().record(Severity::Error, self.pool_name(), text);
        }
    }

    /// Records what was repaired since the last look, an event for each drive.
    fn tell_repairs(&self, pool: &Pool) {
        for (drive, RepairCounts { data, copies, parity, metadata }) in pool.take_repairs() {
            let text = format!(
                "held wrong data or could not read it, and it was rewritten from other drives: {data} ranges of data, \
                 {copies} copies, {parity} ranges of parity, {metadata} copies of metadata pages; nothing was lost. If this \
                 goes on, replace the drive"
            );
            self.log().record(Severity::Warning, format!("drive {drive}"), text);
        }
    }

    /// Takes what can be read again off the list.
    async fn look_at_damage(&self, pool: &Pool) -> Result<(), ArrayError> {
        let listed = self.scrubs().damaged();
        for damaged in listed {
            let range = ByteRange::new(damaged.offset_bytes, damaged.length_bytes);
            let still = match self.volumes().by_id_or_binned(damaged.volume) {
                Some(_) => pool.still_damaged(damaged.volume, range).await?,
                None => Vec::new(),
            };
            if still == [range] {
                continue;
            }
            self.scrubs().renew_damage(&damaged, still);
        }
        Ok(())
    }

    /// Saves what changed.
    async fn save_scrubs(&self, pool: &Pool) -> Result<(), ArrayError> {
        let turn = self.catalog().turn().await;
        self.save_scrubs_in(&turn, pool).await
    }

    async fn save_scrubs_in(&self, turn: &Turn<'_>, pool: &Pool) -> Result<(), ArrayError> {
        let unsaved = self.scrubs().take_unsaved();
        let Some(record) = unsaved else { return Ok(()) };
        let tx = Transaction::new().put(SCRUB_OBJECT, KEY, encode(&record));
        let (tx, staged) = self.stage_waiting(turn, tx);
        if let Err(error) = pool.commit(tx).await {
            self.scrubs().note_unsaved();
            return Err(error.into());
        }
        self.log().saved(staged);
        Ok(())
    }
}

/// The severity and text of the event of a scrub that ended.
fn told(result: &ScrubResult, damage: u64) -> (Severity, String) {
    let ScrubFindings {
        damaged_blocks,
        damaged_pages,
        damaged_rows,
        repaired_pages,
        failed_reads,
        repairs: ScrubRepairs { data, copies, parity },
        ..
    } = result.found;
    let mut text = format!("a scrub {}: {} bytes verified", result.outcome, result.verified_bytes);
    if let Some(reason) = &result.reason {
        text += &format!("; {reason}");
    }
    if damage + failed_reads + repaired_pages == 0 {
        text += ", nothing damaged";
    } else {
        text += &format!(
            ", damaged: {damaged_blocks} blocks, {damaged_pages} metadata pages of which {repaired_pages} were \
             rewritten, {damaged_rows} row heads; {failed_reads} reads failed; {}",
            NextStep::SeeScrub
        );
    }
    let repaired = data + copies + parity;
    if repaired > 0 {
        text += &format!(
            "; repaired from redundancy: {data} ranges of data, {copies} copies, {parity} ranges of parity"
        );
    }
    if !result.repairs_by_drive.is_empty() {
        let of_drive = |of: &DriveRepairs| format!("{} {}", of.drive, of.repairs);
        let by_drive: Vec<_> = result.repairs_by_drive.iter().map(of_drive).collect();
        text += &format!("; repairs by drive: {}", by_drive.join(", "));
    }
    let severity = match result.outcome {
        _ if damage + failed_reads > 0 => Severity::Error,
        ScrubOutcome::Failed => Severity::Warning,
        _ if repaired_pages + repaired > 0 => Severity::Warning,
        ScrubOutcome::Completed | ScrubOutcome::Stopped => Severity::Info,
    };
    (severity, text)
}
