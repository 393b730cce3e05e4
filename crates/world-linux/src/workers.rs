//! Threads for work that needs processors alone.
//!
//! They are made when there is work for the first time: as many as cores but one, which is left to those that wait for the
//! outcome. They sleep while there is none, and yield to all other threads of the array.

use parking_lot::{Condvar, Mutex};
use quoin_world::Job;
use std::{
    collections::VecDeque,
    sync::Arc,
    thread::{self, JoinHandle},
};

/// What workers are nicer by than other threads: they get about a third of a core that both want.
const NICE: i32 = 5;

/// The workers of a world.
pub(crate) struct Workers {
    count: usize,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: Vec<JoinHandle<()>>,
    /// Nothing is done any more.
    has_ended: bool,
}

impl Workers {
    pub(crate) fn new() -> Self {
        let count = thread::available_parallelism().map_or(0, |cores| cores.get() - 1);
        Self { count, shared: Arc::default() }
    }

    /// How many there are, or will be once they are wanted.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Has a worker do the job. Without any, it is done at once; after the end, not at all.
    pub(crate) fn give(&self, job: Job) {
        let mut queue = self.shared.queue.lock();
        if queue.has_ended {
            return;
        }
        if queue.threads.is_empty() {
            self.start(&mut queue);
        }
        if queue.threads.is_empty() {
            drop(queue);
            return job();
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.shared.wake.notify_one();
    }

    /// Starts as many threads as the system gives.
    fn start(&self, queue: &mut Queue) {
        for index in 0..self.count {
            let shared = self.shared.clone();
            let started = thread::Builder::new().name(format!("worker-{index}")).spawn(move || shared.work());
            queue.threads.extend(started);
        }
    }

    /// Drops what was not begun and waits for what was.
    pub(crate) fn end(&self) {
        let (jobs, threads) = {
            let mut queue = self.shared.queue.lock();
            queue.has_ended = true;
            (std::mem::take(&mut queue.jobs), std::mem::take(&mut queue.threads))
        };
        self.shared.wake.notify_all();
        drop(jobs);
        for handle in threads {
            if handle.thread().id() != thread::current().id() {
                let _ = handle.join();
            }
        }
    }
}

impl Shared {
    /// Does one job after the other until the end.
    fn work(&self) {
        // Where it is refused, workers are as others are.
        let _ = rustix::process::setpriority_process(None, NICE);
        loop {
            let job = {
                let mut queue = self.queue.lock();
                loop {
                    if queue.has_ended {
                        return;
                    }
                    if let Some(job) = queue.jobs.pop_front() {
                        break job;
                    }
                    self.wake.wait(&mut queue);
                }
            };
            let _fuse = Fuse;
            job();
        }
    }
}

/// Ends the process if what holds it panics.
pub(crate) struct Fuse;

impl Drop for Fuse {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}
