//! Reads the batches of one extent where they lie: on each of its columns, or on some of them only.
//!
//! What the columns say about the place where the next batch would begin. A column *has* it if the batch verifies there and
//! follows the one before; it *lacks* it if something else can be read there; or its drive *fails* to read it.
//!
//! | | columns | what it is | what recovery does |
//! | --- | --- | --- | --- |
//! | A | all have it | a batch that was sent | takes it |
//! | B | some have it | the same: the others were cut off, or are damaged | takes it, and writes it to the others |
//! | C | all lack it | the end of the extent | ends here, and looks for evidence behind it: [`Cursor::beyond`] |
//! | D | some lack it, some fail | the end: a batch counts when all columns have it | the same; overwrites what fails |
//! | E | all fail | unknown | refuses the pool if it may be needed: [`super::unread`] |
//!
//! Whether a batch of A or B counts is told by the batches behind it, by the extent's successor, or by its payloads. For
//! those the same table holds: one that is right on any column is right; one that is wrong where it can be read never
//! counted.
//!
//! # Example
//! An extent on drives 0 and 1. Batches 0 to 4 are acknowledged, 5 and 6 are on their way when power fails.
//! 1. Drive 0 has got 5 and 6, drive 1 has got 6 only: there, 6 does not follow anything.
//! 2. Recovery finds 5 on drive 0 (B) and 6 on both (A). Batch 4 said that 4 were hardened, batch 6 that 5 were, so 5 and 6
//!    are in doubt. Their payloads verify: both are taken, whether they were acknowledged or not.
//! 3. Before the pool serves, 5 is written to drive 1. Without that, the loss of drive 0 a moment later would take back
//!    what readers have seen.

use super::{
    decode::{decode, payload_verifies, plausible},
    placed::PlacedRows,
    record::ReplayedRecord,
    slabs::Slabs,
    unread::{Unread, read_patiently},
};
use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    format::{BatchHeader, PAGE_BYTES},
    store::Store,
};
use quoin_base::Sequence;
use quoin_stripe::{Column, StripeError};
use quoin_world::{Buf, Slice as Bytes};
use std::sync::Arc;

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
    pub slabs: Arc<Slabs>,
    /// 0: not known yet.
    pub number: u64,
    /// CRC of the extent's header.
    pub tag: u64,
    slab_bytes: u64,
    /// The last batch seen was short: so may be the next ones.
    are_short: bool,
    /// What was read last of each column, and from where.
    windows: Vec<(u64, Bytes)>,
    /// Where a drive failed to read what another column lacks.
    pub failed: Vec<(Column, u64)>,
}

pub(super) struct FoundBatch {
    pub header: BatchHeader,
    pub records: Vec<ReplayedRecord>,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(store: &'a Store, slabs: Slabs, number: u64, tag: u64) -> Self {
        let windows = slabs.iter().map(|_| (0, Buf::default().into_slice())).collect();
        let (slab_bytes, failed, slabs) = (store.slab_bytes().into(), Vec::new(), Arc::new(slabs));
        Self { store, slabs, number, tag, slab_bytes, are_short: false, windows, failed }
    }

    /// True for a batch of this extent in its present life.
    pub(super) fn owns(&self, header: &BatchHeader) -> bool {
        header.extent.get() == self.number && header.tag.get() == self.tag
    }

    /// A place that no column can read.
    pub(super) fn unread(&self, offset: u64, error: StripeError) -> Unread {
        Unread::new(self.store, self.slabs[0], offset, &error)
    }

