//! What is read ahead for streams: content of blocks, by block number, until a host reads it.
//!
//! Invariants, those of the read cache where they are alike:
//!
//! 1. A block number names content that never changes, so an entry is either right or of a number that was freed. Writes,
//!    unmaps, forks and the cleaner do not concern it: each read finds in the thin map of its own moment what it wants.
//! 2. No entry outlives its number. Freeing a number purges it. Whoever reads ahead looks it up, enters it here and reads its
//!    place in one reader epoch, and a number is given out again only when that has passed; giving it out purges it once more.
//! 3. What a host gets was verified.
//! 4. What is held, and what is on its way, stays within the budget. A block goes once its end was read. What nobody reads
//!    makes way for what is read ahead later, if it is not too young: streams that do not find room read as they would
//!    without.

use crate::{
    bugs::{Bug, planted},
    host::streams::Streams,
};
use quoin_base::{BlockNumber, metrics::Counter};
use quoin_world::{
    Event, Mutex, Nanos, Slice as Bytes,
    atomic::{AtomicU64, Ordering},
};
use rustc_hash::FxHashMap;
use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

const SHARDS: usize = 16;
/// What was read ahead makes way once it is so old.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// Runs listed before it is worth looking which of them are gone.
const SWEPT_FROM: usize = 64;

#[derive(Default)]
struct Figures {
    ram_bytes: AtomicU64,
    read_bytes: Counter,
    unused_bytes: Counter,
}

/// Blocks that are read ahead in one operation.
struct Run {
    numbers: Vec<BlockNumber>,
    /// What each of them holds, once it was read; `None`, or nothing at all: that is not known.
    contents: OnceLock<Vec<Option<Bytes>>>,
    read: Event,
    ram_bytes: u64,
    taken_bytes: AtomicU64,
    begun: Nanos,
    figures: Arc<Figures>,
}

impl Drop for Run {
    fn drop(&mut self) {
        let read = self.contents.get().into_iter().flatten().flatten().map(|content| content.len() as u64);
        let unused = read.sum::<u64>().saturating_sub(self.taken_bytes.load(Ordering::Relaxed));
        self.figures.unused_bytes.add(unused);
        self.figures.ram_bytes.fetch_sub(self.ram_bytes, Ordering::Relaxed);
    }
}

/// A run that is being read: readers that wait for it go on, however that ends.
pub(super) struct Reading(Arc<Run>);

impl Reading {
    pub(super) fn done(&self, contents: Vec<Option<Bytes>>) {
        let read = contents.iter().flatten().map(|content| content.len() as u64);
        self.0.figures.read_bytes.add(read.sum());
        let _ = self.0.contents.set(contents);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let _ = self.0.contents.set(Vec::new());
        self.0.read.notify();
    }
}

/// A block that was read ahead, or is being read.
pub(crate) struct Ahead {
    run: Arc<Run>,
    at: usize,
}

impl Ahead {
    /// Its content, once it was read; `None`: it could not be.
    pub(crate) async fn content(&self) -> Option<Bytes> {
        let content = || self.run.contents.get().map(|contents| contents.get(self.at).cloned().flatten());
        match content() {
            Some(content) => content,
            None => self.run.read.until(content).await,
        }
    }
}

type Blocks = FxHashMap<BlockNumber, (Arc<Run>, usize)>;

/// Runs in the order in which they were begun, with some that are gone.
#[derive(Default)]
struct Runs {
    begun: VecDeque<Weak<Run>>,
    /// How many there were of those that were not gone, when last looked.
    known: usize,
}

impl Runs {
    fn push(&mut self, run: &Arc<Run>) {
        // What is gone takes RAM as long as it is listed.
        if self.begun.len() >= 2 * self.known + SWEPT_FROM {
            self.begun.retain(|run| run.strong_count() > 0);
            self.known = self.begun.len();
        }
        self.begun.push_back(Arc::downgrade(run));
    }
}

pub(crate) struct ReadAhead {
    pub(crate) streams: Streams,
    blocks: [Mutex<Blocks>; SHARDS],
    runs: Mutex<Runs>,
    budget_bytes: u64,
    figures: Arc<Figures>,
    /// Tasks that read ahead, and whether there may be more.
    pub(super) tasks: Mutex<(usize, bool)>,
    pub(super) ended: Event,
}

