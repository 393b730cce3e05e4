//! How far a slice is with the reduction of what volumes have, for those who ask.

use quoin_base::VolumeId;
use quoin_world::Mutex;
use std::collections::BTreeMap;

/// How far the reduction of what a volume has is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reduction {
    /// Blocks that were looked at.
    pub met_blocks: u64,
    /// About as many there are.
    pub total_blocks: u64,
    /// Blocks that became shorter.
    pub compressed_blocks: u64,
    /// Blocks that became references to others with the same content.
    pub deduplicated_blocks: u64,
    /// Space that came free by both, in bytes.
    pub saved_bytes: u64,
    /// It has met all that it can read.
    pub is_done: bool,
    /// Some of it could not be read, and stays as it is.
    pub is_incomplete: bool,
}

/// What is to be reduced, or was.
#[derive(Default)]
pub(crate) struct Reducing {
    volumes: Mutex<BTreeMap<VolumeId, Reduction>>,
}

impl Reducing {
    /// Begins with a volume, from its beginning, unless that is under way.
    pub(crate) fn begin(&self, volume: VolumeId, total_blocks: u64) {
        let mut volumes = self.volumes.lock();
        let under_way = volumes.get(&volume).is_some_and(|reduction| !reduction.is_done);
        if !under_way {
            volumes.insert(volume, Reduction { total_blocks, ..Reduction::default() });
        }
    }

    /// Forgets a volume. True if it was under way.
    pub(crate) fn end(&self, volume: VolumeId) -> bool {
        self.volumes.lock().remove(&volume).is_some_and(|reduction| !reduction.is_done)
    }

    pub(crate) fn of(&self, volume: VolumeId) -> Option<Reduction> {
        self.volumes.lock().get(&volume).copied()
    }

    /// The first volume that is under way.
    pub(crate) fn next(&self) -> Option<VolumeId> {
        let volumes = self.volumes.lock();
        volumes.iter().find(|(_, reduction)| !reduction.is_done).map(|(volume, _)| *volume)
    }

    /// Takes over what a step did, if it is still wanted.
    pub(crate) fn progress(&self, volume: VolumeId, change: impl FnOnce(&mut Reduction)) {
        if let Some(reduction) = self.volumes.lock().get_mut(&volume) {
            change(reduction);
        }
    }
}
