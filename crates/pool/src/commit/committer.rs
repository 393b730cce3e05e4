//! The committer: the one task that changes a slice's metadata.
//!
//! It destages what is buffered, gives back what deleted volumes held, cleans segments and makes
//! checkpoints, one thing at a time, so that a checkpoint always lies between two whole transactions.
//! What it does next is decided from figures alone, most urgent first; between steps it lets others run.

use crate::{
    buffer::BlockKey,
    error::PoolError,
    fork::{SETTLES_AFTER, layer::Layer},
    format::PAGE_BYTES,
    host::pace::SLOW_FROM,
    lifecycle::slice::Slice,
    maps::freed::FreedPages,
    meta::{PageId, Stream},
    segment::rows::{Row, RowWriter},
    store::health::Health,
};
use futures_util::{
    StreamExt,
    future::{Either, select},
    stream,
};
use quoin_base::Sequence;
use quoin_world::{
    Event, Mutex, Nanos, OneShotSender,
    atomic::{AtomicBool, Ordering},
    one_shot,
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    pin::pin,
    sync::Arc,
    time::Duration,
};

/// How often it looks around when nobody asks for anything.
const TICK: Duration = Duration::from_millis(500);
/// And while a fork waits for what is buffered.
const PENDING_TICK: Duration = Duration::from_millis(50);
/// And when writers are waiting or about to.
const PRESSED_TICK: Duration = Duration::from_millis(2);
/// How often the journal's tail is looked for while the journal is filling up.
const TAIL_LOOK_AFTER: Duration = Duration::from_millis(5);
/// How often in a row destage waits for the cleaner to find slabs.
const LONGEST_YIELD: u32 = 64;

/// What may be asked of the committer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// Make a checkpoint.
    Checkpoint,
    /// Destage everything acknowledged so far, then make a checkpoint.
    Drain,
    /// Have the next checkpoint write a page anew that is in RAM.
    Rewrite(PageId),
    /// Stop.
    Stop,
}

type Answer = Result<(), PoolError>;

/// Requests to the committer, and hints.
pub(crate) struct Requests {
    queue: Mutex<VecDeque<(Request, OneShotSender<Answer>)>>,
    wake: Arc<Event>,
    nudged: AtomicBool,
    hurry: AtomicBool,
    catalog_changed: AtomicBool,
    ended: AtomicBool,
}

