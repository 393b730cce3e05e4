//! A gate in front of something that many use at once, and some must have for themselves.
//!
//! Invariants:
//! 1. From the end of [`Gate::close`] to its [`Gate::open`] nobody is inside. Several may close the gate at the same
//!    time, which keeps only visitors out, not one another: it is open again once each has opened it.
//! 2. While someone inside has a range alone, nobody else inside has a range that overlaps it.
//! 3. Of two whose ranges keep one another out, the one that came first goes first: nobody starves.
//! 4. A place, whether inside or still in the queue, is given up when its [`GatePass`] or future is dropped.
//! 5. Nobody waits for anybody who came later. Since each has one range, there is no deadlock, unless someone inside
//!    waits to come in once more.
//!
//! Most come while nobody has a range alone. They only count themselves in and out ([`Gate::count_in`]), and
//! the gate does not know their ranges. The first that wants a range alone makes the gate *watched*: whoever comes from
//! then on queues with a range, and the first one waits until those that were only counted have left.

use crate::{
    Event, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};
use quoin_base::ByteRange;
use std::collections::VecDeque;

/// Lets many in at once, or one alone to a range; who closes it has them all outside.
#[derive(Default)]
pub struct Gate {
    /// Those inside who are only counted.
    counted: AtomicU64,
    /// Whoever comes has to queue: the gate is closed, or someone has, or wants, a range alone.
    watched: AtomicBool,
    queue: Mutex<Queue>,
    changed: Event,
}

#[derive(Default)]
struct Queue {
    /// How many hold it closed.
    closed: u64,
    next_ticket: u64,
    /// Inside or waiting, in the order in which they came.
    places: VecDeque<Place>,
}

struct Place {
    ticket: u64,
    range: ByteRange,
    alone: bool,
    inside: bool,
}

/// Someone inside, until it is dropped.
pub struct GatePass<'a> {
    gate: &'a Gate,
    /// Of its place in the queue; none if it is only counted.
    ticket: Option<u64>,
}

impl Place {
    fn keeps_out(&self, other: &Place) -> bool {
        (self.alone || other.alone) && self.range.overlaps(&other.range)
    }
}

impl Queue {
    fn is_watched(&self) -> bool {
        self.closed > 0 || self.places.iter().any(|place| place.alone)
    }

    /// Lets a place in if it is its turn.
    fn admit(&mut self, ticket: u64, counted: &AtomicU64) -> bool {
        let Some(at) = self.places.iter().position(|place| place.ticket == ticket) else {
            unreachable!("a place is in the queue until its pass is dropped")
        };
        let place = &self.places[at];
        let is_free = !self.places.iter().take(at).any(|earlier| earlier.keeps_out(place));
        // NOTE: `watched` was set before this is read, so nobody is counted in unseen after it was 0.
        let admitted = self.closed == 0 && is_free && (!place.alone || counted.load(SeqCst) == 0);
        self.places[at].inside |= admitted;
        admitted
    }
}

impl Drop for GatePass<'_> {
    fn drop(&mut self) {
        match self.ticket {
            // Whoever waits for the counted looks at `counted` after `watched` is set, so one of the two sees the other.
            None => {
                if self.gate.counted.fetch_sub(1, SeqCst) == 1 && self.gate.watched.load(SeqCst) {
                    self.gate.changed.notify();
                }
            }
            Some(ticket) => {
                let mut queue = self.gate.queue.lock();
                queue.places.retain(|place| place.ticket != ticket);
                self.gate.watched.store(queue.is_watched(), SeqCst);
                drop(queue);
                self.gate.changed.notify();
            }
        }
    }
}

