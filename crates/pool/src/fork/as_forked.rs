//! Whether a volume is still what a fork of it is.

use crate::{
    error::PoolError,
    fork::layer::Layer,
    format::TREE_FAN_OUT,
    lifecycle::{pool::Pool, slice::Slice},
    maps::tree::slot,
    meta::Page,
};
use quoin_base::{BlockIndex, ByteRange, VolumeId};
use quoin_world::Compiled;
use std::sync::Arc;

impl Slice {
    /// Whether a range of a volume holds what it held when `fork`, which has settled, was forked from it. It may say that it does
    /// not though it does.
    pub(crate) async fn is_as_forked(
        &self,
        volume: VolumeId,
        fork: VolumeId,
        range: ByteRange,
    ) -> Result<bool, PoolError> {
        let (own, forked) = (self.confirmed_layer(volume).await?, self.confirmed_layer(fork).await?);
        let parent_of = |layer: &Layer| layer.parent().map(|parent| parent.id);
        if parent_of(&own).is_none() || parent_of(&own) != parent_of(&forked) {
            return Ok(false);
        }
        let block_bytes = self.buffer.block_bytes;
        let blocks = range.first_block(block_bytes)..range.end_block(block_bytes);
        // NOTE: the buffer first: what is destaged meanwhile is in the map by then.
        if self.buffer.holds_any(&own, blocks.clone()) {
            return Ok(false);
        }
        let _guard = self.enter_readers();
        let mut at = blocks.start;
        while at < blocks.end {
            let next = BlockIndex((at.0 / TREE_FAN_OUT + 1) * TREE_FAN_OUT).min(blocks.end);
            let (own, forked) = (self.leaf(&own, at).await?, self.leaf(&forked, at).await?);
            let entry =
                |leaf: &Option<Arc<Page>>, block| leaf.as_ref().map_or(0, |leaf| leaf.get(slot(block, 0)));
            if at.until(next).any(|block| entry(&own, block) != entry(&forked, block)) {
                return Ok(false);
            }
            at = next;
        }
        Ok(true)
    }
}

impl Pool {
    /// Whether a range of a volume holds what it held when `fork`, which has settled, was forked from it. It may say that it does
    /// not though it does.
    ///
    /// # Errors
    /// [`PoolError::NoSuchVolume`] of either; errors of reading the maps.
    pub fn is_as_forked(
        &self,
        volume: VolumeId,
        fork: VolumeId,
        range: ByteRange,
    ) -> Compiled<'_, Result<bool, PoolError>> {
        Box::pin(async move { self.slice_of(volume)?.is_as_forked(volume, fork, range).await })
    }
}
