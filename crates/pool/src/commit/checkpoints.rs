//! Checkpoints as the committer counts them: the last durable one, the one under way, and those that have yet to settle.
//!
//! Invariants:
//! 1. One checkpoint is under way at a time, and has the generation after the last durable one.
//! 2. What is given up is not in the first checkpoint that is cut afterwards: see [`Checkpoints::first_without`].
//! 3. A checkpoint settles when it is durable and all readers from before have left: what was given up for it may be used again.
//!    Checkpoints settle in the order in which they became durable.

use crate::{
    bugs::{Bug, planted},
    commit::{flight::Flight, requests::Answer},
    segment::{readers::ReaderEpoch, segments::Segments},
};
use quoin_base::CheckpointGeneration;
use quoin_world::{Nanos, OneShotSender};
use std::{collections::VecDeque, time::Duration};

/// The checkpoints of a slice.
pub(crate) struct Checkpoints {
    /// Generation of the last durable checkpoint, and of the last that was cut: the next one, while that is under way.
    durable: CheckpointGeneration,
    cut: CheckpointGeneration,
    /// The checkpoint that is under way.
    flight: Option<Flight>,
    /// Requests for a checkpoint that is cut after the request.
    wanted: Vec<OneShotSender<Answer>>,
    /// What was freed for a checkpoint up to this one may be used again.
    settled: CheckpointGeneration,
    /// Durable checkpoints whose readers may not all have left: generation and reader epoch.
    settling: VecDeque<(CheckpointGeneration, ReaderEpoch)>,
    /// When the last one became durable.
    last: Nanos,
}

impl Checkpoints {
    /// The one of this generation is durable.
    pub(super) fn new(durable: CheckpointGeneration, now: Nanos) -> Self {
        Self {
            durable,
            cut: durable,
            flight: None,
            wanted: Vec::new(),
            settled: durable,
            settling: VecDeque::new(),
            last: now,
        }
    }

    /// Generation of the last durable checkpoint.
    pub(crate) fn durable(&self) -> CheckpointGeneration {
        self.durable
    }

    /// Block numbers freed for a checkpoint up to this one may be used again.
    pub(crate) fn settled(&self) -> CheckpointGeneration {
        self.settled
    }

    /// The first checkpoint without what is given up now. The last checkpoint that was cut still holds it,
    /// whether that one is durable or under way. What is given up is reused only when the first checkpoint
    /// without it is durable.
    pub(crate) fn first_without(&self) -> CheckpointGeneration {
        let last_with = if planted(Bug::FreeForFlight) { self.durable } else { self.cut };
        last_with.next()
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.flight.is_some()
    }

    /// The segments to which the one under way writes: heads of their rows may not be there yet.
    pub(super) fn unwritten(&self) -> impl Iterator<Item = u32> {
        self.flight.iter().flat_map(|flight| flight.segments().iter().copied())
    }

    /// For how long none became durable.
    pub(super) fn age(&self, now: Nanos) -> Duration {
        now.since(self.last)
    }

    /// Notes a request, which a checkpoint answers that is cut from now on.
    pub(super) fn want(&mut self, answer: OneShotSender<Answer>) {
        self.wanted.push(answer);
    }

    pub(super) fn is_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Notes that the next one was cut. `start` carries it out, and is given the requests that it answers.
    pub(super) fn begin(&mut self, start: impl FnOnce(Vec<OneShotSender<Answer>>) -> Flight) {
        assert!(self.flight.is_none(), "one checkpoint is under way at a time");
        let flight = start(std::mem::take(&mut self.wanted));
        self.cut = flight.generation;
        self.flight = Some(flight);
    }

    /// The one under way, if it has ended: it is under way no more.
    pub(super) fn take_ended(&mut self) -> Option<Flight> {
        self.flight.take_if(|flight| flight.outcome.lock().is_some())
    }

    /// Waits until the one under way has ended, if there is one.
    pub(super) async fn ended(&self) {
        if let Some(flight) = &self.flight {
            flight.ended().await;
        }
    }

    /// Notes that the one that was under way is durable. It settles once readers of this epoch have left.
    pub(super) fn landed(&mut self, generation: CheckpointGeneration, reader_epoch: ReaderEpoch, now: Nanos) {
        assert!(
            generation == self.durable.next() && generation == self.cut,
            "checkpoint {generation} landed, {} was durable and {} cut",
            self.durable,
            self.cut
        );
        self.durable = generation;
        self.last = now;
        self.settling.push_back((generation, reader_epoch));
    }

    /// The next durable one, if no reader is left from before it: it is settled.
    pub(super) fn settle(&mut self, segments: &Segments) -> Option<CheckpointGeneration> {
        let &(generation, epoch) = self.settling.front()?;
        if !segments.readers_left(epoch) {
            return None;
        }
        assert!(
            self.settled < generation && generation <= self.durable,
            "checkpoint {generation} settles after {}, with {} durable",
            self.settled,
            self.durable
        );
        self.settled = generation;
        self.settling.pop_front();
        Some(generation)
    }
}
