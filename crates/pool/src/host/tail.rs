//! The tail of a volume: fencing it off from writers, looking whether anything is in it, and emptying it, in a time
//! that depends on what is there and not on its length.

use crate::{
    error::PoolError,
    format::{MAX_BLOCKS, TREE_FAN_OUT, ThinEntry},
    host::{discard::Reached, read::is_zero, write::Reach},
    lifecycle::slice::Slice,
    maps::tree::slot,
    meta::Page,
};
use quoin_base::{BlockIndex, ByteRange, VolumeId};
use quoin_world::atomic::Ordering;

impl Slice {
    /// Gives a volume an end: when this returns, no record of a write, unmap or copy that reaches beyond `end` bytes is
    /// appended any more, whenever the request began. Not kept when the pool is closed.
    pub(crate) fn end_volume(&self, volume: VolumeId, end: u64) -> Result<(), PoolError> {
        let layer = self.forks.of_volume(volume)?;
        layer.volume.end.store(end, Ordering::Release);
        self.pass_shards();
        Ok(())
    }

    /// Whether anything but zeroes may be read from byte `from` on. `from` is a multiple of 512. Exact to a block,
    /// while nobody writes there.
    pub(crate) async fn is_mapped_from(&self, volume: VolumeId, from: u64) -> Result<bool, PoolError> {
        let layer = self.confirmed_layer(volume).await?;
        let block_bytes = self.buffer.block_bytes;
        // The buffer first: what leaves it while one looks is in the map by then.
        let whole = from.next_multiple_of(block_bytes);
        let mut at = BlockIndex(whole / block_bytes);
        if !self.buffer.blocks_with_data(&layer, at..BlockIndex(u64::MAX)).is_empty() {
            return Ok(true);
        }
        while let Some(found) = self.leaf_of(volume, at).await? {
            let (first, leaf) = match found {
                Reached::Leaf(first, leaf) => (first, leaf),
                // What a damaged node leads to counts as mapped, unless all of it was unmapped since.
                Reached::Damaged { first, blocks, .. } => {
                    let layer = self.confirmed_layer(volume).await?;
                    let is_unmapped = blocks == TREE_FAN_OUT
                        && at
                            .max(first)
                            .until(first.plus(blocks))
                            .all(|block| self.buffer.is_zeroed(&layer, block));
                    if !is_unmapped {
                        return Ok(true);
                    }
                    at = first.plus(blocks);
                    continue;
                }
            };
            let mapped = |leaf: &Page, block| ThinEntry(leaf.get(slot(block, 0))).block().is_some();
            for block in at.max(first).until(first.plus(TREE_FAN_OUT)).filter(|&block| mapped(&leaf, block)) {
                if self.buffer.is_zeroed(&*self.confirmed_layer(volume).await?, block) {
                    continue;
                }
                // The leaf may be one that the map has left behind; or a part of the block is about to be zeroes.
                if !self
                    .reads_as_zeroes(volume, ByteRange::new(block.offset_bytes(block_bytes), block_bytes))
                    .await?
                {
                    return Ok(true);
                }
            }
            at = first.plus(TREE_FAN_OUT);
        }
        Ok(whole > from && !self.reads_as_zeroes(volume, ByteRange::from(from..whole)).await?)
    }

    async fn reads_as_zeroes(&self, volume: VolumeId, range: ByteRange) -> Result<bool, PoolError> {
        Ok(self.read(volume, range).await?.iter().all(|slice| is_zero(slice)))
    }

    /// Makes all from byte `from` on read as zeroes and gives its space back, hardened on return. `from` is a multiple
    /// of 512. Nobody may write there meanwhile: see [`Slice::end_volume`].
    pub(crate) async fn unmap_from(&self, volume: VolumeId, from: u64) -> Result<(), PoolError> {
        let end = MAX_BLOCKS * self.buffer.block_bytes;
        if from < end {
            self.unmap_mapped(volume, ByteRange::from(from..end), Reach::Tail).await?;
        }
        Ok(())
    }
}
