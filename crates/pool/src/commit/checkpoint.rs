//! Checkpoints: all dirty metadata goes into rows, then the root that leads to it, then the journal's tail
//! moves.
//!
//! Order: places for all dirty pages, pages of the map and of the segment table included, are decided first,
//! which makes more pages dirty, until there are none; then contents and checksums are fixed bottom-up; then
//! rows are written, all data drives flushed, the root written and hardened on every voter; only then the
//! journal is trimmed and what was freed may be used again. The committer does nothing else meanwhile; hosts
//! go on into the journal.

use crate::{
    bugs::{Bug, planted},
    commit::{committer::Committer, destage::out_of_slabs},
    error::PoolError,
    format::{
        Location, MAP_LEVELS, MAX_TABLE_SEGMENTS, PAGE_BYTES, PAGE_WORDS, ROOT_MAGIC, Root, Space,
        TableSegment, zeroed,
    },
    lifecycle::pool::Pool,
    meta::{CatalogImage, PageId, encode_segment},
    store::roots::harden_root,
};
use quoin_base::{Sequence, crc64};
use quoin_drive::FORMAT_VERSION;
use quoin_world::Slice;
use std::{collections::BTreeMap, sync::atomic::Ordering};
use zerocopy::IntoBytes;

impl Committer {
    /// Makes a checkpoint of the metadata as it is.
    pub(crate) async fn checkpoint(&mut self) -> Result<(), PoolError> {
        let pool = self.pool.clone();
        let started = pool.world.now();
        // The cut: what is below the tail is in the metadata, and what the catalog gains from here on is above.
        let tail = match planted(Bug::TailPastCatalog) {
            true => pool.buffer.tail(pool.journal.peek_sequence()),
            false => pool.tail(),
        };
        pool.journal.tail_found(tail);
        self.catalog_taken();
        let catalog_bytes = self.write_catalog().await?;
        pool.space.update_catalog(catalog_bytes);

        self.gather_table().await?;
        let places = self.place_dirty_pages().await?;
        debug_assert!(
            (places.len() * PAGE_BYTES) as u64 <= pool.space.checkpoint_bytes(),
            "a checkpoint writes {} pages, {} of the catalog, and slabs were kept for {} bytes",
            places.len(),
            self.catalog_pages,
            pool.space.checkpoint_bytes()
        );
        let contents = self.fix_contents(&places).await?;
        let mut planned = self.meta_rows.finish(&pool.segments);
        planned.extend(self.table_rows.finish(&pool.segments));
        for row in &mut planned {
            let ids = row.contents.iter().filter_map(|&packed| PageId::unpack(packed));
            row.data = ids.filter_map(|id| contents.get(&id).cloned()).collect();
        }
        let written = self.write_rows(planned).await?;
        if !planted(Bug::SkipRowFlush) && !planted(Bug::RootBeforeRows) {
            pool.io.columns.flush().await?;
        }
        self.write_root(tail, catalog_bytes).await?;
        pool.durable_tail.store(tail.0, Ordering::Release);
        if planted(Bug::RootBeforeRows) {
            pool.io.columns.flush().await?;
        }

        self.generation += 1;
        self.cleaned_metadata.clear();
        pool.pages.all_clean();
        self.settling.push_back((self.generation, pool.readers.current()));
        self.settle();
        self.consider_sweep();
        pool.journal.trim(tail);
        self.last_checkpoint = pool.world.now();
        pool.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
        pool.counters.checkpoint_bytes.fetch_add(written, Ordering::Relaxed);
        pool.counters
            .checkpoint_nanos
            .fetch_add(self.last_checkpoint.since(started).as_nanos() as u64, Ordering::Relaxed);
        tracing::debug!(generation = self.generation, tail = tail.0, pages = places.len(), "checkpoint");
        self.committed();
        Ok(())
    }

    /// Puts the catalog into its pages.
    async fn write_catalog(&mut self) -> Result<u64, PoolError> {
        let pool = self.pool.clone();
        let image = {
            let layers = pool.layers.read();
            let mut images = layers.images();
            images.iter_mut().for_each(|image| image.gone &= !planted(Bug::ResurrectVolumes));
            CatalogImage {
                objects: pool.catalog.all(),
                layers: images,
                aliases: layers.aliases().clone(),
                next_layer: layers.next,
                copies: layers.copies.load(Ordering::Relaxed),
                applied: layers.applied,
            }
        };
        let bytes = image.encode();
        let pages = bytes.len().div_ceil(PAGE_BYTES) as u64;
        for (index, chunk) in bytes.chunks(PAGE_BYTES).enumerate() {
            let mut words = Box::new([0u64; PAGE_WORDS]);
            words.as_mut_slice().as_mut_bytes()[..chunk.len()].copy_from_slice(chunk);
            pool.pages.replace(PageId::new(Space::Catalog, index as u64), &words).await?;
        }
        for index in pages..self.catalog_pages {
            self.drop_page(PageId::new(Space::Catalog, index)).await?;
        }
        self.catalog_pages = pages;
        Ok(bytes.len() as u64)
    }

