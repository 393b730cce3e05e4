//! A record to append to the journal, and what entries take of it.

use super::Batch;
use crate::format::{PAGE_BYTES, RecordHeader, RecordKind};
use quoin_world::Slice as Bytes;
use std::sync::Arc;

/// A record to append.
pub(crate) struct Entry {
    /// All but the places, which the lane fills in.
    pub header: RecordHeader,
    pub crcs: Vec<u32>,
    pub payload: Vec<Bytes>,
    /// The row it names, if that is on its way: the record counts only once this is hardened too.
    pub row: Option<Arc<Batch>>,
}

/// Whether the batch of these entries only tells that those before it are hardened.
pub(super) fn is_mark(entries: &[Entry]) -> bool {
    entries.iter().all(|entry| entry.header.kind == RecordKind::Mark as u8)
}

/// What an entry may take of an extent at the worst: a batch of its own.
pub(super) fn queued_bytes(entry: &Entry) -> u64 {
    u64::from(entry.header.payload_bytes.get()).next_multiple_of(PAGE_BYTES as u64) + PAGE_BYTES as u64
}

/// Bytes of the headers and checksums, and of the whole batch.
pub(super) fn sizes(entries: &[Entry]) -> (usize, usize) {
    let crcs: usize = entries.iter().map(|e| e.crcs.len()).sum();
    let payload: usize = entries.iter().map(|e| e.header.payload_bytes.get() as usize).sum();
    let meta = 64 + 64 * entries.len() + 4 * crcs;
    (meta, (meta.next_multiple_of(PAGE_BYTES) + payload).next_multiple_of(PAGE_BYTES))
}
