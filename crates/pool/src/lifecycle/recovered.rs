//! What recovery found in a slice, and what of that is made durable before the slice begins to write.

use crate::{
    error::PoolError,
    format::PAGE_BYTES,
    journal::{Mend, RowInDoubt, TornBatch},
    lifecycle::stats::RecoveryStats,
    store::Store,
};
use quoin_stripe::Column;
use quoin_world::Buf;

/// What recovery found.
pub(crate) struct Recovered {
    pub(super) stats: RecoveryStats,
    /// What was damaged where nothing is lost by it, in words.
    pub(super) mended: Vec<String>,
    /// Where batches of the journal begin that recovery dropped.
    pub(super) torn: Vec<TornBatch>,
    /// What recovery took from some columns of the journal only.
    pub(super) mends: Vec<Mend>,
    /// Rows of large writes that it took, and that some columns may lack.
    pub(super) rows: Vec<RowInDoubt>,
    /// Pages of the journal in which nothing must be found that recovery could not read.
    pub(super) forget: Vec<(Column, u64)>,
}

impl Recovered {
    /// What it took.
    pub(crate) fn stats(&self) -> &RecoveryStats {
        &self.stats
    }

    /// What was damaged where nothing is lost by it, in words.
    pub(crate) fn mended(&self) -> &[String] {
        &self.mended
    }

    /// Makes durable what recovery decided, before anything new is written: a later recovery finds the same.
    pub(super) async fn make_durable(&self, store: &Store) -> Result<(), PoolError> {
        self.mend_columns(store).await?;
        self.forget_torn_batches(store).await
    }

    /// Makes sure that what recovery dropped is never found again: the row that a record names may be written anew with the
    /// same content before the journal has let go of that record.
    async fn forget_torn_batches(&self, store: &Store) -> Result<(), PoolError> {
        for TornBatch { place, .. } in &self.torn {
            for column in place.slabs.iter() {
                overwrite(store, *column, place.offset).await?;
            }
        }
        Ok(())
    }

    /// Writes what recovery took from some columns only to the others, before the pool serves. Overwrites what a
    /// later recovery must not take.
    async fn mend_columns(&self, store: &Store) -> Result<(), PoolError> {
        for mend in &self.mends {
            mend.write(store).await?;
        }
        RowInDoubt::mend_all(&self.rows, store).await?;
        for (column, offset) in &self.forget {
            overwrite(store, *column, *offset).await?;
        }
        Ok(())
    }
}

/// Writes zeroes over a page of the journal, durably.
async fn overwrite(store: &Store, column: Column, offset: u64) -> Result<(), PoolError> {
    let zeroes = vec![Buf::zeroed(PAGE_BYTES).into_slice()];
    store.write_slab(column, offset, zeroes, true).await?;
    Ok(())
}
