//! Blocks that lie in rows before any map leads to them.

use crate::{format::Location, maps::numbers::Numbers, meta::SegmentTable};
use quoin_base::BlockNumber;
use quoin_world::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// A block that lies in a row, before any map leads to it.
#[derive(Debug)]
pub(crate) struct PlacedBlock {
    pub location: Location,
    pub crc: u32,
    /// The number that it will have. `None`: replay found it, and destage writes it anew.
    pub number: Option<BlockNumber>,
    is_published: AtomicBool,
    owner: Arc<PlacedSpace>,
}

/// What placed blocks take: room in segments, and numbers.
pub(crate) struct PlacedSpace {
    segments: Arc<SegmentTable>,
    numbers: Numbers,
}

impl PlacedSpace {
    pub(crate) fn new(segments: Arc<SegmentTable>, numbers: Numbers) -> Self {
        Self { segments, numbers }
    }

    pub(crate) fn segments(&self) -> &SegmentTable {
        &self.segments
    }

    pub(crate) fn numbers(&self) -> &Numbers {
        &self.numbers
    }
}

impl std::fmt::Debug for PlacedSpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PlacedSpace")
    }
}

impl PlacedBlock {
    /// A block that takes this place, and this number, until it is published or dropped.
    pub(crate) fn new(
        owner: Arc<PlacedSpace>,
        location: Location,
        crc: u32,
        number: Option<BlockNumber>,
    ) -> Self {
        Self { location, crc, number, is_published: AtomicBool::new(false), owner }
    }

    /// Counts it as live: the block table is about to lead to it.
    pub(crate) fn publish(&self) {
        let was_published = self.is_published.swap(true, Ordering::Relaxed);
        assert!(!was_published, "the block at {:?} is published once", self.location);
        self.owner.segments.publish(self.location);
        if let Some(number) = self.number {
            self.owner.numbers.published(number);
        }
    }
}

impl Drop for PlacedBlock {
    fn drop(&mut self) {
        if self.is_published.load(Ordering::Relaxed) {
            return;
        }
        self.owner.segments.withdraw(self.location);
        if let Some(number) = self.number {
            self.owner.numbers.give_back(number);
        }
    }
}
