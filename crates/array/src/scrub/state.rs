//! The keeper of scrubs: how they are set, the one that runs, what the last one found, and what is to be saved.
//!
//! Invariants:
//! 1. At most one scrub runs.
//! 2. Progress, the end of a scrub and damage mark the record as to be saved.
//! 3. While a scrub runs, the record tells how far it was when that was noted last.

use super::record::{Begun, DEFAULT_RATE_BYTES_S, Damaged, Record};
use parking_lot::Mutex;
use quoin_api::{
    Actor, DriveRepairs, Integrity, ScrubFindings, ScrubOutcome, ScrubProgress, ScrubRepairs, ScrubResult,
    ScrubUpdate,
};
use quoin_base::ByteRange;
use quoin_pool::{Damage, Pool, RepairCounts, Scrub, ScrubCounts, ScrubPosition};
use quoin_world::Nanos;
use std::{future::Future, mem, sync::Arc, time::Duration};

/// How often the place of a scrub is saved, and damage is looked at again.
const SAVE_EVERY: Duration = Duration::from_secs(60);

/// How a scrub ended: complete or not, or why it could not continue.
type Outcome = Result<bool, String>;

/// A scrub that runs.
struct Running {
    scrub: Arc<Scrub>,
    started_ms: u64,
    /// For the pace: since when, and what had been read by then.
    since: Nanos,
    bytes_then: u64,
    outcome: Arc<Mutex<Option<Outcome>>>,
    /// Who asked for it to stop.
    stopped_by: Option<Arc<Actor>>,
}

/// The scrubs of an array.
#[derive(Default)]
pub(crate) struct Scrubs {
    /// As it is to be kept; `None` until the catalog was read.
    record: Option<Record>,
    running: Option<Running>,
    /// The record is not saved as it is.
    changed: bool,
    looked: Option<Nanos>,
}

/// What is to be done about scrubs.
pub(super) enum Due {
    /// A scrub that was interrupted continues.
    Continue(Begun),
    /// A scrub begins by schedule.
    Begin,
    Nothing,
}

/// A scrub that ended.
pub(super) struct Ended {
    pub(super) result: ScrubResult,
    /// How much damage it found.
    pub(super) damage: u64,
    /// Who asked for it to stop, if that is how it ended.
    pub(super) stopped_by: Option<Arc<Actor>>,
}

impl Scrubs {
    /// Takes over what a newly opened pool keeps of scrubs, if it keeps anything. What was not saved before the pool was
    /// closed stays known, and is still to be saved.
    pub(super) fn restore(&mut self, kept: Option<Record>, now_ms: u64) {
        let unsaved = self.take_unsaved();
        self.changed = kept.is_none() || unsaved.is_some();
        let mut record = kept.unwrap_or_else(|| Record::new(now_ms));
        if let Some(unsaved) = unsaved {
            record.add(unsaved);
        }
        self.record = Some(record);
    }

    /// How scrubs are set, and what is known of the last.
    pub(super) fn record(&self, now_ms: u64) -> Record {
        self.record.clone().unwrap_or_else(|| Record::new(now_ms))
    }

    /// Changes how scrubs are set, which was `before` and is saved.
    pub(super) fn set(&mut self, before: Record, update: &ScrubUpdate, now_ms: u64) {
        let record = self.record.get_or_insert(before);
        record.set(update, now_ms);
        if let Some(running) = &self.running {
            running.scrub.set_rate(record.rate_bytes_s);
        }
    }

    /// Whether a scrub runs.
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// How far the scrub is that runs.
    pub(super) fn progress(&self, now: Nanos) -> Option<ScrubProgress> {
        let running = self.running.as_ref()?;
        let ((_, counts), total_bytes) = (running.scrub.progress(), running.scrub.total_bytes());
        let elapsed_s = now.since(running.since).as_secs_f64();
        let bytes_s = (counts.bytes - running.bytes_then) as f64 / elapsed_s.max(0.001);
        let left = total_bytes.saturating_sub(counts.bytes) as f64;
        Some(ScrubProgress {
            started_ms: running.started_ms,
            verified_bytes: counts.bytes,
            total_bytes,
            // The scrub may also read data written meanwhile: its end is known only when it is reached.
            percent: (counts.bytes as f64 * 100.0 / total_bytes.max(1) as f64).min(99.9),
            remaining_s: (elapsed_s >= 1.0 && bytes_s > 0.0).then(|| (left / bytes_s) as u64),
            found: findings(&counts),
        })
    }

    /// Scrubs and damage in short.
    pub(super) fn integrity(&self, now: Nanos) -> Integrity {
        let record = self.record.as_ref();
        Integrity {
            damaged_ranges: record.map_or(0, |record| record.damaged.len() as u64 + record.more_damaged),
            scrub_percent: self.progress(now).map(|progress| progress.percent),
            last_scrub_ms: record.and_then(|record| record.completed_ms),
        }
    }

