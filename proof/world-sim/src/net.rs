//! A simulated network: pairs of streams of bytes between two tasks.
//!
//! Bytes come in the order in which they were sent, each run of them some time later, in other pieces than they were
//! sent in. A link can be cut: both ends are told, after an arbitrary part of what was under way has come, or
//! neither is and nothing comes any more, as when a cable is pulled.

use crate::SimWorld;
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::VecDeque,
    io,
    ops::RangeInclusive,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};

/// What a link is like.
#[derive(Clone, Debug)]
pub struct LinkPlan {
    /// How long a run of bytes is under way.
    pub latency: RangeInclusive<Duration>,
    /// Bytes that may be under way or wait to be taken in one direction.
    pub window_bytes: usize,
    /// The longest run of bytes that comes at once.
    pub longest_run_bytes: usize,
}

impl Default for LinkPlan {
    fn default() -> Self {
        let latency = Duration::from_micros(5)..=Duration::from_micros(80);
        Self { latency, window_bytes: 256 << 10, longest_run_bytes: 64 << 10 }
    }
}

/// How a link is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// Both ends find the connection reset.
    Reset,
    /// Nothing comes any more, and nobody is told.
    Silent,
}

/// One direction.
#[derive(Default)]
struct Lane {
    /// Runs of bytes, and when each comes.
    under_way: VecDeque<(u64, Vec<u8>)>,
    arrived: VecDeque<u8>,
    /// Of the first run, what has come.
    queued_bytes: usize,
    is_closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

struct Link {
    plan: LinkPlan,
    lanes: [Lane; 2],
    cut: Option<Cut>,
    rng: ChaCha8Rng,
}

/// One end of a link. Dropped, it closes the stream of bytes that it sends.
pub struct SimStream {
    world: Weak<SimWorld>,
    link: Arc<Mutex<Link>>,
    /// The lane that this end sends on.
    side: usize,
}

/// Cuts a link.
#[derive(Clone)]
pub struct LinkSwitch(Weak<Mutex<Link>>);

impl SimWorld {
    /// A new link: its two ends, and what cuts it.
    pub fn link(&self, number: u64, plan: LinkPlan) -> (SimStream, SimStream, LinkSwitch) {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed());
        rng.set_stream(1 << 32 | number);
        let link = Arc::new(Mutex::new(Link { plan, lanes: Default::default(), cut: None, rng }));
        let end = |side| SimStream { world: self.weak(), link: link.clone(), side };
        (end(0), end(1), LinkSwitch(Arc::downgrade(&link)))
    }
}

