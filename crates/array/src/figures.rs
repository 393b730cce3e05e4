//! What monitoring learns of the array: the numbers that every layer counts.

use crate::{CopyFigures, EventCounts};
use quoin_api as api;
use quoin_base::metrics::LatencySnapshot;
use quoin_drive::DriveCounters;
use quoin_pool::{HedgedReads, PoolOptions, PoolStats, Protection, RecoveryStats};
use quoin_qos::ThrottleView;
use quoin_target::TrafficView;
use quoin_volume::InstrumentsSnapshot;
use uuid::Uuid;

/// The array at one moment.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The version of the software.
    pub version: String,
    /// True when the pool is open and online.
    pub online: bool,
    /// How many objects there are; `None` until the pool was open once.
    pub objects: Option<api::Objects>,
    /// The used part of the usable space; 0 while the pool is offline.
    pub used_ratio: f64,
    /// What reading around late drives came to; `None` while the pool is not open.
    pub hedged: Option<HedgedReads>,
    /// The thresholds of that, with their names, from 0 to 1; those that are on.
    pub space_thresholds: Vec<(&'static str, f64)>,
    /// What is kept free for the loss of drives; `None` while the pool is offline.
    pub spare: Option<api::Spare>,
    /// Events since the process started.
    pub events: EventCounts,
    /// Runs of schedules since the process started.
    pub schedule_runs: u64,
    /// Of them, those that failed.
    pub schedule_failures: u64,
    /// When the next complete scrub was or is due; `None` if none is scheduled.
    pub scrub_due_ms: Option<u64>,
    /// What the engine holds and did since the pool was opened; `None` while it is offline.
    pub pool: Option<PoolStats>,
    /// How the pool is protected; `None` while it is offline.
    pub protection: Option<Protection>,
    /// The clock by which immutable snapshots are kept; `None` while nothing is immutable.
    pub retention: Option<api::Retention>,
    /// How much of the pool snapshots may hold, and how much they do; `None` while that is unknown.
    pub reserve: Option<api::Reserve>,
    /// Snapshot reserves of volumes and groups.
    pub own_reserves: Vec<ReserveFigures>,
    /// Volumes that snapshot reserves keep offline.
    pub stopped_volumes: u64,
    /// What the recycle bin holds; `None` while that is unknown.
    pub recycle_bin: Option<api::RecycleBin>,
    /// How many schedules there are.
    pub schedules: usize,
    /// Copies of ranges in numbers.
    pub copies: CopyFigures,
    /// What the last opening of the pool had to do; `None` while it is offline.
    pub recovery: Option<RecoveryStats>,
    /// How the pool is opened: its budgets of RAM.
    pub options: PoolOptions,
    /// Scrubs and damage in short; `None` while the pool is offline.
    pub integrity: Option<api::Integrity>,
    /// Volumes, oldest first.
    pub volumes: Vec<VolumeFigures>,
    /// Drives, in the order of the configuration.
    pub drives: Vec<DriveFigures>,
    /// Initiators of hosts by name, then all others together.
    pub initiators: Vec<TrafficView>,
}

/// The snapshot reserve of a volume or group when it was looked at last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReserveFigures {
    /// Whether it is of a volume or of a group.
    pub scope: api::ReserveScope,
    /// The volume or group.
    pub name: String,
    /// How much the snapshots may hold.
    pub limit_bytes: u64,
    /// How much they hold.
    pub held_bytes: u64,
}

/// A volume at one moment.
#[derive(Clone, Debug)]
pub struct VolumeFigures {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uuid: Uuid,
    /// The folder it is in; empty for none.
    pub folder: String,
    /// The kind of volume.
    pub kind: api::VolumeKind,
    /// True if it is mapped to a host or exported.
    pub is_shown: bool,
    /// True while it refuses all I/O because of a snapshot reserve.
    pub is_stopped: bool,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes that take space in the pool; `None` while the pool is offline.
    pub mapped_bytes: Option<u64>,
    /// Requests that waited for limits since the process started.
    pub throttled: ThrottleView,
    /// The requests of hosts since the process started.
    pub asked: InstrumentsSnapshot,
}

/// A drive at one moment.
#[derive(Clone, Debug)]
pub struct DriveFigures {
    /// Its path.
    pub path: String,
    /// True when it is open and has not failed.
    pub online: bool,
    /// True when it failed, or could not be opened.
    pub failed: bool,
    /// Its size in bytes; `None` while it is not open.
    pub size_bytes: Option<u64>,
    /// Its oldest operation has been under way for longer than it should.
    pub suspect: bool,
    /// Whether it answers much later than the others, and is read around.
    pub slow: bool,
    /// Whether it errs again and again.
    pub failing: bool,
    /// The file system under it is full.
    pub no_room: bool,
    /// Operations under way, those that were given up included.
    pub unfinished: u64,
    /// Operations given up since the process started.
    pub timeouts: u64,
    /// What it did since it was opened.
    pub counters: DriveCounters,
    /// What its operations took since it was opened; `None` while it is not open.
    pub latencies: Option<DriveLatencies>,
}

/// What a drive's operations took, from submission to completion.
#[derive(Clone, Debug)]
pub struct DriveLatencies {
    /// Operations submitted and not completed.
    pub outstanding: u64,
    /// Reads.
    pub read: LatencySnapshot,
    /// Writes that need not be durable when they complete.
    pub write: LatencySnapshot,
    /// Writes that are durable when they complete.
    pub durable_write: LatencySnapshot,
    /// Flushes.
    pub flush: LatencySnapshot,
}
