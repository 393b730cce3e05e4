//! Packing blocks and pages into rows of open segments.

use crate::{
    error::PoolError,
    format::{Location, PAGE_BYTES, ROW_CONTENTS, ROW_MAGIC, RowHeader, zeroed},
    meta::{Segment, SegmentTable, Stream},
    readers::ReaderEpochs,
    segment_io::SegmentIo,
    write::copied,
};
use quoin_base::{PoolId, SECTOR_BYTES, SegmentId};
use quoin_world::{Buf, Slice};
use zerocopy::IntoBytes;

/// A row that is planned and not written yet.
pub(crate) struct Row {
    segment: SegmentId,
    layout: Segment,
    stream: Stream,
    offset: u64,
    /// Bytes so far, the head and what fills up to the first content included.
    len_bytes: u64,
    pub(crate) contents: Vec<u64>,
    pub(crate) data: Vec<Slice>,
}

/// The open segment of a stream, and the rows planned in it and its predecessors.
pub(crate) struct RowWriter {
    stream: Stream,
    open: Option<(SegmentId, Segment)>,
    rows: Vec<Row>,
    /// The last row takes no more.
    row_ended: bool,
}

impl RowWriter {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, open: None, rows: Vec::new(), row_ended: true }
    }

    /// Finds a place for `len_bytes` of content, a multiple of 512, that the row's head will call `content`.
    /// The caller adds the data to the row in the same order, and lets something lead there: the place counts as
    /// live already. `None`: no slab is free.
    pub(crate) fn place(
        &mut self,
        segments: &SegmentTable,
        content: u64,
        len_bytes: usize,
        generation: u64,
        readers: &ReaderEpochs,
    ) -> Option<Location> {
        let fits = !self.row_ended
            && self.rows.last().is_some_and(|row| {
                let end = row.len_bytes + len_bytes as u64;
                end <= u64::from(row.layout.geometry.row_bytes)
                    && row.offset + end <= segments.segment_bytes()
                    && row.contents.len() < ROW_CONTENTS
            });
        if !fits {
            self.end_row(segments);
            let begin = |s: &Segment| self.stream.contents_begin(s.written_bytes);
            let room = |s: &Segment| begin(s) + len_bytes as u64 <= segments.segment_bytes();
            if !self.open.as_ref().is_some_and(|(_, s)| room(s)) {
                let next = segments.take(self.stream)?;
                if let Some((full, _)) = self.open.replace(next) {
                    segments.seal(full, generation, readers);
                }
            }
            let (segment, layout) = self.open.clone()?;
            let (stream, offset) = (self.stream, layout.written_bytes);
            let len_bytes = stream.contents_begin(offset) - offset;
            let padding = len_bytes as usize - PAGE_BYTES;
            let data = if padding > 0 { vec![Buf::zeroed(padding).into_slice()] } else { Vec::new() };
            self.rows.push(Row { segment, layout, stream, offset, len_bytes, contents: Vec::new(), data });
            self.row_ended = false;
        }
        let location = self.rows.last_mut()?.push(content, len_bytes);
        // Live from here on: a segment that is sealed before its rows are published must not look empty.
        segments.add(location);
        Some(location)
    }

    /// Ends the row at hand: what is placed next opens another. The segment notes where that begins.
    pub(crate) fn end_row(&mut self, segments: &SegmentTable) {
        self.row_ended = true;
        let (Some(row), Some((id, open))) = (self.rows.last(), self.open.as_mut()) else { return };
        let end = row.offset + row.len_bytes.next_multiple_of(PAGE_BYTES as u64);
        if row.segment == *id && end > open.written_bytes {
            open.written_bytes = end;
            segments.wrote(*id, end);
        }
    }

    /// Adds the data of what was placed last.
    pub(crate) fn push_data(&mut self, data: Slice) {
        if let Some(row) = self.rows.last_mut() {
            row.data.push(data);
        }
    }

    /// The planned rows, complete. The next content opens a new row.
    pub(crate) fn finish(&mut self, segments: &SegmentTable) -> Vec<Row> {
        self.end_row(segments);
        std::mem::take(&mut self.rows)
    }

    /// Seals the open segment.
    pub(crate) fn seal(&mut self, segments: &SegmentTable, generation: u64, readers: &ReaderEpochs) {
        if let Some((id, _)) = self.open.take() {
            segments.seal(id, generation, readers);
        }
    }
}

impl Row {
    fn push(&mut self, content: u64, len_bytes: usize) -> Location {
        let location = Location::new(self.segment, self.offset + self.len_bytes, len_bytes);
        self.len_bytes += len_bytes as u64;
        self.contents.push(content);
        location
    }

    /// Writes the row: head, data, zeroes up to the next multiple of 4096.
    pub(crate) async fn write(self, io: &SegmentIo, pool: PoolId) -> Result<u64, PoolError> {
        let filled: u64 = self.data.iter().map(|d| d.len() as u64).sum();
        assert_eq!(filled + PAGE_BYTES as u64, self.len_bytes, "a row holds exactly what was placed in it");
        let len_bytes = self.len_bytes.next_multiple_of(PAGE_BYTES as u64);
        let mut head: RowHeader = zeroed();
        head.magic = ROW_MAGIC.into();
        head.pool = *pool.0.as_bytes();
        head.segment = self.segment.0.into();
        head.segment_generation = self.layout.generation.into();
        head.offset = (self.offset as u32).into();
        head.len_bytes = (len_bytes as u32).into();
        head.count = (self.contents.len() as u32).into();
        head.stream = self.stream as u8;
        for (slot, content) in head.contents.iter_mut().zip(&self.contents) {
            *slot = (*content).into();
        }
        head.seal();
        let mut data = Vec::with_capacity(self.data.len() + 2);
        data.push(Buf::copy_of(head.as_bytes()).into_slice());
        data.extend(self.data);
        let padding = len_bytes - self.len_bytes;
        if padding > 0 {
            data.push(Buf::zeroed(padding as usize).into_slice());
        }
        debug_assert!(padding.is_multiple_of(SECTOR_BYTES));
        let unit = io.columns.block_bytes(&self.layout.columns)? as usize;
        if data.iter().any(|s| !s.len().is_multiple_of(unit) || !(s.as_ptr() as usize).is_multiple_of(unit)) {
            // A host's block may begin at any sector of the buffer it came in.
            data = vec![copied(&data)];
        }
        io.columns.write_row(self.layout.geometry, &self.layout.columns, self.offset, data).await?;
        Ok(len_bytes)
    }
}
