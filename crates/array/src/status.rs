//! How the array is, in figures.

use crate::{
    Array,
    drive_view::InPool,
    origin::is_snapshot,
    space::{SpaceWatch, used_percent},
};
use quoin_api as api;
use quoin_pool::{Pool, PoolState, PoolStats, RecoveryStats, SliceSpace};
use quoin_volume::{BlockDevice, Volume};
use std::{sync::Arc, time::Duration};

impl Array {
    /// How the array is.
    pub fn status(&self) -> api::Status {
        let pool = self.catalog().open_pool();
        let mut reason = match &pool {
            Ok(pool) => match pool.state() {
                PoolState::Online => None,
                PoolState::Offline { reason } => Some(reason),
            },
            Err(reason) => Some(reason.clone()),
        };
        let state = if self.life().is_stopping() {
            api::State::Stopping
        } else if let (None, Some(why)) = (&reason, self.drives().stalled_members()) {
            reason = Some(why);
            api::State::Stalled
        } else if reason.is_none() {
            api::State::Online
        } else if self.life().was_attempted() {
            api::State::Offline
        } else {
            api::State::Starting
        };
        let is_open = reason.is_none() || state == api::State::Stalled;
        let pool = pool.ok().filter(|_| is_open);
        let stats = pool.as_ref().map(|pool| pool.stats());
        let volumes = self.volumes().list();
        api::Status {
            ready: state == api::State::Online,
            state,
            since_ms: self.life().state_since_ms(),
            reason,
            name: self.options().name.clone(),
            pool: self.options().pool.0,
            iqn: self.options().iqn.clone(),
            portals: self.portals_up().iter().map(ToString::to_string).collect(),
            nbd: self.options().nbd.clone(),
            version: self.options().version.clone(),
            uptime_s: self.life().uptime(self.world().now()).as_secs(),
            objects: self.is_restored().then(|| self.objects()),
            offline_volumes: self.stopped_volumes().into_iter().filter(|_| is_open).collect(),
            capacity: pool
                .as_ref()
                .zip(stats.as_ref())
                .map(|(pool, stats)| capacity(pool, stats, &volumes, &self.space())),
            giving_back: stats.as_ref().map(|stats| self.giving_back().view(stats)),
            recycle_bin: self.is_restored().then(|| self.bin_view()),
            retention: self.retention_view().filter(|_| pool.is_some()),
            integrity: pool.is_some().then(|| self.integrity()),
            recovery: pool.as_deref().map(recovery),
            engine: stats.as_ref().map(|stats| engine(stats, self.options().pool_options.buffer_bytes)),
            protection: pool.as_deref().map(|pool| self.protection(pool)),
            drives: self.drives_in(&InPool::of(pool.as_ref())),
        }
    }

    pub(crate) fn objects(&self) -> api::Objects {
        let volumes = self.volumes().list();
        let access = self.hosts().read();
        api::Objects {
            volumes: volumes.len(),
            snapshots: volumes.iter().filter(|volume| is_snapshot(volume)).count(),
            groups: self.volumes().groups().len(),
            hosts: access.hosts().count(),
            mappings: access.mappings().count(),
            exports: self.export_list().read().len(),
            sessions: self.target().sessions().len(),
        }
    }
}

fn slice_capacity(slice: SliceSpace) -> api::SliceCapacity {
    let SliceSpace { volumes, usable_bytes, free_bytes } = slice;
    api::SliceCapacity { volumes, usable_bytes, free_bytes }
}

fn capacity(pool: &Pool, stats: &PoolStats, volumes: &[Arc<Volume>], watch: &SpaceWatch) -> api::Capacity {
    let PoolStats { capacity_bytes, usable_bytes, metadata_bytes, .. } = *stats;
    let spare = watch.spare().view(pool.spare());
    api::Capacity {
        total_bytes: capacity_bytes,
        usable_bytes,
        reserve_bytes: capacity_bytes.saturating_sub(usable_bytes + metadata_bytes + spare.bytes),
        metadata_bytes,
        used_bytes: stats.live_bytes + stats.buffered_bytes,
        mapped_bytes: volumes.iter().filter_map(|volume| volume.mapped_bytes()).sum(),
        reserved_bytes: stats.reserved_bytes,
        reserved_unused_bytes: stats.reserved_unmapped_bytes,
        free_bytes: stats.free_bytes.saturating_sub(stats.buffered_bytes),
        provisioned_bytes: volumes.iter().map(|volume| volume.size_bytes()).sum(),
        used_percent: used_percent(stats),
        level: watch.level(),
        thresholds_percent: watch.percents().into(),
        spare,
        slices: pool.slice_space().map(slice_capacity).collect(),
    }
}

fn recovery(pool: &Pool) -> api::Recovery {
    let RecoveryStats {
        duration,
        takeover,
        checkpoint,
        journal,
        replay,
        replayed_records,
        replayed_bytes,
        batches,
        torn_batches,
        checkpoint_generation,
    } = pool.recovery();
    api::Recovery {
        duration_ms: milliseconds(duration),
        takeover_ms: milliseconds(takeover),
        checkpoint_ms: milliseconds(checkpoint),
        journal_ms: milliseconds(journal),
        replay_ms: milliseconds(replay),
        replayed_records,
        replayed_bytes,
        batches,
        torn_batches,
        checkpoint_generation,
    }
}

fn engine(stats: &PoolStats, buffer_limit_bytes: u64) -> api::Engine {
    api::Engine {
        buffered_bytes: stats.buffered_bytes,
        buffer_ram_bytes: stats.buffer_ram_bytes,
        buffer_limit_bytes,
        metadata_ram_bytes: stats.metadata_ram_bytes,
        cache_ram_bytes: stats.cache_ram_bytes,
        cache_hits: stats.cache_hits,
        cache_misses: stats.cache_misses,
        ahead_ram_bytes: stats.ahead_ram_bytes,
        ahead_bytes: stats.ahead_bytes,
        ahead_unused_bytes: stats.ahead_unused_bytes,
        segments: stats.segments,
        free_segments: stats.free_segments,
        journal_extents: stats.journal_extents,
        journal_extents_used: stats.journal_extents_used,
        journal_bytes: stats.journal_bytes,
        journal_batches: stats.journal_batches,
        journal_wraps: stats.journal_wraps,
        writes: stats.writes,
        written_bytes: stats.written_bytes,
        reads: stats.reads,
        read_bytes: stats.read_bytes,
        unmapped_bytes: stats.unmapped_bytes,
        throttled_writes: stats.throttled_writes,
        refused_writes: stats.refused_writes,
        stalls_for_room: stats.stalls_for_room,
        stalls_for_space: stats.stalls_for_space,
        stalls_for_hardening: stats.stalls_for_hardening,
        longest_write_ms: milliseconds(stats.longest_write),
        forks: stats.forks,
        longest_fork_ms: milliseconds(stats.longest_fork),
        write_amplification: stats.write_amplification(),
        destaged_blocks: stats.destaged_blocks,
        placed_bytes: stats.placed_bytes,
        destaged_bytes: stats.destaged_bytes,
        cleaned_bytes: stats.cleaned_bytes,
        checkpoints: stats.checkpoints,
        checkpoint_bytes: stats.checkpoint_bytes,
        checkpoint_ms: milliseconds(stats.checkpoint_time),
        metadata_loads: stats.metadata_loads,
        medium_errors: stats.medium_errors,
        lost_blocks: stats.lost_blocks,
        ram_faults: stats.ram_faults,
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}
