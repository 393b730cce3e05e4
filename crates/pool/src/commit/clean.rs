//! Cleaning: what is still live in the emptiest segments is written anew elsewhere, so that they come free.
//!
//! Only the block table changes for data that moves; metadata pages are made dirty, and the next checkpoint
//! puts them elsewhere.

use crate::{
    bugs::{Bug, planted},
    commit::committer::Committer,
    error::PoolError,
    format::{BlockInfo, Location, PAGE_BYTES, RowHeader, SEGMENTS_PER_PAGE, Space},
    maps::blocks::{BlockPlace, block_page, block_word},
    meta::{PageId, Segment, Stream},
};
use quoin_base::{ByteRange, SECTOR_BYTES, SegmentId, crc32c};
use quoin_world::Slice;
use std::{collections::BTreeSet, sync::atomic::Ordering};

/// The most segments taken on in one step: as a rule more come free than a batch of destage takes.
const SEGMENTS: usize = 12;
/// Live data after which a step takes on no more: destage waits meanwhile.
const MOVED_BYTES: u64 = 24 << 20;

impl Committer {
    /// Empties some segments. False if there was none worth it or no room to move anything to.
    pub(crate) async fn clean(&mut self) -> Result<bool, PoolError> {
        let pool = self.pool.clone();
        let dense_bytes = pool.segments.dense_bytes(pool.buffer.block_bytes);
        let most_live = dense_bytes - pool.segments.slack_bytes(pool.buffer.block_bytes);
        let free = pool.segments.usage().free_slabs;
        let mut room = free.saturating_sub(pool.space.checkpoint_slabs()) * dense_bytes * 7 / 8;
        let mut but = self.not_to_clean();
        let (mut cleaned, mut moved) = (0, 0);
        while cleaned < SEGMENTS && moved < MOVED_BYTES {
            let Some((id, segment)) = pool.segments.emptiest(&but, most_live) else { break };
            let live = u64::from(segment.live_sectors) * SECTOR_BYTES;
            let is_metadata = segment.stream.is_metadata();
            let left =
                if is_metadata { pool.options.dirty_bytes.saturating_sub(self.due_bytes()) } else { room };
            if live > left {
                break;
            }
            room -= if is_metadata { 0 } else { live };
            moved += live;
            but.insert(id.0);
            cleaned += 1;
            match segment.stream {
                Stream::Meta | Stream::Table => self.clean_metadata(id, &segment).await?,
                Stream::Data | Stream::Cleaned => self.clean_data(id, &segment).await?,
            }
        }
        self.committed();
        Ok(cleaned > 0)
    }

    /// The rows of a segment: head and offset. `None` if it cannot be walked: it is left alone from then on.
    async fn rows_of(&mut self, id: SegmentId, segment: &Segment) -> Option<Vec<(u64, Box<RowHeader>)>> {
        let mut rows = Vec::new();
        let mut at = 0;
        while at < segment.written_bytes {
            let head = self.pool.io.read_range(id, ByteRange::new(at, PAGE_BYTES as u64)).await;
            let row = head.ok().and_then(|head| RowHeader::parse(&head)).filter(|row| {
                row.segment.get() == id.0
                    && row.segment_generation.get() == segment.generation
                    && u64::from(row.offset.get()) == at
                    && row.len_bytes.get() as usize >= PAGE_BYTES
            });
            let Some(row) = row else {
                tracing::warn!(segment = id.0, at, "a row has no readable head: the segment is not cleaned");
                self.leave_alone(id, segment);
                return None;
            };
            let len = u64::from(row.len_bytes.get());
            rows.push((at, row));
            at += len;
        }
        Some(rows)
    }

