//! What the cleaner knows of segments beside the segment table: which it cannot clean, which wait for a checkpoint, and whether
//! it gains anything.

use crate::{
    commit::in_vain::InVain,
    meta::{Segment, SegmentTable},
};
use quoin_base::{SegmentGeneration, SegmentId};
use std::collections::{BTreeMap, BTreeSet};

/// What is known of cleaning.
#[derive(Default)]
pub(crate) struct Cleaning {
    /// Segments that cannot be walked, and their generations.
    uncleanable: BTreeMap<u32, SegmentGeneration>,
    /// Segments whose pages the next checkpoint moves elsewhere.
    metadata: BTreeSet<u32>,
    in_vain: InVain,
}

impl Cleaning {
    /// Cleans a segment no more. True if that is news.
    pub(super) fn leave_alone(&mut self, id: SegmentId, segment: &Segment) -> bool {
        self.uncleanable.insert(id.0, segment.generation) != Some(segment.generation)
    }

    /// The segments that the cleaner leaves out now: those in `unwritten`, and those that lack too many columns to be read.
    /// Also whether a checkpoint may change that for some.
    pub(super) fn not_now(
        &mut self,
        table: &SegmentTable,
        unwritten: impl Iterator<Item = u32>,
    ) -> (BTreeSet<u32>, bool) {
        // One that was freed and opened again is another.
        self.uncleanable.retain(|id, generation| table.generation(SegmentId(*id)) == Some(*generation));
        let but: BTreeSet<u32> =
            self.uncleanable.keys().chain(&self.metadata).copied().chain(unwritten).collect();
        let some_wait = but.len() > self.uncleanable.len();
        // The cleaner takes these when their drives are back.
        (but.into_iter().chain(table.unreadable()).collect(), some_wait)
    }

    /// Notes that the pages of a segment come away with the next checkpoint.
    pub(super) fn awaits_checkpoint(&mut self, id: SegmentId) {
        self.metadata.insert(id.0);
    }

    /// How many segments come free with the next checkpoint.
    pub(super) fn awaiting_checkpoint(&self) -> u64 {
        self.metadata.len() as u64
    }

    pub(super) fn in_vain(&self) -> InVain {
        self.in_vain
    }

    /// Notes what a step gained, as [`InVain::cleaned`].
    pub(super) fn cleaned(&mut self, gained: bool, left_out: bool, is_under_way: bool) {
        self.in_vain = self.in_vain.cleaned(gained, left_out, is_under_way);
    }

    /// Notes that a checkpoint was cut: pages that were to be moved have their new places.
    pub(super) fn cut(&mut self) {
        self.metadata.clear();
        self.in_vain = self.in_vain.cut();
    }

    /// Notes that a checkpoint is durable.
    pub(super) fn landed(&mut self) {
        self.in_vain = self.in_vain.landed();
    }
}
