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
    buffer::{BlockKey, Content, Fragment, HELD_BYTES, Piece},
    bugs::{Bug, planted},
    commit::committer::Committer,
    error::PoolError,
    fork::layer::Layer,
    format::{CopySource, REGION_BYTES, RecordKind, TREE_FAN_OUT, ThinEntry},
    host::{
        below::Below,
        discard::Reached,
        stalls::Waits,
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
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Slice {
    /// Waits until a volume that was just forked from another can be copied from: its map is its own, and durable.
    pub(crate) async fn settle_fork(&self, volume: VolumeId) -> Result<(), PoolError> {
        let layer = self.confirmed_layer(volume).await?;
        while layer.is_pending() {
            self.drain().await?;
            if layer.is_gone() {
                return Err(PoolError::NoSuchVolume(volume));
            }
            if layer.is_pending() {
                self.world().sleep(LOOK_AGAIN).await;
            }
        }
        self.checkpoint().await
    }

    /// Waits until nothing that was copied so far needs the volume it was copied from: from then on that may be deleted.
    pub(crate) async fn settle_copies(&self) -> Result<(), PoolError> {
        if planted(Bug::DeleteCopiedEarly) {
            return Ok(());
        }
        let last = self.log.journal.peek_sequence();
        let _waiting = self.forks.copy_settles();
        let mut pause = LOOK_AGAIN;
        loop {
            self.drain().await?;
            if self.log.durable_tail() >= last {
                return Ok(());
            }
            // A drive may fail to read what is to be destaged, and recover.
            self.world().sleep(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// Gives a range of `target` what `source` holds from byte `from` on, as far as it gets in one step: at most 4 MiB of
    /// what is mapped, or a hole. Hardened on return; returns how many bytes of the range are done. `source` is a volume
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

    /// Shares what the next leaf of a map leads to, of the blocks from `first` on; or unmaps what there is a hole for.
    async fn copy_blocks(
        &self,
        map: &Arc<Layer>,
        first: BlockIndex,
        target: VolumeId,
        range: ByteRange,
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
        let part = ByteRange::new(range.offset, (stop.0 - first.0) * block_bytes);
        let mut layer = self.confirmed_layer(target).await?;
        let mut batches = Vec::new();
        // A record lies within a region, and is of mapped blocks only or of none.
        for piece in part.split(REGION_BYTES) {
            let begin = first.plus((piece.offset - range.offset) / block_bytes);
            let blocks: Vec<_> = begin.until(begin.plus(piece.len / block_bytes)).collect();
            let is_mapped = |index: BlockIndex| ThinEntry(leaf.get(slot(index, 0))).block().is_some();
            for run in blocks.chunk_by(|a, b| is_mapped(*a) == is_mapped(*b)) {
                let offset = range.offset + (run[0].0 - first.0) * block_bytes;
                let run_range = ByteRange::new(offset, run.len() as u64 * block_bytes);
                if is_mapped(run[0]) {
                    let source = CopySource { layer: map.id, index: run[0] };
                    self.append_copies(&mut layer, run_range, source, &mut batches).await?;
                } else {
                    self.append_unmap_range(target, run_range, Reach::Volume, &mut batches).await?;
                }
            }
        }
        self.harden_all(&mut batches).await?;
        Ok(part.len)
    }

    /// Appends a record of a copy of whole blocks of one region; or, where space is short, several of fewer.
    async fn append_copies(
        &self,
        layer: &mut Arc<Layer>,
        range: ByteRange,
        source: CopySource,
        batches: &mut Vec<Arc<Batch>>,
    ) -> Result<(), PoolError> {
        let block_bytes = self.buffer.block_bytes;
        let mut todo = vec![range];
        while let Some(part) = todo.pop() {
            let at = source.plus((part.offset - range.offset) / block_bytes);
            match self.append_copy(layer, part, at).await {
                Ok(batch) => batches.push(batch),
                // Half of it may fit. Halves are tried, down to single blocks.
                Err(PoolError::NoSpace) if part.len > block_bytes => {
                    let first = part.len / block_bytes / 2 * block_bytes;
                    todo.push(ByteRange::new(part.offset + first, part.len - first));
                    todo.push(ByteRange::new(part.offset, first));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Appends the record of a copy of whole blocks of one region.
    async fn append_copy(
        &self,
        layer: &mut Arc<Layer>,
        range: ByteRange,
        source: CopySource,
    ) -> Result<Arc<Batch>, PoolError> {
        let ram_bytes = range.len / self.buffer.block_bytes * HELD_BYTES;
        self.append_admitted(layer, range, ram_bytes, &mut Waits::default(), |layer, below| {
            self.try_append_copy(layer, range, source, below)
        })
        .await
    }

    fn try_append_copy(
        &self,
        layer: &Arc<Layer>,
        range: ByteRange,
        source: CopySource,
        below: Option<&Below>,
    ) -> Result<Arc<Batch>, Refusal> {
        let lane = self.log.journal.lane(self.world());
        lane.append(0, 0, |batch, _| {
            let pieces: Vec<Piece> = self.shared_pieces(layer, range, source).collect();
            let mut shard = self.buffer.shard(pieces[0].key);
            let replaced = self.charge(&shard, layer, range, pieces.iter().map(|piece| piece.key), below)?;
            let sequence = self.log.journal.take_sequence();
            self.buffer.insert(&mut shard, sequence, batch, pieces);
            self.buffer.waive(&mut shard, &replaced);
            let mut header = record(layer, range, RecordKind::Copy);
            header.sequence = sequence.0.into();
            header.source = source.pack().into();
            Ok(Entry { header, crcs: Vec::new(), payload: Vec::new(), row: None })
        })
    }

    /// The blocks of a range, whole ones, each with where it comes from.
    pub(crate) fn shared_pieces(
        &self,
        layer: &Layer,
        range: ByteRange,
        source: CopySource,
    ) -> impl Iterator<Item = Piece> {
        let pieces = self.zero_pieces(layer, range);
        (0..).zip(pieces).map(move |(at, piece)| Piece { content: Content::Shared(source.plus(at)), ..piece })
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
