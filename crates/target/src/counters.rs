//! What is counted of a unit for its log pages.

use quoin_scsi::{LogCounter, LogCounts};
use std::{
    array,
    sync::atomic::{AtomicU64, Ordering},
};

/// The counters of a unit since it was first shown to a host, or since LOG SELECT reset them.
#[derive(Default, Debug)]
pub(crate) struct Counters([AtomicU64; LogCounter::COUNT]);

impl Counters {
    pub(crate) fn add(&self, counter: LogCounter, amount: u64) {
        self.0[counter as usize].fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn reset(&self, counter: LogCounter) {
        self.0[counter as usize].store(0, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> LogCounts {
        array::from_fn(|at| self.0[at].load(Ordering::Relaxed))
    }
}
