//! The footer of a journal extent: copies of its batches' headers, side by side at its end.
//!
//! A lane writes it when it goes on to another extent. Who reads the journal back finds there in one piece what lies
//! scattered between the payloads. It is written once all batches of the extent are hardened and says so of them, so
//! no later evidence is wanted. It may be missing: then the batches are read where they are.

use super::{
    decode::{decode, plausible},
    record::ReplayedRecord,
    slabs::Slabs,
    unread::read_patiently,
};
use crate::{
    format::{BatchHeader, ExtentFooter, ExtentHeader, FOOTER_MAGIC, PAGE_BYTES, zeroed},
    store::Store,
};
use quoin_base::Sequence;
use quoin_stripe::Column;
use quoin_world::{Buf, Slice as Bytes};
use std::sync::Arc;
use zerocopy::{
    IntoBytes,
    little_endian::{U32, U64},
};

/// What the footer will say of the batches sent so far.
#[derive(Default)]
pub(super) struct Index {
    /// Header, record headers and checksums of each batch, without padding.
    metas: Vec<u8>,
}

impl Index {
    pub(super) fn push(&mut self, meta: &[u8]) {
        self.metas.extend_from_slice(meta);
    }

    /// Bytes of a footer over these batches and one more with so many bytes of headers.
    pub(super) fn footer_bytes_with(&self, meta_bytes: usize) -> u64 {
        ((self.metas.len() + meta_bytes).next_multiple_of(PAGE_BYTES) + PAGE_BYTES) as u64
    }

    /// The footer, and the byte of the extent at which it begins.
    pub(super) fn footer(
        &self,
        extent: &ExtentHeader,
        batches: u32,
        last: Sequence,
        slab_bytes: u64,
    ) -> (u64, Vec<Bytes>) {
        let mut index = Buf::zeroed(self.metas.len().next_multiple_of(PAGE_BYTES));
        index.as_mut_slice()[..self.metas.len()].copy_from_slice(&self.metas);
        let mut footer: ExtentFooter = zeroed();
        footer.magic = U64::new(FOOTER_MAGIC);
        footer.extent = extent.number;
        footer.tag = extent.crc;
        footer.last = U64::new(last.0);
        footer.batches = U32::new(batches);
        footer.index_bytes = U32::new(self.metas.len() as u32);
        footer.seal();
        let offset = slab_bytes - (index.len() + PAGE_BYTES) as u64;
        (offset, vec![index.into_slice(), Buf::copy_of(footer.as_bytes()).into_slice()])
    }
}

/// An extent as its footer tells it.
pub(super) struct Sealed {
    pub batches: u32,
    /// Its highest sequence.
    pub last: Sequence,
    /// `None` if all of them lie below the tail: then they were not read.
    pub records: Option<Vec<ReplayedRecord>>,
}

/// Reads the footer of the extent that begins with `header`, from any of its columns. `None`: it has none that can be read
/// and trusted.
pub(super) async fn read_footer(
    store: &Store,
    slabs: Slabs,
    header: &ExtentHeader,
    tail: Sequence,
) -> Option<Sealed> {
    for column in slabs.iter() {
        if let Some(sealed) = read_footer_of(store, *column, slabs, header, tail).await {
            return Some(sealed);
        }
    }
    None
}

async fn read_footer_of(
    store: &Store,
    place: Column,
    slabs: Slabs,
    header: &ExtentHeader,
    tail: Sequence,
) -> Option<Sealed> {
    let at = header.footer.get();
    if at == 0 || at + PAGE_BYTES as u64 != u64::from(store.slab_bytes()) {
        return None;
    }
    let page = read_patiently(store, place, at, PAGE_BYTES).await.ok()?;
    let footer = ExtentFooter::parse(&page)?;
    if footer.extent != header.number || footer.tag != header.crc {
        return None;
    }
    let (batches, last) = (footer.batches.get(), Sequence(footer.last.get()));
    if last < tail {
        return Some(Sealed { batches, last, records: None });
    }
    let index_bytes = footer.index_bytes.get() as usize;
    let read_bytes = index_bytes.next_multiple_of(PAGE_BYTES);
    let from = at.checked_sub(read_bytes as u64).filter(|_| index_bytes > 0)?;
    let index = read_patiently(store, place, from, read_bytes).await.ok()?;
    let records = decode_index(index.get(..index_bytes)?, header, slabs, from)?;
    (records.0 == batches).then_some(Sealed { batches, last, records: Some(records.1) })
}

/// How many batches the index tells of, and their records. `room`: where the index begins, beyond which no batch reaches.
fn decode_index(
    mut index: &[u8],
    header: &ExtentHeader,
    slabs: Slabs,
    room: u64,
) -> Option<(u32, Vec<ReplayedRecord>)> {
    let slabs = Arc::new(slabs);
    let mut records = Vec::new();
    let (mut at, mut batches, mut previous_crc) = (PAGE_BYTES as u64, 0, header.crc.get() as u32);
    while !index.is_empty() {
        let batch: BatchHeader = plausible(index, room.checked_sub(at)?)?;
        let is_next = batch.extent == header.number
            && batch.tag == header.crc
            && batch.index.get() == batches
            && batch.previous_crc.get() == previous_crc;
        let meta = index.get(..batch.meta_bytes.get() as usize).filter(|_| is_next)?;
        records.extend(decode(meta, batch, &slabs, at)?);
        at += u64::from(batch.total_bytes.get());
        previous_crc = batch.meta_crc.get();
        batches += 1;
        index = &index[meta.len()..];
    }
    Some((batches, records))
}
