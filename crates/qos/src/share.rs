//! Limits that volumes have together, and the requests that wait for them.
//!
//! A volume without a group has a share of its own. So all that is decided together is under one lock, and volumes that have
//! nothing to do with one another meet at none.
//!
//! Waiting is fair by start-time fair queueing: a volume moves on by what its requests took, and the volume that is furthest
//! behind is next. A volume that comes back after a rest, or that its own limits held up, begins where the last one was let
//! through, so that neither saves anything up. Lines of one volume take turns in the same way.
//!
//! Invariant: where the last one was let through never goes back.
//!
//! One of the waiting lines holds the timer. It lets through what is due, for all lines, and wakes their sessions.

use crate::{Cost, Limits, meter::Meter, throttle::Counters};
use parking_lot::Mutex;
use quoin_world::{Event, Nanos};
use std::{
    collections::{BTreeMap, VecDeque},
    fmt, mem, ptr,
    sync::Arc,
};

/// A request that is let through late, because a timer is, loses no more than this by it.
const LATE: Nanos = Nanos(10_000_000);

/// A request that waits.
pub(crate) struct Ticket {
    pub(crate) id: u64,
    pub(crate) cost: Cost,
    pub(crate) since: Nanos,
}

/// A line, and what came of its requests.
pub(crate) struct Queue {
    turn: u64,
    waiting: VecDeque<Ticket>,
    /// Those that were let through and that its session does not know of yet, in their order.
    passed: Vec<u64>,
    /// What it waits for may be due earlier than it thinks.
    stirred: bool,
    event: Arc<Event>,
}

impl Queue {
    pub(crate) fn new(event: Arc<Event>) -> Self {
        Self { turn: 0, waiting: VecDeque::new(), passed: Vec::new(), stirred: false, event }
    }

    /// What the first that waits takes.
    fn front(&self, meter: &Meter) -> u64 {
        self.waiting.front().map_or(0, |ticket| meter.weight(ticket.cost))
    }

    fn stir(&mut self) {
        self.stirred = true;
        self.event.notify();
    }
}

/// A volume in a share.
pub(crate) struct Member {
    meter: Meter,
    turn: u64,
    /// Where the line was that was let through last.
    served: u64,
    waiting: Cost,
    queues: BTreeMap<u64, Queue>,
    counters: Arc<Counters>,
}

impl Member {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        let (meter, queues) = (Meter::default(), BTreeMap::new());
        Self { meter, turn: 0, served: 0, waiting: Cost::default(), queues, counters }
    }

    fn waits(&self) -> bool {
        self.waiting.ios > 0
    }

    /// Gives it other limits. What turns are counted in may be another unit then, so all lines begin anew.
    fn retune(&mut self, limits: &[Limits], now: Nanos) {
        if !self.meter.is_of(limits) {
            self.meter = self.meter.retuned(limits, now);
            self.served = 0;
            self.queues.values_mut().for_each(|queue| queue.turn = 0);
        }
    }

    /// Lets the next of its requests through; it has one. The share has been free since `due`. Returns what it took, and since
    /// when it might have passed.
    fn pass(&mut self, due: Nanos, now: Nanos) -> (Cost, Nanos) {
        let due = due.max(self.meter.due());
        let waiting = self.queues.values_mut().filter(|queue| !queue.waiting.is_empty());
        let queue = waiting.min_by_key(|queue| queue.turn).expect("a volume that waits has a line that does");
        let ticket = queue.waiting.pop_front().expect("it was looked at");
        self.served = queue.turn;
        queue.turn += self.meter.weight(ticket.cost);
        if queue.passed.is_empty() {
            queue.event.notify();
        }
        queue.passed.push(ticket.id);
        // Timers are late by a millisecond or two, which is not to be taken off the rate.
        let eligible = due.max(ticket.since).max(Nanos(now.0.saturating_sub(LATE.0)));
        self.meter.take(ticket.cost, eligible);
        self.waiting -= ticket.cost;
        self.counters.ended(now.since(ticket.since));
        (ticket.cost, eligible)
    }

    /// What is before a request that comes to this line now, as this meter weighs it: until its turn the others have as much as
    /// its line has, and one request more.
    fn before(&self, queue: &Queue, meter: &Meter) -> u64 {
        let weigh = |queue: &Queue| queue.waiting.iter().map(|ticket| meter.weight(ticket.cost)).sum();
        let own: u64 = weigh(queue);
        let others = self.queues.values().filter(|other| !ptr::eq(*other, queue));
        others
            .map(|other| own.saturating_add(other.front(meter)).min(weigh(other)))
            .fold(own, u64::saturating_add)
    }
}

/// The line that holds the timer, and until when it sleeps.
struct Timer {
    line: Place,
    until: Nanos,
}

/// A line of a volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    pub(crate) member: u64,
    pub(crate) queue: u64,
}

/// What a line does next.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Tell its session of these.
    Passed(Vec<u64>),
    /// Look again at this moment, for all.
    Sleep(Nanos),
}

