//! Cleaning: what is still live in the emptiest segments is written anew elsewhere, so that they come free.
//!
//! Only the block table changes for data that moves; metadata pages are made dirty, and the next checkpoint
//! puts them elsewhere.
//!
//! # Example
//! Eight blocks were written to segment 5, and two of them are live: those with the numbers 30 and 44.
//! 1. The heads of its rows name all eight. The block table says that 30 and 44 lie there, and the others do not.
//! 2. Both are read, and written to a row of segment 9.
//! 3. The block table now leads to segment 9. Maps do not change, because they name blocks by number.
//! 4. Nothing in segment 5 is live: it is quarantined. Its slab comes free when a checkpoint without it is durable and all
//!    reads that began before have ended.

use crate::{
    bugs::{Bug, planted},
    commit::{
        committer::Committer,
        gather::{Allowance, LiveBlock, WrittenRow, rows_of},
    },
    error::PoolError,
    format::{BlockInfo, GRAIN_BYTES, Location},
    maps::blocks::{BlockPlace, block_page, block_word},
    meta::{PageId, Segment},
};
use futures_util::future::join_all;
use quoin_base::{BlockNumber, SegmentId};
use std::collections::BTreeSet;

/// The most segments taken on in one step: as a rule more come free than a batch of destage takes.
const SEGMENTS: usize = 12;
/// The most live data that a step moves: destage waits meanwhile, and all of it is in RAM. Less if the write buffer is
/// small, but no less than a segment.
const MOVED_BYTES: u64 = 24 << 20;

/// A block that moves: from where to where.
pub(super) type Move = (BlockNumber, BlockPlace, BlockPlace);

/// What was moved.
#[derive(Clone, Copy, Default)]
pub(super) struct Moved {
    pub blocks: usize,
    pub bytes: u64,
    /// Blocks for which there was no slab.
    pub unplaced: usize,
    /// With all that rows hold beside.
    pub written_bytes: u64,
}

impl Committer {
    /// Empties some segments. False if there was none worth it or no room to move anything to.
    pub(crate) async fn clean(&mut self) -> Result<bool, PoolError> {
        let (gained, left_out) = self.clean_some().await?;
        self.cleaning.cleaned(gained, left_out, self.checkpoints.is_under_way());
        Ok(gained)
    }

    /// Returns whether anything was cleaned, and whether anything worth it was left out.
    async fn clean_some(&mut self) -> Result<(bool, bool), PoolError> {
        let slice = self.slice.clone();
        let (chosen, left_out) = self.choose_segments();
        let block_bytes = slice.buffer.block_bytes;
        // The heads of their rows tell what was written there.
        let walks = chosen.iter().map(|(id, segment)| {
            rows_of(
                &slice.segments.io,
                slice.segments.table.full_row_bytes(segment, block_bytes),
                *id,
                segment,
            )
        });
        let walked = join_all(walks).await;
        let mut data = Vec::new();
        for ((id, segment), rows) in chosen.iter().zip(walked) {
            match rows {
                None => self.leave_alone(*id, segment),
                Some(rows) if segment.stream.is_metadata() => {
                    self.clean_metadata(*id, segment, &rows).await?
                }
                Some(rows) => data.push((*id, segment, rows)),
            }
        }
        // The blocks of all data segments move together, so that neighbours by address meet.
        let moved = self.clean_data(&data).await?;
        self.committed();
        if chosen.is_empty() {
            // What was dropped may be what makes segments look full.
            return Ok((self.blocks.dropped.count > 0 && self.merge_some().await?, left_out));
        }
        let is_any_moved = moved.unplaced == 0 || moved.blocks > 0 || data.len() < chosen.len();
        Ok((is_any_moved, left_out || moved.unplaced > 0))
    }

    /// The segments to clean in this step: the emptiest ones, as far as there is room for what is live in them. Also
    /// whether others were left out that may be cleaned after a checkpoint.
    fn choose_segments(&mut self) -> (Vec<(SegmentId, Segment)>, bool) {
        let slice = self.slice.clone();
        let dense_bytes = slice.segments.table.dense_bytes(slice.buffer.block_bytes);
        let free = slice.segments.table.usage().free_slabs;
        let mut room = free.saturating_sub(slice.space.checkpoint_slabs()) * dense_bytes * 7 / 8;
        // Data goes to free slabs. Metadata becomes dirty, and the next checkpoint writes it.
        let mut due_room = slice.options().dirty_bytes.saturating_sub(self.due_bytes());
        let (mut but, mut left_out) =
            self.cleaning.not_now(&slice.segments.table, self.checkpoints.unwritten());
        let (mut chosen, mut moved) = (Vec::new(), 0);
        while chosen.len() < SEGMENTS && moved < MOVED_BYTES {
            let next = self
                .to_relocate(&but)
                .or_else(|| slice.segments.table.emptiest(&but, slice.buffer.block_bytes));
            let Some((id, segment)) = next else { break };
            let live = u64::from(segment.live_grains) * GRAIN_BYTES;
            let room = if segment.stream.is_metadata() { &mut due_room } else { &mut room };
            if live > *room {
                left_out = true;
                break;
            }
            *room -= live;
            moved += live;
            but.insert(id.0);
            chosen.push((id, segment));
        }
        (chosen, left_out)
    }

