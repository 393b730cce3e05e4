//! Opens the drives of the configuration, finds those whose paths do not lead to them, and reports how they answer.
//!
//! A drive is known by its label, not by its path. If a path no longer exists or leads to something else, the drives are
//! looked for by label; a drive that is found elsewhere takes the place of the one that is missing.

use crate::{
    Array,
    drives::{Answering, GivenUp, Opened},
    not_opened::NotOpened,
};
use futures_util::future::{Either, select};
use quoin_api::Severity;
use quoin_base::PoolId;
use quoin_drive::{Answers, Drive, DriveError, DriveSet, MemberState, Probe, probe};
use quoin_pool::Pool;
use quoin_world::{Disk, OneShot};
use std::{collections::BTreeSet, future::Future, pin::pin, sync::Arc};

/// Why the set was refused, behind what is wrong with each drive that it lacks.
pub(crate) fn with_faults(mut faults: Vec<String>, refusal: String) -> String {
    faults.retain(|fault| !refusal.contains(fault));
    faults.extend(Some(refusal).filter(|refusal| !refusal.is_empty()));
    faults.join("; ")
}

impl Array {
    /// Opens all drives of the pool, in the order of their positions. A drive that cannot be opened may be one that the pool
    /// goes on without; what is on the others tells. Drives that it needs may be missing: the pool decides. Returned as well is
    /// what is wrong with those that could not be opened.
    pub(crate) async fn open_drives(&self) -> Result<(Vec<Arc<Drive>>, Vec<String>), NotOpened> {
        let (mut opened, mut faults, mut in_use) = (Vec::new(), Vec::new(), true);
        let mut any_in_use = false;
        for path in self.drives().bay().paths() {
            let Some(slot) = self.drives().position_of(&path) else { continue };
            match self.open_disk(slot, &path).await {
                Ok(disk) => {
                    self.drives().set_fault(slot, None);
                    opened.push(Opened { slot, path, disk });
                }
                Err(fault) => {
                    in_use &= fault.in_use;
                    any_in_use |= fault.in_use;
                    self.drives().set_fault(slot, Some(fault.reason.clone()));
                    faults.push(fault.reason);
                }
            }
        }
        in_use &= !faults.is_empty();
        let mut outcome = if opened.is_empty() && !faults.is_empty() {
            Err(String::new())
        } else {
            self.open_all(&opened, DriveSet::open).await
        };
        // A drive that does not answer is not looked for elsewhere.
        if outcome.is_err()
            && !in_use
            && self.drives().stalled().is_none()
            && self.find_missing(&mut opened, &mut faults).await
        {
            outcome = self.open_all(&opened, DriveSet::open).await;
        }
        // NOTE: not without one that another process has, and so may write to.
        if outcome.is_err() && !any_in_use && !opened.is_empty() {
            let set = self.open_all(&opened, DriveSet::open_some).await;
            outcome = set.or(outcome);
        }
        let set = outcome.map_err(|refusal| NotOpened {
            reason: with_faults(faults.clone(), refusal),
            in_use,
            taken_over: false,
        })?;
        self.note_opened(&opened, &set);
        Ok((set.drives, faults))
    }

    async fn open_all<F>(
        &self,
        opened: &[Opened],
        open: impl Fn(Vec<Arc<dyn Disk>>) -> F,
    ) -> Result<DriveSet, String>
    where
        F: Future<Output = Result<DriveSet, DriveError>>,
    {
        let disks = opened.iter().map(|opened| opened.disk.clone()).collect();
        let set = open(disks).await.map_err(|error| error.to_string())?;
        match set.drives.iter().find(|drive| drive.label().pool != self.options().pool) {
            Some(drive) => Err(self.of_another_pool(drive.name(), drive.label().pool)),
            None => Ok(set),
        }
    }

    fn of_another_pool(&self, name: &str, pool: PoolId) -> String {
        let own = self.options().pool;
        format!("drive {name} belongs to pool {pool}, not to this array's, {own}")
    }

    pub(crate) async fn open_disk(&self, slot: usize, path: &str) -> Result<Arc<dyn Disk>, NotOpened> {
        let watch = self.drives().watch_to_open(slot)?;
        let disk = match self.in_time(self.drives().bay().begin_open(path)).await {
            Some(outcome) => outcome?.ok_or_else(|| NotOpened {
                reason: format!("{path}: another process uses it, or it is mounted"),
                in_use: true,
                taken_over: false,
            })?,
            None => {
                return Err(format!("drive {path} does not answer: opening it has not come to an end").into());
            }
        };
        watch.admit(disk).map_err(|error| error.to_string().into())
    }

