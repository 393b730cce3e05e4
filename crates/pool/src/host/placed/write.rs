//! Writing what is placed.

use super::{
    MOST_NAMED_BYTES,
    queue::{Run, WholeBlock},
};
use crate::{
    buffer::{Content, HELD_BYTES, Piece},
    error::PoolError,
    fork::layer::Layer,
    format::{CopySource, RecordKind},
    host::{
        below::Below,
        read::is_zero,
        stalls::Waits,
        write::{Refusal, joined, record, take_front},
    },
    journal::{Batch, Entry},
    lifecycle::slice::Slice,
};
use quoin_base::{ByteRange, crc32c};
use quoin_world::{
    Slice as Bytes,
    atomic::{AtomicU64, Ordering},
};
use std::{collections::VecDeque, sync::Arc};

/// Shorter writes are placed only while others are under way: alone, one write to the journal takes less time than two.
const ALONE_FROM_BYTES: u64 = 256 << 10;

impl Slice {
    /// How much replay may find placed, as things are: more than twice as much is free beside what destage, cleaner and
    /// checkpoints need.
    pub(crate) fn most_named_bytes(&self) -> u64 {
        let kept = self.space.destage_slabs() + 1 + self.front.placer.queues.len() as u64;
        let spare = self.segments.table.usage().free_slabs.saturating_sub(kept);
        (spare / 3 * self.segments.table.slab_bytes()).min(MOST_NAMED_BYTES)
    }

