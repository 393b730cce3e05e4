//! Host data in RAM with the checksum that was taken when it was received.
//!
//! The checksum goes with the data until destage has used it: a bit that flips in RAM meanwhile is found there, and what
//! the journal holds is taken instead.

use crate::{
    buffer::{held::Held, key::BlockKey},
    journal::{Batch, JournalPlace},
};
use quoin_base::{SECTOR_BYTES, crc32c};
use quoin_world::{Buf, Slice as Bytes};
use std::sync::Arc;

/// A part of a record's payload in the journal.
#[derive(Clone, Debug)]
pub(crate) struct JournalSource {
    pub place: JournalPlace,
    /// First sector of the volume that the payload covers, and how many bytes it has.
    pub record_sector: u64,
    pub record_bytes: u32,
    pub crcs: Arc<[u32]>,
}

/// What one record brought for one block.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    data: Held,
    /// Its first sector within the block.
    start: u16,
    crc: u32,
    /// Where it begins among the payloads of its batch.
    payload_offset: u32,
}

impl Received {
    pub(crate) fn new(data: Held, start: u16, crc: u32, payload_offset: u32) -> Self {
        Self { data, start, crc, payload_offset }
    }

    /// Counts it as held by one more fragment, or by one less: the RAM that is held more or less by that, in bytes.
    pub(crate) fn hold(&self) -> u64 {
        self.data.hold()
    }

    pub(crate) fn release(&self) -> u64 {
        self.data.release()
    }

    /// Those of its bytes that are of some sectors of the block.
    pub(crate) fn sectors(&self, start: u16, sectors: u16) -> Bytes {
        let bytes = |sectors: u16| usize::from(sectors) * SECTOR_BYTES as usize;
        let start = start - self.start;
        self.data.slice(bytes(start)..bytes(start + sectors))
    }

    /// The checksum, if it is that of the `len` bytes at hand: of all of it.
    pub(crate) fn crc_of(&self, len: usize) -> Option<u32> {
        (len == self.data.bytes().len()).then_some(self.crc)
    }

    /// Whether it still is what was received.
    pub(crate) fn verifies(&self) -> bool {
        crc32c(self.data.bytes()).0 == self.crc
    }

    /// Where the journal has it; `None` if it was not sent there.
    pub(crate) fn in_journal(
        &self,
        key: BlockKey,
        batch: &Batch,
        block_sectors: u16,
    ) -> Option<JournalSource> {
        let mut place = batch.payload_place()?;
        place.offset += u64::from(self.payload_offset);
        Some(JournalSource {
            place,
            record_sector: key.index.0 * u64::from(block_sectors) + u64::from(self.start),
            record_bytes: self.data.bytes().len() as u32,
            crcs: [self.crc].into(),
        })
    }

    /// The same with a bit flipped, as bad RAM does it.
    pub(crate) fn flipped(&self, bit: usize) -> Self {
        let mut copy = Buf::copy_of(self.data.bytes());
        let byte = bit / 8 % copy.len();
        copy.as_mut_slice()[byte] ^= 1 << (bit % 8);
        Self { data: Held::Buffer(copy.into_slice()), ..self.clone() }
    }
}
