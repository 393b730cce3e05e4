//! Drives, and how the pool is protected over them.

use crate::{EmulatedDrive, Latency, WorkProgress};
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;
use uuid::Uuid;

/// Whether a drive completes its operations in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriveAnswers {
    /// It does.
    #[default]
    InTime,
    /// Its oldest operation is taking too long.
    Suspect,
    /// It failed because its oldest operation took too long. It is used again when all its operations have ended.
    Failed,
}

/// How a drive is, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriveState {
    /// It serves.
    Active,
    /// It serves, and gets nothing new.
    Leaving,
    /// Its oldest operation is taking too long.
    Suspect,
    /// It went away and the pool goes on without it. It is caught up when it comes back, and rebuilt after the repair delay.
    Absent,
    /// The pool needs it and it is not there: it cannot be opened, or is not the drive that it should be.
    Missing,
    /// It failed. If the pool goes on without it, it is not used again.
    Failed,
    /// The pool does not have it: it was never added, or left.
    Foreign,
    /// It was just removed: neither the pool nor the configuration has it any more.
    Removed,
    /// It is not known: the pool is not open.
    Unknown,
}

impl fmt::Display for DriveState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Active => "active",
            Self::Leaving => "leaving",
            Self::Suspect => "suspect",
            Self::Absent => "absent",
            Self::Missing => "missing",
            Self::Failed => "failed",
            Self::Foreign => "foreign",
            Self::Removed => "removed",
            Self::Unknown => "unknown",
        })
    }
}

/// Where a drive is, as the system tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriveLocation {
    /// The file or device that its path leads to.
    pub path: String,
    /// Whether that is a block device; otherwise it is a file.
    pub is_device: bool,
    /// The disk that it is, or is on.
    #[schema(example = "nvme0n1")]
    pub disk: String,
    /// The model of the disk; null if the system does not tell.
    pub model: Option<String>,
    /// The serial number of the disk; null if the system does not tell.
    pub serial: Option<String>,
    /// The World Wide Name of the disk; null if the system does not tell.
    pub wwn: Option<String>,
}

/// A drive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Drive {
    /// Its path in the configuration.
    pub path: String,
    /// Its number in the pool; null if that is not known.
    pub number: Option<u16>,
    /// Its identity, which its label contains; null if that is not known.
    pub id: Option<Uuid>,
    /// How it is, in one word.
    pub state: DriveState,
    /// The name of its fault domain: drives of the same name may fail together. Null if it is a domain of its own, or
    /// while the pool is not open.
    pub domain: Option<String>,
    /// Whether it has the table of the pool's drives and the roots; a pool has up to five such drives.
    pub votes: bool,
    /// Where it is; null while it is not open.
    pub location: Option<DriveLocation>,
    /// The path at which it was found by its label, if the configured path does not lead to it; null otherwise.
    pub found_at: Option<String>,
    /// The file or device that the path resolves to; null while it is not open, or if that is the path itself.
    pub device: Option<String>,
    /// Whether it completes its operations in time.
    pub answers: DriveAnswers,
    /// Whether the file system under it is full. Host writes fail until there is room.
    pub no_room: bool,
    /// Operations not yet completed, including those that the array gave up.
    pub unfinished: u64,
    /// Operations given up since the process started because the drive did not answer in time.
    pub timeouts: u64,
    /// Whether it answers much later than the others, and is read only where there is no other way.
    #[serde(default)]
    pub slow: bool,
    /// Whether it errs again and again, and is evacuated before it fails.
    #[serde(default)]
    pub failing: bool,
    /// Whether it is open and has not failed.
    pub online: bool,
    /// Why it is not online; null when it is.
    pub reason: Option<String>,
    /// What to do next about it; null if nothing needs to be done.
    pub next: Option<String>,
    /// When it went away, in milliseconds since 1970, if it is absent; null otherwise.
    #[serde(default)]
    pub absent_since_ms: Option<u64>,
    /// Its size; null while it is not open.
    pub size_bytes: Option<u64>,
    /// How far it is if it leaves; null otherwise.
    pub leaving: Option<DriveLeaving>,
    /// Space for data on it; null while the pool is not open or goes on without it.
    pub data_bytes: Option<u64>,
    /// The part of it that segments use.
    pub used_bytes: Option<u64>,
    /// Whether it holds a part of the journal.
    pub journal: bool,
    /// Whether it holds data.
    pub data: bool,
    /// Reads since it was opened.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes since it was opened.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Flushes since it was opened.
    pub flushes: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Repairs since it was opened: its data was wrong or unreadable and was rewritten from redundancy.
    #[serde(default)]
    pub repairs: u64,
    /// How long reads took since it was opened; null while it is not open.
    pub read_latency: Option<Latency>,
    /// How long writes took, those that are durable when they end included; null while it is not open.
    pub write_latency: Option<Latency>,
    /// What is emulated on it; null if it works as it is.
    pub emulated: Option<EmulatedDrive>,
}

