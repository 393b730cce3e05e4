//! What may go wrong with a simulated disk.

use quoin_base::ByteRange;
use std::{ops::RangeInclusive, time::Duration};

/// What may go wrong with a disk's operations, by probability from 0 to 1. Set per disk, at any time.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    /// A read fails.
    pub read_error: f64,
    /// A write fails; none, some or all of its sectors reached the drive.
    pub write_error: f64,
    /// A flush fails; some of the writes it covered will never become durable.
    pub flush_error: f64,
    /// A write is acknowledged and never done.
    pub lost_write: f64,
    /// A write is acknowledged and done at another place.
    pub misdirected_write: f64,
    /// One bit of what a write left on the medium is wrong.
    pub bit_flip: f64,
    /// Only operations that touch this range fail in any of the ways above, and misdirected writes land in it;
    /// all, and anywhere, if `None`. Flushes count as touching everything.
    pub only: Option<ByteRange>,
    /// Writes that touch this range fail for want of space; nothing of them is written.
    pub no_room: Option<ByteRange>,
    /// How long an operation takes.
    pub latency: RangeInclusive<Duration>,
    /// It takes up to a hundred times the longest latency instead.
    pub slow: f64,
    /// A read that a data thread asks for takes up to half a second instead, while all else goes on.
    pub late_read: f64,
}

/// The longest that a late read takes.
pub(crate) const LATE_READ: Duration = Duration::from_millis(500);

impl Default for FaultPlan {
    /// Nothing fails; operations take 20 to 200 µs and so complete out of order.
    fn default() -> Self {
        Self {
            read_error: 0.0,
            write_error: 0.0,
            flush_error: 0.0,
            lost_write: 0.0,
            misdirected_write: 0.0,
            bit_flip: 0.0,
            only: None,
            no_room: None,
            latency: Duration::from_micros(20)..=Duration::from_micros(200),
            slow: 0.01,
            late_read: 0.0,
        }
    }
}

impl FaultPlan {
    /// False when a write to `range` finds no space.
    pub(crate) fn has_room(&self, range: Option<ByteRange>) -> bool {
        match (&self.no_room, range) {
            (Some(full), Some(range)) => range.offset >= full.end() || full.offset >= range.end(),
            _ => true,
        }
    }

    /// True when an operation on `range` (`None`: a flush) may fail at all.
    pub(crate) fn concerns(&self, range: Option<ByteRange>) -> bool {
        match (&self.only, range) {
            (Some(only), Some(range)) => range.offset < only.end() && only.offset < range.end(),
            _ => true,
        }
    }
}

/// How often each fault was injected so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Injected {
    /// Reads failed.
    pub read_errors: u64,
    /// Writes failed.
    pub write_errors: u64,
    /// Flushes failed.
    pub flush_errors: u64,
    /// Writes acknowledged and not done.
    pub lost_writes: u64,
    /// Writes done elsewhere.
    pub misdirected_writes: u64,
    /// Operations stuck until their disk answered again.
    pub hung: u64,
    /// Reads that took very long.
    pub late_reads: u64,
    /// Bits flipped.
    pub bit_flips: u64,
    /// Places that became unreadable.
    pub latent_errors: u64,
    /// Un-flushed writes lost in power cuts.
    pub lost_in_power_cuts: u64,
    /// Un-flushed writes torn in power cuts.
    pub torn_in_power_cuts: u64,
}
