//! The committer: the one task that changes a slice's metadata.
//!
//! It destages what is buffered, gives back what deleted volumes held, cleans segments and cuts
//! checkpoints, one thing at a time, so that a cut always lies between two whole transactions. What was cut is written beside
//! it: see `flight.rs`.
//! What it does next is decided in `decide.rs`; between steps it lets others run.

use crate::{
    buffer::BlockKey,
    bugs::{Bug, planted},
    commit::{
        decide::{Step, Tail, Turn, decide},
        flight::Flight,
        in_vain::InVain,
        requests::{Answer, Request},
        retries::Unread,
    },
    error::PoolError,
    fork::layer::Layer,
    format::Space,
    host::pace::SLOW_FROM,
    lifecycle::slice::Slice,
    maps::{dropped::DroppedNumbers, freed::FreedPages},
    meta::{AtHand, PageId, Stream},
    segment::rows::RowWriter,
};
use futures_util::future::{Either, select};
use quoin_base::Sequence;
use quoin_world::{Nanos, OneShotSender, atomic::Ordering};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    pin::pin,
    sync::Arc,
    time::Duration,
};

/// How often it looks around while there are no requests.
const TICK: Duration = Duration::from_millis(500);
/// And while a fork waits for what is buffered.
const PENDING_TICK: Duration = Duration::from_millis(50);
/// And when writers are waiting or about to.
const PRESSED_TICK: Duration = Duration::from_millis(2);
/// How often in a row destage waits for the cleaner to find slabs.
const LONGEST_YIELD: u32 = 64;

/// The committer's own state: counters that checkpoints record, cursors, open segments.
pub(crate) struct Committer {
    pub(crate) slice: Arc<Slice>,
    /// Generation of the last durable checkpoint, and of the last that was cut: the next one, while that is under way.
    pub(crate) generation: u64,
    pub(super) cut_generation: u64,
    /// The checkpoint that is under way.
    pub(super) flight: Option<Flight>,
    /// Requests for a checkpoint that is cut after the request.
    pub(super) wanted: Vec<OneShotSender<Answer>>,
    pub(crate) tree_end: u64,
    pub(crate) tree_free: u64,
    pub(crate) tree_cursor: u64,
    /// Page numbers of the tree space that came free.
    pub(crate) freed_pages: FreedPages,
    /// The layer whose list is being looked through.
    pub(crate) sifting: Option<Arc<Layer>>,
    pub(crate) blocks_end: u64,
    pub(crate) blocks_free: u64,
    /// Block numbers that nothing refers to and that the block table does not know to be free.
    pub(crate) dropped: DroppedNumbers,
    pub(crate) block_cursor: u64,
    pub(crate) sweeping: bool,
    /// Pages of the block table: where numbers are looked for, where blocks are added, where they are given back.
    pub(crate) swept: AtHand,
    pub(crate) added_to: AtHand,
    pub(crate) freed_from: AtHand,
    /// Block numbers freed for a checkpoint up to this one may be used again.
    pub(crate) reusable: u64,
    /// Durable checkpoints whose readers may not all have left: generation and reader epoch.
    pub(crate) settling: VecDeque<(u64, u64)>,
    pub(crate) data_rows: RowWriter,
    pub(crate) cleaned_rows: RowWriter,
    pub(crate) meta_rows: RowWriter,
    /// Segments the cleaner cannot walk, and their generations.
    pub(crate) uncleanable: BTreeMap<u32, u32>,
    /// Blocks that could not be completed because a drive failed to read.
    pub(crate) unread: BTreeMap<BlockKey, Unread>,
    /// Segments whose pages the next checkpoint moves elsewhere.
    pub(crate) cleaned_metadata: BTreeSet<u32>,
    pub(crate) last_checkpoint: Nanos,
    pub(super) cleaned_in_vain: InVain,
    /// How often destage waited for the cleaner in a row.
    pub(crate) yielded: u32,
    /// When the journal's tail was last looked for.
    pub(super) tail_looked: Nanos,
    /// What a checkpoint would give back with the tail found then, if none was made since.
    pub(super) tail_found: Option<Tail>,
    /// When which sequence was next, to know what has grown old.
    pub(super) ages: VecDeque<(Nanos, Sequence)>,
    /// Whose turn it is in this round, and whether anything was done in it.
    pub(super) turn: Turn,
    did: bool,
    /// What came in before this is being drained.
    pub(super) draining: Option<Sequence>,
}

