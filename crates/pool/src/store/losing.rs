//! Going on without drives: what is lost with one, and what the pool does then.
//!
//! A drive that is lost takes nothing with it as long as what it holds follows from the others: it has failed, or is absent.
//! If data cannot be computed any more, *beyond policy*, the pool goes on all the same, if its metadata and its journal are on
//! the others. The drive is absent then even if it answered with errors, for it holds the last copy of something: reads of
//! blocks that cannot be computed fail until it is back, and everything else serves.
//!
//! Invariants:
//! 1. The pool goes on only if every page of metadata and every part of the journal that is needed is on what is left, and if
//!    all data is on drives that may come back: what no flush has hardened there is not.
//! 2. A drive that holds the last copy of something stays absent. Neither the repair delay nor a command makes it failed.

use super::{Store, grants::FailedDrives};
use crate::{
    bugs::{Bug, planted},
    error::PoolError,
};
use quoin_base::DriveIndex;
use quoin_drive::{Member, MemberState, Members};

/// What is lost with a drive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Loss {
    /// Nothing: what it holds follows from the others.
    Nothing,
    /// Data that no other drives have, until it or others are back.
    UntilBack,
    /// Metadata, or data that is not as it should be on any drive that may come back.
    ForGood,
}

/// Why the pool does not go on without a drive.
const HOLDS_DATA: &str = "it holds data that no other drive has";

impl Store {
    /// Marks a drive failed, durably, so that no opening waits for it, nor anybody for its return. False if it was already.
    /// Refused if the pool needs the drive, or the drive holds the last copy of something.
    pub(crate) async fn fail_drive(&self, index: DriveIndex) -> Result<bool, PoolError> {
        let name = self.drive_name(index).to_owned();
        let mut is_new = false;
        self.change_members(|members| {
            let refuse =
                |why| PoolError::Refused(format!("the pool cannot go on without drive {name}: {why}"));
            if self.loss_of(members, index).map_err(refuse)? > Loss::Nothing
                || self.holds_last(members, index)
            {
                return Err(refuse(HOLDS_DATA));
            }
            let before = members.get(index).map(|member| member.state);
            members.fail(index);
            is_new = members.get(index).map(|member| member.state) != before;
            Ok(())
        })
        .await?;
        Ok(is_new)
    }

    /// Notes, durably, that a drive is away and may come back. False if it was noted already. Refused if the pool needs it.
    pub(crate) async fn miss_drive(&self, index: DriveIndex) -> Result<bool, PoolError> {
        self.go_on_without(index, true).await
    }

    async fn go_on_without(&self, index: DriveIndex, is_away: bool) -> Result<bool, PoolError> {
        let name = self.drive_name(index).to_owned();
        let mut is_new = false;
        self.change_members(|members| {
            let loss = self.loss_of(members, index).map_err(|why| {
                PoolError::Refused(format!("the pool cannot go on without drive {name}: {why}"))
            })?;
            let before = members.get(index).map(|member| member.state);
            self.mark_lost(members, index, is_away, loss);
            is_new = members.get(index).map(|member| member.state) != before;
            Ok(())
        })
        .await?;
        Ok(is_new)
    }

    /// Marks a drive, if the pool goes by it still: another operation of the drive may have been told of first, and what the drive
    /// holds was looked at then.
    pub(super) fn mark_lost(&self, members: &mut Members, index: DriveIndex, is_away: bool, loss: Loss) {
        if members.get(index).is_none_or(|member| !member.is_needed()) {
            return;
        }
        let now_ms = self.absence.now_ms();
        match loss {
            // It must be able to come back, also if it leaves or answered with errors.
            Loss::UntilBack | Loss::ForGood => members.keep_absent(index, now_ms),
            Loss::Nothing if is_away => members.miss(index, now_ms),
            Loss::Nothing => members.fail(index),
        }
    }

