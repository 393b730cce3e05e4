//! Space, as arrays report it. `docs/space.md` says what each figure counts, with an example.

use crate::Spare;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How the pool's space is used, and how much is saved. In bytes of whole pool blocks of 8 KiB, unless a field says that it is of
/// blocks as they are stored. Data that is acknowledged and not yet destaged is in `buffered_bytes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolSpace {
    /// The total size of all volumes.
    pub provisioned_bytes: u64,
    /// What hosts wrote and did not unmap: the mapped space of all volumes, each counted by itself.
    pub written_bytes: u64,
    /// The same with each block counted once: the sum of the next three fields, less `copied_bytes`.
    pub unique_bytes: u64,
    /// What that takes, of blocks as they are stored, compressed or not. Without what protects it.
    #[serde(default)]
    pub physical_bytes: u64,
    /// Data written or copied to one volume since its last snapshot, clone or restore.
    pub own_bytes: u64,
    /// Data that volumes, snapshots and clones share, or have from a common past.
    pub shared_bytes: u64,
    /// Space of deleted or replaced data that is being reclaimed.
    pub removing_bytes: u64,
    /// Space that range copies save: for a block in *n* places, *n* − 1.
    pub copied_bytes: u64,
    /// The space that deleting all snapshots frees, at least.
    pub held_by_snapshots_bytes: u64,
    /// The space that emptying the recycle bin frees, at least. Figures of what volumes have and save leave the recycle bin out.
    pub held_by_recycle_bin_bytes: u64,
    /// The space that can never be freed because the metadata leading to it was damaged, at most.
    pub lost_at_most_bytes: u64,
    /// Data acknowledged and not yet destaged.
    pub buffered_bytes: u64,
    /// Space used by metadata.
    pub metadata_bytes: u64,
    /// Metadata, in percent of host data and metadata together.
    pub metadata_percent: f64,
    /// Space saved by thin provisioning: provisioned, but not written.
    pub thin_savings_bytes: u64,
    /// Ratio of provisioned to written, as x in x:1; null while nothing is written.
    pub thin_ratio: Option<f64>,
    /// Space saved by sharing between volumes, snapshots and clones and by range copies.
    pub sharing_savings_bytes: u64,
    /// Ratio of written to unique, as x in x:1; null while nothing is written.
    pub sharing_ratio: Option<f64>,
    /// The part of it that deduplication and range copies save.
    #[serde(default)]
    pub deduplication_savings_bytes: u64,
    /// Ratio of what there would be without them to unique, as x in x:1; null while nothing is written.
    #[serde(default)]
    pub deduplication_ratio: Option<f64>,
    /// Space saved by compression: unique, less physical.
    #[serde(default)]
    pub compression_savings_bytes: u64,
    /// Ratio of unique to physical, as x in x:1; null while nothing is written.
    #[serde(default)]
    pub compression_ratio: Option<f64>,
    /// Ratio of written to physical, as x in x:1, the effect of sharing and compression; null while nothing is written.
    #[serde(default)]
    pub data_reduction_ratio: Option<f64>,
    /// Ratio of provisioned to physical, as x in x:1, the effect of all savings; null while nothing is written.
    pub efficiency_ratio: Option<f64>,
    /// Space for host data.
    pub usable_bytes: u64,
    /// Space left for writes to thin volumes.
    pub free_bytes: u64,
    /// Space that is kept free for the loss of drives, beside the usable space.
    #[serde(default)]
    pub spare: Spare,
    /// True when nothing is being reclaimed, so that the figures of what deletions free are exact.
    pub settled: bool,
}

/// How much of the pool's space a volume, or several together, use. In bytes of whole pool blocks of 8 KiB, unless a field says that
/// it is of blocks as they are stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeSpace {
    /// The volumes.
    #[schema(example = json!(["v1"]))]
    pub volumes: Vec<String>,
    /// Their sizes.
    pub provisioned_bytes: u64,
    /// What hosts wrote and did not unmap, each volume counted by itself.
    pub written_bytes: u64,
    /// The part written or copied there since the last snapshot, clone or restore of the volume. No snapshot or clone
    /// shares it.
    pub own_bytes: u64,
    /// The part from before that. Others may share it.
    pub shared_bytes: u64,
    /// Space reserved for thick volumes that they do not use yet.
    pub reserved_unused_bytes: u64,
    /// Space saved by thin provisioning: provisioned, but not written.
    pub thin_savings_bytes: u64,
    /// Ratio of provisioned to written, as x in x:1; null while nothing is written.
    pub thin_ratio: Option<f64>,
    /// What the written data takes, of blocks as they are stored, compressed or not. A block that they have in several places, or
    /// that others have by deduplication or range copies, counts in equal parts for each. Snapshots and clones are not reckoned
    /// with. Estimated from `sampled_blocks` blocks. Without what protects it.
    #[serde(default)]
    pub physical_bytes: u64,
    /// Ratio of what the blocks would take if each were stored by itself to physical, as x in x:1; null if no block was sampled.
    #[serde(default)]
    pub deduplication_ratio: Option<f64>,
    /// Ratio of the blocks to what they take as they are stored, as x in x:1; null if no block was sampled.
    #[serde(default)]
    pub compression_ratio: Option<f64>,
    /// Ratio of written to physical, as x in x:1: deduplication times compression; null if no block was sampled.
    #[serde(default)]
    pub data_reduction_ratio: Option<f64>,
    /// Ratio of provisioned to physical, as x in x:1, the effect of all savings but snapshots; null if no block was sampled.
    #[serde(default)]
    pub efficiency_ratio: Option<f64>,
    /// The number of blocks that these figures are estimated from.
    #[serde(default)]
    pub sampled_blocks: u64,
    /// The space freed, at least, by deleting all their snapshots and nothing else.
    pub held_by_snapshots_bytes: u64,
    /// The space freed for certain by deleting only these volumes now.
    pub freed_min_bytes: u64,
    /// The most that deleting them can free: if everything that shares data with them is deleted first.
    pub freed_max_bytes: u64,
    /// True when nothing is being reclaimed in the pool, so that `freed_min_bytes` is exact unless range copies share
    /// data. Otherwise it may include space that is freed anyway.
    pub settled: bool,
}