impl LinkSwitch {
    /// Cuts the link. One that is silent may yet be reset; another second cut changes nothing.
    pub fn cut(&self, how: Cut) {
        let Some(link) = self.0.upgrade() else { return };
        let mut link = link.lock();
        if link.cut == Some(Cut::Reset) || link.cut == Some(how) {
            return;
        }
        link.cut = Some(how);
        let Link { lanes, rng, .. } = &mut *link;
        for lane in lanes.iter_mut() {
            // Some of what was under way comes yet, up to any byte.
            let kept = if how == Cut::Silent { 0 } else { rng.random_range(0..=lane.under_way.len()) };
            lane.under_way.truncate(kept);
            if let Some((_, last)) = lane.under_way.back_mut() {
                last.truncate(rng.random_range(0..=last.len()));
            }
        }
        let wakers = lanes.iter_mut().flat_map(|lane| [lane.reader.take(), lane.writer.take()]);
        let wakers: Vec<_> = wakers.flatten().collect();
        drop(link);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl SimStream {
    /// Takes bytes that came into `into`; ready with 0 at the end of the stream.
    ///
    /// # Errors
    /// The connection was reset.
    pub fn poll_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let Some(world) = self.world.upgrade() else { return Poll::Pending };
        let mut guard = self.link.lock();
        let Link { lanes, cut, rng, .. } = &mut *guard;
        let lane = &mut lanes[1 - self.side];
        let now = world.now_ns();
        while let Some((_, run)) = lane.under_way.pop_front_if(|(at, _)| *at <= now) {
            lane.arrived.extend(run);
        }
        if !lane.arrived.is_empty() && !into.is_empty() {
            let most = lane.arrived.len().min(into.len());
            // As a rule all there is, sometimes less.
            let taken = if rng.random_bool(0.7) { most } else { rng.random_range(1..=most) };
            for (byte, from) in into.iter_mut().zip(lane.arrived.drain(..taken)) {
                *byte = from;
            }
            lane.queued_bytes -= taken;
            let writer = lane.writer.take();
            drop(guard);
            writer.into_iter().for_each(Waker::wake);
            return Poll::Ready(Ok(taken));
        }
        if let Some((at, _)) = lane.under_way.front() {
            world.wake_at(*at, cx.waker().clone());
            return Poll::Pending;
        }
        match cut {
            Some(Cut::Reset) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            None if lane.is_closed => return Poll::Ready(Ok(0)),
            Some(Cut::Silent) | None => {}
        }
        lane.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Sends the beginning of `bytes`; ready with how many were taken.
    ///
    /// # Errors
    /// The connection was reset.
    pub fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Some(world) = self.world.upgrade() else { return Poll::Pending };
        let mut guard = self.link.lock();
        let Link { plan, lanes, cut, rng } = &mut *guard;
        if *cut == Some(Cut::Reset) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let lane = &mut lanes[self.side];
        let room = plan.window_bytes.saturating_sub(lane.queued_bytes).min(bytes.len());
        if room == 0 && !bytes.is_empty() {
            lane.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let taken = if room < 2 || rng.random_bool(0.7) { room } else { rng.random_range(1..=room) };
        lane.queued_bytes += taken;
        let mut rest = &bytes[..taken];
        while !rest.is_empty() && cut.is_none() {
            let most = rest.len().min(plan.longest_run_bytes);
            let len = if rng.random_bool(0.5) { most } else { rng.random_range(1..=most) };
            let (least, longest) =
                (plan.latency.start().as_nanos() as u64, plan.latency.end().as_nanos() as u64);
            let at = world.now_ns() + rng.random_range(least..=longest);
            let at = lane.under_way.back().map_or(at, |(before, _)| at.max(*before));
            let (run, later) = rest.split_at(len);
            lane.under_way.push_back((at, run.to_vec()));
            rest = later;
        }
        let reader = lane.reader.take();
        drop(guard);
        reader.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(taken))
    }

    /// Nothing more is sent: the other end finds the end of the stream behind what was.
    pub fn close(&self) {
        let mut link = self.link.lock();
        let lane = &mut link.lanes[self.side];
        lane.is_closed = true;
        let reader = lane.reader.take();
        drop(link);
        reader.into_iter().for_each(Waker::wake);
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SimOptions, Stopped};
    use quoin_world::{Thread, World};
    use std::future::poll_fn;

    fn world(seed: u64) -> Arc<SimWorld> {
        SimWorld::new(seed, SimOptions::default())
    }

    /// Sends all of `bytes`; false when the connection is reset.
    async fn send(end: &SimStream, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            match poll_fn(|cx| end.poll_write(cx, bytes)).await {
                Ok(sent) => bytes = &bytes[sent..],
                Err(_) => return false,
            }
        }
        true
    }

    /// Takes what comes until the stream ends; also whether it was reset.
    async fn take(end: &SimStream) -> (Vec<u8>, bool) {
        let mut all = Vec::new();
        loop {
            let mut bytes = [0; 100];
            match poll_fn(|cx| end.poll_read(cx, &mut bytes)).await {
                Ok(0) => return (all, false),
                Ok(len) => all.extend_from_slice(&bytes[..len]),
                Err(_) => return (all, true),
            }
        }
    }

    fn sent() -> Vec<u8> {
        (0..5000u32).map(|n| (n % 251) as u8).collect()
    }

    #[test]
    fn bytes_come_in_order_in_any_pieces_and_then_the_end() {
        for seed in 0..30 {
            let world = world(seed);
            let plan = LinkPlan { window_bytes: 700, longest_run_bytes: 90, ..LinkPlan::default() };
            let (one, two, _) = world.link(0, plan);
            world.spawn(Thread::Background, Box::pin(async move { assert!(send(&one, &sent()).await) }));
            let taken = world.run(async move { take(&two).await });
            assert_eq!(taken.ok(), Some((sent(), false)), "seed {seed}");
        }
    }

    #[test]
    fn a_reset_is_told_to_both_ends_behind_some_of_what_was_under_way() {
        let mut lengths = std::collections::BTreeSet::new();
        for seed in 0..30 {
            let world = world(seed);
            let (one, two, switch) = world.link(0, LinkPlan::default());
            let outcome = world.run(async move {
                assert!(send(&one, &sent()).await);
                switch.cut(Cut::Reset);
                (take(&two).await, send(&one, b"more").await, take(&one).await.1)
            });
            let Ok(((taken, two_told), more_sent, one_told)) = outcome else { panic!("seed {seed}") };
            assert!(two_told && one_told && !more_sent, "seed {seed}");
            assert!(sent().starts_with(&taken), "seed {seed}");
            lengths.insert(taken.len());
        }
        assert!(lengths.len() > 5, "{lengths:?}");
    }

    #[test]
    fn nobody_is_told_of_a_silent_cut() {
        let world = world(1);
        let (one, two, switch) = world.link(0, LinkPlan::default());
        let waits = world.run(async move {
            switch.cut(Cut::Silent);
            assert!(send(&one, b"lost").await);
            take(&two).await
        });
        assert!(matches!(waits, Err(Stopped::Deadlock { .. })), "{waits:?}");
    }
}
