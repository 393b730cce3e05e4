//! Table slabs get the copies back that lay on drives which failed or leave.

use crate::{commit::committer::Committer, error::PoolError, meta::TableCopy};
use quoin_world::Buf;

/// Bytes that are copied at a time.
const CHUNK_BYTES: u64 = 1 << 20;

impl Committer {
    /// Makes copies of table slabs that lack some, as far as there are slabs for them. No checkpoint is under way: nothing is
    /// written to table slabs meanwhile. The root of the checkpoint that begins then names the new copies.
    pub(super) async fn complete_table_slabs(&mut self) -> Result<(), PoolError> {
        assert!(
            !self.checkpoints.is_under_way(),
            "table slabs are copied while no checkpoint writes to them"
        );
        let slice = self.slice.clone();
        let table = &slice.segments.table;
        if !table.may_be_displaced() {
            return Ok(());
        }
        while let Some(copy) = table.begin_table_copy() {
            let is_made = self.copy_table_slab(&copy).await?;
            table.end_table_copy(copy, is_made);
            if !is_made {
                break;
            }
        }
        Ok(())
    }

    /// Copies a table slab to another drive, hardened. False if that is not possible now.
    async fn copy_table_slab(&self, copy: &TableCopy) -> Result<bool, PoolError> {
        let (store, slab_bytes) = (&self.slice.store, self.slice.segments.table.slab_bytes());
        for at in (0..slab_bytes).step_by(CHUNK_BYTES as usize) {
            let len = CHUNK_BYTES.min(slab_bytes - at) as usize;
            // Any copy will do: pages in it that are damaged are found by their checksums, and read from another.
            let mut read: Option<Buf> = None;
            for column in &copy.columns {
                if let Ok(bytes) = store.read_slab(*column, at, len).await {
                    read = Some(bytes);
                    break;
                }
            }
            // Pages that no copy has any more are found when they are needed.
            let Some(bytes) = read else { return Ok(false) };
            let written = store.write_slab(copy.to, at, vec![bytes.into_slice()], false).await;
            if let Err(error) = written {
                store.do_without(copy.to.drive, error.into()).await?;
                return Ok(false);
            }
        }
        if let Err(error) = store.flush_drive(copy.to.drive).await {
            store.do_without(copy.to.drive, error).await?;
            return Ok(false);
        }
        Ok(true)
    }
}
