//! Threads for work that needs only a processor.
//!
//! They are started when there is work for the first time: one fewer than cores, so that a core is left to the
//! threads that wait for the results. They sleep while there is no work, and yield to all other threads of the
//! array.

use parking_lot::{Condvar, Mutex};
use quoin_world::Job;
use std::{
    collections::VecDeque,
    sync::Arc,
    thread::{self, JoinHandle},
};

/// The nice value of workers. A thread of nice value 0 that wants the same core leaves them about a quarter of it.
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
    /// No job is begun any more.
    has_ended: bool,
}

impl Workers {
    pub(crate) fn new() -> Self {
        let count = thread::available_parallelism().map_or(0, |cores| cores.get() - 1);
        Self { count, shared: Arc::default() }
    }

    /// How many workers there are, or will be once there is work.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Gives the job to a worker. If no worker could be started, runs it at once; after the end, drops it.
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

    /// Drops jobs that no worker has begun, and waits for the others.
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
        // If the system refuses, workers have the same priority as other threads.
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
