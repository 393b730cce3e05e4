//! Drives that leave: what they hold still, and that nothing refers to one any more.
//!
//! A drive is gone only when nothing refers to it: no segment, not even one that waits for a checkpoint, no slab that a column
//! left and a durable checkpoint may name, and no copy of a table slab.

use super::{Inner, Segment, SegmentState, SegmentTable};
use crate::{
    bugs::{Bug, planted},
    format::GRAIN_BYTES,
    meta::layouts::Layouts,
};
use quoin_base::{DriveIndex, SegmentId};
use quoin_world::atomic::Ordering;

/// What a drive holds that is to lie elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Holdings {
    /// Columns of segments with anything live in them, and how many bytes were written to those.
    pub columns: u64,
    pub bytes: u64,
    /// Slabs that wait for a checkpoint, and copies of the segment table.
    pub awaits_checkpoint: bool,
    pub has_table: bool,
}

/// What a slice would have with other layouts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetUse {
    /// Net slabs that it holds and that hosts may fill, and those that are free.
    pub held: u64,
    pub free: u64,
    /// Bytes that live data takes of them.
    pub live: u64,
}

impl Holdings {
    /// Nothing.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.columns += other.columns;
        self.bytes += other.bytes;
        self.awaits_checkpoint |= other.awaits_checkpoint;
        self.has_table |= other.has_table;
    }
}

impl Segment {
    fn is_on(&self, drive: DriveIndex) -> bool {
        self.state != SegmentState::Free && self.stripes.columns.iter().any(|column| column.drive == drive)
    }
}

impl Inner {
    /// Whether a segment is not to be added to any more: it lacks a column, has one on a drive that leaves, or tolerates fewer
    /// failures than a new one would.
    fn is_unfit(&self, segment: &Segment) -> bool {
        let is_fit = |drive| self.held_slabs.contains_key(&drive) && self.layouts.takes(drive);
        !segment.stripes.missing.is_empty()
            || self.is_narrow(segment)
            || !segment.stripes.columns.iter().all(|column| is_fit(column.drive))
    }
}

impl SegmentTable {
    /// Lays out new data and metadata so from now on.
    pub(crate) fn set_layouts(&self, layouts: Layouts) {
        let mut inner = self.inner.write();
        let before = std::mem::replace(&mut inner.layouts, layouts);
        let leaves =
            inner.held_slabs.keys().any(|drive| before.takes(*drive) && !inner.layouts.takes(*drive));
        if leaves || before.of_data().parity() < inner.layouts.of_data().parity() {
            // Open segments may have become unfit to be added to.
            self.losses.fetch_add(1, Ordering::AcqRel);
        }
        self.may_be_displaced.store(true, Ordering::Release);
    }

    /// What the slice would have if new data was laid out so.
    pub(crate) fn usage_as(&self, layouts: &Layouts) -> NetUse {
        let inner = self.inner.read();
        NetUse {
            held: inner.net_for_hosts_as(layouts),
            free: inner.net_free_as(layouts),
            live: inner.net_live_grains_as(layouts) * GRAIN_BYTES,
        }
    }

    /// A segment that is in use.
    pub(crate) fn segment(&self, id: SegmentId) -> Option<Segment> {
        let inner = self.inner.read();
        inner.segments.get(id.0 as usize).filter(|segment| segment.state != SegmentState::Free).cloned()
    }

    /// Whether a segment is not to be added to any more.
    pub(crate) fn is_unfit(&self, id: SegmentId) -> bool {
        let inner = self.inner.read();
        inner.segments.get(id.0 as usize).is_some_and(|segment| inner.is_unfit(segment))
    }

    /// What a drive holds.
    pub(crate) fn holdings(&self, drive: DriveIndex) -> Holdings {
        let inner = self.inner.read();
        let mut holdings = Holdings { has_table: self.table_slabs.is_on(drive), ..Holdings::default() };
        for segment in inner.segments.iter().filter(|segment| segment.is_on(drive)) {
            if segment.state == SegmentState::Quarantined {
                holdings.awaits_checkpoint = true;
                continue;
            }
            holdings.columns += 1;
            holdings.bytes += segment.written_bytes / u64::from(segment.stripes.geometry.data);
        }
        holdings.awaits_checkpoint |= inner.left_slabs.iter().any(|left| left.column.drive == drive);
        holdings
    }

    /// Whether anything refers to a drive, here or in a checkpoint that may be opened.
    pub(crate) fn refers_to(&self, drive: DriveIndex) -> bool {
        !self.holdings(drive).is_empty()
    }

    /// Live bytes of data and metadata that have a column on a drive.
    pub(crate) fn live_on(&self, drive: DriveIndex) -> u64 {
        let inner = self.inner.read();
        let on_it = inner.segments.iter().filter(|segment| segment.is_on(drive));
        let of = |segment: &Segment| {
            u64::from(segment.live_grains) * GRAIN_BYTES / u64::from(segment.stripes.geometry.data)
        };
        on_it.map(of).sum()
    }

    /// A drive is gone, durably: its slabs are no more.
    pub(crate) fn forget(&self, drive: DriveIndex) {
        assert!(
            !self.refers_to(drive) || planted(Bug::GoneTooSoon),
            "drive {drive} is gone, and something refers to it"
        );
        let mut inner = self.inner.write();
        inner.free_slabs.remove(&drive);
        inner.held_slabs.remove(&drive);
    }

    /// Whether anything that is to lie elsewhere waits for a checkpoint before it can be moved, or before what it left can be
    /// used again.
    pub(crate) fn moves_await_checkpoint(&self) -> bool {
        let inner = self.inner.read();
        let waits = |segment: &Segment| {
            let waits = match segment.state {
                SegmentState::Sealed => segment.written_in > inner.hardened,
                SegmentState::Quarantined => true,
                SegmentState::Free | SegmentState::Open => false,
            };
            waits && inner.is_unfit(segment)
        };
        !inner.left_slabs.is_empty() || inner.segments.iter().any(waits)
    }
}
