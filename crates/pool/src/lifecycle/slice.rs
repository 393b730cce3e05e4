//! A slice that is open: one log of a pool, with all that its order covers. What its parts share, and the calls that concern
//! it as a whole.

use crate::{
    buffer::Buffer,
    bugs::{Bug, planted},
    commit::requests::{Request, Requests},
    error::PoolError,
    fork::{layer::Layer, layers::Layers, tally::Tally},
    format::Root,
    host::{admission::Admission, ahead::ReadAhead, cache::ReadCache, placed::Placer},
    integrity::damage::DamageLog,
    journal::{Journal, Mend, TornBatch},
    lifecycle::{
        options::PoolOptions,
        stats::{Counters, RecoveryStats},
        transactions::Transactions,
    },
    meta::{Catalog, PageId, PageStore, RecordHeap, SegmentTable},
    segment::{
        io::SegmentIo,
        readers::{ReadGuard, ReaderEpochs},
    },
    space::{Space, reserve::Pledged},
    store::Store,
};
use quoin_base::{Sequence, SliceId, VolumeId};
use quoin_stripe::Column;
use quoin_world::{Event, Mutex, RwLock, World, atomic::AtomicU64};
use std::sync::Arc;

/// A slice that is open. Calls that do I/O are made on a thread of the array.
pub(crate) struct Slice {
    pub(crate) world: Arc<dyn World>,
    pub(crate) options: PoolOptions,
    pub(crate) id: SliceId,
    pub(crate) store: Arc<Store>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) buffer: Buffer,
    pub(crate) io: Arc<SegmentIo>,
    pub(crate) segments: Arc<SegmentTable>,
    pub(crate) pages: PageStore,
    pub(crate) cache: ReadCache,
    pub(crate) ahead: ReadAhead,
    pub(crate) readers: ReaderEpochs,
    pub(crate) space: Space,
    pub(crate) layers: RwLock<Layers>,
    pub(crate) catalog: Catalog,
    /// Where what a checkpoint records of catalog and layers lies. Locked after these.
    pub(crate) records: Mutex<RecordHeap>,
    pub(crate) transactions: Transactions,
    pub(crate) pledged: Mutex<Pledged>,
    /// Sums over all layers. Locked after these.
    pub(crate) tally: Mutex<Tally>,
    pub(crate) requests: Requests,
    /// Notified after every commit and checkpoint, and when the journal has room again.
    pub(crate) progress: Arc<Event>,
    pub(crate) counters: Counters,
    pub(crate) admission: Admission,
    /// Range copies that wait until nothing they wrote is in the journal any more.
    pub(crate) settling_copies: AtomicU64,
    pub(crate) recovery: RecoveryStats,
    pub(crate) damage: DamageLog,
    /// Blocks of which a test wants a bit flipped.
    pub(crate) flips: AtomicU64,
    /// Records below this sequence are in the last durable checkpoint.
    pub(crate) durable_tail: AtomicU64,
    /// The newest durable root.
    pub(crate) root: Mutex<Root>,
    pub(crate) mended: Vec<String>,
    /// Where batches of the journal begin that recovery dropped.
    pub(crate) torn: Vec<TornBatch>,
    /// What recovery took from some columns of the journal only.
    pub(crate) mends: Vec<Mend>,
    /// Pages of the journal in which nothing must be found that recovery could not read.
    pub(crate) forget: Vec<(Column, u64)>,
    pub(crate) placer: Placer,
}

/// What [`Slice::new`] puts together.
pub(crate) struct Parts {
    pub root: Root,
    /// What was damaged where nothing is lost by it, in words.
    pub mended: Vec<String>,
    pub torn: Vec<TornBatch>,
    pub mends: Vec<Mend>,
    pub forget: Vec<(Column, u64)>,
    pub world: Arc<dyn World>,
    pub options: PoolOptions,
    pub id: SliceId,
    pub store: Arc<Store>,
    pub journal: Arc<Journal>,
    pub buffer: Buffer,
    pub io: Arc<SegmentIo>,
    pub pages: PageStore,
    pub space: Space,
    pub layers: Layers,
    pub next_volume: u32,
    pub catalog: Catalog,
    pub records: RecordHeap,
    pub recovery: RecoveryStats,
}

