//! Opening a slice: the newest root, the segment table and catalog it leads to, and the journal from its tail
//! on. Thin maps and block table are not read; their pages come when they are wanted. Payloads stay in the
//! journal until then.

use crate::{
    buffer::{Content, JournalSource, Piece},
    bugs::{Bug, planted},
    commit::committer::{Committer, Start},
    error::PoolError,
    fork::{layer::Layer, layers::Layers},
    format::{
        CopySource, Location, MAP_FAN_OUT, MAP_LEVELS, PAGE_BYTES, PAGE_SPACES, PageSpace, RecordHeader,
        RecordKind, Root, SEGMENTS_PER_PAGE, SegmentEntry,
    },
    journal::{Batch, Journal, JournalBounds, JournalParts, Replay, ReplayedRecord, log::Log, read_journal},
    lifecycle::{
        on_drives::OnDrives,
        options::PoolOptions,
        recovered::Recovered,
        slice::{Parts, Slice},
        spanning::Decided,
        stats::RecoveryStats,
    },
    meta::{
        Catalog, CatalogHead, CatalogImage, Laid, LayerImage, LostNow, PageId, PageStore, RecordHeap,
        SegmentTable, TableSlabs, Transaction, metadata::Metadata,
    },
    segment::{
        io::{Ill, SegmentIo},
        opened::OpenedSegment,
    },
    space::{Overhead, Space, Weight},
    store::{Store, roots::following},
};
use quoin_base::{
    BlockNumber, ByteRange, CheckpointGeneration, Epoch, PageNumber, SECTOR_BYTES, Sequence, SliceId,
    VolumeId,
};
use quoin_world::{Thread, World};
use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
    sync::Arc,
};

#[cfg(test)]
mod tests;

/// What the root of a pool leads to without the journal.
pub(crate) struct Opened {
    pub root: Root,
    pub io: Arc<SegmentIo>,
    pub pages: PageStore,
    pub catalog: CatalogImage,
    /// Where the records of the catalog lie.
    pub records: RecordHeap,
}

impl Opened {
    /// What is promised to volumes at the checkpoint, beside what they own.
    pub(crate) fn promised_bytes(&self) -> u64 {
        self.promised_bytes_of(|leaf| leaf.reserved_bytes)
    }

    /// The same, if `reserved` tells how many bytes are reserved for the volume of a leaf.
    pub(crate) fn promised_bytes_of(&self, reserved: impl Fn(&LayerImage) -> u64) -> u64 {
        let block_bytes = u64::from(self.io.store.block_bytes());
        let leaves = self.catalog.layers.iter().filter(|layer| layer.is_leaf());
        let (mut unmapped, mut lent) = (0u64, 0);
        for (leaf, reserved) in leaves.map(|leaf| (leaf, reserved(leaf))).filter(|(_, bytes)| *bytes > 0) {
            let weight = Weight::of(leaf.layout, self.io.store.layout());
            let (blocks, owned) = (reserved.div_ceil(block_bytes), leaf.owned_blocks);
            unmapped += match leaf.laid {
                Laid::Mixed if weight.is_more() => weight.weigh(blocks).saturating_sub(owned),
                _ => weight.weigh(blocks.saturating_sub(owned)),
            };
            lent += weight.weigh(leaf.lent_blocks);
        }
        (unmapped + lent.min(self.catalog.copies)).saturating_mul(block_bytes)
    }

    /// The space gauge of the pool as it is on the drives.
    pub(crate) fn space(&self, options: &PoolOptions) -> Space {
        self.gauge(self.dirty_bytes(options, false), options)
    }

    pub(super) fn gauge(&self, dirty_bytes: u64, options: &PoolOptions) -> Space {
        let store = &self.io.store;
        let (slab_bytes, block_bytes) = (u64::from(store.slab_bytes()), u64::from(store.block_bytes()));
        let segments = &self.io.segments;
        let usage = segments.usage();
        // The cleaner finds something worth cleaning as long as segments are emptier than this on average.
        let filled_bytes = segments.dense_bytes(block_bytes) - 2 * segments.slack_bytes(block_bytes);
        let options = PoolOptions { dirty_bytes, ..options.clone() };
        let overhead = Overhead::of(&segments.layouts());
        let space = Space::new(usage.host_slabs, slab_bytes, block_bytes, filled_bytes, overhead, &options);
        space.has_numbers(BlockNumber(self.root.blocks_end.get()));
        space.update(usage.net_live_data, usage.live_meta, usage.table_slabs);
        space
    }
}

