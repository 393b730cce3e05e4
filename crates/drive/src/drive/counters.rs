//! What a drive has done, in figures.

use super::Drive;
use quoin_world::atomic::{AtomicU64, Ordering::Relaxed};

/// What a drive has done since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DriveCounters {
    /// Reads that succeeded.
    pub reads: u64,
    /// Bytes they brought.
    pub read_bytes: u64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Bytes they wrote.
    pub write_bytes: u64,
    /// Flushes that succeeded.
    pub flushes: u64,
    /// Operations of any kind that failed.
    pub errors: u64,
    /// Repairs: what it held was wrong or could not be read, and was written again from other drives.
    pub repairs: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) reads: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) write_bytes: AtomicU64,
    pub(super) flushes: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) repairs: AtomicU64,
}

impl Drive {
    /// What it has done since it was opened.
    pub fn counters(&self) -> DriveCounters {
        let c = &self.state.counters;
        DriveCounters {
            reads: c.reads.load(Relaxed),
            read_bytes: c.read_bytes.load(Relaxed),
            writes: c.writes.load(Relaxed),
            write_bytes: c.write_bytes.load(Relaxed),
            flushes: c.flushes.load(Relaxed),
            errors: c.errors.load(Relaxed),
            repairs: c.repairs.load(Relaxed),
        }
    }

    /// Counts a repair: what the drive held was found wrong and replaced.
    pub fn count_repair(&self) {
        self.state.counters.repairs.fetch_add(1, Relaxed);
    }
}
