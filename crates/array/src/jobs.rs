//! Jobs: one view of range copies, scrubs, volumes that shrink, are converted or reduced, and space that is being reclaimed.
//!
//! A job is only a view of the task that does the work. The task itself keeps the state that has to survive a restart,
//! so no second state here can contradict it.

use crate::{
    Array, ArrayError, JobError,
    reductions::{Begun, End, Outcome},
};
use quoin_api::{self as api, ComplianceState, CopyState, Job, JobKind, JobState, ScrubOutcome};
use quoin_volume::{BlockDevice, Volume};
use std::sync::Arc;

/// The job that reclaims the space of deleted content: there is one for all of it.
const RECLAIM: &str = "reclaim";
/// What identifiers of jobs begin with that evacuate the drive with the number that follows.
const EVACUATE: &str = "evacuate-";
/// What identifiers of jobs begin with that reduce the volume with the UUID that follows.
const REDUCE: &str = "reduce-";

/// A job of this kind at which nothing is known to be done.
fn job(id: String, kind: JobKind, object: String) -> Job {
    Job {
        id,
        kind,
        object,
        state: JobState::Running,
        percent: None,
        done_bytes: None,
        total_bytes: None,
        bytes_per_s: None,
        remaining_s: None,
        started_ms: None,
        ended_ms: None,
        error: None,
        cancellable: false,
        survives_restart: true,
    }
}

fn of_copy(copy: api::VolumeCopy) -> Job {
    let object = format!("volume {} to volume {}", copy.source, copy.target);
    let state = match copy.state {
        CopyState::Running | CopyState::Finishing => JobState::Running,
        CopyState::Done => JobState::Done,
        CopyState::Failed => JobState::Failed,
        CopyState::Cancelled => JobState::Cancelled,
    };
    Job {
        state,
        percent: Some(copy.done_bytes as f64 * 100.0 / copy.length_bytes.max(1) as f64),
        done_bytes: Some(copy.done_bytes),
        total_bytes: Some(copy.length_bytes),
        bytes_per_s: copy.bytes_per_s,
        remaining_s: copy.remaining_s,
        started_ms: Some(copy.started_ms),
        ended_ms: copy.ended_ms,
        error: copy.error,
        cancellable: copy.state == CopyState::Running,
        survives_restart: false,
        ..job(copy_id(copy.id), JobKind::Copy, object)
    }
}

/// The rebuild, and balancing, as far as they run.
fn of_rebuild(rebuild: &api::Rebuild) -> Vec<Job> {
    let running = rebuild.running.as_ref().map(|running| Job {
        percent: Some(running.percent),
        done_bytes: Some(running.total_bytes - running.left_bytes),
        total_bytes: Some(running.total_bytes),
        bytes_per_s: running.bytes_per_s,
        remaining_s: running.remaining_s,
        ..job("rebuild".to_owned(), JobKind::Rebuild, "the pool".to_owned())
    });
    let balancing = rebuild.balancing.then(|| Job {
        cancellable: true,
        ..job("balance".to_owned(), JobKind::Balance, "the pool".to_owned())
    });
    running.into_iter().chain(balancing).collect()
}

/// A drive that leaves.
fn of_drive(drive: &api::Drive) -> Option<Job> {
    let leaving = drive.leaving.as_ref().filter(|leaving| !leaving.is_done || leaving.removes)?;
    let then = match (&leaving.replaced_by, leaving.removes) {
        (Some(other), _) => format!(", replaced by {other}"),
        (None, true) => ", to be removed".to_owned(),
        (None, false) => String::new(),
    };
    Some(Job {
        percent: Some(leaving.percent),
        done_bytes: Some(leaving.total_bytes - leaving.left_bytes),
        total_bytes: Some(leaving.total_bytes),
        bytes_per_s: leaving.bytes_per_s,
        remaining_s: leaving.remaining_s,
        started_ms: leaving.started_ms,
        cancellable: true,
        ..job(
            format!("{EVACUATE}{}", drive.number?),
            JobKind::Evacuate,
            format!("drive {}{then}", drive.path),
        )
    })
}

/// The identifier of the job that reduces a volume.
pub(crate) fn reduction_id(volume: &Volume) -> String {
    format!("{REDUCE}{}", volume.uuid())
}

/// A volume of which what it has is reduced, or was.
pub(crate) fn of_reduction(volume: &Volume, begun: &Begun) -> Job {
    let (state, ended_ms, error) = match begun.end() {
        None => (JobState::Running, None, None),
        Some(End { outcome: Outcome::Done, at_ms }) => (JobState::Done, Some(*at_ms), None),
        Some(End { outcome: Outcome::Cancelled, at_ms }) => (JobState::Cancelled, Some(*at_ms), None),
        Some(End { outcome: Outcome::Interrupted, at_ms }) => {
            let why = "the pool was closed before it was done; what was done stays".to_owned();
            (JobState::Failed, Some(*at_ms), Some(why))
        }
    };
    let runs = state == JobState::Running;
    Job {
        state,
        percent: Some(begun.percent()),
        done_bytes: Some(begun.done_bytes()),
        total_bytes: Some(begun.total_bytes()),
        bytes_per_s: begun.progress().bytes_per_s().filter(|_| runs),
        remaining_s: begun.progress().remaining_s().filter(|_| runs),
        started_ms: Some(begun.started_ms()),
        ended_ms,
        error,
        cancellable: runs,
        survives_restart: false,
        ..job(
            reduction_id(volume),
            JobKind::Reduce,
            format!("volume {}{}", volume.name(), begun.told_briefly()),
        )
    }
}

