//! Columns that are to lie elsewhere: those that are missing, those on drives that are gone, and those on drives that leave.
//!
//! A column is made again on another drive, in a slab that nothing else has, and then takes the place of the old one in the
//! table. Where no drive of another fault domain has a free slab, what is live in the segment is to be relocated, as the
//! cleaner does: into segments that are laid out over the drives there are.
//!
//! Invariants:
//! 1. A column takes the place of another only while its segment is the same one, sealed, and no row of it is under way. So
//!    what was read to make it is all there is.
//! 2. A column that took the place of another protects nothing before a durable checkpoint names it: after a crash the segment
//!    lies where the last one says. Until then a failure is judged by both, see `losses.rs`.
//! 3. The old column's slab is used again only when a checkpoint that does not name it is durable and readers have left.

use super::{Inner, LeftSlab, Quarantined, Segment, SegmentState, SegmentTable};
use crate::{
    bugs::{Bug, planted},
    format::GRAIN_BYTES,
    meta::layouts::Domain,
    segment::readers::ReaderEpochs,
};
use quoin_base::{DriveIndex, SegmentGeneration, SegmentId};
use quoin_stripe::{Column, ColumnSet, StripeSet};
use quoin_world::atomic::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Of columns that are equally urgent so many are looked at, for the one whose drives have the least to do.
const LOOKED_AT: usize = 32;

/// A column to be made again elsewhere. Its new slab is taken until [`SegmentTable::end_move`].
#[derive(Clone, Debug)]
pub(crate) struct ColumnMove {
    pub segment: SegmentId,
    generation: SegmentGeneration,
    /// Where the segment lies now.
    pub stripes: StripeSet,
    /// Which of its columns.
    pub place: usize,
    /// How much of it there is, in bytes of the segment's data.
    pub written_bytes: u64,
    /// Where it goes.
    pub to: Column,
}

impl ColumnMove {
    /// The drive that it leaves.
    pub(crate) fn from(&self) -> DriveIndex {
        self.stripes.columns[self.place].drive
    }

    /// Which segment, as it was when the move began.
    pub(crate) fn generation(&self) -> SegmentGeneration {
        self.generation
    }
}

/// How urgent a column is: the further failures that its segment tolerates, then the moves that its busiest drive has under way.
type Urgency = (usize, usize);

/// How many columns are being moved from segments that lie on each drive, and to it.
type Busy = BTreeMap<DriveIndex, usize>;

/// What is to lie elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Displaced {
    /// Segments that lack a column, and the live bytes in them.
    pub degraded_segments: u64,
    pub degraded_bytes: u64,
    /// Bytes of the columns that they lack and that are to be made again.
    pub lacking_bytes: u64,
    /// Bytes of those on drives that may come back.
    pub absent_bytes: u64,
    /// Segments that lack more columns than they can do without, and the bytes in them that maps lead to, or will.
    pub unreadable_segments: u64,
    pub unreadable_bytes: u64,
}

impl Segment {
    /// True when nothing more is written to it, and all that was is hardened.
    pub(super) fn is_settled(&self, inner: &Inner) -> bool {
        self.state == SegmentState::Sealed
            && self.rows_under_way == 0
            && self.placed_grains == 0
            && self.written_in <= inner.hardened
    }

    pub(super) fn holds_anything(&self) -> bool {
        self.live_grains > 0 || self.last_placed.is_some() || self.placed_grains > 0
    }
}

impl Inner {
    /// The columns of a segment that do not hold what they should, or whose drive is gone.
    pub(super) fn gone(&self, segment: &Segment) -> ColumnSet {
        let columns = segment.stripes.columns.iter().enumerate();
        let lost = columns.filter(|(_, column)| !self.held_slabs.contains_key(&column.drive));
        lost.fold(segment.stripes.missing, |set, (place, _)| set.with(ColumnSet::one(place)))
    }

    /// Those of them that are to be made again. What is on a drive that may come back is not, unless it lacks something: then
    /// it is made again when the drive is back, or has failed.
    fn to_be_made(&self, segment: &Segment) -> ColumnSet {
        let columns = segment.stripes.columns.iter().enumerate();
        let waits = columns.filter(|(_, column)| self.absent.contains(&column.drive));
        waits.fold(self.gone(segment), |gone, (place, _)| gone.without(ColumnSet::one(place)))
    }

    /// Those that are to be copied to other drives now. Metadata does not wait for drives to come back, where there are others:
    /// the pool cannot go on without it.
    fn to_be_copied(&self, segment: &Segment) -> ColumnSet {
        let made = self.to_be_made(segment);
        if self.absent.is_empty() || !segment.stream.is_metadata() {
            return made;
        }
        let waits = self.gone(segment).without(made).iter();
        let has_slab = |place: &usize| self.slab_for(segment, *place, &Busy::default()).is_some();
        waits.filter(has_slab).fold(made, |all, place| all.with(ColumnSet::one(place)))
    }