impl ReadAhead {
    /// With room for `budget_bytes`; 0: nothing is read ahead.
    pub(crate) fn new(data_threads: usize, budget_bytes: u64, block_bytes: u64) -> Self {
        Self {
            streams: Streams::new(data_threads, budget_bytes, block_bytes),
            blocks: [const { Mutex::new(FxHashMap::with_hasher(rustc_hash::FxBuildHasher)) }; SHARDS],
            runs: Mutex::default(),
            budget_bytes,
            figures: Arc::default(),
            tasks: Mutex::new((0, true)),
            ended: Event::new(),
        }
    }

    fn shard(&self, number: BlockNumber) -> &Mutex<Blocks> {
        &self.blocks[(number.0 / 64) as usize % SHARDS]
    }

    /// A block, if it was or is being read ahead. `is_end`: it is not wanted again. The caller is in a reader epoch and has
    /// just found the number in a thin map.
    pub(crate) fn take(&self, number: BlockNumber, is_end: bool) -> Option<Ahead> {
        let mut blocks = self.shard(number).lock();
        let (run, at) = if is_end { blocks.remove(&number) } else { blocks.get(&number).cloned() }?;
        Some(Ahead { run, at })
    }

    /// Counts what a host got.
    pub(crate) fn used(&self, ahead: &Ahead, content: &Bytes) {
        ahead.run.taken_bytes.fetch_add(content.len() as u64, Ordering::Relaxed);
    }

    pub(super) fn has(&self, number: BlockNumber) -> bool {
        self.shard(number).lock().contains_key(&number)
    }

    /// Forgets a block: its number was freed, or is about to be used again.
    pub(crate) fn purge(&self, number: BlockNumber) {
        if self.figures.ram_bytes.load(Ordering::Acquire) > 0 && !planted(Bug::StaleAhead) {
            self.shard(number).lock().remove(&number);
        }
    }

    /// Enters blocks that are about to be read; `None`: there is no room. The caller is in the reader epoch in which it
    /// looked the numbers up, and stays until they are read.
    pub(super) fn begin(&self, numbers: Vec<BlockNumber>, ram_bytes: u64, now: Nanos) -> Option<Reading> {
        let mut runs = self.runs.lock();
        while self.figures.ram_bytes.load(Ordering::Relaxed) + ram_bytes > self.budget_bytes {
            let Some(oldest) = runs.begun.pop_front()?.upgrade() else { continue };
            if now.since(oldest.begun) < KEPT_FOR {
                runs.begun.push_front(Arc::downgrade(&oldest));
                return None;
            }
            self.forget(&oldest);
        }
        self.figures.ram_bytes.fetch_add(ram_bytes, Ordering::AcqRel);
        let run = Arc::new(Run {
            numbers,
            contents: OnceLock::new(),
            read: Event::new(),
            ram_bytes,
            taken_bytes: AtomicU64::new(0),
            begun: now,
            figures: self.figures.clone(),
        });
        runs.push(&run);
        drop(runs);
        for (at, number) in run.numbers.iter().enumerate() {
            self.shard(*number).lock().insert(*number, (run.clone(), at));
        }
        Some(Reading(run))
    }

    fn forget(&self, run: &Arc<Run>) {
        for number in &run.numbers {
            let mut blocks = self.shard(*number).lock();
            if blocks.get(number).is_some_and(|(of, _)| Arc::ptr_eq(of, run)) {
                blocks.remove(number);
            }
        }
    }

    /// Lets nothing more be read ahead, and waits for what is. The store was closed.
    pub(crate) async fn end(&self) {
        self.tasks.lock().1 = false;
        self.ended.until(|| (self.tasks.lock().0 == 0).then_some(())).await;
    }

    /// RAM that it takes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.figures.ram_bytes.load(Ordering::Relaxed)
    }

    /// What was read ahead.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.figures.read_bytes.value()
    }

    /// What of it went without having been wanted.
    pub(crate) fn unused_bytes(&self) -> u64 {
        self.figures.unused_bytes.value()
    }
}

#[cfg(test)]
#[path = "ahead/tests.rs"]
mod tests;
