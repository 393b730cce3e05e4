//! The segments of a slice: the table of them, reads of what they hold, and the readers that may still look at what is freed.
//!
//! What is given up is tagged with the current reader epoch here, so that no caller can tag it with another one.

use crate::{
    error::PoolError,
    format::Location,
    meta::SegmentTable,
    segment::{
        io::SegmentIo,
        readers::{ReadGuard, ReaderEpoch, ReaderEpochs},
    },
};
use quoin_base::{CheckpointGeneration, SegmentId, Sequence};
use quoin_world::Thread;
use std::sync::Arc;

/// The segments of a slice.
pub(crate) struct Segments {
    pub(crate) table: Arc<SegmentTable>,
    pub(crate) io: Arc<SegmentIo>,
    readers: ReaderEpochs,
}

impl Segments {
    pub(crate) fn new(io: Arc<SegmentIo>, data_threads: usize) -> Self {
        Self { table: io.segments.clone(), io, readers: ReaderEpochs::new(data_threads) }
    }

    /// Enters the current reader epoch, on this thread.
    pub(crate) fn enter(&self, thread: Option<Thread>) -> ReadGuard<'_> {
        self.readers.enter(thread)
    }

    pub(crate) fn readers(&self) -> &ReaderEpochs {
        &self.readers
    }

    /// True when every reader that entered in `epoch` or earlier has left. Ends that epoch if it is the current one: readers
    /// that enter from here on are of a new one, and those of the old one only become fewer.
    pub(crate) fn readers_left(&self, epoch: ReaderEpoch) -> bool {
        if epoch == self.readers.current() {
            self.readers.advance();
        }
        self.readers.passed(epoch)
    }

    /// As [`SegmentTable::release`].
    pub(crate) fn release(
        &self,
        location: Location,
        generation: CheckpointGeneration,
    ) -> Result<(), PoolError> {
        self.table.release(location, generation, &self.readers)
    }

    /// As [`SegmentTable::seal`].
    pub(crate) fn seal(&self, id: SegmentId, generation: CheckpointGeneration) {
        self.table.seal(id, generation, &self.readers);
    }

    /// As [`SegmentTable::reclaim`].
    pub(crate) fn reclaim(&self, durable: CheckpointGeneration) -> bool {
        self.table.reclaim(durable, &self.readers)
    }

    /// As [`SegmentTable::forget_names`].
    pub(crate) fn forget_names(&self, tail: Sequence, generation: CheckpointGeneration) {
        self.table.forget_names(tail, generation, &self.readers);
    }

    /// As [`SegmentTable::quarantine_empty`].
    pub(crate) fn quarantine_empty(&self, generation: CheckpointGeneration) {
        self.table.quarantine_empty(generation, &self.readers);
    }
}
