//! The open segments of a stream: a row writer for each layout that is written.
//!
//! What volumes with the same layout write shares rows. A segment is of one layout only.

use crate::{
    format::{Location, RowContent},
    meta::Stream,
    segment::{
        rows::{Row, RowWriter},
        segments::Segments,
    },
};
use quoin_base::{CheckpointGeneration, Layout};
use quoin_world::Slice as Bytes;
use std::collections::BTreeMap;

/// Row writers of a stream, by what their segments are tagged with.
pub(crate) struct RowWriters {
    stream: Stream,
    spread: usize,
    opens_from: u64,
    by_layout: BTreeMap<Option<Layout>, RowWriter>,
    /// Where something was placed last.
    last: Option<Layout>,
}

impl RowWriters {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, spread: 1, opens_from: 0, by_layout: BTreeMap::new(), last: None }
    }

    /// As [`RowWriter::spread_over`], for each layout.
    pub(crate) fn spread_over(&mut self, drives: usize) {
        self.spread = drives;
        self.by_layout.values_mut().for_each(|rows| rows.spread_over(drives));
    }

    /// As [`RowWriter::open_from`], for each layout.
    pub(crate) fn open_from(&mut self, slabs: u64) {
        self.opens_from = slabs;
        self.by_layout.values_mut().for_each(|rows| rows.open_from(slabs));
    }

    /// As [`RowWriter::place`], in a segment with this tag.
    pub(crate) fn place(
        &mut self,
        segments: &Segments,
        layout: Option<Layout>,
        content: RowContent,
        len_bytes: usize,
        generation: CheckpointGeneration,
    ) -> Option<Location> {
        self.last = layout;
        let (stream, spread, opens_from) = (self.stream, self.spread, self.opens_from);
        let rows = self.by_layout.entry(layout).or_insert_with(|| {
            let mut rows = RowWriter::new(stream, layout);
            rows.spread_over(spread);
            rows.open_from(opens_from);
            rows
        });
        rows.place(segments, content, len_bytes, generation)
    }

    /// Adds the data of what was placed last.
    pub(crate) fn push_data(&mut self, data: Bytes) {
        if let Some(rows) = self.by_layout.get_mut(&self.last) {
            rows.push_data(data);
        }
    }

    /// The planned rows, complete.
    pub(crate) fn finish(&mut self, segments: &Segments) -> Vec<Row> {
        self.by_layout.values_mut().flat_map(|rows| rows.finish(segments)).collect()
    }

    /// As [`RowWriter::leave_degraded`].
    pub(crate) fn leave_degraded(&mut self, segments: &Segments, generation: CheckpointGeneration) {
        self.by_layout.values_mut().for_each(|rows| rows.leave_degraded(segments, generation));
    }

    /// Seals what is open.
    pub(crate) fn seal(&mut self, segments: &Segments, generation: CheckpointGeneration) {
        std::mem::take(&mut self.by_layout)
            .into_values()
            .for_each(|mut rows| rows.seal(segments, generation));
    }
}
