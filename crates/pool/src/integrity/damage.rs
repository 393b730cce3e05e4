//! What was found damaged, for the layers above to tell people: which bytes of which volumes cannot be read, and why.

use quoin_base::{ByteRange, VolumeId};
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

    pub(super) fn take(&self) -> Vec<Damage> {
        self.inner.lock().found.drain(..).collect()
    }

    pub(super) fn forget(&self, volume: VolumeId, offset: u64) {
        let holds = |told: &ByteRange| told.offset <= offset && offset < told.end();
        self.inner.lock().told.retain(|(of, told)| *of != volume || !holds(told));
    }
}
