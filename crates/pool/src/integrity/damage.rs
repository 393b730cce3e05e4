//! What was found damaged, for the layers above to tell people: which bytes of which volumes cannot be read, and why.

use crate::{
    error::PoolError,
    fork::layer::Layer,
    format::ThinEntry,
    host::read::covered,
    lifecycle::slice::Slice,
    maps::{
        blocks::{BlockPlace, LOST},
        tree,
    },
};
use quoin_base::{ByteRange, VolumeId, crc32c};
use quoin_world::Mutex;
use std::collections::VecDeque;

/// The most that is kept for somebody to take, and to know again.
const MOST_FOUND: usize = 1024;

/// A range of a volume that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The volume.
    pub volume: VolumeId,
    /// Bytes of it, whole pool blocks.
    pub range: ByteRange,
    /// What was found.
    pub reason: String,
}

/// What was found and not taken yet.
#[derive(Default)]
pub(crate) struct DamageLog {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    found: VecDeque<Damage>,
    /// What was told already: hosts try again.
    told: VecDeque<(VolumeId, ByteRange)>,
}

impl DamageLog {
    pub(crate) fn note(&self, damage: Damage) {
        let mut inner = self.inner.lock();
        let (volume, range) = (damage.volume, damage.range);
        let holds = |told: &ByteRange| told.offset <= range.offset && range.end() <= told.end();
        if inner.told.iter().any(|(of, told)| *of == volume && holds(told)) {
            return;
        }
        inner.told.push_back((volume, range));
        if inner.told.len() > MOST_FOUND {
            inner.told.pop_front();
        }
        if inner.found.len() < MOST_FOUND {
            inner.found.push_back(damage);
        }
    }

    fn take(&self) -> Vec<Damage> {
        self.inner.lock().found.drain(..).collect()
    }

    fn forget(&self, volume: VolumeId, offset: u64) {
        let holds = |told: &ByteRange| told.offset <= offset && offset < told.end();
        self.inner.lock().told.retain(|(of, told)| *of != volume || !holds(told));
    }
}

impl Slice {
    /// What was found since this was last asked, by reads, by destage and by scrubs.
    pub(crate) fn take_damage(&self) -> Vec<Damage> {
        self.damage.take()
    }

    /// Notes that a block cannot be read.
    pub(crate) fn damaged(&self, volume: VolumeId, block: u64, reason: &str) {
        let range = ByteRange::new(block * self.buffer.block_bytes, self.buffer.block_bytes);
        self.damage.note(Damage { volume, range, reason: reason.to_owned() });
    }

    /// Notes that a block cannot be read, and says so.
    pub(crate) fn medium(&self, layer: &Layer, block: u64, reason: String) -> PoolError {
        let (volume, offset) = (layer.volume.id, block * self.buffer.block_bytes);
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
    pub(crate) fn unreachable(&self, layer: &Layer, block: u64, error: PoolError) -> PoolError {
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
            match self.is_damaged(volume, block.offset / self.buffer.block_bytes).await {
                Ok(true) => match bad.last_mut().filter(|last| last.end() == block.offset) {
                    Some(last) => last.len += block.len,
                    None => bad.push(block),
                },
                Ok(false) => self.damage.forget(volume, block.offset),
                Err(PoolError::NoSuchVolume(_)) => return Ok(Vec::new()),
                Err(error) => return Err(error),
            }
        }
        Ok(bad)
    }

    async fn is_damaged(&self, volume: VolumeId, block: u64) -> Result<bool, PoolError> {
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
                Ok(Some(place)) if place.info.algorithm() == LOST => return Ok(true),
                Ok(Some(place)) => place,
                Err(PoolError::Corrupt { .. }) => return Ok(true),
                Err(error) => return Err(error),
            };
            let read = self.io.read(place.location).await;
            if read.is_ok_and(|bytes| crc32c(&bytes).0 == place.info.crc()) {
                return Ok(false);
            }
            if self.place_of(&layer, block).await.is_ok_and(|now| now == Some(place)) {
                return Ok(true);
            }
        }
    }

    /// Where a block lies; `None` if it is unmapped, or freed meanwhile.
    async fn place_of(&self, layer: &Layer, block: u64) -> Result<Option<BlockPlace>, PoolError> {
        let Some(leaf) = self.leaf(layer, block).await? else { return Ok(None) };
        match ThinEntry(leaf.get(tree::slot(block, 0))).block() {
            Some(number) => self.block(number).await,
            None => Ok(None),
        }
    }
}
