//! What the store knows of absent drives beside the table of members. In RAM only.

use quoin_base::DriveIndex;
use quoin_drive::Drive;
use quoin_world::{Mutex, World, atomic::AtomicU64};
use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

/// How long an absent drive is waited for, unless something else is set.
const REPAIR_DELAY: Duration = Duration::from_secs(60 * 60);

/// What the store knows of drives that are absent, beside the table of members.
pub(super) struct Absence {
    pub(super) world: OnceLock<Arc<dyn World>>,
    pub(super) delay_ms: AtomicU64,
    /// Absent drives that are there again and are read from.
    pub(super) lent: Mutex<BTreeMap<DriveIndex, Arc<Drive>>>,
}

impl Default for Absence {
    fn default() -> Self {
        Self {
            world: OnceLock::new(),
            delay_ms: AtomicU64::new(REPAIR_DELAY.as_millis() as u64),
            lent: Mutex::default(),
        }
    }
}

impl Absence {
    pub(super) fn now_ms(&self) -> u64 {
        self.world.get().map_or(0, |world| world.wall_clock_ms())
    }
}
