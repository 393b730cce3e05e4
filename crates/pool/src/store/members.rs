//! The members of the pool: which drives it has, and changes of that.
//!
//! Invariants:
//! 1. A table of members is in force, in RAM, only when every voter of the table before it that is still needed, and every
//!    voter of its own, has it durably.
//! 2. One change is made at a time. Its generation is higher than any written before, in force or not.
//! 3. A change that could not be hardened, or was abandoned meanwhile, takes the pool offline: some voters may have it.
//!    The next opening decides whether it counts, and writes the outcome to all voters.
//! 4. Voters are appointed when the pool is opened, and when one leaves or comes back: every root is brought to them before
//!    they count.

use super::Store;
use crate::{
    bugs::{Bug, planted},
    error::PoolError,
};
use futures_util::future::join_all;
use quoin_base::{DriveIndex, Epoch};
use quoin_drive::{Drive, DriveError, MEMBERS_OFFSETS, Member, MemberState, Members, MembersCopy};
use quoin_world::{
    AsyncMutex, Mutex,
    atomic::{AtomicU64, Ordering},
};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// The table in force.
pub(super) struct Membership {
    current: Mutex<Arc<Members>>,
    /// Its journal set, for those that look at it with every batch. Never ahead of `current`.
    journal_set: AtomicU64,
    /// Held from the choice of a change until it is in force.
    turn: AsyncMutex,
}

impl Membership {
    pub(super) fn new(members: Members) -> Self {
        let journal_set = AtomicU64::new(members.journal_set);
        Self { current: Mutex::new(Arc::new(members)), journal_set, turn: AsyncMutex::new() }
    }

    pub(super) fn current(&self) -> Arc<Members> {
        self.current.lock().clone()
    }

    pub(super) fn journal_set(&self) -> u64 {
        self.journal_set.load(Ordering::Acquire)
    }
}

/// Writes the table of a new pool to its voters.
pub(super) async fn format(drives: &[Arc<Drive>], members: &Members) -> Result<(), PoolError> {
    write(members, voters(drives, members)).await
}

/// Settles which table counts when a new owner opens the pool: writes the table found, with enough voters, the new epoch, and
/// drives that are missing marked absent, to every voter. After that an interrupted change is in force on all voters, or never will be.
pub(super) async fn settle(
    drives: &[Arc<Drive>],
    found: Members,
    epoch: Epoch,
    (missing, now_ms): (&[DriveIndex], u64),
) -> Result<Members, PoolError> {
    if found.epoch >= epoch {
        let why = format!("it is of epoch {}, later than {epoch} of the drives", found.epoch);
        return Err(PoolError::corrupt("the table of members", why));
    }
    let mut settled = found.clone();
    missing.iter().for_each(|drive| settled.miss(*drive, now_ms));
    // One whose growth was interrupted has what its label says.
    drives.iter().for_each(|drive| settled.grow(drive.index(), drive.slabs()));
    settled.appoint_voters();
    (settled.epoch, settled.generation) = (epoch, found.generation.next());
    count_journal_set(&mut settled, &found);
    if let Some(why) = settled.change_problem(&found) {
        return Err(PoolError::corrupt("the table of members", why));
    }
    // NOTE: a table counts only if every voter of it has one. So the new ones get the table found first: after that, one that
    // calls them voters may be on any of them.
    let is_new = |drive: &Arc<Drive>| found.get(drive.index()).is_none_or(|member| !member.votes);
    if voters(drives, &settled).any(is_new) {
        write(&found, voters(drives, &settled)).await?;
    }
    write(&settled, voters(drives, &settled)).await?;
    Ok(settled)
}

fn voters<'a>(drives: &'a [Arc<Drive>], members: &Members) -> impl Iterator<Item = &'a Arc<Drive>> {
    drives.iter().filter(|drive| members.get(drive.index()).is_some_and(|member| member.votes))
}

/// The generation of the journal's set grows when the set is another one.
fn count_journal_set(after: &mut Members, before: &Members) {
    // Extents are begun on the active ones of it only, so that one that leaves is another set too.
    let set = |members: &Members| {
        members.in_journal().map(|member| (member.index, member.state)).collect::<Vec<_>>()
    };
    if set(after) != set(before) {
        after.journal_set = before.journal_set + 1;
    }
}