#[derive(Default)]
pub(crate) struct State {
    /// The latest moment it heard of.
    now: Nanos,
    meter: Meter,
    members: BTreeMap<u64, Member>,
    /// Where the volume was that was let through last.
    served: u64,
    waiting: Cost,
    timer: Option<Timer>,
}

/// Limits of several volumes together.
#[derive(Default)]
pub struct Share(Mutex<State>);

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Share")
    }
}

impl Share {
    /// A share with these limits, and no volumes yet.
    pub fn new(limits: Limits) -> Arc<Self> {
        let share = Self::default();
        share.retune(limits, Nanos::default());
        Arc::new(share)
    }

    /// Gives it other limits, which hold at once.
    pub fn retune(&self, limits: Limits, now: Nanos) {
        let state = &mut *self.0.lock();
        state.now = state.now.max(now);
        if state.meter.is_of(&[limits]) {
            return;
        }
        state.meter = state.meter.retuned(&[limits], state.now);
        // As for the lines of a volume.
        state.served = 0;
        state.members.values_mut().for_each(|member| member.turn = 0);
        state.stir();
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock())
    }
}

impl State {
    /// Takes a volume in; `now` is the latest moment that is known where it was before.
    pub(crate) fn put(&mut self, id: u64, (mut member, now): (Member, Nanos), limits: &[Limits]) {
        self.now = self.now.max(now);
        member.retune(limits, self.now);
        member.turn = self.served;
        self.waiting += member.waiting;
        self.members.insert(id, member);
        self.stir();
    }

    pub(crate) fn retune_member(&mut self, id: u64, limits: &[Limits], now: Nanos) {
        self.now = self.now.max(now);
        if let Some(member) = self.members.get_mut(&id) {
            member.retune(limits, self.now);
        }
        self.stir();
    }

    /// Gives a volume away, with all that waits for it.
    pub(crate) fn take_out(&mut self, id: u64) -> Option<(Member, Nanos)> {
        let mut member = self.members.remove(&id)?;
        self.waiting -= member.waiting;
        if self.timer.as_ref().is_some_and(|timer| timer.line.member == id) {
            self.timer = None;
        }
        // Its lines find out by themselves where they are now, also the one that sleeps by the timer.
        member.queues.values_mut().for_each(Queue::stir);
        self.hand_over_timer();
        Some((member, self.now))
    }

    pub(crate) fn open(&mut self, place: Place, event: Arc<Event>) {
        if let Some(member) = self.members.get_mut(&place.member) {
            member.queues.insert(place.queue, Queue::new(event));
        }
    }

    /// Forgets a line, with all that waits in it.
    pub(crate) fn close(&mut self, place: Place) {
        let Some(member) = self.members.get_mut(&place.member) else { return };
        let Some(queue) = member.queues.remove(&place.queue) else { return };
        for ticket in &queue.waiting {
            member.waiting -= ticket.cost;
            self.waiting -= ticket.cost;
            member.counters.gave_up();
        }
        self.leave_timer(place);
    }

    /// Takes a request in. True if it passes at once.
    pub(crate) fn admit(&mut self, place: Place, ticket: Ticket) -> bool {
        let now = ticket.since;
        self.release(now);
        let served = self.served;
        let Some(member) = self.members.get_mut(&place.member) else { return true };
        let was_waiting = member.waits();
        let (due, member_served) = (self.meter.due().max(member.meter.due()), member.served);
        let Some(queue) = member.queues.get_mut(&place.queue) else { return true };
        let is_first = !was_waiting && queue.passed.is_empty();
        if is_first && due <= now {
            member.meter.take(ticket.cost, now);
            let start = member.turn.max(served);
            member.turn = start + self.meter.weight(ticket.cost);
            // NOTE: or one that never has to wait would be further and further ahead of those that come after it.
            self.served = start;
            self.meter.take(ticket.cost, now);
            return true;
        }
        if queue.waiting.is_empty() {
            queue.turn = queue.turn.max(member_served);
        }
        if !was_waiting {
            member.turn = member.turn.max(served);
        }
        member.waiting += ticket.cost;
        self.waiting += ticket.cost;
        member.counters.began();
        queue.waiting.push_back(ticket);
        // The line with the timer may sleep past the moment at which this request is due.
        self.release(now);
        if let (Some(timer), Some(due)) = (&self.timer, self.next_due())
            && due < timer.until
        {
            self.stir();
        }
        false
    }

    /// Takes a request back. False if it is not known, or its session has heard that it passed.
    pub(crate) fn withdraw(&mut self, place: Place, id: u64) -> bool {
        let Some(member) = self.members.get_mut(&place.member) else { return false };
        let Some(queue) = member.queues.get_mut(&place.queue) else { return false };
        if let Some(at) = queue.waiting.iter().position(|ticket| ticket.id == id) {
            let cost = queue.waiting.remove(at).map(|ticket| ticket.cost).unwrap_or_default();
            member.waiting -= cost;
            self.waiting -= cost;
            member.counters.gave_up();
            self.need_timer();
            return true;
        }
        let before = queue.passed.len();
        queue.passed.retain(|passed| *passed != id);
        queue.passed.len() < before
    }

