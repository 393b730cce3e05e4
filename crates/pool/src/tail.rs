//! The tail of a volume: fencing it off from writers, looking whether anything is in it, and emptying it, in a time
//! that depends on what is there and not on its length.

use crate::{
    buffer::BlockKey,
    error::PoolError,
    format::{TREE_FAN_OUT, TREE_LEVELS, ThinEntry},
    layer::Layer,
    meta::Page,
    pool::Pool,
    tree::{MAX_BLOCKS, node, slot},
};
use quoin_base::{ByteRange, VolumeId};
use quoin_world::atomic::Ordering;
use std::sync::Arc;

impl Pool {
    /// Gives a volume an end: when this returns, no write that reaches beyond `end` bytes is under way, and none is
    /// let in. Not kept when the pool is closed. Unmapping beyond it is allowed.
    pub fn end_volume(&self, volume: VolumeId, end: u64) -> Result<(), PoolError> {
        let layer = self.layer(volume)?;
        layer.end.store(end, Ordering::Release);
        self.pass_shards();
        Ok(())
    }

    /// Whether anything but zeroes may be read from byte `from` on. `from` is a multiple of 512. Exact to a block,
    /// while nobody writes there.
    pub async fn is_mapped_from(&self, volume: VolumeId, from: u64) -> Result<bool, PoolError> {
        let layer = self.layer(volume)?;
        let block_bytes = self.buffer.block_bytes;
        // The buffer first: what leaves it while one looks is in the map by then.
        let whole = from.next_multiple_of(block_bytes);
        if !self.buffer.blocks_with_data(volume, whole / block_bytes, u64::MAX).is_empty() {
            return Ok(true);
        }
        let mut at = whole / block_bytes;
        while let Some((first, leaf)) = self.next_leaf(&layer, at).await? {
            let mapped = (at.max(first)..first + TREE_FAN_OUT)
                .filter(|&block| ThinEntry(leaf.get(slot(block, 0))).block().is_some())
                .any(|index| !self.buffer.is_zeroed(BlockKey { volume, index }));
            if mapped {
                return Ok(true);
            }
            at = first + TREE_FAN_OUT;
        }
        if whole > from {
            let rest = self.read(volume, ByteRange::new(from, whole - from)).await?;
            return Ok(rest.iter().any(|slice| slice.iter().any(|byte| *byte != 0)));
        }
        Ok(false)
    }

    /// Makes all from byte `from` on read as zeroes and gives its space back, hardened on return. `from` is a multiple
    /// of 512. Nobody may write there meanwhile: see [`Pool::end_volume`].
    pub async fn unmap_from(&self, volume: VolumeId, from: u64) -> Result<(), PoolError> {
        let layer = self.layer(volume)?;
        let block_bytes = self.buffer.block_bytes;
        let whole = from.next_multiple_of(block_bytes);
        if whole > from {
            self.unmap(volume, ByteRange::new(from, whole - from)).await?;
        }
        for run in runs(self.buffer.blocks_with_data(volume, whole / block_bytes, u64::MAX)) {
            self.unmap(volume, ByteRange::new(run.offset * block_bytes, run.len * block_bytes)).await?;
        }
        let mut at = whole / block_bytes;
        while let Some((first, leaf)) = self.next_leaf(&layer, at).await? {
            let mapped = (at.max(first)..first + TREE_FAN_OUT)
                .filter(|&block| ThinEntry(leaf.get(slot(block, 0))).block().is_some());
            for run in runs(mapped.collect()) {
                self.unmap(volume, ByteRange::new(run.offset * block_bytes, run.len * block_bytes)).await?;
            }
            at = first + TREE_FAN_OUT;
        }
        Ok(())
    }

    /// The first leaf that maps `from` or a block behind it, and its first block.
    async fn next_leaf(&self, layer: &Layer, from: u64) -> Result<Option<(u64, Arc<Page>)>, PoolError> {
        let guard = self.readers.enter();
        let mut at = from;
        while at < MAX_BLOCKS {
            let mut number = layer.root.load(Ordering::Acquire);
            for level in (0..TREE_LEVELS).rev() {
                let page = match number {
                    0 => None,
                    number => self.pages.get(node(number)).await?,
                };
                // A missing node is missing for all it would map.
                let span = TREE_FAN_OUT.pow(level + 1);
                let Some(page) = page else {
                    at = (at / span + 1) * span;
                    break;
                };
                if level == 0 {
                    drop(guard);
                    return Ok(Some((at / span * span, page)));
                }
                let own = slot(at, level);
                let Some(next) = (own..TREE_FAN_OUT as usize).find(|&slot| page.get(slot) != 0) else {
                    at = (at / span + 1) * span;
                    break;
                };
                if next > own {
                    at = at / span * span + next as u64 * TREE_FAN_OUT.pow(level);
                }
                number = page.get(next);
            }
        }
        Ok(None)
    }
}

/// Ascending blocks as runs of neighbours: first block and count.
fn runs(blocks: Vec<u64>) -> Vec<ByteRange> {
    let mut runs: Vec<ByteRange> = Vec::new();
    for block in blocks {
        match runs.last_mut() {
            Some(run) if run.end() == block => run.len += 1,
            _ => runs.push(ByteRange::new(block, 1)),
        }
    }
    runs
}
