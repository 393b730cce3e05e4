//! The cut of a checkpoint: what it writes, and where, decided in one step between two transactions of the committer.
//!
//! Order: the committer finds the tail, puts what changed in the catalog into its pages, and finds a place for
//! every dirty page. That makes pages of the map and of the segment table dirty, which get places too, until
//! none is left. Then it puts the segment table into its pages. Now the content of the checkpoint is fixed,
//! except for checksums, and the committer goes on to other things. `flight.rs` writes what was cut.
//!
//! Invariants:
//! 1. All that is cut is of one moment: the metadata does not change between the first step and the last. What
//!    other threads add meanwhile to the catalog and the segment table is in the journal from the tail on.
//! 2. One checkpoint is under way at a time. So at most two checkpoints hold slabs: the last durable one, and
//!    the one under way.
//!
//! # Example
//! One block of a volume was overwritten since the last checkpoint.
//! 1. Dirty are the leaf that maps it, and two pages of the block table: one adds the new number, one frees the old one.
//!    A page of the catalog becomes dirty, since the counts of the volume's layer changed.
//! 2. Each of these pages gets a place. So the map pages above them say something else: they become dirty, too, and get
//!    places, up to the tops of the maps.
//! 3. New places count as live, and old ones are given up. Both change entries of segments: a page of the segment table
//!    becomes dirty and gets a place, and so do the map pages above it.
//! 4. No dirty page is without a place. The segment table, as it is now, is put into its page. All that is missing are
//!    checksums: a page has those of the pages below it, and the root has those of the tops.

use crate::{
    bugs::{Bug, planted},
    commit::{
        committer::{Committer, OpenRows},
        destage::PARALLEL,
        flight::{Checkpoint, Flight},
        requests::Answer,
        slabs::out_of_slabs,
    },
    error::PoolError,
    format::{Location, PAGE_BYTES, PageSpace, ROOT_MAGIC, Root, RowContent, zeroed},
    lifecycle::slice::Slice,
    meta::{CatalogHead, Page, PageId, metadata::CatalogCut},
    segment::segments::Segments,
};
use futures_util::{StreamExt, stream};
use quoin_base::{CheckpointGeneration, PageNumber, Sequence};
use quoin_drive::FORMAT_VERSION;
use quoin_world::OneShotSender;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

impl Committer {
    /// Cuts a checkpoint of the metadata as it is, and starts writing it. No other may be under way.
    pub(crate) async fn begin_checkpoint(&mut self) -> Result<(), PoolError> {
        let slice = self.slice.clone();
        assert!(!self.checkpoints.is_under_way(), "one checkpoint is under way at a time");
        let since = slice.world().now();
        // Drives are read before the cut begins, so that it hardly has to wait for one.
        self.renew_ill_pages().await?;
        self.complete_table_slabs().await?;
        let above_dirty = self.fetch_above_dirty().await;
        let cut_since = slice.world().now();
        // What is below the tail is in the metadata, and what the catalog gains from here on is above.
        let tail = slice.log.tail_to_cut(&slice.buffer);
        slice.log.journal.tail_found(tail);
        slice.segments.forget_names(tail, self.first_without());
        slice.requests.catalog_changed.store(false, Ordering::Release);
        // What changed in the catalog goes into its pages, which are dirty then.
        let (catalog, catalog_pages) = self.write_catalog().await?;

        // Dirty pages get places, for which the table slabs must have enough.
        slice.segments.table.provide_places()?;
        let (places, segments) = self.place_dirty_pages().await?;
        drop(above_dirty);
        debug_assert!(
            (places.len() * PAGE_BYTES) as u64 <= slice.space.checkpoint_bytes(),
            "a checkpoint writes {} pages, {} of the catalog, and slabs were kept for {} bytes",
            places.len(),
            catalog_pages,
            slice.space.checkpoint_bytes()
        );
        // NOTE: asked before the table is fixed. A drive that is lost in between is known to the table all the same.
        let members_known = slice.segments.table.members_known();
        // NOTE: last, because finding places changed the segment table.
        if !planted(Bug::FixTableEarly) {
            self.fix_table(places.keys()).await?;
        }
        // From here on a change of a page is one for the next checkpoint.
        slice.metadata.pages.cut(&places)?;
        let mut root = self.cut_root(tail, segments, &catalog);
        root.members = members_known.0.into();
        let rows = self.rows.meta.finish(&slice.segments);
        let pages = places.len();
        let kept_twice = places.into_iter().filter(|(_, at)| at.table_slab().is_some()).collect();
        self.cleaning.cut();
        self.looks.forget_tail();
        let took = slice.world().now().since(cut_since);
        slice.counters.checkpoints.longest_cut.note(took);
        tracing::debug!(generation = root.generation.get(), tail = tail.0, pages, "cut");
        // It answers the requests that were made before.
        let checkpoint = Checkpoint { slice, root, rows, kept_twice, since };
        self.checkpoints.begin(|answers| checkpoint.start(answers));
        self.committed();
        Ok(())
    }

