//! Drives that are absent, and that come back.
//!
//! Invariants:
//! 1. Columns that lack something are missing in the table before the drive comes back: see `losses.rs`. All others hold what
//!    they should.
//! 2. A slab of a drive that comes back is free if nothing in RAM has it. The durable checkpoint, which knows of the loss, names
//!    nothing there that RAM does not know.

use super::{SegmentState, SegmentTable};
use crate::bugs::{Bug, planted};
use quoin_base::{DriveIndex, MembersGeneration};
use quoin_stripe::Column;
use quoin_world::atomic::Ordering;
use std::collections::BTreeSet;

impl SegmentTable {
    /// A drive that was absent has failed: what it holds is made again.
    pub(crate) fn give_up(&self, drive: DriveIndex) {
        let mut inner = self.inner.write();
        inner.absent.remove(&drive);
        self.may_be_displaced.store(true, Ordering::Release);
    }

    /// A drive that was absent is back, as the table of members of this generation says, which is durable. The slice was granted
    /// these slabs of it.
    pub(crate) fn take_back(&self, drive: DriveIndex, granted: BTreeSet<u32>, members: MembersGeneration) {
        let mut inner = self.inner.write();
        inner.absent.remove(&drive);
        let in_use = inner.segments.iter().filter(|segment| segment.state != SegmentState::Free);
        let of_segments = in_use.flat_map(|segment| segment.stripes.columns.iter().copied());
        let left = inner.left_slabs.iter().map(|left| left.column);
        let filled = inner.filled_in_vain.iter().copied();
        let taken: BTreeSet<_> =
            of_segments.chain(left).chain(filled).filter(|at: &Column| at.drive == drive).collect();
        assert!(!self.table_slabs.is_on(drive), "copies of table slabs are not on a drive that was lost");
        let is_free = |slab: &u32| !taken.contains(&Column { drive, slab: *slab });
        let free: BTreeSet<_> = granted.iter().copied().filter(is_free).collect();
        inner.held_slabs.insert(drive, granted.len() as u64);
        inner.free_slabs.insert(drive, free);
        if planted(Bug::ForgetMissed) {
            for segment in &mut inner.segments {
                let here = segment.columns_on(drive);
                segment.stripes.missing = segment.stripes.missing.without(here);
            }
        }
        inner.members_known = inner.members_known.max(members);
        self.note_unreadable(&inner);
        self.may_be_displaced.store(true, Ordering::Release);
        // Open segments are laid out without it.
        self.losses.fetch_add(1, Ordering::AcqRel);
    }
}
