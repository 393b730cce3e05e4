//! What front ends measure and wait by.

use quoin_world::{Nanos, Task, World};
use std::{
    future::{Future, pending},
    pin::pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Instant;

/// A clock that never goes back, and a way to wait by it.
pub trait Clock: Send + Sync {
    /// Time since some fixed moment.
    fn now(&self) -> Nanos;
    /// Resolves after `duration`.
    fn sleep(&self, duration: Duration) -> Task;
}

impl<W: World> Clock for W {
    fn now(&self) -> Nanos {
        World::now(self)
    }

    fn sleep(&self, duration: Duration) -> Task {
        World::sleep(self, duration)
    }
}

/// The clock of the tokio runtime that the caller is in.
#[derive(Debug)]
pub struct RuntimeClock {
    started: Instant,
}

impl Default for RuntimeClock {
    fn default() -> Self {
        Self { started: Instant::now() }
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Nanos {
        Nanos(self.started.elapsed().as_nanos() as u64)
    }

    fn sleep(&self, duration: Duration) -> Task {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// Waits for a moment that was set, if one was.
pub async fn over(deadline: &mut Option<Task>) {
    match deadline {
        Some(deadline) => deadline.await,
        None => pending().await,
    }
}

/// What `future` resolves to; `None` if that takes longer than `limit`.
pub async fn within<T>(clock: &dyn Clock, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut over) = (pin!(future), clock.sleep(limit));
    std::future::poll_fn(|cx: &mut Context<'_>| {
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        over.as_mut().poll(cx).map(|()| None)
    })
    .await
}
