//! Why requests about jobs, scrubs, copies and reductions were refused, and the problem reported to clients.

use quoin_api::{CopyState, JobKind, JobState, NextStep as Next, Problem, ProblemKind as Kind};
use thiserror::Error;

/// Why a request about work in the background was refused. [`ArrayError::problem`](crate::ArrayError::problem) adds what to do next.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum JobError {
    /// A scrub runs already.
    #[error("a scrub is already running")]
    ScrubRunning,
    /// No scrub runs.
    #[error("no scrub is running")]
    NoScrub,
    /// No job has the identifier.
    #[error("there is no job {id}, or it ended a while ago")]
    NotFound {
        /// The identifier asked for.
        id: String,
    },
    /// The job has ended.
    #[error("job {id} has ended: it is {state}")]
    Ended {
        /// The job.
        id: String,
        /// How it ended.
        state: JobState,
    },
    /// The job does what cannot be left half done.
    #[error("a {kind} job cannot be cancelled")]
    GoesOn {
        /// The job.
        id: String,
        /// What it does.
        kind: JobKind,
    },
    /// No copy has the number, or it ended too long ago.
    #[error("there is no copy {id}; the array lists running copies and the last 32 that ended")]
    NoCopy {
        /// The number asked for.
        id: u32,
    },
    /// There is nothing to reduce the volume by.
    #[error("volume {name} is neither compressed nor deduplicated")]
    NotReduced {
        /// The volume.
        name: String,
    },
    /// The copy has ended.
    #[error("copy {id} has already ended: {state}")]
    CopyEnded {
        /// The copy.
        id: u32,
        /// How it ended.
        state: CopyState,
    },
}

impl JobError {
    /// Returns the problem as reported to clients.
    pub(crate) fn problem(&self) -> Problem {
        let (kind, title, which, next) = match self {
            Self::ScrubRunning => {
                (Kind::Running, "scrub not started", "the pool".to_owned(), Next::ShowOrStopScrub)
            }
            Self::NoScrub => {
                (Kind::NotRunning, "scrub not stopped", "the pool".to_owned(), Next::ShowLastScrub)
            }
            Self::NotFound { id } => (Kind::NotFound, "no such job", format!("job {id}"), Next::ListJobs),
            Self::Ended { id, .. } => {
                (Kind::NotRunning, "job not cancelled", format!("job {id}"), Next::ShowJob { job: id })
            }
            Self::GoesOn { id, .. } => {
                (Kind::NotCancellable, "job not cancelled", format!("job {id}"), Next::WatchJob { job: id })
            }
            Self::NoCopy { id } => (Kind::NotFound, "no such copy", format!("copy {id}"), Next::ListCopies),
            Self::NotReduced { name } => {
                let next = Next::SetReduction { volume: name };
                (Kind::NotReduced, "volume not reduced", format!("volume {name}"), next)
            }
            Self::CopyEnded { id, .. } => {
                (Kind::NotRunning, "copy not cancelled", format!("copy {id}"), Next::ShowCopy { copy: *id })
            }
        };
        Problem::new(kind, title, which, self.to_string(), next)
    }
}
