//! The segment table: which segments there are, how full of live data, and which slabs are free.
//!
//! Invariants:
//! 1. A slab belongs to at most one segment that is not free, and to none unless it was granted to the slice, durably.
//! 2. A segment that no longer holds anything live is quarantined: neither it nor its slabs are used again
//!    before a checkpoint without it is durable and every read that may look at it has ended.
//! 3. `live_grains` counts exactly the grains that locations in the block table and the page map take. What was placed
//!    and is not published yet is counted apart, in RAM only.
//! 4. A segment with placed rows keeps its slabs, though nothing in it is live or awaits publication, until the tail of a
//!    checkpoint has passed every record that names it: replay reads what such a record leads to.

use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    format::{GRAIN_BYTES, Location, Root, SEGMENTS_PER_PAGE},
    meta::Layouts,
    segment::readers::{ReaderEpoch, ReaderEpochs},
    space::Overhead,
    store::Store,
};
use quoin_base::{
    CheckpointGeneration, DriveIndex, Layout, MembersGeneration, PageNumber, SegmentGeneration, SegmentId,
    Sequence, SliceId,
};
use quoin_stripe::{Column, Geometry, StripeSet};
use quoin_world::{
    RwLock,
    atomic::{AtomicBool, AtomicU64},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

mod absent;
pub(crate) mod balance;
mod choose;
mod entry;
mod granted;
mod held;
mod index;
mod leaving;
mod lengths;
mod losses;
mod moves;
mod net;
mod placed;
mod stream;
mod table_size;
mod table_slabs;
mod tags;
mod unreadable;

use entry::ReadEntries;
use granted::Granted;
use index::Index;
pub(crate) use leaving::{Holdings, NetUse};
pub(crate) use losses::Losses;
pub(crate) use moves::ColumnMove;
pub(crate) use stream::Stream;
use table_size::most_data_slabs;
pub(crate) use table_size::{least_table_slabs, table_slabs_for};
pub(crate) use table_slabs::{TableCopy, TableSlabs};
pub(crate) use unreadable::LostNow;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SegmentState {
    Free,
    /// Rows are still added to it.
    Open,
    Sealed,
    Quarantined,
}

#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub state: SegmentState,
    pub stream: Stream,
    /// The layout that it was opened for, as drives were then. `None`: the pool's.
    pub layout: Option<Layout>,
    pub stripes: StripeSet,
    pub generation: SegmentGeneration,
    pub live_grains: u32,
    /// How many blocks or pages these are.
    pub live_contents: u32,
    /// Sectors that were placed and are not published yet.
    pub placed_grains: u32,
    /// The last record that names it, of its opening or of what was placed there, while replay may need it.
    last_placed: Option<Sequence>,
    pub written_bytes: u64,
    /// The first checkpoint with its last row.
    written_in: CheckpointGeneration,
    /// Rows that are on their way.
    rows_under_way: u32,
}

impl Segment {
    /// Columns of data and of parity.
    fn spread(&self) -> (u8, u8) {
        (self.stripes.geometry.data, self.stripes.geometry.parity)
    }

    /// Whether data lies in it, or is to.
    pub(crate) fn is_used_for_data(&self) -> bool {
        matches!(self.state, SegmentState::Open | SegmentState::Sealed) && !self.stream.is_metadata()
    }

    /// True when nothing in it is live, awaits publication or is named by a record that replay may find.
    fn is_given_up(&self) -> bool {
        self.state == SegmentState::Sealed
            && self.live_grains == 0
            && self.placed_grains == 0
            && self.last_placed.is_none()
    }
}

struct Quarantined {
    id: SegmentId,
    /// The first checkpoint without it.
    generation: CheckpointGeneration,
    reader_epoch: ReaderEpoch,
}

/// A slab that a column left. Durable checkpoints before that of its wait name it, and not the one that took its place.
struct LeftSlab {
    column: Column,
    /// Which column of its segment.
    place: usize,
    /// It did not hold all that was written to the segment.
    was_missing: bool,
    wait: Quarantined,
}

