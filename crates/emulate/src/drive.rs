//! An emulated drive over all its openings: how it is, and the model that its openings share.
//!
//! Invariants:
//! 1. What an opening of before a detachment is given fails from then on, also when the drive is back: it was pulled.
//! 2. While the drive hangs, no operation completes, and nothing that is submitted reaches the disk below.
//! 3. While a page is being changed, no other operation is at the disk below.

use crate::{
    Corruption, EmulateError, Emulation, corrupt,
    model::{Model, Work},
    opening::Opening,
};
use quoin_world::{Disk, Event, Mutex, World};
use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
    time::Duration,
};

/// The most that timers may be early to make up for their being late.
const MOST_AHEAD_NS: i64 = 200_000;
/// What comes so soon after a completion that was late, or early, is taken to have waited for it, and to have come as much
/// earlier or later, within bounds: else a process that has to share its processors would make the drive slower.
const OFFSET_WITHIN_NS: u64 = 100_000;
const MOST_OFFSET_NS: i64 = 1_000_000;
/// So many completions are remembered for that.
const MOST_OFFSETS: usize = 256;
/// How much of what a timer was late goes into what is expected of the next one: 1 / 8.
const LATENESS_SHIFT: u32 = 3;

/// How an emulated drive behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// As its figures say.
    #[default]
    Healthy,
    /// Every operation fails.
    Failing,
    /// All takes so many times as long.
    Slow(u32),
    /// No operation completes until the drive is back.
    Hung,
    /// It is not there: every operation fails, and it cannot be opened.
    Detached,
}

/// What an emulated drive is and how it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveState {
    /// What is emulated.
    pub emulation: Emulation,
    /// How it behaves.
    pub condition: Condition,
    /// Pages that were corrupted since it was made.
    pub corrupted_pages: u64,
}

/// An emulated drive. It outlives its openings.
pub struct EmulatedDrive {
    world: Arc<dyn World>,
    emulation: Emulation,
    inner: Mutex<Inner>,
    /// The condition changed, or an operation ended.
    changed: Event,
}

struct Inner {
    condition: Condition,
    model: Model,
    /// Detachments so far.
    generation: u64,
    /// Operations at the disk below, or completed there and not yet here.
    under_way: usize,
    /// A page is being changed.
    is_held: bool,
    corrupted_pages: u64,
    /// What lies below the newest opening.
    below: Option<Weak<dyn Disk>>,
    /// How late timers are, on average.
    late_ns: i64,
    /// When the last operations completed, and how much later than they were due; the oldest first. Each counts for one
    /// operation that follows.
    offsets: VecDeque<(u64, i64)>,
}

/// What becomes of an operation.
pub(crate) enum Admission {
    /// It completes at this time, in nanoseconds of the world's clock.
    Due(u64),
    /// It is to be asked again when the drive has changed.
    Wait,
    /// It fails.
    Refused(Refusal),
}

/// Why an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Failing,
    Detached,
}

impl EmulatedDrive {
    /// A healthy drive that is not open yet. `emulation` has no [`Emulation::problem`].
    pub fn new(world: Arc<dyn World>, emulation: Emulation) -> Arc<Self> {
        let inner = Inner {
            condition: Condition::default(),
            model: Model::new(&emulation),
            generation: 0,
            under_way: 0,
            is_held: false,
            corrupted_pages: 0,
            below: None,
            late_ns: 0,
            offsets: VecDeque::new(),
        };
        Arc::new(Self { world, emulation, inner: Mutex::new(inner), changed: Event::new() })
    }

    /// The drive as a disk, with its content on `below`.
    ///
    /// # Errors
    /// [`EmulateError::Detached`] while it is detached.
    pub fn open(self: &Arc<Self>, below: Arc<dyn Disk>) -> Result<Arc<dyn Disk>, EmulateError> {
        let mut inner = self.inner.lock();
        if inner.condition == Condition::Detached {
            return Err(EmulateError::Detached);
        }
        inner.below = Some(Arc::downgrade(&below));
        Ok(Opening::disk(self.clone(), below, inner.generation))
    }

    /// Whether it can be found and opened.
    pub fn is_attached(&self) -> bool {
        self.inner.lock().condition != Condition::Detached
    }

    /// What it is and how it is.
    pub fn state(&self) -> DriveState {
        let inner = self.inner.lock();
        let Inner { condition, corrupted_pages, .. } = *inner;
        DriveState { emulation: self.emulation, condition, corrupted_pages }
    }

    /// Lets it behave so from now on. Its content stays as it is; what was corrupted stays corrupted.
    pub fn set_condition(&self, condition: Condition) {
        {
            let mut inner = self.inner.lock();
            let was_attached = inner.condition != Condition::Detached;
            if condition == Condition::Detached && was_attached {
                inner.generation += 1;
            }
            inner.condition = condition;
        }
        self.changed.notify();
    }

