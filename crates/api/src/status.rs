//! How the array is.

use crate::Drive;
use crate::Integrity;
use crate::Protection;
use crate::RecycleBin;
use crate::Retention;
use crate::Spare;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;
use uuid::Uuid;

/// The state of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The pool is being opened for the first time.
    Starting,
    /// Volumes are served.
    Online,
    /// A drive does not answer, and I/O that needs it waits. Either it answers again, or the pool goes offline.
    Stalled,
    /// The pool is not open. Management works, and the array tries to open the pool every few seconds.
    Offline,
    /// The array is being stopped.
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

/// The status of the array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// Whether volumes are served.
    pub ready: bool,
    /// The state.
    pub state: State,
    /// Since when the array is in this state, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// Why volumes are not served; null if they are.
    pub reason: Option<String>,
    /// The name of the array.
    pub name: String,
    /// The identity of the pool, which every drive's label contains.
    pub pool: Uuid,
    /// The iSCSI name of the target.
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
    /// The number of objects; null until the pool has been open once.
    pub objects: Option<Objects>,
    /// Volumes that refuse all I/O, though the pool is online, because their snapshots hold more than a snapshot reserve
    /// allows.
    #[schema(example = json!([]))]
    pub offline_volumes: Vec<String>,
    /// Space; null while the pool is offline.
    pub capacity: Option<Capacity>,
    /// How data is protected against the loss of drives; null while the pool is offline.
    pub protection: Option<Protection>,
    /// Deleted data that is being reclaimed; null while the pool is offline.
    pub giving_back: Option<GivingBack>,
    /// The clock of immutable snapshots; null while there are none or the pool is offline.
    pub retention: Option<Retention>,
    /// Deleted volumes that can be restored; null until the pool has been open once.
    pub recycle_bin: Option<RecycleBin>,
    /// Scrubs and damaged data; null while the pool is offline.
    pub integrity: Option<Integrity>,
    /// What the last opening of the pool did; null while it is offline.
    pub recovery: Option<Recovery>,
    /// What the engine did since the pool was opened; null while it is offline.
    pub engine: Option<Engine>,
    /// The drives, in the order of the configuration.
    pub drives: Vec<Drive>,
}

/// The number of objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Objects {
    /// Volumes, including snapshots and clones.
    pub volumes: usize,
    /// Snapshots.
    pub snapshots: usize,
    /// Consistency groups.
    pub groups: usize,
    /// Hosts.
    pub hosts: usize,
    /// Mappings of volumes to hosts.
    pub mappings: usize,
    /// Exports of volumes to NBD clients.
    pub exports: usize,
    /// Sessions that are logged in.
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
    /// The third threshold is reached, and it is below 100 percent.
    Critical,
    /// Writes that need space fail.
    Full,
}

impl fmt::Display for SpaceLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Normal => "normal",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Critical => "critical",
            Self::Full => "full",
        })
    }
}

/// Space in the pool, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Capacity {
    /// The total capacity of the segments of all drives.
    pub total_bytes: u64,
    /// Space for host data. The rest is for metadata and the internal reserve.
    pub usable_bytes: u64,
    /// The internal reserve for checkpoints, cleaning, unmapping and deleting.
    pub reserve_bytes: u64,
    /// Space used by metadata.
    pub metadata_bytes: u64,
    /// Space used by host data, on drives or still buffered. Buffered data is counted in whole blocks, in addition to
    /// the data that it replaces.
    pub used_bytes: u64,
    /// Space allocated to all volumes on drives.
    pub mapped_bytes: u64,
    /// Space reserved for thick volumes, used or not.
    pub reserved_bytes: u64,
    /// Space reserved for thick volumes that they do not use yet.
    pub reserved_unused_bytes: u64,
    /// Space left for writes to thin volumes.
    pub free_bytes: u64,
    /// The total size of all volumes.
    pub provisioned_bytes: u64,
    /// Used and reserved space, in percent of the space for host data.
    pub used_percent: f64,
    /// The threshold that this has reached.
    pub level: SpaceLevel,
    /// The thresholds: notice, warning and critical, in percent; 0: off.
    #[serde(default)]
    pub thresholds_percent: [u8; 3],
    /// What is kept free for the loss of drives, beside the space for host data.
    #[serde(default)]
    pub spare: Spare,
    /// What each slice has of it now, in their order. A slice takes more when it needs it.
    #[serde(default)]
    pub slices: Vec<SliceCapacity>,
}

/// Space in a slice of the pool, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SliceCapacity {
    /// Its volumes, including snapshots, clones and deleted volumes that are kept.
    pub volumes: u64,
    /// Space for host data that it holds now. It takes more of the pool's as it needs it, and gives back what others need.
    pub usable_bytes: u64,
    /// The part of it that is left for writes to thin volumes.
    pub free_bytes: u64,
}

