//! A volume's thin map, in RAM: where its tree begins, and what is counted about it.

use crate::{error::PoolError, meta::LayerImage, space::Claim};
use quoin_base::{ByteRange, VolumeId};
use quoin_world::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) struct Layer {
    pub volume: VolumeId,
    /// Stored in the births of what is destaged.
    pub generation: u32,
    /// Page number of the tree's root; 0: the tree is empty.
    pub root: AtomicU64,
    pub mapped_blocks: AtomicU64,
    /// Space promised to it; 0: none.
    pub reserved_bytes: AtomicU64,
    /// From here on nothing is written; not kept when the pool is closed.
    pub end: AtomicU64,
    pub deleted: AtomicBool,
    /// Bytes hosts wrote since the pool was opened.
    pub written_bytes: AtomicU64,
    /// Bytes hosts read since the pool was opened.
    pub read_bytes: AtomicU64,
}

impl Layer {
    pub(crate) fn new(volume: VolumeId) -> Self {
        Self::from_image(LayerImage {
            volume,
            generation: 1,
            root: None,
            mapped_blocks: 0,
            reserved_bytes: 0,
            deleting: false,
        })
    }

    pub(crate) fn from_image(image: LayerImage) -> Self {
        Self {
            volume: image.volume,
            generation: image.generation,
            root: AtomicU64::new(image.root.unwrap_or(0)),
            mapped_blocks: AtomicU64::new(image.mapped_blocks),
            reserved_bytes: AtomicU64::new(image.reserved_bytes),
            end: AtomicU64::new(u64::MAX),
            deleted: AtomicBool::new(image.deleting),
            written_bytes: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn image(&self) -> LayerImage {
        LayerImage {
            volume: self.volume,
            generation: self.generation,
            root: Some(self.root.load(Ordering::Acquire)).filter(|&r| r != 0),
            mapped_blocks: self.mapped_blocks.load(Ordering::Relaxed),
            reserved_bytes: self.reserved_bytes.load(Ordering::Relaxed),
            deleting: self.is_deleted(),
        }
    }

    /// Whose space a write to it may use.
    pub(crate) fn claim(&self) -> Claim {
        match self.reserved_bytes.load(Ordering::Acquire) {
            0 => Claim::Free,
            _ => Claim::Reserved,
        }
    }

    /// Refuses what reaches beyond the end. Called under the lock of the range's shard.
    pub(crate) fn check_end(&self, range: ByteRange) -> Result<(), PoolError> {
        let end = self.end.load(Ordering::Acquire);
        match range.end() > end {
            true => Err(PoolError::BeyondEnd { volume: self.volume, end }),
            false => Ok(()),
        }
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Acquire)
    }

    /// What came of looking at its map. The map of a deleted volume is taken apart under those who look, and its pages
    /// become other volumes': whatever was met there, the volume is gone.
    pub(crate) fn unless_deleted<T>(&self, outcome: Result<T, PoolError>) -> Result<T, PoolError> {
        if self.is_deleted() { Err(PoolError::NoSuchVolume(self.volume)) } else { outcome }
    }
}
