//! How volumes are reduced.

use crate::lifecycle::pool::Pool;
use quoin_base::{Compression, VolumeId};

impl Pool {
    /// How what is written to a volume is compressed; `None` if there is none of this id.
    pub fn compression_of(&self, volume: VolumeId) -> Option<Compression> {
        let slice = self.slice_of(volume).ok()?;
        let layers = slice.forks.read();
        layers.volumes.get(&volume).map(|leaf| leaf.volume.compression())
    }
}