/// What a committer starts from, as the root has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub generation: u64,
    pub tree_end: u64,
    pub tree_free: u64,
    pub blocks_end: u64,
    pub blocks_free: u64,
    pub dropped_blocks: u64,
}

impl Committer {
    pub(crate) fn new(slice: Arc<Slice>, start: Start) -> Self {
        let last_checkpoint = slice.world().now();
        let sifting = slice.forks.read().sifting();
        Self {
            slice,
            generation: start.generation,
            cut_generation: start.generation,
            flight: None,
            wanted: Vec::new(),
            tree_end: start.tree_end,
            tree_free: start.tree_free,
            tree_cursor: 1,
            freed_pages: FreedPages::default(),
            sifting,
            blocks_end: start.blocks_end,
            blocks_free: start.blocks_free,
            dropped: DroppedNumbers::new(start.dropped_blocks),
            block_cursor: 1,
            sweeping: false,
            swept: AtHand::default(),
            added_to: AtHand::default(),
            freed_from: AtHand::default(),
            reusable: start.generation,
            settling: VecDeque::new(),
            data_rows: RowWriter::new(Stream::Data),
            cleaned_rows: RowWriter::new(Stream::Cleaned),
            meta_rows: RowWriter::new(Stream::Meta),
            uncleanable: BTreeMap::new(),
            unread: BTreeMap::new(),
            cleaned_metadata: BTreeSet::new(),
            last_checkpoint,
            cleaned_in_vain: InVain::No,
            yielded: 0,
            tail_looked: last_checkpoint,
            tail_found: None,
            ages: VecDeque::new(),
            turn: Turn::Lend,
            did: false,
            draining: None,
        }
    }

    /// Runs until asked to stop or until the pool fails.
    pub(crate) async fn run(mut self) {
        let slice = self.slice.clone();
        loop {
            match self.step().await {
                Ok(Outcome::Did) => slice.world().yield_now().await,
                Ok(Outcome::Idle) => self.wait().await,
                Ok(Outcome::Stop) => break,
                Err(error) => {
                    slice.store.health().fail(error.to_string());
                    break;
                }
            }
            if slice.store.health().is_failed() {
                break;
            }
        }
        // Nothing is written for the slice once its committer has ended.
        if let Some(flight) = self.flight.take() {
            flight.ended().await;
        }
        slice.requests.end();
    }

    async fn wait(&self) {
        let (requests, store) = (&self.slice.requests, &self.slice.store);
        let asked = requests.wake.until(|| {
            let asked = requests.nudged.swap(false, Ordering::AcqRel)
                || !requests.queue.lock().is_empty()
                || self.slice.store.health().is_failed();
            asked.then_some(())
        });
        // A writer that waits may wait for a batch to harden. The committer is not told of that.
        let awaits_slabs = store.wanted_by(self.slice.id()) > 0 || store.owed_by(self.slice.id()) > 0;
        let pressed =
            requests.hurry.load(Ordering::Acquire) || self.slice.fill(0) > SLOW_FROM || awaits_slabs;
        let tick = match pressed {
            true => PRESSED_TICK,
            false if self.slice.forks.are_pending() => PENDING_TICK,
            false => TICK,
        };
        let tick = self.slice.world().sleep(tick);
        match select(pin!(asked), tick).await {
            Either::Left(_) | Either::Right(_) => {}
        }
    }

    async fn step(&mut self) -> Result<Outcome, PoolError> {
        match self.decide().await? {
            Step::Answer => self.answer().await,
            step => self.carry_out(step).await,
        }
    }

    async fn decide(&mut self) -> Result<Step, PoolError> {
        // First what has ended since: the figures are taken when slabs and numbers have come free.
        self.land()?;
        self.settle();
        self.let_readers_leave().await;
        Ok(decide(&self.figures()))
    }

