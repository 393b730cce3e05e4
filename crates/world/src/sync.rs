//! Waiting without a runtime: an event, a one-shot value, and a fair lock that may be held across awaits.

use crate::Mutex;
use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

/// Something that happens again and again, to wait for a condition with.
#[derive(Default)]
pub struct Event(Mutex<Waiters>);

#[derive(Default)]
struct Waiters {
    next: u64,
    /// By the number of the call that waits.
    wakers: Vec<(u64, Waker)>,
}

/// One call of [`Event::until`]. It leaves no waker behind when it is dropped.
struct Waiting<'a> {
    event: &'a Event,
    number: Option<u64>,
}

impl Waiting<'_> {
    fn register(&mut self, waker: &Waker) {
        let mut waiters = self.event.0.lock();
        let number = *self.number.get_or_insert_with(|| {
            waiters.next += 1;
            waiters.next
        });
        match waiters.wakers.iter_mut().find(|(n, _)| *n == number) {
            Some((_, known)) => known.clone_from(waker),
            None => waiters.wakers.push((number, waker.clone())),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.event.0.lock().wakers.retain(|(n, _)| *n != number);
        }
    }
}

impl Event {
    /// An event nobody waits for yet.
    pub const fn new() -> Self {
        Self(Mutex::new(Waiters { next: 0, wakers: Vec::new() }))
    }

    /// Lets everyone who waits look at their condition again.
    pub fn notify(&self) {
        let wakers = std::mem::take(&mut self.0.lock().wakers);
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Resolves to what `condition` returns once that is `Some`. It is called at once and after every
    /// [`Event::notify`], so whoever makes it true must notify afterwards.
    pub async fn until<T>(&self, mut condition: impl FnMut() -> Option<T>) -> T {
        let mut waiting = Waiting { event: self, number: None };
        poll_fn(|cx| {
            if let Some(value) = condition() {
                return Poll::Ready(value);
            }
            waiting.register(cx.waker());
            match condition() {
                Some(value) => Poll::Ready(value),
                None => Poll::Pending,
            }
        })
        .await
    }
}

struct OneShotCell<T> {
    value: Option<T>,
    closed: bool,
    abandoned: bool,
    waker: Option<Waker>,
}

/// Resolves to the value its sender sends, or to `None` if the sender was dropped without sending.
pub struct OneShot<T>(Arc<Mutex<OneShotCell<T>>>);

/// The sending end of a [`OneShot`].
pub struct OneShotSender<T>(Arc<Mutex<OneShotCell<T>>>);

/// A one-shot value, from any thread to any other.
pub fn one_shot<T>() -> (OneShotSender<T>, OneShot<T>) {
    let cell =
        Arc::new(Mutex::new(OneShotCell { value: None, closed: false, abandoned: false, waker: None }));
    (OneShotSender(cell.clone()), OneShot(cell))
}

impl<T> OneShotSender<T> {
    /// Whether nobody waits for a value any more.
    pub fn is_abandoned(&self) -> bool {
        self.0.lock().abandoned
    }

    /// Sends `value`; the receiver may have gone.
    pub fn send(self, value: T) {
        self.0.lock().value = Some(value);
    }
}

impl<T> Drop for OneShotSender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut cell = self.0.lock();
            cell.closed = true;
            cell.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for OneShot<T> {
    fn drop(&mut self) {
        self.0.lock().abandoned = true;
    }
}

impl<T> Future for OneShot<T> {
    type Output = Option<T>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut cell = self.0.lock();
        if cell.closed {
            return Poll::Ready(cell.value.take());
        }
        cell.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[derive(Default)]
struct LockState {
    held: bool,
    next_ticket: u64,
    queue: VecDeque<(u64, Option<Waker>)>,
}

/// A fair lock that may be held across awaits. It guards a procedure, not data.
#[derive(Default)]
pub struct AsyncMutex(Mutex<LockState>);

/// Holds an [`AsyncMutex`] until dropped.
pub struct AsyncMutexGuard<'a>(&'a AsyncMutex);

struct Ticket<'a> {
    lock: &'a AsyncMutex,
    number: Option<u64>,
}

impl AsyncMutex {
    /// An unheld lock.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for its turn, first come first served, and holds the lock.
    pub async fn lock(&self) -> AsyncMutexGuard<'_> {
        let mut ticket = Ticket { lock: self, number: None };
        poll_fn(|cx| ticket.poll(cx)).await;
        AsyncMutexGuard(self)
    }

    /// Holds the lock if it is free and no task waits for it.
    pub fn try_lock(&self) -> Option<AsyncMutexGuard<'_>> {
        let mut state = self.0.lock();
        if state.held || !state.queue.is_empty() {
            return None;
        }
        state.held = true;
        Some(AsyncMutexGuard(self))
    }
}

impl Ticket<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock.0.lock();
        let number = match self.number {
            Some(number) => number,
            None => {
                let number = state.next_ticket;
                state.next_ticket += 1;
                state.queue.push_back((number, None));
                self.number = Some(number);
                number
            }
        };
        if !state.held && state.queue.front().is_some_and(|(first, _)| *first == number) {
            state.held = true;
            state.queue.pop_front();
            self.number = None;
            return Poll::Ready(());
        }
        if let Some(entry) = state.queue.iter_mut().find(|(n, _)| *n == number) {
            entry.1 = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut state = self.lock.0.lock();
        state.queue.retain(|(n, _)| *n != number);
        // The wake-up this one may have been given is passed on.
        let next = if state.held { None } else { state.queue.front_mut().and_then(|(_, w)| w.take()) };
        drop(state);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

impl Drop for AsyncMutexGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.held = false;
        let next = state.queue.front_mut().and_then(|(_, w)| w.take());
        drop(state);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}
