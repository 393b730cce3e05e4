//! Makes the columns of placed blocks agree, before the pool serves.
//!
//! Recovery takes a batch in doubt if what its records lead to can be read and verifies. But a row that was on its way may
//! have reached some of its columns only, and hosts will read it: it must survive the loss of any column. So what was
//! taken is written to the columns that lack it, and parity is made anew. Rows that counted before the pool went down are
//! on all columns; only those in doubt are looked at.

use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    store::Store,
};
use quoin_base::{ByteRange, crc32c};
use quoin_stripe::StripeSet;

/// What a record in doubt leads to, which recovery takes.
#[derive(Clone, Debug)]
pub(crate) struct RowInDoubt {
    pub stripes: StripeSet,
    pub range: ByteRange,
    pub block_bytes: u64,
    pub crcs: Vec<u32>,
}

impl RowInDoubt {
    /// Whether these bytes are what the record says.
    pub(super) fn verifies(&self, bytes: &[u8]) -> bool {
        let crcs = bytes.chunks(self.block_bytes as usize).map(|block| crc32c(block).0);
        crcs.eq(self.crcs.iter().copied())
    }

    /// Writes rows to all their columns. Durable on return.
    pub(crate) async fn mend_all(rows: &[Self], store: &Store) -> Result<(), PoolError> {
        if planted(Bug::KeepRowInDoubt) {
            return Ok(());
        }
        // NOTE: first the data of all, then parity. Another row of the same stripes may be there only as long as its parity is.
        for row in rows {
            row.mend_data(store).await?;
        }
        for row in rows {
            store.make_parity_anew(&row.stripes, row.range).await?;
        }
        Ok(())
    }

    /// Writes it to the columns of data, or the copies, that lack it.
    async fn mend_data(&self, store: &Store) -> Result<(), PoolError> {
        // What lies there, with the columns left out that do not have it.
        for left_out in store.ways_to_read(&self.stripes, self.range) {
            let Ok(bytes) = store.read_segment_without(&self.stripes, self.range, left_out).await else {
                continue;
            };
            if self.verifies(&bytes) {
                return store.rewrite_columns(&self.stripes, self.range, left_out, &bytes.into_slice()).await;
            }
        }
        let what = format!("what was placed at {:?} of a segment", self.range);
        Err(PoolError::corrupt(what, "it was read when the journal was, and does not verify any more"))
    }
}
