//! The copies that run and those that ended, and the state of each.
//!
//! Invariants:
//! 1. At most one task works on a copy.
//! 2. At most [`ENDED_KEPT`] that ended stay listed.
//! 3. No more is copied than was to be.

use parking_lot::Mutex;
use quoin_api::{self as api, Actor, CopyState};
use quoin_volume::CopyRecord;
use quoin_world::Nanos;
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// The number of ended copies that are still listed.
const ENDED_KEPT: usize = 32;

/// The outcome of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Failed(String),
    Cancelled,
}

/// The state of a copy besides its progress.
#[derive(Default)]
struct Course {
    /// Known once it has stopped copying.
    outcome: Option<Outcome>,
    /// When it stopped copying.
    stopped: Option<Nanos>,
    /// When it ended, in milliseconds since the Unix epoch.
    ended_ms: Option<u64>,
    /// Its task runs.
    busy: bool,
    /// The client that cancelled it.
    cancelled_by: Option<Arc<Actor>>,
}

/// A copy that began, or was found in the catalog.
pub(crate) struct Job {
    record: CopyRecord,
    began: Nanos,
    done_bytes: AtomicU64,
    cancelled: AtomicBool,
    course: Mutex<Course>,
}

/// The copies that are listed, oldest first.
#[derive(Default)]
pub(crate) struct Copies {
    jobs: VecDeque<Arc<Job>>,
    copied_bytes: u64,
}

/// Copies in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyFigures {
    /// Copies that have not ended.
    pub running: usize,
    /// Bytes copied since the process started.
    pub copied_bytes: u64,
}

impl Copies {
    /// The copy of this number.
    pub(crate) fn find(&self, id: u32) -> Option<&Arc<Job>> {
        self.jobs.iter().find(|job| job.record.id.0 == id)
    }

    /// All that are listed.
    pub(crate) fn list(&self) -> Vec<Arc<Job>> {
        self.jobs.iter().cloned().collect()
    }

    /// Whether all that are listed have ended.
    pub(crate) fn all_ended(&self) -> bool {
        self.jobs.iter().all(|job| job.state().is_ended())
    }

    /// Claims the ends of all that stopped and that no task is working on.
    pub(crate) fn take_up(&self) -> Vec<Arc<Job>> {
        self.jobs.iter().filter(|job| job.take_up()).cloned().collect()
    }

    /// Counts bytes that were copied.
    pub(crate) fn count(&mut self, bytes: u64) {
        self.copied_bytes += bytes;
    }

    /// Lists another one.
    pub(crate) fn add(&mut self, job: Job) -> Arc<Job> {
        let job = Arc::new(job);
        self.jobs.push_back(job.clone());
        job
    }

    /// All of them in numbers.
    pub(crate) fn figures(&self) -> CopyFigures {
        let running = self.jobs.iter().filter(|job| !job.state().is_ended()).count();
        CopyFigures { running, copied_bytes: self.copied_bytes }
    }

    /// Forgets the oldest of those that ended, if they are too many.
    pub(crate) fn forget_some(&mut self) {
        let ended = self.jobs.iter().filter(|job| job.state().is_ended()).count();
        let mut surplus = ended.saturating_sub(ENDED_KEPT);
        self.jobs.retain(|job| {
            let goes = surplus > 0 && job.state().is_ended();
            surplus -= usize::from(goes);
            !goes
        });
    }
}

impl Job {
    /// A copy that begins; its task runs.
    pub(crate) fn new(record: CopyRecord, began: Nanos) -> Self {
        let course = Mutex::new(Course { busy: true, ..Course::default() });
        Self { record, began, done_bytes: AtomicU64::new(0), cancelled: AtomicBool::new(false), course }
    }

    /// A copy that another process began and that was interrupted; no task runs for it.
    pub(crate) fn interrupted(record: CopyRecord, now: Nanos) -> Self {
        let why = "it was interrupted, and an unknown part was copied; start it again";
        let outcome = Some(Outcome::Failed(why.to_owned()));
        let course = Mutex::new(Course { outcome, stopped: Some(now), ..Course::default() });
        Self { course, ..Self::new(record, now) }
    }

    /// What is copied from where to where.
    pub(crate) fn record(&self) -> &CopyRecord {
        &self.record
    }

    /// Asks the task to stop, for the client that acts.
    pub(crate) fn cancel(&self, by: Option<Arc<Actor>>) {
        self.course.lock().cancelled_by = by;
        self.cancelled.store(true, Ordering::Release);
    }

