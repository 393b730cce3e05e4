//! Drives that the pool goes on without, and what that means for segments.
//!
//! A column *is missing* if it does not hold all that was written to its segment: its drive failed before that was hardened
//! there. A rebuild fills it elsewhere; until then nothing is read from it, also if its drive comes back. Other columns of a
//! drive that failed hold what they should, and are current again as soon as the drive is.
//!
//! Invariants:
//! 1. When the pool has gone on without a drive, every column on it whose segment has rows that no flush has hardened there is
//!    missing in the table, before any row counts that was written without it.
//! 2. What the pool survives is judged by what it has in RAM and by what an opening would find: a column that was moved, or a
//!    copy of a table slab that was made, since the last durable checkpoint counts with the one that it replaced. Whichever
//!    of the two is lost counts as lost.
//! 3. A root tells up to which table of members its segment table knows of losses. For drives that failed later, an opening
//!    finds the columns that are missing by when their segments were last written to.

use super::{Inner, LeftSlab, Segment, SegmentState, SegmentTable};
use crate::bugs::{Bug, planted};
use quoin_base::{CheckpointGeneration, DriveIndex, MembersGeneration, PageNumber};
use quoin_stripe::{Column, ColumnSet};
use quoin_world::atomic::Ordering;
use std::collections::BTreeMap;

/// What would be lost without a drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Losses {
    /// Segments in use.
    pub segments: u64,
    /// Live bytes in them.
    pub bytes: u64,
    /// A table slab, without which no segment is found.
    pub table: bool,
}

impl Segment {
    /// Its columns on a drive.
    pub(super) fn columns_on(&self, drive: DriveIndex) -> ColumnSet {
        let on_it = self.stripes.columns.iter().enumerate().filter(|(_, column)| column.drive == drive);
        on_it.fold(ColumnSet::default(), |set, (place, _)| set.with(ColumnSet::one(place)))
    }

    /// The columns that are lost if these drives are. `before`: those that took the place of others and are not in a durable
    /// checkpoint yet are lost, too, where the others are.
    fn lost_if(&self, is_lost: &dyn Fn(DriveIndex) -> bool, before: Option<&Vec<&LeftSlab>>) -> ColumnSet {
        let here = self.stripes.columns.iter().enumerate();
        let here = here.filter(|(_, column)| is_lost(column.drive)).map(|(place, _)| place);
        let left = before.into_iter().flatten().filter(|left| left.was_missing || is_lost(left.column.drive));
        let lost = here.chain(left.map(|left| left.place));
        lost.fold(self.stripes.missing, |lost, place| lost.with(ColumnSet::one(place)))
    }

    /// Whether so many columns may be gone without loss of data.
    fn survives(&self, gone: ColumnSet) -> bool {
        gone.len() <= usize::from(self.stripes.geometry.parity)
    }
}

impl SegmentTable {
    /// Whether data or metadata would be lost without a drive, beside those that are lost already.
    pub(crate) fn would_lose(&self, drive: DriveIndex, is_lost: &dyn Fn(DriveIndex) -> bool) -> bool {
        let inner = self.inner.read();
        if self.loses_table(drive, is_lost) {
            return true;
        }
        inner.lost_segments(drive, is_lost).next().is_some()
    }

    /// The same with how much it is.
    pub(crate) fn lost_without(&self, drive: DriveIndex, is_lost: &dyn Fn(DriveIndex) -> bool) -> Losses {
        let inner = self.inner.read();
        let mut losses = Losses { table: self.loses_table(drive, is_lost), ..Losses::default() };
        for segment in inner.lost_segments(drive, is_lost) {
            losses.segments += 1;
            losses.bytes += u64::from(segment.live_sectors) * quoin_base::SECTOR_BYTES;
        }
        losses
    }

    /// Whether a table slab has its last copy on a drive, in RAM or in the last durable root.
    fn loses_table(&self, drive: DriveIndex, is_lost: &dyn Fn(DriveIndex) -> bool) -> bool {
        let is_last = |columns: &[Column]| {
            columns.iter().any(|column| column.drive == drive)
                && columns.iter().all(|column| column.drive == drive || is_lost(column.drive))
        };
        let durable = self.table_slabs.named_before();
        self.table_slabs.named().iter().any(|columns| is_last(columns))
            || durable.iter().any(|columns| is_last(columns)) && !planted(Bug::CountUnnamed)
    }

