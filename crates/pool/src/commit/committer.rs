//! The committer: the one task that changes a slice's metadata.
//!
//! It destages what is buffered, gives back what deleted volumes held, cleans segments and cuts
//! checkpoints, one thing at a time, so that a cut always lies between two whole transactions. What was cut is written beside
//! it: see `flight.rs`.
//! What it does next is decided in `decide.rs`; between steps it lets others run.

use crate::{
    commit::{
        block_numbers::BlockNumbers,
        block_table::BlockTable,
        checkpoints::Checkpoints,
        cleaning::Cleaning,
        conversions::Conversions,
        decide::{Step, Turn, decide},
        effort::Effort,
        looks::Looks,
        reductions::Reductions,
        requests::Request,
        retries::Retries,
    },
    error::PoolError,
    fork::layer::Layer,
    format::PageSpace,
    host::pace::SLOW_FROM,
    lifecycle::slice::Slice,
    maps::tree_numbers::TreeNumbers,
    meta::{PageId, Stream},
    segment::{rows::RowWriter, writers::RowWriters},
    store::WaitsForSlabs,
};
use futures_util::future::{Either, select};
use quoin_base::{BlockNumber, CheckpointGeneration, PageNumber, Sequence};
use quoin_world::{Mutex, atomic::Ordering};
use std::{pin::pin, sync::Arc, time::Duration};

/// How often it looks around while there are no requests.
const TICK: Duration = Duration::from_millis(500);
/// And while a fork waits for what is buffered, or writers do and nothing of it can be destaged.
const PENDING_TICK: Duration = Duration::from_millis(50);
/// And when writers are waiting or about to.
const PRESSED_TICK: Duration = Duration::from_millis(2);
/// How often a drain waits for slabs that are about to come.
const DRAIN_WAITS: u32 = 1000;
/// How often in a row destage waits for the cleaner to find slabs.
const LONGEST_YIELD: u32 = 64;

/// The committer's own state: what checkpoints record, cursors, open segments.
pub(crate) struct Committer {
    pub(crate) slice: Arc<Slice>,
    pub(crate) checkpoints: Checkpoints,
    pub(super) tree: TreeNumbers,
    pub(crate) blocks: BlockTable,
    pub(super) rows: OpenRows,
    pub(super) cleaning: Cleaning,
    conversions: Conversions,
    reductions: Reductions,
    /// Blocks that could not be completed because a drive failed to read, or not be placed.
    pub(super) retries: Retries,
    pub(super) looks: Looks,
    pub(super) round: Round,
    /// The layer whose list is being looked through.
    pub(super) sifting: Option<Arc<Layer>>,
    /// How often destage waited for the cleaner in a row.
    yielded: u32,
    /// How much of what is destaged is packed.
    effort: Mutex<Effort>,
    /// While nothing brings slabs for what is to be destaged.
    short: Option<WaitsForSlabs>,
}

/// Rows of what is destaged, of what the cleaner moves, and of metadata.
pub(super) struct OpenRows {
    pub data: RowWriters,
    pub cleaned: RowWriters,
    pub meta: RowWriter,
}

/// A round, in which everything has its turn.
#[derive(Default)]
pub(super) struct Round {
    pub turn: Turn,
    /// Whether anything was done in it.
    did: bool,
    /// What came in before this is being drained.
    pub draining: Option<Sequence>,
}

/// What a committer starts from, as the root has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub generation: CheckpointGeneration,
    pub tree_end: PageNumber,
    pub tree_free: u64,
    pub blocks_end: BlockNumber,
    pub blocks_free: u64,
    pub dropped_blocks: u64,
}

impl Committer {
    pub(crate) fn new(slice: Arc<Slice>, start: Start) -> Self {
        let now = slice.world().now();
        let sifting = slice.forks.read().sifting();
        let numbers = BlockNumbers::new(start.blocks_end, start.blocks_free);
        Self {
            checkpoints: Checkpoints::new(start.generation, now),
            tree: TreeNumbers::new(start.tree_end, start.tree_free),
            blocks: BlockTable::new(numbers, start.dropped_blocks),
            rows: OpenRows {
                data: RowWriters::new(Stream::Data),
                cleaned: RowWriters::new(Stream::Cleaned),
                meta: RowWriter::new(Stream::Meta, None),
            },
            cleaning: Cleaning::default(),
            conversions: Conversions::default(),
            reductions: Reductions::default(),
            retries: Retries::default(),
            looks: Looks::new(now),
            round: Round::default(),
            sifting,
            yielded: 0,
            effort: Mutex::new(Effort::new(now)),
            short: None,
            slice,
        }
    }

