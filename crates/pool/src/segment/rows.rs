//! Packing blocks and pages into rows of open segments.

use crate::{
    error::PoolError,
    format::{Location, PAGE_BYTES, ROW_CONTENTS, ROW_MAGIC, RowContent, RowHeader, zeroed},
    meta::{PageId, PageStore, Segment, Stream},
    segment::{opened::OpenedSegment, segments::Segments},
};
use quoin_base::{CheckpointGeneration, DriveIndex, Layout, PoolId, SegmentId};
use quoin_stripe::Column;
use quoin_world::{Buf, Slice as Bytes};
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// A row that is planned and not written yet.
///
/// It has a head for every so many contents. So it is as long as it may be also if its contents are short, and what fills it up to a
/// whole stripe is a small part of it.
pub(crate) struct Row {
    segment: SegmentId,
    layout: Segment,
    stream: Stream,
    offset: u64,
    /// Bytes so far, heads and what fills up to contents included.
    len_bytes: u64,
    parts: Vec<Part>,
}

/// A head of a row and what it names.
struct Part {
    /// Where the head begins, from the row's beginning on.
    offset: u64,
    contents: Vec<RowContent>,
    /// What follows the head.
    data: Vec<Bytes>,
}

/// The open segments of a stream, and the rows planned in them and their predecessors.
///
/// As a rule one segment is open. With more, rows of one batch are written to several drives at the same time. These segments
/// share few drives or none. A row goes to the one whose drives were given the fewest rows; of several, to the next in turn.
pub(crate) struct RowWriter {
    stream: Stream,
    /// What its segments are tagged with.
    layout: Option<Layout>,
    /// In the order in which they were given rows last.
    open: Vec<(SegmentId, Segment)>,
    /// Which of these the last row is in.
    turn: usize,
    /// How many may be open.
    spread: usize,
    /// Segments are opened only while so many slabs are free.
    opens_from: u64,
    /// Beside the open ones no other has drives of its own.
    fits_no_more: bool,
    given: Given,
    rows: Vec<Row>,
    /// The last row takes no more.
    row_ended: bool,
    /// Lost drives that open segments were looked at for.
    losses: u64,
}

/// How many rows each drive was given, on a clock of rows: what a drive was not given in the past it does not get later.
#[derive(Default)]
struct Given {
    now: u64,
    until: BTreeMap<DriveIndex, u64>,
}

impl Given {
    /// How far the busiest drive of a segment is.
    fn rows_before(&self, columns: &[Column]) -> u64 {
        let drives = columns.iter().filter_map(|column| self.until.get(&column.drive));
        drives.copied().fold(self.now, u64::max)
    }

    /// Which of these segments has the next row: the first of those whose busiest drive was given the fewest.
    fn next<'a>(&self, segments: impl Iterator<Item = &'a [Column]>) -> Option<usize> {
        let (next, _) = segments.enumerate().min_by_key(|(_, columns)| self.rows_before(columns))?;
        Some(next)
    }

    /// A row goes to a segment.
    fn give(&mut self, columns: &[Column]) {
        self.now = self.rows_before(columns);
        self.until.extend(columns.iter().map(|column| (column.drive, self.now + 1)));
    }
}

impl RowWriter {
    /// Of a stream, for what is laid out so. `None`: as the pool.
    pub(crate) fn new(stream: Stream, layout: Option<Layout>) -> Self {
        Self {
            stream,
            layout,
            open: Vec::new(),
            turn: 0,
            spread: 1,
            opens_from: 0,
            fits_no_more: false,
            given: Given::default(),
            rows: Vec::new(),
            row_ended: true,
            losses: 0,
        }
    }

    /// From now on keeps segments open on so many drives. What is open beyond that is still filled up.
    pub(crate) fn spread_over(&mut self, drives: usize) {
        self.spread = drives.max(1);
    }

    /// From now on opens segments only while so many slabs are free.
    pub(crate) fn open_from(&mut self, slabs: u64) {
        self.opens_from = slabs;
    }

    fn take(&self, segments: &Segments, drives: &[DriveIndex]) -> Option<(SegmentId, Segment)> {
        if self.opens_from > 0 && segments.table.usage().free_slabs < self.opens_from {
            return None;
        }
        segments.table.take(self.stream, self.layout, drives)
    }