/// A slice as its drives have it, before its journal is replayed.
pub(crate) struct ReadSlice {
    id: SliceId,
    store: Arc<Store>,
    opened: Opened,
    replay: Replay,
    mended: Vec<String>,
    times: RecoveryStats,
}

impl ReadSlice {
    /// Reads what the newest root of a slice leads to, and the headers of what came after it. The store was taken over.
    pub(crate) async fn read(world: &dyn World, store: Arc<Store>, id: SliceId) -> Result<Self, PoolError> {
        // What the newest root leads to.
        let started = world.now();
        let opened = open_checkpoint(store.clone(), id).await?;
        let root = opened.root;
        // What may be on one voter only is served only when it is on all.
        let mut mended = Vec::new();
        if !planted(Bug::SkipMendRoots) {
            mended.extend(store.mend_roots(id, &root).await?);
        }

        // What came after it.
        let checkpoint_read = world.now();
        let bounds = JournalBounds::of(&root);
        let mut replay = if is_as_closed(&root, store.epoch()) {
            Replay::of_closed(&store, id, bounds)
        } else {
            read_journal(&opened.io, id, bounds).await?
        };
        mended.append(&mut replay.unread);
        mended.extend(
            opened.pages.ill().into_iter().map(|what| format!("{what}; it is written anew from another")),
        );
        mended.iter().for_each(|what| tracing::warn!(pool = %store.pool_name(), "{what}"));
        let times = RecoveryStats {
            checkpoint: checkpoint_read.since(started),
            journal: world.now().since(checkpoint_read),
            ..RecoveryStats::default()
        };
        Ok(Self { id, store, opened, replay, mended, times })
    }

    /// Notes what it says of transactions that span slices.
    pub(crate) async fn note_decisions(&self, decided: &mut Decided) -> Result<(), PoolError> {
        let catalog = &self.opened.catalog;
        decided.note_objects(self.id, catalog.objects.keys());
        for record in &self.replay.records {
            let is_new = Sequence(record.header.sequence.get()) > catalog.applied;
            if is_new && RecordKind::from_byte(record.header.kind) == Some(RecordKind::Catalog) {
                decided.note_record(self.id, &read_transaction(&self.store, record).await?);
            }
        }
        Ok(())
    }

    /// Puts back what the last owner acknowledged. Nothing is written yet.
    pub(crate) async fn recover(
        self,
        world: Arc<dyn World>,
        options: PoolOptions,
        decided: &mut Decided,
    ) -> Result<Slice, PoolError> {
        let Self { id, store, opened, mut replay, mended, times } = self;
        // Of drives that leave, no slabs are given out.
        replay.extents.follow(&store.members(), |drive| store.journal_slabs_on(id, drive));
        let (root, started) = (opened.root, world.now());
        let mut recovery = with_replay(times, &replay, &root);
        let threads = world.data_threads();
        let placed_lanes = placed_lanes(replay.extents.usage().total, threads)?;

        // In RAM it is as it was when it was left.
        let next_sequence = replay.next_sequence.max(Sequence(root.next_sequence.get()));
        let journal = Arc::new(Journal::new(JournalParts {
            store: store.clone(),
            slice: id,
            threads,
            placed_lanes,
            extents: replay.extents,
            next_sequence,
            idle_after: options.idle_after,
        }));
        let dirty_bytes = opened.dirty_bytes(&options, !replay.records.is_empty());
        let options = PoolOptions { dirty_bytes, ..options };
        let space = opened.gauge(dirty_bytes, &options);
        let Opened { io, pages, catalog, mut records, .. } = opened;
        records.limit_pieces(options.catalog_records_per_page);
        let layers = Layers::from_image(&catalog);
        layers.ids.limit(options.layer_ids);
        let mut slice = Slice::new(Parts {
            world: world.clone(),
            options,
            id,
            store,
            log: Log::new(journal, root.next_volume.get()),
            io,
            metadata: Metadata::new(pages, Catalog::new(catalog.objects), records, root),
            layers,
            space,
            recovered: Recovered {
                stats: recovery,
                mended,
                torn: replay.torn,
                mends: replay.mends,
                rows: replay.rows,
                forget: replay.forget,
            },
        });
        // What the journal says happened after the checkpoint, in the order of sequences.
        slice.replay(replay.records, decided).await?;
        slice.lay_out();
        slice.find_free_layer_ids(CheckpointGeneration(root.generation.get()));
        slice.count_reserved();
        recovery.replay = world.now().since(started);
        slice.note_recovery(recovery);
        Ok(slice)
    }
}

