//! Which parts of a volume are mapped, as hosts and tools ask.
//!
//! A block counts as unmapped when nothing of it is in the write buffer or the maps but zeroes; all its
//! sectors read as zeroes then. Blocks in the buffer are decided there if they can be, the others by the thin
//! map afterwards: what was acknowledged before the question is in one of the two when it is looked at. Zeroes
//! that are not hardened are waited for, since what was said to be unmapped must not hold data after a crash.

use crate::{
    buffer::Content,
    error::PoolError,
    fork::layer::Layer,
    format::{REGION_BYTES, TREE_FAN_OUT, ThinEntry},
    host::read::covered,
    journal::Batch,
    lifecycle::slice::Slice,
    maps::tree,
};
use quoin_base::{ByteRange, Extent, VolumeId};
use std::{borrow::Cow, sync::Arc};

/// Leaves looked at in one call: with 8 KiB blocks they map 16 GiB.
const MAX_LEAVES: usize = 4096;
/// Leaves after which other tasks of the thread have a turn.
const LEAVES_A_TURN: usize = 64;

/// What the buffer says of a block.
enum Buffered {
    Mapped,
    Unmapped,
    /// It has no say, or for a part of the block only: the map decides.
    Ask,
}

impl Slice {
    /// Which parts of a range, a multiple of 512 at both ends, are mapped: at most `limit` extents, the first
    /// from the range's beginning on, each next one behind its predecessor and of the other kind. A call looks
    /// at no more than 16 GiB; the extents then end before the range does.
    pub(crate) async fn allocation(
        &self,
        volume: VolumeId,
        range: ByteRange,
        limit: usize,
    ) -> Result<Vec<Extent>, PoolError> {
        self.check_range(range)?;
        let mut extents = Vec::new();
        for (n, piece) in range.split(TREE_FAN_OUT * self.buffer.block_bytes).take(MAX_LEAVES).enumerate() {
            if n > 0 && n % LEAVES_A_TURN == 0 {
                self.world().yield_now().await;
                self.store.health().check()?;
            }
            loop {
                let layer = self.confirmed_layer(volume).await?;
                let found = self.leaf_allocation(&layer, piece).await;
                if !layer.is_gone() {
                    found?.into_iter().for_each(|extent| extent.push(&mut extents));
                    break;
                }
            }
            if extents.len() > limit {
                break;
            }
        }
        extents.truncate(limit);
        Ok(extents)
    }

    /// What is mapped of a range that one leaf maps.
    async fn leaf_allocation(&self, layer: &Layer, range: ByteRange) -> Result<Vec<Extent>, PoolError> {
        let _guard = self.enter_readers();
        let mut blocks = Vec::new();
        for region in range.split(REGION_BYTES) {
            loop {
                match self.buffered_allocation(layer, region) {
                    Ok(found) => {
                        blocks.extend(found);
                        break;
                    }
                    Err(open) => self.log.journal.hardened(&open).await?,
                }
            }
        }
        // Of what cannot be told, hosts are not to think that it reads as zeroes.
        let (leaf, is_damaged) = match self.leaf(layer, range.first_block(self.buffer.block_bytes)).await {
            Ok(leaf) => (leaf, false),
            Err(PoolError::Corrupt { .. }) => (None, true),
            Err(error) => return Err(error),
        };
        let mut extents = Vec::new();
        for (piece, buffered) in range.split(self.buffer.block_bytes).zip(blocks) {
            let mapped = match buffered {
                Buffered::Mapped => true,
                Buffered::Unmapped => false,
                Buffered::Ask if is_damaged => true,
                Buffered::Ask => leaf.as_ref().is_some_and(|leaf| {
                    let slot = tree::slot(piece.first_block(self.buffer.block_bytes), 0);
                    ThinEntry(leaf.get(slot)).block().is_some()
                }),
            };
            Extent { range: piece, mapped }.push(&mut extents);
        }
        Ok(extents)
    }

    /// What the buffer says of each block of a range within one region; or the batch to wait for.
    fn buffered_allocation(&self, layer: &Layer, range: ByteRange) -> Result<Vec<Buffered>, Arc<Batch>> {
        let block_bytes = self.buffer.block_bytes;
        let shard = self.buffer.shard(layer.block(range.first_block(block_bytes)));
        let of_block = |piece: ByteRange| {
            let fragments = if shard.is_empty() {
                Cow::Borrowed(&[][..])
            } else {
                shard.visible(layer, piece.first_block(block_bytes))
            };
            if fragments.iter().any(|e| !matches!(e.content, Content::Zero)) {
                return Ok(Buffered::Mapped);
            }
            if let Some(open) = fragments.iter().find(|e| !e.batch.is_hardened()) {
                return Err(open.batch.clone());
            }
            let sectors = self.buffer.sectors_per_block();
            Ok(if covered(&fragments, 0, sectors) == sectors { Buffered::Unmapped } else { Buffered::Ask })
        };
        range.split(block_bytes).map(of_block).collect()
    }
}
