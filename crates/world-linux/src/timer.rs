//! Timers that are exact to a few tens of microseconds.
//!
//! The runtime's timers have steps of a millisecond. A thread of the array that asks for better gets one timer of the
//! kernel, which is set to the earliest of all moments that its tasks wait for. It costs one system call when that moment
//! changes and one when it is reached. A thread that never asks has no such timer.
//!
//! Invariant: the kernel's timer is set to the first moment of the queue, whenever the queue is not empty.

use crate::ring;
use quoin_world::{OneShot, OneShotSender, one_shot};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    rc::Rc,
    time::{Duration, Instant},
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    task::spawn_local,
};

/// The shortest time the kernel's timer is set to: none at all would stop it.
const SHORTEST: Duration = Duration::from_nanos(1);

thread_local! {
    static LOCAL: RefCell<Option<Rc<Timer>>> = const { RefCell::new(None) };
}

/// The timer of a thread.
struct Timer {
    descriptor: OwnedFd,
    queue: RefCell<Queue>,
}

#[derive(Default)]
struct Queue {
    next: u64,
    /// Who waits, by the moment and in the order of asking.
    waiting: BTreeMap<(Instant, u64), OneShotSender<()>>,
}

/// What the runtime asks for the descriptor.
struct Descriptor(Rc<Timer>);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.descriptor.as_raw_fd()
    }
}

/// Waits for `duration`, on a thread of the array. Without a timer of the kernel it is one of the runtime's.
pub(crate) async fn sleep(duration: Duration) {
    let Ok(waiting) = begin(duration) else { return tokio::time::sleep(duration).await };
    // A thread that ends drops it: there is nobody to wake any more.
    waiting.await;
}

fn begin(duration: Duration) -> io::Result<OneShot<()>> {
    if ring::local().is_none_or(|here| !here.running.get()) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let timer = local()?;
    let (sender, waiting) = one_shot();
    let due = Instant::now() + duration;
    let is_first = timer.queue.borrow_mut().add(due, sender);
    if is_first {
        timer.set(duration)?;
    }
    Ok(waiting)
}

/// The thread's timer, made if there is none.
fn local() -> io::Result<Rc<Timer>> {
    if let Some(timer) = LOCAL.with_borrow(Clone::clone) {
        return Ok(timer);
    }
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let timer = Rc::new(Timer { descriptor, queue: RefCell::default() });
    // SAFETY: the descriptor is that of the `Timer` that `Descriptor` owns, which keeps it open and never replaces it.
    let ready = unsafe { AsyncFd::register_with_interest(Descriptor(timer.clone()), Interest::READABLE) }?;
    spawn_local(drive(ready));
    LOCAL.set(Some(timer.clone()));
    Ok(timer)
}

/// Wakes who waits, as long as the thread runs.
async fn drive(ready: AsyncFd<Descriptor>) {
    loop {
        let Ok(mut guard) = ready.readable().await else { return };
        guard.clear_ready();
        let timer = &ready.get_ref().0;
        // NOTE: setting the timer anew takes back that it is readable; reading it is not needed.
        let now = Instant::now();
        let (over, next) = timer.queue.borrow_mut().over(now);
        if let Some(next) = next
            && let Err(error) = timer.set(next.saturating_duration_since(now))
        {
            panic!("a timer that was set before cannot be set: {error}");
        }
        over.into_iter().for_each(|sender| sender.send(()));
    }
}

impl Timer {
    fn set(&self, after: Duration) -> io::Result<()> {
        let after = after.max(SHORTEST);
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = Timespec { tv_sec: after.as_secs() as i64, tv_nsec: i64::from(after.subsec_nanos()) };
        let new = Itimerspec { it_interval: zero, it_value };
        timerfd_settime(&self.descriptor, TimerfdTimerFlags::empty(), &new)?;
        Ok(())
    }
}

impl Queue {
    /// Adds one who waits. True if nobody waits for less long.
    fn add(&mut self, due: Instant, sender: OneShotSender<()>) -> bool {
        self.next += 1;
        let key = (due, self.next);
        self.waiting.insert(key, sender);
        self.waiting.first_key_value().is_some_and(|(first, _)| *first == key)
    }

    /// Those whose moment has come, and the moment of the next one.
    fn over(&mut self, now: Instant) -> (Vec<OneShotSender<()>>, Option<Instant>) {
        let later = self.waiting.split_off(&(now, u64::MAX));
        let over = std::mem::replace(&mut self.waiting, later);
        (over.into_values().collect(), self.waiting.keys().next().map(|(due, _)| *due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_come_in_their_order() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut queue = Queue::default();
        assert!(queue.add(at(5), one_shot().0));
        assert!(!queue.add(at(5), one_shot().0));
        assert!(queue.add(at(3), one_shot().0) && !queue.add(at(9), one_shot().0));
        let (over, next) = queue.over(at(5));
        assert_eq!((over.len(), next), (3, Some(at(9))));
        let (over, next) = queue.over(at(9));
        assert_eq!((over.len(), next), (1, None));
        assert!(queue.add(at(20), one_shot().0));
    }
}
