//! What the cleaner takes out of segments: their rows as the heads tell, what of them is live, and its bytes.
//!
//! Only the committer moves and frees what lies in segments, and it is the one that gathers here: what was found live
//! stays so, where it is, until the committer does something else.

use crate::{
    commit::committer::Committer,
    error::PoolError,
    format::{BlockInfo, CopySource, Location, PAGE_BYTES, RowContent, RowHeader},
    maps::blocks::{BlockPlace, block_page},
    meta::Segment,
    segment::{
        io::{RowAt, SegmentIo},
        runs::{CLEANER_GAP_BYTES, LONGEST_BYTES, runs},
    },
};
use futures_util::{StreamExt, future::join_all, stream};
use hashbrown::HashSet;
use quoin_base::{BlockNumber, ByteRange, LayerId, Layout, PageNumber, SegmentId};
use quoin_world::Slice as Bytes;
use rustc_hash::FxBuildHasher;
use std::collections::{BTreeMap, BTreeSet};

/// Pages of the block table fetched at the same time.
const PARALLEL_PAGES: usize = 32;
/// Runs of blocks read at the same time. Each is at most 1 MiB long, and most are short.
const PARALLEL_RUNS: usize = 16;
/// Heads of rows read at the same time, of one segment.
const PARALLEL_HEADS: u64 = 4;

/// A row, as its head has it.
pub(crate) struct WrittenRow {
    /// Within the segment's data.
    range: ByteRange,
    pub(crate) contents: Vec<RowContent>,
}

/// A block that is to be moved.
pub(crate) struct LiveBlock {
    pub number: BlockNumber,
    pub place: BlockPlace,
    /// What it was destaged for, to be told to the next row it lies in.
    pub address: CopySource,
    /// The tag of the segment that it is to lie in: the one that it lies in has the same.
    pub layout: Option<Layout>,
    /// As stored; `None` if it cannot be read.
    pub stored: Option<Bytes>,
    /// What the block table is to say of it where it is moved to.
    pub becomes: BlockInfo,
}

impl LiveBlock {
    /// One that was not read yet.
    pub(crate) fn new(
        number: BlockNumber,
        place: BlockPlace,
        address: CopySource,
        layout: Option<Layout>,
    ) -> Self {
        Self { number, place, address, layout, stored: None, becomes: place.info }
    }
}

/// Blocks that maps lead to, each once: several entries may lead to the same.
#[derive(Default)]
pub(super) struct Gathered {
    pub blocks: Vec<LiveBlock>,
    numbers: HashSet<BlockNumber, FxBuildHasher>,
}

impl Gathered {
    pub(super) fn has(&self, number: BlockNumber) -> bool {
        self.numbers.contains(&number)
    }

    pub(super) fn push(&mut self, block: LiveBlock) {
        let is_new = self.numbers.insert(block.number);
        assert!(is_new, "block {} is moved once", block.number);
        self.blocks.push(block);
    }
}

/// How much of what is live a step takes.
pub(crate) struct Allowance {
    pub bytes: u64,
    /// Of the block table: each becomes due.
    pub pages: usize,
}

/// The rows of a segment, in order. `None` if it cannot be walked.
///
/// Where a row begins is known only from the length of the one before. Behind some full rows as many more are expected, and
/// their heads are read at the same time; what is read and not met on the way counts for nothing, whatever it looks like.
pub(crate) async fn rows_of(
    io: &SegmentIo,
    full_row_bytes: u64,
    id: SegmentId,
    segment: &Segment,
) -> Option<Vec<WrittenRow>> {
    let row_at = |offset| RowAt { segment: id, generation: segment.generation, offset };
    let (mut rows, mut at) = (Vec::new(), 0);
    let mut ahead: BTreeMap<u64, Option<Box<RowHeader>>> = BTreeMap::new();
    // Full rows met one after the other.
    let mut full_rows = 0;
    while at < segment.written_bytes {
        if !ahead.contains_key(&at) {
            let offsets = (0..full_rows.clamp(1, PARALLEL_HEADS)).map(|i| at + i * full_row_bytes);
            let heads = offsets.filter(|at| *at < segment.written_bytes).map(async |at| {
                let head = io.read_sound(id, ByteRange::new(at, PAGE_BYTES as u64)).await;
                (at, head.ok().and_then(|head| row_at(at).head_in(&head)))
            });
            ahead.extend(join_all(heads).await);
        }
        let mut row = ahead.remove(&at).flatten();
        if row.is_none() {
            row = io.row_head_otherwise(row_at(at)).await;
        }
        let Some(row) = row else {
            tracing::warn!(segment = id.0, at, "a row has no readable head: the segment is not cleaned");
            return None;
        };
        let range = ByteRange::new(at, u64::from(row.len_bytes.get()));
        rows.push(WrittenRow { range, contents: row.contents[..row.count.get() as usize].to_vec() });
        full_rows = if range.len >= full_row_bytes { full_rows + 1 } else { 0 };
        at = range.end();
    }
    Some(rows)
}

