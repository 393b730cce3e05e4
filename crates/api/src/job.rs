//! Jobs: work that goes on after the request that began it was answered.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// Copies a range of a volume.
    Copy,
    /// Verifies everything on the drives.
    Scrub,
    /// Releases what lay beyond the new end of a volume that was made smaller.
    Shrink,
    /// Returns the space of what was deleted to the pool.
    Reclaim,
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Copy => "copy",
            Self::Scrub => "scrub",
            Self::Shrink => "shrink",
            Self::Reclaim => "reclaim",
        })
    }
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// It is at work.
    Running,
    /// All was done.
    Done,
    /// It could not go on; `error` says why.
    Failed,
    /// Somebody cancelled it.
    Cancelled,
}

impl JobState {
    /// Nothing of it is left to do.
    pub fn is_ended(self) -> bool {
        self != Self::Running
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        })
    }
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// What identifies it.
    #[schema(example = "copy-7")]
    pub id: String,
    /// What it does.
    pub kind: JobKind,
    /// What it works on.
    #[schema(example = "volume v1 to volume v2")]
    pub object: String,
    /// How far it is.
    pub state: JobState,
    /// How far it is, in percent; null if that cannot be said.
    pub percent: Option<f64>,
    /// The bytes that are done; null if they are not counted.
    pub done_bytes: Option<u64>,
    /// The bytes there are to do; null if that is not known.
    pub total_bytes: Option<u64>,
    /// The bytes done in a second; null before that can be said.
    pub bytes_per_s: Option<u64>,
    /// How long it will still take, at that pace; null if that cannot be said.
    pub remaining_s: Option<u64>,
    /// When it began; null if that was not recorded.
    pub started_ms: Option<u64>,
    /// When it ended; null while it runs.
    pub ended_ms: Option<u64>,
    /// Why it could not go on; null unless it failed.
    pub error: Option<String>,
    /// True if it can be cancelled now.
    pub cancellable: bool,
    /// True if it goes on after the array was stopped or crashed; a job that does not, fails then.
    pub survives_restart: bool,
}
