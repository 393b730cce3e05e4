//! The array in numbers, for monitoring: one look at what every layer counts.

use crate::{
    Array, DriveFigures, DriveLatencies, Figures, ReserveOf, VolumeFigures, drives::DriveSlot, origin::kind,
    space::used_percent,
};
use quoin_api as api;
use quoin_base::metrics::LatencySnapshot;
use quoin_drive::Answers;
use quoin_pool::PoolState;
use quoin_volume::{BlockDevice, InstrumentsSnapshot, OperationSnapshot, Volume};
use std::collections::BTreeSet;

impl Array {
    /// The array in numbers.
    pub fn figures(&self) -> Figures {
        let pool = self.catalog().open_pool().ok().filter(|pool| matches!(pool.state(), PoolState::Online));
        let stats = pool.as_ref().map(|pool| pool.stats());
        let failing = self.failing_drives().all();
        let shown: BTreeSet<_> = {
            let mapped = self.hosts().read().mappings().map(|mapping| mapping.volume).collect::<Vec<_>>();
            let exported = self.export_list().read().values().map(|export| export.volume).collect::<Vec<_>>();
            mapped.into_iter().chain(exported).collect()
        };
        let volumes = self.volumes().list();
        let volumes = volumes.iter().map(|volume| volume_figures(volume, shown.contains(&volume.id())));
        let (schedules, schedule_runs, schedule_failures) = {
            let schedules = self.schedules();
            (schedules.len(), schedules.runs(), schedules.failures())
        };
        Figures {
            version: self.options().version.clone(),
            online: pool.is_some(),
            objects: self.is_restored().then(|| self.objects()),
            used_ratio: stats.as_ref().map_or(0.0, |stats| used_percent(stats) / 100.0),
            space_thresholds: if pool.is_some() { self.space().percents().ratios() } else { Vec::new() },
            pool: stats,
            spare: pool.as_deref().map(|pool| self.spare_view(pool)),
            protection: pool.as_ref().map(|pool| pool.protection()),
            retention: self.retention_view().filter(|_| pool.is_some()),
            events: self.log().counts(),
            schedule_runs,
            schedule_failures,
            scrub_due_ms: self.scrub_due_ms().filter(|_| pool.is_some()),
            reserve: self.show_reserve(&ReserveOf::Pool).ok(),
            own_reserves: if pool.is_some() { self.reserve_figures() } else { Vec::new() },
            stopped_volumes: self.stopped_volumes().len() as u64,
            recycle_bin: self.show_recycle_bin().ok(),
            schedules,
            copies: self.copy_figures(),
            recovery: pool.as_ref().map(|pool| pool.recovery()),
            options: self.options().pool_options.clone(),
            integrity: pool.is_some().then(|| self.integrity()),
            volumes: volumes.collect(),
            hedged: pool.as_ref().map(|pool| pool.hedged_reads()),
            drives: self.drives().each(|slot| {
                let slow = slot.number().is_some_and(|drive| pool.as_ref().is_some_and(|p| p.is_slow(drive)));
                let failing = slot.number().is_some_and(|drive| failing.contains(&drive));
                DriveFigures { slow, failing, ..drive_figures(slot) }
            }),
            initiators: self.target().traffic(),
        }
    }

    /// The volumes in numbers, for a client that looks again and again and shows what happened in between.
    pub fn stats(&self) -> api::Stats {
        api::Stats {
            uptime_ms: self.life().uptime(self.world().now()).as_millis() as u64,
            volumes: self
                .volumes()
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
        throttled: volume.throttle().map(|throttle| throttle.view()).unwrap_or_default(),
        asked: volume.instruments().map(|instruments| instruments.snapshot()).unwrap_or_default(),
    }
}

fn drive_figures(slot: &DriveSlot) -> DriveFigures {
    let drive = slot.drive().map(AsRef::as_ref);
    DriveFigures {
        path: slot.path().to_owned(),
        failed: slot.fault().is_some()
            || slot.is_left_out() && drive.is_some()
            || drive.is_some_and(|d| d.is_failed()),
        suspect: slot.watch().answers() != Answers::InTime,
        slow: false,
        failing: false,
        no_room: slot.no_room(),
        unfinished: slot.watch().under_way() as u64,
        timeouts: slot.watch().timeouts(),
        online: drive.is_some_and(|drive| !drive.is_failed()) && !slot.is_left_out(),
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
    // The other figures are for monitoring alone.
    let VolumeFigures { name, uuid, size_bytes, mapped_bytes, asked, .. } = figures;
    let InstrumentsSnapshot { read, write, unmap } = asked;
    let [read, write, unmap] = [read, write, unmap].map(operation);
    api::VolumeStats { name, uuid, size_bytes, mapped_bytes, read, write, unmap }
}

fn operation(snapshot: OperationSnapshot) -> api::OperationStats {
    let OperationSnapshot { bytes, errors, latency } = snapshot;
    let filled = latency.filled().map(|(bound, count)| (bound.as_nanos() as u64, count));
    let measured = api::Latency::new(latency.sum().as_nanos() as u64, filled);
    api::OperationStats { count: latency.count(), errors, bytes, latency: measured }
}
