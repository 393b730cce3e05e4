//! The executor: tasks, timers and disk operations, one at a time, in an order drawn from the seed.
//!
//! Invariants:
//! 1. Nothing of the engines (a future, its destructor, a waker) runs while the state is locked.
//! 2. A task is in `ready` at most once, and only when it was woken after its last poll began.
//! 3. Task and event numbers are never used twice, so a waker from before a power cut wakes nobody.

use crate::{SimDisk, trace::Trace};
use parking_lot::Mutex;
use quoin_base::ByteRange;
use quoin_world::{Job, Nanos, Task, Thread, World};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak, atomic},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};
use thiserror::Error;

/// A fixed moment for people to read: 2026-01-01.
const WALL_CLOCK_START_MS: u64 = 1_767_225_600_000;

/// The longest that a job waits for its worker.
const LONGEST_OFFLOAD_NS: u64 = 500_000;

/// What a simulated world is like.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// How many data threads there are: at least one.
    pub data_threads: usize,
    /// How many steps (polls, timers, disk completions) one [`SimWorld::run`] may take before it counts as
    /// never ending.
    pub step_limit: u64,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self { data_threads: 2, step_limit: 100_000_000 }
    }
}

/// When the power is to be cut, counted from when this is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PowerCut {
    /// Not at all.
    #[default]
    Never,
    /// Before the step after so many others.
    AfterSteps(u64),
    /// Right after the task that submits the disk operation of this number, from 1 on, waits again.
    AtDiskOp(u64),
    /// Right after the task that submits so many writes that touch this range of any disk, from 1 on, waits
    /// again.
    AtWriteTo(ByteRange, u64),
}

/// Why the main future did not end.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Stopped {
    /// The power was cut as asked for. All tasks are gone; the disks are as the cut left them.
    #[error("seed {seed}: power cut at step {step}")]
    PowerCut {
        /// The world's seed.
        seed: u64,
        /// Steps since the world began.
        step: u64,
    },
    /// Every task waits and nothing is there that could wake one.
    #[error("seed {seed}: deadlock at step {step}: {tasks} tasks wait and nothing is under way")]
    Deadlock {
        /// The world's seed.
        seed: u64,
        /// Steps since the world began.
        step: u64,
        /// How many tasks there are.
        tasks: usize,
    },
    /// A task panicked.
    #[error("seed {seed}: a task of {thread:?} panicked at step {step}: {message}")]
    Panicked {
        /// The world's seed.
        seed: u64,
        /// Steps since the world began.
        step: u64,
        /// The task's thread.
        thread: Thread,
        /// What it said.
        message: String,
    },
    /// It went on beyond [`SimOptions::step_limit`].
    #[error("seed {seed}: no end after {steps} steps")]
    Endless {
        /// The world's seed.
        seed: u64,
        /// Steps of this run.
        steps: u64,
    },
}

/// The simulated world. Tasks often hold an `Arc` of it: [`SimWorld::end`] frees them and with them the world.
pub struct SimWorld {
    me: Weak<SimWorld>,
    seed: u64,
    options: SimOptions,
    state: Mutex<State>,
    offload_times: atomic::AtomicU64,
}

struct State {
    now_ns: u64,
    steps: u64,
    disk_ops: u64,
    cut_at: PowerCut,
    cut_now: bool,
    /// The cut ends the process only: drives keep their caches.
    spares_drives: bool,
    dropping: bool,
    trace: Trace,
    scheduler: ChaCha8Rng,
    engines: ChaCha8Rng,
    tasks: BTreeMap<u64, SimTask>,
    ready: Vec<Ready>,
    current: Option<(u64, Thread)>,
    events: BTreeMap<(u64, u64), Event>,
    next_number: u64,
    disks: Vec<Arc<SimDisk>>,
}

struct SimTask {
    thread: Thread,
    /// Gone while it is polled.
    future: Option<Task>,
    is_ready: bool,
    /// It yielded: everything of its thread made ready up to this number goes first.
    yields_to: Option<u64>,
}

struct Ready {
    number: u64,
    task: u64,
    thread: Thread,
    yields_to: Option<u64>,
}

enum Event {
    Wake(Waker),
    Disk(u64),
}

enum Step {
    Poll(u64, Thread, Task),
    Wake(Waker),
    Disk(Arc<SimDisk>, u64),
    Stop(Stopped),
}

