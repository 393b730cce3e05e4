//! Copies of ranges, from one volume into another or into itself.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// A range to copy. Numbers are multiples of the larger logical block of the two volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CopyCreate {
    /// The volume to copy into, which may be the source; it is large enough already.
    #[schema(example = "v2")]
    pub target: String,
    /// The first byte to copy.
    #[serde(default)]
    #[schema(default = 0, example = 0)]
    pub from_bytes: u64,
    /// Where in the target that goes.
    #[serde(default)]
    #[schema(default = 0, example = 0)]
    pub to_bytes: u64,
    /// How many bytes; all the rest of the source if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 1073741824u64)]
    pub length_bytes: Option<u64>,
    /// Do so though hosts that see the target are logged in.
    #[serde(default)]
    #[schema(default = false)]
    pub force: bool,
}

/// How far a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CopyState {
    /// It copies.
    Running,
    /// It copies no more and lets go of what it held.
    Finishing,
    /// All is copied.
    Done,
    /// It could not go on.
    Failed,
    /// It was cancelled.
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
    /// Its number, never given to another.
    #[schema(example = 7)]
    pub id: u32,
    /// What it copies: the volume's name now, or when the copy began if it was deleted.
    #[schema(example = "v1")]
    pub source: String,
    /// The volume it copies into.
    #[schema(example = "v2")]
    pub target: String,
    /// The first byte that is copied.
    pub from_bytes: u64,
    /// Where in the target that goes.
    pub to_bytes: u64,
    /// How many bytes are to be copied.
    pub length_bytes: u64,
    /// How many are, from the beginning of the range on.
    pub done_bytes: u64,
    /// How far it is.
    pub state: CopyState,
    /// The bytes copied in a second, on average; null before that can be said.
    pub bytes_per_s: Option<u64>,
    /// How long it will still take, at that pace; null unless it copies and that can be said.
    pub remaining_s: Option<u64>,
    /// When it began.
    pub started_ms: u64,
    /// When it ended; null if it has not.
    pub ended_ms: Option<u64>,
    /// Why it could not go on; null unless that is so.
    pub error: Option<String>,
}
