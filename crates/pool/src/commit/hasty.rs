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
    /// The rows before this one were looked at.
    next_row: usize,
}

/// By segment. After an opening nothing is known of it.
#[derive(Default)]
pub(super) struct Hasty(BTreeMap<SegmentId, Stored>);

/// What is to be packed next.
pub(super) enum Next {
    /// From this row on.
    Rows(SegmentId, Segment, usize),
    /// Rows are still added to all segments.
    Open,
    /// There is none, or what there is cannot be read now.
    Nothing,
}

impl Hasty {
    /// Notes a block of so many bytes.
    pub(super) fn note(&mut self, table: &SegmentTable, id: SegmentId, bytes: u64) {
        let Some(generation) = table.generation(id) else { return };
        let new = || Stored { generation, bytes: 0, next_row: 0 };
        let stored = self.0.entry(id).or_insert_with(new);
        if stored.generation != generation {
            *stored = new();
        }
        stored.bytes += bytes;
    }

    /// The segment with the most. What is not worth it, or was freed, is forgotten.
    pub(super) fn next(&mut self, table: &SegmentTable) -> Next {
        let (unreadable, mut best, mut is_any_open) = (table.unreadable(), None, false);
        self.0.retain(|&id, stored| {
            let segment = table.segment(id).filter(|segment| segment.generation == stored.generation);
            let Some(segment) = segment else { return false };
            match segment.state {
                SegmentState::Open => is_any_open = true,
                SegmentState::Sealed => {
                    let live_bytes = u64::from(segment.live_grains) * GRAIN_BYTES;
                    if stored.bytes * WORTH_ONE_OF < live_bytes {
                        return false;
                    }
                    let is_more = best.as_ref().is_none_or(|(bytes, _)| stored.bytes > *bytes);
                    if is_more && !unreadable.contains(&id.0) {
                        best = Some((stored.bytes, Next::Rows(id, segment, stored.next_row)));
                    }
                }
                SegmentState::Free | SegmentState::Quarantined => return false,
            }
            true
        });
        let otherwise = if is_any_open { Next::Open } else { Next::Nothing };
        best.map_or(otherwise, |(_, next)| next)
    }

    /// The rows of a segment before this one were looked at.
    pub(super) fn looked_at(&mut self, id: SegmentId, next_row: usize) {
        if let Some(stored) = self.0.get_mut(&id) {
            stored.next_row = next_row;
        }
    }

    /// All of a segment was looked at.
    pub(super) fn forget(&mut self, id: SegmentId) {
        self.0.remove(&id);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