    /// How much of what is destaged is packed.
    pub(super) fn effort(&self) -> &Mutex<Effort> {
        &self.effort
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
        self.checkpoints.ended().await;
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
        // While nothing can be destaged that is buffered, destage is not what a writer waits for.
        let stuck = self.slice.counters.progress.stuck_blocks();
        let is_in_vain = self.is_short() || stuck > 0 && stuck == self.slice.buffer.charged_blocks();
        let presses = requests.hurry.load(Ordering::Acquire) || self.slice.fill(0) > SLOW_FROM;
        let tick = if presses && !is_in_vain || awaits_slabs {
            PRESSED_TICK
        } else if presses || self.slice.forks.are_pending() {
            PENDING_TICK
        } else {
            TICK
        };
        let tick =
            tick.min(self.conversion_rests().unwrap_or(tick)).min(self.reduction_rests().unwrap_or(tick));
        let tick = self.slice.world().sleep(tick);
        match select(pin!(asked), tick).await {
            Either::Left(_) | Either::Right(_) => {}
        }
    }

    /// Whether there is no slab for data that is to be destaged, and none comes.
    pub(super) fn is_short(&self) -> bool {
        self.short.is_some()
    }

    /// Whether there is no slab for some of it.
    pub(super) fn lacks_slabs(&self) -> bool {
        self.retries.is_any_unplaced()
    }

    /// Notes whether data lacks slabs, which can only be if drives were lost, and none comes. Writes that need room are refused
    /// then.
    pub(super) fn note_slabs(&mut self, is_short: bool) {
        if !is_short {
            self.short = None;
        } else if self.short.is_none() {
            self.short = self.slice.store.wait_for_slabs();
            self.committed();
        }
    }

    /// What it knows of conversion, to be changed.
    pub(super) fn conversions(&mut self) -> &mut Conversions {
        &mut self.conversions
    }

    /// What it knows of conversion.
    pub(super) fn known_conversions(&self) -> &Conversions {
        &self.conversions
    }

    /// What it knows of reduction, to be changed.
    pub(super) fn reductions(&mut self) -> &mut Reductions {
        &mut self.reductions
    }

    /// What it knows of reduction.
    pub(super) fn known_reductions(&self) -> &Reductions {
        &self.reductions
    }

    /// How long conversion rests still, if it does.
    fn conversion_rests(&self) -> Option<Duration> {
        let now = self.slice.world().now();
        let rests = self.conversions.walk.is_some() && self.conversions.rests_until > now;
        rests.then(|| self.conversions.rests_until.since(now))
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
        self.carry_forward().await;
        self.lacks_nothing_if_empty();
        Ok(decide(&self.figures()))
    }