async fn write(members: &Members, drives: impl Iterator<Item = &Arc<Drive>>) -> Result<(), PoolError> {
    for outcome in join_all(drives.map(|drive| drive.write_members(members))).await {
        outcome?;
    }
    Ok(())
}

/// A table that is being written to the voters. Dropped before it has ended, it takes the pool offline: nothing tells then
/// which voters have the table.
struct Begun<'a> {
    store: &'a Store,
    ended: bool,
}

impl Begun<'_> {
    fn end(mut self) {
        self.ended = true;
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.store.health().fail("a change of the pool's drives was abandoned before it ended".into());
        }
    }
}

impl Store {
    /// The table of members in force.
    pub(crate) fn members(&self) -> Arc<Members> {
        self.membership.current()
    }

    /// Describes the copies on voters that are older than the table found, or missing: an interrupted change
    /// leaves them.
    pub(crate) async fn older_members(&self) -> Vec<String> {
        let newest = self.members();
        let mut told = Vec::new();
        for drive in self.voters() {
            for (offset, copy) in MEMBERS_OFFSETS.into_iter().zip(drive.read_members().await) {
                let what = match copy {
                    MembersCopy::Sound(members) if members == *newest => continue,
                    MembersCopy::Sound(members) => {
                        format!("of epoch {} and generation {}", members.epoch, members.generation)
                    }
                    MembersCopy::Blank => "blank".to_owned(),
                    // Told of when the pool was opened.
                    MembersCopy::Damaged(_) => continue,
                };
                told.push(format!(
                    "the copy at byte {offset} of drive {} is {what}, not the newest, of epoch {} and generation {}: a \
                     change was interrupted, or making the pool",
                    drive.name(),
                    newest.epoch,
                    newest.generation
                ));
            }
        }
        told
    }

    /// Changes the table of members. On return the new table is hardened on the voters and in force. `change`
    /// edits a copy of the table in force; if it returns an error, nothing changes.
    ///
    /// The generation of the journal's set grows by itself. Drives that `change` marks failed or gone are not
    /// written to. A voter that fails meanwhile is marked failed too, if the pool can do without it.
    pub(crate) async fn change_members(
        &self,
        change: impl FnOnce(&mut Members) -> Result<(), PoolError>,
    ) -> Result<(), PoolError> {
        self.change_appointing(&[], change).await
    }

    /// The same for a change that makes these drives voters. They have the table in force, and every root.
    pub(super) async fn change_appointing(
        &self,
        appointed: &[DriveIndex],
        change: impl FnOnce(&mut Members) -> Result<(), PoolError>,
    ) -> Result<(), PoolError> {
        let _turn = self.membership.turn.lock().await;
        self.health().check()?;
        let before = self.members();
        let mut after = Members::clone(&before);
        change(&mut after)?;
        if after == *before {
            return Ok(());
        }
        // The new table must be one that can follow the table in force.
        (after.epoch, after.generation) = (self.epoch(), before.generation.next());
        count_journal_set(&mut after, &before);
        if let Some(why) = after.change_problem(&before) {
            return Err(PoolError::Refused(format!("the pool's drives cannot change so: {why}")));
        }
        let gets_voter = |index: DriveIndex| {
            let voted = before.get(index).is_some_and(|member| member.votes);
            !voted && after.get(index).is_some_and(|member| member.votes)
        };
        assert!(
            after.all.iter().all(|member| !gets_voter(member.index) || appointed.contains(&member.index)),
            "voters are appointed when every root was brought to them"
        );

        // Durable on the voters of the table before, then in force.
        if planted(Bug::MembersBeforeHardened) {
            self.put_in_force(&after);
        }
        // NOTE: some voters may have it from here on, and its generation must not be used again.
        let begun = Begun { store: self, ended: false };
        let mut hardened = self.write_to_voters(&before, &after).await;
        if let Err(failures) = &hardened
            && let Some(without) = self.without_failed(&before, &after, failures)
        {
            hardened = self.write_to_voters(&before, &without).await;
            after = without;
        }
        begun.end();
        if let Err(failures) = hardened {
            let Some((_, error)) = failures.into_iter().next() else { unreachable!("a write failed") };
            self.health().fail(format!("a change of the pool's drives could not be hardened: {error}"));
            return Err(error.into());
        }
        self.put_in_force(&after);
        Ok(())
    }