/// Data that was deleted, or replaced by a restore or refresh, and is being reclaimed in the background.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GivingBack {
    /// Bytes of unshared data still to be reclaimed. They count as used until then.
    pub bytes: u64,
    /// Map entries still to be examined to find further data that nothing uses any more.
    pub entries: u64,
    /// Bytes reclaimed per second; null if nothing is being reclaimed or it was not measured yet.
    pub bytes_per_s: Option<u64>,
    /// Estimated remaining time in seconds; null if unknown.
    pub remaining_s: Option<u64>,
}

/// What the last opening of the pool did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Recovery {
    /// Duration from the first read until volumes were served.
    pub duration_ms: f64,
    /// The part for taking over the drives.
    pub takeover_ms: f64,
    /// The part for reading root, segment table and catalog.
    pub checkpoint_ms: f64,
    /// The part for reading headers and checksums of the journal.
    pub journal_ms: f64,
    /// The part for putting the records back into the write buffer.
    pub replay_ms: f64,
    /// Journal records replayed.
    pub replayed_records: u64,
    /// Bytes of host data in them.
    pub replayed_bytes: u64,
    /// Batches found in the journal, including obsolete ones.
    pub batches: u64,
    /// Batches that were torn, never acknowledged, and dropped.
    pub torn_batches: u64,
    /// The checkpoint it started from.
    pub checkpoint_generation: u64,
}

/// The state of the engine, and what it did since the pool was opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Engine {
    /// Host data acknowledged and not yet destaged.
    pub buffered_bytes: u64,
    /// RAM used by the write buffer.
    pub buffer_ram_bytes: u64,
    /// RAM that the write buffer may use.
    pub buffer_limit_bytes: u64,
    /// RAM used by metadata pages.
    pub metadata_ram_bytes: u64,
    /// RAM used by the read cache.
    pub cache_ram_bytes: u64,
    /// Blocks that reads found in the read cache.
    pub cache_hits: u64,
    /// Blocks that reads did not find in the read cache.
    pub cache_misses: u64,
    /// RAM used by data read ahead of sequential reads.
    pub ahead_ram_bytes: u64,
    /// Bytes read ahead of sequential reads.
    pub ahead_bytes: u64,
    /// Bytes read ahead and given up before anybody read them.
    pub ahead_unused_bytes: u64,
    /// Segments, in total.
    pub segments: u64,
    /// Free segments.
    pub free_segments: u64,
    /// Journal extents, in total.
    pub journal_extents: u64,
    /// Journal extents in use.
    pub journal_extents_used: u64,
    /// Bytes written to the journal.
    pub journal_bytes: u64,
    /// Batches written to the journal.
    pub journal_batches: u64,
    /// Times that the journal wrapped around.
    pub journal_wraps: u64,
    /// Host writes.
    pub writes: u64,
    /// Bytes written by hosts.
    pub written_bytes: u64,
    /// Host reads.
    pub reads: u64,
    /// Bytes read by hosts.
    pub read_bytes: u64,
    /// Bytes unmapped by hosts.
    pub unmapped_bytes: u64,
    /// Writes delayed because the buffer or the journal was filling up.
    pub throttled_writes: u64,
    /// Writes refused because the pool was full.
    pub refused_writes: u64,
    /// Writes that took longer than 50 ms and mostly waited for room in buffer and journal.
    pub stalls_for_room: u64,
    /// Writes that took longer than 50 ms and mostly waited for reclaimed space.
    pub stalls_for_space: u64,
    /// Writes that took longer than 50 ms and mostly waited for the journal to be written.
    pub stalls_for_hardening: u64,
    /// Duration of the longest write.
    pub longest_write_ms: f64,
    /// Snapshots, clones, restores, refreshes and starts of range copies since the pool was opened. Those made
    /// together count once.
    pub forks: u64,
    /// The longest time that one of them held writes back.
    pub longest_fork_ms: f64,
    /// Bytes written to journal and segments for each byte that hosts wrote; 0 before the first.
    pub write_amplification: f64,
    /// Blocks destaged.
    pub destaged_blocks: u64,
    /// Bytes of large writes, written to segments as they came in.
    pub placed_bytes: u64,
    /// Bytes written to segments by destage.
    pub destaged_bytes: u64,
    /// Bytes written to segments by the cleaner.
    pub cleaned_bytes: u64,
    /// Completed checkpoints.
    pub checkpoints: u64,
    /// Bytes written by checkpoints.
    pub checkpoint_bytes: u64,
    /// Time spent in checkpoints.
    pub checkpoint_ms: f64,
    /// Metadata pages read from drives.
    pub metadata_loads: u64,
    /// Reads of blocks that failed or returned damaged data.
    pub medium_errors: u64,
    /// Lost blocks: what lay below a partial write was unreadable, or buffered data changed in RAM and the journal
    /// could not replace it.
    pub lost_blocks: u64,
    /// Times that buffered data was found changed in RAM. The journal's copy is used instead.
    pub ram_faults: u64,
}
