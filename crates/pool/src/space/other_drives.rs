//! What a slice could hold with other drives than it has: the question that is asked before a drive leaves.

use super::{Overhead, Space};
use quoin_world::{
    Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

impl Space {
    /// How many net slabs are lacking for what is live, promised and `charged`, if the slice held `slabs` net slabs, live data
    /// took `live` bytes of them, and protection took so much.
    pub(crate) fn short_with(&self, slabs: u64, live: u64, overhead: Overhead, charged: u64) -> u64 {
        let other = self.reckoned_with(slabs, live, overhead);
        let reserved = *other.reserved.lock();
        let short = other.promised(charged, &reserved).saturating_sub(other.limit());
        let least = other.least_slabs().saturating_sub(slabs);
        other.slabs_of_bytes(short).max(least)
    }

    /// What host data might take then, with `more` ungranted net slabs beside.
    pub(crate) fn limit_with(&self, slabs: u64, live: u64, overhead: Overhead, more: u64) -> u64 {
        let other = self.reckoned_with(slabs, live, overhead);
        other.limit() + other.bytes_of(overhead.for_hosts(more))
    }

    fn reckoned_with(&self, slabs: u64, live: u64, overhead: Overhead) -> Self {
        let copied = |figure: &AtomicU64| AtomicU64::new(figure.load(Ordering::Relaxed));
        let other = Self {
            overhead: super::SharedOverhead::new(overhead),
            slabs: AtomicU64::new(slabs),
            table_slabs: copied(&self.table_slabs),
            slab_bytes: self.slab_bytes,
            filled_bytes: self.filled_bytes,
            step_bytes: self.step_bytes,
            checkpoint_bytes: self.checkpoint_bytes,
            catalog_bytes: copied(&self.catalog_bytes),
            most_catalog_pages: self.most_catalog_pages,
            block_bytes: self.block_bytes,
            numbers: copied(&self.numbers),
            least_headroom: self.least_headroom,
            limit: AtomicU64::new(0),
            live: AtomicU64::new(live),
            metadata: copied(&self.metadata),
            reserved_room: AtomicU64::new(0),
            free_room: AtomicU64::new(0),
            any_reserved: AtomicBool::new(false),
            sharing: AtomicBool::new(false),
            reserved: Mutex::new(*self.reserved.lock()),
            replace_limit: AtomicU64::new(0),
        };
        other.relay(slabs, overhead);
        other
    }
}