    /// Does what was asked for first.
    async fn answer(&mut self) -> Result<Outcome, PoolError> {
        let slice = self.slice.clone();
        let request = slice.requests.queue.lock().pop_front();
        let Some((request, answer)) = request else { return Ok(Outcome::Did) };
        let _answering = slice.requests.answering();
        let outcome = match request {
            Request::Checkpoint => {
                slice.requests.one_waits();
                self.wanted.push(answer);
                return Ok(Outcome::Did);
            }
            Request::Drain => self.drain().await,
            Request::Merge => self.merge_all().await,
            Request::Rewrite(page) => {
                // Pages of the catalog and of the segment table are made anew.
                let is_made = page == PageId::new(Space::Catalog, page.index)
                    && slice.metadata.rewrite_catalog_page(page.index);
                if page == PageId::new(Space::Segments, page.index) {
                    slice.segments.table.rewrite(page.index);
                } else if !is_made {
                    slice.metadata.pages.mark_dirty(page);
                }
                Ok(())
            }
            Request::Stop => {
                if !self.wanted.is_empty() {
                    self.checkpoint().await?;
                }
                self.finish_checkpoint().await?;
                answer.send(Ok(()));
                return Ok(Outcome::Stop);
            }
        };
        match outcome {
            Ok(()) => {
                answer.send(Ok(()));
                Ok(Outcome::Did)
            }
            Err(error) => {
                slice.store.health().fail(error.to_string());
                answer.send(Err(slice.store.health().error()));
                Err(error)
            }
        }
    }

    async fn carry_out(&mut self, step: Step) -> Result<Outcome, PoolError> {
        match step {
            Step::Answer => {}
            Step::Checkpoint => self.begin_checkpoint().await?,
            Step::Await => self.finish_checkpoint().await?,
            Step::Lend => {
                self.did |= self.lend_numbers().await?;
                self.turn = Turn::Fork;
            }
            Step::Fork => {
                self.did |= self.fork_some();
                self.turn = Turn::Merge;
            }
            Step::Merge => {
                self.did |= self.merge_some().await?;
                self.turn = Turn::Claim;
            }
            Step::Claim(slabs) => {
                self.did |= self.claim(slabs).await?;
                self.turn = Turn::Clean;
            }
            Step::Clean => {
                // What is dead in open segments cannot be cleaned.
                self.slice.front.placer.seal_idle();
                let did = self.clean().await?;
                let yields = did && self.destage_yields();
                // A drain is not done while destage waits, but does not go on for what can be cleaned.
                self.did |= did && (yields || self.draining.is_none());
                self.turn = if yields { Turn::Lend } else { Turn::GiveBack };
            }
            Step::GiveBack(slabs) => {
                self.did |= self.give_back(slabs).await?;
                self.turn = Turn::Destage;
            }
            Step::Destage(before) => {
                self.did |= self.destage(before).await?;
                self.turn = Turn::Remove;
            }
            Step::Remove => {
                self.did |= self.remove_some().await?;
                self.turn = Turn::End;
            }
            Step::EndRound => {
                self.turn = Turn::Lend;
                if !std::mem::take(&mut self.did) {
                    return Ok(Outcome::Idle);
                }
            }
        }
        Ok(Outcome::Did)
    }

    /// Waits while slabs are tight and a read that takes long keeps freed ones from being used again: going on
    /// would only use up the reserve. A journal without a free extent cannot wait: the read may wait for it.
    async fn let_readers_leave(&mut self) {
        let slice = self.slice.clone();
        let held_up = |generation| {
            let journal = slice.log.journal.usage();
            slice.segments.table.usage().free_slabs < slice.space.destage_slabs()
                && slice.segments.table.awaits_readers(generation)
                && journal.used < journal.total
                && !slice.store.health().is_failed()
        };
        while held_up(self.generation) {
            slice.world().sleep(PRESSED_TICK).await;
            self.settle();
        }
    }

