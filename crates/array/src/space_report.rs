//! The reports of the space of the pool and of volumes.

use crate::{Array, ArrayError, space::freed_bytes};
use quoin_api as api;
use quoin_base::VolumeId;
use quoin_pool::Pool;
use quoin_volume::{BlockDevice, OriginKind, Volume};
use std::{collections::BTreeSet, sync::Arc};

impl Array {
    /// The use of the pool's space.
    ///
    /// # Errors
    /// `Offline` while the pool is not open.
    pub fn pool_space(&self) -> Result<api::PoolSpace, ArrayError> {
        let pool = self.pool()?;
        let (stats, space) = (pool.stats(), pool.space());
        let provisioned_bytes = self.volumes().list().iter().map(|volume| volume.size_bytes()).sum();
        let binned = self.volumes().binned();
        let held_by_bin = freed_bytes(&pool, &binned);
        // Not in the figures: hidden volumes of copies, which share their blocks with the sources, and deleted volumes.
        let copies = self.volumes().copies();
        let hidden = copies.iter().map(|copy| copy.id);
        let hidden = hidden.chain(binned.iter().map(|volume| volume.id())).collect();
        let held = pool.space_of(&hidden).written_bytes;
        let written = space.written_bytes.saturating_sub(held);
        let unique = space.unique_bytes.saturating_sub(held_by_bin);
        // Of blocks that are being moved there are two for a while.
        let physical = stats.live_bytes.min(space.unique_bytes);
        let all = physical + stats.metadata_bytes;
        // What deleted volumes have takes as much as the rest.
        let held_by_bin_stored = share(physical, held_by_bin, space.unique_bytes);
        let stored = physical.saturating_sub(held_by_bin_stored);
        Ok(api::PoolSpace {
            provisioned_bytes,
            written_bytes: written,
            unique_bytes: space.unique_bytes,
            physical_bytes: physical,
            own_bytes: space.own_bytes,
            shared_bytes: space.shared_bytes,
            removing_bytes: space.removing_bytes,
            copied_bytes: space.copied_bytes,
            held_by_snapshots_bytes: self.held_by_snapshots(&pool, |_| true),
            held_by_recycle_bin_bytes: held_by_bin,
            lost_at_most_bytes: pool.lost_space_bytes(),
            buffered_bytes: stats.buffered_bytes,
            metadata_bytes: stats.metadata_bytes,
            metadata_percent: if all == 0 { 0.0 } else { stats.metadata_bytes as f64 * 100.0 / all as f64 },
            thin_savings_bytes: provisioned_bytes.saturating_sub(written),
            thin_ratio: ratio(provisioned_bytes, written),
            sharing_savings_bytes: written.saturating_sub(unique),
            sharing_ratio: ratio(written, unique),
            deduplication_savings_bytes: space.copied_bytes,
            deduplication_ratio: ratio(space.unique_bytes + space.copied_bytes, space.unique_bytes),
            compression_savings_bytes: space.unique_bytes - physical,
            compression_ratio: ratio(space.unique_bytes, physical),
            data_reduction_ratio: ratio(written, stored),
            efficiency_ratio: ratio(provisioned_bytes, stored),
            usable_bytes: stats.usable_bytes,
            free_bytes: stats.free_bytes.saturating_sub(stats.buffered_bytes),
            spare: self.spare_view(&pool),
            settled: space.settled,
        })
    }

    /// A volume's part of the pool's space.
    ///
    /// # Errors
    /// `NotFound` if the volume does not exist. `Offline` while the pool is not open.
    pub async fn volume_space(&self, name: &str) -> Result<api::VolumeSpace, ArrayError> {
        self.space_of(&[self.volume(name)?]).await
    }

    /// The part of the pool's space that the volumes of a group have together.
    ///
    /// # Errors
    /// `NoGroup` if the group does not exist. `Offline` while the pool is not open.
    pub async fn group_space(&self, name: &str) -> Result<api::VolumeSpace, ArrayError> {
        self.require_catalog()?;
        let group = self.volumes().group(name)?;
        let members = self.volumes().members(&group);
        self.space_of(&members).await
    }

