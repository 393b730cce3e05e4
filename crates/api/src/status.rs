//! How the array is.

use crate::Integrity;
use crate::Retention;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;
use uuid::Uuid;

/// Whether the array serves its volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The pool is being opened for the first time.
    Starting,
    /// Volumes are served.
    Online,
    /// A drive does not answer; I/O that needs it waits. Either it answers again or the pool goes offline.
    Stalled,
    /// The pool is not open; management goes on, and opening it is tried again every few seconds.
    Offline,
    /// A clean stop is under way.
    Stopping,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Online => "online",
            Self::Stalled => "stalled",
            Self::Offline => "offline",
            Self::Stopping => "stopping",
        })
    }
}

/// How the array is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// True when volumes are served.
    pub ready: bool,
    /// The state behind it.
    pub state: State,
    /// Since when it is in this state, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// Why it is not ready; null when it is.
    pub reason: Option<String>,
    /// The array's name.
    pub name: String,
    /// The pool's identity, as every drive's label holds it.
    pub pool: Uuid,
    /// The target's iSCSI name.
    #[schema(example = "iqn.2026-11.io.quoin:0f4e7a1c22b9")]
    pub iqn: String,
    /// Addresses at which iSCSI is served.
    pub portals: Vec<String>,
    /// Addresses and sockets at which NBD is served.
    pub nbd: Vec<String>,
    /// The version of the software.
    pub version: String,
    /// Seconds since the process started.
    pub uptime_s: u64,
    /// How many objects there are; null until the pool was open once.
    pub objects: Option<Objects>,
    /// Space; null while the pool is offline.
    pub capacity: Option<Capacity>,
    /// What was deleted and is being given back; null while the pool is offline.
    pub giving_back: Option<GivingBack>,
    /// How the clock is by which immutable snapshots are kept; null while nothing is immutable or the pool is offline.
    pub retention: Option<Retention>,
    /// Scrubs, and data that cannot be read; null while the pool is offline.
    pub integrity: Option<Integrity>,
    /// What the last opening of the pool had to do; null while it is offline.
    pub recovery: Option<Recovery>,
    /// What the engine did since the pool was opened; null while it is offline.
    pub engine: Option<Engine>,
    /// The drives, in the order of the configuration.
    pub drives: Vec<Drive>,
}

/// How many objects there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Objects {
    /// Volumes, snapshots and clones included.
    pub volumes: usize,
    /// Of them, snapshots.
    pub snapshots: usize,
    /// Consistency groups.
    pub groups: usize,
    /// Hosts.
    pub hosts: usize,
    /// Mappings of a volume to a host.
    pub mappings: usize,
    /// Exports of volumes to NBD clients.
    pub exports: usize,
    /// Sessions logged in.
    pub sessions: usize,
}

/// How full the pool is, by its thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SpaceLevel {
    /// Below all thresholds.
    Normal,
    /// The first threshold is reached.
    Notice,
    /// The second threshold is reached.
    Warning,
    /// Writes that need space fail.
    Full,
}

impl fmt::Display for SpaceLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Normal => "normal",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Full => "full",
        })
    }
}

/// Space in the pool, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Capacity {
    /// What the segments of all drives could hold.
    pub total_bytes: u64,
    /// What host data may take of it: the rest is for metadata and reserve.
    pub usable_bytes: u64,
    /// What host data may not take though it is not metadata: for checkpoints, cleaning, unmapping and deleting.
    pub reserve_bytes: u64,
    /// Taken by metadata.
    pub metadata_bytes: u64,
    /// Taken by host data, on drives or on the way there. What is on the way may lie over what it replaces, and is
    /// counted in whole blocks.
    pub used_bytes: u64,
    /// What the volumes map on drives, all together.
    pub mapped_bytes: u64,
    /// Kept for thick volumes, whether they use it or not.
    pub reserved_bytes: u64,
    /// Kept for thick volumes, and not used by them.
    pub reserved_unused_bytes: u64,
    /// What writes to thin volumes can still take.
    pub free_bytes: u64,
    /// The sizes of all volumes together.
    pub provisioned_bytes: u64,
    /// What is used or kept, in percent of what host data may take.
    pub used_percent: f64,
    /// How full that is, by the thresholds.
    pub level: SpaceLevel,
}

/// What was deleted, or replaced by a restore or refresh, and is being given back in the background.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GivingBack {
    /// Bytes of data nobody else has, still to be given back. They count as used until then.
    pub bytes: u64,
    /// Places still to be looked at, to find what else nobody has any more.
    pub entries: u64,
    /// How many bytes come back a second; null if nothing does, or it was not measured yet.
    pub bytes_per_s: Option<u64>,
    /// In how many seconds all is back if it goes on so; null if nothing is known of it.
    pub remaining_s: Option<u64>,
}

/// Whether the operations of a drive end in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriveAnswers {
    /// They do.
    #[default]
    InTime,
    /// The oldest has been under way for longer than it should.
    Suspect,
    /// The drive failed because the oldest took too long; it is used again when all have ended.
    Failed,
}

