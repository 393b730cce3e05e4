//! Keeping blocks where the journal put them: their extent becomes a segment, and nothing is written twice.
//!
//! Invariants:
//! 1. An extent of which a block is kept is never written to again: it stays in the journal until every record in
//!    it is below the tail of a durable root, and that same root finds it to be an ordinary segment.
//! 2. The segment that takes its place in the journal is taken before the first block is kept, and written to only
//!    after a root is durable that names it as an extent, its first pages being zero.
//! 3. Blocks are kept only while there are slabs enough to write everything in the journal elsewhere.

use crate::{
    blocks::BlockPlace,
    buffer::{Extent, TakenBlock},
    bugs::{Bug, planted},
    committer::Committer,
    error::PoolError,
    format::{BlockInfo, Location, PAGE_BYTES},
    journal::Fate,
    meta::{Segment, Stream},
};
use futures_util::future::join_all;
use quoin_base::{SegmentId, Sequence};
use quoin_world::Buf;

/// What of a fresh extent is zeroed: its header, and the header of its first batch.
const WIPED_BYTES: usize = 2 * PAGE_BYTES;

/// Slabs beyond those needed that are made free at a time.
const FEW_SEGMENTS: u64 = 8;

impl Committer {
    /// Where a block may stay; `None`: it has to be written to a row. What is returned counts as live.
    pub(crate) fn kept_place(&mut self, taken: &TakenBlock) -> Option<BlockPlace> {
        let pool = self.pool.clone();
        let [Extent { home: Some(home), batch, .. }] = taken.extents.as_slice() else { return None };
        let place = batch.place()?;
        let offset = place.payload_offset + u64::from(home.payload_offset);
        // A block that lies across pages costs a page more each time it is read.
        if !offset.is_multiple_of(PAGE_BYTES as u64) {
            return None;
        }
        let Some((mut fate, live)) = pool.journal.fate(place.segment) else {
            // It goes to a row: one less to keep there.
            batch.overwritten(pool.buffer.block_bytes);
            return None;
        };
        if fate == Fate::Open {
            let worth = live >= pool.segments.segment_bytes() / 100 * pool.options.keep_from_percent;
            let keep = worth && self.take_replacement(place.segment);
            fate = if keep { Fate::Kept } else { Fate::Copied };
            pool.journal.decide(place.segment, fate);
        }
        if fate != Fate::Kept {
            return None;
        }
        let location = Location::new(place.segment, offset, pool.buffer.block_bytes as usize);
        pool.segments.add(location);
        Some(BlockPlace { location, info: BlockInfo::new(home.crc, 1, BlockInfo::STORED) })
    }

    /// Free slabs that are left when a block is kept: all that is in the journal could still be written elsewhere.
    fn keep_from_slabs(&self) -> u64 {
        self.pool.space.clean_below() + self.pool.journal.usage().total
    }

    /// True when slabs are too few for blocks to be kept, and segments are there that hold next to nothing.
    pub(crate) fn could_keep_more(&self) -> bool {
        let pool = &self.pool;
        pool.options.keep_from_percent <= 100
            && pool.segments.usage().free_slabs <= self.keep_from_slabs() + FEW_SEGMENTS
            && pool.segments.emptiest(&self.cleaned_metadata, self.next_to_nothing()).is_some()
    }

    /// Live bytes of a segment that is cleaned for the sake of keeping blocks elsewhere.
    pub(crate) fn next_to_nothing(&self) -> u64 {
        self.pool.segments.segment_bytes() / 4
    }

    /// Takes a segment for the journal in the place of `leaving`. False if that one cannot leave.
    fn take_replacement(&mut self, leaving: SegmentId) -> bool {
        let pool = self.pool.clone();
        if pool.segments.usage().free_slabs <= self.keep_from_slabs() || !pool.segments.holds_data(leaving) {
            return false;
        }
        let Some((id, segment)) = pool.segments.take(Stream::Journal) else { return false };
        if planted(Bug::JoinEarly) {
            pool.journal.join(id, segment.columns[0]);
            return true;
        }
        self.fresh_extents.push((id, segment));
        true
    }

    /// Turns the extents that the coming root finds to have left the journal into segments, and zeroes the heads
    /// of those that it finds to have joined.
    pub(crate) async fn change_journal(&mut self, tail: Sequence) -> Result<JournalChange, PoolError> {
        let pool = self.pool.clone();
        let leaving = pool.journal.leaving(tail);
        for (id, end_bytes) in &leaving {
            pool.segments.leave_journal(*id, *end_bytes, self.generation + 1, &pool.readers);
        }
        let joining = std::mem::take(&mut self.fresh_extents);
        let wipes = joining.iter().map(|(_, segment)| {
            let zeroes = vec![Buf::zeroed(WIPED_BYTES).into_slice()];
            pool.io.columns.write_row(segment.geometry, &segment.columns, 0, zeroes)
        });
        for outcome in join_all(wipes).await {
            outcome?;
        }
        Ok(JournalChange { leaving: leaving.into_iter().map(|(id, _)| id).collect(), joining })
    }

    /// The root that says so is durable.
    pub(crate) fn journal_changed(&self, change: JournalChange) {
        let journal = &self.pool.journal;
        change.leaving.into_iter().for_each(|id| journal.leave(id));
        change.joining.into_iter().for_each(|(id, segment)| journal.join(id, segment.columns[0]));
    }
}

/// How the coming root finds the journal changed.
pub(crate) struct JournalChange {
    leaving: Vec<SegmentId>,
    joining: Vec<(SegmentId, Segment)>,
}
