//! A slice that is open: one log of a pool, with all that its order covers. What its parts share, and the calls that concern
//! it as a whole.
//!
//! Each part is an owner of its own, which keeps its locks and the order of these to itself.

use crate::{
    buffer::Buffer,
    commit::{
        flips::Flips,
        requests::{Request, Requests},
    },
    error::PoolError,
    fork::{forks::Forks, layer::Layer, layers::Layers, tally::Measure},
    format::Root,
    host::{front::Front, placed::Placer},
    integrity::{damage::DamageLog, rebuilding::Rebuilding},
    journal::log::Log,
    lifecycle::{
        converting::Converting, counters::Counters, options::PoolOptions, recovered::Recovered,
        reducing::Reducing, stats::RecoveryStats,
    },
    maps::fingerprints::Fingerprints,
    meta::{PageId, metadata::Metadata},
    segment::{io::SegmentIo, readers::ReadGuard, segments::Segments},
    space::Space,
    store::Store,
};
use quoin_base::{SliceId, VolumeId};
use quoin_world::World;
use std::sync::Arc;

/// A slice that is open. Calls that do I/O are made on a thread of the array.
pub(crate) struct Slice {
    world: Arc<dyn World>,
    options: PoolOptions,
    id: SliceId,
    pub(crate) store: Arc<Store>,
    pub(crate) log: Log,
    pub(crate) buffer: Buffer,
    pub(crate) segments: Segments,
    pub(crate) metadata: Metadata,
    pub(crate) forks: Forks,
    pub(crate) front: Front,
    pub(crate) space: Space,
    pub(crate) requests: Requests,
    pub(crate) counters: Counters,
    recovered: Recovered,
    damage: DamageLog,
    flips: Flips,
    rebuilding: Rebuilding,
    converting: Converting,
    fingerprints: Arc<Fingerprints>,
    reducing: Reducing,
}

/// What [`Slice::new`] puts together.
pub(crate) struct Parts {
    pub world: Arc<dyn World>,
    pub options: PoolOptions,
    pub id: SliceId,
    pub store: Arc<Store>,
    pub log: Log,
    pub io: Arc<SegmentIo>,
    pub metadata: Metadata,
    pub layers: Layers,
    pub space: Space,
    pub recovered: Recovered,
}