    /// Does what was asked for first.
    async fn answer(&mut self) -> Result<Outcome, PoolError> {
        let slice = self.slice.clone();
        let Some((request, answer)) = slice.requests.next() else { return Ok(Outcome::Did) };
        let _answering = slice.requests.answering();
        let outcome = match request {
            Request::Checkpoint => {
                slice.requests.one_waits();
                self.checkpoints.want(answer);
                return Ok(Outcome::Did);
            }
            Request::Drain => self.drain().await,
            Request::Seal => self.seal().await,
            Request::Merge => self.merge_all().await,
            Request::Rewrite(page) => {
                // Pages of the catalog and of the segment table are made anew.
                let is_made = page == PageId::new(PageSpace::Catalog, page.index)
                    && slice.metadata.rewrite_catalog_page(page.index);
                if page == PageId::new(PageSpace::Segments, page.index) {
                    slice.segments.table.rewrite(page.index);
                } else if !is_made {
                    slice.metadata.pages.mark_dirty(page);
                }
                Ok(())
            }
            Request::Stop => {
                if self.checkpoints.is_wanted() {
                    self.checkpoint().await?;
                }
                self.finish_checkpoint().await?;
                answer.send(Ok(()));
                return Ok(Outcome::Stop);
            }
        };
        match outcome {
            // What it was asked for was not done for want of slabs. That harms nothing.
            Ok(()) | Err(PoolError::NoSpace) => {
                answer.send(outcome);
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
                self.round.did |= self.lend_numbers().await?;
                self.round.turn = Turn::Fork;
            }
            Step::Fork => {
                self.round.did |= self.fork_some();
                self.round.turn = Turn::Merge;
            }
            Step::Merge => {
                self.round.did |= self.merge_some().await?;
                self.round.turn = Turn::Claim;
            }
            Step::Claim(slabs) => {
                self.round.did |= self.claim(slabs).await?;
                self.round.turn = Turn::Clean;
            }
            Step::Clean => {
                // What is dead in open segments cannot be cleaned.
                self.slice.front.placer.seal_idle();
                let did = self.clean().await?;
                let yields = did && self.destage_yields();
                // A drain is not done while destage waits, but does not go on for what can be cleaned.
                self.round.did |= did && (yields || self.round.draining.is_none());
                self.round.turn = if yields { Turn::Lend } else { Turn::GiveBack };
            }
            Step::GiveBack(slabs) => {
                self.round.did |= self.give_back(slabs).await?;
                self.round.turn = Turn::Destage;
            }
            Step::Destage(before) => {
                self.round.did |= self.destage(before).await?;
                self.round.turn = Turn::Remove;
            }
            Step::Remove => {
                self.round.did |= self.remove_some().await?;
                self.round.turn = Turn::Convert;
            }
            Step::Convert => {
                self.round.did |= self.convert_some().await?;
                self.round.turn = Turn::Reduce;
            }
            Step::Reduce => {
                self.round.did |= self.reduce_some().await?;
                self.round.turn = Turn::Learn;
            }
            Step::Learn => {
                self.learn_some().await;
                (self.round.did, self.round.turn) = (true, Turn::End);
            }
            Step::EndRound => {
                self.round.turn = Turn::Lend;
                if !std::mem::take(&mut self.round.did) {
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
        while held_up(self.checkpoints.durable()) {
            slice.world().sleep(PRESSED_TICK).await;
            self.settle();
        }
    }

    /// Destages all that is acknowledged now, and makes a checkpoint. [`PoolError::NoSpace`]: there are no slabs for some of it.
    async fn drain(&mut self) -> Result<(), PoolError> {
        self.retries.wake();
        self.round.draining = Some(self.slice.log.journal.peek_sequence());
        // From the first step of a round on, until a whole round does nothing.
        (self.round.turn, self.round.did) = (Turn::Lend, false);
        let mut waits = 0;
        loop {
            let step = self.decide().await?;
            match self.carry_out(step).await? {
                Outcome::Idle if self.is_short() || !self.lacks_slabs() || waits == DRAIN_WAITS => break,
                // Slabs are about to come. What waits for them went back to the end of the queue.
                Outcome::Idle => {
                    waits += 1;
                    self.slice.world().sleep(PRESSED_TICK).await;
                    self.round.draining = Some(self.slice.log.journal.peek_sequence());
                }
                Outcome::Did | Outcome::Stop => self.slice.world().yield_now().await,
            }
        }
        let is_left = self.lacks_slabs();
        // NOTE: sealed before the checkpoint, which then holds these segments as ones that nothing is added to.
        self.round.draining = None;
        let generation = self.first_without();
        self.rows.data.seal(&self.slice.segments, generation);
        self.rows.cleaned.seal(&self.slice.segments, generation);
        self.checkpoint().await?;
        if is_left { Err(PoolError::NoSpace) } else { Ok(()) }
    }

    /// Does the same, and seals the segment that metadata is added to: the checkpoint then opens another.
    async fn seal(&mut self) -> Result<(), PoolError> {
        self.drain().await?;
        let generation = self.first_without();
        self.rows.meta.seal(&self.slice.segments, generation);
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
        while let Some(generation) = self.checkpoints.settle(&slice.segments) {
            // NOTE: shards are locked before layers, so layers are not locked here. No new layer gets these ids
            // meanwhile.
            let found = slice.forks.read().ids.take_found(generation);
            if let Some(found) = found {
                let buffered = slice.buffer.held_of(&found.iter().copied().collect());
                slice.forks.read().ids.free(found, &buffered);
            }
            self.tree.forget_passed(slice.segments.readers());
            slice.counters.held.freed_pages_ram_bytes.set(self.tree.freed_ram_bytes());
        }
        if slice.segments.reclaim(self.checkpoints.durable()) {
            slice.log.progress().notify();
        }
    }

    /// As [`Checkpoints::first_without`].
    pub(crate) fn first_without(&self) -> CheckpointGeneration {
        self.checkpoints.first_without()
    }

    /// Tells the space gauge what is taken. What was published is counted here before it leaves the buffer: in between
    /// it counts twice, never not at all.
    pub(crate) fn count_space(&self) {
        let usage = self.slice.segments.table.usage();
        self.slice.count_reserved();
        let metadata = usage.live_meta + self.slice.metadata.pages.unplaced_bytes();
        self.slice.space.update(usage.net_live_data, metadata, usage.table_slabs);
    }

    /// Notes that destage has blocks to write: from now on it may wait for the cleaner again.
    pub(super) fn destages(&mut self) {
        self.yielded = 0;
    }

    /// Tells writers that wait and the space gauge what a commit changed.
    pub(crate) fn committed(&self) {
        let slice = &self.slice;
        slice.metadata.pages.make_room(0);
        slice.counters.held.freed_pages_ram_bytes.set(self.tree.freed_ram_bytes());
        self.count_space();
        slice.counters.progress.committed();
        slice.log.progress().notify();
    }
}

enum Outcome {
    Did,
    Idle,
    Stop,
}
