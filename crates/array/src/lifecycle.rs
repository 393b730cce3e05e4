//! The course of the process: since when the array runs, since when the pool is as it is, and whether to stop.
//!
//! Invariants:
//! 1. A stop that was asked for stays asked for.
//! 2. Once opening the pool was tried to its end, that stays so.

use quoin_world::{Event, Nanos};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

/// The course of the process.
pub(crate) struct Lifecycle {
    started: Nanos,
    attempted: AtomicBool,
    /// Since when the pool is open, or is not, by the wall clock.
    state_since_ms: AtomicU64,
    stopping: AtomicBool,
    wake: Event,
}

impl Lifecycle {
    /// The course of an array that starts.
    pub(crate) fn new(now: Nanos, wall_clock_ms: u64) -> Self {
        Self {
            started: now,
            attempted: AtomicBool::new(false),
            state_since_ms: AtomicU64::new(wall_clock_ms),
            stopping: AtomicBool::new(false),
            wake: Event::new(),
        }
    }

    /// How long the array has run.
    pub(crate) fn uptime(&self, now: Nanos) -> Duration {
        now.since(self.started)
    }

    /// Notes that the pool was opened, or that it no longer is.
    pub(crate) fn state_changed(&self, wall_clock_ms: u64) {
        self.state_since_ms.store(wall_clock_ms, Ordering::Release);
    }

    /// Since when the pool is open, or is not, by the wall clock.
    pub(crate) fn state_since_ms(&self) -> u64 {
        self.state_since_ms.load(Ordering::Acquire)
    }

    /// Notes that opening the pool was tried to its end; true if that was the first time.
    pub(crate) fn note_attempt(&self) -> bool {
        !self.attempted.swap(true, Ordering::AcqRel)
    }

    /// Whether opening the pool was tried to its end at least once.
    pub(crate) fn was_attempted(&self) -> bool {
        self.attempted.load(Ordering::Acquire)
    }

    /// Asks for a stop, and wakes what waits for one.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake.notify();
    }

    /// Whether a stop was asked for.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Waits until a stop is asked for.
    pub(crate) async fn stopped(&self) {
        self.wake.until(|| self.is_stopping().then_some(())).await;
    }
}
