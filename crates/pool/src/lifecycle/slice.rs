//! A slice that is open: one log of a pool, with all that its order covers. What its parts share, and the calls that concern
//! it as a whole.

use crate::{
    buffer::Buffer,
    bugs::{Bug, planted},
    commit::requests::{Request, Requests},
    error::PoolError,
    fork::{layer::Layer, layers::Layers, tally::Tally},
    format::{LAYERS_END, RecordHeader, RecordKind, Root, zeroed},
    host::{ahead::ReadAhead, cache::ReadCache, pace::Pace, placed::Placer, stalls::Stalls},
    integrity::damage::DamageLog,
    journal::{Batch, Entry, Journal, TornBatch},
    lifecycle::{
        options::PoolOptions,
        stats::{Counters, RecoveryStats},
    },
    meta::{Catalog, Operation, PageId, PageStore, RecordHeap, SegmentTable, Transaction},
    segment::{
        io::SegmentIo,
        readers::{ReadGuard, ReaderEpochs},
    },
    space::{
        Space,
        reserve::{Pledge, Pledged},
    },
    store::Store,
};
use quoin_base::{Sequence, SliceId, VolumeId, crc32c};
use quoin_world::{
    AsyncMutex, AsyncMutexGuard, Buf, Event, Mutex, RwLock, World,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};
use std::{collections::BTreeMap, sync::Arc};

/// The longest catalog transaction, encoded.
const MAX_TRANSACTION_BYTES: usize = 64 * 1024;

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
    pub(crate) next_volume: AtomicU32,
    pub(crate) catalog: Catalog,
    /// Where what a checkpoint records of catalog and layers lies. Locked after these.
    pub(crate) records: Mutex<RecordHeap>,
    catalog_turn: AsyncMutex,
    pub(crate) pledged: Mutex<Pledged>,
    /// Sums over all layers. Locked after these.
    pub(crate) tally: Mutex<Tally>,
    /// At or below the sequence of a catalog record that is appended and not applied yet; else the maximum.
    catalog_pin: AtomicU64,
    /// A part of a transaction that spans slices may have taken effect in RAM, and is not decided.
    pub(crate) undecided: AtomicBool,
    pub(crate) requests: Requests,
    /// Notified after every commit and checkpoint, and when the journal has room again.
    pub(crate) progress: Arc<Event>,
    pub(crate) counters: Counters,
    pub(crate) stalls: Stalls,
    pub(crate) pace: Pace,
    /// Writers in the queue for room in buffer and journal, and the queue.
    pub(crate) waiting: AtomicU64,
    /// Range copies that wait until nothing they wrote is in the journal any more.
    pub(crate) settling_copies: AtomicU64,
    pub(crate) admission_turn: AsyncMutex,
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
    pub(crate) placer: Placer,
}

/// A transaction between its record and its effect. Dropped in between, nobody would know whether it took
/// effect: the pool goes offline, and replay decides.
struct PendingTransaction<'a> {
    slice: &'a Slice,
    appending: bool,
    done: bool,
}

impl Drop for PendingTransaction<'_> {
    fn drop(&mut self) {
        match self.done || !self.appending {
            true => self.slice.catalog_pin.store(u64::MAX, Ordering::SeqCst),
            false => self.slice.store.health().fail("a catalog transaction was abandoned half way".into()),
        }
    }
}

/// A transaction that has its slice's turn, with what is set aside for it.
pub(crate) struct Admitted<'a> {
    pub transaction: Transaction,
    pub slice: &'a Slice,
    // NOTE: dropped in this order. Nobody else has a turn before what was set aside is given back.
    pending: PendingTransaction<'a>,
    _pledge: Option<Pledge<'a>>,
    _turn: AsyncMutexGuard<'a>,
}

impl Admitted<'_> {
    /// Called before its record is appended. It must be [ended](Self::end) from then on.
    pub(crate) fn begin_appending(&mut self) {
        self.slice.catalog_pin.store(self.slice.journal.peek_sequence().0, Ordering::SeqCst);
        self.pending.appending = true;
    }

    /// Ends it: it has taken effect, or has failed.
    pub(crate) fn end(mut self, outcome: Result<(), PoolError>) -> Result<(), PoolError> {
        self.pending.done = true;
        if outcome.is_ok() {
            self.slice.count_reserved();
            self.slice.requests.catalog_changed();
        }
        outcome
    }
}

/// The volumes there are after some operations of a transaction.
struct VolumesAfter<'a> {
    before: &'a BTreeMap<VolumeId, Arc<Layer>>,
    changed: BTreeMap<VolumeId, bool>,
}

