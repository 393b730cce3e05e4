//! The scrub that runs, and what is to be saved of it.

use super::record::{Begun, Record};
use parking_lot::Mutex;
use quoin_api::{Actor, ScrubFindings};
use quoin_pool::{Scrub, ScrubCounts};
use quoin_world::Nanos;
use std::sync::Arc;

/// How a scrub ended: complete or not, or why it could not continue.
pub(super) type Outcome = Result<bool, String>;

/// A scrub that runs.
pub(super) struct Running {
    pub(super) scrub: Arc<Scrub>,
    pub(super) started_ms: u64,
    /// For the pace: since when, and what had been read by then.
    pub(super) since: Nanos,
    pub(super) bytes_then: u64,
    pub(super) outcome: Arc<Mutex<Option<Outcome>>>,
    /// Who asked for it to stop.
    pub(super) stopped_by: Option<Arc<Actor>>,
}

/// The scrubs of an array.
#[derive(Default)]
pub(crate) struct Scrubs {
    /// As it is to be kept; `None` until the catalog was read.
    pub(super) record: Option<Record>,
    pub(super) running: Option<Running>,
    /// The record is not saved as it is.
    pub(super) changed: bool,
    pub(super) looked: Option<Nanos>,
}

impl Scrubs {
    /// Notes where the scrub is that runs.
    pub(super) fn note_progress(&mut self) {
        let (Some(running), Some(record)) = (&self.running, &mut self.record) else { return };
        let (position, counts) = running.scrub.progress();
        record.begun = Some(Begun {
            started_ms: running.started_ms,
            slice: position.slice,
            space: position.space,
            page: position.page,
            bytes: counts.bytes,
            found: findings(&counts),
        });
        self.changed = true;
    }
}

pub(super) fn findings(counts: &ScrubCounts) -> ScrubFindings {
    ScrubFindings {
        blocks: counts.blocks,
        pages: counts.pages,
        rows: counts.rows,
        damaged_blocks: counts.damaged_blocks,
        damaged_pages: counts.damaged_pages,
        damaged_rows: counts.damaged_rows,
        repaired_pages: counts.repaired_pages,
        failed_reads: counts.failed_reads,
    }
}

pub(super) fn counts(bytes: u64, found: &ScrubFindings) -> ScrubCounts {
    ScrubCounts {
        bytes,
        blocks: found.blocks,
        pages: found.pages,
        rows: found.rows,
        damaged_blocks: found.damaged_blocks,
        damaged_pages: found.damaged_pages,
        damaged_rows: found.damaged_rows,
        repaired_pages: found.repaired_pages,
        failed_reads: found.failed_reads,
    }
}