    /// Whether a segment tolerates fewer failures than new ones do, as what was written while drives were away.
    ///
    /// Metadata may have fewer copies than it would like: it is judged as data is.
    pub(super) fn is_narrow(&self, segment: &Segment) -> bool {
        segment.stripes.geometry.parity < self.layouts.of_data().parity()
    }

    /// Those on drives that nothing new is to lie on, though they hold what they should.
    fn leaving(&self, segment: &Segment) -> ColumnSet {
        let columns = segment.stripes.columns.iter().enumerate();
        let leaves = |column: &Column| {
            self.held_slabs.contains_key(&column.drive) && !self.layouts.takes(column.drive)
        };
        columns
            .filter(|(_, column)| leaves(column))
            .fold(ColumnSet::default(), |set, (place, _)| set.with(ColumnSet::one(place)))
    }

    /// A free slab for a column of a segment, where the segment has no other column: of the drive with the most, and first of
    /// those that have no more to do than others. The last columns to be made are those of the drives that are read most, and
    /// these are not to be written to as well.
    fn slab_for(&self, segment: &Segment, place: usize, busy: &Busy) -> Option<Column> {
        let gone = self.gone(segment);
        let others = segment.stripes.columns.iter().enumerate();
        let taken: BTreeSet<Domain> = others
            .filter(|(other, _)| *other != place && !gone.has(*other))
            .filter_map(|(_, column)| self.layouts.domain_of_any(column.drive))
            .collect();
        let free = self.free_slabs.iter().filter(|(drive, free)| {
            !free.is_empty() && self.layouts.domain(**drive).is_some_and(|domain| !taken.contains(&domain))
        });
        let average = busy.values().sum::<usize>() / self.free_slabs.len().max(1);
        let has_little = |drive: &DriveIndex| busy.get(drive).is_none_or(|moves| *moves <= average);
        let (drive, free) =
            free.max_by_key(|(drive, free)| (has_little(drive), free.len(), std::cmp::Reverse(**drive)))?;
        free.first().map(|slab| Column { drive: *drive, slab: *slab })
    }

    /// Nothing is written any more to a slab that was being filled. False if its drive was lost meanwhile: then it is free, if the
    /// drive is back.
    pub(super) fn end_filling(&mut self, to: Column) -> bool {
        if self.filled_in_vain.remove(&to) {
            self.comes_free(to);
        }
        self.being_filled.remove(&to)
    }

    /// What each drive has to do.
    fn busy_with_moves(&self, under_way: &BTreeSet<SegmentId>) -> Busy {
        let mut busy = Busy::new();
        let from = under_way.iter().filter_map(|id| self.segments.get(id.0 as usize));
        let columns = from.flat_map(|segment| segment.stripes.columns.iter()).chain(&self.being_filled);
        for column in columns {
            *busy.entry(column.drive).or_insert(0) += 1;
        }
        busy
    }

    /// Takes the slab for a column of a segment.
    pub(super) fn take_for_move(&mut self, id: usize, place: usize, to: Column) -> ColumnMove {
        let is_free = self.free_slabs.get_mut(&to.drive).is_some_and(|free| free.remove(&to.slab));
        assert!(is_free, "a column is moved to a free slab");
        self.being_filled.insert(to);
        let segment = &self.segments[id];
        ColumnMove {
            segment: SegmentId(id as u32),
            generation: segment.generation,
            stripes: segment.stripes.clone(),
            place,
            written_bytes: segment.written_bytes,
            to,
        }
    }

    /// Whether moving what is live elsewhere protects it better: new segments tolerate more failures.
    fn gains_by_relocation(&self, segment: &Segment) -> bool {
        let left = usize::from(segment.stripes.geometry.parity).saturating_sub(self.gone(segment).len());
        let leaves = !self.leaving(segment).is_empty() || self.is_narrow(segment);
        // Metadata has as many copies as there are domains for: with fewer domains, fewer are whole.
        let copies = usize::from(self.layouts.of_metadata().columns());
        let is_too_wide = segment.stream.is_metadata() && segment.stripes.columns.len() > copies;
        let wanted = if segment.stream.is_metadata() { None } else { segment.layout };
        leaves || is_too_wide || usize::from(self.layouts.now(wanted).parity()) > left
    }

