//! The io_uring of a thread.
//!
//! Operations are queued by [`submit`] and go to the kernel when the driver task has its turn, after all
//! tasks that were ready before it: one system call for all of them. A durable write goes at once, with all
//! that is queued before it: others wait for it, and the drive can work while their tasks have their turns.
//! The driver sleeps in the runtime's epoll on the ring's own descriptor. On a data thread whose operations come one at a
//! time it asks epoll again and again instead, for a short time (see [`poll`](crate::poll)).
//!
//! Invariants:
//! 1. What an SQE points to (buffers, iovecs, the open file) is owned by the slot its user data names, from
//!    before the SQE is pushed until its CQE is taken; slots may move, what they point to does not.
//! 2. No more SQEs are in flight than the completion queue has room for.
//! 3. No waker or destructor of a task runs while the ring is borrowed.

use crate::{disk::Target, poll::Poller};
use io_uring::{IoUring, opcode, squeue, types};
use quoin_world::{Buf, Completer, Completion, DiskError, DiskOp, Slice, Thread};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io,
    os::fd::{AsRawFd, RawFd},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use tokio::io::{Interest, unix::AsyncFd};

const SQ_ENTRIES: u32 = 256;
const CQ_ENTRIES: u32 = 4096;
/// Less than the kernel's limit on one read or write, in whole pages.
const MAX_IO_BYTES: usize = 1 << 30;
const MAX_IOVECS: usize = 1024;
const MAX_RETRIES: u8 = 100;
/// How long a thread that ends waits for operations in flight; not so long for those that were given up.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);
const LEAVE_LOOK_EVERY: Duration = Duration::from_millis(100);

thread_local! {
    static LOCAL: RefCell<Option<Rc<Local>>> = const { RefCell::new(None) };
}

/// What a thread of the array has of its own.
pub(crate) struct Local {
    pub(crate) world: u64,
    pub(crate) thread: Thread,
    /// Cleared when the thread stops: nothing new is taken on then.
    pub(crate) running: Cell<bool>,
    ring: RefCell<Ring>,
}

/// The calling thread's, if it is one of an array.
pub(crate) fn local() -> Option<Rc<Local>> {
    LOCAL.with_borrow(|local| local.clone())
}

struct Ring {
    uring: IoUring,
    slots: Vec<Option<Operation>>,
    free: Vec<u32>,
    /// Slots that wait for room in a queue, oldest first.
    backlog: VecDeque<u32>,
    in_flight: u32,
    driver: Option<Waker>,
    /// Of data threads.
    poller: Option<Poller>,
}

struct Operation {
    target: Arc<Target>,
    kind: Kind,
    iovecs: Vec<libc::iovec>,
    offset: u64,
    len: u64,
    done: u64,
    retries: u8,
    submitted: Instant,
    completer: Completer,
}

enum Kind {
    Read(Buf),
    Write(Vec<Slice>, bool),
    Flush,
    Discard,
}

enum Progress {
    Done(Result<Buf, DiskError>, Completer),
    Again,
}

/// Queues `op`; an error at once if the calling thread is not one of an array.
pub(crate) fn submit(target: &Arc<Target>, op: DiskOp) -> Completion {
    let (operation, offset, len) = describe(&op);
    LOCAL.with_borrow(|local| match local {
        Some(local) if local.running.get() => {
            // The operation takes over the buffers, and with them the promise to complete.
            let (completer, completion) = Completion::new();
            let kind = match op {
                DiskOp::Read { buf, .. } => Kind::Read(buf),
                // NOTE: each piece of RAM takes one of the few places in a drive's queue. With a row of ordinary pages in it
                // nothing else fits, and a durable write that a host waits for would stand behind the row.
                DiskOp::Write { data, durable, .. } => match Slice::joined_in_huge_page(&data) {
                    Some(joined) => Kind::Write(vec![joined], durable),
                    None => Kind::Write(data, durable),
                },
                DiskOp::Flush => Kind::Flush,
                DiskOp::Discard { .. } => Kind::Discard,
            };
            target.instruments.submitted.increment();
            let (target, iovecs) = (target.clone(), Vec::new());
            local.ring.borrow_mut().add(Operation {
                target,
                kind,
                iovecs,
                offset,
                len,
                done: 0,
                retries: 0,
                submitted: Instant::now(),
                completer,
            });
            completion
        }
        Some(_) => Completion::ready(Err(DiskError::Abandoned)),
        None => {
            let source = io::Error::other("a disk can only be used on a thread of the array");
            Completion::ready(Err(target.error(operation, offset, len, source)))
        }
    })
}