struct TaskWaker {
    world: Weak<SimWorld>,
    task: u64,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if let Some(world) = self.world.upgrade() {
            world.state.lock().make_ready(self.task);
        }
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn make_ready(&mut self, task: u64) {
        let number = self.number();
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        if std::mem::replace(&mut entry.is_ready, true) {
            return;
        }
        let (thread, yields_to) = (entry.thread, entry.yields_to.take());
        self.ready.push(Ready { number, task, thread, yields_to });
    }

    /// Chooses among the ready tasks, but for one that yields the oldest of its thread.
    fn choose(&mut self) -> Ready {
        let mut at = self.scheduler.random_range(0..self.ready.len());
        let Ready { thread, yields_to, .. } = self.ready[at];
        if let Some(limit) = yields_to {
            let rivals = self.ready.iter().enumerate();
            let goes_first = rivals.filter(|(_, r)| r.thread == thread && r.number <= limit);
            at = goes_first.min_by_key(|(_, r)| r.number).map_or(at, |(i, _)| i);
        }
        self.ready.swap_remove(at)
    }

    fn next_event_ns(&self) -> Option<u64> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    fn power_is_cut(&mut self) -> bool {
        self.cut_now |= self.cut_at == PowerCut::AfterSteps(0);
        if let PowerCut::AfterSteps(left) = &mut self.cut_at {
            *left = left.saturating_sub(1);
        }
        std::mem::take(&mut self.cut_now)
    }
}

