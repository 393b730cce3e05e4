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
    fork::layers::Layers,
    format::{Location, MAP_LEVELS, PAGE_BYTES, ROOT_MAGIC, Root, RowContent, Space, zeroed},
    lifecycle::slice::Slice,
    meta::{
        CatalogHead, Objects, PageId, PageWords, RecordHeap, RecordKey, encode_alias, encode_layer,
        encode_object,
    },
};
use quoin_base::{Sequence, crc64};
use quoin_drive::FORMAT_VERSION;
use quoin_world::Slice as Bytes;
use std::{collections::BTreeMap, sync::atomic::Ordering};

impl Committer {
    /// Makes a checkpoint of the metadata as it is.
    pub(crate) async fn checkpoint(&mut self) -> Result<(), PoolError> {
        let slice = self.slice.clone();
        let started = slice.world.now();
        // The cut: what is below the tail is in the metadata, and what the catalog gains from here on is above.
        let tail = match planted(Bug::TailPastCatalog) {
            true => slice.buffer.tail(slice.journal.peek_sequence()),
            false => slice.tail(),
        };
        slice.journal.tail_found(tail);
        slice.segments.forget_names(tail, self.generation + 1, &slice.readers);
        self.catalog_taken();
        let (catalog, catalog_pages) = self.write_catalog().await?;

        self.renew_ill_pages().await?;
        slice.segments.provide_places()?;
        let places = self.place_dirty_pages().await?;
        debug_assert!(
            (places.len() * PAGE_BYTES) as u64 <= slice.space.checkpoint_bytes(),
            "a checkpoint writes {} pages, {} of the catalog, and slabs were kept for {} bytes",
            places.len(),
            catalog_pages,
            slice.space.checkpoint_bytes()
        );
        let contents = self.fix_contents(&places).await?;
        let mut planned = self.meta_rows.finish(&slice.segments);
        for row in &mut planned {
            let ids = row.contents.iter().filter_map(|content| PageId::unpack(content.name.get()));
            row.data = ids.filter_map(|id| contents.get(&id).cloned()).collect();
        }
        let mut written = self.write_rows(planned).await?;
        let kept_twice = places.iter().filter(|(_, at)| at.table_slab().is_some());
        let kept_twice = kept_twice.filter_map(|(id, at)| Some((*at, contents.get(id)?.clone())));
        written += slice.write_table_pages(kept_twice.collect()).await?;
        if !planted(Bug::SkipRowFlush) && !planted(Bug::RootBeforeRows) {
            slice.store.flush_rows().await?;
        }
        self.write_root(tail, &catalog).await?;
        slice.durable_tail.store(tail.0, Ordering::Release);
        slice.placer.passed(tail);
        if planted(Bug::RootBeforeRows) {
            slice.store.flush_rows().await?;
        }

        self.generation += 1;
        self.cleaned_metadata.clear();
        slice.pages.all_clean();
        if slice.segments.table_written() {
            slice.progress.notify();
        }
        self.settling.push_back((self.generation, slice.readers.current()));
        self.settle();
        self.consider_sweep();
        slice.journal.trim(tail);
        self.tail_found = None;
        self.last_checkpoint = slice.world.now();
        slice.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
        slice.counters.checkpoint_bytes.fetch_add(written, Ordering::Relaxed);
        slice
            .counters
            .checkpoint_nanos
            .fetch_add(self.last_checkpoint.since(started).as_nanos() as u64, Ordering::Relaxed);
        tracing::debug!(generation = self.generation, tail = tail.0, pages = places.len(), "checkpoint");
        self.committed();
        Ok(())
    }

    /// The pages of the catalog that hold what changed, all as of this moment. `None` while a part of a transaction that is not
    /// decided yet may be in it.
    fn cut_catalog(&self) -> Option<Result<CatalogCut, PoolError>> {
        let slice = &self.slice;
        // NOTE: locked first: what takes effect does so under this lock, and says before that it is undecided.
        let layers = slice.layers.read();
        if slice.transactions.are_undecided() && !planted(Bug::CheckpointUndecided) {
            return slice.store.health().is_failed().then(|| Err(slice.store.health().error()));
        }
        layers.ids.find(&layers, self.generation + 1);
        let mut objects = slice.catalog.lock();
        let mut records = slice.records.lock();
        note_changes(&mut records, &layers, &mut objects);
        let encode = |key: &RecordKey| encode_record(&layers, &objects, key);
        let pages = records.cut(encode);
        debug_assert!(
            records.is_cut_of(layers.all.len() + layers.aliases().len() + objects.count(), encode),
            "the catalog's pages do not hold the catalog"
        );
        let head = CatalogHead {
            pages_end: records.pages_end(),
            records: records.count(),
            next_layer: layers.ids.next(),
            copies: layers.copies.load(Ordering::Relaxed),
            applied: layers.applied,
        };
        Some(Ok((head, pages)))
    }

