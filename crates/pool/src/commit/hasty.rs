//! Which segments hold blocks of compressed volumes that were stored as they are, since hosts would have waited.

use crate::{
    format::GRAIN_BYTES,
    meta::{Segment, SegmentState, SegmentTable},
};
use quoin_base::{SegmentGeneration, SegmentId};
use std::collections::BTreeMap;

/// Less than one of so many bytes that are live in a segment is left to the cleaner.
const WORTH_ONE_OF: u64 = 16;

/// What was stored in haste in a segment.
struct Stored {
    generation: SegmentGeneration,
    bytes: u64,
}

/// By segment. After an opening nothing is known of it.
#[derive(Default)]
pub(super) struct Hasty(BTreeMap<SegmentId, Stored>);

impl Hasty {
    /// Notes a block of so many bytes.
    pub(super) fn note(&mut self, table: &SegmentTable, id: SegmentId, bytes: u64) {
        let Some(generation) = table.generation(id) else { return };
        let stored = self.0.entry(id).or_insert(Stored { generation, bytes: 0 });
        if stored.generation != generation {
            *stored = Stored { generation, bytes: 0 };
        }
        stored.bytes += bytes;
    }

    /// The segment with the most that nothing is added to any more. What is not worth it, or was freed, is forgotten.
    pub(super) fn next(&mut self, table: &SegmentTable) -> Option<(SegmentId, Segment)> {
        let mut best: Option<(u64, SegmentId, Segment)> = None;
        self.0.retain(|&id, stored| {
            let segment = table.segment(id).filter(|segment| segment.generation == stored.generation);
            let Some(segment) = segment else { return false };
            let live_bytes = u64::from(segment.live_grains) * GRAIN_BYTES;
            let is_open = segment.state == SegmentState::Open;
            if is_open || stored.bytes * WORTH_ONE_OF < live_bytes {
                return is_open;
            }
            if best.as_ref().is_none_or(|(bytes, ..)| stored.bytes > *bytes) {
                best = Some((stored.bytes, id, segment));
            }
            true
        });
        best.map(|(_, id, segment)| (id, segment))
    }

    /// All of a segment was looked at.
    pub(super) fn forget(&mut self, id: SegmentId) {
        self.0.remove(&id);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