    /// What is lost with a drive, at most [`Loss::UntilBack`].
    ///
    /// # Errors
    /// Why the pool cannot go on without it: something would be lost for good, or it is the last drive of the journal, or alone
    /// holds a part of the journal that is needed.
    pub(super) fn loss_of(&self, members: &Members, index: DriveIndex) -> Result<Loss, &'static str> {
        let in_journal = |drive| members.get(drive).is_some_and(|member| member.in_journal);
        let member = match members.get(index) {
            None => return Err("it has no such drive"),
            Some(member) if !member.is_needed() => return Ok(Loss::Nothing),
            Some(member) => member,
        };
        let loss = if member.roles.data { self.loss_of_data(members, index) } else { Loss::Nothing };
        if loss == Loss::ForGood {
            return Err(HOLDS_DATA);
        }
        if members.in_journal().all(|member| member.index == index) {
            return Err("it is the only one that the journal is written to");
        }
        if self.needs.lock().iter().any(|needs| needs(index, &in_journal)) {
            return Err("a part of the journal that it needs is on no other");
        }
        Ok(loss)
    }

    /// What slices lose of data and metadata without a drive.
    fn loss_of_data(&self, members: &Members, index: DriveIndex) -> Loss {
        // A layout that tolerates no failure: the pool waits for every drive that was not evacuated.
        if self.label.layout.parity() == 0 {
            return if self.is_evacuated(members, index) { Loss::Nothing } else { Loss::ForGood };
        }
        let is_lost = |drive| members.get(drive).is_none_or(|member| !member.is_needed());
        let tenants = self.tenants.lock();
        // Only open slices can tell what a drive holds.
        if tenants.len() < usize::from(self.label.slices) {
            return Loss::ForGood;
        }
        tenants.iter().map(|tenant| tenant.loss_of(index, &is_lost)).max().unwrap_or(Loss::Nothing)
    }

    /// Whether an absent drive holds the last copy of something: that follows from nothing as drives are, and it has a part of it
    /// as it should be.
    pub(super) fn holds_last(&self, members: &Members, index: DriveIndex) -> bool {
        let is_absent = members.get(index).is_some_and(|member: &Member| member.state == MemberState::Absent);
        is_absent
            && !planted(Bug::GiveUpLast)
            && self.tenants.lock().iter().any(|tenant| tenant.holds_last(index))
    }

    /// Whether the pool can go on without the drive of this name.
    pub(crate) fn may_do_without(&self, drive: &str) -> bool {
        let drive = self.drive_named(drive);
        drive.is_some_and(|drive| self.loss_of(&self.members(), drive.index()).is_ok())
    }

    /// Goes on without a drive that failed a write or flush, durably, if the pool can. Returns `failure` if it cannot, and if
    /// the drive has not failed for good: a file system that is full is no reason to give a drive up.
    pub(crate) async fn do_without(&self, index: DriveIndex, failure: PoolError) -> Result<(), PoolError> {
        let drive = self.drive_name(index);
        if self.members().get(index).is_some_and(|member| !member.is_needed()) {
            return Ok(());
        }
        if !self.columns.drive(index).is_ok_and(|drive| drive.is_failed()) {
            // A drive that failed it, and has not failed: it was lost, and is back since. What it lacks is known.
            return if failure.is_of_failed_drive() { Ok(()) } else { Err(failure) };
        }
        match self.go_on_without(index, self.is_away(index)).await {
            Ok(true) => {
                tracing::error!(pool = %self.pool_name(), %drive, %failure, "the pool goes on without a drive");
                Ok(())
            }
            // Another operation of the drive was told of first.
            Ok(false) => Ok(()),
            Err(refused) => {
                tracing::error!(pool = %self.pool_name(), %drive, %refused, "a drive failed");
                Err(failure)
            }
        }
    }

    /// Goes on without drives whose grants could not be written, if the pool can.
    pub(super) async fn do_without_all(&self, failed: FailedDrives) -> Result<(), PoolError> {
        for (drive, error) in failed {
            self.do_without(drive, error.into()).await?;
        }
        Ok(())
    }
}