    /// What another thread does for the array; `None` if that takes longer than a drive may.
    pub(crate) async fn in_time<T>(&self, outcome: OneShot<T>) -> Option<T> {
        let patience = self.drives().bay().patience().fail_after;
        match select(pin!(outcome), self.world().sleep(patience)).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(_) => None,
        }
    }

    /// Puts drives that are found elsewhere in the place of those that are missing, and adds what is wrong with those that
    /// are there. True if any was found.
    async fn find_missing(&self, opened: &mut Vec<Opened>, faults: &mut Vec<String>) -> bool {
        let own = self.options().pool;
        let (mut present, mut strangers, mut is_copied) = (BTreeSet::new(), Vec::new(), false);
        for at in (0..opened.len()).rev() {
            let stranger = match probe(&opened[at].disk).await {
                Ok(Probe::Quoin(label)) if label.pool == own => {
                    // Of two with one position, the second may be in the place of another.
                    if present.insert(label.index) {
                        continue;
                    }
                    is_copied = true;
                    format!("drive {} is a copy of another one", opened[at].path)
                }
                Ok(Probe::Quoin(label)) => self.of_another_pool(&opened[at].path, label.pool),
                Ok(Probe::Blank) => DriveError::Blank { drive: opened[at].path.clone() }.to_string(),
                Ok(Probe::Foreign(what)) => {
                    DriveError::Foreign { drive: opened[at].path.clone(), what }.to_string()
                }
                Err(error) => error.to_string(),
            };
            strangers.push((at, stranger));
        }
        let taken: Vec<_> = opened.iter().map(|opened| opened.path.clone()).collect();
        let mut found = self.in_time(self.drives().bay().begin_search(own, &taken)).await.unwrap_or_default();
        found.sort();
        found.dedup_by_key(|(index, _)| *index);
        found.retain(|(index, _)| !present.contains(index));
        for (at, why) in strangers {
            let stranger = opened.remove(at);
            self.drives().set_fault(stranger.slot, Some(why.clone()));
            faults.push(why);
        }
        let mut free = self.drives().positions();
        free.retain(|slot| opened.iter().all(|opened| opened.slot != *slot));
        // NOTE: which of two copies is the current one is not known. With a drive missing besides, neither is taken.
        if is_copied && found.len() < free.len() {
            return false;
        }
        let before = opened.len();
        for (index, path) in found {
            if free.is_empty() {
                break;
            }
            // As a rule the configuration has drives in the order of their numbers.
            let at = free.iter().position(|slot| *slot == usize::from(index.0)).unwrap_or(0);
            let slot = free.remove(at);
            match self.open_disk(slot, &path).await {
                Ok(disk) => opened.push(Opened { slot, path, disk }),
                Err(fault) => faults.push(fault.reason),
            }
        }
        opened.len() > before
    }

    /// Holds the drives that were opened, and reports those that are not where the configuration says.
    fn note_opened(&self, opened: &[Opened], set: &DriveSet) {
        for (path, found_at) in self.drives().hold(opened, set) {
            let text = format!(
                "its path no longer leads to it; the array found it at {found_at} by its label. Correct the path in \
                 quoin.toml"
            );
            self.log().record(Severity::Warning, format!("drive {path}"), text);
        }
    }

    /// A drive began or ceased to answer in time.
    pub(crate) fn drive_answers(&self, slot: usize, answers: Answers) {
        let Answering { path, name, had_fault } = self.drives().note_answers(slot, answers);
        let (severity, text) = match answers {
            Answers::Suspect(waited) => (
                Severity::Warning,
                format!("has not answered for {} s; I/O that needs it waits", waited.as_secs()),
            ),
            Answers::Failed(waited) => (
                Severity::Critical,
                format!(
                    "has not answered for {} s and has failed; unless the pool goes on without it, the array uses it again once \
                     its outstanding operations have completed",
                    waited.as_secs()
                ),
            ),
            Answers::InTime if had_fault => {
                (Severity::Info, "has completed its outstanding operations and is reopened".to_owned())
            }
            Answers::InTime => (Severity::Info, "answers again".to_owned()),
        };
        self.log().record(severity, format!("drive {path}"), text);
        if let (Answers::Failed(waited), Ok(pool)) = (answers, self.catalog().open_pool()) {
            pool.drive_is_lost(&name, format!("drive {path} has not answered for {} s", waited.as_secs()));
        }
    }

    /// Reports drives that the pool goes on without.
    pub(crate) fn look_at_members(&self, pool: &Arc<Pool>) {
        let members = pool.members();
        let failed = members.all.iter().filter(|member| member.state == MemberState::Failed);
        let GivenUp { was_open, drives } = self.drives().give_up(failed.map(|member| member.index).collect());
        // What failed before the process started is told again, less loudly.
        let severity = if was_open { Severity::Critical } else { Severity::Warning };
        for (index, path) in drives {
            let (object, which) = match path {
                Some(path) => (format!("drive {path}"), path.to_string()),
                None => (format!("drive number {index} of {}", self.pool_name()), "DRIVE".to_owned()),
            };
            let text = format!(
                "has failed, and the pool goes on without it: {}. Put another in its place (quoin drive replace {which} NEW), \
                 or leave it out for good (quoin drive remove {which})",
                self.left_text(pool)
            );
            self.log().record(severity, object, text);
        }
    }

    /// Reports drives whose file systems became full, or have room again, and whether those that are left lack slabs.
    pub(crate) fn look_at_room(&self, pool: &Pool) {
        let (without_room, lack) = (&pool.drives_without_room(), pool.is_short_of_slabs());
        if self.drives().note_slabs(lack) {
            let (severity, text) = if lack {
                (
                    Severity::Critical,
                    "the drives that are left have no room for what hosts wrote before others were lost: host writes fail until a \
                     drive comes back, volumes or snapshots are deleted, or a drive is added and shares the load (quoin drive add, \
                     quoin balance start); reads are not affected",
                )
            } else {
                (Severity::Info, "has room again for what hosts wrote; host writes succeed")
            };
            self.log().record(severity, self.pool_name(), text);
        }
        for (path, no_room) in self.drives().note_room(without_room) {
            let (severity, text) = if no_room {
                (
                    Severity::Critical,
                    "the file system under it is full: host writes fail until there is room; reads are not affected",
                )
            } else {
                (Severity::Info, "has room again; host writes succeed")
            };
            self.log().record(severity, format!("drive {path}"), text);
        }
    }

    /// From now on drives are not waited for that do not answer: a stop is asked for.
    pub fn hurry_drives(&self) {
        self.drives().hurry();
    }

    /// A description of the drives that do not answer in time; `None` if all do.
    pub fn stalled_drives(&self) -> Option<String> {
        self.drives().stalled()
    }
}
