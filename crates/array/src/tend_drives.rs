//! Looks after drives that answer late or err: each second, while the pool is open.

use crate::{Array, ArrayError, drives::DriveSlot};
use quoin_api::{self as api, Severity};
use quoin_base::DriveIndex;
use quoin_drive::MemberState;
use quoin_pool::{Hedging, Pool};
use quoin_world::Thread;
use std::{sync::Arc, time::Duration};

impl Array {
    /// Looks how fast drives answer, and has slow ones read around.
    pub(crate) fn tend_slow_drives(self: &Arc<Self>, pool: &Arc<Pool>) {
        let members = pool.members();
        let reads = self.drives().each(|slot| {
            let drive = slot.drive().filter(|drive| !drive.is_failed())?;
            members.get(drive.index()).filter(|member| member.is_needed())?;
            Some((drive.index(), drive.latencies()?.read.snapshot()))
        });
        let (found, late_after) = {
            let mut slow = self.slow_drives();
            let found = slow.look(reads.into_iter().flatten().collect());
            (found, slow.late_after())
        };
        pool.set_hedging(Hedging { late_after, extra_reads: found.extra_reads as usize });
        for (drive, took, usual) in found.slow {
            pool.mark_slow(drive, true);
            let text = format!(
                "answers slowly: it took {} ms for nine of ten reads, the others {} ms. It is read only where there is no other \
                 way until it is quick again",
                milliseconds(took),
                milliseconds(usual)
            );
            self.log().record(Severity::Warning, format!("drive {}", self.drive_path(drive)), text);
        }
        for drive in found.ask {
            let (array, pool) = (self.clone(), pool.clone());
            let ask = async move {
                let began = array.world().now();
                let outcome = pool.ask_drive(drive, array.world().random_u64()).await;
                let took = array.world().now().since(began);
                if array.slow_drives().answered(drive, outcome.is_ok().then_some(took)) {
                    pool.mark_slow(drive, false);
                    let text = "answers as fast as the others again".to_owned();
                    array.log().record(Severity::Notice, format!("drive {}", array.drive_path(drive)), text);
                }
            };
            self.world().spawn(Thread::Background, Box::pin(ask));
        }
    }

    /// The path of a drive in the configuration, or its number.
    pub(crate) fn drive_path(&self, drive: DriveIndex) -> String {
        let paths = self.drives().each(|slot| (slot.number(), slot.path().to_owned()));
        let path = paths.into_iter().find(|(number, _)| *number == Some(drive)).map(|(_, path)| path);
        path.unwrap_or_else(|| format!("number {drive}"))
    }
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64() * 1000.0)
}

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
