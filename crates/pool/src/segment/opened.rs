//! What the journal says of a segment that was opened for placed rows: a record may name it before a checkpoint does.

use crate::{
    format::{RecordHeader, RecordKind, zeroed},
    journal::Entry,
    meta::Segment,
};
use quoin_base::{DriveIndex, Layout, SegmentGeneration, SegmentId, Sequence};
use quoin_stripe::{Column, Geometry, StripeSet};
use std::sync::Arc;

/// A segment as it was when it was opened. In the journal: its id and generation are the record's source, its layout lies
/// where other records have checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenedSegment {
    pub id: SegmentId,
    pub generation: SegmentGeneration,
    /// The layout that it was opened for. `None`: the pool's.
    pub layout: Option<Layout>,
    pub stripes: StripeSet,
}

impl OpenedSegment {
    pub(crate) fn new(id: SegmentId, segment: &Segment) -> Self {
        Self {
            id,
            generation: segment.generation,
            layout: segment.layout,
            stripes: StripeSet::whole(segment.stripes.geometry, segment.stripes.columns.clone()),
        }
    }

    /// The record that says so.
    pub(crate) fn record(&self, sequence: Sequence) -> Entry {
        let mut header: RecordHeader = zeroed();
        header.sequence = sequence.0.into();
        header.kind = RecordKind::Segment as u8;
        header.source = (u64::from(self.id.0) | u64::from(self.generation.0) << 32).into();
        let Geometry { data, parity, strip_bytes, row_bytes } = self.stripes.geometry;
        let [its_data, its_parity] = self.layout.map_or([0, 0], |layout| [layout.data(), layout.parity()]);
        let layout = u32::from_le_bytes([data, parity, its_data, its_parity]);
        let mut words = vec![layout, strip_bytes, row_bytes];
        words.extend(self.stripes.columns.iter().flat_map(|column| [u32::from(column.drive.0), column.slab]));
        Entry { header, crcs: words, payload: Vec::new(), row: None }
    }

    /// What such a record says; `None` if it is impossible.
    pub(crate) fn parse(header: &RecordHeader, words: &[u32]) -> Option<Self> {
        let source = header.source.get();
        let &[layout, strip_bytes, row_bytes, ref columns @ ..] = words else { return None };
        let [data, parity, its_data, its_parity] = layout.to_le_bytes();
        let geometry = Geometry { data, parity, strip_bytes, row_bytes };
        let layout = match (its_data, its_parity) {
            (0, 0) => None,
            columns => Some(Layout::of_columns(columns)?),
        };
        let (columns, rest) = columns.as_chunks::<2>();
        let column =
            |&[drive, slab]: &[u32; 2]| Some(Column { drive: DriveIndex(u16::try_from(drive).ok()?), slab });
        let columns = columns.iter().map(column).collect::<Option<Arc<[_]>>>()?;
        let is_possible = rest.is_empty() && geometry.data > 0 && geometry.columns() == columns.len();
        is_possible.then_some(Self {
            id: SegmentId(source as u32),
            generation: SegmentGeneration((source >> 32) as u32),
            layout,
            stripes: StripeSet::whole(geometry, columns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_what_was_opened() {
        let column = |drive, slab| Column { drive: DriveIndex(drive), slab };
        let opened = OpenedSegment {
            id: SegmentId(7),
            generation: SegmentGeneration(3),
            layout: Layout::of_columns((4, 2)),
            stripes: StripeSet::whole(
                Geometry { data: 2, parity: 1, strip_bytes: 16_384, row_bytes: 65_536 },
                Arc::from([column(0, 70_000), column(4, 1), column(2, 9)]),
            ),
        };
        let Entry { header, crcs, .. } = opened.record(Sequence(5));
        assert_eq!(OpenedSegment::parse(&header, &crcs), Some(opened));
        for len in 0..crcs.len() {
            assert_eq!(OpenedSegment::parse(&header, &crcs[..len]), None, "{len} words");
        }
    }
}
