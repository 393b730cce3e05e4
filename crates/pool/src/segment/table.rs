//! Writing the pages of the segment table to their places.

use crate::{
    error::PoolError,
    format::{Location, Space},
    lifecycle::slice::Slice,
};
use quoin_world::Slice as Bytes;

/// The most pages in one write.
const MOST_PAGES: usize = 64;

impl Slice {
    /// Writes pages of the segment table, every copy of them. Neighbours go to the drive together. Returns the bytes written.
    pub(crate) async fn write_table_pages(
        &self,
        mut pages: Vec<(Location, Bytes)>,
    ) -> Result<u64, PoolError> {
        pages.sort_unstable_by_key(|(at, _)| at.0);
        let mut written = 0;
        let mut rest = &pages[..];
        while let Some((first, _)) = rest.first() {
            let follows = |i: &usize| rest[i - 1].0.is_followed_by(rest[*i].0);
            let count = 1 + (1..rest.len().min(MOST_PAGES)).take_while(follows).count();
            let (run, others) = rest.split_at(count);
            let (columns, offset) = self.io.copies(Space::Segments, *first)?;
            for column in columns.iter() {
                let data = || run.iter().map(|(_, bytes)| bytes.clone()).collect();
                let write = || self.store.write_slab(*column, offset, data(), false);
                self.store.write_patiently(&*self.world, write).await?;
                written += run.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
            }
            rest = others;
        }
        Ok(written)
    }
}
