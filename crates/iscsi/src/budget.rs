//! Memory for commands' data, shared by all sessions of a server.
//!
//! Invariants: what sessions hold beyond [`FREE_BYTES`] each is taken from the budget before it is used; who is
//! short waits, and is woken when enough has come back; a session that ends gives all back.

use quoin_world::Event;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// What a session holds without asking, so that small requests go on whatever others do.
const FREE_BYTES: u64 = 512 << 10;
/// The budget is taken in multiples of this, so that it is not asked for with each command.
const STEP_BYTES: u64 = 1 << 20;

pub(crate) struct Budget {
    limit_bytes: u64,
    used_bytes: AtomicU64,
    freed: Event,
}

impl Budget {
    pub(crate) fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self { limit_bytes, used_bytes: AtomicU64::new(0), freed: Event::new() })
    }

    fn take(&self, bytes: u64) -> bool {
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.limit_bytes);
        self.used_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok()
    }

    /// What sessions hold of it now.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Acquire)
    }
}

/// A session's share of the budget.
pub(crate) struct Share {
    budget: Arc<Budget>,
    taken_bytes: u64,
    /// What it could not get.
    short_bytes: Option<u64>,
}

impl Share {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self { budget, taken_bytes: 0, short_bytes: None }
    }

    /// Whether the session may hold this much altogether. A single command of any length is let through when the
    /// whole budget is free.
    pub(crate) fn covers(&mut self, bytes: u64) -> bool {
        let beyond = bytes.saturating_sub(FREE_BYTES + self.taken_bytes);
        self.short_bytes = None;
        if beyond == 0 {
            return true;
        }
        let step = beyond.next_multiple_of(STEP_BYTES).min(self.budget.limit_bytes);
        if self.budget.take(step) {
            self.taken_bytes += step;
            return true;
        }
        self.short_bytes = Some(step);
        false
    }

    /// Gives back what the session does not need to hold this much.
    pub(crate) fn settle(&mut self, bytes: u64) {
        let needed = bytes.saturating_sub(FREE_BYTES).next_multiple_of(STEP_BYTES);
        let surplus = self.taken_bytes.saturating_sub(needed);
        if surplus > 0 {
            self.taken_bytes -= surplus;
            self.budget.used_bytes.fetch_sub(surplus, Ordering::AcqRel);
            self.budget.freed.notify();
        }
    }

    /// Nothing is wanted any more of what it could not get.
    pub(crate) fn want_nothing(&mut self) {
        self.short_bytes = None;
    }

    /// What it is short of, and where.
    pub(crate) fn shortage(&self) -> Option<(Arc<Budget>, u64)> {
        Some((self.budget.clone(), self.short_bytes?))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.settle(0);
    }
}

/// Resolves when what was short may be had; never if nothing was.
pub(crate) async fn relieved(shortage: Option<(Arc<Budget>, u64)>) {
    match shortage {
        None => std::future::pending().await,
        Some((budget, bytes)) => {
            let has_room = || (budget.used_bytes() + bytes <= budget.limit_bytes).then_some(());
            budget.freed.until(has_room).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    #[test]
    fn sessions_share_what_there_is() {
        const MIB: u64 = 1 << 20;
        let budget = Budget::new(4 * MIB);
        let (mut one, mut two) = (Share::new(budget.clone()), Share::new(budget.clone()));
        assert!(one.covers(FREE_BYTES) && two.covers(FREE_BYTES));
        assert_eq!(budget.used_bytes(), 0);
        assert!(one.covers(3 * MIB) && !two.covers(3 * MIB) && two.covers(FREE_BYTES + MIB));
        assert_eq!((budget.used_bytes(), two.shortage().is_none()), (4 * MIB, true));
        assert!(!two.covers(2 * MIB));
        let mut wait = pin!(relieved(two.shortage()));
        let mut poll = || wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert!(!poll());
        one.settle(2 * MIB);
        assert!(poll());
        assert!(two.covers(2 * MIB));
        drop((one, two));
        assert_eq!(budget.used_bytes(), 0);
    }
}
