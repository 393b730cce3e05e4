//! Segments that cannot be read as drives are, because more of them are away than the layout tolerates.
//!
//! Nothing of them is lost: they are as they were when the drives are back. Until then nothing touches them. They are not
//! cleaned, moved or converted, and what cannot be read of them does not count as damaged. What is overwritten or unmapped in
//! them is given back as always.

use super::{Inner, Losses, Segment, SegmentState, SegmentTable};
use crate::format::GRAIN_BYTES;
use quoin_base::{DriveIndex, SegmentId};
use quoin_world::atomic::Ordering;
use std::collections::BTreeSet;

/// What an opening finds that it cannot read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct LostNow {
    /// The pool cannot be opened without it, in words.
    pub metadata: Option<String>,
    /// Segments of data, and the live bytes in them, that are readable again when drives are back.
    pub segments: u64,
    pub bytes: u64,
}

impl Inner {
    /// Whether a segment lacks more columns than it can do without, with the drives that are there.
    pub(super) fn is_unreadable(&self, segment: &Segment) -> bool {
        segment.state != SegmentState::Free && !segment.survives(self.gone(segment))
    }
}

impl SegmentTable {
    /// Whether there may be a segment that lacks too many columns to be read. While false, callers need not look.
    pub(crate) fn may_be_unreadable(&self) -> bool {
        self.may_be_unreadable.load(Ordering::Acquire)
    }

    /// Drives were lost or are back. Called with the lock under which that is noted.
    pub(super) fn note_unreadable(&self, inner: &Inner) {
        let is_any = inner.segments.iter().any(|segment| inner.is_unreadable(segment));
        self.may_be_unreadable.store(is_any, Ordering::Release);
    }

    /// The segments that cannot be read as drives are.
    pub(crate) fn unreadable(&self) -> BTreeSet<u32> {
        if !self.may_be_unreadable() {
            return BTreeSet::new();
        }
        let inner = self.inner.read();
        let unreadable = (0..).zip(&inner.segments).filter(|(_, segment)| inner.is_unreadable(segment));
        unreadable.map(|(id, _)| id).collect()
    }

    /// Whether a segment cannot be read as drives are.
    pub(crate) fn is_unreadable(&self, id: SegmentId) -> bool {
        if !self.may_be_unreadable() {
            return false;
        }
        let inner = self.inner.read();
        inner.segments.get(id.0 as usize).is_some_and(|segment| inner.is_unreadable(segment))
    }

    /// How many segments with anything in them cannot be read, and how many bytes that are used, or will be.
    pub(super) fn unreadable_figures(&self, inner: &Inner) -> (u64, u64) {
        if !self.may_be_unreadable() {
            return (0, 0);
        }
        let is_any = |segment: &&Segment| segment.holds_anything() && inner.is_unreadable(segment);
        let bytes = |segment: &Segment| {
            (u64::from(segment.live_grains) + u64::from(segment.placed_grains)) * GRAIN_BYTES
        };
        inner
            .segments
            .iter()
            .filter(is_any)
            .fold((0, 0), |(segments, sum), segment| (segments + 1, sum + bytes(segment)))
    }

    /// Whether a drive that may come back has a column of a segment as it should be.
    pub(crate) fn awaits(&self, id: SegmentId) -> bool {
        let inner = self.inner.read();
        inner.segments.get(id.0 as usize).is_some_and(|segment| {
            let columns = segment.stripes.columns.iter().enumerate();
            let mut sound = columns.filter(|(place, _)| !segment.stripes.missing.has(*place));
            sound.any(|(_, column)| inner.absent.contains(&column.drive))
        })
    }

    /// Whether a segment has all its columns, as they should be.
    pub(crate) fn is_whole(&self, id: SegmentId) -> bool {
        let inner = self.inner.read();
        inner.segments.get(id.0 as usize).is_some_and(|segment| inner.gone(segment).is_empty())
    }

    /// Whether there is any segment that cannot be read.
    pub(crate) fn is_any_unreadable(&self) -> bool {
        !self.unreadable().is_empty()
    }

    /// What would be lost for good without an absent drive: it follows from nothing, and the drive has a part of it. That goes for
    /// what is in RAM and for what an opening would find.
    pub(crate) fn last_copies_on(&self, drive: DriveIndex) -> Losses {
        let inner = self.inner.read();
        let is_lost = |drive: DriveIndex| !inner.held_slabs.contains_key(&drive);
        let before = inner.named_before();
        let mut losses = Losses::default();
        for (id, segment) in inner.in_use() {
            let before = before.get(&id);
            let is_unreadable = !segment.survives(segment.lost_if(&is_lost, before));
            let is_left =
                before.into_iter().flatten().any(|left| left.column.drive == drive && !left.was_missing);
            let has_part = is_left || !segment.columns_on(drive).without(segment.stripes.missing).is_empty();
            if is_unreadable && has_part {
                losses.segments += 1;
                losses.bytes += u64::from(segment.live_grains) * GRAIN_BYTES;
            }
        }
        losses
    }

    /// What cannot be read as drives are, when the pool is about to be opened.
    pub(crate) fn lost_now(&self) -> LostNow {
        let inner = self.inner.read();
        let is_lost = |drive: DriveIndex| !inner.held_slabs.contains_key(&drive);
        let mut lost = LostNow::default();
        let mut of_metadata = 0;
        for segment in inner.segments.iter().filter(|segment| inner.is_unreadable(segment)) {
            // What is marked on more columns than that is nowhere.
            if segment.stream.is_metadata() || !segment.survives(segment.stripes.missing) {
                of_metadata += 1;
            } else {
                lost.segments += 1;
                lost.bytes += u64::from(segment.live_grains) * GRAIN_BYTES;
            }
        }
        let named = self.table_slabs.named();
        let has_table = !named.iter().any(|columns| columns.iter().all(|column| is_lost(column.drive)));
        lost.metadata = match (of_metadata, has_table) {
            (0, true) => None,
            (0, false) => Some("its table of segments is on no other drive".to_owned()),
            (count, _) => {
                Some(format!("{count} segments of metadata lack more columns than they can do without"))
            }
        };
        lost
    }
}