impl Slice {
    pub(crate) fn new(parts: Parts) -> Self {
        let progress = parts.journal.progress.clone();
        let placer = Placer::new(parts.journal.threads(), parts.io.segments.clone(), &parts.store);
        parts.pages.limit_to(parts.options.metadata_bytes);
        let readers = ReaderEpochs::new(parts.world.data_threads());
        Self {
            root: Mutex::new(parts.root),
            mended: parts.mended,
            torn: parts.torn,
            mends: parts.mends,
            forget: parts.forget,
            cache: ReadCache::new(parts.options.cache_bytes, parts.buffer.block_bytes),
            ahead: ReadAhead::new(
                parts.world.data_threads(),
                parts.options.ahead_bytes,
                parts.buffer.block_bytes,
            ),
            world: parts.world,
            options: parts.options,
            id: parts.id,
            requests: Requests::new(parts.store.health()),
            store: parts.store,
            journal: parts.journal,
            buffer: parts.buffer,
            segments: parts.io.segments.clone(),
            io: parts.io,
            pages: parts.pages,
            readers,
            space: parts.space,
            layers: RwLock::new(parts.layers),
            catalog: parts.catalog,
            records: Mutex::new(parts.records),
            transactions: Transactions::new(parts.next_volume),
            pledged: Mutex::default(),
            tally: Mutex::default(),
            progress,
            counters: Counters::default(),
            admission: Admission::new(),
            settling_copies: AtomicU64::new(0),
            recovery: parts.recovery,
            damage: DamageLog::default(),
            flips: AtomicU64::new(0),
            durable_tail: AtomicU64::new(0),
            placer,
        }
    }

    pub(crate) fn layer(&self, volume: VolumeId) -> Result<Arc<Layer>, PoolError> {
        self.layers.read().volumes.get(&volume).cloned().ok_or(PoolError::NoSuchVolume(volume))
    }

    /// A volume's layer, to be read or written. What a fork brought there counts once it is hardened.
    pub(crate) async fn confirmed_layer(&self, volume: VolumeId) -> Result<Arc<Layer>, PoolError> {
        let layer = self.layer(volume)?;
        if !layer.is_confirmed() {
            let decided = || (layer.is_confirmed() || self.store.health().is_failed()).then_some(());
            self.progress.until(decided).await;
            self.store.health().check()?;
        }
        Ok(layer)
    }

    /// Enters the current reader epoch, on the calling thread.
    pub(crate) fn enter_readers(&self) -> ReadGuard<'_> {
        self.readers.enter(self.world.current())
    }

    /// Forgets what RAM holds of a block: its number was freed, or is about to be used again.
    pub(crate) fn forget_content(&self, number: u64) {
        self.cache.purge(number);
        self.ahead.purge(number);
    }

    /// The lowest sequence that replay would need if a checkpoint were cut now.
    pub(crate) fn tail(&self) -> Sequence {
        let is_late = planted(Bug::TailReadLate);
        let next = if is_late { Sequence(u64::MAX) } else { self.journal.peek_sequence() };
        let pinned = self.transactions.pinned();
        let tail = self.buffer.tail(next).min(pinned);
        if is_late { tail.min(self.journal.peek_sequence()) } else { tail }
    }

    /// Makes a checkpoint of what has been destaged so far.
    pub(crate) async fn checkpoint(&self) -> Result<(), PoolError> {
        self.request(Request::Checkpoint).await
    }

    /// Destages everything acknowledged before the call, then makes a checkpoint.
    pub(crate) async fn drain(&self) -> Result<(), PoolError> {
        self.request(Request::Drain).await
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

    /// Ends the committer once it did what it was asked for. Requests made later fail.
    pub(crate) async fn end_commits(&self) {
        let _ = self.requests.make(Request::Stop).await;
    }

    /// Ends the journal, after the store was closed. `drained`: everything is destaged and checkpointed.
    pub(crate) async fn end_journal(&self, drained: bool) {
        self.placer.ended().await;
        self.ahead.end().await;
        self.journal.stop().await;
        if drained && let Err(error) = self.note_closed().await {
            // All is durable: the next opening only looks at the journal more closely.
            tracing::debug!(%error, "it is not noted that the pool was closed");
        }
    }
}
