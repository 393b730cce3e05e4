//! What waits to be placed, and rows on their way.

use crate::{
    error::PoolError,
    format::{CopySource, Location},
    journal::Batch,
    segment::placed_block::PlacedBlock,
    store::health::Health,
};
use futures_util::{future::BoxFuture, stream::FuturesOrdered};
use quoin_base::{BlockNumber, Layout, SegmentId};
use quoin_world::{
    Event, Mutex, OneShotSender, Slice as Bytes,
    atomic::{AtomicBool, Ordering},
};
use std::{collections::VecDeque, sync::Arc};

/// A whole block to be placed, and its checksum.
pub(crate) struct WholeBlock {
    pub data: Bytes,
    pub crc: u32,
    /// What it is written for: a hint for the cleaner.
    pub address: CopySource,
}

/// Blocks of one write that lie one after the other in a row that is on its way.
pub(super) struct Run {
    pub blocks: Vec<Arc<PlacedBlock>>,
    pub row: Arc<Batch>,
    /// Whose row it is.
    pub thread: usize,
}

/// Where blocks are placed, or nothing if there was no slab for them.
pub(super) type Outcome = Option<Vec<Run>>;

/// A write that waits for its blocks to be placed.
pub(super) struct Waiting {
    /// The tag of the segments that they go to.
    pub layout: Option<Layout>,
    pub blocks: VecDeque<(WholeBlock, BlockNumber)>,
    pub answer: Arc<Answer>,
}

pub(super) struct Answer {
    pub runs: Mutex<Vec<Run>>,
    pub sender: Mutex<Option<OneShotSender<Outcome>>>,
}

impl Answer {
    pub(super) fn send(&self, outcome: Outcome) {
        if let Some(sender) = self.sender.lock().take() {
            sender.send(outcome);
        }
    }

    /// Answers that it failed.
    pub(super) fn fail(&self) {
        drop(self.sender.lock().take());
    }

    pub(super) fn is_sent(&self) -> bool {
        self.sender.lock().is_none()
    }
}

/// The writes that a thread places.
#[derive(Default)]
pub(super) struct Queue {
    pub state: Mutex<QueueState>,
    pub(super) wake: Arc<Event>,
    /// The thread has an open segment.
    pub has_open: AtomicBool,
    /// It is to seal it, if it has nothing to add.
    pub shall_seal: AtomicBool,
    pub ended: Event,
}

#[derive(Default)]
pub(super) struct QueueState {
    pub waiting: VecDeque<Waiting>,
    /// Nothing of it is placed any more.
    pub has_ended: bool,
}

/// Blocks of one write in one row.
pub(super) struct Part {
    pub answer: Arc<Answer>,
    pub blocks: Vec<Arc<PlacedBlock>>,
    pub is_last: bool,
}

impl Part {
    /// Whether the block there is the next of the same write in the same row.
    pub(super) fn is_followed_by(&self, answer: &Arc<Answer>, location: Location) -> bool {
        let last = self.blocks.last().map(|block| block.location);
        Arc::ptr_eq(&self.answer, answer) && last.is_some_and(|last| last.is_followed_by(location))
    }

    /// Tells its write where it is; with the last part the write goes on.
    pub(super) fn tell(self, row: Arc<Batch>, thread: usize) {
        let mut runs = self.answer.runs.lock();
        runs.push(Run { blocks: self.blocks, row, thread });
        if self.is_last {
            self.answer.send(Some(std::mem::take(&mut *runs)));
        }
    }
}

/// A row that landed.
pub(super) struct Landed {
    /// Its blocks keep their places while it is on its way, whatever becomes of the writes.
    pub _blocks: Vec<Arc<PlacedBlock>>,
    /// What its writes were not told yet.
    pub untold: Vec<Part>,
    pub row: Arc<Batch>,
    pub thread: usize,
    pub segment: SegmentId,
    /// Where it ends in the segment.
    pub end: u64,
    pub outcome: Result<(), PoolError>,
}

pub(super) type Flights<'a> = FuturesOrdered<BoxFuture<'a, Landed>>;

impl Queue {
    /// Waits until none of its rows is on its way any more.
    pub(super) async fn until_ended(&self) {
        self.ended.until(|| self.state.lock().has_ended.then_some(())).await;
    }

    /// Has the open segment sealed, if the thread has one and adds nothing to it.
    pub(super) fn seal_idle(&self) {
        if self.has_open.load(Ordering::Acquire) && !self.shall_seal.swap(true, Ordering::AcqRel) {
            self.wake.notify();
        }
    }

    /// The blocks of the next row, once at least so many wait; none, if the open segment is to be sealed. `None` when nothing
    /// is to be placed any more.
    pub(super) async fn next(&self, health: &Health, least: usize, most: usize) -> Option<Vec<Taken>> {
        let next = || {
            if health.is_failed() {
                return Some(None);
            }
            let taken = {
                let waiting = &mut self.state.lock().waiting;
                let blocks = waiting.iter().map(|write| write.blocks.len());
                if blocks.sum::<usize>() >= least { take(waiting, most) } else { Vec::new() }
            };
            let shall_seal = taken.is_empty() && self.shall_seal.swap(false, Ordering::AcqRel);
            (shall_seal || !taken.is_empty()).then_some(Some(taken))
        };
        self.wake.until(next).await
    }
}

/// Blocks of one write that go to a row.
pub(super) struct Taken {
    pub layout: Option<Layout>,
    pub answer: Arc<Answer>,
    pub blocks: Vec<(WholeBlock, BlockNumber)>,
    pub is_last: bool,
}

/// Takes up to `most` blocks off a queue.
pub(super) fn take(waiting: &mut VecDeque<Waiting>, mut most: usize) -> Vec<Taken> {
    let mut taken = Vec::new();
    while most > 0
        && let Some(front) = waiting.front_mut()
    {
        let count = front.blocks.len().min(most);
        most -= count;
        let (layout, answer) = (front.layout, front.answer.clone());
        let blocks = front.blocks.drain(..count).collect();
        let is_last = front.blocks.is_empty();
        taken.push(Taken { layout, answer, blocks, is_last });
        if is_last {
            waiting.pop_front();
        }
    }
    taken
}
