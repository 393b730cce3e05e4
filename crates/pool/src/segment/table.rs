//! Writing pages of metadata to places in table slabs.

use crate::{error::PoolError, format::Location, lifecycle::slice::Slice};
use futures_util::future::try_join_all;
use quoin_stripe::Column;
use quoin_world::Slice as Bytes;

/// The most pages in one write.
const MOST_PAGES: usize = 64;

impl Slice {
    /// Writes pages to places in table slabs, every copy of them, all side by side at the pace of the background. Neighbours
    /// go to the drive together. Returns the bytes written.
    pub(crate) async fn write_table_pages(
        &self,
        mut pages: Vec<(Location, Bytes)>,
    ) -> Result<u64, PoolError> {
        pages.sort_unstable_by_key(|(at, _)| at.0);
        let mut writes = Vec::new();
        let mut rest = &pages[..];
        while let Some((first, _)) = rest.first() {
            let follows = |i: &usize| rest[i - 1].0.is_followed_by(rest[*i].0);
            let count = 1 + (1..rest.len().min(MOST_PAGES)).take_while(follows).count();
            let (run, others) = rest.split_at(count);
            let (columns, offset) = self.io.copies(*first)?;
            writes.extend(columns.iter().map(|column| self.write_table_run(*column, offset, run)));
            rest = others;
        }
        Ok(try_join_all(writes).await?.into_iter().sum())
    }

    /// Writes one copy of neighbours.
    async fn write_table_run(
        &self,
        column: Column,
        offset: u64,
        run: &[(Location, Bytes)],
    ) -> Result<u64, PoolError> {
        let (store, world) = (&self.store, &*self.world);
        let bytes: u64 = run.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let paced = store.pace().enter(column.drive, bytes, world, || self.pressure()).await;
        let data = || run.iter().map(|(_, bytes)| bytes.clone()).collect();
        store.write_patiently(world, || store.write_slab(column, offset, data(), false)).await?;
        paced.written(world.now(), self.pressure());
        Ok(bytes)
    }
}