    fn leave_alone(&mut self, id: SegmentId, segment: &Segment) {
        if self.uncleanable.insert(id.0, segment.generation) != Some(segment.generation) {
            self.pool.counters.uncleanable.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The segments not to be cleaned now.
    fn not_to_clean(&mut self) -> BTreeSet<u32> {
        // One that was freed and opened again is another.
        let segments = &self.pool.segments;
        self.uncleanable.retain(|id, generation| segments.generation(SegmentId(*id)) == Some(*generation));
        self.uncleanable.keys().chain(&self.cleaned_metadata).copied().collect()
    }

    async fn clean_data(&mut self, id: SegmentId, segment: &Segment) -> Result<(), PoolError> {
        let pool = self.pool.clone();
        let mut moves: Vec<(u64, BlockPlace, BlockPlace)> = Vec::new();
        let Some(rows) = self.rows_of(id, segment).await else { return Ok(()) };
        for (offset, row) in rows {
            let end = offset + u64::from(row.len_bytes.get());
            let numbers = row.contents[..row.count.get() as usize].iter().map(|n| n.get());
            let mut live = Vec::new();
            for number in numbers {
                let place = match pool.block(number).await {
                    Ok(Some(place)) => place,
                    Ok(None) => continue,
                    Err(PoolError::Corrupt { .. }) => {
                        self.leave_alone(id, segment);
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                let at = place.location.offset_bytes();
                if place.location.segment() == id && (offset..end).contains(&at) {
                    live.push((number, place));
                }
            }
            if live.is_empty() {
                continue;
            }
            let Ok(data) = pool.io.read_range(id, ByteRange::new(offset, end - offset)).await else {
                tracing::warn!(segment = id.0, offset, "a row cannot be read: it is not cleaned");
                self.leave_alone(id, segment);
                continue;
            };
            for (number, place) in live {
                let at = (place.location.offset_bytes() - offset) as usize;
                let stored = data.slice(at, place.location.len_bytes() as usize);
                let Some(stored) = self.intact(number, place, stored).await else { continue };
                let generation = self.generation + 1;
                let location = self
                    .cleaned_rows
                    .place(&pool.segments, number, stored.len(), generation, &pool.readers)
                    .ok_or_else(crate::commit::destage::out_of_slabs)?;
                self.cleaned_rows.push_data(stored);
                moves.push((number, place, BlockPlace { location, info: place.info }));
            }
        }
        let rows = self.cleaned_rows.finish(&pool.segments);
        if planted(Bug::PublishMovesEarly) {
            self.publish_moves(&moves).await?;
        }
        let written = self.write_rows(rows).await?;
        pool.counters.cleaned_bytes.fetch_add(written, Ordering::Relaxed);
        if !planted(Bug::PublishMovesEarly) {
            self.publish_moves(&moves).await?;
        }
        Ok(())
    }

    /// Tells the block table where blocks are now, and gives back where they were.
    async fn publish_moves(&self, moves: &[(u64, BlockPlace, BlockPlace)]) -> Result<(), PoolError> {
        let pool = &self.pool;
        for &(number, from, to) in moves {
            let page = pool.pages.change(block_page(number)).await?;
            if !planted(Bug::ForgetMoves) {
                page.set(block_word(number) + 2, to.location.0);
            }
            pool.segments.release(from.location, self.generation + 1, &pool.readers)?;
        }
        Ok(())
    }

    /// The stored bytes of a block, if they are what they must be. Damaged ones are moved as they are: their
    /// checksum goes with them, so that they stay unreadable and nothing else is lost.
    async fn intact(&self, number: u64, place: BlockPlace, stored: Slice) -> Option<Slice> {
        if place.info.algorithm() == BlockInfo::STORED && crc32c(&stored).0 != place.info.crc() {
            self.pool.counters.medium_errors.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(number, "the cleaner moves a damaged block");
        }
        Some(stored)
    }

    /// Keeps the segment table on few enough segments for the root to name them all, by writing it anew.
    pub(crate) async fn gather_table(&mut self) -> Result<(), PoolError> {
        let pool = self.pool.clone();
        if !self.gathers_table {
            return Ok(());
        }
        for index in 0..u64::from(pool.segments.count()).div_ceil(SEGMENTS_PER_PAGE as u64) {
            pool.pages.change(PageId::new(Space::Segments, index)).await?;
        }
        Ok(())
    }

    async fn clean_metadata(&mut self, id: SegmentId, segment: &Segment) -> Result<(), PoolError> {
        let pool = self.pool.clone();
        // Its pages come away with the next checkpoint: until then there is nothing more to do about it.
        self.cleaned_metadata.insert(id.0);
        let Some(rows) = self.rows_of(id, segment).await else { return Ok(()) };
        for (_, row) in rows {
            for packed in &row.contents[..row.count.get() as usize] {
                let Some(page) = PageId::unpack(packed.get()) else { continue };
                let location = Location(pool.pages.entry(page).await?.location.get());
                if !location.is_none() && location.segment() == id {
                    pool.pages.change(page).await?;
                }
            }
        }
        pool.counters.cleaned_meta_segments.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
