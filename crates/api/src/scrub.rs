//! Scrubs: the verification of all that lies on the drives.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use utoipa::ToSchema;

/// How often scrubs start automatically.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScrubSchedule {
    /// Never.
    Off,
    /// Every day.
    Daily,
    /// On Sundays.
    #[default]
    Weekly,
}

impl fmt::Display for ScrubSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
        })
    }
}

/// A time of the day in UTC, `HH:MM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TimeOfDay {
    /// Minutes since midnight.
    pub minute: u16,
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.minute / 60, self.minute % 60)
    }
}

impl FromStr for TimeOfDay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let part = |text: &str, end: u16| {
            let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|value: &u16| digits && *value < end)
        };
        let parts = text.split_once(':').and_then(|(h, m)| Some((part(h, 24)?, part(m, 60)?)));
        match parts {
            Some((hour, minute)) => Ok(Self { minute: hour * 60 + minute }),
            None => Err(format!("{text:?} is not a time of the day; write HH:MM in UTC, such as 02:00")),
        }
    }
}

impl TryFrom<String> for TimeOfDay {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<TimeOfDay> for String {
    fn from(time: TimeOfDay) -> Self {
        time.to_string()
    }
}

/// What to change about scrubs. Fields that are not given stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScrubUpdate {
    /// How often scrubs start automatically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScrubSchedule>,
    /// The time at which they start, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "02:00", pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    pub at: Option<TimeOfDay>,
    /// The highest read rate in bytes per second; 0 for no limit. It applies to a running scrub, too.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::optional_int64")]
    #[schema(example = 52428800u64)]
    pub rate_bytes_s: Option<u64>,
}

/// The scrub settings, the running scrub, and the result of the last one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScrubStatus {
    /// How often scrubs start automatically.
    pub schedule: ScrubSchedule,
    /// The time at which they start, in UTC.
    #[schema(value_type = String, example = "02:00")]
    pub at: TimeOfDay,
    /// The highest read rate in bytes per second; 0 for no limit.
    pub rate_bytes_s: u64,
    /// When the next scrub starts automatically; null if none does.
    pub next_ms: Option<u64>,
    /// The running scrub; null if none is running.
    pub running: Option<ScrubProgress>,
    /// The last scrub that ended; null if there was none.
    pub last: Option<ScrubResult>,
    /// Ranges of volumes that cannot be read, until they are overwritten or unmapped; at most 200.
    pub damaged: Vec<DamagedRange>,
    /// The number of further ranges, which are not listed.
    pub more_damaged: u64,
}

/// A running scrub.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScrubProgress {
    /// When it started.
    pub started_ms: u64,
    /// Bytes read and verified so far. Where data is protected, all of it is read a second time, with what protects it.
    pub verified_bytes: u64,
    /// Bytes to read, approximately.
    pub total_bytes: u64,
    /// Progress in percent.
    pub percent: f64,
    /// Estimated remaining time; null if not known yet.
    pub remaining_s: Option<u64>,
    /// What it found.
    pub found: ScrubFindings,
}

/// How a scrub ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScrubOutcome {
    /// The scrub read everything.
    Completed,
    /// The scrub was stopped.
    Stopped,
    /// The scrub failed.
    Failed,
}

impl fmt::Display for ScrubOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completed => "completed",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        })
    }
}

/// A scrub that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScrubResult {
    /// When it started.
    pub started_ms: u64,
    /// When it ended.
    pub ended_ms: u64,
    /// How it ended.
    pub outcome: ScrubOutcome,
    /// Why it failed; null unless it did.
    #[serde(default)]
    pub reason: Option<String>,
    /// Bytes read and verified, what was read a second time included.
    pub verified_bytes: u64,
    /// What it found.
    pub found: ScrubFindings,
    /// Findings other than in host data, as text; at most 100.
    pub notes: Vec<String>,
    /// Repairs of what each drive holds, since the scrub was started or continued.
    #[serde(default)]
    pub repairs_by_drive: Vec<DriveRepairs>,
}

/// Repairs of what a drive holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriveRepairs {
    /// The drive.
    #[schema(example = "/dev/nvme0n1")]
    pub drive: String,
    /// How many.
    pub repairs: u64,
}

/// What a scrub rewrote from redundancy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScrubRepairs {
    /// Ranges of data computed from parity and rewritten.
    pub data: u64,
    /// Copies of data rewritten.
    pub copies: u64,
    /// Ranges of parity computed again and rewritten.
    pub parity: u64,
}

/// What a scrub verified and found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScrubFindings {
    /// Blocks of host data verified.
    pub blocks: u64,
    /// Metadata pages verified.
    pub pages: u64,
    /// Row heads verified.
    pub rows: u64,
    /// Blocks that cannot be read correctly.
    pub damaged_blocks: u64,
    /// Metadata pages that could not be read correctly.
    pub damaged_pages: u64,
    /// Row heads that cannot be read correctly. The cleaner skips their segments.
    pub damaged_rows: u64,
    /// The damaged metadata pages that were in RAM and were rewritten.
    pub repaired_pages: u64,
    /// Reads that a drive failed.
    pub failed_reads: u64,
    /// What was wrong or unreadable and was rewritten from redundancy.
    #[serde(default)]
    pub repairs: ScrubRepairs,
}

/// A range of a volume that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DamagedRange {
    /// The volume.
    #[schema(example = "v1")]
    pub volume: String,
    /// Its first byte.
    pub offset_bytes: u64,
    /// How many bytes.
    pub length_bytes: u64,
    /// When it was found.
    pub found_ms: u64,
    /// What was found.
    pub reason: String,
}

/// A summary of scrubs and damage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Integrity {
    /// The number of ranges of volumes that cannot be read; the scrub status lists them.
    pub damaged_ranges: u64,
    /// Progress of the running scrub in percent; null if none is running.
    pub scrub_percent: Option<f64>,
    /// When the last complete scrub ended; null if there was none.
    pub last_scrub_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_day_are_read_and_written() {
        for (text, minute) in [("00:00", 0), ("02:30", 150), ("23:59", 1439)] {
            let time: TimeOfDay = text.parse().unwrap();
            assert_eq!((time.minute, time.to_string().as_str()), (minute, text));
        }
        for bad in ["", "2:00", "24:00", "02:60", "02-00", "+2:00", "02:00:00"] {
            assert!(bad.parse::<TimeOfDay>().is_err(), "{bad}");
        }
    }
}
