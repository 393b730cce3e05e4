//! The threads of the array.

use crate::{
    StartError,
    ring::{self, Local},
};
use parking_lot::Mutex;
use quoin_world::{Nanos, OneShot, Task, Thread, World, one_shot};
use std::{
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
type Job = Box<dyn FnOnce() + Send>;

/// The world on Linux: data threads and a background thread.
///
/// Tasks usually hold an `Arc` of it, so it goes away only by [`LinuxWorld::shutdown`].
pub struct LinuxWorld {
    number: u64,
    started: Instant,
    data_threads: usize,
    /// One per data thread, then the background thread's.
    inboxes: Vec<UnboundedSender<Message>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

enum Message {
    Run(Job),
    Stop,
}

impl LinuxWorld {
    /// Starts `data_threads` data threads, at least one, and the background thread.
    pub fn start(data_threads: usize) -> Result<Arc<LinuxWorld>, StartError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let data_threads = data_threads.max(1);
        let (mut inboxes, mut threads) = (Vec::new(), Vec::new());
        let (report, reports) = mpsc::channel();
        for index in 0..=data_threads {
            let (thread, name) = match index {
                i if i == data_threads => (Thread::Background, "background".to_owned()),
                i => (Thread::Data(i), format!("data-{i}")),
            };
            let (inbox, messages) = unbounded_channel();
            let report = report.clone();
            let body = move || run_thread(number, thread, messages, &report);
            threads.push(thread::Builder::new().name(name).spawn(body).map_err(StartError::Thread)?);
            inboxes.push(inbox);
        }
        let world = LinuxWorld {
            number,
            started: Instant::now(),
            data_threads,
            inboxes,
            threads: Mutex::new(threads),
        };
        for _ in 0..=data_threads {
            let died = || StartError::Thread(io::Error::other("it ended at once"));
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
        for inbox in &self.inboxes {
            let _ = inbox.send(Message::Stop);
        }
        for handle in std::mem::take(&mut *self.threads.lock()) {
            if handle.thread().id() != thread::current().id() {
                let _ = handle.join();
            }
        }
    }

    fn send(&self, thread: Thread, job: Job) {
        let index = match thread {
            Thread::Data(index) => {
                assert!(index < self.data_threads, "no data thread {index}");
                index
            }
            Thread::Background => self.data_threads,
        };
        match ring::local() {
            Some(here) if here.world == self.number && here.thread == thread => {
                if here.running.get() {
                    job();
                }
            }
            // A thread that has stopped drops the job.
            _ => drop(self.inboxes[index].send(Message::Run(job))),
        }
    }
}

impl Drop for LinuxWorld {
    fn drop(&mut self) {
        self.shutdown();
    }
}

fn run_thread(
    world: u64,
    thread: Thread,
    mut messages: UnboundedReceiver<Message>,
    report: &mpsc::Sender<Result<(), StartError>>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(report.send(Err(StartError::Thread(error)))),
    };
    let local = match Local::enter(world, thread) {
        Ok(local) => local,
        Err(error) => return drop(report.send(Err(StartError::Ring(error)))),
    };
    let _ = report.send(Ok(()));
    let tasks = LocalSet::new();
    let driver = local.clone();
    tasks.block_on(&runtime, async move {
        spawn_local(or_abort(async move {
            if let Err(error) = driver.drive().await {
                panic!("io_uring of {thread:?} failed: {error}");
            }
        }));
        while let Some(Message::Run(job)) = messages.recv().await {
            job();
        }
    });
    local.running.set(false);
    {
        let _runtime = runtime.enter();
        drop(tasks);
    }
    local.leave();
}

/// Ends the process if `task` panics.
async fn or_abort(task: impl Future<Output = ()>) {
    struct Fuse;
    impl Drop for Fuse {
        fn drop(&mut self) {
            if thread::panicking() {
                std::process::abort();
            }
        }
    }
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

    fn yield_now(&self) -> Task {
        if self.current() == Some(Thread::Background) {
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