impl SimWorld {
    /// A world with no disks yet, at the beginning of its time.
    pub fn new(seed: u64, options: SimOptions) -> Arc<SimWorld> {
        assert!(options.data_threads > 0, "a world has a data thread");
        let rng = |stream| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(stream);
            rng
        };
        let state = State {
            now_ns: 1_000_000_000,
            steps: 0,
            disk_ops: 0,
            cut_at: PowerCut::Never,
            cut_now: false,
            spares_drives: false,
            dropping: false,
            trace: Trace::default(),
            scheduler: rng(1),
            engines: rng(2),
            tasks: BTreeMap::new(),
            ready: Vec::new(),
            current: None,
            events: BTreeMap::new(),
            next_number: 0,
            disks: Vec::new(),
        };
        Arc::new_cyclic(|me| SimWorld {
            me: me.clone(),
            seed,
            options,
            state: Mutex::new(state),
            offload_times: atomic::AtomicU64::new(1),
        })
    }

    /// Workers take so many times as long from here on.
    pub fn slow_workers(&self, times: u64) {
        self.offload_times.store(times, atomic::Ordering::Relaxed);
    }

    /// A new disk of zeroes. It outlives power cuts.
    pub fn disk(&self, name: &str, len_bytes: u64) -> Arc<SimDisk> {
        let mut state = self.state.lock();
        let number = state.disks.len() as u64;
        let disk = Arc::new(SimDisk::new(self.me.clone(), self.seed, number, name, len_bytes));
        state.disks.push(disk.clone());
        disk
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A hash of every scheduling decision, disk operation and completion so far.
    pub fn trace_hash(&self) -> u64 {
        self.state.lock().trace.hash()
    }

    /// Steps and disk operations so far, to choose power cuts by.
    pub fn progress(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.steps, state.disk_ops)
    }

    /// Sets when the power is to be cut; replaces what was set before.
    pub fn cut_power(&self, at: PowerCut) {
        self.set_cut(at, false);
    }

    /// Sets when the process is to be killed, as [`SimWorld::kill`] does; replaces what was set before.
    pub fn kill_process(&self, at: PowerCut) {
        self.set_cut(at, true);
    }

    fn set_cut(&self, at: PowerCut, spares_drives: bool) {
        let mut state = self.state.lock();
        state.spares_drives = spares_drives;
        state.cut_at = match at {
            PowerCut::AtDiskOp(n) => PowerCut::AtDiskOp(state.disk_ops + n.max(1)),
            other => other,
        };
    }

    /// Cuts the power as soon as the task that calls this waits. Does not end the calling task at once.
    pub fn cut_power_now(&self) {
        self.state.lock().cut_now = true;
    }

    /// Runs `main` on data thread 0, and all other tasks, until `main` ends. Others stay as they are and go
    /// on in the next run.
    pub fn run<T: Send + 'static>(
        &self,
        main: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Stopped> {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        self.spawn(
            Thread::Data(0),
            Box::pin(async move {
                let value = main.await;
                *slot.lock() = Some(value);
            }),
        );
        for _ in 0..self.options.step_limit {
            if let Err(stopped) = self.step() {
                if matches!(stopped, Stopped::PowerCut { .. }) {
                    let spares_drives = self.state.lock().spares_drives;
                    if spares_drives { self.kill() } else { self.crash() }
                }
                return Err(stopped);
            }
            if let Some(value) = result.lock().take() {
                return Ok(value);
            }
        }
        Err(Stopped::Endless { seed: self.seed, steps: self.options.step_limit })
    }

    /// A power cut, now: all tasks are gone, and every write that was not durable is kept, lost or torn. The
    /// clock goes on; the next [`SimWorld::run`] is a new boot on the same disks.
    pub fn crash(&self) {
        self.drop_tasks();
        let disks = self.state.lock().disks.clone();
        disks.iter().for_each(|disk| disk.cut_power());
        self.trace("power cut", &[]);
    }

    /// The process is killed, now: all tasks are gone, each write in flight is done or not, and drives keep
    /// what is in their volatile caches, for a later power cut to take away.
    pub fn kill(&self) {
        self.drop_tasks();
        let disks = self.state.lock().disks.clone();
        disks.iter().for_each(|disk| disk.lose_host());
        self.trace("killed", &[]);
    }

    /// Drops all tasks and forgets operations in flight, so that the world can be freed.
    pub fn end(&self) {
        self.drop_tasks();
        let disks = self.state.lock().disks.clone();
        disks.iter().for_each(|disk| disk.abandon());
    }

    fn drop_tasks(&self) {
        self.state.lock().dropping = true;
        loop {
            let (tasks, events) = {
                let mut state = self.state.lock();
                state.ready.clear();
                (std::mem::take(&mut state.tasks), std::mem::take(&mut state.events))
            };
            if tasks.is_empty() && events.is_empty() {
                break;
            }
            // Destructors may spawn again: hence the loop.
            drop(events);
            drop(tasks);
        }
        let mut state = self.state.lock();
        state.dropping = false;
        state.cut_at = PowerCut::Never;
        state.cut_now = false;
        state.spares_drives = false;
    }

    fn step(&self) -> Result<(), Stopped> {
        let step = self.next_step();
        match step {
            Step::Stop(stopped) => Err(stopped),
            Step::Wake(waker) => {
                waker.wake();
                Ok(())
            }
            Step::Disk(disk, id) => {
                disk.complete(id);
                Ok(())
            }
            Step::Poll(task, thread, future) => self.poll(task, thread, future),
        }
    }

    fn next_step(&self) -> Step {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let (seed, step) = (self.seed, state.steps);
        if state.power_is_cut() {
            return Step::Stop(Stopped::PowerCut { seed, step });
        }
        state.steps += 1;
        let next_event_ns = state.next_event_ns();
        let event_due = next_event_ns.is_some_and(|at| at <= state.now_ns);
        if state.ready.is_empty() || (event_due && state.scheduler.random()) {
            let Some(((at, number), event)) = state.events.pop_first() else {
                return Step::Stop(Stopped::Deadlock { seed, step, tasks: state.tasks.len() });
            };
            state.now_ns = state.now_ns.max(at);
            state.trace.feed("event", &[number, state.now_ns]);
            return match event {
                Event::Wake(waker) => Step::Wake(waker),
                Event::Disk(disk) => Step::Disk(state.disks[disk as usize].clone(), number),
            };
        }
        let Ready { task, thread, .. } = state.choose();
        state.now_ns += state.scheduler.random_range(100..3000);
        state.trace.feed("poll", &[task, state.now_ns]);
        state.current = Some((task, thread));
        let entry = state.tasks.get_mut(&task);
        let entry = entry.expect("a ready task exists");
        entry.is_ready = false;
        let future = entry.future.take().expect("a ready task is not being polled");
        Step::Poll(task, thread, future)
    }

    fn poll(&self, task: u64, thread: Thread, mut future: Task) -> Result<(), Stopped> {
        let waker = Waker::from(Arc::new(TaskWaker { world: self.me.clone(), task }));
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            match polled {
                Poll::Ready(()) => drop(future),
                Poll::Pending => return Some(future),
            }
            None
        }));
        let mut state = self.state.lock();
        state.current = None;
        match polled {
            Ok(Some(future)) => {
                if let Some(entry) = state.tasks.get_mut(&task) {
                    entry.future = Some(future);
                }
                Ok(())
            }
            Ok(None) => {
                state.tasks.remove(&task);
                state.ready.retain(|r| r.task != task);
                Ok(())
            }
            Err(panic) => {
                state.tasks.remove(&task);
                state.ready.retain(|r| r.task != task);
                let said = panic.downcast_ref::<String>().map(String::as_str);
                let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("nothing");
                let (seed, step, message) = (self.seed, state.steps, said.to_owned());
                Err(Stopped::Panicked { seed, step, thread, message })
            }
        }
    }

    pub(crate) fn weak(&self) -> Weak<SimWorld> {
        self.me.clone()
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.state.lock().now_ns
    }

    /// Wakes a task at a moment, unless all tasks are dropped before.
    pub(crate) fn wake_at(&self, at_ns: u64, waker: Waker) {
        let mut state = self.state.lock();
        if !state.dropping {
            let number = state.number();
            state.events.insert((at_ns, number), Event::Wake(waker));
        }
    }

    pub(crate) fn trace(&self, what: &'static str, numbers: &[u64]) {
        self.state.lock().trace.feed(what, numbers);
    }

    /// Numbers an operation of disk `disk` and lets it end after `latency_ns`; `None` while tasks are dropped.
    pub(crate) fn schedule_disk(&self, disk: u64, latency_ns: u64, wrote: Option<ByteRange>) -> Option<u64> {
        let mut state = self.state.lock();
        if state.dropping {
            return None;
        }
        assert!(state.current.is_some(), "disk {disk} was used outside the array's threads");
        state.disk_ops += 1;
        state.cut_now |= state.cut_at == PowerCut::AtDiskOp(state.disk_ops);
        if let (PowerCut::AtWriteTo(range, left), Some(wrote)) = (&mut state.cut_at, wrote)
            && wrote.offset < range.end()
            && range.offset < wrote.end()
        {
            *left = left.saturating_sub(1);
            let reached = *left == 0;
            state.cut_now |= reached;
        }
        let (id, at) = (state.number(), state.now_ns + latency_ns);
        state.events.insert((at, id), Event::Disk(disk));
        Some(id)
    }
}

