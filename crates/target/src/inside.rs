//! Counts the requests that write to a unit and are being executed. A change of reservations waits until all requests that
//! were counted before it have ended.

use quoin_world::Event;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Counts in two halves. A new request is counted in the current half.
///
/// Invariant: a half is made the current one only when nobody is counted in it.
#[derive(Default)]
pub(crate) struct Inside {
    /// Its lowest bit says which half is the current one.
    phase: AtomicU64,
    counts: [AtomicU64; 2],
    left: Event,
}

/// Someone inside, until it is dropped.
pub(crate) struct Entered<'a> {
    inside: &'a Inside,
    half: usize,
}

fn half_of(phase: u64) -> usize {
    (phase & 1) as usize
}

impl Inside {
    /// Counts a request. A caller that changes the rights and then calls [`Inside::settle`] waits for this request, unless the
    /// request sees the change.
    pub(crate) fn enter(&self) -> Entered<'_> {
        loop {
            let phase = self.phase.load(SeqCst);
            let half = half_of(phase);
            self.counts[half].fetch_add(1, SeqCst);
            let entered = Entered { inside: self, half };
            if self.phase.load(SeqCst) == phase {
                return entered;
            }
        }
    }

    /// Waits until all who are inside now have left. One caller at a time.
    pub(crate) async fn settle(&self) {
        let phase = self.phase.load(SeqCst);
        self.emptied(half_of(phase + 1)).await;
        self.phase.store(phase + 1, SeqCst);
        self.emptied(half_of(phase)).await;
    }

    async fn emptied(&self, half: usize) {
        self.left.until(|| (self.counts[half].load(SeqCst) == 0).then_some(())).await;
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let before = self.inside.counts[self.half].fetch_sub(1, SeqCst);
        assert!(before > 0, "unit: a request left that was not inside");
        // NOTE: who waits looks at the count after it changed the phase, so one of the two sees the other.
        if before == 1 && half_of(self.inside.phase.load(SeqCst)) != self.half {
            self.inside.left.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    fn poll(future: std::pin::Pin<&mut impl Future<Output = ()>>) -> Poll<()> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn only_those_are_waited_for_who_came_before() {
        let inside = Inside::default();
        let (first, second) = (inside.enter(), inside.enter());
        let mut settled = pin!(inside.settle());
        assert_eq!(poll(settled.as_mut()), Poll::Pending);
        let later = inside.enter();
        drop(first);
        assert_eq!(poll(settled.as_mut()), Poll::Pending);
        drop(second);
        assert_eq!(poll(settled.as_mut()), Poll::Ready(()));
        // The later one is waited for by the next.
        let mut settled = pin!(inside.settle());
        assert_eq!(poll(settled.as_mut()), Poll::Pending);
        drop(later);
        assert_eq!(poll(settled.as_mut()), Poll::Ready(()));
    }

    #[test]
    fn who_gives_up_waiting_leaves_it_to_the_next() {
        let inside = Inside::default();
        let first = inside.enter();
        {
            let mut given_up = pin!(inside.settle());
            assert_eq!(poll(given_up.as_mut()), Poll::Pending);
        }
        let mut settled = pin!(inside.settle());
        assert_eq!(poll(settled.as_mut()), Poll::Pending);
        drop(first);
        assert_eq!(poll(settled.as_mut()), Poll::Ready(()));
    }

    #[test]
    fn whoever_does_not_see_the_change_is_waited_for() {
        use std::sync::{Arc, atomic::AtomicBool};
        for _ in 0..2000 {
            let (inside, closed, broken) = (
                Arc::new(Inside::default()),
                Arc::new(AtomicBool::new(false)),
                Arc::new(AtomicBool::new(false)),
            );
            let visitor = {
                let (inside, closed, broken) = (inside.clone(), closed.clone(), broken.clone());
                std::thread::spawn(move || {
                    let entered = inside.enter();
                    if !closed.load(SeqCst) {
                        // Still inside: nobody may have settled.
                        assert!(
                            !broken.load(SeqCst),
                            "it settled while someone was inside who saw no change"
                        );
                    }
                    drop(entered);
                })
            };
            closed.store(true, SeqCst);
            let mut settled = pin!(inside.settle());
            while poll(settled.as_mut()).is_pending() {
                std::thread::yield_now();
            }
            broken.store(true, SeqCst);
            visitor.join().unwrap();
        }
    }
}
