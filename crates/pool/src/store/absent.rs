//! Drives that are absent: the pool goes on without them, and they may come back.
//!
//! A drive that vanishes or does not answer is *absent*, one that answers with errors has *failed*. What an absent drive holds
//! is kept: it is made again only when the repair delay has passed, or when an administrator says that the drive will not come
//! back. Then it has failed. Until then it counts as lost for what the pool survives.
//!
//! A drive that comes back holds what it held: segments are not changed in place once they are sealed and hardened. What it
//! missed is marked in the segment table, column by column, and is made again from the other columns.
//!
//! Invariants:
//! 1. A drive is absent durably before anything counts that was written without it.
//! 2. A drive is active again, durably, only when a root of each slice is durable that knows of its loss. So the columns that
//!    lack something are marked whatever happens, and nothing that an opening can find names what else was on the drive.
//! 3. It is active again only when no part of the journal that is needed began before it was lost: a column of the journal that
//!    lacks batches must not be asked which there were.
//! 4. Only a drive comes back that knows of no table of members with which it could have gone on by itself: none as new as the
//!    one that made it absent, unless that never was in force.
//!
//! # Example of a table that never was in force
//! 1. Drives 0, 1 and 2 vote. A change is written to them, as table 8. Power fails when only drive 2 has it.
//! 2. The pool is opened without drive 2, under a later epoch. Drives 0 and 1 have table 7, and table 8 of this opening says that
//!    2 is absent.
//! 3. Drive 2 is back, with a table 8 that the others do not know. It calls 0 and 1 voters. Had it been in force, both would
//!    have had it when the pool was opened. So nothing counted under it, and the drive is as it was when power failed.
//!
//! Had drive 2 gone on by itself, its table would call only those voters that were with it then. None of them is a member here:
//! it would not have been taken back, for the same reason.

use super::{Store, unreadable::reads_otherwise};
use crate::{
    bugs::{Bug, planted},
    error::PoolError,
};
use quoin_base::{DriveIndex, Epoch, MembersGeneration};
use quoin_drive::{Drive, Member, MemberState, Members, MembersCopy};
use quoin_world::{Disk, World, atomic::Ordering};
use std::{sync::Arc, time::Duration};

/// Whether a table that an absent drive has never was in force: a change that was interrupted left it there. Every voter of a
/// table has it before it counts, and one of these is a member now, which went on from an older table under a later epoch.
fn never_counted(table: &Members, absent: DriveIndex, members: &Members) -> bool {
    let is_here = |voter: &Member| {
        let member = members.get(voter.index);
        member.is_some_and(|member| member.drive == voter.drive && member.is_needed())
    };
    let mut others = table.voters().filter(|voter| voter.index != absent && voter.is_needed());
    // NOTE: of an earlier epoch. The next opening goes by the newest table that any drive has, and this one stays where it is.
    table.epoch < members.epoch && others.any(is_here) || planted(Bug::TakeBackGone)
}

#[cfg(test)]
impl Store {
    /// Takes the drives over, of which none is missing.
    pub(crate) async fn take_over(drives: Vec<Arc<Drive>>) -> Result<Self, PoolError> {
        Self::take_over_without(drives, (&[], 0)).await
    }
}

impl Store {
    /// Tells the time to it.
    pub(crate) fn set_world(&self, world: Arc<dyn World>) {
        self.pace.set_world(world.clone());
        let _ = self.absence.world.set(world);
    }

    /// Whether a drive that failed is away, and may come back with what it held.
    pub(super) fn is_away(&self, index: DriveIndex) -> bool {
        self.columns.drive(index).is_ok_and(|drive| drive.is_away())
    }

    /// How long an absent drive is waited for.
    pub(crate) fn repair_delay(&self) -> Duration {
        Duration::from_millis(self.absence.delay_ms.load(Ordering::Acquire))
    }

    /// Changes that, from now on.
    pub(crate) fn set_repair_delay(&self, delay: Duration) {
        let ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.absence.delay_ms.store(ms, Ordering::Release);
    }

    /// Gives up the drives that were absent for longer than the repair delay. Returns them. One that holds the last copy of
    /// something is waited for further, and one that is there again is read from, though it cannot count yet.
    pub(crate) async fn give_up_absent(&self) -> Result<Vec<DriveIndex>, PoolError> {
        let (now, delay) = (self.absence.now_ms(), self.repair_delay().as_millis() as u64);
        let is_due = |member: &&Member| {
            member.state == MemberState::Absent && now.saturating_sub(member.absent_since_ms) >= delay
        };
        let due: Vec<_> = self.members().all.iter().filter(is_due).map(|member| member.index).collect();
        let mut given_up = Vec::new();
        for drive in due {
            // NOTE: one at a time. When one of two is given up, the other may hold the last copy.
            if self.is_lent(drive) || self.holds_last(&self.members(), drive) {
                continue;
            }
            match self.fail_drive(drive).await {
                Ok(_) => given_up.push(drive),
                // Another was lost in between.
                Err(PoolError::Refused(why)) => tracing::debug!(why, "an absent drive is waited for further"),
                Err(error) => return Err(error),
            }
        }
        Ok(given_up)
    }

    /// The drives that are absent.
    pub(crate) fn absent_drives(&self) -> impl Iterator<Item = DriveIndex> + use<> {
        let members = self.members();
        let absent = members.all.iter().filter(|member| member.state == MemberState::Absent);
        absent.map(|member| member.index).collect::<Vec<_>>().into_iter()
    }