/// A drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drive {
    /// Its path, as the configuration has it.
    pub path: String,
    /// Where it was found by its label, as its path does not lead to it; null when it does.
    pub found_at: Option<String>,
    /// The file or device that the path leads to; null while it is not open, and when that is the path itself.
    pub device: Option<String>,
    /// Whether its operations end in time.
    pub answers: DriveAnswers,
    /// The file system under it is full: writes of hosts fail until there is room.
    pub no_room: bool,
    /// Operations under way, those that were given up included.
    pub unfinished: u64,
    /// Operations given up since the process started, because the drive did not answer in time.
    pub timeouts: u64,
    /// True when it is open and has not failed.
    pub online: bool,
    /// Why it is not online; null when it is.
    pub reason: Option<String>,
    /// Its size; null while it is not open.
    pub size_bytes: Option<u64>,
    /// It holds a part of the journal.
    pub journal: bool,
    /// It holds data.
    pub data: bool,
    /// Reads done since it was opened.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes done since it was opened.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Flushes done since it was opened.
    pub flushes: u64,
    /// Operations that failed.
    pub errors: u64,
}

/// What the last opening of the pool had to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Recovery {
    /// From the first read to the moment the pool served.
    pub duration_ms: f64,
    /// Of it, to take the drives over.
    pub takeover_ms: f64,
    /// Of it, to read root, segment table and catalog.
    pub checkpoint_ms: f64,
    /// Of it, to read headers and checksums of the journal.
    pub journal_ms: f64,
    /// Of it, to put the records back into the write buffer.
    pub replay_ms: f64,
    /// Journal records applied.
    pub replayed_records: u64,
    /// Bytes of host data they carry.
    pub replayed_bytes: u64,
    /// Batches found in the journal, obsolete ones included.
    pub batches: u64,
    /// Batches that were torn, never acknowledged, and dropped.
    pub torn_batches: u64,
    /// The checkpoint it started from.
    pub checkpoint_generation: u64,
}

/// What the engine holds, and what it did since the pool was opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Engine {
    /// Host data acknowledged and not destaged yet.
    pub buffered_bytes: u64,
    /// RAM the write buffer takes.
    pub buffer_ram_bytes: u64,
    /// RAM it may take.
    pub buffer_limit_bytes: u64,
    /// RAM that metadata pages take.
    pub metadata_ram_bytes: u64,
    /// RAM that the read cache takes.
    pub cache_ram_bytes: u64,
    /// Blocks that reads found in the read cache.
    pub cache_hits: u64,
    /// Blocks that reads looked for in the read cache and did not find.
    pub cache_misses: u64,
    /// Segments in all.
    pub segments: u64,
    /// Segments that are free.
    pub free_segments: u64,
    /// Journal extents in all.
    pub journal_extents: u64,
    /// Journal extents in use.
    pub journal_extents_used: u64,
    /// Written to the journal.
    pub journal_bytes: u64,
    /// Batches written to the journal.
    pub journal_batches: u64,
    /// How many times the journal has been gone through.
    pub journal_wraps: u64,
    /// Host writes.
    pub writes: u64,
    /// Written by hosts.
    pub written_bytes: u64,
    /// Host reads.
    pub reads: u64,
    /// Read by hosts.
    pub read_bytes: u64,
    /// Unmapped by hosts.
    pub unmapped_bytes: u64,
    /// Writes that were delayed because buffer or journal were filling up.
    pub throttled_writes: u64,
    /// Writes refused because the pool was full.
    pub refused_writes: u64,
    /// Writes that took longer than 50 ms, most of it waiting for room in buffer and journal.
    pub stalls_for_room: u64,
    /// Writes that took longer than 50 ms, most of it waiting for space that was being given back.
    pub stalls_for_space: u64,
    /// Writes that took longer than 50 ms, most of it until the journal was written.
    pub stalls_for_hardening: u64,
    /// The longest a write took.
    pub longest_write_ms: f64,
    /// Snapshots, clones, restores, refreshes and beginnings of range copies since the pool was opened; those of one
    /// moment count once.
    pub forks: u64,
    /// The longest that one of them held writes.
    pub longest_fork_ms: f64,
    /// Bytes written to journal and segments for each byte that hosts wrote; 0 before the first.
    pub write_amplification: f64,
    /// Blocks destaged.
    pub destaged_blocks: u64,
    /// Written to segments by destage.
    pub destaged_bytes: u64,
    /// Written to segments by the cleaner.
    pub cleaned_bytes: u64,
    /// Checkpoints made.
    pub checkpoints: u64,
    /// Written by checkpoints.
    pub checkpoint_bytes: u64,
    /// Time spent in checkpoints.
    pub checkpoint_ms: f64,
    /// Metadata pages read from drives.
    pub metadata_loads: u64,
    /// Blocks that could not be read back correctly, each time one was met.
    pub medium_errors: u64,
    /// Blocks lost: what lay below a partial write was unreadable, or what was buffered changed in RAM and the journal
    /// could not help.
    pub lost_blocks: u64,
    /// Times that buffered data was found to have changed in RAM. The journal's copy is taken instead.
    pub ram_faults: u64,
}