impl Slice {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { world, options, id, store, log, io, metadata, layers, space, recovered } = parts;
        let (block_bytes, data_threads) = (u64::from(store.block_bytes()), world.data_threads());
        metadata.pages.limit_to(options.metadata_bytes);
        let fingerprints = Fingerprints::new(metadata.root().fingerprint_key, options.index_bytes);
        let placer = Placer::new(log.journal.threads(), io.segments.clone(), &store);
        Self {
            front: Front::new(&options, block_bytes, data_threads, placer),
            buffer: Buffer::new(block_bytes),
            segments: Segments::new(io, data_threads),
            forks: Forks::new(layers, Measure { block_bytes, layout: store.layout() }),
            fingerprints: Arc::new(fingerprints),
            reducing: Reducing::default(),
            requests: Requests::new(store.health()),
            counters: Counters::default(),
            damage: DamageLog::default(),
            flips: Flips::default(),
            rebuilding: Rebuilding::default(),
            converting: Converting::default(),
            world,
            options,
            id,
            store,
            log,
            metadata,
            space,
            recovered,
        }
    }

    pub(crate) fn world(&self) -> &dyn World {
        &*self.world
    }

    pub(crate) fn options(&self) -> &PoolOptions {
        &self.options
    }

    pub(crate) fn id(&self) -> SliceId {
        self.id
    }

    /// What of volumes is being reduced.
    pub(crate) fn reducing(&self) -> &Reducing {
        &self.reducing
    }

    /// Which blocks have which content.
    pub(crate) fn fingerprints(&self) -> &Arc<Fingerprints> {
        &self.fingerprints
    }

    pub(super) fn start_journal(&self) {
        self.log.journal.start(&self.world);
    }

    /// What recovery found in it.
    pub(crate) fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    pub(super) fn note_recovery(&mut self, stats: RecoveryStats) {
        self.recovered.stats = stats;
    }

    /// What was found damaged, for the layers above.
    pub(crate) fn damage(&self) -> &DamageLog {
        &self.damage
    }

    /// The bits that a test wants flipped.
    pub(crate) fn flips(&self) -> &Flips {
        &self.flips
    }

    /// A volume's layer, to be read or written. What a fork brought there counts once it is hardened.
    pub(crate) async fn confirmed_layer(&self, volume: VolumeId) -> Result<Arc<Layer>, PoolError> {
        let layer = self.forks.of_volume(volume)?;
        if !layer.is_confirmed() {
            let decided = || (layer.is_confirmed() || self.store.health().is_failed()).then_some(());
            self.log.progress().until(decided).await;
            self.store.health().check()?;
        }
        Ok(layer)
    }

    /// Enters the current reader epoch, on the calling thread.
    pub(crate) fn enter_readers(&self) -> ReadGuard<'_> {
        self.segments.enter(self.world.current())
    }

    /// Counts anew how much is promised, and how much of the promised space is not mapped.
    pub(crate) fn count_reserved(&self) {
        self.forks.count_reserved(&self.space);
    }

    /// How many pages of the catalog a checkpoint would write now, about.
    pub(crate) fn catalog_due_pages(&self) -> u64 {
        let layers = self.forks.read();
        let pages = self.metadata.catalog_pages(&layers);
        self.space.update_catalog(pages.end, pages.due);
        pages.due
    }

    /// Hardens a root that follows the newest one: from then on an opening finds it.
    pub(crate) async fn harden_root(&self, root: Root) -> Result<(), PoolError> {
        self.store.harden_root(self.id, &root).await?;
        self.metadata.root_hardened(root);
        Ok(())
    }

    /// Makes a checkpoint of what has been destaged so far.
    pub(crate) async fn checkpoint(&self) -> Result<(), PoolError> {
        self.request(Request::Checkpoint).await
    }

    /// Destages everything acknowledged before the call, then makes a checkpoint.
    pub(crate) async fn drain(&self) -> Result<(), PoolError> {
        self.request(Request::Drain).await
    }

    /// Does the same, and seals every segment that is open now.
    pub(crate) async fn seal(&self) -> Result<(), PoolError> {
        self.request(Request::Seal).await
    }

    /// Gives back the space of all blocks that were dropped.
    pub(crate) async fn merge_dropped(&self) -> Result<(), PoolError> {
        self.request(Request::Merge).await
    }

    /// Has a metadata page written anew by the next checkpoint, if it is in RAM.
    pub(crate) async fn rewrite(&self, page: PageId) -> Result<(), PoolError> {
        self.request(Request::Rewrite(page)).await
    }

    async fn request(&self, request: Request) -> Result<(), PoolError> {
        match self.requests.make(request).await {
            Some(outcome) => outcome,
            None => Err(self.store.health().error()),
        }
    }

    /// How far the conversion of its layers is.
    pub(crate) fn converting(&self) -> &Converting {
        &self.converting
    }

    /// Its rebuild.
    pub(crate) fn rebuilding(&self) -> &Rebuilding {
        &self.rebuilding
    }

    /// Ends the committer once it did what it was asked for. Requests made later fail.
    pub(crate) async fn end_commits(&self) {
        let _ = self.requests.make(Request::Stop).await;
    }

    /// Ends the journal, after the store was closed. `drained`: everything is destaged and checkpointed.
    pub(crate) async fn end_journal(&self, drained: bool) {
        self.front.end().await;
        self.rebuilding.until_ended().await;
        self.log.journal.stop().await;
        if drained && let Err(error) = self.note_closed().await {
            // All is durable: the next opening only looks at the journal more closely.
            tracing::debug!(%error, "it is not noted that the pool was closed");
        }
    }
}