    /// Frees a page and its place.
    pub(crate) async fn drop_page(&mut self, id: PageId) -> Result<(), PoolError> {
        let pool = self.pool.clone();
        let old = Location(pool.pages.entry(id).await?.location.get());
        pool.pages.drop_page(id).await?;
        if !old.is_none() {
            pool.segments.release(old, self.generation + 1, &pool.readers)?;
        }
        Ok(())
    }

    /// Finds a place for every dirty page and for those that this makes dirty.
    async fn place_dirty_pages(&mut self) -> Result<BTreeMap<PageId, Location>, PoolError> {
        let pool = self.pool.clone();
        let generation = self.generation + 1;
        let mut places = BTreeMap::new();
        loop {
            for index in pool.segments.take_dirty_pages() {
                pool.pages.change(PageId::new(Space::Segments, index)).await?;
            }
            let todo = pool.pages.dirty_except(&places);
            if todo.is_empty() {
                return Ok(places);
            }
            for id in todo {
                let rows = match id.space {
                    Space::Segments => &mut self.table_rows,
                    Space::Tree | Space::Blocks | Space::Catalog => &mut self.meta_rows,
                };
                let location = rows
                    .place(&pool.segments, id.pack(), PAGE_BYTES, generation, &pool.readers)
                    .ok_or_else(out_of_slabs)?;
                let old = Location(pool.pages.entry(id).await?.location.get());
                pool.pages.set_location(id, location).await?;
                if !old.is_none() {
                    pool.segments.release(old, generation, &pool.readers)?;
                }
                places.insert(id, location);
                if planted(Bug::FixTableEarly) {
                    self.fix_table([&id]).await?;
                }
            }
            // Where the last row ends is part of the segment table too.
            self.meta_rows.end_row(&pool.segments);
            self.table_rows.end_row(&pool.segments);
        }
    }

    /// The bytes of every page that was placed, each with its checksum in the page above it.
    async fn fix_contents(
        &self,
        places: &BTreeMap<PageId, Location>,
    ) -> Result<BTreeMap<PageId, Slice>, PoolError> {
        let pool = &self.pool;
        if !planted(Bug::FixTableEarly) {
            self.fix_table(places.keys()).await?;
        }
        let mut contents = BTreeMap::new();
        for level in 0..=MAP_LEVELS {
            for id in places.keys().filter(|id| id.level == level) {
                let page = pool.pages.get(*id).await?;
                let Some(page) = page else { return Err(PoolError::page(id.space, id.index, "it is gone")) };
                let bytes = page.to_buf();
                pool.pages.set_crc(*id, crc64(&bytes).0).await?;
                contents.insert(*id, bytes.into_slice());
            }
        }
        debug_assert!(pool.pages.dirty_except(places).is_empty(), "a page became dirty after it was placed");
        Ok(contents)
    }

    /// Puts the segment table, as it is, into those of its pages that are among `ids`.
    async fn fix_table(&self, ids: impl IntoIterator<Item = &PageId>) -> Result<(), PoolError> {
        let pool = &self.pool;
        for id in ids.into_iter().filter(|id| id.space == Space::Segments && id.level == 0) {
            pool.pages.replace(*id, &pool.segments.encode_page(id.index)).await?;
        }
        Ok(())
    }

    async fn write_root(&mut self, tail: Sequence, catalog_bytes: u64) -> Result<(), PoolError> {
        let pool = self.pool.clone();
        let generation = self.generation + 1;
        let mut root = new_root(&pool, generation);
        root.segments = pool.segments.count().into();
        root.tail = tail.0.into();
        root.next_sequence = pool.journal.peek_sequence().0.into();
        root.spaces = pool.pages.root_entries();
        root.tree_end = self.tree_end.into();
        root.tree_free = self.tree_free.into();
        root.blocks_end = self.blocks_end.into();
        root.blocks_free = self.blocks_free.into();
        root.catalog_bytes = catalog_bytes.into();
        let (first_extent, next_extent) = pool.journal.needed_from(tail);
        root.first_extent = first_extent.into();
        root.next_extent = next_extent.into();
        root.next_volume = pool.next_volume.load(Ordering::Relaxed).into();
        let table = pool.segments.table_segments();
        if table.len() > MAX_TABLE_SEGMENTS {
            let spread = format!("it is spread over {} segments", table.len());
            return Err(PoolError::corrupt("the segment table", spread));
        }
        self.gathers_table = table.len() > MAX_TABLE_SEGMENTS / 2;
        root.table_segments = (table.len() as u32).into();
        for (slot, (id, segment)) in root.table.iter_mut().zip(&table) {
            *slot = TableSegment { id: id.0.into(), entry: encode_segment(segment) };
        }
        root.seal();
        harden_root(pool.io.columns.drives(), &root).await?;
        *pool.root.lock() = root;
        Ok(())
    }
}

fn new_root(pool: &Pool, generation: u64) -> Root {
    let mut root: Root = zeroed();
    root.magic = ROOT_MAGIC.into();
    root.version = FORMAT_VERSION.into();
    root.pool = *pool.id.0.as_bytes();
    root.epoch = pool.io.columns.drives()[0].epoch().0.into();
    root.generation = generation.into();
    root
}
