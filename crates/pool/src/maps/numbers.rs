//! Block numbers lent to data threads, which name them in the heads of rows before the committer knows of the blocks.
//!
//! 1. A lent number is free in the block table, and the committer takes it for nothing else.
//! 2. It stays lent until its block is published, or comes back when the block is overwritten or given up before that.
//! 3. A crash gives all of them back: the table still has them free.

use hashbrown::HashSet;
use quoin_base::BlockNumber;
use quoin_world::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};
use rustc_hash::FxBuildHasher;
use std::collections::VecDeque;

#[derive(Default)]
struct Lent {
    /// Those not taken by a write.
    ready: VecDeque<BlockNumber>,
    all: HashSet<BlockNumber, FxBuildHasher>,
}

pub(crate) struct Numbers {
    lent: Mutex<Lent>,
    /// How many are to be ready.
    target: usize,
    is_short: AtomicBool,
}

impl Numbers {
    pub(crate) fn new(target: usize) -> Self {
        Self { lent: Mutex::default(), target, is_short: AtomicBool::new(false) }
    }

    /// So many numbers; `None` if there are not as many.
    pub(crate) fn take(&self, count: usize) -> Option<Vec<BlockNumber>> {
        let mut lent = self.lent.lock();
        if lent.ready.len() < count + self.target / 2 {
            self.is_short.store(true, Ordering::Release);
        }
        (count <= lent.ready.len()).then(|| lent.ready.drain(..count).collect())
    }

    /// Whether more are wanted.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Acquire)
    }

    /// The number may be taken by another write: its block was overwritten or given up before it was published.
    pub(crate) fn give_back(&self, number: BlockNumber) {
        let mut lent = self.lent.lock();
        assert!(lent.all.contains(&number), "number {number} comes back, and was not lent");
        lent.ready.push_back(number);
    }

    /// The number is in the block table from now on.
    pub(crate) fn published(&self, number: BlockNumber) {
        let was_lent = self.lent.lock().all.remove(&number);
        assert!(was_lent, "number {number} is published, and was not lent");
    }

    pub(crate) fn is_lent(&self, number: BlockNumber) -> bool {
        self.lent.lock().all.contains(&number)
    }

    /// Whether as many are ready as shall be. From then on none are wanted until writes have taken half of them.
    pub(crate) fn has_enough(&self) -> bool {
        let has_enough = self.lent.lock().ready.len() >= self.target;
        if has_enough {
            self.is_short.store(false, Ordering::Release);
        }
        has_enough
    }

    /// Lends a number that is free in the block table, and that the committer takes for nothing else.
    pub(crate) fn lend(&self, number: BlockNumber) {
        let mut lent = self.lent.lock();
        let is_new = lent.all.insert(number);
        assert!(is_new, "number {number} is lent already");
        lent.ready.push_back(number);
    }

    /// How many numbers are lent: all free in the block table.
    pub(crate) fn count(&self) -> u64 {
        self.lent.lock().all.len() as u64
    }
}
