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