/// The figures of a recovery, with what its journal holds.
fn with_replay(times: RecoveryStats, replay: &Replay, root: &Root) -> RecoveryStats {
    RecoveryStats {
        replayed_records: replay.records.len() as u64,
        replayed_bytes: replay.records.iter().map(|r| u64::from(r.header.payload_bytes.get())).sum(),
        batches: replay.batches,
        torn_batches: replay.torn.len() as u64,
        checkpoint_generation: root.generation.get(),
        ..times
    }
}

/// How many lanes large writes get beside those of the data threads.
///
/// # Errors
/// The journal has too few extents for so many threads.
fn placed_lanes(extents: u64, threads: usize) -> Result<usize, PoolError> {
    // A lane needs an extent that is open. If drives of the journal were lost, lanes share few to go on with.
    let most_threads = extents.saturating_sub(2) as usize;
    if most_threads < threads {
        return Err(PoolError::Refused(format!(
            "the journal has {extents} extents, too few for {threads} data threads: use at most {most_threads}"
        )));
    }
    // As a rule it has one to go on with, too.
    let most_lanes = (extents.saturating_sub(4) / 2) as usize;
    // Every lane keeps an extent open: they are to leave most of a small journal to records.
    let wanted = threads.min((extents as usize / 4).saturating_sub(threads).max(1));
    Ok(wanted.min(most_lanes.saturating_sub(threads)))
}

impl Slice {
    /// Finds ids that layers may get, if few are left. Nothing is buffered but what the journal holds of layers that are there.
    fn find_free_layer_ids(&self, generation: CheckpointGeneration) {
        let layers = self.forks.read();
        layers.ids.find(&layers, generation);
        if let Some(found) = layers.ids.take_found(generation) {
            layers.ids.free(found, &BTreeSet::new());
        }
    }

    /// Begins to write, and serves.
    pub(crate) async fn start(self: &Arc<Self>) -> Result<(), PoolError> {
        // NOTE: what recovery decided is made durable before anything new is written.
        self.recovered().make_durable(&self.store).await?;
        let root = self.begin_to_write().await?;
        // NOTE: the root may have been followed by one that says the same. What moves from here on is in neither.
        self.segments.table.goes_on_from(CheckpointGeneration(root.generation.get()));
        self.start_journal();
        self.start_placing();
        let start = Start {
            generation: CheckpointGeneration(root.generation.get()),
            tree_end: PageNumber(root.tree_end.get()),
            tree_free: root.tree_free.get(),
            blocks_end: BlockNumber(root.blocks_end.get()),
            blocks_free: root.blocks_free.get(),
            dropped_blocks: root.dropped_blocks.get(),
        };
        self.catalog_due_pages();
        // NOTE: after replay, which knows which slabs segments took since the checkpoint.
        self.segments.table.provide_places()?;
        self.segments.quarantine_empty(start.generation.next());
        self.tell_spare(self.buffer.charged_blocks(), u64::MAX);
        let slice = Arc::downgrade(self);
        let wake = move || {
            if let Some(slice) = slice.upgrade() {
                slice.requests.nudge();
            }
        };
        self.store.wake_for_slabs(self.id(), Box::new(wake));
        self.store.take_in_tenant(Arc::new(OnDrives(Arc::downgrade(self))));
        self.begin_to_rebuild();
        let committer = Committer::new(self.clone(), start);
        committer.tell_dropped();
        self.world().spawn(Thread::Committer(self.id()), Box::pin(committer.run()));
        Ok(())
    }

    /// Has the newest root say that the journal goes on, and beside how much dirty metadata, before it does.
    async fn begin_to_write(&self) -> Result<Root, PoolError> {
        let (root, dirty_pages) = (self.metadata.root(), self.dirty_pages());
        let is_said = root.closed.get() == 0 && root.dirty_pages.get() == dirty_pages;
        if is_said || planted(Bug::StayClosed) {
            return Ok(root);
        }
        let mut root = following(&root, self.store.epoch(), false);
        root.dirty_pages = dirty_pages.into();
        root.seal();
        self.harden_root(root).await?;
        Ok(root)
    }