/// A volume that is moved to the layout of its policy.
fn of_conversion(volume: &api::Volume) -> Option<Job> {
    let found = volume.compliance.as_ref().filter(|c| c.state == ComplianceState::Converting)?;
    let waits = if found.waits_for_space { ", waits for free space" } else { "" };
    Some(Job {
        percent: Some(found.percent),
        bytes_per_s: found.bytes_per_s,
        remaining_s: found.remaining_s,
        ..job(
            format!("convert-{}", volume.uuid),
            JobKind::Convert,
            format!("volume {} to {}{waits}", volume.name, found.layout_now),
        )
    })
}

fn copy_id(id: u32) -> String {
    format!("copy-{id}")
}

/// The scrub that runs, and the last that ended.
fn of_scrubs(status: &api::ScrubStatus) -> Vec<Job> {
    let scrub = |started_ms: u64| Job {
        started_ms: Some(started_ms),
        ..job(format!("scrub-{started_ms}"), JobKind::Scrub, "the pool".to_owned())
    };
    let ended = status.last.as_ref().map(|last| Job {
        state: match last.outcome {
            ScrubOutcome::Completed => JobState::Done,
            ScrubOutcome::Stopped => JobState::Cancelled,
            ScrubOutcome::Failed => JobState::Failed,
        },
        percent: (last.outcome == ScrubOutcome::Completed).then_some(100.0),
        done_bytes: Some(last.verified_bytes),
        ended_ms: Some(last.ended_ms),
        error: last.reason.clone(),
        ..scrub(last.started_ms)
    });
    let running = status.running.as_ref().map(|running| Job {
        percent: Some(running.percent),
        done_bytes: Some(running.verified_bytes),
        total_bytes: Some(running.total_bytes),
        remaining_s: running.remaining_s,
        cancellable: true,
        ..scrub(running.started_ms)
    });
    ended.into_iter().chain(running).collect()
}

impl Array {
    /// All jobs that run, and the last that ended.
    ///
    /// # Errors
    /// `Offline` while the pool is not open.
    pub async fn list_jobs(&self) -> Result<Vec<Job>, ArrayError> {
        let mut jobs: Vec<_> = self.list_copies()?.into_iter().map(of_copy).collect();
        jobs.extend(of_scrubs(&self.scrub_view()?));
        jobs.extend(self.list_drives().iter().filter_map(of_drive));
        jobs.extend(of_rebuild(&self.show_rebuild()?));
        let shrinking = self.list_volumes()?.into_iter().filter(|volume| volume.trimming);
        jobs.extend(shrinking.map(|volume| {
            job(format!("shrink-{}", volume.uuid), JobKind::Shrink, format!("volume {}", volume.name))
        }));
        jobs.extend(self.list_reductions()?);
        let converting = self.list_volumes()?.into_iter().filter_map(|volume| of_conversion(&volume));
        jobs.extend(converting);
        let giving_back = self.status().giving_back.filter(|left| (left.bytes, left.entries) != (0, 0));
        jobs.extend(giving_back.map(|left| Job {
            bytes_per_s: left.bytes_per_s,
            remaining_s: left.remaining_s,
            ..job(RECLAIM.to_owned(), JobKind::Reclaim, "the pool".to_owned())
        }));
        Ok(jobs)
    }

    /// One job.
    ///
    /// # Errors
    /// [`JobError::NotFound`] if no job has the identifier. `Offline` while the pool is not open.
    pub async fn show_job(&self, id: &str) -> Result<Job, ArrayError> {
        let found = self.list_jobs().await?.into_iter().find(|job| job.id == id);
        found.ok_or_else(|| JobError::NotFound { id: id.to_owned() }.into())
    }

    /// Cancels a job, and returns its new state.
    ///
    /// # Errors
    /// [`JobError::NotFound`] if no job has the identifier, [`JobError::Ended`] if it has ended,
    /// [`JobError::GoesOn`] if its kind cannot be cancelled. `Offline` while the pool is not open.
    pub async fn cancel_job(self: &Arc<Self>, id: &str) -> Result<Job, ArrayError> {
        let job = self.show_job(id).await?;
        let copy = id.strip_prefix("copy-").and_then(|id| id.parse().ok());
        match (job.kind, copy) {
            (JobKind::Copy, Some(copy)) => self.cancel_copy(copy).await?,
            (JobKind::Scrub, _) if job.cancellable => drop(self.stop_scrub().await?),
            (JobKind::Balance, _) => {
                self.balance(false).await?;
                return Ok(Job { state: JobState::Cancelled, cancellable: false, ..job });
            }
            (JobKind::Evacuate, _) => {
                let number = id.strip_prefix(EVACUATE).and_then(|number| number.parse().ok());
                let drive = self.list_drives().into_iter().find(|drive| drive.number == number);
                if let Some(drive) = drive {
                    self.cancel_evacuation(&drive.path).await?;
                }
                return Ok(Job { state: JobState::Cancelled, cancellable: false, ..job });
            }
            (JobKind::Reduce, _) if job.cancellable => self.cancel_reduction(id)?,
            (_, _) if job.state.is_ended() => {
                return Err(JobError::Ended { id: id.to_owned(), state: job.state }.into());
            }
            _ => return Err(JobError::GoesOn { id: id.to_owned(), kind: job.kind }.into()),
        }
        self.show_job(id).await
    }
}