    /// Whether there is such a segment that can be cleaned now.
    pub(crate) fn relocates(&mut self) -> bool {
        let table = &self.slice.segments.table;
        if !table.is_any_displaced() {
            return false;
        }
        // Open segments cannot be relocated. What is written next goes to others.
        let (slice, generation) = (self.slice.clone(), self.first_without());
        for rows in [&mut self.rows.data, &mut self.rows.cleaned] {
            rows.leave_degraded(&slice.segments, generation);
        }
        self.rows.meta.leave_degraded(&slice.segments, generation);
        if !self.cleaning.in_vain().may_try(self.checkpoints.is_under_way()) {
            return false;
        }
        let (but, _) = self.cleaning.not_now(&slice.segments.table, self.checkpoints.unwritten());
        self.to_relocate(&but).is_some()
    }

    /// A segment that lacks a column, and what is live in it is better protected elsewhere.
    pub(crate) fn to_relocate(&self, but: &BTreeSet<u32>) -> Option<(SegmentId, Segment)> {
        self.slice.segments.table.to_relocate(but)
    }

    /// Cleans it no more.
    pub(crate) fn leave_alone(&mut self, id: SegmentId, segment: &Segment) {
        if self.cleaning.leave_alone(id, segment) {
            self.slice.counters.cleaning.uncleanable.add(1);
        }
    }

    /// Moves what is live in data segments, as far as a step goes: what is left is taken up by the next.
    async fn clean_data(
        &mut self,
        segments: &[(SegmentId, &Segment, Vec<WrittenRow>)],
    ) -> Result<Moved, PoolError> {
        let slice = self.slice.clone();
        let due_room = slice.space.most_due_bytes().saturating_sub(self.due_bytes());
        // Each page of the block table that changes may make others due.
        let pages = slice.space.table_pages_within(due_room) as usize;
        let bytes = MOVED_BYTES
            .min((slice.options().buffer_bytes / 4).max(slice.segments.table.most_segment_bytes()));
        let mut allowance = Allowance { bytes, pages };
        let (mut blocks, mut changed) = (Vec::new(), BTreeSet::new());
        for (id, segment, rows) in segments {
            let (live, _) =
                self.live_blocks((*id, segment), rows, |_| true, &mut allowance, &mut changed).await?;
            blocks.extend(live);
        }
        // What cannot be read stays where it is, and so does its segment.
        self.read_live(&mut blocks).await;
        for (id, segment, _) in segments {
            let unread = |block: &LiveBlock| block.stored.is_none() && block.place.location.segment() == *id;
            if blocks.iter().any(unread) {
                tracing::warn!(segment = id.0, "blocks cannot be read: they are not moved");
                self.leave_alone(*id, segment);
            }
        }
        // The others go into new rows, in the order of their addresses.
        let moved = self.move_blocks(blocks).await?;
        slice.counters.cleaning.bytes.add(moved.written_bytes);
        Ok(moved)
    }

    /// What is told before rows are written: nothing.
    pub(super) async fn publish_moves_early(&self, moves: &[Move]) -> Result<(), PoolError> {
        if planted(Bug::PublishMovesEarly) { self.publish_moves(moves).await } else { Ok(()) }
    }

    /// What is told once rows are written.
    pub(super) async fn publish_moves_last(&self, moves: &[Move]) -> Result<(), PoolError> {
        if planted(Bug::PublishMovesEarly) { Ok(()) } else { self.publish_moves(moves).await }
    }

    /// Tells the block table where blocks are now, and gives back where they were.
    async fn publish_moves(&self, moves: &[Move]) -> Result<(), PoolError> {
        let slice = &self.slice;
        for &(number, from, to) in moves {
            let page = slice.metadata.pages.change(block_page(number)).await?;
            if !planted(Bug::ForgetMoves) {
                page.set(block_word(number) + 2, to.location.0);
                if to.info != from.info && !planted(Bug::RepackUntold) {
                    let now = BlockInfo(page.get(block_word(number) + 3));
                    let moved = now.stored_as(to.info.crc(), to.info.algorithm());
                    page.set(block_word(number) + 3, moved.0);
                }
            }
            slice.segments.release(from.location, self.first_without())?;
        }
        Ok(())
    }

    async fn clean_metadata(
        &mut self,
        id: SegmentId,
        segment: &Segment,
        rows: &[WrittenRow],
    ) -> Result<(), PoolError> {
        let slice = self.slice.clone();
        // Its pages come away with the next checkpoint: until then there is nothing more to do about it.
        self.cleaning.awaits_checkpoint(id);
        for row in rows {
            for content in &row.contents {
                let Some(page) = PageId::unpack(content.name.get()) else { continue };
                match self.move_page(page, id).await {
                    Ok(()) => {}
                    // It stays where it is, and so does its segment.
                    Err(error) if slice.store.is_damage(&error).await => {
                        tracing::warn!(segment = id.0, %error, "a page of metadata cannot be moved");
                        self.leave_alone(id, segment);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Has the next checkpoint write a page elsewhere, if it lies in this segment.
    async fn move_page(&self, page: PageId, from: SegmentId) -> Result<(), PoolError> {
        let pages = &self.slice.metadata.pages;
        let location = Location(pages.entry(page).await?.location.get());
        if !location.is_none() && location.segment() == from {
            pages.change(page).await?;
        }
        Ok(())
    }
}
