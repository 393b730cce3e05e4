//! Makes the columns of an extent alike again, before the pool serves.
//!
//! A batch that recovery takes from some columns only may never have been acknowledged. But hosts will read it,
//! so it must survive the loss of the drive that recovery took it from. Batches that counted before the pool
//! went down are on all columns. So only batches in doubt are compared, and the header of an extent that has
//! any.
//!
//! Only columns that differ are written: the one that is right may be the only copy.

use super::{decode::decode, record::ReplayedRecord, slabs::Slabs, unread::read_patiently};
use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    format::{BatchHeader, ExtentHeader, PAGE_BYTES},
    store::Store,
};
use quoin_world::{Buf, Slice as Bytes};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// A batch that nothing behind it shows to have counted.
pub(crate) struct TakenInDoubt {
    pub at: u64,
    pub header: BatchHeader,
    pub records: Vec<ReplayedRecord>,
}

/// What is to be written for an extent.
pub(crate) struct Mend {
    header: ExtentHeader,
    slabs: Arc<Slabs>,
    /// The batches that were taken, and whether their payloads are needed.
    batches: Vec<(TakenInDoubt, bool)>,
}

impl Mend {
    pub(super) fn new(header: ExtentHeader, slabs: Arc<Slabs>) -> Self {
        Self { header, slabs, batches: Vec::new() }
    }

    /// Keeps a batch that recovery takes. Returns its records.
    pub(super) fn keep(&mut self, batch: TakenInDoubt, is_needed: bool) -> Vec<ReplayedRecord> {
        if self.slabs.len() < 2 {
            return batch.records;
        }
        let records = batch.records.clone();
        self.batches.push((batch, is_needed));
        records
    }

    /// Ends the collection. `None`: there is nothing to write.
    pub(super) fn finished(self) -> Option<Self> {
        (!self.batches.is_empty() && !planted(Bug::KeepOnOneColumn)).then_some(self)
    }

    /// Writes header and batches to the columns that lack them. Durable on return.
    pub(crate) async fn write(&self, store: &Store) -> Result<(), PoolError> {
        self.bring(store, 0, Buf::copy_of(self.header.as_bytes()).into_slice()).await?;
        for (batch, is_needed) in &self.batches {
            let bytes = self.compose(store, batch, *is_needed).await?;
            self.bring(store, batch.at, bytes).await?;
        }
        Ok(())
    }

    /// Composes a batch as it was sent, each part from any column that has it. Of a batch that is not needed,
    /// only the headers: they lead to the next one.
    async fn compose(
        &self,
        store: &Store,
        batch: &TakenInDoubt,
        is_needed: bool,
    ) -> Result<Bytes, PoolError> {
        let TakenInDoubt { at, header, records } = batch;
        let meta_bytes = header.meta_bytes.get() as usize;
        let len = if is_needed { header.total_bytes.get() as usize } else { meta_bytes };
        let mut bytes = Buf::zeroed(len.next_multiple_of(PAGE_BYTES));
        let lost = || {
            let why = format!("batch {} could be read a moment ago and cannot any more", header.index.get());
            PoolError::corrupt(format!("journal extent {}", self.header.number.get()), why)
        };
        // The headers, from the first column that has them as they were found.
        let mut is_found = false;
        for column in self.slabs.iter() {
            let read = read_patiently(store, *column, *at, meta_bytes.next_multiple_of(PAGE_BYTES)).await;
            let Ok(meta) = read else { continue };
            if meta[..64] == *header.as_bytes()
                && decode(&meta[..meta_bytes], *header, &self.slabs, *at).is_some()
            {
                bytes.as_mut_slice()[..meta_bytes].copy_from_slice(&meta[..meta_bytes]);
                is_found = true;
                break;
            }
        }
        if !is_found {
            return Err(lost());
        }
        // The payloads, each from any column where it verifies.
        for record in records.iter().filter(|r| is_needed && r.header.payload_bytes.get() > 0) {
            let from = (record.place.offset - at) as usize;
            let payload = record.payload(store).await?.ok_or_else(lost)?;
            bytes.as_mut_slice()[from..from + payload.len()].copy_from_slice(&payload);
        }
        Ok(bytes.into_slice())
    }

    /// Writes these bytes to the columns that hold something else there.
    async fn bring(&self, store: &Store, at: u64, bytes: Bytes) -> Result<(), PoolError> {
        for column in self.slabs.iter() {
            let held = store.read_slab(*column, at, bytes.len()).await;
            if held.is_ok_and(|held| held[..] == bytes[..]) {
                continue;
            }
            store.write_slab(*column, at, vec![bytes.clone()], true).await?;
        }
        Ok(())
    }
}
