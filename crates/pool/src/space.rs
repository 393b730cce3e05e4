//! How much host data a pool takes: always so little that checkpoint, cleaner, unmap and delete can go on.
//!
//! Every buffered block is charged a whole pool block from the moment it is appended, as if it were
//! incompressible and shared with nothing, and the charge is replaced by what it really takes when it is
//! destaged. Host data may take what remains beside the reserve and the metadata.

use crate::options::PoolOptions;
use quoin_base::SECTOR_BYTES;
use quoin_world::atomic::{AtomicU64, Ordering};

pub(crate) struct Space {
    /// What all data segments but the reserve hold when they are filled without gaps.
    total: u64,
    reserve_slabs: u64,
    checkpoint_slabs: u64,
    /// What a buffered block may take at the worst.
    charge_bytes: u64,
    /// Bytes host data may take, and takes, as of the last commit.
    limit: AtomicU64,
    live: AtomicU64,
}

/// Metadata a new block may bring along: a leaf of its own, and its share of the tables above.
const CHARGED_METADATA_BYTES: u64 = 4096 + 512;

/// What a checkpoint writes beside the pages that are dirty when it begins.
const CHECKPOINT_MORE_BYTES: u64 = 128 << 10;

/// Whether new data fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fit {
    Fits,
    /// It will, once what is buffered has been destaged.
    Later,
    Never,
}

impl Space {
    /// Of `data_slabs` slabs, each of which the cleaner can fill with `filled_bytes` of blocks.
    pub(crate) fn new(
        data_slabs: u64,
        slab_bytes: u64,
        block_bytes: u64,
        filled_bytes: u64,
        options: &PoolOptions,
    ) -> Self {
        // What one checkpoint may write: all that may be dirty, what the last transaction before it added, the
        // page maps; and two segments that are begun, of pages and of the segment table.
        let checkpoint_slabs = (options.dirty_bytes * 5 / 4 + CHECKPOINT_MORE_BYTES).div_ceil(slab_bytes) + 2;
        let reserve_slabs = 2 * checkpoint_slabs + 6 + data_slabs / 32;
        let space = Self {
            total: data_slabs.saturating_sub(reserve_slabs) * filled_bytes,
            reserve_slabs,
            checkpoint_slabs,
            charge_bytes: block_bytes + CHARGED_METADATA_BYTES,
            limit: AtomicU64::new(0),
            live: AtomicU64::new(0),
        };
        space.update(0, 0);
        space
    }

    /// Free slabs below which the cleaner works.
    pub(crate) fn clean_below(&self) -> u64 {
        self.reserve_slabs.div_ceil(2) + 4
    }

    /// Free slabs kept for checkpoints: below, only they take slabs.
    pub(crate) fn checkpoint_slabs(&self) -> u64 {
        self.checkpoint_slabs
    }

    /// Free slabs kept for the cleaner too: below, destage waits as long as there is anything to clean.
    pub(crate) fn destage_slabs(&self) -> u64 {
        self.checkpoint_slabs() + 3
    }

    pub(crate) fn update(&self, live_data: u64, live_meta: u64) {
        let limit = self.total.saturating_sub(2 * live_meta);
        self.limit.store(limit / SECTOR_BYTES * SECTOR_BYTES, Ordering::Relaxed);
        self.live.store(live_data, Ordering::Relaxed);
    }

    /// Whether `new` blocks more fit beside the `charged` ones in the buffer.
    pub(crate) fn fit(&self, charged: u64, new: u64) -> Fit {
        let (charged, new) = (charged * self.charge_bytes, new * self.charge_bytes);
        let (limit, live) = (self.limit.load(Ordering::Relaxed), self.live.load(Ordering::Relaxed));
        match () {
            () if live + charged + new <= limit => Fit::Fits,
            () if charged > 0 && live + new <= limit => Fit::Later,
            () => Fit::Never,
        }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }
}
