//! The future of one disk operation.

use crate::{Buf, DiskError, Mutex, Race, has_race};
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
}

/// Resolves when its disk operation is done: to the buffer of a read, to an empty one otherwise.
///
/// Dropping it does not cancel the operation.
pub struct Completion(Arc<Mutex<Cell>>);

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
        Completion(Arc::new(Mutex::new(Cell { outcome: Some(outcome), waker: None })))
    }
}

impl Completer {
    /// Resolves the completion.
    pub fn complete(mut self, outcome: Result<Buf, DiskError>) {
        self.resolve(outcome);
    }

    fn resolve(&mut self, outcome: Outcome) {
        let Some(cell) = self.0.take() else { return };
        let early = has_race(Race::WakeBeforeOutcome).then(|| cell.lock().waker.take());
        let waker = {
            let mut cell = cell.lock();
            cell.outcome = Some(outcome);
            early.unwrap_or_else(|| cell.waker.take())
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