    /// The drives that are back, and parts of the journal that began before may be needed.
    pub(crate) fn returning(&self) -> Vec<DriveIndex> {
        let members = self.members();
        members.all.iter().filter(|member| member.is_returning()).map(|member| member.index).collect()
    }

    /// Notes, durably, that nothing of the journal is needed any more that began before these drives were back.
    pub(crate) async fn settle_returned(&self, drives: &[DriveIndex]) -> Result<(), PoolError> {
        self.change_members(|members| {
            drives.iter().for_each(|drive| members.settle(*drive));
            Ok(())
        })
        .await
    }

    /// The generation of the table with which the pool went on without an absent drive.
    pub(crate) fn absent_at(&self, index: DriveIndex) -> Option<MembersGeneration> {
        let members = self.members();
        let absent = members.get(index).filter(|member| member.state == MemberState::Absent);
        absent.map(|member| member.failed_at)
    }

    /// Opens the disk of an absent drive, as the current owner's. It is read from where there is no other way.
    ///
    /// # Errors
    /// [`PoolError::Refused`] if it is not an absent drive of the pool as it was when it went away.
    pub(crate) async fn open_absent(&self, disk: Arc<dyn Disk>) -> Result<Arc<Drive>, PoolError> {
        let name = disk.name().to_owned();
        let refuse = |why: String| PoolError::Refused(format!("drive {name} is not taken back: {why}"));
        let drive = Drive::open(disk).await?;
        let label = drive.label();
        let members = self.members();
        let member = members.get(label.index).filter(|member| {
            label.pool == self.pool() && member.drive == label.drive && member.state == MemberState::Absent
        });
        let Some(member) = member else {
            return Err(refuse("it is no absent drive of this pool".into()));
        };
        // It may have gone away while it grew.
        if drive.slabs() < member.slabs || label.roles != member.roles {
            return Err(refuse("its label and the pool's table of members do not agree".into()));
        }
        // It must not have gone on by itself: what it acknowledged then is nowhere else.
        let tables = drive.read_members().await.into_iter().filter_map(|copy| match copy {
            MembersCopy::Sound(table) => Some(table),
            MembersCopy::Blank | MembersCopy::Damaged(_) => None,
        });
        let mut newer = tables.filter(|table| table.generation >= member.failed_at);
        let has_gone_on =
            newer.any(|table| !never_counted(&table, label.index, &members)) || drive.epoch() > self.epoch();
        if has_gone_on {
            return Err(refuse(
                "it knows of changes that this pool does not know: it was used without the other drives; erase it and add it \
                 as a new one, or bring back what went on with it"
                    .into(),
            ));
        }
        // Reads use the drive at once, even if it cannot be written to: RAM knows which of its columns lack something. So destage
        // can put together blocks that were written in part, and the journal can let go of them.
        let taken_over = self.take_over_one(&drive).await;
        self.lend(drive.clone());
        taken_over?;
        Ok(drive)
    }

    /// Has a drive accept the writes of this owner, and none of earlier writer sessions.
    async fn take_over_one(&self, drive: &Drive) -> Result<(), PoolError> {
        let epoch: Epoch = self.epoch();
        if drive.epoch() < epoch {
            return Ok(drive.raise_epoch(epoch).await?);
        }
        // It was away for a part of this owner's term.
        let holder = drive.writer_session().holder;
        let lowest = drive.fences().lowest_of(holder) + 1;
        Ok(drive.fence(holder, lowest).await?)
    }

    /// Whether an absent drive is read from that is there again.
    pub(crate) fn is_lent(&self, index: DriveIndex) -> bool {
        self.absence.lent.lock().contains_key(&index)
    }

    fn lend(&self, drive: Arc<Drive>) {
        self.absence.lent.lock().insert(drive.index(), drive.clone());
        self.columns.replace(drive);
    }

    /// An absent drive that is read from, if it still reads.
    pub(crate) async fn lent(&self, index: DriveIndex) -> Option<Arc<Drive>> {
        let lent = self.absence.lent.lock().get(&index).cloned()?;
        let is_there = !lent.is_failed() && self.absent_at(index).is_some() && reads_otherwise(&lent).await;
        if !is_there {
            self.absence.lent.lock().remove(&index);
        }
        is_there.then_some(lent)
    }

    /// Takes a drive back that [`Self::open_absent`] opened, durably. Roots know of its loss, and nothing of the journal that is
    /// needed began before it.
    pub(crate) async fn take_back(&self, drive: Arc<Drive>) -> Result<(), PoolError> {
        let (index, name) = (drive.index(), drive.name().to_owned());
        {
            // What it grants is read from it: while it was away, nothing of it changed hands.
            let _turn = self.grants.take_back(&drive).await?;
            self.may_lack_room.fetch_or(drive.may_lack_room(), Ordering::AcqRel);
            self.change_members(|members| {
                members.take_back(index);
                members.grow(index, drive.slabs());
                if let Some(member) =
                    members.get_mut(index).filter(|member| member.state == MemberState::Active)
                {
                    member.in_journal = member.roles.journal;
                }
                Ok(())
            })
            .await?;
        }
        self.absence.lent.lock().remove(&index);
        self.claims.came_free();
        tracing::info!(pool = %self.pool_name(), drive = name, number = %index, "a drive is back");
        self.appoint_enough().await
    }
}