impl VolumesAfter<'_> {
    fn contains(&self, volume: VolumeId) -> bool {
        self.changed.get(&volume).copied().unwrap_or_else(|| self.before.contains_key(&volume))
    }

    /// True if it was not there.
    fn insert(&mut self, volume: VolumeId) -> bool {
        !self.contains(volume) && self.changed.insert(volume, true).is_none_or(|was| !was)
    }

    /// True if it was there.
    fn remove(&mut self, volume: VolumeId) -> bool {
        self.contains(volume) && self.changed.insert(volume, false).is_none_or(|was| was)
    }
}

/// A transaction whose record is appended.
pub(crate) struct Appended {
    pub sequence: Sequence,
    pub batch: Arc<Batch>,
    /// The layers that volumes hold by a fork into them.
    pub forked: Vec<Arc<Layer>>,
}

/// What [`Slice::new`] puts together.
pub(crate) struct Parts {
    pub root: Root,
    /// What was damaged where nothing is lost by it, in words.
    pub mended: Vec<String>,
    pub torn: Vec<TornBatch>,
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
        let placer = Placer::new(parts.journal.threads(), parts.io.segments.clone(), parts.store.health());
        parts.pages.limit_to(parts.options.metadata_bytes);
        let readers = ReaderEpochs::new(parts.world.data_threads());
        Self {
            root: Mutex::new(parts.root),
            mended: parts.mended,
            torn: parts.torn,
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
            next_volume: AtomicU32::new(parts.next_volume),
            catalog: parts.catalog,
            records: Mutex::new(parts.records),
            catalog_turn: AsyncMutex::new(),
            pledged: Mutex::default(),
            tally: Mutex::default(),
            catalog_pin: AtomicU64::new(u64::MAX),
            undecided: AtomicBool::new(false),
            progress,
            counters: Counters::default(),
            stalls: Stalls::default(),
            pace: Pace::default(),
            waiting: AtomicU64::new(0),
            settling_copies: AtomicU64::new(0),
            admission_turn: AsyncMutex::new(),
            recovery: parts.recovery,
            damage: DamageLog::default(),
            flips: AtomicU64::new(0),
            durable_tail: AtomicU64::new(0),
            placer,
        }
    }

    /// An id for a new volume. It is never given to another once a transaction that creates it is committed.
    pub(crate) fn next_volume_id(&self) -> VolumeId {
        let id = VolumeId(self.next_volume.fetch_add(1, Ordering::Relaxed));
        assert_eq!(id.slice(), self.id, "a slice's volumes have ids of its own");
        id
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

    /// Makes the changes of a transaction, all or none, hardened on return. Transactions take effect in the
    /// order in which they return. Forks of volumes hold every write acknowledged before the call, none that began after
    /// its return, and no write without those that it could have depended on.
    pub(crate) async fn commit(&self, transaction: Transaction) -> Result<(), PoolError> {
        self.make_room_for(&transaction).await?;
        self.let_catalog_settle().await;
        self.commit_with_room(transaction).await
    }

    /// Waits while so much of the catalog changed that a checkpoint could not write more of it.
    pub(crate) async fn let_catalog_settle(&self) {
        let most = 2 * self.space.most_catalog_pages();
        let has_settled = || {
            if self.catalog_due_pages() < most || self.store.health().is_failed() {
                return Some(());
            }
            self.requests.nudge();
            None
        };
        self.progress.until(has_settled).await;
    }

    /// [`Slice::commit`] of a transaction for which room was made.
    pub(crate) async fn commit_with_room(&self, transaction: Transaction) -> Result<(), PoolError> {
        let mut admitted = self.take_turn(transaction).await?;
        admitted.begin_appending();
        let outcome = match admitted.transaction.forks() {
            true => self.harden_forks(&admitted.transaction).await,
            false => self.harden_transaction(&admitted.transaction).await,
        };
        admitted.end(outcome)
    }

    /// Has a transaction wait for its turn, and makes sure that nothing but a failure can keep it from taking effect.
    pub(crate) async fn take_turn(&self, mut transaction: Transaction) -> Result<Admitted<'_>, PoolError> {
        let len = transaction.encode().len();
        if len > MAX_TRANSACTION_BYTES {
            return Err(PoolError::Refused(format!(
                "a transaction of {len} bytes is longer than the {MAX_TRANSACTION_BYTES} allowed; split it"
            )));
        }
        let turn = self.catalog_turn.lock().await;
        self.let_forks_settle(&transaction).await;
        self.store.health().check()?;
        self.refuse_impossible(&transaction)?;
        if transaction.number_layers(self.layers.read().next) > LAYERS_END {
            let why =
                "the pool has made as many volumes and forks as it ever can; copy its data to another one";
            return Err(PoolError::Refused(why.into()));
        }
        let pledge = self.pledge(&transaction)?;
        let pending = PendingTransaction { slice: self, appending: false, done: false };
        Ok(Admitted { transaction, slice: self, pending, _pledge: pledge, _turn: turn })
    }

    async fn harden_transaction(&self, transaction: &Transaction) -> Result<(), PoolError> {
        let Appended { sequence, batch, .. } = self.append_transaction(transaction, || (), || Ok(()))?;
        self.journal.hardened(&batch).await?;
        self.apply(transaction, sequence);
        Ok(())
    }

    fn refuse_impossible(&self, transaction: &Transaction) -> Result<(), PoolError> {
        let layers = self.layers.read();
        let mut volumes = VolumesAfter { before: &layers.volumes, changed: BTreeMap::new() };
        for operation in &transaction.operations {
            match operation {
                Operation::CreateVolume { volume, .. } if !volumes.insert(*volume) => {
                    return Err(PoolError::Refused(format!("volume {volume} exists already")));
                }
                Operation::DeleteVolume(volume) if !volumes.remove(*volume) => {
                    return Err(PoolError::NoSuchVolume(*volume));
                }
                Operation::Fork { source, .. } if !volumes.contains(*source) => {
                    return Err(PoolError::NoSuchVolume(*source));
                }
                Operation::Fork { source, target, .. } if source == target => {
                    return Err(PoolError::Refused(format!("volume {source} cannot be forked into itself")));
                }
                Operation::Fork { target, .. } => drop(volumes.insert(*target)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Appends the record of a transaction. `begin` runs before it takes its sequence; what it returns is held until
    /// the transaction, if it has forks, has taken effect in RAM and `end` has run.
    pub(crate) fn append_transaction<T>(
        &self,
        transaction: &Transaction,
        begin: impl FnOnce() -> T,
        end: impl FnOnce() -> Result<(), PoolError>,
    ) -> Result<Appended, PoolError> {
        let bytes = transaction.encode();
        let mut payload = Buf::zeroed(bytes.len().next_multiple_of(512));
        payload.as_mut_slice()[..bytes.len()].copy_from_slice(&bytes);
        let payload = payload.into_slice();
        let lane = self.journal.lane(&*self.world);
        let (mut sequence, mut forked) = (Sequence(0), Vec::new());
        let batch = lane.append(payload.len(), 1, |_, _| {
            let from = self.world.now();
            let held = begin();
            sequence = self.journal.take_sequence();
            if transaction.forks() {
                forked = self.apply(transaction, sequence);
                self.counters.forked(self.world.now().since(from));
            }
            end()?;
            drop(held);
            let mut header: RecordHeader = zeroed();
            header.sequence = sequence.0.into();
            header.kind = RecordKind::Catalog as u8;
            header.sector = (bytes.len() as u64).into();
            header.payload_bytes = (payload.len() as u32).into();
            let crcs = payload.chunks(self.buffer.block_bytes as usize).map(|c| crc32c(c).0).collect();
            Ok::<_, PoolError>(Entry { header, crcs, payload: vec![payload.clone()], row: None })
        })?;
        Ok(Appended { sequence, batch, forked })
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

    /// Applies a transaction in RAM. Returns the layers that volumes hold by a fork into them.
    pub(crate) fn apply(&self, transaction: &Transaction, sequence: Sequence) -> Vec<Arc<Layer>> {
        for operation in &transaction.operations {
            if let Operation::CreateVolume { volume: id, .. } | Operation::Fork { target: id, .. } = operation
            {
                self.next_volume.fetch_max(id.0.saturating_add(1), Ordering::Relaxed);
            }
        }
        // A checkpoint sees objects and layers as of the same transaction.
        let mut layers = self.layers.write();
        self.catalog.apply(transaction);
        layers.apply(transaction, sequence)
    }

    /// The lowest sequence that replay would need if a checkpoint were cut now.
    pub(crate) fn tail(&self) -> Sequence {
        let is_late = planted(Bug::TailReadLate);
        let next = if is_late { Sequence(u64::MAX) } else { self.journal.peek_sequence() };
        let pinned = Sequence(self.catalog_pin.load(Ordering::SeqCst));
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
