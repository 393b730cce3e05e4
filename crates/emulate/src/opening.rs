//! One opening of an emulated drive, as a disk.

use crate::{
    EmulatedDrive,
    drive::{Admission, Refusal},
    model::Work,
};
use quoin_base::metrics::LatencyHistogram;
use quoin_world::{Completer, Completion, Disk, DiskError, DiskInstruments, DiskOp, Nanos, Slice};
use std::{io, sync::Arc};

/// The errors of the operating system that operations fail with.
const EIO: i32 = 5;
const ENODEV: i32 = 19;

/// The disk of one opening.
pub(crate) struct Opening {
    drive: Arc<EmulatedDrive>,
    below: Arc<dyn Disk>,
    generation: u64,
    instruments: Arc<DiskInstruments>,
}

/// What callers hold.
struct EmulatedDisk(Arc<Opening>);

/// What an operation is, apart from its buffers.
#[derive(Clone, Copy)]
struct Described {
    operation: &'static str,
    offset: u64,
    len: u64,
    work: Work,
    submitted: Nanos,
}

impl Opening {
    pub(crate) fn disk(drive: Arc<EmulatedDrive>, below: Arc<dyn Disk>, generation: u64) -> Arc<dyn Disk> {
        let instruments = Arc::default();
        Arc::new(EmulatedDisk(Arc::new(Self { drive, below, generation, instruments })))
    }

    fn describe(&self, op: &DiskOp) -> Described {
        let submitted = self.drive.world().now();
        let (operation, offset, len, work) = match op {
            DiskOp::Read { offset, buf } => {
                let (offset, len) = (*offset, buf.len() as u64);
                ("read", offset, len, Work::Transfer { offset, len, durable: false })
            }
            DiskOp::Write { offset, data, durable } => {
                let (offset, len) = (*offset, data.iter().map(Slice::len).sum::<usize>() as u64);
                ("write", offset, len, Work::Transfer { offset, len, durable: *durable })
            }
            DiskOp::Flush => ("flush", 0, 0, Work::Flush),
            DiskOp::Discard { offset, len } => ("discard", *offset, *len, Work::Discard),
        };
        Described { operation, offset, len, work, submitted }
    }

    fn histogram(&self, described: &Described) -> &LatencyHistogram {
        match (described.operation, described.work) {
            ("read", _) => &self.instruments.read,
            (_, Work::Transfer { durable: true, .. }) => &self.instruments.durable_write,
            (_, Work::Transfer { durable: false, .. }) => &self.instruments.write,
            (_, Work::Flush) => &self.instruments.flush,
            (_, Work::Discard) => &self.instruments.discard,
        }
    }

    fn error(&self, described: &Described, refusal: Refusal) -> DiskError {
        let Described { operation, offset, len, .. } = *described;
        let errno = match refusal {
            Refusal::Failing => EIO,
            Refusal::Detached => ENODEV,
        };
        let source = io::Error::from_raw_os_error(errno);
        DiskError::Io { disk: self.below.name().to_owned(), operation, offset, len, source }
    }

    /// Sees an operation through that could not begin when it was submitted.
    async fn put_off(self: Arc<Self>, described: Described, op: DiskOp, completer: Completer) {
        match self.drive.until_admitted(self.generation, described.work).await {
            Admission::Due(due) => {
                let under_way = UnderWay(&self.drive);
                let completion = self.below.submit(op);
                self.see_through(described, due, completion, completer).await;
                drop(under_way);
            }
            Admission::Refused(refusal) => completer.complete(Err(self.error(&described, refusal))),
            Admission::Wait => {}
        }
    }

    /// Waits for the disk below and for the model, whichever takes longer.
    async fn see_through(
        &self,
        described: Described,
        due: u64,
        completion: Completion,
        completer: Completer,
    ) {
        let outcome = completion.await;
        self.drive.until_due(due).await;
        let outcome = match self.drive.until_answered(self.generation).await {
            Some(refusal) => Err(self.error(&described, refusal)),
            None => outcome,
        };
        self.histogram(&described).record(self.drive.world().now().since(described.submitted));
        completer.complete(outcome);
    }
}

/// Keeps an operation under way, until its task has ended in whatever way.
struct UnderWay<'a>(&'a EmulatedDrive);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.ended();
    }
}

impl Disk for EmulatedDisk {
    fn name(&self) -> &str {
        self.0.below.name()
    }

    fn len_bytes(&self) -> u64 {
        self.0.below.len_bytes()
    }

    fn measure(&self) -> u64 {
        self.0.below.measure()
    }

    fn block_bytes(&self) -> u32 {
        self.0.below.block_bytes()
    }

    fn may_lack_room(&self) -> bool {
        self.0.below.may_lack_room()
    }

    fn instruments(&self) -> Option<Arc<DiskInstruments>> {
        Some(self.0.instruments.clone())
    }

    fn submit(&self, op: DiskOp) -> Completion {
        let opening = self.0.clone();
        let Some(thread) = opening.drive.world().current() else {
            // The disk below says what is wrong.
            return opening.below.submit(op);
        };
        let described = opening.describe(&op);
        opening.instruments.submitted.increment();
        let (completer, completion) = Completion::new();
        match opening.drive.admit(opening.generation, described.work) {
            Admission::Refused(refusal) => {
                completer.complete(Err(opening.error(&described, refusal)));
            }
            Admission::Wait => {
                let world = opening.drive.world().clone();
                world.spawn(thread, Box::pin(opening.put_off(described, op, completer)));
            }
            // NOTE: submitted here and not in the task: the disk below gets operations in their order.
            Admission::Due(due) => {
                let world = opening.drive.world().clone();
                let below = opening.below.submit(op);
                let task = async move {
                    let _under_way = UnderWay(&opening.drive);
                    opening.see_through(described, due, below, completer).await;
                };
                world.spawn(thread, Box::pin(task));
            }
        }
        completion
    }
}
