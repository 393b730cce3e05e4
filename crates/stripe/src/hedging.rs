//! What is set and counted about drives that answer late.

use quoin_world::{
    World,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

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
    pub(crate) world: OnceLock<Arc<dyn World>>,
    /// In microseconds; 0: no read is late.
    pub(crate) late_after_us: AtomicU64,
    pub(crate) extra_reads: AtomicUsize,
    pub(crate) begun: AtomicU64,
    pub(crate) won: AtomicU64,
}

impl Hedge {
    /// Takes so many extra reads from what is allowed. False if that is not enough.
    pub(crate) fn take(&self, reads: usize) -> bool {
        let left = |left: usize| left.checked_sub(reads);
        self.extra_reads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
    }
}