    /// What is lost as drives are, in words; `None` if nothing.
    pub(crate) fn lost_now(&self) -> Option<String> {
        let inner = self.inner.read();
        let is_lost = |drive: DriveIndex| !inner.held_slabs.contains_key(&drive);
        let in_use = inner.segments.iter().filter(|segment| segment.state != SegmentState::Free);
        let lost = in_use.filter(|segment| !segment.survives(segment.lost_if(&is_lost, None))).count();
        let has_table = self
            .table_slabs
            .named()
            .iter()
            .all(|columns| !columns.iter().all(|column| is_lost(column.drive)));
        match (lost, has_table) {
            (0, true) => None,
            (0, false) => Some("its table of segments is on no other drive".to_owned()),
            (count, _) => Some(format!("{count} segments lack more columns than they can do without")),
        }
    }

    /// How many failures all that is in use survives.
    pub(crate) fn tolerates(&self) -> u8 {
        let inner = self.inner.read();
        let (is_lost, before) =
            (|drive: DriveIndex| !inner.held_slabs.contains_key(&drive), inner.named_before());
        let in_use = (0..).zip(&inner.segments).filter(|(_, segment)| segment.state != SegmentState::Free);
        let of_segments = in_use.map(|(id, segment)| {
            let gone = segment.lost_if(&is_lost, before.get(&id));
            usize::from(segment.stripes.geometry.parity).saturating_sub(gone.len())
        });
        let apart = |columns: &[Column]| {
            let mut domains: Vec<_> =
                columns.iter().map(|column| inner.layouts.domain(column.drive).ok_or(column.drive)).collect();
            domains.sort_unstable();
            domains.dedup();
            domains.len().saturating_sub(1)
        };
        let named = self.table_slabs.named().into_iter().chain(self.table_slabs.named_before());
        let of_table = named.map(|columns| apart(&columns));
        of_segments.chain(of_table).min().map_or(u8::MAX, |least| u8::try_from(least).unwrap_or(u8::MAX))
    }

    /// Slabs of a drive that segments and the table use.
    pub(crate) fn used_of(&self, drive: DriveIndex) -> u64 {
        let inner = self.inner.read();
        let held = inner.held_slabs.get(&drive).copied().unwrap_or(0);
        held - inner.free_slabs.get(&drive).map_or(0, |free| free.len() as u64)
    }

    /// The pool goes on without a drive, as the table of members of this generation says, which is durable.
    pub(crate) fn lose(&self, drive: DriveIndex, is_absent: bool, members: MembersGeneration) {
        let mut inner = self.inner.write();
        // Nothing more is put there.
        inner.free_slabs.remove(&drive);
        inner.held_slabs.remove(&drive);
        inner.being_filled.retain(|column| column.drive != drive);
        if is_absent {
            inner.absent.insert(drive);
        }
        // What no flush has hardened there may be lost with it.
        let hardened = inner.hardened;
        for id in 1..inner.segments.len() {
            let segment = &inner.segments[id];
            let may_lack_rows = segment.state == SegmentState::Open
                || segment.written_in > hardened
                || segment.placed_sectors > 0
                || segment.last_placed.is_some();
            if segment.state != SegmentState::Free && may_lack_rows {
                inner.miss(id as u32, drive);
            }
        }
        self.table_slabs.lose(drive);
        self.may_be_displaced.store(true, Ordering::Release);
        self.losses.fetch_add(1, Ordering::AcqRel);
        inner.members_known = inner.members_known.max(members);
    }

    /// The same for an opening: the root says what its table knows of losses.
    pub(super) fn lose_before(
        &self,
        drive: DriveIndex,
        members: MembersGeneration,
        root: CheckpointGeneration,
    ) {
        let mut inner = self.inner.write();
        if members > inner.members_known {
            for id in 1..inner.segments.len() {
                let segment = &inner.segments[id];
                let may_lack_rows = segment.state == SegmentState::Open || segment.written_in >= root;
                if segment.state != SegmentState::Free && may_lack_rows {
                    inner.miss(id as u32, drive);
                }
            }
        }
        self.table_slabs.lose(drive);
    }

