//! Range copies: blocks of one volume become blocks of another without their data being read or written.
//!
//! What is copied from is a fork that is made for the purpose and deleted afterwards: it does not change, so that a
//! record need only say which of its blocks a range is now. In the buffer such a range is a fragment that leads there;
//! destage gives the target's map an entry of its own for the same block, and the block one reference more. Every
//! reference is owned by one layer, as a block that was written is. The last one that goes takes the block with it.
//!
//! A record needs the fork's map for as long as it may be replayed. So the fork is settled before the first record:
//! its map is in a checkpoint; and it is deleted only when the journal's tail has passed the last.

use crate::{
    buffer::{BlockKey, Content, Fragment},
    bugs::{Bug, planted},
    commit::committer::Committer,
    error::PoolError,
    fork::layer::Layer,
    format::{CopySource, REGION_BYTES, RecordKind, TREE_FAN_OUT, ThinEntry},
    host::{
        below::Below,
        discard::Reached,
        write::{Reach, Refusal, record},
    },
    journal::{Batch, Entry},
    lifecycle::slice::Slice,
    maps::{
        blocks::{BlockPlace, block_page, entry_in},
        tree::slot,
    },
    meta::Page,
};
use quoin_base::{BlockIndex, BlockNumber, ByteRange, SECTOR_BYTES, VolumeId};
use quoin_world::Slice as Bytes;
use std::{sync::Arc, time::Duration};

/// How long to wait before looking again whether what is open has settled.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// How long a step of the committer may take at least.
const NEXT_STEP: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Leaves of the source that are copied before the records are waited for.
const LEAVES_A_STEP: usize = 16;

impl Slice {
    /// Waits until a volume that was just forked from another can be copied from: its map is its own, and durable.
    pub(crate) async fn settle_fork(&self, volume: VolumeId) -> Result<(), PoolError> {
        let layer = self.confirmed_layer(volume).await?;
        while layer.is_pending() {
            let awaits_destage = self.awaits_destage(&layer);
            if awaits_destage {
                self.drain().await?;
            } else {
                self.store.health().check()?;
                self.requests.nudge();
            }
            if layer.is_gone() {
                return Err(PoolError::NoSuchVolume(volume));
            }
            if layer.is_pending() {
                self.world().sleep(if awaits_destage { LOOK_AGAIN } else { NEXT_STEP }).await;
            }
        }
        self.checkpoint().await
    }

    /// Whether a pending layer waits for anything buffered of those it comes from. If not, it gets its map at the next step of
    /// the committer, and what is buffered of other volumes can wait.
    fn awaits_destage(&self, layer: &Layer) -> bool {
        let below = std::iter::successors(layer.below(), |below| below.below());
        !self.buffer.held_of(&below.map(|below| below.id).collect()).is_empty()
    }

