//! Repairs: what a drive held was wrong or could not be read, was found from redundancy and written again. Counted by kind
//! and by drive, so that a drive that errs often shows.

use super::Store;
use quoin_base::DriveIndex;
use quoin_stripe::{Column, StripeError, StripeSet};
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

impl Store {
    /// Notes that what a drive held was repaired. `None`: nothing told which of several drives held something wrong.
    pub(crate) fn note_repair(&self, drive: Option<DriveIndex>, kind: RepairKind) {
        self.repairs.note(drive, kind);
        if let Some(Ok(drive)) = drive.map(|drive| self.columns.drive(drive)) {
            drive.count_repair();
        }
    }

    /// Repairs since the pool was opened.
    pub(crate) fn repairs(&self) -> RepairCounts {
        self.repairs.all()
    }

    /// Repairs since this was last asked, by the name of the drive.
    pub(crate) fn take_repairs(&self) -> Vec<(String, RepairCounts)> {
        let untold = self.repairs.take().into_iter();
        untold.map(|(drive, counts)| (self.drive_name(drive).to_owned(), counts)).collect()
    }

    /// Whether a column is one that can be read and written as far as is known: its drive is there and has not failed.
    pub(crate) fn is_there(&self, column: Column) -> bool {
        let is_needed = self.members().get(column.drive).is_some_and(|member| member.is_needed());
        is_needed && !self.columns.is_lost(column)
    }

    /// What a repair writes to a column did not get there. A drive that has failed for good is done without from now on, if
    /// the pool can.
    pub(crate) async fn repair_failed(&self, set: &StripeSet, place: usize, error: StripeError) {
        let drive = set.columns[place].drive;
        tracing::warn!(drive = self.drive_name(drive), %error, "what a drive holds wrong could not be written again");
        // NOTE: where the pool needs the drive, its next write tells.
        let _ = self.do_without(drive, error.into()).await;
    }
}