    /// Finds a place for `len_bytes` of content, whole grains, that a head of the row will name as `content`.
    /// The caller adds the data to the row in the same order, and lets something lead there: the place counts as
    /// live already. `None`: no slab is free.
    pub(crate) fn place(
        &mut self,
        segments: &Segments,
        content: RowContent,
        len_bytes: usize,
        generation: CheckpointGeneration,
    ) -> Option<Location> {
        self.leave_degraded(segments, generation);
        let fits = !self.row_ended
            && self.rows.last().is_some_and(|row| {
                let geometry = row.layout.stripes.geometry;
                row.end_with(len_bytes as u64).is_some_and(|end| {
                    end <= segments.table.row_end(self.stream, geometry)
                        && row.offset + end <= segments.table.segment_bytes(geometry)
                })
            });
        // Another row, in an open segment of the stream. Its contents begin behind its head.
        if !fits {
            self.end_row(segments);
            self.turn_to_segment(segments, len_bytes as u64, generation)?;
            let (segment, layout) = self.open[self.turn].clone();
            self.given.give(&layout.stripes.columns);
            let (stream, offset) = (self.stream, layout.written_bytes);
            let len_bytes = stream.contents_begin(offset, len_bytes as u64) - offset;
            let data = Vec::from_iter(zeroes(len_bytes - PAGE_BYTES as u64));
            segments.table.row_begins(segment);
            let parts = vec![Part { offset: 0, contents: Vec::new(), data }];
            self.rows.push(Row { segment, layout, stream, offset, len_bytes, parts });
            self.row_ended = false;
        }
        let row = self.rows.last_mut()?;
        let location = row.push(content, len_bytes);
        let (segment, end) = (location.segment(), location.offset_bytes() + location.len_bytes());
        assert!(
            end <= segments.table.segment_bytes(row.layout.stripes.geometry),
            "what is placed ends at {end}, beyond segment {segment}"
        );
        // Live from here on: a segment that is sealed before its rows are published must not look empty.
        segments.table.add(location);
        Some(location)
    }

    /// Adds nothing more to segments that lack a column, because a drive was lost, or have one on a drive that leaves: what is
    /// written next is whole, and stays.
    pub(crate) fn leave_degraded(&mut self, segments: &Segments, generation: CheckpointGeneration) {
        let losses = segments.table.losses();
        if std::mem::replace(&mut self.losses, losses) == losses {
            return;
        }
        self.end_row(segments);
        let (left, kept) = self.open.drain(..).partition(|(id, _)| segments.table.is_unfit(*id));
        self.open = kept;
        (self.turn, self.fits_no_more) = (0, false);
        left.into_iter().for_each(|(id, _): (SegmentId, Segment)| segments.seal(id, generation));
    }

    /// Takes the segment that is to have the next row off the list: a new one while there is one on drives of its own. `None`: no
    /// slab is free.
    fn next_open(&mut self, segments: &Segments) -> Option<(SegmentId, Segment)> {
        let is_short = self.open.len() < self.spread && !self.fits_no_more;
        if is_short || self.open.is_empty() {
            let drives = drives_of(self.open.iter());
            let next = self.take(segments, &drives);
            if next.is_some() {
                return next;
            }
            self.fits_no_more = true;
        }
        let columns = self.open.iter().map(|(_, segment)| &*segment.stripes.columns);
        let next = self.given.next(columns)?;
        Some(self.open.remove(next))
    }

    /// Turns to an open segment with room for `len_bytes` of content in a row of its own. `None`: no slab is free.
    fn turn_to_segment(
        &mut self,
        segments: &Segments,
        len_bytes: u64,
        generation: CheckpointGeneration,
    ) -> Option<()> {
        let next = self.next_open(segments)?;
        // NOTE: the last one had the last row, and so on. Of drives that are alike the first is the next in turn.
        self.turn = self.open.len();
        self.open.push(next);
        // The first open segment from here on with room. Full ones on the way are sealed.
        for _ in 0..=self.open.len() {
            self.turn %= self.open.len();
            let (id, segment) = &self.open[self.turn];
            let begin = self.stream.contents_begin(segment.written_bytes, len_bytes);
            if begin + len_bytes <= segments.table.segment_bytes(segment.stripes.geometry) {
                return Some(());
            }
            let full = *id;
            self.fits_no_more = false;
            if self.open.len() > self.spread {
                self.open.remove(self.turn);
                segments.seal(full, generation);
                continue;
            }
            // What is nearly full as well does not count. It fills up in turn with this one, so nothing but the drives of this one
            // would be left, and the same drives would share all their segments.
            let is_fresh = |(id, segment): &&(SegmentId, Segment)| {
                let all = segments.table.segment_bytes(segment.stripes.geometry);
                *id != full && 2 * segment.written_bytes < all
            };
            let drives = drives_of(self.open.iter().filter(is_fresh));
            match self.take(segments, &drives) {
                Some(next) => {
                    self.open[self.turn] = next;
                    segments.seal(full, generation);
                    return Some(());
                }
                // The fresh ones are on all drives.
                None if !drives.is_empty() => {
                    self.open.remove(self.turn);
                    segments.seal(full, generation);
                }
                // Another may have room left.
                None => self.turn += 1,
            }
        }
        None
    }

