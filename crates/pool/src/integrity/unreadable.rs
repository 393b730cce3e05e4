//! What it means for volumes that something cannot be read.

use crate::{
    error::PoolError,
    fork::layer::Layer,
    format::ThinEntry,
    host::read::covered,
    integrity::damage::Damage,
    lifecycle::slice::Slice,
    maps::{blocks::BlockPlace, tree},
};
use quoin_base::{BlockIndex, ByteRange, VolumeId, crc32c};

impl Slice {
    /// What was found since this was last asked, by reads, by destage and by scrubs.
    pub(crate) fn take_damage(&self) -> Vec<Damage> {
        self.damage().take()
    }

    /// Notes that a block cannot be read.
    pub(crate) fn damaged(&self, volume: VolumeId, block: BlockIndex, reason: &str) {
        let range = ByteRange::new(block.offset_bytes(self.buffer.block_bytes), self.buffer.block_bytes);
        self.damage().note(Damage { volume, range, reason: reason.to_owned() });
    }

    /// Notes that a block cannot be read, and says so.
    pub(crate) fn medium(&self, layer: &Layer, block: BlockIndex, reason: String) -> PoolError {
        let (volume, offset) = (layer.volume.id, block.offset_bytes(self.buffer.block_bytes));
        if !layer.is_gone() {
            self.damaged(volume, block, &reason);
        }
        PoolError::Medium { volume, offset, reason, unread: false }
    }

    /// What a host is told of a read that failed. A drive that fails takes the pool offline, and the data may be sound.
    pub(crate) fn offline_or(&self, error: PoolError) -> PoolError {
        match error {
            PoolError::Medium { unread: true, .. } | PoolError::Drive(_) | PoolError::Stripe(_)
                if self.store.health().is_failed() =>
            {
                self.store.health().error()
            }
            error => error,
        }
    }

    /// What it means for a block that metadata which leads to it is damaged.
    pub(crate) fn unreachable(&self, layer: &Layer, block: BlockIndex, error: PoolError) -> PoolError {
        match error {
            error @ PoolError::Corrupt { .. } => self.medium(layer, block, error.to_string()),
            error => error,
        }
    }

    /// Those parts of a range, whole pool blocks, that still cannot be read from drives.
    pub(crate) async fn still_damaged(
        &self,
        volume: VolumeId,
        range: ByteRange,
    ) -> Result<Vec<ByteRange>, PoolError> {
        let mut bad: Vec<ByteRange> = Vec::new();
        for block in range.split(self.buffer.block_bytes) {
            match self.is_damaged(volume, block.first_block(self.buffer.block_bytes)).await {
                Ok(true) => match bad.last_mut().filter(|last| last.end() == block.offset) {
                    Some(last) => last.len += block.len,
                    None => bad.push(block),
                },
                Ok(false) => self.damage().forget(volume, block.offset),
                Err(PoolError::NoSuchVolume(_)) => return Ok(Vec::new()),
                Err(error) => return Err(error),
            }
        }
        Ok(bad)
    }

    async fn is_damaged(&self, volume: VolumeId, block: BlockIndex) -> Result<bool, PoolError> {
        let layer = self.confirmed_layer(volume).await?;
        let sectors = self.buffer.sectors_per_block();
        if covered(&self.buffer.shard(layer.block(block)).visible(&layer, block), 0, sectors) == sectors {
            return Ok(false);
        }
        let _guard = self.enter_readers();
        loop {
            let found = self.place_of(&layer, block).await;
            let place = match found {
                Ok(None) => return Ok(false),
                Ok(Some(place)) if place.info.is_lost() => return Ok(true),
                Ok(Some(place)) => place,
                Err(PoolError::Corrupt { .. }) => return Ok(true),
                Err(error) => return Err(error),
            };
            let read = self.segments.io.read_sound(place.location.segment(), place.location.range()).await;
            if read.is_ok_and(|bytes| crc32c(&bytes).0 == place.info.crc())
                || self.mend(place).await.is_some()
            {
                return Ok(false);
            }
            if self.place_of(&layer, block).await.is_ok_and(|now| now == Some(place)) {
                return Ok(true);
            }
        }
    }

    /// Where a block lies; `None` if it is unmapped, or freed meanwhile.
    pub(crate) async fn place_of(
        &self,
        layer: &Layer,
        block: BlockIndex,
    ) -> Result<Option<BlockPlace>, PoolError> {
        let Some(leaf) = self.leaf(layer, block).await? else { return Ok(None) };
        match ThinEntry(leaf.get(tree::slot(block, 0))).block() {
            Some(number) => self.block(number).await,
            None => Ok(None),
        }
    }
}