    /// Whether the task was asked to stop.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// The client that cancelled it, if that is how it ended.
    pub(crate) fn canceller(&self) -> Option<Arc<Actor>> {
        let course = self.course.lock();
        course.cancelled_by.clone().filter(|_| course.outcome == Some(Outcome::Cancelled))
    }

    /// Notes that so much is copied by now.
    pub(crate) fn advance_to(&self, done_bytes: u64) {
        assert!(done_bytes <= self.record.length_bytes, "more is copied than was to be");
        self.done_bytes.store(done_bytes, Ordering::Release);
    }

    /// Notes that it stopped copying.
    pub(crate) fn stop(&self, outcome: Outcome, now: Nanos) {
        let mut course = self.course.lock();
        (course.outcome, course.stopped) = (Some(outcome), Some(now));
    }

    /// Notes that its end is recorded.
    pub(crate) fn end(&self, at_ms: u64) {
        self.course.lock().ended_ms = Some(at_ms);
    }

    /// Notes that no task works on it.
    pub(crate) fn release(&self) {
        self.course.lock().busy = false;
    }

    /// How it goes, between volumes of these names.
    pub(crate) fn view(&self, source: String, target: String, now: Nanos) -> api::VolumeCopy {
        let CopyRecord { id, from_bytes, to_bytes, length_bytes, started_ms, .. } = self.record;
        let (state, done_bytes) = (self.state(), self.done_bytes());
        let course = self.course.lock();
        let elapsed_s = course.stopped.unwrap_or(now).since(self.began).as_secs_f64();
        let can_tell = done_bytes > 0 && (course.stopped.is_some() || elapsed_s >= 1.0);
        let rate = can_tell.then(|| done_bytes as f64 / elapsed_s.max(0.001));
        let left = length_bytes.saturating_sub(done_bytes) as f64;
        api::VolumeCopy {
            id: id.0,
            source,
            target,
            from_bytes,
            to_bytes,
            length_bytes,
            done_bytes,
            state,
            bytes_per_s: rate.map(|rate| rate as u64),
            remaining_s: rate.filter(|_| state == CopyState::Running).map(|rate| (left / rate).ceil() as u64),
            started_ms,
            ended_ms: course.ended_ms,
            error: match &course.outcome {
                Some(Outcome::Failed(why)) => Some(why.clone()),
                _ => None,
            },
        }
    }

    /// How much is copied.
    pub(crate) fn done_bytes(&self) -> u64 {
        self.done_bytes.load(Ordering::Acquire)
    }

    /// Its state as clients see it.
    pub(crate) fn state(&self) -> CopyState {
        let course = self.course.lock();
        match &course.outcome {
            None => CopyState::Running,
            Some(_) if course.ended_ms.is_none() => CopyState::Finishing,
            Some(Outcome::Done) => CopyState::Done,
            Some(Outcome::Failed(_)) => CopyState::Failed,
            Some(Outcome::Cancelled) => CopyState::Cancelled,
        }
    }

    /// The state it will be in once its end is recorded.
    pub(crate) fn state_at_end(&self) -> CopyState {
        match &self.course.lock().outcome {
            Some(Outcome::Done) => CopyState::Done,
            Some(Outcome::Cancelled) => CopyState::Cancelled,
            Some(Outcome::Failed(_)) | None => CopyState::Failed,
        }
    }

    /// The text of the event at its end. `None` for a failure, which has its event at once.
    pub(crate) fn end_told(&self) -> Option<String> {
        let course = self.course.lock();
        match &course.outcome {
            Some(Outcome::Done) => {
                let seconds = course.stopped.map_or(0.0, |stopped| stopped.since(self.began).as_secs_f64());
                Some(format!("{}, in {seconds:.1} s", told(self, "is done")))
            }
            Some(Outcome::Cancelled) => Some(format!("{} and stay", told(self, "was cancelled"))),
            _ => None,
        }
    }

    /// Claims the end of a copy that no task is working on; false if there is nothing to do.
    fn take_up(&self) -> bool {
        let mut course = self.course.lock();
        let due = course.outcome.is_some() && course.ended_ms.is_none() && !course.busy;
        course.busy |= due;
        due
    }
}

/// The outcome of a copy, and how far it got.
pub(crate) fn told(job: &Job, what: &str) -> String {
    let CopyRecord { id, source, length_bytes, .. } = &job.record;
    format!("copy {id} of volume {source} {what}: {} of {length_bytes} bytes are copied", job.done_bytes())
}
