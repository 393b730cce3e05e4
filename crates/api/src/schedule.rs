//! Schedules: snapshots taken by the clock, and how many of them are kept.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// How often a schedule takes snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Every {
    /// Every hour, at the minute of the schedule's time.
    Hourly,
    /// Every day, at the schedule's time.
    Daily,
    /// Every Sunday, at the schedule's time.
    Weekly,
}

impl Every {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Hourly, Self::Daily, Self::Weekly];

    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hourly => "hourly",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
        }
    }
}

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How often snapshots are taken, and how many are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// How often.
    pub every: Every,
    /// How many are kept: the newest.
    #[schema(example = 24, minimum = 1, maximum = 1000)]
    pub keep: u32,
}

/// A schedule to create, for a volume or a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleCreate {
    /// Its name: 1 to 63 characters of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit.
    #[schema(example = "nightly", min_length = 1, max_length = 63, pattern = "^[a-z0-9][a-z0-9._-]*$")]
    pub name: String,
    /// The volume whose snapshots it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "v1")]
    pub volume: Option<String>,
    /// The consistency group whose snapshots it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// How often, and how many are kept. Each frequency may occur once.
    #[schema(min_items = 1)]
    pub rules: Vec<Rule>,
    /// The time in UTC, hour and minute. Hourly snapshots use only the minute.
    #[serde(default = "midnight")]
    #[schema(example = "02:30", default = "00:00", pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    pub at: String,
    /// Make each snapshot immutable for this many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 604800u64, minimum = 1, maximum = 3162240000u64)]
    pub retain_s: Option<u64>,
}

fn midnight() -> String {
    "00:00".to_owned()
}

/// What to change about a schedule. Fields that are not given stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleUpdate {
    /// Whether the schedule is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Schedule {
    /// Its name.
    #[schema(example = "nightly")]
    pub name: String,
    /// The volume whose snapshots it takes; null if it is for a group, or if the volume was deleted.
    pub volume: Option<String>,
    /// The consistency group whose snapshots it takes; null if it is for a volume, or if the group was deleted.
    pub group: Option<String>,
    /// How often, and how many are kept.
    pub rules: Vec<Rule>,
    /// The time in UTC.
    #[schema(example = "02:30")]
    pub at: String,
    /// For how many seconds each snapshot is made immutable; null if it is not.
    pub retain_s: Option<u64>,
    /// Whether it is paused.
    pub paused: bool,
    /// When it was created.
    pub created_ms: u64,
    /// When it last ran; null if it never did.
    pub last_run_ms: Option<u64>,
    /// When it runs next; null while it is paused.
    pub next_run_ms: Option<u64>,
    /// Those of its snapshots that still exist.
    pub snapshots: u64,
}