    /// Notes with a root of its own that the pool was closed, if nothing was written after the last checkpoint.
    pub(crate) async fn note_closed(&self) -> Result<(), PoolError> {
        let root = self.metadata.root();
        if self.log.journal.peek_sequence() != Sequence(root.tail.get()) {
            return Ok(());
        }
        let mut root = following(&root, self.store.epoch(), true);
        let (first_extent, next_extent) = self.log.journal.needed_from(Sequence(root.tail.get()));
        (root.first_extent, root.next_extent) = (first_extent.into(), next_extent.into());
        root.seal();
        self.harden_root(root).await
    }

    /// Puts records back where they were when they were acknowledged.
    ///
    /// # Example
    /// The checkpoint has the catalog up to record 40, and its tail is 38.
    /// 1. Record 38 writes to volume 1: it goes into the buffer, with its payload left in the journal.
    /// 2. Record 40 creates volume 2. The checkpoint holds that: the record is passed over.
    /// 3. Record 41 writes to volume 2, which is there.
    /// 4. Record 42 forks volume 1 into volume 3. Record 38 lies below both then, as it did before the crash.
    /// 5. Record 43 deletes volume 2. Destage drops what record 41 put into the buffer.
    async fn replay(&self, records: Vec<ReplayedRecord>, decided: &mut Decided) -> Result<(), PoolError> {
        let batch = Batch::recovered();
        for record in records {
            let header = record.header;
            let sequence = Sequence(header.sequence.get());
            let damaged = |problem: String| PoolError::corrupt(format!("journal record {sequence}"), problem);
            match RecordKind::from_byte(header.kind) {
                Some(RecordKind::Watermark) => {}
                // What the checkpoint holds already is not done again.
                Some(RecordKind::Catalog) if sequence <= self.forks.read().applied => {}
                Some(RecordKind::Segment) => {
                    let opened = OpenedSegment::parse(&header, &record.crcs)
                        .ok_or_else(|| damaged("it opens an impossible segment".into()))?;
                    self.segments.table.reopen(&opened, sequence)?;
                }
                Some(RecordKind::Catalog) => {
                    let transaction = read_transaction(&self.store, &record).await?;
                    if decided.takes_effect(&transaction) {
                        if let Some(id) = self.forks.read().made_twice(&transaction) {
                            return Err(damaged(format!("it makes layer {id}, which is there")));
                        }
                        decided.note_replayed(self.id(), sequence, &transaction);
                        let forked = self.apply(&transaction, sequence);
                        forked.iter().for_each(|layer| layer.confirm(true));
                    }
                }
                Some(kind) => self.replay_range(kind, record, &batch)?,
                None => return Err(damaged(format!("kind {} is unknown", header.kind))),
            }
        }
        Ok(())
    }

    /// Puts back a record that changed a range of a volume: a write, an unmap, a copy, or what was placed.
    fn replay_range(
        &self,
        kind: RecordKind,
        record: ReplayedRecord,
        batch: &Arc<Batch>,
    ) -> Result<(), PoolError> {
        let header = record.header;
        let sequence = Sequence(header.sequence.get());
        let placed = Location(header.source.get());
        if kind == RecordKind::Placed && self.segments.table.is_placed_in(placed, record.crcs.len() as u64) {
            // Also if its volume is gone: replay finds the record again, and the check reads what it names.
            let bytes = u64::from(header.sectors.get()) * SECTOR_BYTES;
            self.front.placer.name(placed.segment(), sequence, bytes);
        }

        // What a layer holds that is destaged, forked away or gone is not put back.
        let volume = VolumeId(header.volume.get());
        let Some(layer) = self.forks.read().changed_by(volume, sequence) else { return Ok(()) };
        if let Some(why) = record.problem(self.buffer.block_bytes) {
            return Err(PoolError::corrupt(format!("journal record {sequence}"), why));
        }
        let first = header.sector.get();
        let range = ByteRange::new(first * SECTOR_BYTES, u64::from(header.sectors.get()) * SECTOR_BYTES);
        let content = match kind {
            RecordKind::Placed => return self.replay_placed(&layer, range, &record, batch),
            RecordKind::Copy => return self.replay_copy(&layer, range, &header, batch),
            RecordKind::Unmap => {
                self.replay_unmap(&layer, range, sequence, batch);
                return Ok(());
            }
            _ => Content::Journal(JournalSource {
                place: record.place,
                record_sector: first,
                record_bytes: header.payload_bytes.get(),
                crcs: record.crcs,
            }),
        };
        let mut shard = self.buffer.shard(layer.block(range.first_block(self.buffer.block_bytes)));
        let pieces = self.zero_pieces(&layer, range);
        let pieces = pieces.map(|piece| Piece { content: content.clone(), ..piece });
        self.buffer.insert(&mut shard, sequence, batch, pieces);
        Ok(())
    }