    /// Reads the map pages that finding places changes, many at a time, so that the cut need not wait for a drive. What
    /// is returned keeps them in RAM.
    async fn fetch_above_dirty(&self) -> Vec<Arc<Page>> {
        let pages = &self.slice.metadata.pages;
        let above = pages.above_dirty();
        let mut held = Vec::with_capacity(above.len());
        // From the top down: a page is found through the one above it.
        for level in above.chunk_by(|one, next| one.level == next.level).rev() {
            let fetches: Vec<_> = level.iter().map(|id| pages.get(*id)).collect();
            // What cannot be read is dealt with when it is changed.
            let mut fetching = stream::iter(fetches).buffer_unordered(PARALLEL);
            while let Some(fetched) = fetching.next().await {
                held.extend(fetched.ok().flatten());
            }
        }
        held
    }

    /// The pages of the catalog that hold what changed, all as of this moment. `None` while a part of a transaction that is not
    /// decided yet may be in it.
    fn cut_catalog(&self) -> Option<Result<CatalogCut, PoolError>> {
        let slice = &self.slice;
        // NOTE: locked first: what takes effect does so under this lock, and says before that it is undecided.
        let layers = slice.forks.read();
        if slice.log.transactions.are_undecided() && !planted(Bug::CheckpointUndecided) {
            return slice.store.health().is_failed().then(|| Err(slice.store.health().error()));
        }
        layers.ids.find(&layers, self.first_without());
        Some(Ok(slice.metadata.cut_catalog(&layers)))
    }

    /// Puts what changed in the catalog into its pages. Returns how many these are.
    async fn write_catalog(&mut self) -> Result<(CatalogHead, u64), PoolError> {
        let slice = self.slice.clone();
        let (head, pages) = slice.log.progress().until(|| self.cut_catalog()).await?;
        let count = pages.len() as u64;
        slice.space.update_catalog(head.pages_end, count);
        for (index, words) in pages {
            let id = PageId::new(PageSpace::Catalog, index);
            match words {
                Some(words) => slice.metadata.pages.replace(id, &words).await?,
                None => self.drop_page(id).await?,
            }
        }
        slice.counters.checkpoints.catalog_pages.add(count);
        Ok((head, count))
    }

