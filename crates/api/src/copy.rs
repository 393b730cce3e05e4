//! Copies of ranges, from one volume into another or into itself.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// A range to copy. All numbers are multiples of the larger logical block of the two volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CopyCreate {
    /// The volume to copy into. It may be the source, and must be large enough already.
    #[schema(example = "v2")]
    pub target: String,
    /// The first byte to copy.
    #[serde(default)]
    #[schema(default = 0, example = 0)]
    pub from_bytes: u64,
    /// The offset in the target.
    #[serde(default)]
    #[schema(default = 0, example = 0)]
    pub to_bytes: u64,
    /// The number of bytes; the rest of the source if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 1073741824u64)]
    pub length_bytes: Option<u64>,
    /// Copy although hosts that see the target are logged in.
    #[serde(default)]
    #[schema(default = false)]
    pub force: bool,
}

/// The state of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CopyState {
    /// The copy is running.
    Running,
    /// The copy has ended and is releasing what it held.
    Finishing,
    /// Everything was copied.
    Done,
    /// The copy failed.
    Failed,
    /// The copy was cancelled.
    Cancelled,
}

impl CopyState {
    /// Nothing of it is left to do.
    pub fn is_ended(self) -> bool {
        !matches!(self, Self::Running | Self::Finishing)
    }
}

impl fmt::Display for CopyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Finishing => "finishing",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        })
    }
}

/// A copy of a range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeCopy {
    /// The number of the copy. Numbers are never reused.
    #[schema(example = 7)]
    pub id: u32,
    /// The source: its name now, or its name at the start of the copy if it was deleted.
    #[schema(example = "v1")]
    pub source: String,
    /// The target.
    #[schema(example = "v2")]
    pub target: String,
    /// The first byte to copy.
    pub from_bytes: u64,
    /// The offset in the target.
    pub to_bytes: u64,
    /// The number of bytes to copy.
    pub length_bytes: u64,
    /// The number of bytes copied so far, from the start of the range.
    pub done_bytes: u64,
    /// The state.
    pub state: CopyState,
    /// Average speed in bytes per second; null if not known yet.
    pub bytes_per_s: Option<u64>,
    /// Estimated remaining time; null unless the copy is running and the speed is known.
    pub remaining_s: Option<u64>,
    /// When the copy started.
    pub started_ms: u64,
    /// When the copy ended; null if it has not.
    pub ended_ms: Option<u64>,
    /// Why the copy failed; null unless it did.
    pub error: Option<String>,
}
