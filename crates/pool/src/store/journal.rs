//! The slabs of the journal, and the drives that it is on.

use super::Store;
use quoin_base::{DriveIndex, SliceId};
use quoin_drive::{Drive, Member, MemberState};
use quoin_stripe::Column;
use std::sync::Arc;

impl Store {
    /// The slabs of a slice's journal: they belong to the slices in turn.
    pub(crate) fn journal_slabs(&self, slice: SliceId) -> Vec<Column> {
        let members = self.members();
        let in_journal =
            |drive: &&Arc<Drive>| members.get(drive.index()).is_some_and(|member| member.in_journal);
        let of = |drive: &Arc<Drive>| {
            let label = drive.label();
            let slabs = (0..label.journal_slabs).skip(slice.0.into()).step_by(label.slices.into());
            slabs.map(move |slab| Column { drive: label.index, slab })
        };
        self.drives().filter(in_journal).flat_map(of).collect()
    }

    /// The slabs of a slice's journal on a drive that holds it.
    pub(crate) fn journal_slabs_on(&self, slice: SliceId, drive: DriveIndex) -> Vec<u32> {
        let of_drive = self.journal_slabs(slice).into_iter().filter(|column| column.drive == drive);
        of_drive.map(|column| column.slab).collect()
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
