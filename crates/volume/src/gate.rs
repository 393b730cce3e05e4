//! Keeps writers out of a volume while its content is replaced.
//!
//! Promise: between [`Gate::close`] and [`Gate::open`] nobody is inside; who comes meanwhile waits.

use quoin_world::{
    Event,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};

#[derive(Default)]
pub(crate) struct Gate {
    inside: AtomicU64,
    closed: AtomicBool,
    changed: Event,
}

/// Someone inside, until it is dropped.
pub(crate) struct Pass<'a>(&'a Gate);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        // Whoever closes looks at `inside` after `closed` is set, so one of the two sees the other.
        if self.0.inside.fetch_sub(1, SeqCst) == 1 && self.0.closed.load(SeqCst) {
            self.0.changed.notify();
        }
    }
}

impl Gate {
    pub(crate) async fn enter(&self) -> Pass<'_> {
        loop {
            self.inside.fetch_add(1, SeqCst);
            let pass = Pass(self);
            if !self.closed.load(SeqCst) {
                return pass;
            }
            drop(pass);
            self.changed.until(|| (!self.closed.load(SeqCst)).then_some(())).await;
        }
    }

    /// Returns when the last one has left.
    pub(crate) async fn close(&self) {
        self.closed.store(true, SeqCst);
        self.changed.until(|| (self.inside.load(SeqCst) == 0).then_some(())).await;
    }

    pub(crate) fn open(&self) {
        self.closed.store(false, SeqCst);
        self.changed.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Poll, Waker},
    };

    #[test]
    fn it_closes_behind_the_last_one_and_keeps_others_waiting_until_it_opens() {
        let gate = Gate::default();
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(first) = pin!(gate.enter()).poll(&mut cx) else { panic!("it is open") };
        let mut close = pin!(gate.close());
        assert!(close.as_mut().poll(&mut cx).is_pending());
        let mut second = pin!(gate.enter());
        assert!(second.as_mut().poll(&mut cx).is_pending());
        drop(first);
        assert!(close.as_mut().poll(&mut cx).is_ready());
        assert!(second.as_mut().poll(&mut cx).is_pending());
        gate.open();
        assert!(second.as_mut().poll(&mut cx).is_ready());
    }
}
