//! Unmapping a long range: in a time that depends on what is mapped there, not on the range's length.
//!
//! What neither the buffer nor the map holds reads as zeroes already, through any crash, and needs no record. The buffer
//! is looked at first: what leaves it while one looks is in the map by then, and what comes in meanwhile came after.
//! Zeroes of somebody else that are not hardened yet may vanish, and what they displaced come back: they are recorded
//! again.

use crate::{
    error::PoolError,
    fork::layer::Layer,
    format::{MAX_BLOCKS, REGION_BYTES, TREE_FAN_OUT, TREE_LEVELS, ThinEntry},
    host::{parts::part_in_region, write::Reach},
    journal::Batch,
    lifecycle::slice::Slice,
    maps::tree::{missing_node, slot},
    meta::Page,
};
use quoin_base::{BlockIndex, ByteRange, VolumeId};
use std::{ops::Range, sync::Arc};

/// Leaves after which records are appended for what was found, and other tasks of the thread have a turn.
const LEAVES_A_TURN: usize = 64;
/// Leaves after which what was recorded is waited for.
const LEAVES_A_WAIT: usize = 64 * LEAVES_A_TURN;
/// Regions that are unmapped at a time where the map is damaged and does not tell what is mapped.
const REGIONS_A_TURN: usize = 4 * LEAVES_A_TURN;

/// What a walk to the next leaf comes to.
pub(crate) enum Reached {
    /// A leaf, and the first block that it maps.
    Leaf(BlockIndex, Arc<Page>),
    /// A node that cannot be read, and the blocks that it may map.
    Damaged { first: BlockIndex, blocks: u64, error: PoolError },
}

impl Reached {
    /// The first block that is mapped there.
    pub(crate) fn first(&self) -> BlockIndex {
        match self {
            Reached::Leaf(first, _) | Reached::Damaged { first, .. } => *first,
        }
    }
}

impl Slice {
    /// Unmaps what is mapped or buffered of a range, hardened on return.
    pub(crate) async fn unmap_mapped(
        &self,
        volume: VolumeId,
        range: ByteRange,
        reach: Reach,
    ) -> Result<(), PoolError> {
        let mut batches = Vec::new();
        let appended = self.append_mapped(volume, range, reach, &mut batches).await;
        // Also what went before a refusal: nothing is left behind that is neither done nor undone.
        self.harden_all(&mut batches).await?;
        appended
    }

    async fn append_mapped(
        &self,
        volume: VolumeId,
        range: ByteRange,
        reach: Reach,
        batches: &mut Vec<Arc<Batch>>,
    ) -> Result<(), PoolError> {
        let block_bytes = self.buffer.block_bytes;
        let (first, end) = (range.first_block(block_bytes), range.end_block(block_bytes));
        let held = self.buffer.regions_to_unmap(&*self.confirmed_layer(volume).await?, first..end);
        let part_at =
            |block: &BlockIndex| part_in_region(range, block.offset_bytes(block_bytes).max(range.offset));
        let mut parts: Vec<_> = held.iter().map(part_at).collect();
        self.append_unmap_parts(volume, &std::mem::take(&mut parts), reach, batches).await?;
        // Once is enough, and twice would undo what was written in between by who saw it unmapped.
        let is_done = |block: &BlockIndex| held.binary_search(block).is_ok();
        let (mut at, mut leaves) = (first, 0);
        while let Some(found) = self.leaf_of(volume, at).await? {
            if found.first() >= end {
                break;
            }
            let (start, leaf) = match found {
                Reached::Leaf(start, leaf) => (start, leaf),
                Reached::Damaged { first: start, blocks, .. } => {
                    at = start.plus(blocks);
                    // Nobody knows what is there: all of it is unmapped, unless that would never end.
                    if blocks == TREE_FAN_OUT || end.0 < MAX_BLOCKS {
                        let lost = regions_of(start.max(first)..at.min(end), block_bytes);
                        let lost = lost.filter(|block| !is_done(block)).map(|block| part_at(&block));
                        self.append_many(volume, lost, reach, batches).await?;
                    }
                    continue;
                }
            };
            at = start.plus(TREE_FAN_OUT);
            let (from, to) = (start.max(first), at.min(end));
            let is_mapped = |block: BlockIndex| ThinEntry(leaf.get(slot(block, 0))).block().is_some();
            // Where one block of a region is mapped, all of it is unmapped.
            let any_mapped =
                |block: &BlockIndex| block.until(next_region(*block, block_bytes).min(to)).any(is_mapped);
            let mapped =
                regions_of(from..to, block_bytes).filter(|block| !is_done(block) && any_mapped(block));
            parts.extend(mapped.map(|block| part_at(&block)));
            leaves += 1;
            if leaves % LEAVES_A_TURN == 0 {
                self.append_unmap_parts(volume, &std::mem::take(&mut parts), reach, batches).await?;
                self.world().yield_now().await;
            }
            if leaves % LEAVES_A_WAIT == 0 {
                self.harden_all(batches).await?;
            }
        }
        self.append_unmap_parts(volume, &parts, reach, batches).await
    }

