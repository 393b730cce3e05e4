//! Drives that are absent: the array reports them, looks for them, and has the pool take them back.
//!
//! A drive that went away is looked for where the configuration says, every time the pool is looked at, and by its label
//! elsewhere from time to time. Its last opening is let go first, or its lock would keep the array itself from opening it.

use crate::{Array, events::Told};
use quoin_api::Severity;
use quoin_drive::{Member, MemberState, Probe, probe};
use quoin_pool::{Pool, PoolError};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// How often a drive is looked for where it was not before.
const SEARCH_EVERY: Duration = Duration::from_secs(10);

impl Array {
    /// Gives up drives that were away for too long, reports those that went away, and looks for them.
    pub(crate) async fn tend_absent(&self, pool: &Arc<Pool>) {
        match pool.give_up_absent().await {
            Ok(given_up) => {
                for drive in given_up {
                    let text = "was away for longer than the repair delay: what it holds is rebuilt on the others, and it is not \
                                taken back";
                    self.log().record(Severity::Warning, format!("drive {}", self.drive_path(drive)), text);
                }
            }
            // The pool is offline, which is found next.
            Err(error) => tracing::debug!(%error, "absent drives were not given up"),
        }
        let members = pool.members();
        let absent: Vec<_> =
            members.all.iter().filter(|member| member.state == MemberState::Absent).cloned().collect();
        self.report_absent(pool, &absent);
        for member in absent {
            self.look_for(pool, &member).await;
        }
    }

    fn report_absent(&self, pool: &Arc<Pool>, absent: &[Member]) {
        let now: BTreeSet<_> = absent.iter().map(|member| member.index).collect();
        let new: Vec<_> = {
            let mut absences = self.absences();
            absences.refused.retain(|drive, _| now.contains(drive));
            let before = std::mem::replace(&mut absences.reported, now.clone());
            now.difference(&before).copied().collect()
        };
        for drive in new {
            let delay_s = pool.repair_delay().as_secs();
            let text = format!(
                "went away, and the pool goes on without it: {}. When it comes back, only what it missed is rebuilt; if it stays \
                 away for {delay_s} s, all it holds is rebuilt on the others",
                self.left_text(pool)
            );
            self.log().record(Severity::Critical, format!("drive {}", self.drive_path(drive)), text);
        }
    }

    /// Looks for an absent drive, and has the pool take it back if it is there.
    async fn look_for(&self, pool: &Arc<Pool>, member: &Member) {
        // Where it was, and wherever a drive could not be opened.
        let places = self.drives().let_go(member.index);
        for (slot, path) in &places {
            if self.take_back(pool, member, *slot, path).await {
                return;
            }
        }
        let Some((slot, path)) = places.into_iter().next() else { return };
        {
            let (now, mut absences) = (self.world().now(), self.absences());
            if absences.searched.is_some_and(|last| now.since(last) < SEARCH_EVERY) {
                return;
            }
            absences.searched = Some(now);
        }
        // By its label, in another slot or under another name.
        let taken = self.drives().open_paths();
        let search = self.drives().bay().begin_search(pool.id(), &taken);
        let found = self.in_time(search).await.unwrap_or_default();
        if let Some((_, path)) = found.into_iter().find(|(index, at)| *index == member.index && *at != path) {
            self.take_back(pool, member, slot, &path).await;
        }
    }

    /// False if the drive is not there, or cannot be taken back now.
    async fn take_back(&self, pool: &Arc<Pool>, member: &Member, slot: usize, path: &str) -> bool {
        let Ok(disk) = self.open_disk(slot, path).await else { return false };
        let is_it = match probe(&disk).await {
            Ok(Probe::Quoin(label)) => label.pool == pool.id() && label.drive == member.drive,
            Ok(Probe::Blank | Probe::Foreign(_)) | Err(_) => false,
        };
        if !is_it {
            return false;
        }
        let object = format!("drive {}", self.drive_path(member.index));
        match pool.take_back(disk).await {
            Ok(index) => {
                self.drives().come_back(slot, path, pool.drive(index));
                let lacking = pool.protection().lacking_bytes;
                let text = format!("is back, at {path}; {lacking} bytes that segments lack are rebuilt");
                let told = Told::new(object, text).change("state", "absent", "active");
                self.log().record_told(Severity::Info, told);
                true
            }
            Err(PoolError::Refused(why)) => {
                let is_new = self.absences().refused.insert(member.index, why.clone()).as_ref() != Some(&why);
                if is_new {
                    self.log().record(Severity::Warning, object, format!("was found at {path}: {why}"));
                }
                false
            }
            Err(error) => {
                tracing::warn!(%error, "an absent drive is not taken back now");
                false
            }
        }
    }
}
