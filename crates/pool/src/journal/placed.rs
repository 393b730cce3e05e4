//! Whether what records of placed blocks lead to is there.
//!
//! A record and the row that it names are on their way at the same time, and count together. So a record that nothing tells
//! to count may lead to a row that never reached its drive: then it was never acknowledged.

use super::{record::ReplayedRecord, row_in_doubt::RowInDoubt};
use crate::{
    bugs::{Bug, planted},
    format::{Location, RecordKind},
    segment::{io::SegmentIo, mend::pages_of, opened::OpenedSegment},
};
use quoin_base::{ByteRange, SegmentId, Sequence, crc32c};
use quoin_stripe::{Column, ColumnSet, StripeError, StripeSet};
use quoin_world::{Buf, Mutex};
use std::collections::BTreeMap;

/// How often a block is read before it counts as unreadable.
const TRIES: u32 = 3;

/// Where the segments lie that records name.
pub(super) struct PlacedRows<'a> {
    io: &'a SegmentIo,
    tail: Sequence,
    /// Segments that were opened from the tail on, by when. What was opened before is in the checkpoint's segment table;
    /// older records of openings may be of segments that were given up since.
    opened: BTreeMap<SegmentId, BTreeMap<Sequence, OpenedSegment>>,
    /// How many batches extents held when their lanes went on from them.
    predecessors: BTreeMap<u64, u32>,
    taken: Mutex<Vec<RowInDoubt>>,
}

impl<'a> PlacedRows<'a> {
    /// Of all records that were read, and of how many batches extents held when their lanes went on from them.
    pub(super) fn new<'r>(
        io: &'a SegmentIo,
        records: impl Iterator<Item = &'r ReplayedRecord>,
        predecessors: BTreeMap<u64, u32>,
        tail: Sequence,
    ) -> Self {
        let mut opened: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for record in records {
            let sequence = Sequence(record.header.sequence.get());
            if record.header.kind == RecordKind::Segment as u8
                && sequence >= tail
                && let Some(segment) = OpenedSegment::parse(&record.header, &record.crcs)
            {
                opened.entry(segment.id).or_default().insert(sequence, segment);
            }
        }
        Self { io, tail, opened, predecessors, taken: Mutex::default() }
    }

    /// How many batches of an extent are told to be hardened by the extent that its lane went on with.
    pub(super) fn batches_of(&self, extent: u64) -> u32 {
        self.predecessors.get(&extent).copied().unwrap_or(0)
    }

    /// Whether what the record leads to is what its checksums say. A record of another kind leads nowhere. One below the
    /// tail counted: what it led to is in the checkpoint, and may have been given up.
    /// An error: some of it cannot be read, and the rest is there.
    pub(super) async fn verifies(&self, record: &ReplayedRecord) -> Result<bool, StripeError> {
        let sequence = Sequence(record.header.sequence.get());
        let is_placed = record.header.kind == RecordKind::Placed as u8;
        if !is_placed || sequence < self.tail || planted(Bug::TrustPlaced) {
            return Ok(true);
        }
        let first = Location(record.header.source.get());
        let Some(set) = self.stripes(first.segment(), sequence) else { return Ok(false) };
        let (begin, block) = (first.offset_bytes(), first.len_bytes());
        let range = ByteRange::new(begin, block * record.crcs.len() as u64);
        if range.end() > self.io.segments.segment_bytes(set.geometry) {
            return Ok(false);
        }
        if let Ok(bytes) = self.io.store.read_segment(&set, pages_of(range)).await {
            let bytes = &bytes[(range.offset - pages_of(range).offset) as usize..][..range.len as usize];
            let crcs = bytes.chunks(block as usize).map(|block| crc32c(block).0);
            if crcs.eq(record.crcs.iter().copied()) {
                self.take(set, range, record);
                return Ok(true);
            }
        }
        // One that can be read may tell that the row did not land.
        let mut unread = None;
        for (at, crc) in (0..).zip(record.crcs.iter()) {
            let range = ByteRange::new(begin + at * block, block);
            match self.read(&set, range).await {
                Ok(bytes) if crc32c(&bytes).0 == *crc => {}
                // What is on other drives is as good: destage writes it anew.
                outcome if self.is_elsewhere(&set, range, *crc).await => drop(outcome),
                Ok(_) => return Ok(false),
                Err(error) => unread = Some(error),
            }
        }
        // NOTE: the pool went on without these drives only because nothing was on its way there: what a record names has landed.
        if unread.is_some() && self.is_away(&set) {
            return Ok(true);
        }
        if let Some(error) = unread {
            return Err(error);
        }
        self.take(set, range, record);
        Ok(true)
    }

    /// Notes that recovery takes what a record leads to, though some columns may lack it.
    fn take(&self, stripes: StripeSet, range: ByteRange, record: &ReplayedRecord) {
        if stripes.geometry.parity > 0 {
            self.taken.lock().push(RowInDoubt { stripes, range, crcs: record.crcs.to_vec() });
        }
    }

    /// Rows in doubt that were found: all their columns are to have them before the pool serves.
    pub(super) fn taken(&self) -> Vec<RowInDoubt> {
        std::mem::take(&mut self.taken.lock())
    }

    /// Whether a block follows from other columns than its own.
    async fn is_elsewhere(&self, set: &StripeSet, range: ByteRange, crc: u32) -> bool {
        self.io.read_otherwise(set, range, &|bytes| crc32c(bytes).0 == crc).await.is_some()
    }

    /// Whether more columns are on drives that the pool went on without than the rest can do without.
    fn is_away(&self, set: &StripeSet) -> bool {
        let members = self.io.store.members();
        let is_needed = |column: &Column| members.get(column.drive).is_some_and(|member| member.is_needed());
        let away = set.columns.iter().enumerate().filter(|(_, column)| !is_needed(column));
        let away = away.fold(set.missing, |away, (place, _)| away.with(ColumnSet::one(place)));
        away.len() > usize::from(set.geometry.parity)
    }

    /// Where a segment lay when the record of that sequence named it.
    fn stripes(&self, id: SegmentId, sequence: Sequence) -> Option<StripeSet> {
        let opened = self.opened.get(&id).and_then(|openings| openings.range(..sequence).next_back());
        match opened {
            Some((_, segment)) => Some(segment.stripes.clone()),
            None => self.io.segments.stripes(id),
        }
    }

    /// Where what the record leads to lies, if it leads anywhere.
    pub(super) fn row_of(&self, record: &ReplayedRecord) -> Option<(Column, ByteRange)> {
        if record.header.kind != RecordKind::Placed as u8 {
            return None;
        }
        let first = Location(record.header.source.get());
        let set = self.stripes(first.segment(), Sequence(record.header.sequence.get()))?;
        let len = first.len_bytes() * record.crcs.len() as u64;
        let range = ByteRange::new(first.offset_bytes(), len);
        (range.end() <= self.io.segments.segment_bytes(set.geometry)).then(|| (set.columns[0], range))
    }

    async fn read(&self, set: &StripeSet, range: ByteRange) -> Result<Vec<u8>, StripeError> {
        let whole = pages_of(range);
        let mut tries = 1;
        let buf: Buf = loop {
            match self.io.store.read_segment(set, whole).await {
                Err(_) if tries < TRIES => tries += 1,
                outcome => break outcome?,
            }
        };
        Ok(buf[(range.offset - whole.offset) as usize..][..range.len as usize].to_vec())
    }
}
