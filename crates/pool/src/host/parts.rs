//! Requests of which nothing but the headers of records goes to the journal: unmaps and copies of long ranges.
//!
//! A record is of one region. Many are appended at a time, to one batch.

use crate::{
    buffer::Shard,
    error::PoolError,
    fork::layer::Layer,
    format::{REGION_BYTES, RecordHeader},
    host::{below::Below, stalls::Waits, write::Refusal},
    journal::{Batch, Entry},
    lifecycle::slice::Slice,
};
use quoin_base::{ByteRange, Sequence};
use std::sync::Arc;

/// Records that are appended at a time: for so long other writes of the thread wait.
const RECORDS_AT_ONCE: usize = 256;

impl Slice {
    /// Appends a record for the first of these parts of regions, ascending, and for as many more as there is room for.
    /// Returns for how many.
    pub(crate) async fn append_parts<P>(
        &self,
        layer: &mut Arc<Layer>,
        parts: &[P],
        range_of: impl Fn(&P) -> ByteRange,
        attempt: impl Fn(&Arc<Layer>, &P, &Arc<Batch>, Option<&Below>) -> Result<Entry, Refusal>,
        batches: &mut Vec<Arc<Batch>>,
    ) -> Result<usize, PoolError> {
        let header_bytes = 2 * size_of::<RecordHeader>() as u64;
        let at_once = RECORDS_AT_ONCE.min((self.log.journal.max_record_bytes() / header_bytes) as usize);
        let parts = &parts[..parts.len().min(at_once.max(1))];
        let (Some(first), Some(last)) = (parts.first().map(&range_of), parts.last().map(&range_of)) else {
            return Ok(0);
        };
        let (range, bytes) = (ByteRange::from(first.offset..last.end()), header_bytes * parts.len() as u64);
        let try_all = |layer: &Arc<Layer>, below: Option<&Below>| {
            let mut appended = 0;
            let batch = self.log.journal.lane(self.world()).append_all(0, 0, |batch, _| {
                let mut entries = Vec::with_capacity(parts.len());
                for part in parts {
                    match attempt(layer, part, batch, below) {
                        Ok(entry) => entries.push(entry),
                        Err(refusal) if entries.is_empty() => return Err(refusal),
                        // The next call meets it again.
                        Err(_) => break,
                    }
                }
                appended = entries.len();
                Ok(entries)
            })?;
            Ok((batch, appended))
        };
        let (batch, appended) =
            self.append_admitted(layer, range, bytes, &mut Waits::default(), try_all).await?;
        if !batches.last().is_some_and(|last| Arc::ptr_eq(last, &batch)) {
            batches.push(batch);
        }
        Ok(appended)
    }

    /// Makes a range within one region, whose shard is locked, read as zeroes.
    pub(crate) fn insert_zeroes(
        &self,
        shard: &mut Shard,
        layer: &Layer,
        sequence: Sequence,
        batch: &Arc<Batch>,
        range: ByteRange,
    ) {
        let block_bytes = self.buffer.block_bytes;
        let from = range.offset.next_multiple_of(block_bytes).min(range.end());
        let to = (range.end() / block_bytes * block_bytes).max(from);
        // Parts of blocks at either end.
        let ends = [ByteRange::from(range.offset..from), ByteRange::from(to..range.end())];
        let ends = ends.into_iter().flat_map(|end| self.zero_pieces(layer, end));
        self.buffer.insert(shard, sequence, batch, ends);
        if from < to {
            let first = layer.block(ByteRange::from(from..to).first_block(block_bytes));
            self.buffer.insert_blocks(shard, sequence, batch, (first, (to - from) / block_bytes), None);
        }
    }
}

/// The part of a range that is in the region of one of its bytes.
pub(super) fn part_in_region(range: ByteRange, byte: u64) -> ByteRange {
    let region = byte / REGION_BYTES * REGION_BYTES;
    ByteRange::from(region.max(range.offset)..(region + REGION_BYTES).min(range.end()))
}
