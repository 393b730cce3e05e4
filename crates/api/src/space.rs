//! Space, as arrays report it. `docs/space.md` says what each figure counts, with an example.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the pool's space is used for, and what is saved. Bytes; host data in whole pool blocks of 8 KiB, as it lies on the
/// drives: what is acknowledged and not destaged yet is in `buffered_bytes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolSpace {
    /// The sizes of all volumes.
    pub provisioned_bytes: u64,
    /// What hosts wrote and did not unmap: what the volumes map, each by itself.
    pub written_bytes: u64,
    /// What that takes on the drives, each block once: the next three, less what range copies hold once more.
    pub unique_bytes: u64,
    /// What was written in one volume, or copied there, since it was last snapped, cloned or restored.
    pub own_bytes: u64,
    /// What volumes, snapshots and clones share, or hold from a common past.
    pub shared_bytes: u64,
    /// What was deleted or replaced, and is being given back.
    pub removing_bytes: u64,
    /// What range copies hold once more, and takes no space: of a block in *n* such places, *n* − 1.
    pub copied_bytes: u64,
    /// What comes back at least if all snapshots are deleted.
    pub held_by_snapshots_bytes: u64,
    /// At most so much stays taken because metadata that led to it was damaged: nothing can free it.
    pub lost_at_most_bytes: u64,
    /// Acknowledged and not destaged yet.
    pub buffered_bytes: u64,
    /// Taken by metadata.
    pub metadata_bytes: u64,
    /// Metadata, in percent of what host data and metadata take together.
    pub metadata_percent: f64,
    /// What thin provisioning saves: provisioned and not written.
    pub thin_savings_bytes: u64,
    /// Provisioned to written, as x in x:1; null while nothing is written.
    pub thin_ratio: Option<f64>,
    /// What sharing between volumes, snapshots, clones and by range copies saves: written more often than it lies on the drives.
    pub sharing_savings_bytes: u64,
    /// Written to unique, as x in x:1; null while nothing is written.
    pub sharing_ratio: Option<f64>,
    /// Provisioned to unique, as x in x:1: what all savings make together; null while nothing is written.
    pub efficiency_ratio: Option<f64>,
    /// What host data may take.
    pub usable_bytes: u64,
    /// What writes to thin volumes can still take.
    pub free_bytes: u64,
    /// True when nothing is being given back, so that what deletions free is exact.
    pub settled: bool,
}

/// What a volume, or several together, have of the pool's space. Bytes; in whole pool blocks of 8 KiB, as they lie on the
/// drives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeSpace {
    /// The volumes.
    #[schema(example = json!(["v1"]))]
    pub volumes: Vec<String>,
    /// Their sizes.
    pub provisioned_bytes: u64,
    /// What hosts wrote and did not unmap, each volume by itself.
    pub written_bytes: u64,
    /// Of it, what was written, or copied there, since the volume was last snapped, cloned or restored: no snapshot or clone
    /// has it.
    pub own_bytes: u64,
    /// Of it, what it has from before that: others may have it too.
    pub shared_bytes: u64,
    /// Kept for thick volumes, and not used by them.
    pub reserved_unused_bytes: u64,
    /// What thin provisioning saves: provisioned and not written.
    pub thin_savings_bytes: u64,
    /// Provisioned to written, as x in x:1; null while nothing is written.
    pub thin_ratio: Option<f64>,
    /// What comes back at least if all their snapshots are deleted, and nothing else.
    pub held_by_snapshots_bytes: u64,
    /// What comes back for certain if just these are deleted now.
    pub freed_min_bytes: u64,
    /// The most that comes back: if all that share with them are deleted before.
    pub freed_max_bytes: u64,
    /// True when nothing is being given back in the pool, so that `freed_min_bytes` is exact where no range copies share
    /// what is freed. Otherwise it may count what comes back anyway.
    pub settled: bool,
}
