//! The line in which the requests of one session wait.

use crate::{
    Cost, Throttle,
    share::{Next, Place, Ticket},
};
use futures_util::future::{Either, select};
use quoin_world::{Event, Nanos, Task};
use std::{fmt, pin::pin, sync::Arc, time::Duration};

/// A request waits this long at the most while others of its session are before it.
const LONG_WAIT: Duration = Duration::from_secs(5);
/// A request waits this long at the most.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// So much waits that the session had better come again later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crowd {
    /// Of this session, too.
    Own,
    /// Of others only.
    Others,
}

/// A line of requests that wait for the limits of a volume. Dropped, it takes back those that have not passed.
pub struct Line {
    throttle: Arc<Throttle>,
    place: Place,
    event: Arc<Event>,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Line({:?})", self.place)
    }
}

impl Line {
    pub(crate) fn new(throttle: Arc<Throttle>, place: Place, event: Arc<Event>) -> Self {
        Self { throttle, place, event }
    }

    /// Takes a request in that came at `since`. True if it passes at once; else [`Line::passed`] tells of it.
    pub fn admit(&self, id: u64, cost: Cost, since: Nanos) -> bool {
        self.throttle.with(|state| state.admit(self.place, Ticket { id, cost, since }))
    }

    /// Whether a request that comes now would wait so long that its host might give it up.
    pub fn crowd(&self, now: Nanos) -> Option<Crowd> {
        let enough_ns = LONG_WAIT.as_nanos() as u64;
        let (delay_ns, own) = self.throttle.with(|state| state.crowd(self.place, now, enough_ns));
        match Duration::from_nanos(delay_ns) {
            delay if delay > LONG_WAIT && own > 0 => Some(Crowd::Own),
            delay if delay > LONGEST_WAIT => Some(Crowd::Others),
            _ => None,
        }
    }

    /// Takes a request back. False if it is not in the line.
    pub fn withdraw(&self, id: u64) -> bool {
        let was_in = self.throttle.with(|state| state.withdraw(self.place, id));
        // It may have been the last.
        self.event.notify();
        was_in
    }

    /// Resolves to the requests that passed, in their order; to none if none waits any more. To be called by one task at a
    /// time, as long as requests wait.
    pub async fn passed(&self, now: impl Fn() -> Nanos, sleep: impl Fn(Duration) -> Task) -> Vec<u64> {
        let look = || self.throttle.with(|state| state.look(self.place, now()));
        loop {
            match self.event.until(look).await {
                Next::Passed(ids) => return ids,
                Next::Sleep(until) => {
                    let stirred = || self.throttle.with(|state| state.is_stirred(self.place)).then_some(());
                    let stirred = pin!(self.event.until(stirred));
                    match select(stirred, sleep(until.since(now()))).await {
                        Either::Left(_) | Either::Right(_) => {}
                    }
                }
            }
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.throttle.with(|state| state.close(self.place));
    }
}
