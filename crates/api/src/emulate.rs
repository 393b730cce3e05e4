//! Emulated drives: what they are, how they are, and what they are told to do.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// What an emulated drive is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EmulateAction {
    /// Every operation fails from now on.
    Fail,
    /// Everything takes `factor` times as long from now on.
    Slow,
    /// Operations are not answered from now on.
    Hang,
    /// Bits flip at rest in `pages` pages of the data area that hold something, and nobody is told.
    Corrupt,
    /// The drive is pulled: its operations fail, and it cannot be opened.
    Detach,
    /// The drive does what its figures say again, with its content as it is.
    Return,
}

/// What to do with an emulated drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EmulateDrive {
    /// What it does from now on.
    #[schema(example = "slow")]
    pub action: EmulateAction,
    /// How many times as long everything takes; for `slow` only, 10 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 10, minimum = 2, maximum = 10000)]
    pub factor: Option<u32>,
    /// How many pages of 4 KiB are corrupted; for `corrupt` only, 1 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10000)]
    pub pages: Option<u32>,
    /// Which pages are corrupted, and which bits, follows from this and from what the drive holds; for `corrupt` only, a
    /// random number if not given.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::optional_int64")]
    #[schema(minimum = 0)]
    pub seed: Option<u64>,
}

/// How an emulated drive behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EmulatedCondition {
    /// As its figures say.
    #[default]
    Healthy,
    /// Every operation fails.
    Failing,
    /// Everything takes longer.
    Slow,
    /// Operations are not answered.
    Hung,
    /// It is not there.
    Detached,
}

impl fmt::Display for EmulatedCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Healthy => "healthy",
            Self::Failing => "failing",
            Self::Slow => "slow",
            Self::Hung => "hung",
            Self::Detached => "detached",
        })
    }
}

/// What is emulated on a drive, and how it behaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EmulatedDrive {
    /// The technology: `flash`, `nvme`, `15k`, `10k` or `7.2k`.
    #[schema(example = "15k")]
    pub technology: String,
    /// Random operations of 4 KiB a second.
    pub iops: u32,
    /// The latency of one of them, in milliseconds.
    pub latency_ms: f64,
    /// Sequential bandwidth in 10^6 bytes a second.
    pub mbps: u32,
    /// How it behaves.
    pub condition: EmulatedCondition,
    /// How many times as long everything takes; 1 unless it is slow.
    pub slow_factor: u32,
    /// Pages that were corrupted since the process started.
    pub corrupted_pages: u64,
}