impl Gate {
    /// Waits while the gate is closed, or someone who came earlier has `range` or a part of it alone, then goes in.
    pub async fn enter(&self, range: ByteRange) -> GatePass<'_> {
        match self.count_in() {
            Some(pass) => pass,
            // Boxed, since it is rare: every write's future would have room for it.
            None => Box::pin(self.queue(range, false)).await,
        }
    }

    /// Goes in only counted, unless the gate is watched.
    fn count_in(&self) -> Option<GatePass<'_>> {
        self.counted.fetch_add(1, SeqCst);
        let pass = GatePass { gate: self, ticket: None };
        (!self.watched.load(SeqCst)).then_some(pass)
    }

    /// Goes in when nobody who came earlier has a part of `range`, and keeps all others out of it.
    pub async fn enter_alone(&self, range: ByteRange) -> GatePass<'_> {
        self.queue(range, true).await
    }

    async fn queue(&self, range: ByteRange, alone: bool) -> GatePass<'_> {
        let ticket = {
            let mut queue = self.queue.lock();
            let ticket = queue.next_ticket;
            queue.next_ticket += 1;
            queue.places.push_back(Place { ticket, range, alone, inside: false });
            // IMPORTANT: under the lock, or one who leaves could unset it again.
            self.watched.store(queue.is_watched(), SeqCst);
            ticket
        };
        let pass = GatePass { gate: self, ticket: Some(ticket) };
        self.changed.until(|| self.queue.lock().admit(ticket, &self.counted).then_some(())).await;
        pass
    }

    /// Lets nobody in any more, and returns when the last one has left. The gate counts as closed from the first poll
    /// on: a caller that gives up while it waits has to open it all the same.
    pub async fn close(&self) {
        {
            let mut queue = self.queue.lock();
            queue.closed += 1;
            self.watched.store(true, SeqCst);
        }
        let is_empty = || {
            let someone_queued = self.queue.lock().places.iter().any(|place| place.inside);
            (!someone_queued && self.counted.load(SeqCst) == 0).then_some(())
        };
        self.changed.until(is_empty).await;
    }

    /// Lets everyone in again, unless somebody else holds it closed too. Called once for each [`Gate::close`].
    pub fn open(&self) {
        let mut queue = self.queue.lock();
        assert!(queue.closed > 0, "the gate is opened more often than it was closed");
        queue.closed -= 1;
        self.watched.store(queue.is_watched(), SeqCst);
        drop(queue);
        self.changed.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        future::Future,
        pin::{Pin, pin},
        task::{Context, Poll, Waker},
    };

    const ALL: ByteRange = ByteRange { offset: 0, len: u64::MAX };

    fn range(offset: u64, len: u64) -> ByteRange {
        ByteRange::new(offset, len)
    }

    fn now<'a>(entering: impl Future<Output = GatePass<'a>>) -> Option<GatePass<'a>> {
        poll(&mut pin!(entering))
    }

    fn poll<T>(future: &mut Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn it_closes_behind_the_last_one_and_keeps_others_waiting_until_it_opens() {
        let gate = Gate::default();
        let first = now(gate.enter(ALL)).unwrap();
        let mut close = pin!(gate.close());
        assert!(poll(&mut close).is_none());
        let mut second = pin!(gate.enter(ALL));
        let mut alone = pin!(gate.enter_alone(range(0, 1)));
        assert!(poll(&mut second).is_none() && poll(&mut alone).is_none());
        drop(first);
        assert!(poll(&mut close).is_some());
        assert!(poll(&mut second).is_none() && poll(&mut alone).is_none());
        gate.open();
        let second = poll(&mut second).unwrap();
        assert!(poll(&mut alone).is_none());
        drop(second);
        let alone = poll(&mut alone).unwrap();
        let mut close = pin!(gate.close());
        assert!(poll(&mut close).is_none(), "someone is inside alone");
        drop(alone);
        assert!(poll(&mut close).is_some());
    }

    #[test]
    fn it_stays_closed_until_the_last_of_those_who_closed_it_opens_it() {
        let gate = Gate::default();
        assert!(poll(&mut pin!(gate.close())).is_some());
        assert!(poll(&mut pin!(gate.close())).is_some(), "they do not wait for one another");
        let mut visitor = pin!(gate.enter(ALL));
        gate.open();
        assert!(poll(&mut visitor).is_none());
        gate.open();
        assert!(poll(&mut visitor).is_some());
    }

    #[test]
    fn who_is_alone_in_a_range_keeps_others_out_of_it_and_of_nothing_else() {
        let gate = Gate::default();
        let before = now(gate.enter(range(1000, 1))).unwrap();
        let mut alone = pin!(gate.enter_alone(range(10, 10)));
        assert!(poll(&mut alone).is_none(), "nobody knows where those are who came before");
        drop(before);
        let held = poll(&mut alone).unwrap();
        let beside = [now(gate.enter(range(0, 10))), now(gate.enter_alone(range(20, 10)))];
        assert!(beside.iter().all(Option::is_some));
        let mut shared = pin!(gate.enter(range(19, 1)));
        assert!(poll(&mut shared).is_none());
        // Who comes later waits for who waits: whole ranges are not starved by parts, nor parts by whole ranges.
        let mut later = pin!(gate.enter_alone(range(15, 5)));
        let mut last = pin!(gate.enter(range(15, 1)));
        drop(held);
        assert!(poll(&mut later).is_none() && poll(&mut last).is_none());
        drop(poll(&mut shared).unwrap());
        assert!(poll(&mut last).is_none());
        drop(poll(&mut later).unwrap());
        assert!(poll(&mut last).is_some());
        drop(beside);
    }

    #[test]
    fn who_gives_up_leaves_nothing_behind() {
        let gate = Gate::default();
        let held = now(gate.enter_alone(range(0, 10))).unwrap();
        {
            let mut given_up = pin!(gate.enter_alone(range(0, 20)));
            assert!(poll(&mut given_up).is_none());
            assert!(now(gate.enter(range(15, 1))).is_none());
        }
        assert!(now(gate.enter(range(15, 1))).is_some());
        drop(held);
        assert!(!gate.watched.load(SeqCst) && gate.queue.lock().places.is_empty());
        assert!(now(gate.enter(range(0, 10))).is_some());
    }
}