    /// Marks pages with a damaged copy dirty, so that the checkpoint writes them anew.
    async fn renew_ill_pages(&mut self) -> Result<(), PoolError> {
        let slice = self.slice.clone();
        for (id, ill) in slice.metadata.pages.take_ill() {
            tracing::warn!("the copy of {id} {}; it is written anew from the other", ill.why);
            if id == PageId::new(PageSpace::Segments, id.index) {
                slice.segments.table.rewrite(id.index);
                slice.metadata.pages.count_repair(&ill);
                continue;
            }
            match slice.metadata.pages.change(id).await {
                Ok(_) => slice.metadata.pages.count_repair(&ill),
                // By now no copy can be read. The next operation that needs the page reports it.
                Err(error) if slice.store.is_damage(&error).await => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Frees a page and its place.
    pub(crate) async fn drop_page(&mut self, id: PageId) -> Result<(), PoolError> {
        let slice = self.slice.clone();
        let old = Location(slice.metadata.pages.entry(id).await?.location.get());
        slice.metadata.pages.drop_page(id).await?;
        self.give_up_place(id, old)
    }

    /// Gives up where a page lay, if it lay anywhere. Of pages in table slabs that happens at cuts only, so what is given up
    /// there is never in a checkpoint under way.
    fn give_up_place(&self, id: PageId, old: Location) -> Result<(), PoolError> {
        let slice = &self.slice;
        match old.table_slab() {
            _ if old.is_none() => Ok(()),
            Some(_) => {
                assert!(
                    !self.checkpoints.is_under_way(),
                    "a place in a table slab is given up while a checkpoint is under way"
                );
                slice.segments.table.table_slabs().give_up(old, id.space == PageSpace::Segments)
            }
            None => slice.segments.release(old, self.first_without()),
        }
    }

    /// Finds a place for every dirty page and for those that this makes dirty. Also returns how many segments
    /// the table's pages hold. Segments that data threads open meanwhile may not be among them.
    async fn place_dirty_pages(&mut self) -> Result<(BTreeMap<PageId, Location>, u32), PoolError> {
        let slice = self.slice.clone();
        let generation = self.first_without();
        let mut places = BTreeMap::new();
        loop {
            // NOTE: counted first: a segment that is counted has made its page dirty.
            let segments = slice.segments.table.count();
            for index in slice.segments.table.take_dirty_pages() {
                // What it says is put right when all places are known.
                let id = PageId::new(PageSpace::Segments, index);
                if !places.contains_key(&id) {
                    slice.metadata.pages.replace(id, &slice.segments.table.encode_page(index)).await?;
                }
            }
            // Each round finds places for what the one before made dirty.
            let todo = slice.metadata.pages.dirty_except(&places);
            if todo.is_empty() {
                let has_place =
                    |page: &PageNumber| places.contains_key(&PageId::new(PageSpace::Segments, *page));
                // NOTE: before the table is fixed, and with every change so far in a page that has a place. A column that moves
                // from here on must not count as named by this checkpoint.
                if slice.segments.table.cut(generation, has_place) {
                    return Ok((places, segments));
                }
            }
            for id in todo {
                let old = Location(slice.metadata.pages.entry(id).await?.location.get());
                // Pages that are kept twice go to table slabs, as far as these have places, and all others into rows.
                let mut location = slice.segments.table.take_place(id);
                if location.is_none() && id.space != PageSpace::Segments {
                    let content = RowContent::page(id.pack());
                    let place = |rows: &mut OpenRows, segments: &Segments| {
                        rows.meta.place(segments, content, PAGE_BYTES, generation)
                    };
                    location = Some(self.place_patiently(place).await?);
                }
                let location = location.ok_or_else(out_of_slabs)?;
                slice.metadata.pages.set_location(id, location).await?;
                self.give_up_place(id, old)?;
                places.insert(id, location);
                if planted(Bug::FixTableEarly) {
                    self.fix_table([&id]).await?;
                }
            }
            // Where the last row ends is part of the segment table too.
            self.rows.meta.end_row(&slice.segments);
        }
    }

    /// Puts the segment table, as it is, into those of its pages that are among `ids`.
    async fn fix_table(&self, ids: impl IntoIterator<Item = &PageId>) -> Result<(), PoolError> {
        let slice = &self.slice;
        for id in ids.into_iter().filter(|id| id.space == PageSpace::Segments && id.level == 0) {
            slice.metadata.pages.replace(*id, &slice.segments.table.encode_page(id.index)).await?;
        }
        Ok(())
    }

    /// The root of what is cut. `carry_out` fills in what is known only when the root is written.
    fn cut_root(&self, tail: Sequence, segments: u32, catalog: &CatalogHead) -> Root {
        let slice = self.slice.clone();
        let mut root = new_root(&slice, self.first_without());
        root.segments = segments.into();
        root.tail = tail.0.into();
        root.dropped_blocks = self.blocks.dropped.count.into();
        self.tree.enter(&mut root);
        self.blocks.numbers.enter(&mut root, slice.front.placer.numbers().count());
        catalog.enter(&mut root);
        slice.segments.table.table_slabs().enter(&mut root);
        root
    }
}

fn new_root(slice: &Slice, generation: CheckpointGeneration) -> Root {
    let mut root: Root = zeroed();
    root.magic = ROOT_MAGIC.into();
    root.version = FORMAT_VERSION.into();
    root.pool = *slice.store.pool().0.as_bytes();
    root.epoch = slice.store.epoch().0.into();
    root.generation = generation.0.into();
    root.slice = u32::from(slice.id().0).into();
    root.dirty_pages = slice.dirty_pages().into();
    root.fingerprint_key = slice.metadata.root().fingerprint_key;
    root
}

impl Committer {
    /// Takes over the result of the checkpoint under way, if it has ended.
    pub(super) fn land(&mut self) -> Result<(), PoolError> {
        let Some(flight) = self.checkpoints.take_ended() else {
            return Ok(());
        };
        let Flight { generation, outcome, answers, .. } = flight;
        if let Some(Err(error)) = outcome.lock().take() {
            let answer = |sender: OneShotSender<Answer>| sender.send(Err(self.slice.store.health().error()));
            answers.into_iter().for_each(answer);
            return Err(error);
        }
        // What was given up before its cut comes free once earlier readers have left: see `settle`.
        let (epoch, now) = (self.slice.segments.readers().current(), self.slice.world().now());
        self.checkpoints.landed(generation, epoch, now);
        self.cleaning.landed();
        if self.slice.segments.table.table_written() {
            self.slice.log.progress().notify();
        }
        self.settle();
        self.blocks.numbers.consider_sweep();
        self.looks.forget_tail();
        tracing::debug!(generation = generation.0, "checkpoint");
        self.committed();
        self.slice.requests.answered(answers.len());
        answers.into_iter().for_each(|sender| sender.send(Ok(())));
        Ok(())
    }

    /// Waits for the checkpoint under way, if there is one.
    pub(super) async fn finish_checkpoint(&mut self) -> Result<(), PoolError> {
        self.checkpoints.ended().await;
        self.land()
    }

    /// Makes a checkpoint of the metadata as it is, durable on return.
    pub(crate) async fn checkpoint(&mut self) -> Result<(), PoolError> {
        self.finish_checkpoint().await?;
        self.begin_checkpoint().await?;
        self.finish_checkpoint().await
    }
}