    /// How much space deleting all snapshots of these volumes frees.
    pub(crate) fn held_by_snapshots(&self, pool: &Pool, of: impl Fn(VolumeId) -> bool) -> u64 {
        let chosen = |volume: &Arc<Volume>| {
            volume.origin().is_some_and(|origin| origin.kind == OriginKind::Snapshot && of(origin.source))
        };
        let snapshots = self.volumes().list().into_iter().filter(chosen);
        pool.space_of(&snapshots.map(|volume| volume.id()).collect()).freed_bytes
    }

    /// The part of the pool's space that these volumes have together.
    async fn space_of(&self, volumes: &[Arc<Volume>]) -> Result<api::VolumeSpace, ArrayError> {
        let pool = self.pool()?;
        let reduced = reduced(&pool, volumes).await?;
        let ids: BTreeSet<VolumeId> = volumes.iter().map(|volume| volume.id()).collect();
        let space = pool.space_of(&ids);
        let provisioned_bytes = volumes.iter().map(|volume| volume.size_bytes()).sum();
        let unused = |volume: &Arc<Volume>| {
            let stats = pool.volume_stats(volume.id()).unwrap_or_default();
            stats.reserved_bytes.saturating_sub(stats.mapped_bytes)
        };
        Ok(api::VolumeSpace {
            volumes: volumes.iter().map(|volume| volume.name()).collect(),
            provisioned_bytes,
            written_bytes: space.written_bytes,
            own_bytes: space.own_bytes,
            shared_bytes: space.shared_bytes(),
            reserved_unused_bytes: volumes.iter().map(unused).sum(),
            thin_savings_bytes: provisioned_bytes.saturating_sub(space.written_bytes),
            thin_ratio: ratio(provisioned_bytes, space.written_bytes),
            physical_bytes: reduced.physical,
            deduplication_ratio: reduced.ratio(reduced.compressed, reduced.physical),
            compression_ratio: reduced.ratio(reduced.written, reduced.compressed),
            data_reduction_ratio: reduced.ratio(reduced.written, reduced.physical),
            efficiency_ratio: reduced.ratio(provisioned_bytes, reduced.physical),
            sampled_blocks: reduced.sampled_blocks,
            held_by_snapshots_bytes: self.held_by_snapshots(&pool, |source| ids.contains(&source)),
            freed_min_bytes: space.freed_bytes,
            freed_max_bytes: space.freed_at_most_bytes(),
            settled: pool.space().settled,
        })
    }
}

/// What compression and deduplication make of what volumes have, estimated. In bytes.
#[derive(Default)]
struct Reduced {
    sampled_blocks: u64,
    written: u64,
    compressed: u64,
    physical: u64,
}

impl Reduced {
    fn ratio(&self, of: u64, to: u64) -> Option<f64> {
        ratio(of, to).filter(|_| self.sampled_blocks > 0)
    }
}

async fn reduced(pool: &Pool, volumes: &[Arc<Volume>]) -> Result<Reduced, ArrayError> {
    let mut sum = Reduced::default();
    for volume in volumes {
        let written = pool.volume_stats(volume.id()).unwrap_or_default().mapped_bytes;
        let estimate = pool.estimate_reduction(volume.id()).await?;
        sum.sampled_blocks += estimate.blocks;
        sum.written += written;
        sum.compressed += estimate.compressed_bytes(written);
        sum.physical += estimate.physical_bytes(written);
    }
    Ok(sum)
}

/// What of `bytes` a part has.
fn share(bytes: u64, part: u64, of: u64) -> u64 {
    (u128::from(bytes) * u128::from(part)).checked_div(of.into()).unwrap_or(0) as u64
}

fn ratio(of: u64, to: u64) -> Option<f64> {
    (to > 0).then(|| of as f64 / to as f64)
}
