//! What the array does about drives that err again and again, every second.

use crate::{Array, ArrayError, drives::DriveSlot};
use quoin_api::{self as api, Severity};
use quoin_base::DriveIndex;
use quoin_drive::MemberState;
use quoin_pool::Pool;
use std::sync::Arc;

/// What a drive has counted since it was opened: errors and repairs.
fn counted(slot: &DriveSlot) -> Option<(DriveIndex, u64)> {
    let drive = slot.drive().filter(|drive| !drive.is_failed())?;
    let counters = drive.counters();
    Some((drive.index(), counters.errors + counters.repairs))
}

impl Array {
    /// Looks how often drives err, and evacuates those that err again and again.
    pub(crate) async fn tend_failing_drives(&self, pool: &Arc<Pool>) {
        let members = pool.members();
        let serves =
            |drive: DriveIndex| members.get(drive).is_some_and(|member| member.state == MemberState::Active);
        let counted: Vec<_> = self.drives().each(counted).into_iter().flatten().collect();
        let counted = counted.into_iter().filter(|(drive, _)| members.get(*drive).is_some()).collect();
        let due = self.failing_drives().look(self.world().now(), counted);
        for (drive, errors, is_new) in due.into_iter().filter(|(drive, ..)| serves(*drive)) {
            let path = self.drive_path(drive);
            // Once: it is tried again every few minutes.
            if is_new {
                let text = format!(
                    "errs again and again: {errors} errors and repairs count within an hour. It is evacuated before it fails"
                );
                self.log().record(Severity::Warning, format!("drive {path}"), text);
            }
            let request = api::DriveEvacuate::default();
            match self.evacuate_drive(&path, request).await {
                Ok(_) => {}
                Err(error @ ArrayError::Drive(_)) if is_new => {
                    let text =
                        format!("fails, and cannot be evacuated: {error}. Replace it: quoin drive replace");
                    self.log().record(Severity::Warning, format!("drive {path}"), text);
                }
                Err(error) => tracing::debug!(%path, %error, "a failing drive cannot be evacuated now"),
            }
        }
    }
}
