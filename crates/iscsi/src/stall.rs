//! Peers that do not do their part: take what they are answered, send what they announced or were asked for.
//!
//! Invariant: what was queued for a peer at one tick of its connection is taken, and what it owed then has come,
//! [`PATIENCE_TICKS`] ticks later, or the connection ends. That it goes on talking, or does its part drop by drop,
//! makes no difference: a slow peer holds memory that belongs to all for a bounded time only.

use std::collections::VecDeque;

/// Whole ticks that a peer has for its part.
pub(crate) const PATIENCE_TICKS: usize = 3;

/// How far the send queue reached at the last ticks, in bytes since the connection began.
#[derive(Default)]
pub(crate) struct Backlog(VecDeque<u64>);

impl Backlog {
    /// Counts a tick, at which `sent_bytes` are sent and `queued_bytes` wait behind them. True if some of them
    /// waited already [`PATIENCE_TICKS`] ticks ago.
    pub(crate) fn tick(&mut self, sent_bytes: u64, queued_bytes: u64) -> bool {
        let due = if self.0.len() == PATIENCE_TICKS { self.0.pop_front() } else { None };
        self.0.push_back(sent_bytes + queued_bytes);
        due.is_some_and(|end| sent_bytes < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_queued_has_three_ticks_to_go() {
        let mut backlog = Backlog::default();
        assert!(!backlog.tick(0, 100));
        // More is queued all the time, which makes what was there first no younger.
        assert!(!backlog.tick(50, 100));
        assert!(!backlog.tick(99, 500));
        assert!(backlog.tick(99, 500));
        let mut backlog = Backlog::default();
        for n in 0..10 {
            assert!(!backlog.tick(n * 100, 250));
        }
        assert!(!backlog.tick(1000, 0));
        assert!(!backlog.tick(1250, 10_000));
    }
}