    /// How long a request would wait that comes to this line now, and how many are in the line. What is less than `enough_ns` is
    /// not looked into any further.
    pub(crate) fn crowd(&self, place: Place, now: Nanos, enough_ns: u64) -> (u64, usize) {
        let Some(member) = self.members.get(&place.member) else { return (0, 0) };
        let Some(queue) = member.queues.get(&place.queue) else { return (0, 0) };
        // At the most it is behind all.
        let mut of_member = member.meter.delay_ns(member.waiting, now);
        if of_member > enough_ns {
            let before = member.before(queue, &member.meter);
            of_member = of_member.min(member.meter.delay_ns(Cost::default(), now).saturating_add(before));
        }
        let mut of_share = self.meter.delay_ns(self.waiting, now);
        if of_share > enough_ns {
            let before = self.before(member, queue);
            of_share = of_share.min(self.meter.delay_ns(Cost::default(), now).saturating_add(before));
        }
        (of_member.max(of_share), queue.waiting.len())
    }

    /// As [`Member::before`], among the volumes.
    fn before(&self, member: &Member, queue: &Queue) -> u64 {
        let own = member.before(queue, &self.meter);
        let others = self.members.values().filter(|other| !ptr::eq(*other, member));
        let before = |other: &Member| {
            let front = other.queues.values().map(|queue| queue.front(&self.meter)).max().unwrap_or(0);
            own.saturating_add(front).min(self.meter.weight(other.waiting))
        };
        others.map(before).fold(own, u64::saturating_add)
    }

    /// What a line does now; `None`: wait for its event.
    pub(crate) fn look(&mut self, place: Place, now: Nanos) -> Option<Next> {
        self.release(now);
        let queue = self.members.get_mut(&place.member)?.queues.get_mut(&place.queue)?;
        queue.stirred = false;
        let (passed, is_empty) = (mem::take(&mut queue.passed), queue.waiting.is_empty());
        if !passed.is_empty() || is_empty {
            self.leave_timer(place);
            return Some(Next::Passed(passed));
        }
        let until = self.next_due()?;
        let is_free = self.timer.as_ref().is_none_or(|timer| timer.line == place);
        is_free.then(|| {
            self.timer = Some(Timer { line: place, until });
            Next::Sleep(until)
        })
    }

    /// Whether a line that sleeps has a reason to look again before its time.
    pub(crate) fn is_stirred(&self, place: Place) -> bool {
        let queue = self.members.get(&place.member).and_then(|member| member.queues.get(&place.queue));
        queue.is_none_or(|queue| queue.stirred || !queue.passed.is_empty() || queue.waiting.is_empty())
    }

    /// Lets through what is due.
    fn release(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        while self.waiting.ios > 0 && self.meter.due() <= now {
            let (due, served) = (self.meter.due(), self.served);
            let ready =
                self.members.values_mut().filter(|member| member.waits() && member.meter.due() <= now);
            let Some(member) = ready.min_by_key(|member| member.turn) else { return };
            let (cost, eligible) = member.pass(due, now);
            // One that its own limits held up is next, and does not make up for it.
            self.served = member.turn.max(served);
            member.turn = self.served + self.meter.weight(cost);
            self.meter.take(cost, eligible);
            self.waiting -= cost;
        }
    }

    /// When the next of those that wait may pass.
    fn next_due(&self) -> Option<Nanos> {
        let due =
            self.members.values().filter(|member| member.waits()).map(|member| member.meter.due()).min();
        due.map(|due| due.max(self.meter.due()))
    }

    /// Has the line with the timer look again. If no line has it, one that waits takes it.
    fn stir(&mut self) {
        match &self.timer {
            Some(timer) => {
                let Place { member, queue } = timer.line;
                let queue = self.members.get_mut(&member).and_then(|member| member.queues.get_mut(&queue));
                if let Some(queue) = queue {
                    queue.stir();
                }
            }
            None => self.hand_over_timer(),
        }
    }

    fn leave_timer(&mut self, place: Place) {
        if self.timer.as_ref().is_some_and(|timer| timer.line == place) {
            self.timer = None;
        }
        self.need_timer();
    }

    /// NOTE: a line that was to take the timer may never have come to it.
    fn need_timer(&mut self) {
        if self.timer.is_none() {
            self.hand_over_timer();
        }
    }

    /// Has a line that waits take the timer, if one does.
    fn hand_over_timer(&mut self) {
        let mut queues = self.members.values().flat_map(|member| member.queues.values());
        if let Some(queue) = queues.find(|queue| !queue.waiting.is_empty()) {
            queue.event.notify();
        }
    }
}