    /// Writes a table to the voters of the one before that are still needed, and to its own. Returns which of them failed, if any
    /// did.
    async fn write_to_voters(
        &self,
        before: &Members,
        after: &Members,
    ) -> Result<(), Vec<(DriveIndex, DriveError)>> {
        let is_heard = |drive: &&Arc<Drive>| {
            let votes = |members: &Members| members.get(drive.index()).is_some_and(|member| member.votes);
            let is_needed = after.get(drive.index()).is_some_and(Member::is_needed);
            is_needed && (votes(before) || votes(after))
        };
        let write = async |drive: &Arc<Drive>| (drive.index(), drive.write_members(after).await);
        let written = join_all(self.drives().filter(is_heard).map(write)).await;
        let failed =
            written.into_iter().filter_map(|(drive, outcome)| outcome.err().map(|error| (drive, error)));
        let failed: Vec<_> = failed.collect();
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }

    /// The change with the voters marked failed that failed while it was written to them, if the pool can do without these.
    fn without_failed(
        &self,
        before: &Members,
        after: &Members,
        failures: &[(DriveIndex, DriveError)],
    ) -> Option<Members> {
        let mut without = after.clone();
        // NOTE: an opening goes by the table of any voters that are more than the layout tolerates failures. One of them must
        // have the new one.
        if failures.len() > usize::from(self.label.layout.parity()).max(1) {
            return None;
        }
        for (index, error) in failures {
            let has_failed = self.columns.drive(*index).is_ok_and(|drive| drive.is_failed());
            let loss = self.loss_of(&without, *index).ok().filter(|_| has_failed)?;
            let drive = self.drive_name(*index);
            tracing::error!(pool = %self.pool_name(), %drive, %error, ?loss, "the pool goes on without a drive");
            self.mark_lost(&mut without, *index, self.is_away(*index), loss);
        }
        without.generation = without.generation.next();
        count_journal_set(&mut without, after);
        without.change_problem(before).is_none().then_some(without)
    }

    fn put_in_force(&self, members: &Members) {
        let before = self.membership.current();
        assert!(
            members.age() >= before.age() && members.journal_set >= before.journal_set,
            "table {:?} of members follows {:?}",
            members.age(),
            before.age()
        );
        for member in &members.all {
            // `add_drive` logs a new drive: the store has no name for it yet.
            if before.get(member.index).is_some_and(|before| before.state != member.state) {
                tracing::info!(
                    pool = %self.pool_name(),
                    drive = self.drive_name(member.index),
                    number = %member.index,
                    state = %member.state,
                    "a drive of the pool"
                );
            }
        }
        *self.membership.current.lock() = Arc::new(members.clone());
        // NOTE: before anything counts that was written without them.
        for member in &members.all {
            self.grants.leave_out(member.index, member.state != MemberState::Active);
            let Some(was) = before.get(member.index) else { continue };
            let tenants = self.tenants.lock();
            match (was.state, member.state) {
                (MemberState::Absent, MemberState::Failed) => {
                    tenants.iter().for_each(|tenant| tenant.give_up(member.index));
                }
                (MemberState::Absent, MemberState::Active) => {
                    tenants.iter().for_each(|tenant| tenant.take_back(member.index, members.generation));
                }
                _ if was.is_needed() && member.is_lost() => {
                    let is_absent = member.state == MemberState::Absent;
                    tenants
                        .iter()
                        .for_each(|tenant| tenant.lose(member.index, is_absent, members.generation));
                }
                _ => {}
            }
            self.tell_of_leaving(&tenants, was, member);
        }
        self.membership.journal_set.store(members.journal_set, Ordering::Release);
        // Lanes that wait for a free extent may make one of the drives that are left.
        self.health().notify();
    }
}