    /// What waits for a checkpoint and for readers before it is used again.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Quarantined> {
        self.quarantine.iter().chain(self.left_slabs.iter().map(|left| &left.wait))
    }

    pub(super) fn free_left_slabs(&mut self, may: impl Fn(&Quarantined) -> bool) -> bool {
        let before = self.left_slabs.len();
        for left in std::mem::take(&mut self.left_slabs) {
            if may(&left.wait) || planted(Bug::ReuseLeftEarly) {
                self.comes_free(left.column);
            } else {
                self.left_slabs.push(left);
            }
        }
        self.left_slabs.len() < before
    }
}

impl SegmentTable {
    /// A row is on its way to a segment.
    pub(crate) fn row_begins(&self, id: SegmentId) {
        self.inner.write().segments[id.0 as usize].rows_under_way += 1;
    }

    /// A row landed, on all columns of its segment but these, which are missing from now on. Called before the row counts.
    pub(crate) fn row_landed(&self, id: SegmentId, generation: SegmentGeneration, failed: ColumnSet) {
        let mut inner = self.inner.write();
        let next_checkpoint = inner.next_checkpoint;
        let segment = &mut inner.segments[id.0 as usize];
        if segment.state == SegmentState::Free || segment.generation != generation {
            return;
        }
        assert!(segment.rows_under_way > 0, "a row of segment {id} lands that was under way");
        segment.rows_under_way -= 1;
        segment.written_in = segment.written_in.max(next_checkpoint);
        if !failed.is_empty() {
            segment.stripes.missing = segment.stripes.missing.with(failed);
            self.losses.fetch_add(1, Ordering::AcqRel);
            self.may_be_displaced.store(true, Ordering::Release);
        }
        inner.dirty(id.0);
    }

    /// The next column to be made again, and a slab for it, which is taken: of the segment that tolerates the fewest further
    /// failures. At least `kept` net slabs stay free, or as many as are: a drive that came into a full pool has slabs that
    /// nothing else can use.
    pub(crate) fn begin_move(&self, kept: u64, but: &BTreeSet<SegmentId>) -> Option<ColumnMove> {
        let mut inner = self.inner.write();
        // Of the columns that can be made, that of the segment which is nearest to losing data, and of several of those one from
        // drives with little to do.
        let busy = inner.busy_with_moves(but);
        let (mut best, mut looked_at): (Option<(Urgency, u32, usize, Column)>, _) = (None, 0);
        for id in 1..inner.segments.len() {
            let segment = &inner.segments[id];
            if !segment.holds_anything() || !segment.is_settled(&inner) || but.contains(&SegmentId(id as u32))
            {
                continue;
            }
            let gone = inner.gone(segment);
            let places = inner.to_be_copied(segment).with(inner.leaving(segment));
            if places.is_empty() {
                continue;
            }
            let left = usize::from(segment.stripes.geometry.parity).saturating_sub(gone.len());
            // What is to be made again is read from the others.
            let others = segment.stripes.columns.iter().enumerate().filter(|(place, _)| !places.has(*place));
            let moves = others.filter_map(|(_, column)| busy.get(&column.drive)).copied().max().unwrap_or(0);
            let can_be_made = gone.len() <= usize::from(segment.stripes.geometry.parity);
            if can_be_made && best.is_none_or(|(most, ..)| (left, moves) < most) {
                let mut found = places
                    .iter()
                    .filter_map(|place| Some((place, inner.slab_for(segment, place, &busy)?)))
                    .filter(|(_, to)| inner.spares(*to, kept));
                best = found.next().map(|(place, to)| ((left, moves), id as u32, place, to)).or(best);
            }
            looked_at += usize::from(can_be_made && left == 0);
            if looked_at >= LOOKED_AT && best.is_some_and(|((left, _), ..)| left == 0) {
                break;
            }
        }
        let (_, id, place, to) = best?;
        Some(inner.take_for_move(id as usize, place, to))
    }

    /// Puts the new column in the place of the old one, if it was made and the segment is still what it was. Otherwise its slab
    /// is free again. True if it took its place.
    pub(crate) fn end_move(&self, moved: &ColumnMove, is_made: bool, readers: &ReaderEpochs) -> bool {
        let mut inner = self.inner.write();
        let id = moved.segment.0;
        let known = inner.segments.get(id as usize);
        let is_same = known.is_some_and(|segment| {
            segment.generation == moved.generation
                && segment.state == SegmentState::Sealed
                && segment.stripes.columns == moved.stripes.columns
                && segment.written_bytes == moved.written_bytes
                && segment.rows_under_way == 0
        });
        // The new drive may have been lost meanwhile. Whether it is back or not, nothing is known of the slab then.
        if !inner.end_filling(moved.to) {
            return false;
        }
        if !is_made || !is_same {
            inner.comes_free(moved.to);
            return false;
        }
        // The new column takes the place of the old one, which checkpoint and readers may still look at.
        let (generation, reader_epoch) = (inner.next_checkpoint, readers.current());
        let segment = &mut inner.segments[id as usize];
        let old = segment.stripes.columns[moved.place];
        let was_missing = segment.stripes.missing.has(moved.place);
        let mut columns = segment.stripes.columns.to_vec();
        columns[moved.place] = moved.to;
        segment.stripes.columns = columns.into();
        segment.stripes.missing = segment.stripes.missing.without(ColumnSet::one(moved.place));
        inner.dirty(id);
        let wait = Quarantined { id: moved.segment, generation, reader_epoch };
        inner.left_slabs.push(LeftSlab { column: old, place: moved.place, was_missing, wait });
        true
    }