    /// Counts a write of `len` bytes, if it is a large one, until it is done.
    pub(in crate::host) fn large_write(&self, len: u64) -> Option<UnderWay<'_>> {
        (len >= self.options().place_from).then(|| UnderWay::new(&self.front.placer.large_writes, 1))
    }

    /// Whether a write of `len` bytes is placed, of whole blocks.
    fn may_place(&self, layer: &Layer, len: u64) -> bool {
        if len < self.options().place_from || self.store.is_short_of_room() {
            return false;
        }
        // What is placed is not reduced.
        let volume = &layer.volume;
        if volume.is_deduplicated()
            || volume.is_reduced() && !self.front.placer.is_hasty.load(Ordering::Relaxed)
        {
            return false;
        }
        let is_alone = self.front.placer.large_writes.load(Ordering::Relaxed) <= 1;
        let being_placed = self.front.placer.being_placed.load(Ordering::Relaxed);
        !(is_alone && len < ALONE_FROM_BYTES.min(4 * self.options().place_from))
            && self.front.placer.named_bytes() + being_placed + len <= self.most_named_bytes()
    }

    /// A range of one region, with what may be placed of it apart: the whole blocks.
    pub(in crate::host) fn pieces_to_place(
        &self,
        range: ByteRange,
    ) -> impl Iterator<Item = ByteRange> + use<> {
        let block = self.buffer.block_bytes;
        let (from, to) = (range.offset.next_multiple_of(block), range.end() / block * block);
        let is_cut = to > from && to - from >= self.options().place_from && to - from < range.len;
        let (from, to) = if is_cut { (from, to) } else { (range.end(), range.end()) };
        let pieces = [(range.offset, from), (from, to), (to, range.end())];
        pieces.into_iter().filter(|(from, to)| to > from).map(|(from, to)| ByteRange::from(from..to))
    }

    /// Writes a range of one region: places it, or appends it to the journal. The batches that harden it go to `batches`.
    pub(in crate::host) async fn write_piece(
        &self,
        layer: &mut Arc<Layer>,
        range: ByteRange,
        slices: Vec<Bytes>,
        waits: &mut Waits,
        batches: &mut Vec<Arc<Batch>>,
    ) -> Result<(), PoolError> {
        if range.is_aligned(self.buffer.block_bytes)
            && self.may_place(layer, range.len)
            && let Some(blocks) = self.whole_blocks(layer, range, &slices)
            && self.write_placed(layer, range, blocks, waits, batches).await?
        {
            return Ok(());
        }
        let batch = self.append_write(layer, range, slices, waits).await?;
        if !batches.last().is_some_and(|last| Arc::ptr_eq(last, &batch)) {
            batches.push(batch);
        }
        Ok(())
    }

    /// The blocks of a range of whole ones. `None` if one is all zeroes: the journal takes the write, and destage unmaps
    /// that block, which then takes no space.
    fn whole_blocks(&self, layer: &Layer, range: ByteRange, slices: &[Bytes]) -> Option<Vec<WholeBlock>> {
        let mut rest: VecDeque<Bytes> = slices.iter().cloned().collect();
        let mut next = |piece: ByteRange| {
            let data = joined(take_front(&mut rest, piece.len as usize));
            if is_zero(&data) {
                return None;
            }
            let crc = crc32c(&data).0;
            let index = piece.first_block(self.buffer.block_bytes);
            Some(WholeBlock { data, crc, address: CopySource { layer: layer.id, index } })
        };
        range.split(self.buffer.block_bytes).map(&mut next).collect()
    }

    /// Writes whole blocks of one region by placing them. The records of where they are go to `batches`. False: there is
    /// no room for that now, and the journal takes them.
    async fn write_placed(
        &self,
        layer: &mut Arc<Layer>,
        range: ByteRange,
        blocks: Vec<WholeBlock>,
        waits: &mut Waits,
        batches: &mut Vec<Arc<Batch>>,
    ) -> Result<bool, PoolError> {
        let count = blocks.len();
        let _being_placed = UnderWay::new(&self.front.placer.being_placed, range.len);
        let Some(runs) = self.place(layer, blocks).await? else { return Ok(false) };
        let placed: usize = runs.iter().map(|run| run.blocks.len()).sum();
        assert_eq!(placed, count, "every block of a write has its place");
        let mut at = range.offset;
        for run in &runs {
            let range = ByteRange::new(at, run.blocks.len() as u64 * self.buffer.block_bytes);
            at = range.end();
            let append =
                |layer: &Arc<Layer>, below: Option<&Below>| self.try_append_placed(layer, range, run, below);
            // What it takes of the buffer; of the journal it takes less.
            let takes = HELD_BYTES * run.blocks.len() as u64;
            batches.push(self.append_admitted(layer, range, takes, waits, append).await?);
        }
        Ok(true)
    }

    fn try_append_placed(
        &self,
        layer: &Arc<Layer>,
        range: ByteRange,
        run: &Run,
        below: Option<&Below>,
    ) -> Result<Arc<Batch>, Refusal> {
        let first = run.blocks[0].location;
        self.log.journal.placed_lane(run.thread).append(0, 0, |batch, _| {
            let index = range.first_block(self.buffer.block_bytes);
            let keys = index.until(index.plus(run.blocks.len() as u64)).map(|index| layer.block(index));
            let mut shard = self.buffer.shard(layer.block(index));
            let replaced = self.charge(&shard, layer, range, keys.clone(), below)?;
            let sequence = self.log.journal.take_sequence();
            if self.front.placer.name(first.segment(), sequence, range.len) {
                self.requests.nudge();
            }
            let sectors = self.buffer.sectors_per_block();
            let pieces = keys.zip(&run.blocks).map(|(key, block)| Piece {
                key,
                start: 0,
                sectors,
                content: Content::Placed(block.clone()),
            });
            self.buffer.insert(&mut shard, sequence, batch, pieces);
            self.buffer.waive(&mut shard, &replaced);
            let mut header = record(layer, range, RecordKind::Placed);
            header.sequence = sequence.0.into();
            header.source = first.0.into();
            let crcs = run.blocks.iter().map(|block| block.crc).collect();
            Ok(Entry { header, crcs, payload: Vec::new(), row: Some(run.row.clone()) })
        })
    }
}

/// What counts while a write is under way.
pub(in crate::host) struct UnderWay<'a> {
    count: &'a AtomicU64,
    amount: u64,
}

impl<'a> UnderWay<'a> {
    fn new(count: &'a AtomicU64, amount: u64) -> Self {
        count.fetch_add(amount, Ordering::Relaxed);
        Self { count, amount }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(self.amount, Ordering::Relaxed);
    }
}