struct Inner {
    /// By id; entry 0 is never used.
    segments: Vec<Segment>,
    free_ids: BTreeSet<u32>,
    layouts: Layouts,
    /// How many slabs the slice holds of each drive, and those of them that no segment has.
    held_slabs: BTreeMap<DriveIndex, u64>,
    free_slabs: BTreeMap<DriveIndex, BTreeSet<u32>>,
    quarantine: VecDeque<Quarantined>,
    /// Slabs that columns left for others, and those that something is being copied to.
    left_slabs: Vec<LeftSlab>,
    being_filled: BTreeSet<Column>,
    /// The same of drives that were lost since. What writes there does not know yet, and the drive may be back.
    filled_in_vain: BTreeSet<Column>,
    /// Drives that may come back: what they hold is not made again.
    absent: BTreeSet<DriveIndex>,
    /// Those that were lost before the pool was opened, in the order of that; those that were lost at once together.
    lost_before: Vec<Vec<DriveIndex>>,
    /// Segments that records of placed writes name: those with a `last_placed`.
    placed: BTreeSet<u32>,
    index: Index,
    dirty_pages: BTreeSet<PageNumber>,
    /// Live data, by how its segments are spread.
    live_data_grains: BTreeMap<(u8, u8), u64>,
    live_meta_grains: u64,
    /// Blocks that take the live data.
    live_blocks: u64,
    /// The checkpoint that will have what is written now, and the last one whose rows are hardened.
    next_checkpoint: CheckpointGeneration,
    hardened: CheckpointGeneration,
    /// The last with a durable root.
    durable: CheckpointGeneration,
    /// The newest table of members whose lost drives are taken account of.
    members_known: MembersGeneration,
}

pub(crate) struct SegmentTable {
    inner: RwLock<Inner>,
    /// Where its pages lie.
    table_slabs: Arc<TableSlabs>,
    /// Columns may be where they are not to be: while false, nobody needs to look.
    may_be_displaced: AtomicBool,
    /// Segments may be unreadable as drives are: while false, nobody needs to look.
    may_be_unreadable: AtomicBool,
    /// How often columns were lost since the pool was opened. Looked at for each block that is placed.
    losses: AtomicU64,
    slab_bytes: u32,
    row_bytes: u32,
    /// The most slabs that the slice can hold.
    most_slabs: u64,
}

/// Space in figures, in bytes unless named otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SegmentUse {
    /// Those that the slice holds, net.
    pub data_slabs: u64,
    /// Those that hosts may fill.
    pub host_slabs: u64,
    /// Those that hold the table, all copies, and those that it left but a durable root still names.
    pub table_slabs: u64,
    /// Net.
    pub free_slabs: u64,
    /// Of segments that are empty and not to be used again yet, net.
    pub awaiting_slabs: u64,
    pub live_data: u64,
    /// How many blocks that is.
    pub live_blocks: u64,
    /// What live data takes as if it was laid out as new data is.
    pub net_live_data: u64,
    pub live_meta: u64,
}

impl SegmentTable {
    /// From the entries of segments, in order of their ids; ids left out are free.
    pub(crate) fn open<'a>(
        store: &Store,
        slice: SliceId,
        root: &Root,
        table_slabs: Arc<TableSlabs>,
        entries: impl Iterator<Item = (usize, &'a [u8])>,
    ) -> Result<Self, PoolError> {
        let (slab_bytes, row_bytes) = (store.slab_bytes(), store.row_bytes());
        let mut granted = Granted::to(store, slice);
        for (number, columns) in (1..).zip(table_slabs.named()) {
            granted.take(format!("table slab {number}"), &columns)?;
        }
        let read = ReadEntries::of(entries, &mut granted)?;
        let ReadEntries { segments, live_data_grains, live_meta_grains, live_blocks } = read;
        store.note_layouts(segments.iter().filter_map(|segment| segment.layout));
        // Ids below the last one in use that no segment has.
        let free_ids = (1..segments.len())
            .filter(|&i| segments[i].state == SegmentState::Free)
            .map(|i| i as u32)
            .collect();
        let inner = Inner {
            segments,
            free_ids,
            layouts: store.layouts(),
            held_slabs: granted.counts(),
            free_slabs: granted.free,
            quarantine: VecDeque::new(),
            left_slabs: Vec::new(),
            being_filled: BTreeSet::new(),
            filled_in_vain: BTreeSet::new(),
            absent: store.absent_drives().collect(),
            lost_before: Vec::new(),
            placed: BTreeSet::new(),
            index: Index::default(),
            dirty_pages: BTreeSet::new(),
            live_data_grains,
            live_meta_grains,
            live_blocks,
            next_checkpoint: CheckpointGeneration(root.generation.get()).next(),
            hardened: CheckpointGeneration(root.generation.get()),
            durable: CheckpointGeneration(root.generation.get()),
            members_known: MembersGeneration(root.members.get()),
        };
        let most_slabs = most_data_slabs(slab_bytes.into());
        let may_be_displaced = AtomicBool::new(true);
        let table = Self {
            inner: RwLock::new(inner),
            table_slabs,
            may_be_displaced,
            may_be_unreadable: AtomicBool::new(true),
            losses: AtomicU64::new(0),
            slab_bytes,
            row_bytes,
            most_slabs,
        };
        table.lose_all_before(store, CheckpointGeneration(root.generation.get()));
        table.seal_left_open();
        Ok(table)
    }