    /// When the first complete scrub after the last one was or is due.
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.record.as_ref().and_then(Record::due_ms)
    }

    /// What is to be done now; a due time up to now counts as settled.
    pub(super) fn due(&mut self, now_ms: u64) -> Due {
        let is_running = self.is_running();
        let Some(record) = &mut self.record else { return Due::Nothing };
        let is_due = record.next_ms().is_some_and(|due| due <= now_ms);
        if is_due {
            record.settled_ms = now_ms;
        }
        match record.begun {
            _ if is_running => Due::Nothing,
            Some(begun) => Due::Continue(begun),
            None if is_due => Due::Begin,
            None => Due::Nothing,
        }
    }

    /// Begins or continues a scrub; returns the task that does it, or `None` if one runs.
    pub(super) fn begin(
        &mut self,
        pool: &Arc<Pool>,
        begun: Option<Begun>,
        now: Nanos,
        now_ms: u64,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        if self.is_running() {
            return None;
        }
        let started_ms = begun.map_or(now_ms, |begun| begun.started_ms);
        let position = begun.map_or_else(ScrubPosition::default, |b| ScrubPosition {
            slice: b.slice,
            space: b.space,
            page: b.page,
        });
        let counts = begun.map_or_else(ScrubCounts::default, |begun| counts(begun.bytes, &begun.found));
        let rate = self.record.as_ref().map_or(DEFAULT_RATE_BYTES_S, |record| record.rate_bytes_s);
        let scrub = Scrub::new(pool.clone(), position, counts, rate);
        let outcome = Arc::new(Mutex::new(None));
        let (task, end) = (scrub.clone(), outcome.clone());
        let (since, bytes_then, stopped_by) = (now, counts.bytes, None);
        self.running = Some(Running { scrub, started_ms, since, bytes_then, outcome, stopped_by });
        self.note_progress();
        Some(async move {
            let ended = task.run().await.map_err(|error| error.to_string());
            *end.lock() = Some(ended);
        })
    }

    /// Asks the scrub that runs to stop; false if none runs.
    pub(super) fn stop(&mut self, by: Option<Arc<Actor>>) -> bool {
        let Some(running) = &mut self.running else { return false };
        running.stopped_by = by;
        running.scrub.stop();
        true
    }

    /// Notes how the scrub ended, if it did.
    pub(super) fn end(&mut self, ended_ms: u64) -> Option<Ended> {
        let outcome = self.running.as_ref().and_then(|running| running.outcome.lock().take())?;
        let running = self.running.take()?;
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
            repairs_by_drive: running
                .scrub
                .repairs()
                .into_iter()
                .map(|(drive, repairs)| DriveRepairs { drive, repairs })
                .collect(),
        };
        if let Some(record) = &mut self.record {
            record.begun = None;
            if outcome == ScrubOutcome::Completed {
                record.completed_ms = Some(ended_ms);
            }
            record.last = Some(result.clone());
        }
        self.changed = true;
        let stopped_by = running.stopped_by.filter(|_| outcome == ScrubOutcome::Stopped);
        Some(Ended { result, damage: counts.damage(), stopped_by })
    }

    /// Lets go of the pool, which is about to be closed.
    pub(super) fn suspend(&mut self) {
        if let Some(running) = self.running.take() {
            running.scrub.stop();
        }
    }

    /// Whether it is time to save the place of a scrub and to look at damage again. If so, notes the place.
    pub(super) fn look(&mut self, now: Nanos) -> bool {
        let is_time = self.looked.is_none_or(|looked| now.since(looked) >= SAVE_EVERY);
        if is_time {
            self.looked = Some(now);
            self.note_progress();
        }
        is_time
    }

    /// Notes where the scrub is that runs.
    pub(super) fn note_progress(&mut self) {
        let (Some(running), Some(record)) = (&self.running, &mut self.record) else { return };
        let (position, counts) = running.scrub.progress();
        record.begun = Some(Begun {
            started_ms: running.started_ms,
            slice: position.slice,
            space: position.space,
            page: position.page,
            bytes: counts.bytes,
            found: findings(&counts),
        });
        self.changed = true;
    }

    /// The listed damage.
    pub(super) fn damaged(&self) -> Vec<Damaged> {
        self.record.as_ref().map_or_else(Vec::new, |record| record.damaged.clone())
    }

    /// Lists damage; false if it was known.
    pub(super) fn add_damage(&mut self, damage: &Damage, now_ms: u64) -> bool {
        let is_new = self.record.as_mut().is_some_and(|record| record.add_damage(damage, now_ms));
        self.changed |= is_new;
        is_new
    }

    /// Lists, instead of this damage, the part of it that is still there. Does nothing if a later finding has become a
    /// part of the entry since: only the entry as it was listed has been read again.
    pub(super) fn renew_damage(&mut self, damaged: &Damaged, still: Vec<ByteRange>) {
        let Some(record) = &mut self.record else { return };
        let place = |d: &Damaged| (d.volume, d.offset_bytes, d.length_bytes);
        if record.damaged.extract_if(.., |d| place(d) == place(damaged)).count() == 0 {
            return;
        }
        for range in still {
            let reason = damaged.reason.clone();
            record.add_damage(&Damage { volume: damaged.volume, range, reason }, damaged.found_ms);
        }
        if record.damaged.is_empty() {
            record.more_damaged = 0;
        }
        self.changed = true;
    }

    /// The record to save, if it is not saved as it is; it counts as saved then.
    pub(super) fn take_unsaved(&mut self) -> Option<Record> {
        mem::take(&mut self.changed).then(|| self.record.clone()).flatten()
    }

    /// Notes that the record was not saved after all.
    pub(super) fn note_unsaved(&mut self) {
        self.changed = true;
    }
}

