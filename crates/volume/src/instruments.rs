//! The measurements of front ends about a volume.

use quoin_base::metrics::{Counter, LatencyHistogram, LatencySnapshot};
use std::time::Duration;

/// The kinds of requests to a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// To read.
    Read,
    /// To write.
    Write,
    /// To unmap.
    Unmap,
}

/// Measures what hosts ask of a volume, whatever front end they come by, since the process started.
#[derive(Default, Debug)]
pub struct Instruments {
    read: OperationInstruments,
    write: OperationInstruments,
    unmap: OperationInstruments,
}

#[derive(Default, Debug)]
struct OperationInstruments {
    bytes: Counter,
    errors: Counter,
    latency: LatencyHistogram,
}

/// One operation of [`Instruments`] at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OperationSnapshot {
    /// Bytes read, written or unmapped.
    pub bytes: u64,
    /// Requests that failed or were refused.
    pub errors: u64,
    /// From the arrival of the request to its answer's being queued; also of those that failed.
    pub latency: LatencySnapshot,
}

/// [`Instruments`] at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InstrumentsSnapshot {
    /// Reads.
    pub read: OperationSnapshot,
    /// Writes.
    pub write: OperationSnapshot,
    /// Unmaps.
    pub unmap: OperationSnapshot,
}

impl Instruments {
    /// Counts a request that moved `bytes` of data, none if it was to unmap, and was answered `latency` after it had come.
    pub fn answered(&self, operation: Operation, bytes: u64, latency: Duration) {
        let of = self.of(operation);
        of.bytes.add(bytes);
        of.latency.record(latency);
    }

    /// Counts bytes unmapped: a volume knows them, whichever request unmapped them.
    pub(crate) fn unmapped(&self, bytes: u64) {
        self.unmap.bytes.add(bytes);
    }

    /// Counts a request that was refused or failed, `latency` after it had come.
    pub fn failed(&self, operation: Operation, latency: Duration) {
        let of = self.of(operation);
        of.errors.increment();
        of.latency.record(latency);
    }

    /// The values now.
    pub fn snapshot(&self) -> InstrumentsSnapshot {
        InstrumentsSnapshot {
            read: self.read.snapshot(),
            write: self.write.snapshot(),
            unmap: self.unmap.snapshot(),
        }
    }

    fn of(&self, operation: Operation) -> &OperationInstruments {
        match operation {
            Operation::Read => &self.read,
            Operation::Write => &self.write,
            Operation::Unmap => &self.unmap,
        }
    }
}

impl OperationInstruments {
    fn snapshot(&self) -> OperationSnapshot {
        OperationSnapshot {
            bytes: self.bytes.value(),
            errors: self.errors.value(),
            latency: self.latency.snapshot(),
        }
    }
}
