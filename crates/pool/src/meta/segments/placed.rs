//! Segments with placed rows: what lies there before any map leads to it, and which records name them.

use super::{Inner, Segment, SegmentState, SegmentTable, Stream, free_segment};
use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    format::Location,
    segment::{opened::OpenedSegment, readers::ReaderEpochs},
};
use quoin_base::{CheckpointGeneration, SegmentGeneration, SegmentId, Sequence};
use quoin_stripe::Column;

impl SegmentTable {
    /// Counts what was placed at `location` as live: the map is about to lead there.
    pub(crate) fn publish(&self, location: Location) {
        let mut inner = self.inner.write();
        inner.take_placed(location);
        inner.count(location, true);
    }

    /// Counts what was placed at `location` as dead: it was overwritten before it was published.
    pub(crate) fn withdraw(&self, location: Location) {
        let mut inner = self.inner.write();
        inner.take_placed(location);
        inner.list(location.segment().0);
    }

    /// Notes that the record of `sequence` names a segment: its opening, or something placed there. Called before that can
    /// be on a drive.
    pub(crate) fn name(&self, id: SegmentId, sequence: Sequence) {
        let mut inner = self.inner.write();
        let segment = &mut inner.segments[id.0 as usize];
        segment.last_placed = segment.last_placed.max(Some(sequence));
        inner.placed.insert(id.0);
        inner.list(id.0);
    }

    /// Lets go of segments that no record from `tail` on names. `generation` is that of the checkpoint with this tail.
    pub(crate) fn forget_names(
        &self,
        tail: Sequence,
        generation: CheckpointGeneration,
        readers: &ReaderEpochs,
    ) {
        let mut inner = self.inner.write();
        for id in std::mem::take(&mut inner.placed) {
            let segment = &mut inner.segments[id as usize];
            let is_needed =
                segment.last_placed.is_some_and(|last| last >= tail) && !planted(Bug::ForgetNames);
            if is_needed || segment.state == SegmentState::Open || segment.placed_grains > 0 {
                inner.placed.insert(id);
                continue;
            }
            segment.last_placed = None;
            inner.list(id);
            inner.quarantine_if_empty(SegmentId(id), generation, readers);
        }
    }

    /// Whether so many places of that length, from `first` on, can lie in a segment of placed rows.
    pub(crate) fn is_placed_in(&self, first: Location, count: u64) -> bool {
        let inner = self.inner.read();
        let segment = inner.segments.get(first.segment().0 as usize);
        let end = first.offset_bytes() + count * first.len_bytes();
        segment.is_some_and(|s| {
            s.state != SegmentState::Free
                && s.stream == Stream::Placed
                && end <= self.segment_bytes(s.stripes.geometry)
        })
    }

    /// Whether a segment is sealed, of this generation, and all that lies in it is what maps lead to: nothing awaits
    /// publication, and no record names it.
    pub(crate) fn is_settled(&self, id: SegmentId, generation: SegmentGeneration) -> bool {
        let inner = self.inner.read();
        let segment = inner.segments.get(id.0 as usize);
        segment.is_some_and(|s| {
            s.state == SegmentState::Sealed
                && s.generation == generation
                && s.placed_grains == 0
                && s.last_placed.is_none()
        })
    }

    /// Sectors that are live in a segment of this generation, and how far it was written.
    pub(crate) fn live_in(&self, id: SegmentId, generation: SegmentGeneration) -> Option<(u64, u64)> {
        let inner = self.inner.read();
        let segment = inner.segments.get(id.0 as usize).filter(|s| s.generation == generation)?;
        Some((segment.live_grains.into(), segment.written_bytes))
    }

    /// Takes over a segment that was opened after the checkpoint, as the record of its opening has it. Nothing is added to
    /// it any more.
    pub(crate) fn reopen(&self, opened: &OpenedSegment, sequence: Sequence) -> Result<(), PoolError> {
        let mut inner = self.inner.write();
        let id = opened.id.0 as usize;
        let damaged = |problem: &str| PoolError::corrupt(format!("segment {}", opened.id), problem);
        // An id is new only when all lower ones are in use: each then has a slab that is still held.
        let most = inner.segments.len() as u64 + inner.all_held();
        if id == 0 || id as u64 > most {
            return Err(damaged("the journal says that it was opened, and no pool of this size has it"));
        }
        if inner.segments.len() <= id {
            for free in inner.segments.len()..id {
                inner.free_ids.insert(free as u32);
            }
            inner.segments.resize_with(id + 1, free_segment);
        }
        // Either the checkpoint does not know the segment yet, or it knows it as it was opened.
        let known = &inner.segments[id];
        if known.state == SegmentState::Free {
            let is_held = |column: &&Column| inner.held_slabs.contains_key(&column.drive);
            let columns: Vec<_> = opened.stripes.columns.iter().filter(is_held).copied().collect();
            for column in columns {
                let free = inner.free_slabs.get_mut(&column.drive);
                if !free.is_some_and(|free| free.remove(&column.slab)) {
                    return Err(damaged("the journal says that it was opened on a slab that is taken"));
                }
            }
            inner.segments[id] = Segment {
                state: SegmentState::Sealed,
                stream: Stream::Placed,
                layout: opened.layout,
                stripes: opened.stripes.clone(),
                generation: opened.generation,
                ..free_segment()
            };
            inner.free_ids.remove(&opened.id.0);
            inner.dirty(opened.id.0);
            inner.miss_absent(opened.id.0);
            self.note_unreadable(&inner);
        } else if known.generation != opened.generation || known.stream != Stream::Placed {
            return Err(damaged("the journal says that it was opened anew, and it was not"));
        }
        inner.segments[id].last_placed = Some(sequence);
        inner.placed.insert(opened.id.0);
        inner.list(opened.id.0);
        Ok(())
    }
}

impl Inner {
    /// Counts what was placed at `location` as placed no more: it becomes live, or is dead.
    fn take_placed(&mut self, location: Location) {
        let segment = &mut self.segments[location.segment().0 as usize];
        assert!(
            segment.state != SegmentState::Free && segment.placed_grains >= location.counted_grains(),
            "segment {} has {} grains placed, and {location:?} is none of them",
            location.segment(),
            segment.placed_grains
        );
        segment.placed_grains -= location.counted_grains();
    }
}
