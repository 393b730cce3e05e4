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
//! 3. A drive that may come back is lost only if what has to be marked then leaves each segment of data as many columns as it
//!    needs: nothing is lost for good by it. So where an opening would mark more columns than a segment does without, those of
//!    the drives that were lost last have what they should, and are not marked.
//! 4. A root tells up to which table of members its segment table knows of losses. For drives that failed later, an opening
//!    finds the columns that are missing by when their segments were last written to.

use super::{Inner, LeftSlab, Segment, SegmentState, SegmentTable, Stream};
use crate::{
    bugs::{Bug, planted},
    store::{Loss, Store},
};
use quoin_base::{CheckpointGeneration, DriveIndex, MembersGeneration, PageNumber};
use quoin_stripe::{Column, ColumnSet};
use quoin_world::atomic::Ordering;
use std::collections::{BTreeMap, BTreeSet};

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
    pub(super) fn lost_if(
        &self,
        is_lost: &dyn Fn(DriveIndex) -> bool,
        before: Option<&Vec<&LeftSlab>>,
    ) -> ColumnSet {
        let here = self.stripes.columns.iter().enumerate();
        let here = here.filter(|(_, column)| is_lost(column.drive)).map(|(place, _)| place);
        let left = before.into_iter().flatten().filter(|left| left.was_missing || is_lost(left.column.drive));
        let lost = here.chain(left.map(|left| left.place));
        lost.fold(self.stripes.missing, |lost, place| lost.with(ColumnSet::one(place)))
    }

    /// Whether so many columns may be gone without loss of data.
    pub(super) fn survives(&self, gone: ColumnSet) -> bool {
        gone.len() <= usize::from(self.stripes.geometry.parity)
    }

    /// Whether its columns on a drive may lack rows that no flush has hardened there.
    fn may_lack_rows(&self, hardened: CheckpointGeneration) -> bool {
        self.state == SegmentState::Open
            || self.written_in > hardened
            || self.placed_grains > 0
            || self.last_placed.is_some()
    }

    /// The same, certainly: what was placed is hardened as soon as it has landed.
    fn lacks_rows(&self, hardened: CheckpointGeneration) -> bool {
        self.state == SegmentState::Open
            || self.rows_under_way > 0
            || self.written_in > hardened && self.stream != Stream::Placed
    }
}

impl SegmentTable {
    /// What would be lost without a drive, beside those that are lost already.
    pub(crate) fn loss_of(&self, drive: DriveIndex, is_lost: &dyn Fn(DriveIndex) -> bool) -> Loss {
        let inner = self.inner.read();
        if self.loses_table(drive, is_lost) {
            return Loss::ForGood;
        }
        let before = inner.named_before();
        // What may come back, once it is away.
        let comes_back = |other: DriveIndex| other == drive || inner.absent.contains(&other);
        let is_lost_for_good = |other: DriveIndex| is_lost(other) && !comes_back(other);
        let loss = |(id, segment): (u32, &Segment)| {
            let mut gone = segment.lost_if(&is_lost_for_good, before.get(&id));
            if segment.lacks_rows(inner.hardened) {
                gone = gone.with(segment.columns_on(drive));
            }
            let is_for_good = segment.stream.is_metadata() || !segment.survives(gone);
            if is_for_good { Loss::ForGood } else { Loss::UntilBack }
        };
        inner.lost_segments(drive, is_lost).map(loss).max().unwrap_or(Loss::Nothing)
    }

