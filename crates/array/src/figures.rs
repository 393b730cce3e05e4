//! The array in numbers, for monitoring: one look at what every layer counts.

use crate::{
    Array, CopyFigures, EventCounts, ReserveOf, drives::DriveSlot, space::used_percent, volumes::kind,
};
use quoin_api as api;
use quoin_base::metrics::LatencySnapshot;
use quoin_drive::{Answers, DriveCounters};
use quoin_pool::{PoolOptions, PoolState, PoolStats, RecoveryStats};
use quoin_target::TrafficView;
use quoin_volume::{BlockDevice, InstrumentsSnapshot, OperationSnapshot, Volume};
use std::{collections::BTreeSet, sync::atomic::Ordering};
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

impl Array {
    /// The array in numbers.
    pub fn figures(&self) -> Figures {
        let pool = self.slot.get().ok().filter(|pool| matches!(pool.state(), PoolState::Online));
        let stats = pool.as_ref().map(|pool| pool.stats());
        let shown: BTreeSet<_> = {
            let mapped = self.access.lock().mappings().map(|mapping| mapping.volume).collect::<Vec<_>>();
            let exported = self.exported.lock().values().map(|export| export.volume).collect::<Vec<_>>();
            mapped.into_iter().chain(exported).collect()
        };
        let volumes = self.volumes.list();
        let volumes = volumes.iter().map(|volume| volume_figures(volume, shown.contains(&volume.id())));
        let drives = self.drives.lock();
        Figures {
            version: self.options.version.clone(),
            online: pool.is_some(),
            objects: self.is_restored().then(|| self.objects()),
            used_ratio: stats.as_ref().map_or(0.0, |stats| used_percent(stats) / 100.0),
            pool: stats,
            retention: self.retention_view().filter(|_| pool.is_some()),
            events: self.events.counts(),
            schedule_runs: self.schedule_runs.load(Ordering::Relaxed),
            schedule_failures: self.schedule_failures.load(Ordering::Relaxed),
            scrub_due_ms: self.scrub_due_ms().filter(|_| pool.is_some()),
            reserve: self.show_reserve(&ReserveOf::Pool).ok(),
            own_reserves: if pool.is_some() { self.reserve_figures() } else { Vec::new() },
            stopped_volumes: self.stopped_volumes().len() as u64,
            recycle_bin: self.show_recycle_bin().ok(),
            schedules: self.schedules.lock().len(),
            copies: self.copy_figures(),
            recovery: pool.as_ref().map(|pool| pool.recovery()),
            options: self.options.pool_options.clone(),
            integrity: pool.is_some().then(|| self.integrity()),
            volumes: volumes.collect(),
            drives: drives.0.iter().map(drive_figures).collect(),
            initiators: self.target.traffic(),
        }
    }

    /// The volumes in numbers, for a client that looks again and again and shows what happened in between.
    pub fn stats(&self) -> api::Stats {
        api::Stats {
            uptime_ms: self.world.now().since(self.started).as_millis() as u64,
            volumes: self
                .volumes
                .list()
                .iter()
                .map(|volume| stats_of(volume_figures(volume, true)))
                .collect(),
        }
    }
}

fn volume_figures(volume: &Volume, is_shown: bool) -> VolumeFigures {
    VolumeFigures {
        name: volume.name(),
        uuid: volume.uuid(),
        folder: volume.folder().into(),
        kind: kind(volume),
        is_shown,
        is_stopped: volume.is_stopped(),
        size_bytes: volume.size_bytes(),
        mapped_bytes: volume.mapped_bytes(),
        asked: volume.instruments().map(|instruments| instruments.snapshot()).unwrap_or_default(),
    }
}

fn drive_figures(slot: &DriveSlot) -> DriveFigures {
    let drive = slot.drive.as_deref();
    DriveFigures {
        path: slot.path.clone(),
        failed: slot.fault.is_some() || drive.is_some_and(|drive| drive.is_failed()),
        suspect: slot.watch.answers() != Answers::InTime,
        no_room: slot.no_room,
        unfinished: slot.watch.under_way() as u64,
        timeouts: slot.watch.timeouts(),
        online: drive.is_some_and(|drive| !drive.is_failed()),
        size_bytes: drive.map(|drive| drive.label().len_bytes),
        counters: drive.map(|drive| drive.counters()).unwrap_or_default(),
        latencies: drive.and_then(|drive| drive.latencies()).map(|measured| {
            // What has completed is read first, so that nothing outstanding is counted as less than nothing.
            let discarded = measured.discard.snapshot().count();
            let latencies = DriveLatencies {
                outstanding: 0,
                read: measured.read.snapshot(),
                write: measured.write.snapshot(),
                durable_write: measured.durable_write.snapshot(),
                flush: measured.flush.snapshot(),
            };
            let DriveLatencies { read, write, durable_write, flush, .. } = &latencies;
            let completed = discarded
                + [read, write, durable_write, flush].map(LatencySnapshot::count).iter().sum::<u64>();
            DriveLatencies { outstanding: measured.submitted.value().saturating_sub(completed), ..latencies }
        }),
    }
}

fn stats_of(figures: VolumeFigures) -> api::VolumeStats {
    let operation = |snapshot: &OperationSnapshot| api::OperationStats {
        count: snapshot.latency.count(),
        errors: snapshot.errors,
        bytes: snapshot.bytes,
        latency: api::Latency::new(
            snapshot.latency.sum().as_nanos() as u64,
            snapshot.latency.filled().map(|(bound, count)| (bound.as_nanos() as u64, count)),
        ),
    };
    let VolumeFigures { name, uuid, size_bytes, mapped_bytes, asked, .. } = figures;
    let (read, write, unmap) = (operation(&asked.read), operation(&asked.write), operation(&asked.unmap));
    api::VolumeStats { name, uuid, size_bytes, mapped_bytes, read, write, unmap }
}