    /// Segments that were open when the pool went away are not added to again.
    fn seal_left_open(&self) {
        let mut inner = self.inner.write();
        for id in 1..inner.segments.len() {
            if inner.segments[id].state == SegmentState::Open {
                inner.segments[id].state = SegmentState::Sealed;
                inner.dirty(id as u32);
            }
            inner.list(id as u32);
        }
    }

    /// Frees segments that were sealed empty when the pool went away.
    pub(crate) fn quarantine_empty(&self, generation: CheckpointGeneration, readers: &ReaderEpochs) {
        let mut inner = self.inner.write();
        for id in 1..inner.segments.len() {
            inner.quarantine_if_empty(SegmentId(id as u32), generation, readers);
        }
    }

    /// Where a segment that is in use lies.
    pub(crate) fn stripes(&self, id: SegmentId) -> Option<StripeSet> {
        let inner = self.inner.read();
        let segment = inner.segments.get(id.0 as usize)?;
        (segment.state != SegmentState::Free).then(|| segment.stripes.clone())
    }

    /// The generation of a segment that is in use.
    pub(crate) fn generation(&self, id: SegmentId) -> Option<SegmentGeneration> {
        let inner = self.inner.read();
        let segment = inner.segments.get(id.0 as usize)?;
        (segment.state != SegmentState::Free).then_some(segment.generation)
    }

    /// The net slabs of the slice's share: those that it holds, and an equal part of the ungranted ones.
    pub(crate) fn fair_slabs(&self, store: &Store) -> u64 {
        let share = store.nobodys_slabs() / store.slice_count();
        self.usage().data_slabs + Overhead::of(&self.layouts()).net(share)
    }

    /// How new data and metadata is laid out.
    pub(crate) fn layouts(&self) -> Layouts {
        self.inner.read().layouts.clone()
    }

    /// Opens a segment for a layout, or the pool's, on other drives than these: on those with the most free slabs.
    pub(crate) fn take(
        &self,
        stream: Stream,
        layout: Option<Layout>,
        but: &[DriveIndex],
    ) -> Option<(SegmentId, Segment)> {
        let mut inner = self.inner.write();
        // Slabs, and an id: one that came free, or the next.
        let (geometry, drives) = inner.choose_drives(stream, layout, but)?;
        // No narrower and no less protected, only to be elsewhere.
        if !but.is_empty()
            && inner.choose_drives(stream, layout, &[]).is_none_or(|(best, _)| best != geometry)
        {
            return None;
        }
        let id = match inner.free_ids.pop_first() {
            Some(id) => id,
            None => {
                inner.segments.push(free_segment());
                inner.segments.len() as u32 - 1
            }
        };
        assert!(
            inner.segments[id as usize].state == SegmentState::Free,
            "segment {id} is opened while in use"
        );
        let mut columns = Vec::with_capacity(drives.len());
        for drive in drives {
            let slab = inner.free_slabs.get_mut(&drive).and_then(BTreeSet::pop_first);
            columns.push(Column { drive, slab: slab.expect("a drive is chosen that has a free slab") });
        }
        // Parity takes turns.
        let turn = id as usize % columns.len();
        columns.rotate_left(turn);
        let segment = Segment {
            state: SegmentState::Open,
            stream,
            layout,
            stripes: StripeSet::whole(geometry, columns.into()),
            generation: inner.segments[id as usize].generation.next(),
            live_grains: 0,
            live_contents: 0,
            placed_grains: 0,
            last_placed: None,
            written_bytes: 0,
            written_in: inner.next_checkpoint,
            rows_under_way: 0,
        };
        inner.segments[id as usize] = segment.clone();
        inner.dirty(id);
        inner.list(id);
        Some((SegmentId(id), segment))
    }

