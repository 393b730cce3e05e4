//! A record to append to the journal, what entries take of it, and the bytes of a batch before its payloads.

use super::Batch;
use crate::format::{BatchHeader, PAGE_BYTES, RecordHeader, RecordKind};
use quoin_base::crc32c;
use quoin_world::{Buf, Slice as Bytes};
use std::sync::Arc;
use zerocopy::{
    IntoBytes,
    little_endian::{U16, U32},
};

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
pub(super) fn is_watermark(entries: &[Entry]) -> bool {
    entries.iter().all(|entry| entry.header.kind == RecordKind::Watermark as u8)
}

/// What an entry may take of an extent at the worst: a batch of its own.
pub(super) fn queued_bytes(entry: &Entry) -> u64 {
    u64::from(entry.header.payload_bytes.get()).next_multiple_of(PAGE_BYTES as u64) + PAGE_BYTES as u64
}

/// What an entry may take at the worst that is appended with another to the same batch: its header also in the footer.
pub(super) fn queued_bytes_beside(entry: &Entry) -> u64 {
    let header = size_of::<RecordHeader>() + 4 * entry.crcs.len();
    u64::from(entry.header.payload_bytes.get()).next_multiple_of(PAGE_BYTES as u64) + 2 * header as u64
}

/// Bytes of the headers and checksums, and of the whole batch.
pub(super) fn sizes(entries: &[Entry]) -> (usize, usize) {
    let crcs: usize = entries.iter().map(|e| e.crcs.len()).sum();
    let payload: usize = entries.iter().map(|e| e.header.payload_bytes.get() as usize).sum();
    let meta = 64 + 64 * entries.len() + 4 * crcs;
    (meta, (meta.next_multiple_of(PAGE_BYTES) + payload).next_multiple_of(PAGE_BYTES))
}

/// The headers and checksums of a batch as they go to the drive, whole pages, and their checksum. Fills in the places that
/// entries leave open, and the checksum in `header`.
///
/// # Example
/// Two entries, with three checksums in all and payloads of 4096 and 512 bytes.
///
/// ```text
/// byte 0     the batch's header
/// byte 64    the first record's header: its payload is at byte 4096
/// byte 128   the second record's header: its payload is at byte 8192
/// byte 192   three checksums; from byte 204 on zeroes
/// byte 4096  the payloads, which the caller sends behind this
/// ```
pub(super) fn encode(entries: &[Entry], mut header: BatchHeader) -> (Buf, u32) {
    let (meta_bytes, total_bytes) = (header.meta_bytes.get() as usize, header.total_bytes.get());
    let mut meta = Buf::zeroed(meta_bytes.next_multiple_of(PAGE_BYTES));
    let mut payload_offset = meta.len() as u32;
    let bytes = meta.as_mut_slice();
    let mut crcs_at = 64 + 64 * entries.len();
    for (i, entry) in entries.iter().enumerate() {
        let mut record = entry.header;
        record.crcs = U16::new(entry.crcs.len() as u16);
        record.payload_offset = U32::new(payload_offset);
        payload_offset += record.payload_bytes.get();
        bytes[64 + 64 * i..][..64].copy_from_slice(record.as_bytes());
        for crc in &entry.crcs {
            bytes[crcs_at..crcs_at + 4].copy_from_slice(&crc.to_le_bytes());
            crcs_at += 4;
        }
    }
    assert_eq!(
        crcs_at, meta_bytes,
        "the headers of batch {} are as long as they were reckoned",
        header.index
    );
    assert!(payload_offset <= total_bytes, "the records of batch {} are within it", header.index);
    // The checksum covers the header with zeroes in the checksum's place.
    bytes[..64].copy_from_slice(header.as_bytes());
    let crc = crc32c(&bytes[..meta_bytes]).0;
    header.meta_crc = U32::new(crc);
    bytes[..64].copy_from_slice(header.as_bytes());
    (meta, crc)
}