    /// It knows of all drives that were lost up to this table of members.
    pub(super) fn knows_losses_of(&self, members: MembersGeneration) {
        let mut inner = self.inner.write();
        inner.members_known = inner.members_known.max(members);
    }

    /// Grows with every drive that is lost or leaves: open segments may have become unfit to be added to.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// Generation of the newest table of members whose losses the table knows. Asked for before the table's pages are fixed for
    /// a checkpoint, and told by its root.
    pub(crate) fn members_known(&self) -> MembersGeneration {
        self.inner.read().members_known
    }

    /// What is written and moved from here on is not in the checkpoint of this generation. False, and nothing has happened, if
    /// a page of the table changed that is not among those with a place: the checkpoint needs it.
    ///
    /// It happens before the table is fixed. So what is written or moved in between may be in the checkpoint, and counts as if
    /// it was not.
    pub(crate) fn cut(
        &self,
        generation: CheckpointGeneration,
        has_place: impl Fn(&PageNumber) -> bool,
    ) -> bool {
        let mut inner = self.inner.write();
        let is_ready = inner.dirty_pages.iter().all(has_place);
        if is_ready {
            inner.next_checkpoint = generation.next();
        }
        is_ready
    }

    /// The root of this generation is the newest: the next checkpoint follows it.
    pub(crate) fn goes_on_from(&self, root: CheckpointGeneration) {
        let mut inner = self.inner.write();
        (inner.durable, inner.next_checkpoint) = (root, root.next());
    }

    /// What was written before the cut of the checkpoint of this generation is hardened on all drives that the pool has.
    pub(crate) fn hardened(&self, generation: CheckpointGeneration) {
        self.inner.write().hardened = generation;
    }
}

impl Inner {
    /// By segment, the columns that others took the place of and that the last durable checkpoint may name.
    fn named_before(&self) -> BTreeMap<u32, Vec<&LeftSlab>> {
        let mut before = BTreeMap::<u32, Vec<&LeftSlab>>::new();
        let is_named = |left: &&LeftSlab| left.wait.generation > self.durable && !planted(Bug::CountUnnamed);
        for left in self.left_slabs.iter().filter(is_named) {
            before.entry(left.wait.id.0).or_default().push(left);
        }
        before
    }

    /// The segments that would be lost without a drive, beside those for which `is_lost` is true.
    fn lost_segments<'a>(
        &'a self,
        drive: DriveIndex,
        is_lost: &'a dyn Fn(DriveIndex) -> bool,
    ) -> impl Iterator<Item = &'a Segment> {
        let before = self.named_before();
        let is_lost_then = move |other: DriveIndex| other == drive || is_lost(other);
        // What is quarantined may be in the last checkpoint.
        let in_use = (0..).zip(&self.segments).filter(|(_, segment)| segment.state != SegmentState::Free);
        let lost = in_use.filter(move |(id, segment)| {
            let before = before.get(id);
            let mut left = before.into_iter().flatten();
            let is_concerned =
                !segment.columns_on(drive).is_empty() || left.any(|left| left.column.drive == drive);
            is_concerned && !segment.survives(segment.lost_if(&is_lost_then, before))
        });
        lost.map(|(_, segment)| segment)
    }

    /// The column of a segment on a drive is missing from now on, if there is one.
    fn miss(&mut self, id: u32, drive: DriveIndex) {
        let segment = &mut self.segments[id as usize];
        let missing = segment.stripes.missing.with(segment.columns_on(drive));
        if missing != segment.stripes.missing {
            segment.stripes.missing = missing;
            self.dirty(id);
        }
    }

    /// Columns of a segment on drives that are not there any more are missing: it was opened after the checkpoint.
    pub(super) fn miss_absent(&mut self, id: u32) {
        for column in self.segments[id as usize].stripes.columns.clone().iter() {
            if !self.held_slabs.contains_key(&column.drive) {
                self.miss(id, column.drive);
            }
        }
    }

    /// A slab comes free. Of a drive that was lost it will be found when the drive comes back.
    pub(super) fn comes_free(&mut self, column: Column) {
        let Column { drive, slab } = column;
        if self.held_slabs.contains_key(&drive) {
            let is_new = self.free_slabs.entry(drive).or_default().insert(slab);
            assert!(is_new, "slab {slab} of drive {drive} comes free, and was free already");
        }
    }
}
