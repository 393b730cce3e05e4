//! Writes that cover a block in part, while the rest of it cannot be read because more drives are away than the layout tolerates.
//!
//! Such a block could not be put together before drives are back. Until then it would stay in the buffer, and the journal could
//! not let go of anything that came after it. So the write is refused, as a read of the block is.

use crate::{error::PoolError, fork::layer::Layer, host::read::covered, lifecycle::slice::Slice};
use quoin_base::{ByteRange, SECTOR_BYTES};

impl Slice {
    /// Refuses to write over parts of blocks of which the rest cannot be read until drives are back.
    ///
    /// # Errors
    /// [`PoolError::Medium`] of the first such block.
    pub(crate) async fn check_rest(&self, layer: &Layer, range: ByteRange) -> Result<(), PoolError> {
        if !self.segments.table.may_be_unreadable() {
            return Ok(());
        }
        let block_bytes = self.buffer.block_bytes;
        // Only the first and the last block of a range may be covered in part.
        let parts = range.split(block_bytes);
        for part in parts.filter(|part| part.len < block_bytes) {
            let index = part.first_block(block_bytes);
            let from = (part.offset % block_bytes / SECTOR_BYTES) as u16;
            let to = from + (part.len / SECTOR_BYTES) as u16;
            let sectors = self.buffer.sectors_per_block();
            let is_buffered = {
                let shard = self.buffer.shard(layer.block(index));
                let buffered = shard.visible(layer, index);
                covered(&buffered, 0, from) + covered(&buffered, to, sectors) + (to - from) == sectors
            };
            // What is buffered beside it may lie there too; then it waits for the drives.
            if !is_buffered && self.is_away(layer, index).await? {
                self.read_base(layer, index).await?;
            }
        }
        Ok(())
    }

    /// Whether a block lies in a segment that cannot be read as drives are. Of layouts with parity, it may be read all the same.
    async fn is_away(&self, layer: &Layer, index: quoin_base::BlockIndex) -> Result<bool, PoolError> {
        let _guard = self.enter_readers();
        match self.place_of(layer, index).await {
            Ok(Some(place)) => Ok(self.segments.table.is_unreadable(place.location.segment())),
            // What is damaged is dealt with by destage.
            Ok(None) | Err(PoolError::Corrupt { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
