//! What a buffered fragment holds: in RAM, in the journal, or where it was placed. All that drives return is verified.

use crate::{
    buffer::{BlockKey, Content, Fragment, JournalSource},
    bugs::{Bug, planted},
    error::PoolError,
    fork::layer::Layer,
    lifecycle::slice::Slice,
    segment::placed_block::PlacedBlock,
};
use quoin_base::{ByteRange, SECTOR_BYTES, crc32c};
use quoin_world::Slice as Bytes;

/// Data that is what its checksum says.
pub(crate) struct Verified {
    pub data: Bytes,
    /// The checksum, if it is that of just this data.
    pub crc: Option<u32>,
}

impl Slice {
    /// A fragment's data; `None` for zeroes.
    pub(crate) async fn fragment_data(
        &self,
        layer: &Layer,
        key: BlockKey,
        fragment: &Fragment,
    ) -> Result<Option<Bytes>, PoolError> {
        match &fragment.content {
            Content::Zero => Ok(None),
            Content::Ram(received) => Ok(Some(received.sectors(fragment.start, fragment.sectors))),
            Content::Journal(source) => {
                self.journal_data(layer, key, fragment, source).await.map(|read| Some(read.data))
            }
            Content::Placed(block) => {
                self.placed_data(layer, key, fragment, block).await.map(|read| Some(read.data))
            }
            Content::Shared(source) => self.shared_data(layer, key, fragment, *source).await,
        }
    }

    /// A fragment's data as it was placed.
    pub(crate) async fn placed_data(
        &self,
        layer: &Layer,
        key: BlockKey,
        fragment: &Fragment,
        block: &PlacedBlock,
    ) -> Result<Verified, PoolError> {
        let damaged = |reason: String, unread| PoolError::Medium {
            volume: layer.volume.id,
            offset: key.index.offset_bytes(self.buffer.block_bytes),
            reason,
            unread,
        };
        let (segment, range) = (block.location.segment(), block.location.range());
        let verifies = |data: &Bytes| crc32c(data).0 == block.crc || planted(Bug::SkipReadVerify);
        // The block keeps its segment.
        let data = match self.segments.io.read_sound(segment, range).await {
            Ok(data) if verifies(&data) => data,
            read => match (self.segments.io.mend_block(block.location, block.crc).await, read) {
                (Some(mended), _) => mended.content,
                (None, Err(error)) => return Err(damaged(error.to_string(), true)),
                (None, Ok(_)) => {
                    let offset = range.offset;
                    let reason =
                        format!("the checksum of what was placed in segment {segment} at {offset} differs");
                    return Err(damaged(reason, self.segments.table.awaits(segment)));
                }
            },
        };
        let bytes = |sectors: u16| usize::from(sectors) * SECTOR_BYTES as usize;
        let part = data.slice(bytes(fragment.start)..bytes(fragment.end()));
        let is_all = part.len() == data.len();
        Ok(Verified { data: part, crc: is_all.then_some(block.crc) })
    }

    /// A fragment's data as the journal has it.
    pub(crate) async fn journal_data(
        &self,
        layer: &Layer,
        key: BlockKey,
        fragment: &Fragment,
        source: &JournalSource,
    ) -> Result<Verified, PoolError> {
        let first = key.index.0 * u64::from(self.buffer.sectors_per_block()) + u64::from(fragment.start);
        let range = ByteRange::new(first * SECTOR_BYTES, u64::from(fragment.sectors) * SECTOR_BYTES);
        self.read_journal_range(source, range).await.map_err(|(reason, unread)| PoolError::Medium {
            volume: layer.volume.id,
            offset: range.offset,
            reason,
            unread,
        })
    }

    /// Reads a part of a record's payload, given as a range of its volume within one block.
    async fn read_journal_range(
        &self,
        source: &JournalSource,
        range: ByteRange,
    ) -> Result<Verified, (String, bool)> {
        let block_bytes = self.buffer.block_bytes;
        let record = ByteRange::new(source.record_sector * SECTOR_BYTES, u64::from(source.record_bytes));
        // The record's part of the block: that is what its checksum covers.
        let block_start = (range.offset / block_bytes * block_bytes).max(record.offset);
        let block_end = (range.offset / block_bytes * block_bytes + block_bytes).min(record.end());
        let at = source.place.plus(block_start - record.offset);
        let index = (range.offset / block_bytes - record.offset / block_bytes) as usize;
        let is_good = |data: &[u8]| source.crcs.get(index) == Some(&crc32c(data).0);
        let read = at.read(&self.store, block_end - block_start, is_good).await;
        let Some(data) = read.map_err(|e| (e.to_string(), true))? else {
            let column = source.place.column();
            let why = format!(
                "the checksum of a journal record in slab {} of {} differs",
                column.slab,
                self.store.drive_name(column.drive)
            );
            return Err((why, false));
        };
        let part = data.slice((range.offset - block_start) as usize..(range.end() - block_start) as usize);
        let is_all = part.len() == data.len();
        Ok(Verified { data: part, crc: source.crcs.get(index).copied().filter(|_| is_all) })
    }
}
