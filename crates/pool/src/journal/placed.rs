//! Whether what records of placed blocks lead to is there.
//!
//! A record and the row that it names are on their way at the same time, and count together. So a record that nothing tells
//! to count may lead to a row that never reached its drive: then it was never acknowledged.

use super::replay::{ReplayedRecord, Scan};
use crate::{
    bugs::{Bug, planted},
    format::{Location, RecordKind},
    segment::{io::SegmentIo, opened::OpenedSegment},
};
use quoin_base::{ByteRange, SegmentId, Sequence, crc32c};
use quoin_stripe::{Column, Geometry, StripeError};
use quoin_world::Buf;
use std::{collections::BTreeMap, sync::Arc};

/// How often a row is read before it counts as unreadable.
const TRIES: u32 = 3;

/// Where the segments lie that records name.
pub(super) struct PlacedRows<'a> {
    io: &'a SegmentIo,
    tail: Sequence,
    /// Segments that were opened from the tail on, by when. What was opened before is in the checkpoint's segment table;
    /// older records of openings may be of segments that were given up since.
    opened: BTreeMap<SegmentId, BTreeMap<Sequence, OpenedSegment>>,
}

impl<'a> PlacedRows<'a> {
    pub(super) fn new(io: &'a SegmentIo, scans: &[Scan<'_>], tail: Sequence) -> Self {
        let mut opened: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for record in scans.iter().flat_map(Scan::records) {
            let sequence = Sequence(record.header.sequence.get());
            if record.header.kind == RecordKind::Segment as u8
                && sequence >= tail
                && let Some(segment) = OpenedSegment::parse(&record.header, &record.crcs)
            {
                opened.entry(segment.id).or_default().insert(sequence, segment);
            }
        }
        Self { io, tail, opened }
    }

    /// Whether what the record leads to is what its checksums say. A record of another kind leads nowhere. One below the
    /// tail counted: what it led to is in the checkpoint, and may have been given up.
    ///
    /// NOTE: a row that its drive fails to read counts as there. It may have been acknowledged, and the blocks then read
    /// with an error, which is what a drive's error leads to anywhere else.
    pub(super) async fn verifies(&self, record: &ReplayedRecord) -> bool {
        let sequence = Sequence(record.header.sequence.get());
        let is_placed = record.header.kind == RecordKind::Placed as u8;
        if !is_placed || sequence < self.tail || planted(Bug::TrustPlaced) {
            return true;
        }
        let first = Location(record.header.source.get());
        let Some((geometry, columns)) = self.layout(first.segment(), sequence) else { return false };
        let block = first.len_bytes();
        let range = ByteRange::new(first.offset_bytes(), block * record.crcs.len() as u64);
        if range.end() > self.io.segments.segment_bytes() {
            return false;
        }
        match self.read(geometry, &columns, range).await {
            Ok(bytes) => {
                let crcs = bytes.chunks(block as usize).map(|block| crc32c(block).0);
                crcs.eq(record.crcs.iter().copied())
            }
            Err(_) => true,
        }
    }

    /// Where a segment lay when the record of that sequence named it.
    fn layout(&self, id: SegmentId, sequence: Sequence) -> Option<(Geometry, Arc<[Column]>)> {
        let opened = self.opened.get(&id).and_then(|openings| openings.range(..sequence).next_back());
        match opened {
            Some((_, segment)) => Some((segment.geometry, segment.columns.as_slice().into())),
            None => self.io.segments.layout(id),
        }
    }

    async fn read(
        &self,
        geometry: Geometry,
        columns: &[Column],
        range: ByteRange,
    ) -> Result<Vec<u8>, StripeError> {
        let page = crate::format::PAGE_BYTES as u64;
        let from = range.offset / page * page;
        let whole = ByteRange::new(from, range.end().next_multiple_of(page) - from);
        let mut tries = 1;
        let buf: Buf = loop {
            match self.io.store.read_segment(geometry, columns, whole).await {
                Err(_) if tries < TRIES => tries += 1,
                outcome => break outcome?,
            }
        };
        Ok(buf[(range.offset - from) as usize..][..range.len as usize].to_vec())
    }
}