    /// Ends the row at hand: what is placed next opens another. The segment notes where that begins.
    pub(crate) fn end_row(&mut self, segments: &Segments) {
        self.row_ended = true;
        let Some(row) = self.rows.last() else { return };
        let Some((id, open)) = self.open.iter_mut().find(|(id, _)| *id == row.segment) else { return };
        let end = row.end();
        if end > open.written_bytes {
            open.written_bytes = end;
            // The task that sees a placed row land notes it then.
            if self.stream != Stream::Placed {
                segments.table.wrote(*id, end);
            }
        }
    }

    /// Adds the data of what was placed last.
    pub(crate) fn push_data(&mut self, data: Bytes) {
        if let Some(part) = self.rows.last_mut().and_then(|row| row.parts.last_mut()) {
            part.data.push(data);
        }
    }

    /// The planned rows, complete. The next content opens a new row.
    pub(crate) fn finish(&mut self, segments: &Segments) -> Vec<Row> {
        self.end_row(segments);
        std::mem::take(&mut self.rows)
    }

    /// Seals what is open.
    pub(crate) fn seal(&mut self, segments: &Segments, generation: CheckpointGeneration) {
        self.fits_no_more = false;
        for (id, _) in std::mem::take(&mut self.open) {
            segments.seal(id, generation);
        }
    }
}

fn drives_of<'a>(open: impl Iterator<Item = &'a (SegmentId, Segment)>) -> Vec<DriveIndex> {
    open.flat_map(|(_, segment)| segment.stripes.columns.iter().map(|column| column.drive)).collect()
}

impl Row {
    /// The drive it goes to.
    pub(crate) fn drive(&self) -> DriveIndex {
        self.layout.stripes.columns.first().map(|column| column.drive).unwrap_or_default()
    }

    pub(crate) fn segment(&self) -> SegmentId {
        self.segment
    }

    /// Where it ends in its segment.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.padded_bytes()
    }

    /// Its length on the drives: whole stripes.
    fn padded_bytes(&self) -> u64 {
        self.len_bytes.next_multiple_of(self.layout.stripes.geometry.stripe_bytes())
    }

    /// Whether it is its segment's first.
    pub(crate) fn is_first(&self) -> bool {
        self.offset == 0
    }

    /// Its segment, as it was opened.
    pub(crate) fn opened(&self) -> OpenedSegment {
        OpenedSegment::new(self.segment, &self.layout)
    }

    /// Whether it has something at this place.
    pub(crate) fn holds(&self, location: Location) -> bool {
        location.segment() == self.segment && (self.offset..self.end()).contains(&location.offset_bytes())
    }

    /// Whether its last head names as much as it can.
    fn is_head_full(&self) -> bool {
        self.parts.last().is_none_or(|part| part.contents.len() == ROW_CONTENTS)
    }

    /// How long it is with so much content more, and another head if that takes one; `None`: it has as many as it may.
    fn end_with(&self, len_bytes: u64) -> Option<u64> {
        if !self.is_head_full() {
            return Some(self.len_bytes + len_bytes);
        }
        // Only what is filled up to stripes needs more heads: otherwise another row costs nothing.
        let may_have_more = self.layout.stripes.geometry.data > 1 && !self.stream.is_metadata();
        may_have_more.then(|| self.next_head() + PAGE_BYTES as u64 + len_bytes)
    }

    fn next_head(&self) -> u64 {
        self.len_bytes.next_multiple_of(PAGE_BYTES as u64)
    }

    fn push(&mut self, content: RowContent, len_bytes: usize) -> Location {
        if self.is_head_full() {
            let offset = self.next_head();
            if let Some(part) = self.parts.last_mut() {
                part.data.extend(zeroes(offset - self.len_bytes));
            }
            self.len_bytes = offset + PAGE_BYTES as u64;
            self.parts.push(Part { offset, contents: Vec::new(), data: Vec::new() });
        }
        let location = Location::new(self.segment, self.offset + self.len_bytes, len_bytes);
        self.len_bytes += len_bytes as u64;
        if let Some(part) = self.parts.last_mut() {
            part.contents.push(content);
        }
        location
    }

    /// The pages that a row of metadata holds.
    fn pages(&self) -> Vec<PageId> {
        let is_metadata = self.stream.is_metadata();
        let contents = self.parts.iter().flat_map(|part| &part.contents).filter(|_| is_metadata);
        contents.filter_map(|content| PageId::unpack(content.name.get())).collect()
    }

    /// Puts the bytes of the row together: heads and data, zeroes up to a whole stripe, all aligned to `unit` bytes.
    /// A row of metadata gets its data only now, as the cut has it.
    ///
    /// # Errors
    ///
    /// What taking a metadata page from the cut returns.
    pub(crate) fn compose(
        mut self,
        pool: PoolId,
        unit: usize,
        pages: &PageStore,
    ) -> Result<ComposedRow, PoolError> {
        let of_metadata = self.pages();
        for page in &of_metadata {
            let page = pages.take(*page)?;
            // A row of metadata has one head.
            self.parts[0].data.push(page);
        }
        let len_bytes = self.padded_bytes();
        let mut data: Vec<Bytes> = Vec::new();
        let ends: Vec<u64> = self.parts.iter().skip(1).map(|part| part.offset).chain([len_bytes]).collect();
        for (part, end) in std::mem::take(&mut self.parts).into_iter().zip(ends) {
            data.push(self.head(pool, &part, end - part.offset));
            data.extend(part.data);
        }
        let filled: u64 = data.iter().map(|d| d.len() as u64).sum();
        assert_eq!(filled, self.len_bytes, "a row holds exactly what was placed in it");
        data.extend(zeroes(len_bytes - self.len_bytes));
        if data.iter().any(|s| !s.len().is_multiple_of(unit) || !(s.as_ptr() as usize).is_multiple_of(unit)) {
            // A host's block may begin at any sector of the buffer it came in.
            data = vec![Bytes::joined(&data)];
        }
        let (segment, layout, stream, offset) = (self.segment, self.layout, self.stream, self.offset);
        Ok(ComposedRow { segment, layout, stream, offset, len_bytes, data, pages: of_metadata })
    }

    /// A head, of so many bytes with what follows it. It names what lies there: the cleaner finds it by that.
    fn head(&self, pool: PoolId, part: &Part, len_bytes: u64) -> Bytes {
        let mut head: RowHeader = zeroed();
        head.magic = ROW_MAGIC.into();
        head.pool = *pool.0.as_bytes();
        head.segment = self.segment.0.into();
        head.segment_generation = self.layout.generation.0.into();
        head.offset = ((self.offset + part.offset) as u32).into();
        head.len_bytes = (len_bytes as u32).into();
        head.count = (part.contents.len() as u32).into();
        head.stream = self.stream as u8;
        for (slot, content) in head.contents.iter_mut().zip(&part.contents) {
            *slot = *content;
        }
        head.seal();
        Buf::copy_of(head.as_bytes()).into_slice()
    }

    /// The columns of its segment.
    pub(crate) fn columns(&self) -> &[Column] {
        &self.layout.stripes.columns
    }
}

