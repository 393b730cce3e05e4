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
/// How often it is tried to take back a drive that answers with errors and can be read.
const TRY_AGAIN_EVERY: Duration = Duration::from_secs(60);

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
            match pool.finish_taking_back(member.index).await {
                Ok(Some(_)) => self.is_back(pool, &member, "where it was found"),
                Ok(None) if self.is_left_alone(pool, &member) => {}
                Ok(None) => self.look_for(pool, &member).await,
                // It waits for other drives.
                Err(error) => tracing::debug!(%error, "an absent drive is not taken back now"),
            }
        }
    }

    /// Whether an absent drive is not looked for now, because it can be read: it holds the last copy of something, and answered
    /// with errors.
    fn is_left_alone(&self, pool: &Pool, member: &Member) -> bool {
        let errs = pool.drive(member.index).is_some_and(|drive| drive.is_failed() && !drive.is_away());
        let (now, mut absences) = (self.world().now(), self.absences());
        if !errs {
            return false;
        }
        let tried = absences.tried.entry(member.index).or_insert(now);
        let is_due = now.since(*tried) >= TRY_AGAIN_EVERY;
        if is_due {
            *tried = now;
        }
        !is_due
    }

    /// Tells that a drive is back.
    fn is_back(&self, pool: &Pool, member: &Member, place: &str) {
        let lacking = pool.protection().lacking_bytes;
        let text = format!("is back, at {place}; {lacking} bytes that segments lack are rebuilt");
        let told = Told::new(format!("drive {}", self.drive_path(member.index)), text);
        self.log().record_told(Severity::Info, told.change("state", "absent", "active"));
    }

    fn report_absent(&self, pool: &Arc<Pool>, absent: &[Member]) {
        let now: BTreeSet<_> = absent.iter().map(|member| member.index).collect();
        let new: Vec<_> = {
            let mut absences = self.absences();
            absences.refused.retain(|drive, _| now.contains(drive));
            absences.tried.retain(|drive, _| now.contains(drive));
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
                self.is_back(pool, member, path);
                true
            }
            Err(PoolError::Refused(why)) => {
                if pool.is_lent(member.index) {
                    // It is read from, and must not be let go of.
                    self.drives().come_back(slot, path, pool.drive(member.index));
                }
                let is_new = self.absences().refused.insert(member.index, why.clone()).as_ref() != Some(&why);
                if is_new {
                    self.log().record(Severity::Warning, object, format!("was found at {path}: {why}"));
                }
                false
            }
            Err(error) => {
                tracing::warn!(%error, "an absent drive is not taken back now");
                if pool.is_lent(member.index) {
                    self.drives().come_back(slot, path, pool.drive(member.index));
                }
                false
            }
        }
    }
}
