//! Rebuild of what failed drives held, and balancing of drives.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use utoipa::ToSchema;

/// When data moves from fuller drives to emptier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BalanceMode {
    /// Whenever drives are used unevenly, after one was added for instance.
    Auto,
    /// Only when it is started by hand.
    #[default]
    Manual,
}

impl fmt::Display for BalanceMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Manual => "manual",
        })
    }
}

impl FromStr for BalanceMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Auto, Self::Manual]
            .into_iter()
            .find(|mode| mode.to_string() == text)
            .ok_or_else(|| format!("{text:?} is no mode; write auto or manual"))
    }
}

/// How far work in the background is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkProgress {
    /// What is left to do.
    pub left_bytes: u64,
    /// What there was to do when it began, or the most since.
    pub total_bytes: u64,
    /// What is done, in percent.
    pub percent: f64,
    /// Speed in bytes per second; null if not known yet.
    pub bytes_per_s: Option<u64>,
    /// Estimated remaining time at the rate of the last half minute; null if unknown.
    pub remaining_s: Option<u64>,
}

/// The settings and the state of rebuild and balancing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Rebuild {
    /// How fast the pool rebuilds and moves data beside hosts at least, as far as drives can; 0: not at all, if hosts need all.
    pub min_rate_bytes_s: u64,
    /// How fast it does at most; 0: no limit.
    pub max_rate_bytes_s: u64,
    /// How long a drive that went away is waited for before what it holds is rebuilt on the others, in seconds.
    pub repair_delay_s: u64,
    /// When drives are balanced.
    pub balance: BalanceMode,
    /// Whether data is being moved to balance drives.
    pub balancing: bool,
    /// How far apart the used shares of the fullest and the emptiest drive are, in percent of a drive.
    pub apart_percent: u64,
    /// How far the rebuild is; null if there is nothing to rebuild.
    pub running: Option<WorkProgress>,
}

/// A change of these settings. What is left out stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RebuildUpdate {
    /// How fast the pool rebuilds and moves data beside hosts at least; 0: not at all, if hosts need all.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::optional_int64")]
    pub min_rate_bytes_s: Option<u64>,
    /// How fast it does at most; 0: no limit. It goes before the least.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::optional_int64")]
    pub max_rate_bytes_s: Option<u64>,
    /// How long a drive that went away is waited for, in seconds; 0: it is rebuilt at once.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::optional_int64")]
    pub repair_delay_s: Option<u64>,
    /// When drives are balanced.
    #[serde(default)]
    pub balance: Option<BalanceMode>,
}