impl Requests {
    pub(crate) fn new(health: &Health) -> Self {
        let wake = Arc::new(Event::new());
        health.wake_also(wake.clone());
        Self {
            queue: Mutex::default(),
            wake,
            nudged: AtomicBool::new(false),
            hurry: AtomicBool::new(false),
            catalog_changed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// Asks, and waits for the answer. `None`: the committer has ended.
    pub(crate) async fn make(&self, request: Request) -> Option<Answer> {
        let (sender, answer) = one_shot();
        {
            let mut queue = self.queue.lock();
            if self.ended.load(Ordering::Acquire) {
                return None;
            }
            queue.push_back((request, sender));
        }
        self.wake.notify();
        answer.await
    }

    /// Says that there may be something to do.
    pub(crate) fn nudge(&self) {
        if !self.nudged.swap(true, Ordering::AcqRel) {
            self.wake.notify();
        }
    }

    /// Says that a writer waits for buffered blocks to be destaged.
    pub(crate) fn hurry(&self) {
        self.hurry.store(true, Ordering::Release);
        self.nudge();
    }

    /// Says that a destage has begun that takes in what a writer waited for.
    pub(crate) fn not_in_a_hurry(&self) {
        self.hurry.store(false, Ordering::Release);
    }

    pub(crate) fn catalog_changed(&self) {
        self.catalog_changed.store(true, Ordering::Release);
        self.nudge();
    }

    fn end(&self) {
        let mut queue = self.queue.lock();
        self.ended.store(true, Ordering::Release);
        queue.clear();
    }
}

/// The committer's own state: counters that checkpoints record, cursors, open segments.
pub(crate) struct Committer {
    pub(crate) slice: Arc<Slice>,
    /// Generation of the last durable checkpoint.
    pub(crate) generation: u64,
    pub(crate) tree_end: u64,
    pub(crate) tree_free: u64,
    pub(crate) tree_cursor: u64,
    /// Page numbers of the tree space that came free.
    pub(crate) freed_pages: FreedPages,
    /// The layer whose list is being looked through.
    pub(crate) sifting: Option<Arc<Layer>>,
    pub(crate) blocks_end: u64,
    pub(crate) blocks_free: u64,
    pub(crate) block_cursor: u64,
    pub(crate) sweeping: bool,
    /// Block numbers freed for a checkpoint up to this one may be used again.
    pub(crate) reusable: u64,
    /// Durable checkpoints whose readers may not all have left: generation and reader epoch.
    pub(crate) settling: VecDeque<(u64, u64)>,
    pub(crate) data_rows: RowWriter,
    pub(crate) cleaned_rows: RowWriter,
    pub(crate) meta_rows: RowWriter,
    pub(crate) table_rows: RowWriter,
    pub(crate) catalog_pages: u64,
    /// The next checkpoint writes the whole segment table, for it is spread over too many segments.
    pub(crate) gathers_table: bool,
    /// Segments the cleaner cannot walk, and their generations.
    pub(crate) uncleanable: BTreeMap<u32, u32>,
    /// Blocks that could not be completed because a drive failed to read, how often that was tried, and since when.
    pub(crate) unread: BTreeMap<BlockKey, (u32, Nanos)>,
    /// Blocks that destage tried one after the other without reading one.
    pub(crate) tried_in_vain: u64,
    /// Segments whose pages the next checkpoint moves elsewhere.
    pub(crate) cleaned_metadata: BTreeSet<u32>,
    pub(crate) last_checkpoint: Nanos,
    /// How often destage waited for the cleaner in a row.
    pub(crate) yielded: u32,
    /// When the journal's tail was last looked for.
    tail_looked: Nanos,
    /// When which sequence was next, to know what has grown old.
    ages: VecDeque<(Nanos, Sequence)>,
}

/// What a committer starts from, as the root has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub generation: u64,
    pub tree_end: u64,
    pub tree_free: u64,
    pub blocks_end: u64,
    pub blocks_free: u64,
    pub catalog_pages: u64,
}

impl Committer {
    pub(crate) fn new(slice: Arc<Slice>, start: Start) -> Self {
        let last_checkpoint = slice.world.now();
        let sifting = slice.layers.read().sifting();
        Self {
            slice,
            generation: start.generation,
            tree_end: start.tree_end,
            tree_free: start.tree_free,
            tree_cursor: 1,
            freed_pages: FreedPages::default(),
            sifting,
            blocks_end: start.blocks_end,
            blocks_free: start.blocks_free,
            block_cursor: 1,
            sweeping: false,
            reusable: start.generation,
            settling: VecDeque::new(),
            data_rows: RowWriter::new(Stream::Data),
            cleaned_rows: RowWriter::new(Stream::Cleaned),
            meta_rows: RowWriter::new(Stream::Meta),
            table_rows: RowWriter::new(Stream::Table),
            catalog_pages: start.catalog_pages,
            gathers_table: false,
            uncleanable: BTreeMap::new(),
            unread: BTreeMap::new(),
            tried_in_vain: 0,
            cleaned_metadata: BTreeSet::new(),
            last_checkpoint,
            yielded: 0,
            tail_looked: last_checkpoint,
            ages: VecDeque::new(),
        }
    }

    /// Runs until asked to stop or until the pool fails.
    pub(crate) async fn run(mut self) {
        let slice = self.slice.clone();
        loop {
            match self.step().await {
                Ok(Step::Did) => slice.world.yield_now().await,
                Ok(Step::Idle) => self.wait().await,
                Ok(Step::Stop) => break,
                Err(error) => {
                    slice.store.health().fail(error.to_string());
                    break;
                }
            }
            if slice.store.health().is_failed() {
                break;
            }
        }
        slice.requests.end();
    }

    async fn wait(&self) {
        let requests = &self.slice.requests;
        let asked = requests.wake.until(|| {
            let asked = requests.nudged.swap(false, Ordering::AcqRel)
                || !requests.queue.lock().is_empty()
                || self.slice.store.health().is_failed();
            asked.then_some(())
        });
        // A writer that waits may wait for a batch to harden, of which nobody tells the committer.
        let pressed = requests.hurry.load(Ordering::Acquire) || self.slice.fill(0) > SLOW_FROM;
        let tick = match pressed {
            true => PRESSED_TICK,
            false if !self.slice.layers.read().pending.is_empty() => PENDING_TICK,
            false => TICK,
        };
        let tick = self.slice.world.sleep(tick);
        match select(pin!(asked), tick).await {
            Either::Left(_) | Either::Right(_) => {}
        }
    }

