//! What can be set about a pool: at its birth, and each time it is opened.

use crate::format::LAYERS_END;
use quoin_base::{GIB, KIB, Layout, MIB};
use std::time::Duration;

/// Extents a journal of the default size has at least: enough for six data threads.
const LEAST_EXTENTS: u32 = 16;

/// What the journal drives hold together by default at the most, and each of them at the least.
const MOST_JOURNAL_BYTES: u64 = 8 * GIB;
const LEAST_JOURNAL_BYTES: u64 = 64 * MIB;

/// A buffer takes a record of the longest kind beside others.
const LEAST_BUFFER_BYTES: u64 = 4 * MIB;

/// Choices fixed when a pool is made. They are recorded in the labels.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// What people call it.
    pub pool_name: String,
    /// Bytes of a slab, the unit in which drives are given to segments: a power of two from 256 KiB to 64 MiB.
    pub slab_bytes: u32,
    /// Data bytes of a full row: a power of two from 16 KiB to a quarter of the slab.
    pub row_bytes: u32,
    /// Journal on each drive that has the journal role, in bytes; `None`: 1/32 of the drive, at least 64 MiB,
    /// and at most 8 GiB on all journal drives for each journal column. Rounded up to slabs; by default
    /// each slice has enough for sixteen extents.
    pub journal_bytes: Option<u64>,
    /// On how many drives with the journal role each extent of the journal lies, in distinct fault domains: from 1 to 4,
    /// and no more than these drives have. The open pool survives the loss of all but one of them, if they hold nothing else.
    pub journal_columns: u8,
    /// Logs that the pool is divided into, each with its own volumes: from 1 to 16.
    pub slices: u8,
    /// How data is protected over the fault domains of the drives with the data role.
    pub layout: Layout,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            pool_name: "pool".into(),
            slab_bytes: 16 * MIB as u32,
            row_bytes: MIB as u32,
            journal_bytes: None,
            journal_columns: 1,
            slices: 1,
            layout: Layout::NONE,
        }
    }
}

impl FormatOptions {
    /// On a drive of `drive_bytes`, one of `journal_drives`.
    pub(crate) fn journal_slabs(&self, drive_bytes: u64, journal_drives: usize) -> u32 {
        let slabs = |bytes: u64| bytes.min(16 * GIB).div_ceil(u64::from(self.slab_bytes)) as u32;
        let slices = u32::from(self.slices);
        // As many drives may be lost as the layout tolerates.
        let journal_drives = (journal_drives as u32).saturating_sub(self.layout.parity().into()).max(1);
        let wanted = match self.journal_bytes {
            Some(bytes) => slabs(bytes).max(4 * slices),
            None => {
                let columns = u32::from(self.journal_columns);
                let least = (slices * LEAST_EXTENTS * columns).div_ceil(journal_drives);
                let most = MOST_JOURNAL_BYTES * u64::from(columns) / u64::from(journal_drives);
                let most = most.max(LEAST_JOURNAL_BYTES);
                slabs((drive_bytes / 32).clamp(LEAST_JOURNAL_BYTES, most)).max(least)
            }
        };
        // Each slice has the same part of it.
        wanted.next_multiple_of(slices.max(1))
    }
}

/// Choices made each time a pool is opened.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// The most host data the write buffer holds in RAM; writers wait beyond.
    pub buffer_bytes: u64,
    /// The most metadata kept in RAM. Pages beyond are dropped when clean.
    pub metadata_bytes: u64,
    /// Metadata that may be dirty before a checkpoint is made.
    pub dirty_bytes: u64,
    /// RAM that remembers which blocks have which content, for volumes that are deduplicated: eight bytes for each block. It is
    /// used as far as there are any.
    pub index_bytes: u64,
    /// The most RAM the read cache takes; 0: no cache.
    pub cache_bytes: u64,
    /// The most RAM that what is read ahead for sequential reads takes; 0: nothing is read ahead.
    pub ahead_bytes: u64,
    /// Journal that an opening may have to replay: checkpoints are made so often that it is not much more. They are also made
    /// so often that half of the journal is free.
    pub replay_bytes: u64,
    /// How old a buffered write gets before it is destaged though nothing presses.
    pub destage_after: Duration,
    /// How old the last checkpoint gets, when there is anything to checkpoint.
    pub checkpoint_after: Duration,
    /// After so long without a write, a lane of the journal writes, once, that all before is hardened.
    pub idle_after: Duration,
    /// Writes of so many bytes are written once, to where they stay; shorter ones go to the journal first.
    pub place_from: u64,
    /// The most records in a page of the catalog. A low number, with which a small catalog has many pages, is for tests.
    pub catalog_records_per_page: usize,
    /// All layer ids are below. A low number, with which ids are soon reused, is for tests.
    pub layer_ids: u32,
    /// Drives that the pool needs may be missing also where nothing on the others tells that it was not used with those alone:
    /// an administrator knows.
    pub without_missing: bool,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            buffer_bytes: 256 * MIB,
            metadata_bytes: GIB,
            dirty_bytes: 64 * MIB,
            index_bytes: 64 * MIB,
            cache_bytes: 256 * MIB,
            ahead_bytes: 64 * MIB,
            replay_bytes: 2 * GIB,
            destage_after: Duration::from_secs(5),
            checkpoint_after: Duration::from_secs(30),
            idle_after: Duration::from_millis(500),
            place_from: 64 * KIB,
            catalog_records_per_page: usize::MAX,
            layer_ids: LAYERS_END,
            without_missing: false,
        }
    }
}

impl PoolOptions {
    /// What each of so many slices has of it.
    pub(crate) fn divided(&self, slices: usize) -> Self {
        let part = |bytes: u64| bytes / slices as u64;
        Self {
            // The longest record must fit, whatever that is of the limit.
            buffer_bytes: part(self.buffer_bytes).max(LEAST_BUFFER_BYTES.min(self.buffer_bytes)),
            metadata_bytes: part(self.metadata_bytes),
            dirty_bytes: part(self.dirty_bytes),
            index_bytes: part(self.index_bytes),
            cache_bytes: part(self.cache_bytes),
            ahead_bytes: part(self.ahead_bytes),
            replay_bytes: part(self.replay_bytes),
            ..self.clone()
        }
    }
}
