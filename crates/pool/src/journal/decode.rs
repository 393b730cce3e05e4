//! What a batch in the journal says, and whether its payloads are what it says.

use super::{JournalPlace, record::ReplayedRecord, slabs::Slabs};
use crate::{
    format::{BATCH_MAGIC, BatchHeader, COUNTERS_END, PAGE_BYTES, RecordHeader},
    store::Store,
};
use quoin_base::crc32c;
use quoin_stripe::StripeError;
use std::sync::Arc;
use zerocopy::FromBytes;

/// True when a record's payload is what its checksums say, on any of its columns.
pub(crate) async fn payload_verifies(store: &Store, record: &ReplayedRecord) -> Result<bool, StripeError> {
    match record.header.payload_bytes.get() {
        0 => Ok(true),
        _ => Ok(record.payload(store).await?.is_some()),
    }
}

/// A batch header that can be looked into safely: its lengths agree with each other and the room there is, and an extent
/// can have its number.
pub(super) fn plausible(bytes: &[u8], room: u64) -> Option<BatchHeader> {
    let (header, _) = BatchHeader::read_from_prefix(bytes).ok()?;
    let (records, meta) = (u64::from(header.records.get()), u64::from(header.meta_bytes.get()));
    let total = u64::from(header.total_bytes.get());
    let ok = header.magic.get() == BATCH_MAGIC
        && header.extent.get() < COUNTERS_END
        && records > 0
        && meta >= 64 + 64 * records
        && meta.next_multiple_of(PAGE_BYTES as u64) <= total
        && total <= room
        && total.is_multiple_of(PAGE_BYTES as u64);
    ok.then_some(header)
}

/// The records of a batch whose first `meta_bytes` these are; `None` if they do not verify.
pub(crate) fn decode(
    meta: &[u8],
    header: BatchHeader,
    slabs: &Arc<Slabs>,
    at: u64,
) -> Option<Vec<ReplayedRecord>> {
    let mut copy = meta.to_vec();
    copy.get_mut(36..40)?.fill(0);
    if crc32c(&copy).0 != header.meta_crc.get() {
        return None;
    }
    let count = header.records.get() as usize;
    let mut crcs_at = 64 + 64 * count;
    let mut records = Vec::with_capacity(count);
    for i in 0..count {
        let record = RecordHeader::read_from_bytes(meta.get(64 + 64 * i..128 + 64 * i)?).ok()?;
        let crc_bytes = meta.get(crcs_at..crcs_at + 4 * usize::from(record.crcs.get()))?;
        crcs_at += crc_bytes.len();
        let crcs = crc_bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
        let end = u64::from(record.payload_offset.get()) + u64::from(record.payload_bytes.get());
        if end > u64::from(header.total_bytes.get()) {
            return None;
        }
        let offset = at + u64::from(record.payload_offset.get());
        records.push(ReplayedRecord {
            header: record,
            crcs,
            place: JournalPlace { slabs: slabs.clone(), offset },
        });
    }
    Some(records)
}