    /// How much would be lost without a drive, or could not be read.
    pub(crate) fn lost_without(&self, drive: DriveIndex, is_lost: &dyn Fn(DriveIndex) -> bool) -> Losses {
        let inner = self.inner.read();
        let mut losses = Losses { table: self.loses_table(drive, is_lost), ..Losses::default() };
        for (_, segment) in inner.lost_segments(drive, is_lost) {
            losses.segments += 1;
            losses.bytes += u64::from(segment.live_grains) * crate::format::GRAIN_BYTES;
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

    /// Whether rows that no flush has hardened lie in a segment of data that lacks a column: the next loss may take them for good.
    /// Asked after losses only: it looks at all segments.
    pub(crate) fn lacks_hardening(&self) -> bool {
        let inner = self.inner.read();
        let mut data = inner.segments.iter().filter(|segment| segment.is_used_for_data());
        data.any(|segment| segment.lacks_rows(inner.hardened) && !inner.gone(segment).is_empty())
    }

    /// How many failures all that is in use survives.
    pub(crate) fn tolerates(&self) -> u8 {
        let inner = self.inner.read();
        let (is_lost, before) =
            (|drive: DriveIndex| !inner.held_slabs.contains_key(&drive), inner.named_before());
        let of_segments = inner.in_use().map(|(id, segment)| {
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
    ///
    /// # Errors
    /// In words: something of which the drive has a part came to it since it was asked what would be lost, and cannot do without
    /// it. It is in the journal still.
    pub(crate) fn lose(
        &self,
        drive: DriveIndex,
        is_absent: bool,
        members: MembersGeneration,
    ) -> Result<(), String> {
        let mut inner = self.inner.write();
        // Nothing more is put there.
        inner.free_slabs.remove(&drive);
        inner.held_slabs.remove(&drive);
        // NOTE: what writes there does not know yet. The slab is nobody else's until it does, also if the drive is back before.
        let (lost, being_filled) =
            std::mem::take(&mut inner.being_filled).into_iter().partition(|column| column.drive == drive);
        inner.being_filled = being_filled;
        inner.filled_in_vain.extend::<BTreeSet<_>>(lost);
        if is_absent {
            inner.absent.insert(drive);
        }
        // What no flush has hardened there may be lost with it.
        let (hardened, mut lost) = (inner.hardened, 0);
        for id in 1..inner.segments.len() {
            let segment = &inner.segments[id];
            if segment.state == SegmentState::Free || !segment.may_lack_rows(hardened) {
                continue;
            }
            let lacks_rows = segment.lacks_rows(hardened);
            if !inner.miss(id as u32, &[drive]) && lacks_rows {
                lost += 1;
            }
        }
        self.table_slabs.lose(drive);
        self.note_unreadable(&inner);
        self.may_be_displaced.store(true, Ordering::Release);
        self.losses.fetch_add(1, Ordering::AcqRel);
        inner.members_known = inner.members_known.max(members);
        match lost {
            0 => Ok(()),
            lost => Err(format!("{lost} segments got rows that no drive has hardened that is left")),
        }
    }

    /// The same for an opening, of all drives that were lost before it, in the order of that.
    pub(super) fn lose_all_before(&self, store: &Store, root: CheckpointGeneration) {
        let mut lost: Vec<_> = store.lost_drives().collect();
        lost.sort_unstable_by_key(|(drive, members)| (*members, *drive));
        for at_once in lost.chunk_by(|one, next| one.1 == next.1) {
            let drives: Vec<_> = at_once.iter().map(|(drive, _)| *drive).collect();
            self.lose_before(&drives, at_once[0].1, root);
        }
        self.knows_losses_of(store.members().generation);
    }

    /// Drives that were lost at once: the root says what its table knows of losses.
    fn lose_before(&self, drives: &[DriveIndex], members: MembersGeneration, root: CheckpointGeneration) {
        let mut inner = self.inner.write();
        if members > inner.members_known {
            for id in 1..inner.segments.len() {
                let segment = &inner.segments[id];
                let may_lack_rows = segment.state == SegmentState::Open || segment.written_in >= root;
                if segment.state != SegmentState::Free && may_lack_rows {
                    inner.miss(id as u32, drives);
                }
            }
        }
        inner.lost_before.push(drives.to_vec());
        drives.iter().for_each(|drive| self.table_slabs.lose(*drive));
    }

    /// It knows of all drives that were lost up to this table of members.
    fn knows_losses_of(&self, members: MembersGeneration) {
        let mut inner = self.inner.write();
        inner.members_known = inner.members_known.max(members);
        self.note_unreadable(&inner);
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
    pub(super) fn named_before(&self) -> BTreeMap<u32, Vec<&LeftSlab>> {
        let mut before = BTreeMap::<u32, Vec<&LeftSlab>>::new();
        let is_named = |left: &&LeftSlab| left.wait.generation > self.durable && !planted(Bug::CountUnnamed);
        for left in self.left_slabs.iter().filter(is_named) {
            before.entry(left.wait.id.0).or_default().push(left);
        }
        before
    }

    /// Segments that are in use, or that the last checkpoint may have in use.
    pub(super) fn in_use(&self) -> impl Iterator<Item = (u32, &Segment)> {
        (0..).zip(&self.segments).filter(|(_, segment)| segment.state != SegmentState::Free)
    }

    /// The segments that would be lost without a drive, beside those for which `is_lost` is true.
    fn lost_segments<'a>(
        &'a self,
        drive: DriveIndex,
        is_lost: &'a dyn Fn(DriveIndex) -> bool,
    ) -> impl Iterator<Item = (u32, &'a Segment)> {
        let before = self.named_before();
        let is_lost_then = move |other: DriveIndex| other == drive || is_lost(other);
        self.in_use().filter(move |(id, segment)| {
            let before = before.get(id);
            let mut left = before.into_iter().flatten();
            let is_concerned =
                !segment.columns_on(drive).is_empty() || left.any(|left| left.column.drive == drive);
            is_concerned && !segment.survives(segment.lost_if(&is_lost_then, before))
        })
    }

    /// The columns of a segment on drives are missing from now on, if there are any. False, and nothing has happened, if the
    /// segment cannot do without so many.
    fn miss(&mut self, id: u32, drives: &[DriveIndex]) -> bool {
        let segment = &mut self.segments[id as usize];
        let here = drives.iter().map(|drive| segment.columns_on(*drive));
        let missing = here.fold(segment.stripes.missing, ColumnSet::with);
        if missing == segment.stripes.missing {
            return true;
        }
        if !segment.survives(missing) {
            return false;
        }
        segment.stripes.missing = missing;
        self.dirty(id);
        true
    }

    /// Columns of a segment on drives that are not there any more are missing: it was opened after the checkpoint.
    pub(super) fn miss_absent(&mut self, id: u32) {
        // In the order in which they were lost.
        for drives in self.lost_before.clone() {
            self.miss(id, &drives);
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