/// What `op` is called, its first byte and its number of bytes.
pub(crate) fn describe(op: &DiskOp) -> (&'static str, u64, u64) {
    match op {
        DiskOp::Read { offset, buf } => ("read", *offset, buf.len() as u64),
        DiskOp::Write { offset, data, .. } => ("write", *offset, data.iter().map(|s| s.len() as u64).sum()),
        DiskOp::Flush => ("flush", 0, 0),
        DiskOp::Discard { offset, len } => ("discard", *offset, *len),
    }
}

impl Local {
    /// Makes the calling thread one of world `world`.
    pub(crate) fn enter(world: u64, thread: Thread) -> io::Result<Rc<Local>> {
        let mut ring = Ring::new()?;
        ring.poller = matches!(thread, Thread::Data(_)).then(Poller::default);
        let ring = RefCell::new(ring);
        let local = Rc::new(Local { world, thread, running: Cell::new(true), ring });
        LOCAL.set(Some(local.clone()));
        Ok(local)
    }

    /// Submits and completes until the thread stops.
    pub(crate) async fn drive(self: Rc<Self>) -> io::Result<()> {
        /// The ring's descriptor, and what keeps it open.
        struct Descriptor(RawFd, #[allow(dead_code, reason = "owns")] Rc<Local>);
        impl AsRawFd for Descriptor {
            fn as_raw_fd(&self) -> RawFd {
                self.0
            }
        }
        // The runtime tells when the ring has completions, through the descriptor of the ring.
        let descriptor = Descriptor(self.ring.borrow().uring.as_raw_fd(), self.clone());
        // SAFETY: the descriptor is the ring's, which is open as long as the `Local` that `descriptor` owns;
        // the ring in it is never replaced.
        let readable = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?;
        loop {
            std::future::poll_fn(|cx| self.turn(&readable, cx)).await?;
            // The runtime asks epoll what is ready before it goes on with a task that yields, sockets included.
            tokio::task::yield_now().await;
        }
    }

    /// Has its turn until it is to have the next one at once.
    fn turn<T: AsRawFd>(&self, readable: &AsyncFd<T>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let unfinished = self.exchange(0)?;
            // Awake, but others have their turn: the runtime comes back at once.
            if self.ring.borrow().polls() {
                return Poll::Ready(Ok(()));
            }
            // Asleep until the ring has completions.
            match readable.poll_read_ready(cx) {
                Poll::Ready(guard) => guard?.clear_ready(),
                Poll::Pending if unfinished => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Pending => {
                    self.ring.borrow_mut().driver = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
        }
    }

    /// Gives the kernel what is queued, waits for `wait` completions, and completes what is done. True when
    /// something is left that the kernel would take now.
    fn exchange(&self, wait: usize) -> io::Result<bool> {
        let mut finished = Vec::new();
        // NOTE: completed once the ring is no longer borrowed: a waker may submit (invariant 3).
        let result = self.ring.borrow_mut().exchange(wait, &mut finished);
        for (outcome, completer) in finished {
            completer.complete(outcome);
        }
        result
    }

    /// Waits until the kernel is done with every buffer, or does not answer; then makes the thread an ordinary one.
    pub(crate) fn leave(self: Rc<Self>) {
        let until = Instant::now() + LEAVE_WITHIN;
        while self.ring.borrow().is_busy() {
            let failed = self.exchange(1).is_err();
            if failed || self.ring.borrow().only_given_up() || Instant::now() >= until {
                // The kernel may still write to the buffers: they are never given back.
                let slots = std::mem::take(&mut self.ring.borrow_mut().slots);
                std::mem::forget(slots);
                break;
            }
        }
        LOCAL.set(None);
    }
}

impl Ring {
    fn new() -> io::Result<Ring> {
        // Not with deferred task work: that wakes nobody who sleeps in epoll on the ring, and through an
        // eventfd it measured no cheaper.
        let mut builder = IoUring::builder();
        builder.setup_cqsize(CQ_ENTRIES).setup_submit_all().setup_coop_taskrun();
        let uring = builder.build(SQ_ENTRIES)?;
        Ok(Ring {
            uring,
            slots: Vec::new(),
            free: Vec::new(),
            backlog: VecDeque::new(),
            in_flight: 0,
            driver: None,
            poller: None,
        })
    }

    /// True when the thread is not to sleep now.
    fn polls(&self) -> bool {
        let until = self.poller.as_ref().and_then(Poller::until);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Operations that are not done.
    fn operations(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn is_busy(&self) -> bool {
        self.in_flight > 0 || !self.backlog.is_empty()
    }

    /// True when nobody waits for any operation that is left.
    fn only_given_up(&self) -> bool {
        self.is_busy() && self.slots.iter().flatten().all(|operation| operation.completer.is_given_up())
    }

    fn add(&mut self, operation: Operation) {
        // A free slot, or a new one.
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        let is_urgent = matches!(operation.kind, Kind::Write(_, true));
        let now = operation.submitted;
        // NOTE: the kernel may still use the buffers of an operation that is in its slot (invariant 1).
        let before = self.slots[slot as usize].replace(operation);
        assert!(before.is_none(), "io_uring: slot {slot} was given twice");
        let operations = self.operations();
        if let Some(poller) = &mut self.poller {
            poller.submitted(operations, now);
        }
        self.backlog.push_back(slot);
        self.fill();
        if is_urgent {
            // Where this fails, the driver tries again and tells.
            let _ = self.uring.submit();
        }
        // The driver sleeps: it is woken for what is not with the kernel yet.
        let is_gone = self.backlog.is_empty() && self.uring.submission().is_empty();
        if !is_gone && let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    /// Moves the backlog into the submission queue, as far as there is room.
    fn fill(&mut self) {
        let mut queue = self.uring.submission();
        while let Some(&slot) = self.backlog.front() {
            // NOTE: no more in flight than completions have room for (invariant 2).
            if self.in_flight == CQ_ENTRIES || queue.is_full() {
                break;
            }
            self.backlog.pop_front();
            let Some(operation) = &mut self.slots[slot as usize] else { continue };
            let entry = operation.entry().user_data(u64::from(slot));
            // SAFETY: all that the entry points to is owned by the operation in `slot`, which stays there
            // until its completion is taken, on the heap or behind an `Arc`, and is not touched meanwhile.
            let pushed = unsafe { queue.push(&entry) };
            assert!(pushed.is_ok(), "io_uring: the submission queue was full though there was room");
            self.in_flight += 1;
        }
    }

    fn exchange(
        &mut self,
        wait: usize,
        finished: &mut Vec<(Result<Buf, DiskError>, Completer)>,
    ) -> io::Result<bool> {
        loop {
            self.fill();
            if wait > 0 || !self.uring.submission().is_empty() {
                match self.submit(wait) {
                    Ok(()) => {}
                    Err(error) if is_transient(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            // Each completion makes room for another submission, until nothing is left or nothing completes.
            let taken = self.take_completions(finished);
            let sq_left = !self.uring.submission().is_empty();
            if wait > 0 || taken == 0 || (self.backlog.is_empty() && !sq_left) {
                return Ok(sq_left || (!self.backlog.is_empty() && self.in_flight < CQ_ENTRIES));
            }
        }
    }

    /// Gives the kernel what is queued and waits for `wait` completions, but not for long.
    fn submit(&self, wait: usize) -> io::Result<()> {
        if wait == 0 {
            return self.uring.submit().map(drop);
        }
        let timeout = types::Timespec::from(LEAVE_LOOK_EVERY);
        let args = types::SubmitArgs::new().timespec(&timeout);
        match self.uring.submitter().submit_with_args(wait, &args) {
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    fn take_completions(&mut self, finished: &mut Vec<(Result<Buf, DiskError>, Completer)>) -> usize {
        let Ring { uring, slots, free, backlog, in_flight, poller, .. } = self;
        let mut taken = 0;
        let mut now = None;
        for cqe in uring.completion() {
            taken += 1;
            let now = *now.get_or_insert_with(Instant::now);
            assert!(*in_flight > 0, "io_uring: an operation completed that was not in flight");
            *in_flight -= 1;
            let slot = cqe.user_data() as u32;
            let entry = &mut slots[slot as usize];
            // What is not done goes back to its slot and is queued once more.
            let Some(operation) = entry.take() else { continue };
            match operation.advance(cqe.result(), now, entry) {
                Progress::Done(outcome, completer) => {
                    free.push(slot);
                    if let Some(poller) = poller {
                        poller.completed(slots.len() - free.len(), now);
                    }
                    finished.push((outcome, completer));
                }
                Progress::Again => backlog.push_back(slot),
            }
        }
        taken
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

impl Operation {
    /// The submission for what is left to do.
    fn entry(&mut self) -> squeue::Entry {
        let fd = types::Fd(self.target.fd());
        let offset = self.offset + self.done;
        let done = self.done as usize;
        match &mut self.kind {
            Kind::Read(buf) => {
                let rest = &mut buf.as_mut_slice()[done..];
                let len = rest.len().min(MAX_IO_BYTES) as u32;
                opcode::Read::new(fd, rest.as_mut_ptr(), len).offset(offset).build()
            }
            Kind::Write(data, durable) => {
                let flags = if *durable { libc::RWF_DSYNC } else { 0 };
                // One slice needs no list of buffers.
                if let [slice] = data.as_slice() {
                    let rest = &slice[done..];
                    let len = rest.len().min(MAX_IO_BYTES) as u32;
                    return opcode::Write::new(fd, rest.as_ptr(), len).offset(offset).rw_flags(flags).build();
                }
                gather(data, done, &mut self.iovecs);
                let (list, count) = (self.iovecs.as_ptr(), self.iovecs.len() as u32);
                opcode::Writev::new(fd, list, count).offset(offset).rw_flags(flags).build()
            }
            Kind::Flush => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            Kind::Discard => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                opcode::Fallocate::new(fd, self.len).offset(self.offset).mode(mode).build()
            }
        }
    }

    /// Takes the kernel's result; puts itself back in its slot if there is more to do.
    fn advance(mut self, result: i32, now: Instant, slot: &mut Option<Operation>) -> Progress {
        let errno = if result < 0 { -result } else { 0 };
        let again = match (&self.kind, errno) {
            (_, libc::EINTR | libc::EAGAIN) if self.retries < MAX_RETRIES => {
                self.retries += 1;
                true
            }
            // It is a hint only.
            (Kind::Discard, libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL | libc::ENODEV) => false,
            (_, errno) if errno != 0 => return self.fail(now, io::Error::from_raw_os_error(errno)),
            (Kind::Flush | Kind::Discard, _) => false,
            (Kind::Read(_) | Kind::Write(..), _) => {
                self.done += result as u64;
                assert!(self.done <= self.len, "io_uring: more was transferred than was asked for");
                if result == 0 {
                    return self.fail(now, io::ErrorKind::UnexpectedEof.into());
                }
                self.done < self.len
            }
        };
        // The rest, or the same once more: the operation stays in its slot.
        if again {
            *slot = Some(self);
            return Progress::Again;
        }
        self.record(now);
        let buf = match self.kind {
            Kind::Read(buf) => buf,
            Kind::Write(..) | Kind::Flush | Kind::Discard => Buf::default(),
        };
        Progress::Done(Ok(buf), self.completer)
    }

    /// Counts the operation as over. One moment does for all that were found completed together.
    fn record(&self, now: Instant) {
        let instruments = &self.target.instruments;
        let histogram = match self.kind {
            Kind::Read(_) => &instruments.read,
            Kind::Write(_, false) => &instruments.write,
            Kind::Write(_, true) => &instruments.durable_write,
            Kind::Flush => &instruments.flush,
            Kind::Discard => &instruments.discard,
        };
        histogram.record(now.saturating_duration_since(self.submitted));
    }

    fn fail(self, now: Instant, source: io::Error) -> Progress {
        self.record(now);
        let operation = match self.kind {
            Kind::Read(_) => "read",
            Kind::Write(..) => "write",
            Kind::Flush => "flush",
            Kind::Discard => "discard",
        };
        Progress::Done(Err(self.target.error(operation, self.offset, self.len, source)), self.completer)
    }
}

/// Lists the parts of `data` behind its first `skip` bytes, as many as one call takes.
fn gather(data: &[Slice], mut skip: usize, iovecs: &mut Vec<libc::iovec>) {
    iovecs.clear();
    for slice in data {
        let start = skip.min(slice.len());
        skip -= start;
        if start < slice.len() && iovecs.len() < MAX_IOVECS {
            let rest = &slice[start..];
            iovecs.push(libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() });
        }
    }
}
