//! Jobs: work that goes on after the request that began it was answered.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// The kind of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// Copies a range of a volume.
    Copy,
    /// Verifies everything on the drives.
    Scrub,
    /// Releases the space beyond the new end of a volume that was shrunk.
    Shrink,
    /// Reclaims the space of deleted objects.
    Reclaim,
    /// Moves what a drive holds to other drives.
    Evacuate,
    /// Makes what a failed drive held anew on other drives.
    Rebuild,
    /// Moves data from fuller drives to emptier ones.
    Balance,
    /// Moves what a volume has to the layout of its policy.
    Convert,
    /// Compresses and deduplicates what a volume has.
    Reduce,
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Copy => "copy",
            Self::Scrub => "scrub",
            Self::Shrink => "shrink",
            Self::Reclaim => "reclaim",
            Self::Evacuate => "evacuate",
            Self::Rebuild => "rebuild",
            Self::Balance => "balance",
            Self::Convert => "convert",
            Self::Reduce => "reduce",
        })
    }
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// The job is running.
    Running,
    /// The job is done.
    Done,
    /// The job failed; `error` says why.
    Failed,
    /// The job was cancelled.
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

/// A job: work that continues in the background.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Its identifier.
    #[schema(example = "copy-7")]
    pub id: String,
    /// What it does.
    pub kind: JobKind,
    /// The object that it works on, and what there is to say of the work.
    #[schema(example = "volume v1 to volume v2")]
    pub object: String,
    /// Its state.
    pub state: JobState,
    /// Progress in percent; null if unknown.
    pub percent: Option<f64>,
    /// Bytes processed; null if not counted.
    pub done_bytes: Option<u64>,
    /// Bytes to process in total; null if unknown.
    pub total_bytes: Option<u64>,
    /// Speed in bytes per second; null if not known yet.
    pub bytes_per_s: Option<u64>,
    /// Estimated remaining time; null if unknown.
    pub remaining_s: Option<u64>,
    /// When it started; null if that was not recorded.
    pub started_ms: Option<u64>,
    /// When it ended; null while it runs.
    pub ended_ms: Option<u64>,
    /// Why it failed; null unless it did.
    pub error: Option<String>,
    /// Whether it can be cancelled now.
    pub cancellable: bool,
    /// Whether it continues after the array is stopped or crashes. Otherwise it then fails.
    pub survives_restart: bool,
}
