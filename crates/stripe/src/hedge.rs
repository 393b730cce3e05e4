//! Drives that answer late are read around.
//!
//! A read of one column that takes longer than a deadline is answered from the other columns, whichever comes first. A drive
//! that was late several times, or is marked as slow, is read only where there is no other way.
//!
//! Invariants:
//! 1. What answers instead is a read without the late column, by the rules of every such read: nothing is used that a drive
//!    lacks or failed to write, or that the caller leaves out.
//! 2. Reads that are made in addition are never more than the caller allowed since the last time.
//! 3. The late read is given up only by who waited for it. Its drive still owes it, and is watched for that.

use quoin_world::{
    World,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

mod around;

/// When reads of a column are late, and how much may be read because of that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hedging {
    /// From then on a read is late; `None`: never.
    pub late_after: Option<Duration>,
    /// So many reads of columns may be made in addition until this is set again.
    pub extra_reads: usize,
}

/// What reading around late drives came to since the columns were opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HedgedReads {
    /// Reads that were late and were made from the other columns too.
    pub begun: u64,
    /// Those of them that the other columns answered first.
    pub won: u64,
}

#[derive(Default)]
pub(crate) struct Hedge {
    world: OnceLock<Arc<dyn World>>,
    /// In microseconds; 0: no read is late.
    late_after_us: AtomicU64,
    extra_reads: AtomicUsize,
    begun: AtomicU64,
    won: AtomicU64,
}

impl Hedge {
    /// Takes so many extra reads from what is allowed. False if that is not enough.
    fn take(&self, reads: usize) -> bool {
        let left = |left: usize| left.checked_sub(reads);
        self.extra_reads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
    }
}
