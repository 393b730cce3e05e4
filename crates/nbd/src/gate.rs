//! Keeps writes of whole blocks apart from writes of parts of blocks.
//!
//! A write that does not cover its first or last block reads that block, changes it and writes it back. Were
//! another write to come in between, it would be undone. So those who change parts have the volume for
//! themselves; all others share it, which costs two atomic operations.

use quoin_world::Event;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Set while somebody has the volume, or waits for it, alone.
const ALONE: usize = 1 << (usize::BITS - 1);

/// The gate of one volume.
#[derive(Default)]
pub(crate) struct Gate {
    /// How many share it, and [`ALONE`].
    state: AtomicUsize,
    changed: Event,
}

pub(crate) struct Sharing<'a>(&'a Gate);

pub(crate) struct Alone<'a>(&'a Gate);

impl Gate {
    /// Waits until nobody is alone.
    pub(crate) async fn share(&self) -> Sharing<'_> {
        match self.try_share() {
            Some(sharing) => sharing,
            None => self.changed.until(|| self.try_share()).await,
        }
    }

    fn try_share(&self) -> Option<Sharing<'_>> {
        let add = |state: usize| (state & ALONE == 0).then_some(state + 1);
        self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, add).ok()?;
        Some(Sharing(self))
    }

    /// Lets nobody in any more and waits until all have left.
    pub(crate) async fn alone(&self) -> Alone<'_> {
        let take = || {
            let before = self.state.fetch_or(ALONE, Ordering::Acquire);
            (before & ALONE == 0).then(|| Alone(self))
        };
        let alone = self.changed.until(take).await;
        self.changed.until(|| (self.state.load(Ordering::Acquire) == ALONE).then_some(())).await;
        alone
    }
}

impl Drop for Sharing<'_> {
    fn drop(&mut self) {
        if self.0.state.fetch_sub(1, Ordering::Release) == ALONE + 1 {
            self.0.changed.notify();
        }
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.state.fetch_and(!ALONE, Ordering::Release);
        self.0.changed.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, future::join};

    #[test]
    fn who_is_alone_is_alone() {
        let gate = Gate::default();
        let first = gate.share().now_or_never().unwrap();
        let second = gate.share().now_or_never().unwrap();
        let mut alone = Box::pin(gate.alone());
        assert!((&mut alone).now_or_never().is_none());
        assert!(gate.share().now_or_never().is_none(), "nobody enters while one waits to be alone");
        drop(first);
        assert!((&mut alone).now_or_never().is_none());
        drop(second);
        let held = alone.now_or_never().unwrap();
        assert!(gate.alone().now_or_never().is_none());
        assert!(gate.share().now_or_never().is_none());
        drop(held);
        gate.share().now_or_never().unwrap();
        // One that gives up waiting does not keep the others out.
        let sharing = gate.share().now_or_never().unwrap();
        let mut given_up = Box::pin(gate.alone());
        assert!((&mut given_up).now_or_never().is_none());
        drop(given_up);
        let both = join(gate.share(), gate.share()).now_or_never();
        assert!(both.is_some());
        drop(sharing);
    }
}