    /// Flips bits in `pages` pages of 4 KiB that hold something, from byte `from` on, and tells nobody. The seed and the
    /// content decide which. Must be called on a thread of the array.
    ///
    /// # Errors
    /// [`EmulateError::NotOpen`] unless the drive is open, [`EmulateError::Hung`] while it hangs,
    /// [`EmulateError::Blank`] if nothing but zeroes was found, [`EmulateError::Disk`] if the disk below fails.
    pub async fn corrupt(&self, from: u64, pages: u32, seed: u64) -> Result<Corruption, EmulateError> {
        let below = self.inner.lock().below.as_ref().and_then(Weak::upgrade);
        let below = below.filter(|_| self.is_attached()).ok_or(EmulateError::NotOpen)?;
        let corruption = corrupt::corrupt(self, &*below, from, pages, seed).await?;
        self.inner.lock().corrupted_pages += corruption.offsets.len() as u64;
        Ok(corruption)
    }

    /// Keeps operations away from the disk below until what is returned is dropped.
    pub(crate) async fn hold(&self) -> Result<Hold<'_>, EmulateError> {
        let take_turn = || {
            let mut inner = self.inner.lock();
            let is_free = !std::mem::replace(&mut inner.is_held, true);
            is_free.then(|| Hold { drive: self })
        };
        // Whoever changed a page before has ended; then all operations that are under way have.
        let hold = self.changed.until(take_turn).await;
        let ended = || {
            let inner = self.inner.lock();
            match inner.under_way {
                0 => Some(Ok(())),
                _ if inner.condition == Condition::Hung => Some(Err(EmulateError::Hung)),
                _ => None,
            }
        };
        self.changed.until(ended).await.map(|()| hold)
    }

    /// The world in which it is.
    pub(crate) fn world(&self) -> &Arc<dyn World> {
        &self.world
    }

    /// What becomes of an operation of an opening of this generation. What is due is under way from here on.
    pub(crate) fn admit(&self, generation: u64, work: Work) -> Admission {
        let mut inner = self.inner.lock();
        if let Some(refusal) = inner.refusal(generation) {
            return Admission::Refused(refusal);
        }
        if inner.is_held || inner.condition == Condition::Hung {
            return Admission::Wait;
        }
        let slowness = if let Condition::Slow(factor) = inner.condition { factor } else { 1 };
        inner.under_way += 1;
        // NOTE: the clock is read under the lock: the model is asked in the order of time.
        let now = self.world.now().0;
        let arrival = inner.arrival(now);
        Admission::Due(inner.model.admit(arrival, work, slowness))
    }

    /// Waits while what was put off may not begin.
    pub(crate) async fn until_admitted(&self, generation: u64, work: Work) -> Admission {
        let admit = || match self.admit(generation, work) {
            Admission::Wait => None,
            admission => Some(admission),
        };
        self.changed.until(admit).await
    }

    /// Waits until an operation may complete, and returns why it fails, if it does.
    pub(crate) async fn until_answered(&self, generation: u64) -> Option<Refusal> {
        let answer = || {
            let inner = self.inner.lock();
            (inner.condition != Condition::Hung).then(|| inner.refusal(generation))
        };
        self.changed.until(answer).await
    }

    /// An operation that was admitted is over.
    pub(crate) fn ended(&self) {
        let is_waited_for = {
            let mut inner = self.inner.lock();
            assert!(inner.under_way > 0, "an operation ended that was not under way");
            inner.under_way -= 1;
            inner.is_held && inner.under_way == 0
        };
        if is_waited_for {
            self.changed.notify();
        }
    }

    /// Waits until `due`, no longer.
    pub(crate) async fn until_due(&self, due: u64) {
        // A timer wakes late, and by about the same time again and again: it is set as much earlier.
        // NOTE: half of the time is always waited for, or nothing would be learnt any more about how late timers are.
        let left = due.saturating_sub(self.world.now().0);
        if left == 0 {
            return;
        }
        let late_ns = self.inner.lock().late_ns as u64;
        self.world.sleep_precisely(Duration::from_nanos(left - late_ns.min(left / 2))).await;
        let now = self.world.now().0;
        let off_ns = now as i64 - due as i64;
        let mut inner = self.inner.lock();
        if inner.offsets.len() == MOST_OFFSETS {
            inner.offsets.pop_front();
        }
        inner.offsets.push_back((now, off_ns.min(MOST_OFFSET_NS)));
        inner.late_ns = (inner.late_ns + (off_ns >> LATENESS_SHIFT)).clamp(0, MOST_AHEAD_NS);
    }
}

impl Inner {
    /// When an operation that is submitted now would have been, had the one that it follows completed when it was due.
    fn arrival(&mut self, now: u64) -> u64 {
        while let Some((at, off_ns)) = self.offsets.pop_front() {
            if now.saturating_sub(at) <= OFFSET_WITHIN_NS {
                return now.saturating_add_signed(-off_ns);
            }
        }
        now
    }

    fn refusal(&self, generation: u64) -> Option<Refusal> {
        match self.condition {
            _ if self.generation != generation => Some(Refusal::Detached),
            Condition::Detached => Some(Refusal::Detached),
            Condition::Failing => Some(Refusal::Failing),
            Condition::Healthy | Condition::Slow(_) | Condition::Hung => None,
        }
    }
}

/// Keeps operations away from the disk below.
pub(crate) struct Hold<'a> {
    drive: &'a EmulatedDrive,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.drive.inner.lock().is_held = false;
        self.drive.changed.notify();
    }
}
