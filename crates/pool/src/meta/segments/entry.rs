//! A segment as it is in the segment table on drives.

use super::{Segment, SegmentState, SegmentTable, Stream, free_segment, granted::Granted};
use crate::{
    error::PoolError,
    format::{MAX_COLUMNS, PAGE_WORDS, SEGMENTS_PER_PAGE, SegmentEntry, zeroed},
};
use quoin_base::{CheckpointGeneration, Layout, PageNumber, SegmentGeneration};
use quoin_stripe::{ColumnSet, Geometry, StripeSet};
use std::collections::BTreeMap;
use zerocopy::{FromBytes, IntoBytes};

/// The segments that an opening reads, by id, and what of them is live.
pub(super) struct ReadEntries {
    pub(super) segments: Vec<Segment>,
    pub(super) live_data_grains: BTreeMap<(u8, u8), u64>,
    pub(super) live_meta_grains: u64,
    pub(super) live_blocks: u64,
}

impl ReadEntries {
    /// From entries in the order of their ids; ids left out are free. Takes the slabs that they name.
    pub(super) fn of<'a>(
        entries: impl Iterator<Item = (usize, &'a [u8])>,
        granted: &mut Granted,
    ) -> Result<Self, PoolError> {
        let (mut live_data_grains, mut live_meta_grains, mut live_blocks) = (BTreeMap::new(), 0, 0);
        // Entry 0 is never used.
        let mut segments = vec![free_segment()];
        for (id, bytes) in entries {
            let segment = decode(bytes, id)?;
            granted.take(format!("segment {id}"), &segment.stripes.columns)?;
            if segment.stream.is_metadata() {
                live_meta_grains += u64::from(segment.live_grains);
            } else {
                *live_data_grains.entry(segment.spread()).or_default() += u64::from(segment.live_grains);
                live_blocks += u64::from(segment.live_contents);
            }
            segments.resize_with(segments.len().max(id + 1), free_segment);
            segments[id] = segment;
        }
        Ok(Self { segments, live_data_grains, live_meta_grains, live_blocks })
    }
}

impl SegmentTable {
    /// A page of the table as it goes to the drives.
    pub(crate) fn encode_page(&self, index: PageNumber) -> Box<[u64; PAGE_WORDS]> {
        let inner = self.inner.read();
        let mut words = Box::new([0u64; PAGE_WORDS]);
        let first = index.0 as usize * SEGMENTS_PER_PAGE;
        let entries = words.as_mut_slice().as_mut_bytes().chunks_exact_mut(size_of::<SegmentEntry>());
        for (bytes, segment) in entries.zip(inner.segments.iter().skip(first)) {
            bytes.copy_from_slice(encode(segment).as_bytes());
        }
        words
    }
}

pub(crate) fn encode(segment: &Segment) -> SegmentEntry {
    let mut entry: SegmentEntry = zeroed();
    entry.generation = segment.generation.0.into();
    entry.state = match segment.state {
        // The checkpoint being written is the first without it.
        SegmentState::Free | SegmentState::Quarantined => return entry,
        SegmentState::Open => 1,
        SegmentState::Sealed => 2,
    };
    entry.stream = segment.stream as u8;
    let StripeSet { geometry, columns, missing } = &segment.stripes;
    entry.data = geometry.data;
    entry.parity = geometry.parity;
    entry.strip_bytes = geometry.strip_bytes.into();
    entry.row_bytes = geometry.row_bytes.into();
    entry.missing = missing.0.into();
    entry.written_in = (segment.written_in.0 as u32).into();
    entry.live_grains = segment.live_grains.into();
    entry.live_contents = segment.live_contents.into();
    entry.written_bytes = segment.written_bytes.into();
    entry.layout = segment.layout.map_or([0, 0], |layout| [layout.data(), layout.parity()]);
    for (slot, column) in entry.columns.iter_mut().zip(columns.iter()) {
        *slot = (*column).into();
    }
    entry
}

fn decode(bytes: &[u8], id: usize) -> Result<Segment, PoolError> {
    let damaged = |problem: &str| PoolError::corrupt(format!("segment {id} in the segment table"), problem);
    let entry = SegmentEntry::read_from_bytes(bytes).map_err(|_| damaged("its entry has the wrong size"))?;
    let mut segment = free_segment();
    segment.generation = SegmentGeneration(entry.generation.get());
    segment.state = match entry.state {
        0 => return Ok(segment),
        1 => SegmentState::Open,
        2 => SegmentState::Sealed,
        _ => return Err(damaged("its state is unknown")),
    };
    segment.stream = Stream::from_byte(entry.stream).ok_or_else(|| damaged("its stream is unknown"))?;
    let geometry = Geometry {
        data: entry.data,
        parity: entry.parity,
        strip_bytes: entry.strip_bytes.get(),
        row_bytes: entry.row_bytes.get(),
    };
    let missing = ColumnSet(entry.missing.get());
    let is_possible = geometry.is_possible() && geometry.columns() <= MAX_COLUMNS;
    if !is_possible || !missing.is_of(geometry) {
        return Err(damaged("its layout is impossible"));
    }
    let columns = entry.columns[..geometry.columns()].iter().map(|entry| entry.column()).collect();
    segment.stripes = StripeSet { geometry, columns, missing };
    segment.layout = match entry.layout {
        [0, 0] => None,
        [data, parity] => {
            let layout = Layout::of_columns((data, parity));
            Some(layout.ok_or_else(|| damaged("it was opened for an impossible layout"))?)
        }
    };
    segment.live_grains = entry.live_grains.get();
    segment.live_contents = entry.live_contents.get();
    segment.written_bytes = entry.written_bytes.get();
    segment.written_in = CheckpointGeneration(entry.written_in.get().into());
    Ok(segment)
}