impl World for SimWorld {
    fn now(&self) -> Nanos {
        Nanos(self.state.lock().now_ns)
    }

    fn wall_clock_ms(&self) -> u64 {
        WALL_CLOCK_START_MS + self.now().0 / 1_000_000
    }

    fn sleep(&self, duration: Duration) -> Task {
        let world = self.me.clone();
        let mut deadline = None;
        Box::pin(poll_fn(move |cx| {
            let Some(world) = world.upgrade() else { return Poll::Pending };
            let mut state = world.state.lock();
            let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
            let at = *deadline.get_or_insert(state.now_ns.saturating_add(ns));
            if state.now_ns >= at {
                return Poll::Ready(());
            }
            let number = state.number();
            state.events.insert((at, number), Event::Wake(cx.waker().clone()));
            Poll::Pending
        }))
    }

    fn yield_now(&self) -> Task {
        let world = self.me.clone();
        let mut yielded = false;
        Box::pin(poll_fn(move |_| {
            let Some(world) = world.upgrade().filter(|_| !yielded) else { return Poll::Ready(()) };
            yielded = true;
            let mut state = world.state.lock();
            let (task, _) = state.current.expect("only a task yields");
            let limit = state.next_number;
            if let Some(entry) = state.tasks.get_mut(&task) {
                entry.yields_to = Some(limit);
            }
            state.make_ready(task);
            Poll::Pending
        }))
    }

    fn random_u64(&self) -> u64 {
        self.state.lock().engines.next_u64()
    }

    fn data_threads(&self) -> usize {
        self.options.data_threads
    }

    fn current(&self) -> Option<Thread> {
        self.state.lock().current.map(|(_, thread)| thread)
    }

    fn spawn(&self, thread: Thread, task: Task) {
        if let Thread::Data(index) = thread {
            assert!(index < self.options.data_threads, "no data thread {index}");
        }
        let mut state = self.state.lock();
        let id = state.number();
        let entry = SimTask { thread, future: Some(task), is_ready: false, yields_to: None };
        state.tasks.insert(id, entry);
        state.make_ready(id);
    }

    /// One, or none with some seeds.
    fn workers(&self) -> usize {
        usize::from(!self.seed.is_multiple_of(4))
    }

    /// The job is a task that sleeps first, for as long as the seed says.
    fn offload(&self, job: Job) {
        if self.workers() == 0 {
            return job();
        }
        let waits_ns = self.state.lock().scheduler.random_range(0..LONGEST_OFFLOAD_NS);
        let waits_ns = waits_ns * self.offload_times.load(atomic::Ordering::Relaxed);
        let waits = self.sleep(Duration::from_nanos(waits_ns));
        self.spawn(
            Thread::Background,
            Box::pin(async move {
                waits.await;
                job();
            }),
        );
    }
}

#[cfg(test)]
mod tests;
