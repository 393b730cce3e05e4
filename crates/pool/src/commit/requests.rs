//! What is asked of the committer, and what it is told.

use crate::{error::PoolError, meta::PageId, store::health::Health};
use quoin_world::{
    Event, Mutex, OneShotSender,
    atomic::{AtomicBool, AtomicU64, Ordering},
    one_shot,
};
use std::{collections::VecDeque, sync::Arc};

/// What may be asked of the committer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// Make a checkpoint.
    Checkpoint,
    /// Destage everything acknowledged so far, then make a checkpoint.
    Drain,
    /// The same, and leave no segment open, of metadata neither.
    Seal,
    /// Free all block numbers that were dropped.
    Merge,
    /// Have the next checkpoint write a page anew that is in RAM.
    Rewrite(PageId),
    /// Stop.
    Stop,
}

pub(super) type Answer = Result<(), PoolError>;

/// Requests to the committer, and hints.
pub(crate) struct Requests {
    pub(super) queue: Mutex<VecDeque<(Request, OneShotSender<Answer>)>>,
    pub(super) wake: Arc<Event>,
    pub(super) nudged: AtomicBool,
    pub(super) hurry: AtomicBool,
    pub(super) catalog_changed: AtomicBool,
    answering: AtomicBool,
    /// How many wait for a checkpoint that was asked for.
    waiting: AtomicU64,
    ended: AtomicBool,
}

/// A request is being carried out, until it is dropped.
pub(super) struct Answering<'a>(&'a AtomicBool);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

fn is_wanted((request, answer): &(Request, OneShotSender<Answer>)) -> bool {
    *request == Request::Stop || !answer.is_abandoned()
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
            answering: AtomicBool::new(false),
            waiting: AtomicU64::new(0),
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
            // While the committer waits for room, those who ask give up, and ask again.
            queue.retain(is_wanted);
            queue.push_back((request, sender));
        }
        self.wake.notify();
        answer.await
    }

    /// The next request. Those that nobody waits for any more are passed over.
    pub(super) fn next(&self) -> Option<(Request, OneShotSender<Answer>)> {
        let mut queue = self.queue.lock();
        queue.retain(is_wanted);
        queue.pop_front()
    }

    /// Says that a request is being carried out.
    pub(super) fn answering(&self) -> Answering<'_> {
        self.answering.store(true, Ordering::Release);
        Answering(&self.answering)
    }

    /// Says that one more waits for a checkpoint.
    pub(super) fn one_waits(&self) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
    }

    /// Says that so many have their checkpoint.
    pub(super) fn answered(&self, count: usize) {
        self.waiting.fetch_sub(count as u64, Ordering::AcqRel);
    }

    /// Whether any request waits for the committer.
    pub(crate) fn is_awaited(&self) -> bool {
        self.answering.load(Ordering::Acquire)
            || self.waiting.load(Ordering::Acquire) > 0
            || self.hurry.load(Ordering::Acquire)
            || !self.queue.lock().is_empty()
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

    /// Says that a destage has begun that takes in what a writer waited for, if one did. True if so.
    pub(crate) fn not_in_a_hurry(&self) -> bool {
        self.hurry.swap(false, Ordering::AcqRel)
    }

    /// Says that this destage did nothing for the writer. The committer tries again in its own time.
    pub(super) fn still_in_a_hurry(&self) {
        self.hurry.store(true, Ordering::Release);
    }

    pub(crate) fn catalog_changed(&self) {
        self.catalog_changed.store(true, Ordering::Release);
        self.nudge();
    }

    pub(super) fn end(&self) {
        let mut queue = self.queue.lock();
        self.ended.store(true, Ordering::Release);
        queue.clear();
    }
}
