//! Makes the columns of placed blocks agree, before the pool serves.
//!
//! Recovery takes a batch in doubt if what its records lead to can be read and verifies. But a row that was on its way may
//! have reached some of its columns only, and hosts will read it: it must survive the loss of any column. So what was
//! taken is written to the columns that lack it, and parity is made anew. Rows that counted before the pool went down are
//! on all columns; only those in doubt are looked at.

use crate::{error::PoolError, store::Store};
use quoin_base::{ByteRange, crc32c};
use quoin_stripe::StripeSet;

/// What a record in doubt leads to, which recovery takes.
#[derive(Clone, Debug)]
pub(crate) struct RowInDoubt {
    pub stripes: StripeSet,
    pub range: ByteRange,
    /// Of each block in the range.
    pub crcs: Vec<u32>,
}

impl RowInDoubt {
    /// Writes rows to all their columns. Durable on return.
    pub(crate) async fn mend_all(rows: &[Self], store: &Store) -> Result<(), PoolError> {
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
        // Each block may be on other columns than the next.
        let block_bytes = self.range.len / self.crcs.len().max(1) as u64;
        for (block, crc) in self.range.split(block_bytes).zip(&self.crcs) {
            self.mend_block(store, block, *crc).await?;
        }
        Ok(())
    }

    async fn mend_block(&self, store: &Store, block: ByteRange, crc: u32) -> Result<(), PoolError> {
        // What lies there, with the columns left out that do not have it.
        for left_out in store.ways_to_read(&self.stripes, block) {
            match store.read_segment_without(&self.stripes, block, left_out).await {
                Ok(bytes) if crc32c(&bytes).0 == crc => {
                    return store.rewrite_columns(&self.stripes, block, left_out, &bytes.into_slice()).await;
                }
                Ok(_) | Err(_) => {}
            }
        }
        let what = format!("what was placed at {block:?} of a segment");
        Err(PoolError::corrupt(what, "it was read when the journal was, and does not verify any more"))
    }
}