    fn replay_unmap(&self, layer: &Layer, range: ByteRange, sequence: Sequence, batch: &Arc<Batch>) {
        let first = layer.block(range.first_block(self.buffer.block_bytes));
        let mut shard = self.buffer.shard(first);
        self.insert_zeroes(&mut shard, layer, sequence, batch, range);
        // The nodes that an unmap of a shared map copies are charged again, as when it was appended.
        if layer.parent().is_some() {
            self.buffer.charge(&mut shard, first);
        }
    }

    fn replay_placed(
        &self,
        layer: &Layer,
        range: ByteRange,
        record: &ReplayedRecord,
        batch: &Arc<Batch>,
    ) -> Result<(), PoolError> {
        let (first, sequence) =
            (Location(record.header.source.get()), Sequence(record.header.sequence.get()));
        if !self.segments.table.is_placed_in(first, record.crcs.len() as u64) {
            let problem = format!("segment {}, where it was placed, is not there", first.segment());
            return Err(PoolError::corrupt(format!("journal record {sequence}"), problem));
        }
        for ((at, crc), piece) in (0..).zip(record.crcs.iter()).zip(self.zero_pieces(layer, range)) {
            let content = Content::Placed(self.front.placer.found(first.plus(at), *crc));
            let key = piece.key;
            self.buffer.insert(&mut self.buffer.shard(key), sequence, batch, [Piece { content, ..piece }]);
        }
        Ok(())
    }

    fn replay_copy(
        &self,
        layer: &Layer,
        range: ByteRange,
        header: &RecordHeader,
        batch: &Arc<Batch>,
    ) -> Result<(), PoolError> {
        let (source, sequence) = (CopySource::unpack(header.source.get()), Sequence(header.sequence.get()));
        let is_settled = |layer: &Arc<Layer>| !layer.is_pending() && !layer.is_gone();
        if !self.forks.read().all.get(&source.layer).is_some_and(is_settled) {
            let problem = format!("layer {}, whose blocks it shares, is not there", source.layer);
            return Err(PoolError::corrupt(format!("journal record {sequence}"), problem));
        }
        let first = layer.block(range.first_block(self.buffer.block_bytes));
        let blocks = range.len / self.buffer.block_bytes;
        let mut shard = self.buffer.shard(first);
        self.buffer.insert_blocks(&mut shard, sequence, batch, (first, blocks), Some(source));
        Ok(())
    }
}

/// The catalog transaction that a record carries.
pub(crate) async fn read_transaction(
    store: &Store,
    record: &ReplayedRecord,
) -> Result<Transaction, PoolError> {
    let what = || {
        let column = record.place.column();
        let (at, drive) = (store.byte_of_drive(column, record.place.offset), store.drive_name(column.drive));
        format!("catalog record {} at byte {at} of drive {drive}", record.header.sequence.get())
    };
    let Some(payload) = record.payload(store).await? else {
        return Err(PoolError::corrupt(what(), "its checksum differs"));
    };
    let used = payload.get(..record.header.sector.get() as usize);
    Transaction::decode(used.ok_or_else(|| PoolError::corrupt(what(), "it is longer than its payload"))?)
}

/// Whether nothing was written since the pool was closed, so that its journal holds nothing that is needed. Whoever opens a
/// pool raises the epoch of all its drives before it writes anything: one more than that of the root, and nobody did in
/// between, even if a newer root is lost.
fn is_as_closed(root: &Root, epoch: Epoch) -> bool {
    let is_next = epoch.0 == root.epoch.get() + 1 || planted(Bug::StayClosed);
    root.closed.get() == 1 && is_next
}

/// What drives hold of a slice, before anybody takes them over: whether the pool was closed, and what is lost.
pub(super) async fn look(store: Arc<Store>, slice: SliceId) -> Result<(bool, LostNow), PoolError> {
    let opened = open_checkpoint(store.clone(), slice).await?;
    let is_closed = is_as_closed(&opened.root, Epoch(store.epoch().0 + 1));
    Ok((is_closed, opened.io.segments.lost_now()))
}

