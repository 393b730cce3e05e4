//! The threads of the array.

use crate::{
    StartError,
    ring::{self, Local},
    time_slice::ask_for_short_slices,
    timer,
    workers::{Fuse, Workers},
};
use parking_lot::Mutex;
use quoin_world::{Job, Nanos, OneShot, Task, Thread, World, one_shot};
use std::{
    collections::BTreeMap,
    future::Future,
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::{LocalSet, spawn_local},
};

/// Makes the tasks of a spawn, on the thread they run on.
type Start = Box<dyn FnOnce() + Send>;

/// The world on Linux: data threads, a background thread, a thread for each committer that was ever given a task, and
/// workers, as many as cores but one.
///
/// Tasks usually hold an `Arc` of it, so it goes away only by [`LinuxWorld::shutdown`].
pub struct LinuxWorld {
    number: u64,
    started: Instant,
    data_threads: usize,
    /// One per data thread, then the background thread's.
    inboxes: Vec<Inbox>,
    committers: Mutex<Committers>,
    workers: Workers,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

type Inbox = UnboundedSender<Message>;

/// Threads that are made when they are first wanted. Without tasks they sleep.
#[derive(Default)]
struct Committers {
    inboxes: BTreeMap<Thread, Inbox>,
    /// None is made any more.
    has_ended: bool,
}

enum Message {
    Run(Start),
    Stop,
}

impl LinuxWorld {
    /// Starts `data_threads` data threads, at least one, and the background thread.
    ///
    /// # Errors
    /// [`StartError::Ring`] if the system sets up no io_uring, [`StartError::Thread`] if it starts no thread
    /// or event loop.
    pub fn start(data_threads: usize) -> Result<Arc<LinuxWorld>, StartError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let data_threads = data_threads.max(1);
        let (mut inboxes, mut threads) = (Vec::new(), Vec::new());
        let (report, reports) = mpsc::channel();
        let fixed = (0..data_threads).map(Thread::Data).chain([Thread::Background]);
        for thread in fixed {
            let (inbox, handle) = start_thread(number, thread, report.clone())?;
            inboxes.push(inbox);
            threads.push(handle);
        }
        let world = LinuxWorld {
            number,
            started: Instant::now(),
            data_threads,
            inboxes,
            committers: Mutex::default(),
            workers: Workers::new(),
            threads: Mutex::new(threads),
        };
        // Each thread reports whether it has its ring; the first failure ends them all.
        for _ in 0..=data_threads {
            reports.recv().map_err(|_| died())??;
        }
        Ok(Arc::new(world))
    }

    /// Runs `future` on `thread`; its output comes back through the one-shot, or `None` if it panicked or
    /// the world was shut down first. May be called from anywhere.
    pub fn run_on<T: Send + 'static>(
        &self,
        thread: Thread,
        future: impl Future<Output = T> + Send + 'static,
    ) -> OneShot<T> {
        let (sender, receiver) = one_shot();
        self.send(
            thread,
            Box::new(move || {
                spawn_local(async move { sender.send(future.await) });
            }),
        );
        receiver
    }

    /// Runs the future that `make` makes on `thread`, where it may hold what must not leave the thread. May
    /// be called from anywhere.
    pub fn spawn_local_on<F: Future<Output = ()> + 'static>(
        &self,
        thread: Thread,
        make: impl FnOnce() -> F + Send + 'static,
    ) {
        self.send(
            thread,
            Box::new(move || {
                spawn_local(or_abort(make()));
            }),
        );
    }

    /// Drops all tasks, waits for the disk operations in flight and ends the threads. Does nothing the
    /// second time. Called on one of its own threads it does not wait for that one.
    pub fn shutdown(&self) {
        // No thread of a committer is made from here on; all threads are told to stop, then waited for.
        let committers = {
            let mut committers = self.committers.lock();
            committers.has_ended = true;
            std::mem::take(&mut committers.inboxes)
        };
        for inbox in self.inboxes.iter().chain(committers.values()) {
            let _ = inbox.send(Message::Stop);
        }
        self.workers.end();
        for handle in std::mem::take(&mut *self.threads.lock()) {
            if handle.thread().id() != thread::current().id() {
                let _ = handle.join();
            }
        }
    }

    fn send(&self, thread: Thread, start: Start) {
        // On the thread itself it begins at once, without a message.
        if let Some(here) = ring::local().filter(|here| here.world == self.number && here.thread == thread) {
            if here.running.get() {
                start();
            }
            return;
        }
        let inbox = match thread {
            Thread::Data(index) => {
                assert!(index < self.data_threads, "no data thread {index}");
                Some(self.inboxes[index].clone())
            }
            Thread::Background => Some(self.inboxes[self.data_threads].clone()),
            Thread::Committer(_) => self.committer(thread),
        };
        // A thread that has stopped drops it.
        if let Some(inbox) = inbox {
            drop(inbox.send(Message::Run(start)));
        }
    }

    /// The inbox of a committer's thread, which is made if there is none yet. Where the system gives no more threads,
    /// it is the background thread's: a committer that shares a thread is slower and no less right. `None` once the world
    /// has ended.
    fn committer(&self, thread: Thread) -> Option<Inbox> {
        let mut committers = self.committers.lock();
        if committers.has_ended {
            return None;
        }
        if let Some(inbox) = committers.inboxes.get(&thread) {
            return Some(inbox.clone());
        }
        let (report, reports) = mpsc::channel();
        // The thread is made, and reports, before anything is sent to it.
        let made = start_thread(self.number, thread, report);
        let made = made.and_then(|made| reports.recv().map_err(|_| died())?.map(|()| made));
        let inbox = match made {
            Ok((inbox, handle)) => {
                self.threads.lock().push(handle);
                inbox
            }
            Err(_) => self.inboxes[self.data_threads].clone(),
        };
        committers.inboxes.insert(thread, inbox.clone());
        Some(inbox)
    }
}