    /// Unmaps parts, so many at a time, and hardens them.
    async fn append_many(
        &self,
        volume: VolumeId,
        mut parts: impl Iterator<Item = ByteRange>,
        reach: Reach,
        batches: &mut Vec<Arc<Batch>>,
    ) -> Result<(), PoolError> {
        loop {
            let some: Vec<_> = parts.by_ref().take(REGIONS_A_TURN).collect();
            if some.is_empty() {
                return Ok(());
            }
            self.append_unmap_parts(volume, &some, reach, batches).await?;
            self.harden_all(batches).await?;
            self.world().yield_now().await;
        }
    }

    /// Waits until all is hardened.
    pub(crate) async fn harden_all(&self, batches: &mut Vec<Arc<Batch>>) -> Result<(), PoolError> {
        for batch in batches.drain(..) {
            self.log.journal.hardened(&batch).await?;
        }
        Ok(())
    }

    /// The first leaf of a volume that maps `from` or a block behind it; or a damaged node that may lead to one.
    pub(crate) async fn leaf_of(
        &self,
        volume: VolumeId,
        from: BlockIndex,
    ) -> Result<Option<Reached>, PoolError> {
        loop {
            let layer = self.confirmed_layer(volume).await?;
            let found = self.leaf_from(&layer, from).await;
            if !layer.is_gone() {
                return found;
            }
        }
    }

    async fn leaf_from(&self, layer: &Layer, from: BlockIndex) -> Result<Option<Reached>, PoolError> {
        let _guard = self.enter_readers();
        let (mut at, mut missing) = (from, None);
        'down: while at.0 < MAX_BLOCKS {
            let mut entry = layer.map_root();
            for level in (0..TREE_LEVELS).rev() {
                // A missing node is missing for all that it would map.
                let span = TREE_FAN_OUT.pow(level + 1);
                let Some(number) = entry.node() else {
                    at = BlockIndex((at.0 / span + 1) * span);
                    continue 'down;
                };
                let error = match self.tree_page(number).await {
                    Ok(page) => page.ok_or_else(|| missing_node(layer, number)),
                    Err(error @ PoolError::Corrupt { .. }) => Err(error),
                    Err(error) => return Err(error),
                };
                let page = match error {
                    Ok(page) => page,
                    // Copied and given back since its number was met; then it is another one now.
                    Err(_) if missing.replace(number) != Some(number) && !layer.is_gone() => {
                        continue 'down;
                    }
                    Err(error) => {
                        let first = BlockIndex(at.0 / span * span);
                        return Ok(Some(Reached::Damaged { first, blocks: span, error }));
                    }
                };
                if level == 0 {
                    return Ok(Some(Reached::Leaf(BlockIndex(at.0 / span * span), page)));
                }
                let own = slot(at, level);
                let Some(next) = (own..TREE_FAN_OUT as usize).find(|&slot| page.get(slot) != 0) else {
                    at = BlockIndex((at.0 / span + 1) * span);
                    continue 'down;
                };
                if next > own {
                    at = BlockIndex(at.0 / span * span + next as u64 * TREE_FAN_OUT.pow(level));
                }
                entry = ThinEntry(page.get(next));
            }
        }
        Ok(None)
    }
}

/// The first block of the next region.
fn next_region(block: BlockIndex, block_bytes: u64) -> BlockIndex {
    let each = REGION_BYTES / block_bytes;
    BlockIndex((block.0 / each + 1) * each)
}

/// The first blocks of each region of a range.
fn regions_of(blocks: Range<BlockIndex>, block_bytes: u64) -> impl Iterator<Item = BlockIndex> {
    let Range { start, end } = blocks;
    let next = move |block: &BlockIndex| Some(next_region(*block, block_bytes)).filter(|next| *next < end);
    std::iter::successors(Some(start).filter(|start| *start < end), next)
}