    /// Waits until nothing that was copied so far needs the volume it was copied from: from then on that may be deleted. What
    /// is buffered is left to destage at its own pace for as long as `patience` says.
    pub(crate) async fn settle_copies(&self, patience: Duration) -> Result<(), PoolError> {
        if planted(Bug::DeleteCopiedEarly) {
            return Ok(());
        }
        let last = self.log.journal.peek_sequence();
        let began = self.world().now();
        while self.log.durable_tail() < last && self.world().now().since(began) < patience {
            self.store.health().check()?;
            self.world().sleep(LONGEST_PAUSE).await;
        }
        let _waiting = self.forks.copy_settles();
        let mut pause = LOOK_AGAIN;
        while self.log.durable_tail() < last {
            self.drain().await?;
            if self.log.durable_tail() >= last {
                break;
            }
            // A drive may fail to read what is to be destaged, and recover.
            self.world().sleep(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
        Ok(())
    }

    /// Gives a range of `target` what `source` holds from byte `from` on, as far as it gets in one step: what 16 leaves
    /// map at most, 64 MiB, or a hole. Hardened on return; returns how many bytes of the range are done. `source` is a volume
    /// that was forked for the purpose, is settled, and that nobody writes to. Whole blocks are shared where the two
    /// ranges lie alike within blocks; everything else is copied as data.
    pub(crate) async fn copy_some(
        &self,
        source: VolumeId,
        from: u64,
        target: VolumeId,
        range: ByteRange,
    ) -> Result<u64, PoolError> {
        self.check_range(range)?;
        self.check_range(ByteRange::new(from, range.len))?;
        if range.len == 0 {
            return Ok(0);
        }
        let map = self.confirmed_layer(source).await?;
        if map.is_pending() {
            return Err(PoolError::Refused(format!("volume {source} has not settled since it was forked")));
        }
        let block_bytes = self.buffer.block_bytes;
        let is_alike = from % block_bytes == range.offset % block_bytes;
        let to_block = (block_bytes - from % block_bytes) % block_bytes;
        let done = match () {
            () if !is_alike => self.copy_data(source, from, target, range, REGION_BYTES).await?,
            () if to_block > 0 => self.copy_data(source, from, target, range, to_block).await?,
            () if range.len < block_bytes => self.copy_data(source, from, target, range, range.len).await?,
            () => {
                let blocks = ByteRange::new(range.offset, range.len / block_bytes * block_bytes);
                self.copy_blocks(&map, BlockIndex(from / block_bytes), target, blocks).await?
            }
        };
        self.counters.host.copied_bytes.add(done);
        Ok(done)
    }

    async fn copy_data(
        &self,
        source: VolumeId,
        from: u64,
        target: VolumeId,
        range: ByteRange,
        most: u64,
    ) -> Result<u64, PoolError> {
        let len = range.len.min(most);
        let read = self.read(source, ByteRange::new(from, len)).await;
        let data = read.map_err(|error| unreadable(source, from, error))?;
        self.write(target, range.offset, data).await?;
        Ok(len)
    }

    /// Shares what the next leaves of a map lead to, of the blocks from `first` on; or unmaps what there is a hole for.
    async fn copy_blocks(
        &self,
        map: &Arc<Layer>,
        first: BlockIndex,
        target: VolumeId,
        range: ByteRange,
    ) -> Result<u64, PoolError> {
        let block_bytes = self.buffer.block_bytes;
        let end = first.plus(range.len / block_bytes);
        let mut batches = Vec::new();
        let mut at = first;
        for _ in 0..LEAVES_A_STEP {
            let done = (at.0 - first.0) * block_bytes;
            let rest = ByteRange::new(range.offset + done, range.len - done);
            match self.copy_leaf(map, at, target, rest, &mut batches).await {
                Ok(copied) => at = at.plus(copied / block_bytes),
                Err(error) => {
                    // Also what went before a refusal: nothing is left behind that is neither done nor undone.
                    self.harden_all(&mut batches).await?;
                    return Err(error);
                }
            }
            if at >= end {
                break;
            }
        }
        self.harden_all(&mut batches).await?;
        Ok((at.0 - first.0) * block_bytes)
    }

    /// Shares what the leaf of a block leads to, from there on; or unmaps up to the next leaf.
    async fn copy_leaf(
        &self,
        map: &Arc<Layer>,
        first: BlockIndex,
        target: VolumeId,
        range: ByteRange,
        batches: &mut Vec<Arc<Batch>>,
    ) -> Result<u64, PoolError> {
        let block_bytes = self.buffer.block_bytes;
        let end = first.plus(range.len / block_bytes);
        let source = map.volume.id;
        let found = self.leaf_of(source, first).await;
        let found = found.map_err(|error| unreadable(source, first.offset_bytes(block_bytes), error))?;
        // Up to the next leaf there is a hole, for which the target is unmapped.
        let (start, leaf) = match found {
            Some(Reached::Damaged { first: start, error, .. }) if start <= first => {
                return Err(unreadable(source, first.offset_bytes(block_bytes), error));
            }
            Some(Reached::Leaf(start, leaf)) if start <= first => (start, leaf),
            hole => {
                let hole_end = hole.map_or(end, |found| found.first().min(end));
                let hole = ByteRange::new(range.offset, (hole_end.0 - first.0) * block_bytes);
                self.unmap(target, hole).await?;
                return Ok(hole.len);
            }
        };
        let stop = start.plus(TREE_FAN_OUT).min(end);
        let range = ByteRange::new(range.offset, (stop.0 - first.0) * block_bytes);
        let mut layer = self.confirmed_layer(target).await?;
        let parts = copied_parts(map, &leaf, first, range, block_bytes);
        let mut parts = parts.as_slice();
        while let [part, rest @ ..] = parts {
            let attempt = |layer: &Arc<Layer>, part: &Part, batch: &Arc<Batch>, below: Option<&Below>| {
                match part.source {
                    Some(source) => self.try_copy(layer, part.range, source, batch, below),
                    None => self.try_unmap(layer, part.range, batch, Reach::Volume),
                }
            };
            match self.append_parts(&mut layer, parts, |part| part.range, attempt, batches).await {
                Ok(appended) => parts = &parts[appended..],
                Err(PoolError::NoSpace) if part.source.is_some() && part.range.len > block_bytes => {
                    self.append_halves(&mut layer, *part, batches).await?;
                    parts = rest;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(range.len)
    }

    /// Appends records of a copy for which there is no room as a whole: halves are tried, down to single blocks.
    async fn append_halves(
        &self,
        layer: &mut Arc<Layer>,
        part: Part,
        batches: &mut Vec<Arc<Batch>>,
    ) -> Result<(), PoolError> {
        let block_bytes = self.buffer.block_bytes;
        let mut todo = part.halves(block_bytes).to_vec();
        while let Some(part) = todo.pop() {
            let attempt = |layer: &Arc<Layer>, part: &Part, batch: &Arc<Batch>, below: Option<&Below>| {
                let Some(source) = part.source else { unreachable!("a half of a copy is a copy") };
                self.try_copy(layer, part.range, source, batch, below)
            };
            match self.append_parts(layer, &[part], |part| part.range, attempt, batches).await {
                Ok(_) => {}
                Err(PoolError::NoSpace) if part.range.len > block_bytes => {
                    todo.extend(part.halves(block_bytes));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Copies whole blocks of one region; returns the record, which is in this batch.
    fn try_copy(
        &self,
        layer: &Arc<Layer>,
        range: ByteRange,
        source: CopySource,
        batch: &Arc<Batch>,
        below: Option<&Below>,
    ) -> Result<Entry, Refusal> {
        let block_bytes = self.buffer.block_bytes;
        let (first, blocks) = (layer.block(range.first_block(block_bytes)), range.len / block_bytes);
        let mut shard = self.buffer.shard(first);
        let new = self.buffer.uncharged(&shard, first, blocks);
        let replaced = {
            let keys = (0..blocks as u32).map(|at| (&*shard, first.plus(at)));
            self.charge_new(layer, range, new, keys, below)?
        };
        let sequence = self.log.journal.take_sequence();
        self.buffer.insert_blocks(&mut shard, sequence, batch, (first, blocks), Some(source));
        self.buffer.waive(&mut shard, &replaced);
        let mut header = record(layer, range, RecordKind::Copy);
        header.sequence = sequence.0.into();
        header.source = source.pack().into();
        Ok(Entry { header, crcs: Vec::new(), payload: Vec::new(), row: None })
    }

    /// A fragment's data, of a block that a map leads to; `None` if it leads nowhere.
    pub(crate) async fn shared_data(
        &self,
        layer: &Layer,
        key: BlockKey,
        fragment: &Fragment,
        source: CopySource,
    ) -> Result<Option<Bytes>, PoolError> {
        let map = self.forks.layer(source.layer);
        let Some(map) = map else {
            // Whoever meets this saw the buffer before it was destaged, and looks again.
            let (volume, offset) = (layer.volume.id, key.index.offset_bytes(self.buffer.block_bytes));
            let reason = format!("layer {}, which it was copied from, is gone", source.layer);
            return Err(PoolError::Medium { volume, offset, reason, unread: false });
        };
        let base = self.read_mapped(&map, source.index, layer, key.index).await?;
        let bytes = |sectors: u16| usize::from(sectors) * SECTOR_BYTES as usize;
        Ok(base.map(|base| base.data.slice(bytes(fragment.start)..bytes(fragment.end()))))
    }

    /// The block that these fragments of one block say to share, with the page of its entry. `None` if there is anything
    /// else to the block, or something is wrong with it: then its data is looked at.
    pub(crate) async fn shared_block(
        &self,
        fragments: &[Fragment],
    ) -> Result<Option<(BlockNumber, BlockPlace, Arc<Page>)>, PoolError> {
        let source = match fragments {
            [Fragment { sectors, content: Content::Shared(source), .. }]
                if *sectors == self.buffer.sectors_per_block() =>
            {
                *source
            }
            _ => return Ok(None),
        };
        let map = self.forks.layer(source.layer);
        let Some(map) = map else { return Ok(None) };
        let found = async {
            let Some(leaf) = self.leaf(&map, source.index).await? else { return Ok(None) };
            let entry = ThinEntry(leaf.get(slot(source.index, 0)));
            let Some(number) = entry.block() else { return Ok(None) };
            let Some(page) = self.metadata.pages.get(block_page(number)).await? else { return Ok(None) };
            let place = entry_in(&page, number).filter(BlockPlace::may_be_shared);
            Ok(place.map(|place| (number, place, page)))
        };
        match found.await {
            Err(error) if self.store.is_damage(&error).await => Ok(None),
            found => found,
        }
    }
}

/// What becomes of a part of one region: its blocks are shared, or unmapped.
#[derive(Clone, Copy)]
struct Part {
    range: ByteRange,
    source: Option<CopySource>,
}

impl Part {
    /// The same in two parts, the second first.
    fn halves(self, block_bytes: u64) -> [Self; 2] {
        let Self { range: ByteRange { offset, len }, source } = self;
        let first = len / block_bytes / 2 * block_bytes;
        let second = source.map(|source| source.plus(first / block_bytes));
        [
            Self { range: ByteRange::new(offset + first, len - first), source: second },
            Self { range: ByteRange::new(offset, first), source },
        ]
    }
}

/// What becomes of a range that gets what a leaf leads to, from one block on. A record lies within a region, and is of
/// mapped blocks only or of none.
fn copied_parts(
    map: &Layer,
    leaf: &Page,
    first: BlockIndex,
    range: ByteRange,
    block_bytes: u64,
) -> Vec<Part> {
    let is_mapped = |index: BlockIndex| ThinEntry(leaf.get(slot(index, 0))).block().is_some();
    let mut parts = Vec::new();
    for piece in range.split(REGION_BYTES) {
        let end = first.plus((piece.end() - range.offset) / block_bytes);
        let mut at = first.plus((piece.offset - range.offset) / block_bytes);
        while at < end {
            let next = at.until(end).find(|index| is_mapped(*index) != is_mapped(at)).unwrap_or(end);
            let offset = range.offset + (at.0 - first.0) * block_bytes;
            let source = is_mapped(at).then_some(CopySource { layer: map.id, index: at });
            parts.push(Part { range: ByteRange::new(offset, (next.0 - at.0) * block_bytes), source });
            at = next;
        }
    }
    parts
}

/// Metadata that is damaged below what is copied from is told of that, not of the target.
pub(crate) fn unreadable(source: VolumeId, offset: u64, error: PoolError) -> PoolError {
    match error {
        PoolError::Corrupt { .. } => {
            PoolError::Medium { volume: source, offset, reason: error.to_string(), unread: false }
        }
        error => error,
    }
}

impl Committer {
    /// Lets a layer own a block that another owns, too.
    pub(crate) async fn share_block(&mut self, layer: &Layer, number: BlockNumber) -> Result<(), PoolError> {
        if !planted(Bug::ForgetToCount) {
            self.add_reference(number).await?;
        }
        layer.lend(1);
        Ok(())
    }
}