impl Drop for LinuxWorld {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// Starts a thread, which reports whether it is one of the array.
fn start_thread(
    world: u64,
    thread: Thread,
    report: mpsc::Sender<Result<(), StartError>>,
) -> Result<(Inbox, JoinHandle<()>), StartError> {
    let name = match thread {
        Thread::Data(index) => format!("data-{index}"),
        Thread::Committer(slice) => format!("committer-{}", slice.0),
        Thread::Background => "background".to_owned(),
    };
    let (inbox, messages) = unbounded_channel();
    let body = move || run_thread(world, thread, messages, &report);
    let handle = thread::Builder::new().name(name).spawn(body).map_err(StartError::Thread)?;
    Ok((inbox, handle))
}

fn died() -> StartError {
    StartError::Thread(io::Error::other("it ended at once"))
}

fn run_thread(
    world: u64,
    thread: Thread,
    mut messages: UnboundedReceiver<Message>,
    report: &mpsc::Sender<Result<(), StartError>>,
) {
    if let Thread::Data(_) = thread {
        // If the system refuses, hosts wait a little longer where cores are busy.
        let _ = ask_for_short_slices();
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(report.send(Err(StartError::Thread(error)))),
    };
    let local = match Local::enter(world, thread) {
        Ok(local) => local,
        Err(error) => return drop(report.send(Err(StartError::Ring(error)))),
    };
    let _ = report.send(Ok(()));
    // The driver of the ring runs beside the tasks that messages begin.
    let tasks = LocalSet::new();
    let driver = local.clone();
    tasks.block_on(&runtime, async move {
        spawn_local(or_abort(async move {
            if let Err(error) = driver.drive().await {
                panic!("io_uring of {thread:?} failed: {error}");
            }
        }));
        while let Some(Message::Run(start)) = messages.recv().await {
            start();
        }
    });
    // NOTE: nothing is submitted from here on. Tasks are dropped, then the kernel gives the buffers back.
    local.running.set(false);
    {
        let _runtime = runtime.enter();
        drop(tasks);
    }
    local.leave();
}

/// Ends the process if `task` panics.
async fn or_abort(task: impl Future<Output = ()>) {
    let _fuse = Fuse;
    task.await;
}

impl World for LinuxWorld {
    fn now(&self) -> Nanos {
        // Not zero at the start: some subtract from it.
        Nanos(1_000_000_000 + u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX / 2))
    }

    fn wall_clock_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn sleep(&self, duration: Duration) -> Task {
        Box::pin(async move { tokio::time::sleep(duration).await })
    }

    fn sleep_precisely(&self, duration: Duration) -> Task {
        Box::pin(timer::sleep(duration))
    }

    fn yield_now(&self) -> Task {
        // Hosts wait for data threads, and for others only through these.
        if !matches!(self.current(), Some(Thread::Data(_))) {
            std::thread::yield_now();
        }
        Box::pin(tokio::task::yield_now())
    }

    fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        let mut filled = 0;
        while filled < bytes.len() {
            let flags = rustix::rand::GetRandomFlags::empty();
            match rustix::rand::getrandom(&mut bytes[filled..], flags) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("the kernel gives no random bytes: {error}"),
            }
        }
        u64::from_le_bytes(bytes)
    }

    fn data_threads(&self) -> usize {
        self.data_threads
    }

    fn current(&self) -> Option<Thread> {
        ring::local().filter(|here| here.world == self.number).map(|here| here.thread)
    }

    fn spawn(&self, thread: Thread, task: Task) {
        self.send(
            thread,
            Box::new(move || {
                spawn_local(or_abort(task));
            }),
        );
    }

    fn workers(&self) -> usize {
        self.workers.count()
    }

    fn offload(&self, job: Job) {
        self.workers.give(job);
    }
}

/// Waits for `future` on an ordinary thread, such as the one `main` runs on.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
