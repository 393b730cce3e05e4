//! The slabs of the journal, and the drives that it is on.

use super::Store;
use quoin_base::{DriveIndex, SliceId};
use quoin_drive::{Drive, Member, MemberState};
use quoin_stripe::Column;
use std::{collections::BTreeSet, sync::Arc};

/// The slabs on a drive that are of a slice's journal.
fn slabs_on(drive: &Arc<Drive>, slice: SliceId) -> impl Iterator<Item = Column> + use<> {
    let label = drive.label();
    let slabs = (0..label.journal_slabs).skip(slice.0.into()).step_by(label.slices.into());
    slabs.map(move |slab| Column { drive: label.index, slab })
}

impl Store {
    /// The slabs of a slice's journal: they belong to the slices in turn.
    pub(crate) fn journal_slabs(&self, slice: SliceId) -> Vec<Column> {
        let members = self.members();
        let in_journal =
            |drive: &&Arc<Drive>| members.get(drive.index()).is_some_and(|member| member.in_journal);
        self.drives().filter(in_journal).flat_map(|drive| slabs_on(drive, slice)).collect()
    }

    /// Those of them that are on one drive.
    pub(crate) fn journal_slabs_on(&self, slice: SliceId, drive: DriveIndex) -> Vec<u32> {
        let drive = self.columns.drive(drive).ok();
        drive.into_iter().flat_map(|drive| slabs_on(drive, slice)).map(|column| column.slab).collect()
    }

    /// Whether new extents of the journal have fewer columns than they should.
    pub(crate) fn journal_lacks_columns(&self) -> bool {
        let members = self.members();
        let domains = self.domains();
        let takes = members.in_journal().filter(|member| member.state == MemberState::Active);
        let takes: BTreeSet<_> = takes.filter_map(|member| domains.get(&member.index).copied()).collect();
        takes.len() < self.journal_columns()
    }

    /// On how many drives an extent of the journal is to lie.
    pub(crate) fn journal_columns(&self) -> usize {
        self.label.journal_columns.into()
    }

    /// Whether the pool never went on without a drive of the journal, so that its extents have all their columns.
    pub(crate) fn journal_set_is_whole(&self) -> bool {
        let was_lost = |member: &Member| {
            member.roles.journal && member.state != MemberState::Gone && member.failed_at.0 > 0
        };
        !self.members().all.iter().any(was_lost)
    }
}