/// So many of them, if any.
fn zeroes(len_bytes: u64) -> Option<Bytes> {
    (len_bytes > 0).then(|| Buf::zeroed(len_bytes as usize).into_slice())
}

/// A row as it goes to drives.
pub(crate) struct ComposedRow {
    pub segment: SegmentId,
    pub layout: Segment,
    pub stream: Stream,
    /// Where it begins in its segment.
    pub offset: u64,
    pub len_bytes: u64,
    pub data: Vec<Bytes>,
    /// The metadata pages that it holds.
    pub pages: Vec<PageId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(drives: &[u16]) -> Vec<Column> {
        drives.iter().map(|drive| Column { drive: DriveIndex(*drive), slab: 0 }).collect()
    }

    /// Which of these segments have the next rows.
    fn rows_of(given: &mut Given, segments: &[Vec<Column>], rows: usize) -> Vec<usize> {
        let mut next = || {
            let at = given.next(segments.iter().map(Vec::as_slice)).unwrap();
            given.give(&segments[at]);
            at
        };
        (0..rows).map(|_| next()).collect()
    }

    #[test]
    fn drives_get_rows_alike_also_where_segments_share_one() {
        let apart = [on(&[0, 1]), on(&[2, 3]), on(&[4, 5])];
        assert_eq!(rows_of(&mut Given::default(), &apart, 6), [0, 1, 2, 0, 1, 2]);
        let sharing = [on(&[0, 1]), on(&[1, 2]), on(&[3, 4])];
        let rows = rows_of(&mut Given::default(), &sharing, 60);
        let on_the_others = rows.iter().filter(|at| **at == 2).count();
        assert_eq!(on_the_others, 30, "half of all rows are on drive 1: {rows:?}");
    }

    #[test]
    fn a_drive_that_had_no_segment_for_a_while_does_not_get_all_rows_then() {
        let mut given = Given::default();
        rows_of(&mut given, &[on(&[0, 1])], 100);
        assert_eq!(rows_of(&mut given, &[on(&[0, 1]), on(&[2, 3])], 7), [1, 0, 1, 0, 1, 0, 1]);
    }
}