    async fn step(&mut self) -> Result<Step, PoolError> {
        let slice = self.slice.clone();
        self.settle();
        self.let_readers_leave().await;
        let request = slice.requests.queue.lock().pop_front();
        if let Some((request, answer)) = request {
            let outcome = match request {
                Request::Checkpoint => self.checkpoint().await,
                Request::Drain => self.drain().await,
                Request::Rewrite(page) => {
                    slice.pages.mark_dirty(page);
                    Ok(())
                }
                Request::Stop => {
                    answer.send(Ok(()));
                    return Ok(Step::Stop);
                }
            };
            return match outcome {
                Ok(()) => {
                    answer.send(Ok(()));
                    Ok(Step::Did)
                }
                Err(error) => {
                    slice.store.health().fail(error.to_string());
                    answer.send(Err(slice.store.health().error()));
                    Err(error)
                }
            };
        }
        if self.checkpoint_is_due() {
            self.checkpoint().await?;
            return Ok(Step::Did);
        }
        let lent = self.lend_numbers().await?;
        let forked = self.fork_some();
        let cleaning = self.cleaning_is_due();
        if cleaning {
            slice.placer.seal_idle();
        }
        let mut did = cleaning && self.clean().await?;
        if did && self.destage_yields() {
            return Ok(Step::Did);
        }
        did |= match self.destage_before() {
            Some(before) => self.destage(before).await?,
            None => false,
        };
        did |= forked | lent;
        did |= self.remove_some().await?;
        Ok(if did { Step::Did } else { Step::Idle })
    }

    /// Waits while slabs are tight and a read that takes long keeps freed ones from being used again: going on
    /// would only use up the reserve. A journal without a free extent cannot wait: the read may wait for it.
    async fn let_readers_leave(&mut self) {
        let slice = self.slice.clone();
        let held_up = |generation| {
            let journal = slice.journal.usage();
            slice.segments.usage().free_slabs < slice.space.destage_slabs()
                && slice.segments.awaits_readers(generation)
                && journal.used < journal.total
                && !slice.store.health().is_failed()
        };
        while held_up(self.generation) {
            slice.world.sleep(PRESSED_TICK).await;
            self.settle();
        }
    }

    /// Destages all that is acknowledged now, and makes a checkpoint.
    async fn drain(&mut self) -> Result<(), PoolError> {
        let before = self.slice.journal.peek_sequence();
        loop {
            self.settle();
            self.let_readers_leave().await;
            if self.checkpoint_is_due() {
                self.checkpoint().await?;
            }
            if self.cleaning_is_due() && self.clean().await? && self.destage_yields() {
                continue;
            }
            self.fork_some();
            if !self.destage(before).await? && !self.fork_some() {
                break;
            }
            self.slice.world.yield_now().await;
        }
        self.data_rows.seal(&self.slice.segments, self.generation + 1, &self.slice.readers);
        self.cleaned_rows.seal(&self.slice.segments, self.generation + 1, &self.slice.readers);
        self.checkpoint().await
    }

    /// The sequence up to which blocks are to be destaged now, if any are.
    fn destage_before(&mut self) -> Option<Sequence> {
        self.aged_before().max(self.placed_before())
    }

    /// The same for what holds up the tail though replay would find much placed.
    fn placed_before(&self) -> Option<Sequence> {
        let part = self.slice.most_named_bytes() / 4;
        let many = self.slice.placer.named_bytes() > part;
        many.then(|| self.slice.placer.last_of_oldest(part)).flatten().map(|last| Sequence(last.0 + 1))
    }

    fn aged_before(&mut self) -> Option<Sequence> {
        let slice = &self.slice;
        let (now, next) = (slice.world.now(), slice.journal.peek_sequence());
        if self.ages.back().is_none_or(|(at, s)| *s != next && now.since(*at) >= TICK / 2) {
            self.ages.push_back((now, next));
        }
        if slice.buffer.charged_blocks() == 0 {
            slice.requests.not_in_a_hurry();
        }
        let hurry = slice.requests.hurry.load(Ordering::Acquire);
        let used = slice.fill(0);
        if hurry || used > 0.7 {
            return Some(next);
        }
        if used > 0.25 {
            // The older half: what is overwritten soon may yet be spared.
            let oldest = slice.buffer.oldest().unwrap_or(next);
            return Some(Sequence(oldest.0 + (next.0 - oldest.0.min(next.0)) / 2 + 1));
        }
        let after = match slice.layers.read().pending.is_empty() {
            true => slice.options.destage_after,
            false => slice.options.destage_after.min(SETTLES_AFTER),
        };
        while self.ages.len() > 1 && now.since(self.ages[1].0) >= after {
            self.ages.pop_front();
        }
        self.ages.front().filter(|(since, _)| now.since(*since) >= after).map(|(_, sequence)| *sequence)
    }

    /// What a checkpoint would write now, beside the catalog.
    pub(crate) fn due_bytes(&self) -> u64 {
        let pages = self.slice.pages.due();
        let placed = if self.gathers_table { u64::MAX } else { pages };
        (pages + self.slice.segments.due(placed)) * PAGE_BYTES as u64
    }

    /// Whether a checkpoint has to be made before more becomes due.
    pub(crate) fn is_much_due(&self) -> bool {
        self.due_bytes() >= self.slice.options.dirty_bytes
    }

