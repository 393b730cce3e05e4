//! Repairs: what a drive held was wrong or could not be read, was found from redundancy and written again. Counted by kind
//! and by drive, so that a drive that errs often shows.

use quoin_base::DriveIndex;
use quoin_world::Mutex;
use std::collections::BTreeMap;

/// What was repaired.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RepairKind {
    /// Data that was computed from parity and the other data.
    Data,
    /// A copy of data.
    Copy,
    /// Parity that was computed from data.
    Parity,
    /// A copy of a metadata page, which is written anew elsewhere.
    Metadata,
}

/// Repairs, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RepairCounts {
    /// Of data, from parity.
    pub data: u64,
    /// Of copies of data.
    pub copies: u64,
    /// Of parity.
    pub parity: u64,
    /// Of copies of metadata pages.
    pub metadata: u64,
}

impl RepairCounts {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.data + self.copies + self.parity + self.metadata
    }

    /// Counts one more.
    pub fn count(&mut self, kind: RepairKind) {
        let count = match kind {
            RepairKind::Data => &mut self.data,
            RepairKind::Copy => &mut self.copies,
            RepairKind::Parity => &mut self.parity,
            RepairKind::Metadata => &mut self.metadata,
        };
        *count += 1;
    }
}

/// The repairs of a pool since it was opened.
#[derive(Default)]
pub(super) struct Repairs(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    all: RepairCounts,
    /// By drive, those that nobody was told of yet.
    untold: BTreeMap<DriveIndex, RepairCounts>,
}

impl Repairs {
    pub(super) fn note(&self, drive: Option<DriveIndex>, kind: RepairKind) {
        let mut counted = self.0.lock();
        counted.all.count(kind);
        if let Some(drive) = drive {
            counted.untold.entry(drive).or_default().count(kind);
        }
    }

    pub(super) fn all(&self) -> RepairCounts {
        self.0.lock().all
    }

    /// Those that nobody was told of yet.
    pub(super) fn take(&self) -> BTreeMap<DriveIndex, RepairCounts> {
        std::mem::take(&mut self.0.lock().untold)
    }
}
