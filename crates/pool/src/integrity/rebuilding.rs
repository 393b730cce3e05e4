//! Whether the rebuild of a slice is under way, for those that wait for it.

use quoin_world::{
    Event,
    atomic::{AtomicBool, Ordering},
};

/// Whether the task of a slice is under way.
#[derive(Default)]
pub(crate) struct Rebuilding {
    is_under_way: AtomicBool,
    ended: Event,
    /// Columns are being moved so that drives are used alike.
    is_balancing: AtomicBool,
}

impl Rebuilding {
    /// It begins.
    pub(super) fn begins(&self) {
        self.is_under_way.store(true, Ordering::Release);
    }

    /// It has ended.
    pub(super) fn ends(&self) {
        self.is_under_way.store(false, Ordering::Release);
        self.ended.notify();
    }

    /// Notes whether columns are being moved so that drives are used alike.
    pub(super) fn set_balancing(&self, is_balancing: bool) {
        self.is_balancing.store(is_balancing, Ordering::Relaxed);
    }

    /// Whether they are.
    pub(super) fn is_balancing(&self) -> bool {
        self.is_balancing.load(Ordering::Relaxed)
    }

    /// Waits until the task has ended, as it does soon after the store was closed.
    pub(crate) async fn until_ended(&self) {
        self.ended.until(|| (!self.is_under_way.load(Ordering::Acquire)).then_some(())).await;
    }
}
