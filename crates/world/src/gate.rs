//! A gate that keeps everyone out while something is changed that they use.

use crate::{
    Event,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};

/// Many may be inside at once; who closes it has them all outside.
///
/// Promise: from the end of [`Gate::close`] to [`Gate::open`] nobody is inside; who comes meanwhile waits. One closes it
/// at a time.
#[derive(Default)]
pub struct Gate {
    inside: AtomicU64,
    closed: AtomicBool,
    changed: Event,
}

/// Someone inside, until it is dropped.
pub struct GatePass<'a>(&'a Gate);

impl Drop for GatePass<'_> {
    fn drop(&mut self) {
        // Whoever closes looks at `inside` after `closed` is set, so one of the two sees the other.
        if self.0.inside.fetch_sub(1, SeqCst) == 1 && self.0.closed.load(SeqCst) {
            self.0.changed.notify();
        }
    }
}

impl Gate {
    /// Waits while it is closed, then goes in.
    pub async fn enter(&self) -> GatePass<'_> {
        loop {
            self.inside.fetch_add(1, SeqCst);
            let pass = GatePass(self);
            if !self.closed.load(SeqCst) {
                return pass;
            }
            drop(pass);
            self.changed.until(|| (!self.closed.load(SeqCst)).then_some(())).await;
        }
    }

    /// Lets nobody in any more, and returns when the last one has left.
    pub async fn close(&self) {
        self.closed.store(true, SeqCst);
        self.changed.until(|| (self.inside.load(SeqCst) == 0).then_some(())).await;
    }

    /// Lets everyone in again.
    pub fn open(&self) {
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