impl Committer {
    /// What is live of rows of a segment and `wanted`, as far as `allowance` goes, from which it is taken. `pages`: of the block
    /// table, those that are going to change already. Also how many rows it is all of.
    pub(crate) async fn live_blocks(
        &mut self,
        (id, segment): (SegmentId, &Segment),
        rows: &[WrittenRow],
        wanted: impl Fn(&BlockPlace) -> bool,
        allowance: &mut Allowance,
        pages: &mut BTreeSet<PageNumber>,
    ) -> Result<(Vec<LiveBlock>, usize), PoolError> {
        let slice = self.slice.clone();
        self.fetch_block_pages(rows).await;
        let mut live = Vec::new();
        for (at_row, row) in rows.iter().enumerate() {
            for content in &row.contents {
                let number = content.block_number();
                let page = block_page(number).index;
                if !self.merge_to_clean(page, allowance, pages).await? {
                    return Ok((live, at_row));
                }
                let place = match slice.block(number).await {
                    Ok(Some(place)) => place,
                    Ok(None) => continue,
                    Err(error) if slice.store.is_damage(&error).await => {
                        self.leave_alone(id, segment);
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                let at = place.location.offset_bytes();
                let is_there =
                    place.location.segment() == id && (row.range.offset..row.range.end()).contains(&at);
                if !is_there || !wanted(&place) {
                    continue;
                }
                let len = place.location.len_bytes();
                if allowance.bytes < len || allowance.pages == 0 && !pages.contains(&page) {
                    return Ok((live, at_row));
                }
                allowance.bytes -= len;
                allowance.pages -= usize::from(pages.insert(page));
                let address = CopySource::unpack(content.address.get());
                live.push(LiveBlock::new(number, place, address, segment.layout));
            }
        }
        Ok((live, rows.len()))
    }

    /// Frees what was dropped of a page of the table, for it does not count as live then. False if the allowance does not
    /// go so far.
    async fn merge_to_clean(
        &mut self,
        page: PageNumber,
        allowance: &mut Allowance,
        pages: &mut BTreeSet<PageNumber>,
    ) -> Result<bool, PoolError> {
        // What cannot be read is not freed.
        if self.blocks.dropped.count == 0
            || self.slice.metadata.pages.dropped_of(page).await.unwrap_or(0) == 0
        {
            return Ok(true);
        }
        if allowance.pages == 0 && !pages.contains(&page) {
            return Ok(false);
        }
        if self.merge_dropped(page).await? {
            allowance.pages -= usize::from(pages.insert(page));
        }
        Ok(true)
    }

    /// Fetches the pages of the block table that the rows name blocks of, many at a time.
    async fn fetch_block_pages(&self, rows: &[WrittenRow]) {
        let pages = &self.slice.metadata.pages;
        let named =
            rows.iter().flat_map(|row| &row.contents).map(|content| block_page(content.block_number()));
        let absent: BTreeSet<_> = named.filter(|page| pages.word(*page, 0).is_none()).collect();
        // What cannot be read is dealt with when it is needed.
        let fetches: Vec<_> =
            absent.into_iter().map(|page| async move { drop(pages.get(page).await) }).collect();
        stream::iter(fetches).buffer_unordered(PARALLEL_PAGES).collect::<()>().await;
    }

    /// Reads the blocks: neighbours in one operation, several operations at a time, and none for what the read cache has.
    pub(crate) async fn read_live(&self, blocks: &mut [LiveBlock]) {
        let slice = &self.slice;
        blocks.sort_unstable_by_key(|block| block.place.location.0);
        let mut wanted = Vec::new();
        for (i, block) in blocks.iter_mut().enumerate() {
            // It is stored again: what RAM made of it is not passed on. The cache has nothing as it is stored packed.
            let is_plain = block.place.info.algorithm() == BlockInfo::PLAIN;
            let cached = if is_plain { slice.front.cache.peek(block.number) } else { None };
            // NOTE: what the cache has wrongly must not take the place of what the drive has.
            let cached = cached.filter(|content| content.crc == block.place.info.crc());
            block.stored = cached.map(|content| content.data);
            if block.stored.is_none() {
                wanted.push((i, block.number, block.place));
            }
        }
        let reads: Vec<_> = runs(&wanted, CLEANER_GAP_BYTES, LONGEST_BYTES, |(_, _, place)| place.location)
            .into_iter()
            .map(|run| self.read_live_run(&wanted[run]))
            .collect();
        let mut reads = stream::iter(reads).buffer_unordered(PARALLEL_RUNS);
        while let Some(read) = reads.next().await {
            for (i, stored) in read {
                blocks[i].stored = stored;
            }
        }
    }

    /// Reads blocks that lie one behind the other, one by one if that fails.
    async fn read_live_run(&self, run: &[(usize, BlockNumber, BlockPlace)]) -> Vec<(usize, Option<Bytes>)> {
        let io = &self.slice.segments.io;
        let locations = run.iter().map(|(_, _, place)| place.location);
        let (first, last) = (run[0].2.location, run[run.len() - 1].2.location);
        let range = ByteRange::from(first.offset_bytes()..last.offset_bytes() + last.len_bytes());
        let whole = io.read_sound(first.segment(), range).await.ok();
        let is_dense = locations.map(Location::len_bytes).sum::<u64>() == range.len;
        let mut read = Vec::with_capacity(run.len());
        for (i, number, place) in run {
            let stored = match &whole {
                Some(whole) => {
                    let at = (place.location.offset_bytes() - first.offset_bytes()) as usize;
                    let part = whole.slice(at..at + place.location.len_bytes() as usize);
                    // The gaps are not kept in RAM.
                    Some(if is_dense { part } else { Bytes::copy_of(&part) })
                }
                None if run.len() == 1 => None,
                None => io.read(place.location).await.ok(),
            };
            let is_intact = stored.as_ref().is_some_and(|stored| place.info.verifies(stored));
            let mended = if is_intact { None } else { self.mend_live(*number, *place).await };
            // A drive that is away may hold the right content: then the block stays where it is.
            let may_pass = is_intact || self.is_all_there(place.location.segment());
            let stored = mended.or_else(|| stored.filter(|_| may_pass));
            if let Some(stored) = &stored {
                self.note_damage(*number, *place, stored);
            }
            read.push((*i, stored));
        }
        read
    }

    /// The content of a block that could not be read as it should be, if it can be read in another way.
    async fn mend_live(&self, number: BlockNumber, place: BlockPlace) -> Option<Bytes> {
        let _guard = self.slice.enter_readers();
        let is_there = self.slice.block(number).await.ok().flatten() == Some(place);
        let mended = if is_there { self.slice.mend(place).await } else { None };
        mended.map(|mended| mended.content)
    }

    /// Whether all columns of a segment can be read, as far as is known.
    fn is_all_there(&self, id: SegmentId) -> bool {
        let io = &self.slice.segments.io;
        let set = io.segments.stripes(id);
        set.is_some_and(|set| io.store.lost_columns(&set).is_empty())
    }

    /// Notes when stored bytes are not what they must be. They are moved as they are: their checksum goes with them, so
    /// that they stay unreadable and nothing else is lost.
    fn note_damage(&self, number: BlockNumber, place: BlockPlace, stored: &Bytes) {
        if !place.info.verifies(stored) {
            self.slice.counters.damage.medium_errors.add(1);
            self.slice.fingerprints().distrust(number);
            tracing::warn!(number = number.0, "the cleaner moves a damaged block");
        }
    }

    /// Puts neighbours together: blocks of one volume in the order of their addresses, those of its former layers among
    /// them, for a volume reads through all of its layers.
    pub(crate) fn sort_by_address(&self, blocks: &mut [LiveBlock]) {
        let layers = self.slice.forks.read();
        let mut volumes: BTreeMap<LayerId, (u32, u32)> = BTreeMap::new();
        let mut volume_of = |layer: LayerId| {
            *volumes.entry(layer).or_insert_with(|| match layers.all.get(&layers.owner(layer)) {
                Some(owner) => (owner.volume.id.0, 0),
                // It is gone, and what is left of it belongs to others.
                None => (u32::MAX, layer.0),
            })
        };
        blocks
            .sort_by_cached_key(|block| (volume_of(block.address.layer), block.address.index, block.number));
    }
}
