//! The copies that run and those that ended, and the state of each.

use parking_lot::Mutex;
use quoin_api::{Actor, CopyState};
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
pub(crate) struct Course {
    /// Known once it has stopped copying.
    pub(crate) outcome: Option<Outcome>,
    /// When it stopped copying.
    pub(crate) stopped: Option<Nanos>,
    /// When it ended, in milliseconds since the Unix epoch.
    pub(crate) ended_ms: Option<u64>,
    /// Its task runs.
    pub(crate) busy: bool,
    /// The client that cancelled it.
    pub(crate) cancelled_by: Option<Arc<Actor>>,
}

/// A copy that began, or was found in the catalog.
pub(crate) struct Job {
    pub(crate) record: CopyRecord,
    pub(crate) began: Nanos,
    pub(crate) done_bytes: AtomicU64,
    pub(crate) cancelled: AtomicBool,
    pub(crate) course: Mutex<Course>,
}

/// The copies that are listed, oldest first.
#[derive(Default)]
pub(crate) struct Copies {
    pub(crate) jobs: VecDeque<Arc<Job>>,
    pub(crate) copied_bytes: u64,
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
    pub(crate) fn find(&self, id: u32) -> Option<&Arc<Job>> {
        self.jobs.iter().find(|job| job.record.id.0 == id)
    }

    pub(crate) fn add(&mut self, job: Job) -> Arc<Job> {
        let job = Arc::new(job);
        self.jobs.push_back(job.clone());
        job
    }

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
    pub(crate) fn new(record: CopyRecord, began: Nanos) -> Self {
        let course = Mutex::new(Course { busy: true, ..Course::default() });
        Self { record, began, done_bytes: AtomicU64::new(0), cancelled: AtomicBool::new(false), course }
    }

    pub(crate) fn done_bytes(&self) -> u64 {
        self.done_bytes.load(Ordering::Acquire)
    }

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
    pub(crate) fn take_up(&self) -> bool {
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
