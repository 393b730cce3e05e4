//! What the array does about slow drives every second.

use crate::Array;
use quoin_api::Severity;
use quoin_base::DriveIndex;
use quoin_pool::{Hedging, Pool};
use quoin_world::Thread;
use std::{sync::Arc, time::Duration};

impl Array {
    /// Looks how fast drives answer, and has slow ones read around.
    pub(crate) fn tend_slow_drives(self: &Arc<Self>, pool: &Arc<Pool>) {
        let members = pool.members();
        let reads = self.drives().each(|slot| {
            let drive = slot.drive().filter(|drive| !drive.is_failed())?;
            // What is read of a drive that the pool does not have says nothing about it.
            members.get(drive.index()).filter(|member| member.is_needed())?;
            Some((drive.index(), drive.latencies()?.read.snapshot()))
        });
        let (found, late_after) = {
            let mut slow = self.slow_drives();
            let found = slow.look(reads.into_iter().flatten().collect());
            (found, slow.late_after)
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
        // Beside everything else: a slow drive takes its time to answer.
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