    /// Puts what changed in the catalog into its pages. Returns how many these are.
    async fn write_catalog(&mut self) -> Result<(CatalogHead, u64), PoolError> {
        let slice = self.slice.clone();
        let (head, pages) = slice.progress.until(|| self.cut_catalog()).await?;
        let count = pages.len() as u64;
        slice.space.update_catalog(head.pages_end, count);
        for (index, words) in pages {
            let id = PageId::new(Space::Catalog, index);
            match words {
                Some(words) => slice.pages.replace(id, &words).await?,
                None => self.drop_page(id).await?,
            }
        }
        slice.counters.catalog_pages.fetch_add(count, Ordering::Relaxed);
        Ok((head, count))
    }

    /// Has pages written anew of which a copy was found damaged.
    async fn renew_ill_pages(&mut self) -> Result<(), PoolError> {
        let slice = self.slice.clone();
        for (id, why) in slice.pages.take_ill() {
            tracing::warn!("the copy of {id} {why}; it is written anew from the other");
            if id == PageId::new(Space::Segments, id.index) {
                slice.segments.rewrite(id.index);
                continue;
            }
            match slice.pages.change(id).await {
                Ok(_) => {}
                // By now no copy can be read: whoever needs it says so.
                Err(error) if slice.store.is_damage(&error).await => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Frees a page and its place.
    pub(crate) async fn drop_page(&mut self, id: PageId) -> Result<(), PoolError> {
        let slice = self.slice.clone();
        let old = Location(slice.pages.entry(id).await?.location.get());
        slice.pages.drop_page(id).await?;
        self.give_up_place(id, old)
    }

    /// Gives up where a page lay, if it lay anywhere.
    fn give_up_place(&self, id: PageId, old: Location) -> Result<(), PoolError> {
        let slice = &self.slice;
        match old.table_slab() {
            _ if old.is_none() => Ok(()),
            Some(_) => slice.segments.table_slabs().give_up(old, id.space == Space::Segments),
            None => slice.segments.release(old, self.generation + 1, &slice.readers),
        }
    }

    /// Finds a place for every dirty page and for those that this makes dirty.
    async fn place_dirty_pages(&mut self) -> Result<BTreeMap<PageId, Location>, PoolError> {
        let slice = self.slice.clone();
        let generation = self.generation + 1;
        let mut places = BTreeMap::new();
        loop {
            for index in slice.segments.take_dirty_pages() {
                // What it says is put right when all places are known.
                let id = PageId::new(Space::Segments, index);
                if !places.contains_key(&id) {
                    slice.pages.replace(id, &slice.segments.encode_page(index)).await?;
                }
            }
            let todo = slice.pages.dirty_except(&places);
            if todo.is_empty() {
                return Ok(places);
            }
            for id in todo {
                let old = Location(slice.pages.entry(id).await?.location.get());
                let mut location = slice.segments.take_place(id);
                if location.is_none() && id.space != Space::Segments {
                    let (rows, content) = (&mut self.meta_rows, RowContent::page(id.pack()));
                    location = rows.place(&slice.segments, content, PAGE_BYTES, generation, &slice.readers);
                }
                let location = location.ok_or_else(out_of_slabs)?;
                slice.pages.set_location(id, location).await?;
                self.give_up_place(id, old)?;
                places.insert(id, location);
                if planted(Bug::FixTableEarly) {
                    self.fix_table([&id]).await?;
                }
            }
            // Where the last row ends is part of the segment table too.
            self.meta_rows.end_row(&slice.segments);
        }
    }

    /// The bytes of every page that was placed, each with its checksum in the page above it.
    async fn fix_contents(
        &self,
        places: &BTreeMap<PageId, Location>,
    ) -> Result<BTreeMap<PageId, Bytes>, PoolError> {
        let slice = &self.slice;
        if !planted(Bug::FixTableEarly) {
            self.fix_table(places.keys()).await?;
        }
        let mut contents = BTreeMap::new();
        for level in 0..=MAP_LEVELS {
            for id in places.keys().filter(|id| id.level == level) {
                let page = slice.pages.get(*id).await?;
                let Some(page) = page else { return Err(PoolError::page(id.space, id.index, "it is gone")) };
                let bytes = page.to_buf();
                slice.pages.set_crc(*id, crc64(&bytes).0).await?;
                contents.insert(*id, bytes.into_slice());
            }
        }
        debug_assert!(slice.pages.dirty_except(places).is_empty(), "a page became dirty after it was placed");
        Ok(contents)
    }

    /// Puts the segment table, as it is, into those of its pages that are among `ids`.
    async fn fix_table(&self, ids: impl IntoIterator<Item = &PageId>) -> Result<(), PoolError> {
        let slice = &self.slice;
        for id in ids.into_iter().filter(|id| id.space == Space::Segments && id.level == 0) {
            slice.pages.replace(*id, &slice.segments.encode_page(id.index)).await?;
        }
        Ok(())
    }

    async fn write_root(&mut self, tail: Sequence, catalog: &CatalogHead) -> Result<(), PoolError> {
        let slice = self.slice.clone();
        let generation = self.generation + 1;
        let mut root = new_root(&slice, generation);
        root.segments = slice.segments.count().into();
        root.tail = tail.0.into();
        root.next_sequence = slice.journal.peek_sequence().0.into();
        root.set_page_maps(slice.pages.root_entries());
        root.dropped_blocks = self.dropped.count.into();
        root.tree_end = self.tree_end.into();
        root.tree_free = self.tree_free.into();
        root.blocks_end = self.blocks_end.into();
        // What is lent is free, as far as the checkpoint goes.
        root.blocks_free = (self.blocks_free + slice.placer.numbers().count()).into();
        catalog.enter(&mut root);
        let (first_extent, next_extent) = slice.journal.needed_from(tail);
        root.first_extent = first_extent.into();
        root.next_extent = next_extent.into();
        root.next_volume = slice.transactions.next_volume().into();
        slice.segments.table_slabs().enter(&mut root);
        root.seal();
        slice.store.harden_root(slice.id, &root).await?;
        *slice.root.lock() = root;
        Ok(())
    }
}

/// What a root says of the catalog, and the pages that lead there.
type CatalogCut = (CatalogHead, Vec<(u64, Option<PageWords>)>);

/// Tells the heap which records changed since it was last told.
fn note_changes(records: &mut RecordHeap, layers: &Layers, objects: &mut Objects) {
    let (changed, aliases) = layers.changes().take();
    changed.into_iter().for_each(|id| records.note(RecordKey::Layer(id)));
    aliases.into_iter().for_each(|id| records.note(RecordKey::Alias(id)));
    for (kind, key) in objects.take_changed() {
        records.note(RecordKey::Object(kind, key.into()));
    }
}

/// A record of the catalog, if there is one.
fn encode_record(layers: &Layers, objects: &Objects, key: &RecordKey) -> Option<Vec<u8>> {
    match key {
        RecordKey::Layer(id) => {
            let mut image = layers.all.get(id)?.image();
            image.gone &= !planted(Bug::ResurrectVolumes);
            Some(encode_layer(&image))
        }
        RecordKey::Alias(id) => Some(encode_alias(*id, layers.alias(*id)?)),
        RecordKey::Object(kind, key) => Some(encode_object(*kind, key, objects.get(*kind, key)?)),
    }
}

impl Slice {
    /// How many pages of the catalog a checkpoint would write now, about.
    pub(crate) fn catalog_due_pages(&self) -> u64 {
        let layers = self.layers.read();
        let mut objects = self.catalog.lock();
        let mut records = self.records.lock();
        note_changes(&mut records, &layers, &mut objects);
        let due = records.due_pages();
        self.space.update_catalog(records.pages_end(), due);
        due
    }
}

fn new_root(slice: &Slice, generation: u64) -> Root {
    let mut root: Root = zeroed();
    root.magic = ROOT_MAGIC.into();
    root.version = FORMAT_VERSION.into();
    root.pool = *slice.store.pool().0.as_bytes();
    root.epoch = slice.store.epoch().0.into();
    root.generation = generation.into();
    root.slice = u32::from(slice.id.0).into();
    root
}
