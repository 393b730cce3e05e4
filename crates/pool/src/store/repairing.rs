//! What the store does about repairs: it counts them for their drives, and does without drives that refuse them.

use super::{
    Store,
    repairs::{RepairCounts, RepairKind},
};
use quoin_base::DriveIndex;
use quoin_stripe::{Column, StripeError, StripeSet};

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