    fn checkpoint_is_due(&mut self) -> bool {
        let slice = self.slice.clone();
        if self.is_much_due() {
            return true;
        }
        // What was freed since the last checkpoint comes back only with the next; one checkpoint gives back what
        // several cleanings freed.
        let freed = !self.cleaned_metadata.is_empty() || slice.segments.awaits_checkpoint(self.generation);
        if freed && slice.segments.usage().free_slabs < slice.space.checkpoint_below() {
            return true;
        }
        let (journal, now) = (slice.journal.usage(), slice.world.now());
        // Looking for the tail goes through the whole buffer.
        let most_named = slice.most_named_bytes();
        if slice.placer.named_bytes() > most_named / 2 && now.since(self.tail_looked) >= TAIL_LOOK_AFTER {
            self.tail_looked = now;
            let passed = slice.placer.named_below(slice.tail());
            if passed > 0 && passed >= most_named / 4 {
                return true;
            }
        }
        if journal.used * 2 > journal.total && now.since(self.tail_looked) >= TAIL_LOOK_AFTER {
            self.tail_looked = now;
            // Often enough that the journal never fills up, seldom enough that a page that changes all the time
            // is not written all the time.
            let worth = if journal.used * 4 > journal.total * 3 { 1 } else { (journal.total / 8).max(1) };
            if slice.journal.freed_by(slice.tail()) >= worth {
                return true;
            }
        }
        let changed = slice.pages.is_any_dirty() || slice.requests.catalog_changed.load(Ordering::Acquire);
        changed && slice.world.now().since(self.last_checkpoint) >= slice.options.checkpoint_after
    }

    /// What waits for the next checkpoint or for readers is as good as free here.
    fn cleaning_is_due(&self) -> bool {
        let usage = self.slice.segments.usage();
        let coming = usage.awaiting_slabs + self.cleaned_metadata.len() as u64;
        usage.free_slabs + coming < self.slice.space.clean_below()
    }

    /// True when the slabs left are for cleaner and checkpoints, and destage has to wait after a cleaning; but
    /// never for ever.
    fn destage_yields(&mut self) -> bool {
        self.yielded += 1;
        let tight = self.slice.segments.usage().free_slabs < self.slice.space.destage_slabs();
        tight && self.yielded < LONGEST_YIELD
    }

    /// Gives back what durable checkpoints freed and no reader looks at any more.
    pub(crate) fn settle(&mut self) {
        let slice = &self.slice;
        while let Some(&(generation, epoch)) = self.settling.front() {
            if epoch == slice.readers.current() {
                slice.readers.advance();
            }
            if !slice.readers.passed(epoch) {
                break;
            }
            self.reusable = generation;
            self.settling.pop_front();
            self.freed_pages.forget_passed(&slice.readers);
            slice.counters.freed_pages_ram_bytes.store(self.freed_pages.ram_bytes(), Ordering::Relaxed);
        }
        if slice.segments.reclaim(self.generation, &slice.readers) {
            slice.progress.notify();
        }
    }

    /// Notes that a checkpoint is about to hold the catalog as it is.
    pub(crate) fn catalog_taken(&self) {
        self.slice.requests.catalog_changed.store(false, Ordering::Release);
    }

    /// Writes rows: one at a time, or as many as there are drives when writers are pressed for room. With more, durable
    /// writes of the journal would wait in the drives' queues behind them. Returns the bytes written.
    pub(crate) async fn write_rows(&self, rows: Vec<Row>) -> Result<u64, PoolError> {
        let slice = &self.slice;
        let writes: Vec<_> = rows.into_iter().map(|row| row.write(slice)).collect();
        let parallel = if slice.fill(0) > SLOW_FROM { slice.store.drive_count() } else { 1 };
        let mut writes = stream::iter(writes).buffer_unordered(parallel);
        let mut bytes = 0;
        while let Some(written) = writes.next().await {
            bytes += written?;
        }
        Ok(bytes)
    }

    /// Tells the space gauge what is taken. What was published is counted here before it leaves the buffer: in between
    /// it counts twice, never not at all.
    pub(crate) fn count_space(&self) {
        let usage = self.slice.segments.usage();
        self.slice.count_reserved();
        let metadata = usage.live_meta + self.slice.pages.unplaced_bytes();
        self.slice.space.update(usage.live_data, metadata);
    }

    /// Tells writers that wait and the space gauge what a commit changed.
    pub(crate) fn committed(&self) {
        let slice = &self.slice;
        slice.pages.make_room(0);
        slice.counters.freed_pages_ram_bytes.store(self.freed_pages.ram_bytes(), Ordering::Relaxed);
        self.count_space();
        slice.counters.commits.fetch_add(1, Ordering::AcqRel);
        slice.progress.notify();
    }
}

enum Step {
    Did,
    Idle,
    Stop,
}
