//! Which slabs of the journal belong together.
//!
//! An extent's header names its slabs, and each of them begins with the same header. But a slab may begin with
//! the header of an earlier extent, if the write of the newer header was cut off there or lost. And an older
//! header on another drive may name the slab too, if nothing was written there since. Among the extents that
//! name a slab, the one with the highest number has it: an extent is made of free slabs, so nothing of the
//! earlier ones is needed any more.

use super::{slabs::Slabs, unread::read_patiently};
use crate::{
    format::{COUNTERS_END, ExtentHeader, PAGE_BYTES},
    store::Store,
};
use futures_util::{StreamExt, stream};
use quoin_stripe::{Column, StripeError};
use std::{cmp::Reverse, collections::BTreeSet};

/// Slabs that are read together.
pub(super) enum Site {
    /// An extent whose header is intact on some column, and those of the slabs it names that it has.
    Extent(Box<ExtentHeader>, Slabs),
    /// A slab that begins with no intact header and that no header names; the error, if its first page cannot
    /// be read.
    Bare(Column, Option<StripeError>),
}

/// Reads the first page of every slab and sorts the slabs into sites. `slabs`: those of the drives in the
/// journal's set; other drives are not trusted.
pub(super) async fn find_sites(store: &Store, slabs: &[Column], parallel: usize) -> Vec<Site> {
    let current: BTreeSet<Column> = slabs.iter().copied().collect();
    let reads: Vec<_> = slabs.iter().map(|column| read_patiently(store, *column, 0, PAGE_BYTES)).collect();
    let pages: Vec<_> = stream::iter(reads).buffered(parallel).collect().await;
    let (mut headers, mut bare) = (Vec::new(), Vec::new());
    for (column, page) in slabs.iter().zip(pages) {
        match page.map(|page| header_at(store, *column, &page)) {
            Ok(Some(header)) => headers.push(header),
            Ok(None) => bare.push(Site::Bare(*column, None)),
            Err(error) => bare.push(Site::Bare(*column, Some(error))),
        }
    }
    headers.sort_by_key(|(header, _)| Reverse((header.number.get(), header.crc.get())));
    headers.dedup_by_key(|(header, _)| (header.number.get(), header.crc.get()));
    let mut taken = BTreeSet::new();
    let mut sites = Vec::new();
    for (header, named) in headers {
        let slabs = named.only(|column| current.contains(&column) && !taken.contains(&column));
        taken.extend(named.iter().copied());
        sites.extend(slabs.map(|slabs| Site::Extent(header, slabs)));
    }
    let is_free = |site: &Site| !matches!(site, Site::Bare(column, _) if taken.contains(column));
    sites.extend(bare.into_iter().filter(is_free));
    sites
}

/// The header in the first page of a slab and the slabs it names, if it is one that was written there.
fn header_at(store: &Store, at: Column, page: &[u8]) -> Option<(Box<ExtentHeader>, Slabs)> {
    let header = Box::new(ExtentHeader::parse(page)?);
    let named = Slabs::decode(header.columns.get(), &header.slabs)?;
    let is_ours = header.pool == *store.pool().0.as_bytes() && header.number.get() < COUNTERS_END;
    (is_ours && named.contains(&at)).then_some((header, named))
}
