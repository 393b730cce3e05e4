//! The future of one disk operation.

use crate::{Buf, DiskError, Mutex};
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

type Outcome = Result<Buf, DiskError>;

#[derive(Default)]
struct Cell {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
    /// The world is done with the operation and its buffers.
    is_over: bool,
    /// The completion was resolved before the operation was over.
    given_up: bool,
}

impl Cell {
    fn over(outcome: Outcome) -> Self {
        Self { outcome: Some(outcome), is_over: true, ..Self::default() }
    }
}

/// Resolves when its disk operation is done: to the buffer of a read, to an empty one otherwise.
///
/// Dropping it does not cancel the operation.
pub struct Completion(Arc<Mutex<Cell>>);

/// An operation that the world may still be at work on, apart from who waits for it.
pub struct Outstanding(Arc<Mutex<Cell>>);

/// The world's end of a [`Completion`]. Dropped without [`Completer::complete`], it resolves the completion
/// to [`DiskError::Abandoned`].
pub struct Completer(Option<Arc<Mutex<Cell>>>);

impl Completion {
    /// A completion and the end that resolves it.
    pub fn new() -> (Completer, Completion) {
        let cell = Arc::new(Mutex::new(Cell::default()));
        (Completer(Some(cell.clone())), Completion(cell))
    }

    /// One that is resolved already.
    pub fn ready(outcome: Result<Buf, DiskError>) -> Completion {
        Completion(Arc::new(Mutex::new(Cell::over(outcome))))
    }

    /// The operation behind it.
    pub fn outstanding(&self) -> Outstanding {
        Outstanding(self.0.clone())
    }
}

impl Outstanding {
    /// True once the world is done with the operation: its buffers are free and it has no effect any more.
    pub fn is_over(&self) -> bool {
        self.0.lock().is_over
    }

    /// Resolves the completion to `error` unless the operation is over. The world keeps the buffers until it is
    /// done with them; what the operation comes to after all is dropped. True if somebody may wait for it still.
    pub fn give_up(&self, error: DiskError) -> bool {
        let waker = {
            let mut cell = self.0.lock();
            if cell.is_over || cell.given_up {
                return false;
            }
            cell.given_up = true;
            cell.outcome = Some(Err(error));
            cell.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }
}

impl Completer {
    /// Resolves the completion.
    pub fn complete(mut self, outcome: Result<Buf, DiskError>) {
        self.resolve(outcome);
    }

    /// True when nobody waits for the operation any more: the completion was resolved without it.
    pub fn is_given_up(&self) -> bool {
        self.0.as_ref().is_some_and(|cell| cell.lock().given_up)
    }

    fn resolve(&mut self, outcome: Outcome) {
        let Some(cell) = self.0.take() else { return };
        let waker = {
            let mut cell = cell.lock();
            cell.is_over = true;
            if cell.given_up {
                drop(cell);
                drop(outcome);
                return;
            }
            cell.outcome = Some(outcome);
            cell.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        self.resolve(Err(DiskError::Abandoned));
    }
}

impl Future for Completion {
    type Output = Outcome;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let mut cell = self.0.lock();
        match cell.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                cell.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(completion: &mut Completion) -> Poll<Outcome> {
        Pin::new(completion).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn what_is_given_up_resolves_at_once_and_its_late_outcome_is_dropped() {
        let (completer, mut completion) = Completion::new();
        let outstanding = completion.outstanding();
        assert!(poll(&mut completion).is_pending() && !outstanding.is_over());
        assert!(outstanding.give_up(DiskError::Abandoned));
        assert!(!outstanding.give_up(DiskError::Abandoned), "once");
        assert!(completer.is_given_up() && !outstanding.is_over());
        assert!(matches!(poll(&mut completion), Poll::Ready(Err(DiskError::Abandoned))));
        completer.complete(Ok(Buf::zeroed(512)));
        assert!(outstanding.is_over());
        assert!(poll(&mut completion).is_pending(), "it resolved already");
    }

    #[test]
    fn what_is_over_is_not_given_up() {
        let (completer, mut completion) = Completion::new();
        let outstanding = completion.outstanding();
        completer.complete(Ok(Buf::zeroed(512)));
        assert!(outstanding.is_over() && !outstanding.give_up(DiskError::Abandoned));
        assert!(matches!(poll(&mut completion), Poll::Ready(Ok(buf)) if buf.len() == 512));
        assert!(Completion::ready(Err(DiskError::Abandoned)).outstanding().is_over());
    }
}