/// How the pool is protected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Protection {
    /// What data is laid out as where there are fault domains enough.
    #[schema(example = "raid5")]
    pub layout: String,
    /// Failures of fault domains that the layout tolerates.
    pub tolerates: u8,
    /// What new data is laid out as, with the fault domains that are left.
    pub layout_now: String,
    /// Failures of fault domains that are tolerated now, without loss and without the pool going offline.
    pub tolerates_now: u8,
    /// Fault domains of the drives that take data.
    pub domains: usize,
    /// Drives that each write of the journal goes to.
    pub journal_columns: u8,
    /// Segments in use that lack a column, because a drive failed.
    pub degraded_segments: u64,
    /// Data and metadata in them.
    pub degraded_bytes: u64,
    /// How far the rebuild of what they lack is; null if there is nothing to rebuild.
    pub rebuild: Option<WorkProgress>,
    /// Drives that failed and that the pool goes on without.
    pub failed_drives: usize,
    /// Drives that went away, that the pool goes on without, and that may come back.
    #[serde(default)]
    pub absent_drives: usize,
    /// Bytes of columns on them, which are not rebuilt before the repair delay is over.
    #[serde(default)]
    pub absent_bytes: u64,
    /// Segments that lack more columns than their layout tolerates, until drives come back.
    #[serde(default)]
    pub unreadable_segments: u64,
    /// Data in them: at most so many bytes cannot be read, and hosts get medium errors there.
    #[serde(default)]
    pub unreadable_bytes: u64,
    /// Whether the pool is ready for the next loss. False for a moment after each: until what was written before is on the drives
    /// that are left, with as many columns as they have room for, another loss may take the pool offline.
    #[serde(default)]
    pub settled: bool,
    /// Disks that several fault domains are on: nothing protects against their loss.
    pub shared_disks: Vec<String>,
    /// Whether each drive file counts as a fault domain of its own.
    pub each_file: bool,
    /// What to do next; null if nothing needs to be done.
    pub next: Option<String>,
}

/// A drive to add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveAdd {
    /// A file or block device on the machine of the array: an absolute path.
    #[schema(example = "/dev/disk/by-id/nvme-example")]
    pub path: String,
    /// The name of its fault domain; null or left out: the disk that it is, or is on.
    #[serde(default)]
    pub domain: Option<String>,
    /// What it is for; null or left out: data, and the journal too if that lies on fewer drives than it should, or lost one.
    #[serde(default)]
    pub role: Option<DriveRole>,
    /// Overwrite what the drive holds.
    #[serde(default)]
    pub force: bool,
}

/// What a drive is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DriveRole {
    /// The journal: what hosts write goes there first. A fast drive serves best.
    Journal,
    /// Data: it is capacity.
    Data,
    /// Both.
    Both,
}

impl std::str::FromStr for DriveRole {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "journal" => Ok(Self::Journal),
            "data" => Ok(Self::Data),
            "both" => Ok(Self::Both),
            _ => Err(format!("{text:?} is no role; write journal, data or both")),
        }
    }
}

/// How far a drive is that leaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DriveLeaving {
    /// It is removed when nothing is left on it.
    pub removes: bool,
    /// The drive that takes its place; null if none was named.
    pub replaced_by: Option<String>,
    /// When it was asked to leave; null if that was not recorded.
    pub started_ms: Option<u64>,
    /// Bytes of data and metadata on it that have yet to move to other drives.
    pub left_bytes: u64,
    /// As many as there were when it began, or the most since.
    pub total_bytes: u64,
    /// What has moved, in percent.
    pub percent: f64,
    /// Speed in bytes per second; null if not known yet.
    pub bytes_per_s: Option<u64>,
    /// Estimated remaining time; null if unknown.
    pub remaining_s: Option<u64>,
    /// Whether a part of the journal lies on it that a restart would need.
    pub holds_journal: bool,
    /// Whether nothing refers to it any more: it can be removed.
    pub is_done: bool,
}

/// How a drive is to leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveEvacuate {
    /// Also if segments have fewer columns on the drives that are left than the layout has, and take more space.
    #[serde(default)]
    pub narrower: bool,
}

/// A drive that takes the place of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveReplace {
    /// A file or block device on the machine of the array: an absolute path.
    #[schema(example = "/dev/disk/by-id/nvme-example")]
    pub path: String,
    /// The name of its fault domain; null or left out: that of the drive that it replaces.
    #[serde(default)]
    pub domain: Option<String>,
    /// Overwrite what the drive holds.
    #[serde(default)]
    pub force: bool,
    /// As when a drive is evacuated.
    #[serde(default)]
    pub narrower: bool,
}
