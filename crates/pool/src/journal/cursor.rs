//! Reads the batches of one extent where they lie.

use super::{
    decode::{decode, payload_verifies, plausible},
    placed::PlacedRows,
    replay::ReplayedRecord,
    unread::{Unread, read_patiently},
};
use crate::{
    error::PoolError,
    format::{BatchHeader, PAGE_BYTES},
    store::Store,
};
use quoin_base::Sequence;
use quoin_stripe::{Column, StripeError};
use quoin_world::{Buf, Slice as Bytes};

/// Bytes read first of a batch; most have their headers within.
const FIRST_READ_BYTES: usize = 2 * PAGE_BYTES;
/// Bytes read at once where batches are short, so that one read brings several.
const WINDOW_BYTES: usize = 64 * PAGE_BYTES;
/// Batches up to this length are short.
const SHORT_BATCH_BYTES: u64 = 16 * PAGE_BYTES as u64;
/// Bytes looked through at a time behind the last batch of an extent.
const SCAN_BYTES: u64 = 1 << 20;

pub(super) struct Cursor<'a> {
    pub store: &'a Store,
    pub place: Column,
    /// 0: not known yet.
    pub number: u64,
    /// CRC of the extent's header.
    pub tag: u64,
    slab_bytes: u64,
    /// The last batch seen was short: so may be the next ones.
    are_short: bool,
    /// What was read last, and from where.
    window: (u64, Bytes),
}

pub(super) struct FoundBatch {
    pub header: BatchHeader,
    pub records: Vec<ReplayedRecord>,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(store: &'a Store, place: Column, number: u64, tag: u64) -> Self {
        let (slab_bytes, window) = (store.slab_bytes().into(), (0, Buf::default().into_slice()));
        Self { store, place, number, tag, slab_bytes, are_short: false, window }
    }

    /// True for a batch of this extent in its present life.
    pub(super) fn owns(&self, header: &BatchHeader) -> bool {
        header.extent.get() == self.number && header.tag.get() == self.tag
    }

    pub(super) fn unread(&self, offset: u64, error: StripeError) -> Unread {
        Unread::new(self.store, self.place, offset, &error)
    }

    /// The batch at byte `at` of the extent, if its headers verify.
    pub(super) async fn batch_at(&mut self, at: u64) -> Result<Option<FoundBatch>, StripeError> {
        if at + PAGE_BYTES as u64 > self.slab_bytes {
            return Ok(None);
        }
        let bytes = self.headers_at(at).await?;
        let Some(header) = plausible(&bytes, self.slab_bytes - at) else { return Ok(None) };
        self.are_short = u64::from(header.total_bytes.get()) <= SHORT_BATCH_BYTES;
        let meta_bytes = header.meta_bytes.get() as usize;
        let found = |meta: &[u8]| {
            let records = decode(meta, header, self.place, at);
            records.map(|records| FoundBatch { header, records })
        };
        if let Some(meta) = bytes.get(..meta_bytes) {
            return Ok(found(meta));
        }
        match read_patiently(self.store, self.place, at, meta_bytes.next_multiple_of(PAGE_BYTES)).await {
            Ok(bytes) => Ok(found(&bytes[..meta_bytes])),
            Err(_) if self.number > 0 && !self.owns(&header) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What lies from byte `at` on, a page or more of it.
    async fn headers_at(&mut self, at: u64) -> Result<Bytes, StripeError> {
        let (from, window) = &self.window;
        if at >= *from && at + PAGE_BYTES as u64 <= from + window.len() as u64 {
            return Ok(window.slice((at - from) as usize, (from + window.len() as u64 - at) as usize));
        }
        let wanted = if self.are_short { WINDOW_BYTES } else { FIRST_READ_BYTES };
        let len = wanted.min((self.slab_bytes - at) as usize);
        let bytes = match self.store.read_slab(self.place, at, len).await {
            Ok(bytes) => bytes,
            // What lies behind the first page may be none of its headers.
            Err(_) => read_patiently(self.store, self.place, at, PAGE_BYTES).await?,
        };
        self.window = (at, bytes.into_slice());
        Ok(self.window.1.clone())
    }

    /// Whether the payloads, and what was placed, are what their checksums say; or of which record that cannot be read.
    pub(super) async fn verify(
        &self,
        records: &[ReplayedRecord],
        placed: &PlacedRows<'_>,
    ) -> Result<bool, (u64, StripeError)> {
        for record in records {
            let unread = |error| (record.place.offset, error);
            if !payload_verifies(self.store, record).await.map_err(unread)?
                || !placed.verifies(record).await.map_err(unread)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Looks for batches of this extent behind the place where reading stopped. One means that one in between is damaged,
    /// if it was sent when that was hardened; else both may have been in flight at the end. If nothing of it is needed any
    /// more, nor is the one in between: then a power failure may have torn the first write of the extent's next life.
    pub(super) async fn beyond(
        &mut self,
        at: u64,
        batches: u32,
        tail: Sequence,
    ) -> Result<Beyond, PoolError> {
        let mut beyond = Beyond::default();
        // Where the last batch found ends.
        let mut end = None;
        let mut todo = Vec::new();
        let mut from = at;
        while from < self.slab_bytes {
            let len = SCAN_BYTES.min(self.slab_bytes - from);
            todo.push((from, len));
            from += len;
        }
        todo.reverse();
        while let Some((from, len)) = todo.pop() {
            let bytes = match self.store.read_slab(self.place, from, len as usize).await {
                Ok(bytes) => bytes,
                Err(error) if len <= PAGE_BYTES as u64 => {
                    beyond.skipped.push(self.unread(from, error));
                    continue;
                }
                Err(_) => {
                    let half = (len / 2).next_multiple_of(PAGE_BYTES as u64);
                    todo.push((from + half, len - half));
                    todo.push((from, half));
                    continue;
                }
            };
            for (i, page) in bytes.chunks(PAGE_BYTES).enumerate() {
                let here = from + (i * PAGE_BYTES) as u64;
                let Some(header) = plausible(page, self.slab_bytes - here) else { continue };
                if !self.owns(&header) {
                    continue;
                }
                let Ok(Some(batch)) = self.batch_at(here).await else { continue };
                end = Some(here + u64::from(header.total_bytes.get()));
                let needed = batch.records.iter().any(|r| r.header.sequence.get() >= tail.0);
                beyond.needed |= needed;
                if needed && header.hardened.get() > batches {
                    return Err(PoolError::corrupt(
                        format!(
                            "journal extent {} on drive {}",
                            self.number,
                            self.store.drive_name(self.place.drive)
                        ),
                        format!("batch {batches} is unreadable, yet batch {} follows it", header.index.get()),
                    ));
                }
            }
        }
        let is_unread = |end: u64| beyond.skipped.iter().any(|unread| unread.offset == end);
        beyond.ends_obsolete = !beyond.needed && end.is_some_and(|end| !is_unread(end));
        Ok(beyond)
    }
}

/// What was found behind the last batch of an extent that could be read in order.
#[derive(Default)]
pub(super) struct Beyond {
    /// A batch there has records from the tail on.
    needed: bool,
    /// There are batches, and nothing of them is needed, nor behind them. Nor is then anything before them: the
    /// sequences of a lane grow.
    pub ends_obsolete: bool,
    pub skipped: Vec<Unread>,
}
