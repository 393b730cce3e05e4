//! The limits of one volume.

use crate::{
    Limits, Line, Share,
    share::{Member, Place, State},
};
use parking_lot::Mutex;
use quoin_world::{Event, Nanos};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// What came of the requests of a volume that had to wait.
#[derive(Default)]
pub(crate) struct Counters {
    requests: AtomicU64,
    wait_ns: AtomicU64,
    waiting: AtomicU64,
}

impl Counters {
    pub(crate) fn began(&self) {
        self.waiting.fetch_add(1, Relaxed);
    }

    pub(crate) fn ended(&self, waited: Duration) {
        self.waiting.fetch_sub(1, Relaxed);
        self.requests.fetch_add(1, Relaxed);
        self.wait_ns.fetch_add(waited.as_nanos() as u64, Relaxed);
    }

    pub(crate) fn gave_up(&self) {
        self.waiting.fetch_sub(1, Relaxed);
    }
}

/// What limits did to a volume since the process started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThrottleView {
    /// Requests that waited, and were let through then.
    pub requests: u64,
    /// How long they waited, all together.
    pub waited: Duration,
    /// Requests that wait now.
    pub waiting: u64,
}

/// Where a volume's limits are kept.
struct Home {
    share: Arc<Share>,
    /// Whether no other volume has it.
    is_own: bool,
    lines: u64,
}

/// The limits of one volume. See the crate's documentation.
pub struct Throttle {
    /// Of all throttles of this process.
    id: u64,
    is_limited: AtomicBool,
    home: Mutex<Home>,
    counters: Arc<Counters>,
}

static THROTTLES: AtomicU64 = AtomicU64::new(0);

impl Default for Throttle {
    /// Nothing is limited.
    fn default() -> Self {
        let (id, counters) = (THROTTLES.fetch_add(1, Relaxed), Arc::<Counters>::default());
        let share = Arc::new(Share::default());
        share.with(|state| state.put(id, (Member::new(counters.clone()), Nanos::default()), &[]));
        let home = Mutex::new(Home { share, is_own: true, lines: 0 });
        Self { id, is_limited: AtomicBool::new(false), home, counters }
    }
}

impl fmt::Debug for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle").field("is_limited", &self.is_limited()).finish()
    }
}

impl Throttle {
    /// Whether requests have to ask. Those of a line in which one waits ask in any case.
    pub fn is_limited(&self) -> bool {
        self.is_limited.load(Relaxed)
    }

    /// Gives the volume other limits: all of these, and those of a share. They hold at once, also for what waits.
    pub fn configure(&self, limits: &[Limits], share: Option<&Arc<Share>>, now: Nanos) {
        let mut home = self.home.lock();
        let is_limited = share.is_some() || limits.iter().any(|limits| !limits.is_none());
        let is_same = match share {
            Some(share) => Arc::ptr_eq(share, &home.share),
            None => home.is_own,
        };
        if is_same {
            home.share.with(|state| state.retune_member(self.id, limits, now));
        } else {
            let new = share.cloned().unwrap_or_default();
            if let Some((member, known)) = home.share.with(|state| state.take_out(self.id)) {
                new.with(|state| state.put(self.id, (member, known.max(now)), limits));
            }
            (home.share, home.is_own) = (new, share.is_none());
        }
        self.is_limited.store(is_limited, Relaxed);
    }

    /// A line for the requests of one session.
    pub fn line(self: &Arc<Self>) -> Line {
        let mut home = self.home.lock();
        home.lines += 1;
        let (place, event) = (Place { member: self.id, queue: home.lines }, Arc::new(Event::new()));
        home.share.with(|state| state.open(place, event.clone()));
        Line::new(self.clone(), place, event)
    }

    /// What the limits did.
    pub fn view(&self) -> ThrottleView {
        ThrottleView {
            requests: self.counters.requests.load(Relaxed),
            waited: Duration::from_nanos(self.counters.wait_ns.load(Relaxed)),
            waiting: self.counters.waiting.load(Relaxed),
        }
    }

    /// NOTE: the lock of the home is held all the while, so that the volume stays where it is.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let home = self.home.lock();
        home.share.with(act)
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        self.home.lock().share.with(|state| drop(state.take_out(self.id)));
    }
}
