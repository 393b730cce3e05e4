//! How volumes are reduced.

use crate::{
    error::PoolError,
    lifecycle::{pool::Pool, reducing::Reduction},
};
use quoin_base::{Compression, VolumeId};

impl Pool {
    /// How what is written to a volume is compressed; `None` if there is none of this id.
    pub fn compression_of(&self, volume: VolumeId) -> Option<Compression> {
        let slice = self.slice_of(volume).ok()?;
        let layers = slice.forks.read();
        layers.volumes.get(&volume).map(|leaf| leaf.volume.compression())
    }

    /// Whether what is written to a volume is deduplicated; `None` if there is none of this id.
    pub fn is_deduplicated(&self, volume: VolumeId) -> Option<bool> {
        let slice = self.slice_of(volume).ok()?;
        let layers = slice.forks.read();
        layers.volumes.get(&volume).map(|leaf| leaf.volume.is_deduplicated())
    }

    /// Begins to reduce what a volume has as what is written to it is reduced, in the background. What snapshots of it share with
    /// it becomes shorter for all of them.
    ///
    /// # Errors
    /// [`PoolError::NoSuchVolume`]; [`PoolError::Refused`] if the volume is neither compressed nor deduplicated.
    pub fn reduce(&self, volume: VolumeId) -> Result<(), PoolError> {
        let slice = self.slice_of(volume)?;
        let total = {
            let layers = slice.forks.read();
            let leaf = layers.volumes.get(&volume).ok_or(PoolError::NoSuchVolume(volume))?;
            if !leaf.volume.is_reduced() {
                let why = format!("volume {volume} is neither compressed nor deduplicated");
                return Err(PoolError::Refused(why));
            }
            leaf.held_with_parents()
        };
        slice.reducing().begin(volume, total);
        slice.requests.nudge();
        Ok(())
    }

    /// How far the reduction of a volume is, or how far it came; `None` if none was begun since the pool was opened.
    pub fn reduction(&self, volume: VolumeId) -> Option<Reduction> {
        self.slice_of(volume).ok()?.reducing().of(volume)
    }

    /// Ends the reduction of a volume where it is. What was done stays. True if it was under way.
    pub fn stop_reducing(&self, volume: VolumeId) -> bool {
        self.slice_of(volume).is_ok_and(|slice| slice.reducing().end(volume))
    }
}