/// Opens what the newest root leads to: segment table and catalog at once, the rest when it is wanted.
pub(crate) async fn open_checkpoint(store: Arc<Store>, slice: SliceId) -> Result<Opened, PoolError> {
    let root = store.newest_root(slice).await?;
    if let Some(why) = root.problem(store.slabs_ever(), store.slab_bytes().into()) {
        return Err(PoolError::corrupt("the root, or the label it goes with", why));
    }
    // The segment table first: it tells where everything else lies.
    let (table, ill) = read_segment_table(&store, slice, &root).await?;
    let io = Arc::new(SegmentIo::new(store, Arc::new(table)));
    let pages = PageStore::new(io.clone(), root.page_maps());
    pages.note_ill(ill);
    note_places(&pages, &io).await?;
    // The catalog is read whole.
    let head = CatalogHead::of(&root);
    let mut contents = BTreeMap::new();
    for index in PageNumber(0).until(PageNumber(head.pages_end)) {
        if let Some(page) = pages.get(PageId::new(PageSpace::Catalog, index)).await? {
            contents.insert(index, page.to_buf().to_vec());
        }
    }
    let (catalog, records) = CatalogImage::read(&contents, &head)?;
    // What volumes are laid out as is reckoned with from here on.
    io.store.note_layouts(catalog.layers.iter().filter_map(|layer| layer.layout));
    io.segments.set_layouts(io.store.layouts());
    Ok(Opened { root, io, pages, catalog, records })
}

/// Notes which places of table slabs other pages than those of the segment table have. Of most spaces these are pages of the
/// map only; those of the lowest level of it are not read for that.
async fn note_places(pages: &PageStore, io: &SegmentIo) -> Result<(), PoolError> {
    for space in PAGE_SPACES.into_iter().filter(|space| *space != PageSpace::Segments) {
        let mut todo = vec![PageId { space, level: MAP_LEVELS, index: PageNumber(0) }];
        while let Some(id) = todo.pop() {
            let location = Location(pages.entry(id).await?.location.get());
            if location.table_slab().is_some() {
                io.segments.table_slabs().note(location, false)?;
            }
            let leads_on = id.below().is_some_and(|below| below.is_kept_twice());
            if location.is_none() || !leads_on {
                continue;
            }
            match pages.get(id).await {
                Ok(page) => todo.extend(page.iter().flat_map(|page| page.those_below(id))),
                // Nothing finds what lies below it.
                Err(error) if io.store.is_damage(&error).await => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Reads the segment table, from the slabs that the root names, and finds out which places it takes there. Also
/// returns its pages that have a damaged copy.
async fn read_segment_table(
    store: &Arc<Store>,
    slice: SliceId,
    root: &Root,
) -> Result<(SegmentTable, BTreeMap<PageId, Ill>), PoolError> {
    let table_slabs = Arc::new(TableSlabs::of(root, store.slab_bytes()));
    let without_segments = SegmentTable::open(store, slice, root, table_slabs.clone(), iter::empty())?;
    let io = Arc::new(SegmentIo::new(store.clone(), Arc::new(without_segments)));
    let pages = PageStore::new(io, root.page_maps());
    let count = root.segments.get() as usize;
    let end = PageNumber(count.div_ceil(SEGMENTS_PER_PAGE) as u64);
    // From the top of its map down: a page is found through the one above it.
    for level in (0..=MAP_LEVELS).rev() {
        let end = PageNumber(end.0.div_ceil(MAP_FAN_OUT.pow(level.into())));
        for index in PageNumber(0).until(end) {
            let id = PageId { space: PageSpace::Segments, level, index };
            let location = Location(pages.entry(id).await?.location.get());
            if !location.is_none() {
                table_slabs.note(location, true)?;
            }
        }
    }
    // Its own pages. One that was never written has free entries only.
    let mut bytes = Vec::new();
    for index in PageNumber(0).until(end) {
        match pages.get(PageId::new(PageSpace::Segments, index)).await? {
            Some(page) => bytes.extend_from_slice(&page.to_buf()),
            None => bytes.resize(bytes.len() + PAGE_BYTES, 0),
        }
    }
    let entries = bytes.chunks_exact(size_of::<SegmentEntry>()).take(count).enumerate().skip(1);
    Ok((SegmentTable::open(store, slice, root, table_slabs, entries)?, pages.take_ill()))
}