    /// Notes that rows up to `written_bytes` exist.
    pub(crate) fn wrote(&self, id: SegmentId, written_bytes: u64) {
        let mut inner = self.inner.write();
        let next_checkpoint = inner.next_checkpoint;
        let segment = &mut inner.segments[id.0 as usize];
        let before = segment.written_bytes;
        assert!(
            segment.state != SegmentState::Free
                && (before..=self.segment_bytes(segment.stripes.geometry)).contains(&written_bytes),
            "segment {id} is written up to {written_bytes}, after {before}"
        );
        segment.written_bytes = written_bytes;
        segment.written_in = next_checkpoint;
        inner.dirty(id.0);
    }

    pub(crate) fn seal(&self, id: SegmentId, generation: CheckpointGeneration, readers: &ReaderEpochs) {
        let mut inner = self.inner.write();
        assert!(inner.segments[id.0 as usize].state == SegmentState::Open, "segment {id} is sealed once");
        inner.segments[id.0 as usize].state = SegmentState::Sealed;
        inner.dirty(id.0);
        inner.list(id.0);
        inner.quarantine_if_empty(id, generation, readers);
    }

    /// Counts what lies at `location` as live; what was placed, as awaiting publication.
    pub(crate) fn add(&self, location: Location) {
        let mut inner = self.inner.write();
        let segment = &mut inner.segments[location.segment().0 as usize];
        match segment.stream {
            Stream::Placed => {
                segment.placed_grains += location.counted_grains();
                inner.list(location.segment().0);
            }
            Stream::Data | Stream::Meta | Stream::Cleaned => inner.count(location, true),
        }
        let segment = &inner.segments[location.segment().0 as usize];
        let counted = u64::from(segment.live_grains) + u64::from(segment.placed_grains);
        assert!(
            segment.state != SegmentState::Open
                || counted * GRAIN_BYTES <= self.segment_bytes(segment.stripes.geometry),
            "{counted} grains are live in segment {}, more than it has",
            location.segment()
        );
    }

    /// Counts what lies at `location` as dead. `generation` is that of the next checkpoint.
    ///
    /// # Errors
    /// Nothing lives there, or less than that: the table and what refers to segments do not agree.
    pub(crate) fn release(
        &self,
        location: Location,
        generation: CheckpointGeneration,
        readers: &ReaderEpochs,
    ) -> Result<(), PoolError> {
        let mut inner = self.inner.write();
        let segment = inner.segments.get(location.segment().0 as usize);
        if !segment.is_some_and(|s| {
            s.state != SegmentState::Free && s.live_contents > 0 && s.live_grains >= location.counted_grains()
        }) {
            return Err(PoolError::corrupt(
                format!("segment {}", location.segment()),
                "something is given up there that it does not hold",
            ));
        }
        inner.count(location, false);
        inner.quarantine_if_empty(location.segment(), generation, readers);
        if planted(Bug::EarlySegmentReuse) {
            inner.free_quarantined(|_| true);
        }
        Ok(())
    }

    /// Gives back what checkpoint `durable` no longer holds and no reader looks at. True if anything came free.
    pub(crate) fn reclaim(&self, durable: CheckpointGeneration, readers: &ReaderEpochs) -> bool {
        let mut inner = self.inner.write();
        inner.durable = durable;
        let may = |q: &Quarantined| q.generation <= durable && readers.passed(q.reader_epoch);
        // Both, whatever the first brings.
        inner.free_left_slabs(may) | inner.free_quarantined(may)
    }

    /// True when something freed since checkpoint `durable` waits for the next one.
    pub(crate) fn awaits_checkpoint(&self, durable: CheckpointGeneration) -> bool {
        self.inner.read().waiting().any(|q| q.generation > durable)
    }

    /// True when something that checkpoint `durable` no longer holds could be used again but for reads in flight.
    pub(crate) fn awaits_readers(&self, durable: CheckpointGeneration) -> bool {
        self.inner.read().waiting().any(|q| q.generation <= durable)
    }

    /// Every segment, free ones too.
    pub(crate) fn all(&self) -> Vec<(SegmentId, Segment)> {
        let inner = self.inner.read();
        inner.segments.iter().enumerate().skip(1).map(|(id, s)| (SegmentId(id as u32), s.clone())).collect()
    }

    pub(crate) fn usage(&self) -> SegmentUse {
        let inner = self.inner.read();
        SegmentUse {
            data_slabs: inner.net_held(),
            host_slabs: inner.net_for_hosts_as(&inner.layouts),
            table_slabs: self.table_slabs.columns(),
            free_slabs: inner.net_free(),
            awaiting_slabs: inner.net_awaiting(),
            live_blocks: inner.live_blocks,
            live_data: inner.live_data_grains.values().sum::<u64>() * GRAIN_BYTES,
            net_live_data: inner.net_live_grains() * GRAIN_BYTES,
            live_meta: inner.live_meta_grains * GRAIN_BYTES,
        }
    }