    /// Destages all that is acknowledged now, and makes a checkpoint.
    async fn drain(&mut self) -> Result<(), PoolError> {
        // From the first step of a round on, until a whole round does nothing.
        self.draining = Some(self.slice.log.journal.peek_sequence());
        (self.turn, self.did) = (Turn::Lend, false);
        loop {
            let step = self.decide().await?;
            if let Outcome::Idle = self.carry_out(step).await? {
                break;
            }
            self.slice.world().yield_now().await;
        }
        // NOTE: sealed before the checkpoint, which then holds these segments as ones that nothing is added to.
        self.draining = None;
        let generation = self.first_without();
        self.data_rows.seal(&self.slice.segments, generation);
        self.cleaned_rows.seal(&self.slice.segments, generation);
        self.checkpoint().await
    }

    /// True when the slabs left are for cleaner and checkpoints, and destage has to wait after a cleaning; but
    /// never for ever.
    fn destage_yields(&mut self) -> bool {
        self.yielded += 1;
        let tight = self.slice.segments.table.usage().free_slabs < self.slice.space.destage_slabs();
        tight && self.yielded < LONGEST_YIELD
    }

    /// Gives back what durable checkpoints freed and no reader looks at any more.
    pub(crate) fn settle(&mut self) {
        let slice = &self.slice;
        while let Some(&(generation, epoch)) = self.settling.front() {
            if !slice.segments.readers_left(epoch) {
                break;
            }
            assert!(
                self.reusable < generation && generation <= self.generation,
                "checkpoint {generation} settles after {}, with {} durable",
                self.reusable,
                self.generation
            );
            self.reusable = generation;
            self.settling.pop_front();
            // NOTE: shards are locked before layers, so layers are not locked here. No new layer gets these ids
            // meanwhile.
            let found = slice.forks.read().ids.take_found(generation);
            if let Some(found) = found {
                let buffered = slice.buffer.held_of(&found.iter().copied().collect());
                slice.forks.read().ids.free(found, &buffered);
            }
            self.freed_pages.forget_passed(slice.segments.readers());
            slice.counters.freed_pages_ram_bytes.store(self.freed_pages.ram_bytes(), Ordering::Relaxed);
        }
        if slice.segments.reclaim(self.generation) {
            slice.log.progress().notify();
        }
    }

    /// The first checkpoint without what is given up now. The last checkpoint that was cut still holds it,
    /// whether that one is durable or under way. What is given up is reused only when the first checkpoint
    /// without it is durable.
    pub(crate) fn first_without(&self) -> u64 {
        let last_with = if planted(Bug::FreeForFlight) { self.generation } else { self.cut_generation };
        last_with + 1
    }

    /// The number of drives over which the rows of a batch are spread: one while few slabs are free, since each
    /// open segment keeps a slab from other uses.
    pub(super) fn spread(&self) -> usize {
        let (slice, drives) = (&self.slice, self.slice.store.data_drive_count());
        let plenty = 2 * slice.space.clean_below() + drives as u64;
        if slice.segments.table.usage().free_slabs > plenty { drives } else { 1 }
    }

    /// Tells the space gauge what is taken. What was published is counted here before it leaves the buffer: in between
    /// it counts twice, never not at all.
    pub(crate) fn count_space(&self) {
        let usage = self.slice.segments.table.usage();
        self.slice.count_reserved();
        let metadata = usage.live_meta + self.slice.metadata.pages.unplaced_bytes();
        self.slice.space.update(usage.live_data, metadata, usage.table_slabs);
    }

    /// Lets go of pages that were kept at hand.
    pub(crate) fn let_go_of_pages(&mut self) {
        (self.swept, self.added_to, self.freed_from) = Default::default();
    }

    /// Tells writers that wait and the space gauge what a commit changed.
    pub(crate) fn committed(&self) {
        let slice = &self.slice;
        slice.metadata.pages.make_room(0);
        slice.counters.freed_pages_ram_bytes.store(self.freed_pages.ram_bytes(), Ordering::Relaxed);
        self.count_space();
        slice.counters.commits.fetch_add(1, Ordering::AcqRel);
        slice.log.progress().notify();
    }
}

enum Outcome {
    Did,
    Idle,
    Stop,
}
