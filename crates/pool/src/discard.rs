//! Unmapping a long range: in a time that depends on what is mapped there, not on the range's length.
//!
//! What neither the buffer nor the map holds reads as zeroes already, through any crash, and needs no record. The buffer
//! is looked at first: what leaves it while one looks is in the map by then, and what comes in meanwhile came after.
//! Zeroes of somebody else that are not hardened yet may vanish, and what they displaced come back: they are recorded
//! again.

use crate::{
    error::PoolError,
    format::{TREE_FAN_OUT, TREE_LEVELS, ThinEntry},
    journal::Batch,
    layer::Layer,
    meta::Page,
    pool::Pool,
    tree::{MAX_BLOCKS, missing_node, node, slot},
};
use quoin_base::{ByteRange, VolumeId};
use std::sync::Arc;

/// Leaves after which what was recorded is waited for, and other tasks of the thread have a turn.
const LEAVES_A_TURN: usize = 64;

impl Pool {
    /// Unmaps what is mapped or buffered of a range, hardened on return.
    pub(crate) async fn unmap_mapped(&self, volume: VolumeId, range: ByteRange) -> Result<(), PoolError> {
        let block_bytes = self.buffer.block_bytes;
        let (first, end) = (range.offset / block_bytes, range.end().div_ceil(block_bytes));
        let held = self.buffer.blocks_to_unmap(&*self.confirmed_layer(volume).await?, first..end);
        let mut batches = Vec::new();
        self.append_unmaps(volume, range, &held, &mut batches).await?;
        let (mut at, mut leaves) = (first, 0);
        while let Some((start, leaf)) = self.leaf_of(volume, at).await? {
            if start >= end {
                break;
            }
            let mapped: Vec<u64> = (start.max(first)..(start + TREE_FAN_OUT).min(end))
                .filter(|&block| ThinEntry(leaf.get(slot(block, 0))).block().is_some())
                // Once is enough, and twice would undo what was written in between by who saw it unmapped.
                .filter(|block| held.binary_search(block).is_err())
                .collect();
            self.append_unmaps(volume, range, &mapped, &mut batches).await?;
            at = start + TREE_FAN_OUT;
            leaves += 1;
            if leaves % LEAVES_A_TURN == 0 {
                self.harden_all(&mut batches).await?;
                self.world.yield_now().await;
            }
        }
        self.harden_all(&mut batches).await
    }

    /// Appends records for these blocks, ascending, as far as they lie in the range.
    async fn append_unmaps(
        &self,
        volume: VolumeId,
        range: ByteRange,
        blocks: &[u64],
        batches: &mut Vec<Arc<Batch>>,
    ) -> Result<(), PoolError> {
        let block_bytes = self.buffer.block_bytes;
        for run in blocks.chunk_by(|a, b| a + 1 == *b) {
            let from = (run[0] * block_bytes).max(range.offset);
            let to = ((run[run.len() - 1] + 1) * block_bytes).min(range.end());
            self.append_unmap_range(volume, ByteRange::new(from, to - from), batches).await?;
        }
        Ok(())
    }

    /// Waits until all is hardened.
    pub(crate) async fn harden_all(&self, batches: &mut Vec<Arc<Batch>>) -> Result<(), PoolError> {
        for batch in batches.drain(..) {
            self.journal.hardened(&batch).await?;
        }
        Ok(())
    }

    /// The first leaf of a volume that maps `from` or a block behind it, and its first block.
    pub(crate) async fn leaf_of(
        &self,
        volume: VolumeId,
        from: u64,
    ) -> Result<Option<(u64, Arc<Page>)>, PoolError> {
        loop {
            let layer = self.confirmed_layer(volume).await?;
            let found = self.leaf_from(&layer, from).await;
            if !layer.is_gone() {
                return found;
            }
        }
    }

    async fn leaf_from(&self, layer: &Layer, from: u64) -> Result<Option<(u64, Arc<Page>)>, PoolError> {
        let _guard = self.readers.enter();
        let (mut at, mut missing) = (from, 0);
        'down: while at < MAX_BLOCKS {
            let mut entry = layer.map_root();
            for level in (0..TREE_LEVELS).rev() {
                // A missing node is missing for all that it would map.
                let span = TREE_FAN_OUT.pow(level + 1);
                let Some(number) = entry.block() else {
                    at = (at / span + 1) * span;
                    continue 'down;
                };
                let Some(page) = self.pages.get(node(number)).await? else {
                    // Copied and given back since its number was met; then it is another one now.
                    if number == std::mem::replace(&mut missing, number) || layer.is_gone() {
                        return Err(missing_node(layer, number));
                    }
                    continue 'down;
                };
                if level == 0 {
                    return Ok(Some((at / span * span, page)));
                }
                let own = slot(at, level);
                let Some(next) = (own..TREE_FAN_OUT as usize).find(|&slot| page.get(slot) != 0) else {
                    at = (at / span + 1) * span;
                    continue 'down;
                };
                if next > own {
                    at = at / span * span + next as u64 * TREE_FAN_OUT.pow(level);
                }
                entry = ThinEntry(page.get(next));
            }
        }
        Ok(None)
    }
}
