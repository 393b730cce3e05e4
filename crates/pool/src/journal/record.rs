//! Records read back from the journal.

use super::JournalPlace;
use crate::{
    format::{CopySource, Location, MAX_BLOCKS, REGION_BYTES, RecordHeader, RecordKind},
    store::Store,
};
use quoin_base::{ByteRange, SECTOR_BYTES, crc32c};
use quoin_stripe::StripeError;
use quoin_world::Slice as Bytes;
use std::sync::Arc;

/// A record read back.
#[derive(Clone)]
pub(crate) struct ReplayedRecord {
    pub header: RecordHeader,
    pub crcs: Arc<[u32]>,
    pub place: JournalPlace,
}

impl ReplayedRecord {
    /// Its payload, from the first column where it is what the checksums say. `Ok(None)`: it can be read, and is that on none.
    pub(crate) async fn payload(&self, store: &Store) -> Result<Option<Bytes>, StripeError> {
        let block_bytes = u64::from(store.block_bytes());
        let is_good = |payload: &[u8]| payload_crcs(&self.header, payload, block_bytes) == *self.crcs;
        self.place.read(store, self.header.payload_bytes.get().into(), is_good).await
    }

    /// Returns why the pool cannot have written this record of a write or unmap, though its checksums match; `None`
    /// if it can.
    pub(crate) fn problem(&self, block_bytes: u64) -> Option<&'static str> {
        let (first, sectors) = (self.header.sector.get(), u64::from(self.header.sectors.get()));
        let end = first.saturating_add(sectors);
        let region = |sector: u64| sector / (REGION_BYTES / SECTOR_BYTES);
        let payload_bytes = u64::from(self.header.payload_bytes.get());
        let is_write = self.header.kind == RecordKind::Write as u8;
        let is_copy = self.header.kind == RecordKind::Copy as u8;
        let is_placed = self.header.kind == RecordKind::Placed as u8;
        let block_sectors = block_bytes / SECTOR_BYTES;
        let last_copied = || CopySource::unpack(self.header.source.get()).index.0 + sectors / block_sectors;
        let blocks = || (end * SECTOR_BYTES).div_ceil(block_bytes) - first * SECTOR_BYTES / block_bytes;
        match () {
            () if sectors == 0 || end > MAX_BLOCKS * (block_bytes / SECTOR_BYTES) => {
                Some("its range is impossible")
            }
            () if region(first) != region(end - 1) => Some("its range is longer than that of one record"),
            () if is_write && payload_bytes != sectors * SECTOR_BYTES => {
                Some("its payload is not as long as its range")
            }
            () if is_write && self.crcs.len() as u64 != blocks() => {
                Some("it has not one checksum for each block")
            }
            () if is_copy
                && !(first.is_multiple_of(block_sectors) && sectors.is_multiple_of(block_sectors)) =>
            {
                Some("it copies a part of a block")
            }
            () if is_placed
                && !(first.is_multiple_of(block_sectors) && sectors.is_multiple_of(block_sectors)) =>
            {
                Some("it places a part of a block")
            }
            () if is_placed && (payload_bytes > 0 || self.crcs.len() as u64 != blocks()) => {
                Some("it has not one checksum for each block")
            }
            () if is_placed
                && Location(self.header.source.get()).len_bytes() != block_sectors * SECTOR_BYTES =>
            {
                Some("its blocks are not of the pool's size")
            }
            () if is_copy && (last_copied() > MAX_BLOCKS || payload_bytes > 0) => {
                Some("it copies what no volume can hold")
            }
            () => None,
        }
    }
}

/// One checksum for each pool block that the payload touches.
pub(crate) fn payload_crcs(record: &RecordHeader, payload: &[u8], pool_block: u64) -> Vec<u32> {
    let start = match record.kind {
        // Where a block is cut follows from the place in a block alone, and any sector may stand there.
        kind if kind == RecordKind::Write as u8 => record.sector.get() % (pool_block / 512) * 512,
        _ => 0,
    };
    ByteRange::new(start, payload.len() as u64)
        .split(pool_block)
        .map(|piece| crc32c(&payload[(piece.offset - start) as usize..][..piece.len as usize]).0)
        .collect()
}