    /// The indexes of table pages that changed since last asked, and how many pages the table has.
    pub(crate) fn take_dirty_pages(&self) -> BTreeSet<PageNumber> {
        std::mem::take(&mut self.inner.write().dirty_pages)
    }

    /// How many of its pages a checkpoint would write that finds new places for `placed` pages: each gives up a place in
    /// some segment.
    pub(crate) fn due(&self, placed: u64) -> u64 {
        let inner = self.inner.read();
        let all = inner.segments.len().div_ceil(SEGMENTS_PER_PAGE) as u64;
        placed.saturating_add(inner.dirty_pages.len() as u64).min(all)
    }

    pub(crate) fn count(&self) -> u32 {
        self.inner.read().segments.len() as u32
    }
}

impl Inner {
    /// The drive with the most free slabs, of those that get new segments.
    fn roomiest_drive(&self) -> Option<DriveIndex> {
        let by_room = |(drive, free): &(&DriveIndex, &BTreeSet<u32>)| (free.len(), Reverse(**drive));
        self.free_slabs
            .iter()
            .filter(|(drive, free)| !free.is_empty() && self.layouts.takes(**drive))
            .max_by_key(by_room)
            .map(|(drive, _)| *drive)
    }

    fn dirty(&mut self, id: u32) {
        self.dirty_pages.insert(PageNumber(u64::from(id) / SEGMENTS_PER_PAGE as u64));
    }

    /// Lists a segment anew: what it is listed by changed.
    fn list(&mut self, id: u32) {
        self.index.list(id, &self.segments[id as usize]);
    }

    fn count(&mut self, location: Location, up: bool) {
        let segment = &mut self.segments[location.segment().0 as usize];
        assert!(segment.state != SegmentState::Free, "live data in free segment {}", location.segment());
        let mut none = 0;
        let (grains, blocks) = if segment.stream.is_metadata() {
            (&mut self.live_meta_grains, &mut none)
        } else {
            (self.live_data_grains.entry(segment.spread()).or_default(), &mut self.live_blocks)
        };
        if up {
            segment.live_grains += location.counted_grains();
            segment.live_contents += 1;
            *grains += u64::from(location.counted_grains());
            *blocks += 1;
        } else {
            segment.live_grains -= location.counted_grains();
            segment.live_contents -= 1;
            *grains -= u64::from(location.counted_grains());
            *blocks = blocks.saturating_sub(1);
        }
        self.dirty(location.segment().0);
        self.list(location.segment().0);
    }

    fn quarantine_if_empty(
        &mut self,
        id: SegmentId,
        generation: CheckpointGeneration,
        readers: &ReaderEpochs,
    ) {
        let segment = &mut self.segments[id.0 as usize];
        if segment.is_given_up() {
            segment.state = SegmentState::Quarantined;
            self.quarantine.push_back(Quarantined { id, generation, reader_epoch: readers.current() });
            self.dirty(id.0);
            self.list(id.0);
        }
    }

    fn free_quarantined(&mut self, may: impl Fn(&Quarantined) -> bool) -> bool {
        let before = self.quarantine.len();
        for quarantined in std::mem::take(&mut self.quarantine) {
            if !may(&quarantined) {
                self.quarantine.push_back(quarantined);
                continue;
            }
            let id = quarantined.id.0;
            let old = std::mem::replace(&mut self.segments[id as usize], free_segment());
            assert!(
                old.state == SegmentState::Quarantined && old.live_grains == 0 && old.placed_grains == 0,
                "segment {id} comes free with something in it"
            );
            self.segments[id as usize].generation = old.generation;
            old.stripes.columns.iter().for_each(|column| self.comes_free(*column));
            self.free_ids.insert(id);
            self.dirty(id);
            self.list(id);
        }
        self.quarantine.len() < before
    }
}

fn free_segment() -> Segment {
    Segment {
        state: SegmentState::Free,
        stream: Stream::Data,
        layout: None,
        stripes: StripeSet::whole(Geometry::none(0), Arc::from([])),
        generation: SegmentGeneration(0),
        live_grains: 0,
        live_contents: 0,
        placed_grains: 0,
        last_placed: None,
        written_bytes: 0,
        written_in: CheckpointGeneration(0),
        rows_under_way: 0,
    }
}
