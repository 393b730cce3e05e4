//! The drives that the journal is written to.

use super::Store;
use quoin_base::{DriveIndex, SliceId};
use quoin_drive::{Drive, Member, MemberState};
use quoin_stripe::Column;
use std::{collections::BTreeSet, sync::Arc};

/// The slabs on a drive that are of a slice's journal.
fn journal_slabs_on(drive: &Arc<Drive>, slice: SliceId) -> impl Iterator<Item = Column> + use<> {
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
        self.drives().filter(in_journal).flat_map(|drive| journal_slabs_on(drive, slice)).collect()
    }

    /// Those of them that are on one drive.
    pub(crate) fn journal_slabs_of(&self, slice: SliceId, drive: DriveIndex) -> Vec<Column> {
        self.columns.drive(drive).map(|drive| journal_slabs_on(drive, slice).collect()).unwrap_or_default()
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

    /// Whether no drive of the journal has failed, so that its extents have all their columns.
    pub(crate) fn journal_set_is_whole(&self) -> bool {
        let has_failed = |member: &Member| member.roles.journal && member.state == MemberState::Failed;
        !self.members().all.iter().any(has_failed)
    }

    /// Generation of the set of drives that the journal is written to.
    pub(crate) fn journal_set(&self) -> u64 {
        self.membership.journal_set()
    }
}