    /// The batch that begins at byte `at` of the extent and follows one with this checksum: the `index`th. An error: no
    /// column can be read there.
    pub(super) async fn next_batch(
        &mut self,
        at: u64,
        index: u32,
        previous_crc: u32,
    ) -> Result<Option<FoundBatch>, StripeError> {
        // Any column that has the batch tells it: rows A and B of the table above.
        let (mut is_lacking, mut failed) = (false, Vec::new());
        for column in 0..self.slabs.len() {
            let found = self.batch_at(column, at).await;
            let follows = |batch: &FoundBatch| {
                planted(Bug::ReplayOldLap)
                    || self.owns(&batch.header)
                        && batch.header.index.get() == index
                        && batch.header.previous_crc.get() == previous_crc
            };
            match found {
                Ok(Some(batch)) if follows(&batch) => return Ok(Some(batch)),
                Ok(_) => is_lacking = true,
                Err(error) => failed.push((self.slabs[column], error)),
            }
        }
        // No column has it: rows C, D and E.
        match failed.pop() {
            Some((_, error)) if !is_lacking => Err(error),
            Some((last, _)) => {
                self.failed.extend(failed.iter().map(|(column, _)| (*column, at)).chain([(last, at)]));
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// The batch at byte `at` of a column, if its headers verify.
    pub(super) async fn batch_at(
        &mut self,
        column: usize,
        at: u64,
    ) -> Result<Option<FoundBatch>, StripeError> {
        if at + PAGE_BYTES as u64 > self.slab_bytes {
            return Ok(None);
        }
        // The first page tells how long the headers are. Most batches have them within what is read with it.
        let bytes = self.headers_at(column, at).await?;
        let Some(header) = plausible(&bytes, self.slab_bytes - at) else { return Ok(None) };
        self.are_short = u64::from(header.total_bytes.get()) <= SHORT_BATCH_BYTES;
        let meta_bytes = header.meta_bytes.get() as usize;
        let found = |meta: &[u8]| {
            let records = decode(meta, header, &self.slabs, at);
            records.map(|records| FoundBatch { header, records })
        };
        if let Some(meta) = bytes.get(..meta_bytes) {
            return Ok(found(meta));
        }
        let place = self.slabs[column];
        // Longer headers are read again, whole.
        match read_patiently(self.store, place, at, meta_bytes.next_multiple_of(PAGE_BYTES)).await {
            Ok(bytes) => Ok(found(&bytes[..meta_bytes])),
            // It is of an earlier life of the extent: that it cannot be read does not matter.
            Err(_) if self.number > 0 && !self.owns(&header) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What lies from byte `at` of a column on, a page or more of it.
    async fn headers_at(&mut self, column: usize, at: u64) -> Result<Bytes, StripeError> {
        let ((from, window), place) = (&self.windows[column], self.slabs[column]);
        if at >= *from && at + PAGE_BYTES as u64 <= from + window.len() as u64 {
            return Ok(window.slice((at - from) as usize..));
        }
        // Short batches follow one another closely, so that one read brings several.
        let wanted = if self.are_short { WINDOW_BYTES } else { FIRST_READ_BYTES };
        let len = wanted.min((self.slab_bytes - at) as usize);
        let bytes = match self.store.read_slab(place, at, len).await {
            Ok(bytes) => bytes,
            // What lies behind the first page may be none of its headers.
            Err(_) => read_patiently(self.store, place, at, PAGE_BYTES).await?,
        };
        let bytes = bytes.into_slice();
        self.windows[column] = (at, bytes.clone());
        Ok(bytes)
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
        for column in 0..self.slabs.len() {
            self.look_beyond(column, at, batches, tail, &mut beyond, &mut end).await?;
        }
        let is_unread = |end: u64| beyond.skipped.iter().any(|unread| unread.offset == end);
        beyond.ends_obsolete = !beyond.needed && end.is_some_and(|end| !is_unread(end));
        Ok(beyond)
    }

    /// The same on one column.
    async fn look_beyond(
        &mut self,
        column: usize,
        at: u64,
        batches: u32,
        tail: Sequence,
        beyond: &mut Beyond,
        end: &mut Option<u64>,
    ) -> Result<(), PoolError> {
        let place = self.slabs[column];
        // The rest of the slab in long pieces, the first on top.
        let mut todo = Vec::new();
        let mut from = at;
        while from < self.slab_bytes {
            let len = SCAN_BYTES.min(self.slab_bytes - from);
            todo.push((from, len));
            from += len;
        }
        todo.reverse();
        while let Some((from, len)) = todo.pop() {
            let bytes = match self.store.read_slab(place, from, len as usize).await {
                Ok(bytes) => bytes,
                Err(error) if len <= PAGE_BYTES as u64 => {
                    beyond.skipped.push(Unread::new(self.store, place, from, &error));
                    continue;
                }
                Err(_) => {
                    // Halves are tried until the pages are found that cannot be read.
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
                let Ok(Some(batch)) = self.batch_at(column, here).await else { continue };
                *end = (*end).max(Some(here + u64::from(header.total_bytes.get())));
                let needed = batch.records.iter().any(|r| r.header.sequence.get() >= tail.0);
                beyond.needed |= needed;
                // It says that more batches were hardened than could be read in order: one of those is damaged.
                if needed && header.hardened.get() > batches {
                    return Err(PoolError::corrupt(
                        format!(
                            "journal extent {} on drive {}",
                            self.number,
                            self.store.drive_name(place.drive)
                        ),
                        format!("batch {batches} is unreadable, yet batch {} follows it", header.index.get()),
                    ));
                }
            }
        }
        Ok(())
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