fn findings(counts: &ScrubCounts) -> ScrubFindings {
    ScrubFindings {
        blocks: counts.blocks,
        pages: counts.pages,
        rows: counts.rows,
        damaged_blocks: counts.damaged_blocks,
        damaged_pages: counts.damaged_pages,
        damaged_rows: counts.damaged_rows,
        repaired_pages: counts.repaired_pages,
        failed_reads: counts.failed_reads,
        repairs: ScrubRepairs {
            data: counts.repaired.data,
            copies: counts.repaired.copies,
            parity: counts.repaired.parity,
        },
    }
}

fn counts(bytes: u64, found: &ScrubFindings) -> ScrubCounts {
    ScrubCounts {
        bytes,
        blocks: found.blocks,
        pages: found.pages,
        rows: found.rows,
        damaged_blocks: found.damaged_blocks,
        damaged_pages: found.damaged_pages,
        damaged_rows: found.damaged_rows,
        repaired_pages: found.repaired_pages,
        failed_reads: found.failed_reads,
        repaired: RepairCounts {
            data: found.repairs.data,
            copies: found.repairs.copies,
            parity: found.repairs.parity,
            metadata: 0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quoin_base::VolumeId;

    fn damage(offset: u64, len: u64) -> Damage {
        Damage { volume: VolumeId(1), range: ByteRange::new(offset, len), reason: "bad".to_owned() }
    }

    fn listed(scrubs: &Scrubs) -> Vec<(u64, u64)> {
        scrubs.damaged().iter().map(|damaged| (damaged.offset_bytes, damaged.length_bytes)).collect()
    }

    fn result(started_ms: u64) -> ScrubResult {
        ScrubResult {
            started_ms,
            ended_ms: started_ms + 1,
            outcome: ScrubOutcome::Completed,
            reason: None,
            verified_bytes: 0,
            found: ScrubFindings::default(),
            notes: Vec::new(),
            repairs_by_drive: Vec::new(),
        }
    }

    fn begun(started_ms: u64, page: u64) -> Option<Begun> {
        Some(Begun { started_ms, page, ..Begun::default() })
    }

    #[test]
    fn damage_that_grew_while_it_was_read_again_stays_listed() {
        let mut scrubs = Scrubs { record: Some(Record::new(1)), ..Scrubs::default() };
        assert!(scrubs.add_damage(&damage(0, 8192), 1));
        let looked_at = scrubs.damaged().remove(0);
        assert!(scrubs.add_damage(&damage(0, 16_384), 2));
        scrubs.renew_damage(&looked_at, Vec::new());
        assert_eq!(listed(&scrubs), [(0, 16_384)]);
        let looked_at = scrubs.damaged().remove(0);
        scrubs.renew_damage(&looked_at, vec![ByteRange::new(8192, 8192)]);
        assert_eq!(listed(&scrubs), [(8192, 8192)]);
    }

    #[test]
    fn what_was_not_saved_before_the_pool_closed_is_known_and_to_be_saved_after_it() {
        let kept = || Record { begun: begun(5, 1), ..Record::new(1) };
        let mut scrubs = Scrubs { record: Some(kept()), ..Scrubs::default() };
        scrubs.restore(Some(kept()), 9);
        assert!(scrubs.take_unsaved().is_none(), "nothing changed");

        // Damage that was found, and the end of the scrub that found it.
        scrubs.add_damage(&damage(0, 8192), 6);
        let record = scrubs.record.as_mut().unwrap();
        (record.begun, record.last, record.completed_ms) = (None, Some(result(5)), Some(6));
        scrubs.restore(Some(kept()), 9);
        assert_eq!(listed(&scrubs), [(0, 8192)]);
        let record = scrubs.take_unsaved().unwrap();
        assert!(record.begun.is_none(), "a scrub that ended does not continue");
        assert_eq!((record.last, record.completed_ms), (Some(result(5)), Some(6)));

        // A scrub that was begun by request continues, if the pool has saved that.
        scrubs.note_unsaved();
        scrubs.restore(Some(Record { begun: begun(7, 0), ..kept() }), 9);
        assert_eq!(scrubs.record(9).begun.map(|begun| begun.started_ms), Some(7));
        // Where it was last is known better than it was saved.
        scrubs.record.as_mut().unwrap().begun = begun(7, 3);
        scrubs.restore(Some(Record { begun: begun(7, 2), ..kept() }), 9);
        assert_eq!(scrubs.record(9).begun.map(|begun| begun.page), Some(3));
    }
}
