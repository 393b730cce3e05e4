//! Writing pages of metadata to places in table slabs.

use crate::{
    error::PoolError,
    format::Location,
    lifecycle::slice::Slice,
    meta::PageId,
    store::{Writer, pace::Work},
};
use futures_util::{StreamExt, future::join_all, stream};
use quoin_stripe::Column;
use quoin_world::Slice as Bytes;

/// The most pages in one write.
const MOST_PAGES: usize = 64;
/// Runs of neighbours written side by side: each has its pages in RAM once more meanwhile.
const RUNS_AT_ONCE: usize = 8;

impl Slice {
    /// Writes pages to places in table slabs, every copy of them, some side by side at the pace of the background, as the cut
    /// has them. Neighbours go to the drive together. Returns the bytes written.
    pub(crate) async fn write_table_pages(
        &self,
        mut pages: Vec<(PageId, Location)>,
    ) -> Result<u64, PoolError> {
        pages.sort_unstable_by_key(|(_, at)| at.0);
        let mut writes = Vec::new();
        let mut rest = &pages[..];
        while !rest.is_empty() {
            let follows = |i: &usize| rest[i - 1].1.is_followed_by(rest[*i].1);
            let count = 1 + (1..rest.len().min(MOST_PAGES)).take_while(follows).count();
            let (run, others) = rest.split_at(count);
            writes.push(self.write_table_run(run));
            rest = others;
        }
        // NOTE: all end, also if one fails: a drive takes a write that nobody waits for as its failure.
        let written: Vec<_> = stream::iter(writes).buffer_unordered(RUNS_AT_ONCE).collect().await;
        written.into_iter().sum()
    }

    /// Writes neighbours, every copy of them.
    async fn write_table_run(&self, run: &[(PageId, Location)]) -> Result<u64, PoolError> {
        let (columns, offset) = self.segments.io.copies(run[0].1)?;
        let taken: Vec<Bytes> =
            run.iter().map(|(id, _)| self.metadata.pages.take(*id)).collect::<Result<_, _>>()?;
        let copies = columns.iter().map(|column| self.write_table_copy(*column, offset, &taken));
        let written = join_all(copies).await.into_iter().sum::<Result<u64, PoolError>>()?;
        self.metadata.pages.written(run.iter().map(|(id, _)| *id));
        Ok(written)
    }

    /// Writes one copy of neighbours.
    async fn write_table_copy(&self, column: Column, offset: u64, data: &[Bytes]) -> Result<u64, PoolError> {
        let (store, world) = (&self.store, self.world());
        let bytes: u64 = data.iter().map(|bytes| bytes.len() as u64).sum();
        let paced = store.pace().enter(column.drive, (Work::Rows, bytes), world, || self.pressure()).await;
        let write = || store.write_slab(column, offset, data.to_vec(), false);
        if let Err(error) = store.write_patiently(world, Writer::Committer, write).await {
            // The other copies are all that there is from then on.
            store.do_without(column.drive, error).await?;
        }
        paced.done(world.now(), self.pressure());
        Ok(bytes)
    }
}
