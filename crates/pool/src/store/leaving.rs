//! Drives that leave the pool while it serves.
//!
//! A drive that leaves gets nothing new: neither segments, nor copies of the segment table, nor extents of the journal. What it
//! holds moves to other drives. It is gone, durably, when nothing refers to it any more; then no opening needs it.
//!
//! Invariants:
//! 1. A drive leaves durably before anything that it holds moves because of that. So an opening goes on with it.
//! 2. A drive is gone only when nothing refers to it, in RAM or in a checkpoint that may be opened.
//! 3. It stops voting in a change of its own or with its going, and other drives with all roots vote before that.

use super::{Store, Tenant, domains_of};
use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    meta::{Layouts, SpareDomains},
};
use quoin_base::{DriveIndex, Layout};
use quoin_drive::{Member, MemberState, Members};
use quoin_world::AsyncMutexGuard;
use std::sync::Arc;

/// A drive of which nothing is used while it is found out whether it may leave.
pub(crate) struct Trial<'a> {
    store: &'a Store,
    drive: DriveIndex,
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        *self.store.may_leave.lock() = None;
        let members = self.store.members();
        let is_active = members.get(self.drive).is_some_and(|member| member.state == MemberState::Active);
        self.store.grants.leave_out(self.drive, !is_active);
        self.store.tenants.lock().iter().for_each(|tenant| tenant.lay_out());
    }
}

impl Store {
    /// Reckons with layouts that volumes have beside the pool's, until it is closed. True if any is new: tenants are to lay out
    /// anew then.
    pub(crate) fn note_layouts(&self, layouts: impl IntoIterator<Item = Layout>) -> bool {
        let mut noted = self.volume_layouts.lock();
        let before = noted.len();
        noted.extend(layouts.into_iter().filter(|layout| *layout != self.label.layout));
        noted.len() > before
    }

    /// How new segments are laid out without a drive.
    pub(crate) fn layouts_but(&self, but: Option<DriveIndex>) -> Layouts {
        self.layouts_sparing(self.spare_domains(), but, None)
    }

    /// The same with so many fault domains kept spare, and as if drive `gone` had been removed.
    pub(crate) fn layouts_sparing(
        &self,
        spare: u8,
        but: Option<DriveIndex>,
        gone: Option<DriveIndex>,
    ) -> Layouts {
        let members = self.members();
        let is_hit = |member: &&Member| {
            let serves = member.state == MemberState::Active && Some(member.index) != but;
            let is_there = member.state != MemberState::Gone && Some(member.index) != gone;
            member.roles.data && is_there && !serves
        };
        let domains = domains_of(&members);
        let hit = members.all.iter().filter(is_hit).filter_map(|member| domains.get(&member.index).copied());
        let spare = SpareDomains { count: spare, hit: hit.collect() };
        let takes = |member: &Member| member.state == MemberState::Active && Some(member.index) != but;
        let holds = domains.into_iter().filter(|(drive, _)| {
            members.get(*drive).is_some_and(|member| member.roles.data && member.is_needed())
        });
        let (takes, leaves) = holds.partition(|(drive, _)| members.get(*drive).is_some_and(takes));
        Layouts::new(self.label.layout, self.label.row_bytes, takes)
            .with_journal(self.label.journal_columns)
            .with(self.volume_layouts.lock().iter().copied())
            .beside(leaves)
            .sparing(spare)
    }

    /// Whether volumes have layouts beside the pool's.
    pub(crate) fn has_volume_layouts(&self) -> bool {
        !self.volume_layouts.lock().is_empty()
    }

    /// Whether no more than `most` layouts would be noted with these.
    pub(crate) fn may_note_layouts(&self, layouts: impl IntoIterator<Item = Layout>, most: usize) -> bool {
        let mut noted = self.volume_layouts.lock().clone();
        let before = noted.len();
        noted.extend(layouts.into_iter().filter(|layout| *layout != self.label.layout));
        noted.len() == before || noted.len() <= most
    }

    /// Has slices reckon with the layouts and drives that there are now.
    pub(crate) fn lay_out_tenants(&self) {
        self.tenants.lock().iter().for_each(|tenant| tenant.lay_out());
    }

    /// One drive is added or leaves at a time.
    pub(crate) async fn turn_of_drives(&self) -> AsyncMutexGuard<'_> {
        self.adding.lock().await
    }

    /// From now on, until what is returned is dropped, nothing new is put on a drive.
    pub(crate) fn try_without(&self, drive: DriveIndex) -> Trial<'_> {
        *self.may_leave.lock() = Some(drive);
        self.grants.leave_out(drive, true);
        self.tenants.lock().iter().for_each(|tenant| tenant.lay_out());
        Trial { store: self, drive }
    }

    /// A drive leaves, durably, or stays after all.
    pub(crate) async fn set_leaving(&self, drive: DriveIndex, leaves: bool) -> Result<(), PoolError> {
        self.change_members(|members| {
            if let Some(member) = members.get_mut(drive).filter(|member| member.is_needed()) {
                member.state = if leaves { MemberState::Leaving } else { MemberState::Active };
            }
            Ok(())
        })
        .await
    }

    /// The drives that leave.
    pub(crate) fn leaving(&self) -> Vec<DriveIndex> {
        let members = self.members();
        let leave = members.all.iter().filter(|member| member.state == MemberState::Leaving);
        leave.map(|member| member.index).collect()
    }

    /// Whether nothing refers to a drive.
    pub(crate) fn is_let_go(&self, drive: DriveIndex) -> bool {
        let tenants = self.tenants.lock();
        let refers = |tenant: &Arc<dyn Tenant>| tenant.refers_to(drive);
        planted(Bug::GoneTooSoon)
            || tenants.len() == usize::from(self.label.slices) && !tenants.iter().any(refers)
    }

    /// Whether a drive leaves and nothing refers to it any more.
    pub(super) fn is_evacuated(&self, members: &Members, drive: DriveIndex) -> bool {
        let leaves = members.get(drive).is_some_and(|member| member.state == MemberState::Leaving);
        leaves && self.is_let_go(drive)
    }

    /// A drive that left or failed, and that nothing refers to, is gone, durably.
    pub(crate) async fn set_gone(&self, drive: DriveIndex) -> Result<(), PoolError> {
        self.appoint_beside(drive).await?;
        self.change_members(|members| {
            if let Some(member) = members.get_mut(drive) {
                (member.state, member.in_journal, member.votes) = (MemberState::Gone, false, false);
            }
            Ok(())
        })
        .await
    }

    /// Tells slices of what another table of members says about a drive that leaves or left.
    pub(super) fn tell_of_leaving(&self, tenants: &[Arc<dyn Tenant>], was: &Member, is: &Member) {
        match (was.state, is.state) {
            (MemberState::Active, MemberState::Leaving) | (MemberState::Leaving, MemberState::Active) => {
                tenants.iter().for_each(|tenant| tenant.lay_out());
            }
            (MemberState::Leaving | MemberState::Failed, MemberState::Gone) => {
                tenants.iter().for_each(|tenant| tenant.forget(is.index));
            }
            _ => {}
        }
    }
}
