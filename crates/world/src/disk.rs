//! A disk: a file or block device, or a simulated one.

use crate::{Buf, Completion, Slice};
use quoin_base::metrics::{Counter, LatencyHistogram};
use std::{io, sync::Arc};
use thiserror::Error;

/// One operation on a disk. Offsets and lengths are multiples of [`Disk::block_bytes`].
#[derive(Debug)]
pub enum DiskOp {
    /// Fill `buf` from byte `offset` on.
    Read {
        /// First byte.
        offset: u64,
        /// Where the data goes; its length says how much is read.
        buf: Buf,
    },
    /// Write `data`, one slice after the other, from byte `offset` on.
    Write {
        /// First byte.
        offset: u64,
        /// What to write; each slice starts aligned in memory and is a multiple of the block long.
        data: Vec<Slice>,
        /// Complete only when the data would survive a power failure.
        durable: bool,
    },
    /// Complete when all writes completed before it was submitted would survive a power failure.
    Flush,
    /// The content of the range is no longer needed. What it reads as afterwards is undefined.
    Discard {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
}

/// Why a disk operation failed.
#[derive(Debug, Error)]
pub enum DiskError {
    /// The operating system's or drive's own error.
    #[error("{disk}: {operation} of {len} bytes at {offset}: {source}")]
    Io {
        /// The disk.
        disk: String,
        /// "read", "write", "flush" or "discard".
        operation: &'static str,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// The cause.
        source: io::Error,
    },
    /// The disk did not answer in time. The operation may yet take effect.
    #[error("{disk} has not answered for {waited_s} s")]
    TimedOut {
        /// The disk.
        disk: String,
        /// How long its oldest operation has been under way, in seconds.
        waited_s: u64,
    },
    /// The world went away before the operation was done; whether it took effect is unknown.
    #[error("the operation was abandoned before it was done")]
    Abandoned,
}

/// What a disk's operations took, from submission to completion, since it was opened.
#[derive(Default, Debug)]
pub struct DiskInstruments {
    /// Operations submitted. One that is still outstanding is in none of the histograms.
    pub submitted: Counter,
    /// Reads.
    pub read: LatencyHistogram,
    /// Writes that need not be durable when they complete.
    pub write: LatencyHistogram,
    /// Writes that are durable when they complete.
    pub durable_write: LatencyHistogram,
    /// Flushes.
    pub flush: LatencyHistogram,
    /// Discards.
    pub discard: LatencyHistogram,
}

/// A disk. Operations may complete in any order; one that must follow another is submitted after the other
/// completed.
pub trait Disk: Send + Sync {
    /// What a person calls it: its path.
    fn name(&self) -> &str;
    /// Its size, as it was measured last. It never becomes less.
    fn len_bytes(&self) -> u64;
    /// Measures it anew, and returns what it has now: a file or device may have become longer, or shorter, since it was opened.
    /// If it is longer, operations may go there from now on.
    fn measure(&self) -> u64 {
        self.len_bytes()
    }
    /// The unit of its I/O: 512 or 4096.
    fn block_bytes(&self) -> u32;
    /// Whether a write may fail because what lies below has no room: so it is with a sparse file.
    fn may_lack_room(&self) -> bool {
        false
    }
    /// What its operations took; `None` if that means nothing.
    fn instruments(&self) -> Option<Arc<DiskInstruments>> {
        None
    }
    /// Starts `op`. Must be called on a thread of the array.
    fn submit(&self, op: DiskOp) -> Completion;
}