    /// Whether a column may have to lie elsewhere.
    pub(crate) fn may_be_displaced(&self) -> bool {
        self.may_be_displaced.load(Ordering::Acquire)
    }

    /// Whether any column is to lie elsewhere.
    pub(crate) fn is_any_displaced(&self) -> bool {
        if !self.may_be_displaced.load(Ordering::Acquire) {
            return false;
        }
        let inner = self.inner.read();
        let is_displaced = |segment: &Segment| {
            segment.state != SegmentState::Free
                && segment.holds_anything()
                && (!inner.to_be_copied(segment).with(inner.leaving(segment)).is_empty()
                    || segment.live_grains > 0 && inner.is_narrow(segment))
        };
        let is_any = inner.segments.iter().any(is_displaced);
        // What waits for drives to come back is counted as well.
        let lacks = |segment: &Segment| {
            segment.state != SegmentState::Free && segment.holds_anything() && !inner.gone(segment).is_empty()
        };
        let waits = !inner.absent.is_empty() && inner.segments.iter().any(lacks);
        let copies = inner.layouts.table_copies();
        let lacks_copy = self.table_slabs.is_any_incomplete(copies, &inner.layouts);
        // NOTE: with the lock held, under which columns are displaced.
        self.may_be_displaced.store(is_any || lacks_copy || waits, Ordering::Release);
        is_any
    }

    /// Whether metadata is on fewer drives than it can be now, in RAM or in the last durable checkpoint.
    pub(crate) fn lacks_copies(&self) -> bool {
        if !self.may_be_displaced.load(Ordering::Acquire) {
            return false;
        }
        let inner = self.inner.read();
        let before = inner.named_before();
        (0..).zip(&inner.segments).any(|(id, segment)| {
            segment.state != SegmentState::Free
                && segment.stream.is_metadata()
                && segment.holds_anything()
                && (!inner.to_be_copied(segment).is_empty() || before.contains_key(&id))
        })
    }

    /// What is to lie elsewhere, in figures.
    pub(crate) fn displaced(&self) -> Displaced {
        let mut displaced = Displaced::default();
        if !self.may_be_displaced.load(Ordering::Acquire) {
            return displaced;
        }
        let inner = self.inner.read();
        (displaced.unreadable_segments, displaced.unreadable_bytes) = self.unreadable_figures(&inner);
        for segment in inner.segments.iter().filter(|segment| segment.live_grains > 0) {
            if !inner.gone(segment).is_empty() {
                displaced.degraded_segments += 1;
                displaced.degraded_bytes += u64::from(segment.live_grains) * GRAIN_BYTES;
                let of_column = segment.written_bytes / u64::from(segment.stripes.geometry.data);
                displaced.lacking_bytes += inner.to_be_made(segment).len() as u64 * of_column;
                displaced.absent_bytes +=
                    inner.gone(segment).without(inner.to_be_made(segment)).len() as u64 * of_column;
            }
        }
        displaced
    }

    /// A segment whose live content is to be relocated: a column of it is to lie elsewhere, and there is no slab for it.
    pub(crate) fn to_relocate(&self, but: &BTreeSet<u32>) -> Option<(SegmentId, Segment)> {
        if !self.may_be_displaced.load(Ordering::Acquire) {
            return None;
        }
        let inner = self.inner.read();
        let found = (1..inner.segments.len()).find(|id| {
            let segment = &inner.segments[*id];
            let gone = inner.gone(segment);
            let mut places = inner.to_be_made(segment).with(inner.leaving(segment)).iter();
            let has_no_slab = |place| inner.slab_for(segment, place, &Busy::default()).is_none();
            segment.live_grains > 0
                && segment.may_be_cleaned()
                && !but.contains(&(*id as u32))
                && gone.len() <= usize::from(segment.stripes.geometry.parity)
                && inner.gains_by_relocation(segment)
                && (inner.is_narrow(segment) || places.any(has_no_slab))
        })?;
        Some((SegmentId(found as u32), inner.segments[found].clone()))
    }
}
