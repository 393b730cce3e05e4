//! Deadlines of a drive's operations.
//!
//! A [`DriveWatch`] outlives the openings of its drive. Every operation of an opening goes through a disk that
//! [`DriveWatch::admit`] returns, those of probing and formatting included.
//!
//! 1. The drive is *suspect* while its oldest operation has been under way for [`Patience::suspect_after`].
//! 2. After [`Patience::fail_after`] the opening has failed, for good: operations under way resolve to
//!    [`DiskError::TimedOut`], and so does every later one, at once. The world keeps the buffers of what is under
//!    way until it is done with them.
//! 3. No opening begins while an operation of an earlier one is under way. So a write that a drive does late never
//!    lands on what a later opening wrote.
//!
//! Time is counted in looks, not read from a clock: a process that was suspended does not take its own absence for
//! the drive's. An operation costs one lock and no timer. The watch sleeps between looks and ends when nothing is
//! under way; the next operation starts it again.

use crate::{
    DriveError,
    bugs::{Bug, planted},
    drive::ENODEV,
};
use quoin_world::{
    Completion, Disk, DiskError, DiskInstruments, DiskOp, Mutex, Outstanding, RwLock, Thread, World,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Weak},
    time::Duration,
};

/// The watch looks so many times until a drive is suspect.
const LOOKS_UNTIL_SUSPECT: u32 = 8;
/// The bounds of the time between two looks.
const SHORTEST_LOOK: Duration = Duration::from_millis(1);
const LONGEST_LOOK: Duration = Duration::from_millis(500);
/// The watch ends after so many looks in a row that found nothing under way.
const IDLE_LOOKS: u32 = 4;
/// What is over is taken off the list at the latest when the list is this long.
const SWEPT_AT: usize = 256;

/// How long an operation may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// From then on its drive is suspect.
    pub suspect_after: Duration,
    /// From then on its drive has failed. Not less than `suspect_after`.
    pub fail_after: Duration,
}

impl Default for Patience {
    /// 5 and 20 seconds: hosts usually give up a command after 30.
    fn default() -> Self {
        Self { suspect_after: Duration::from_secs(5), fail_after: Duration::from_secs(20) }
    }
}

/// Whether a drive answers in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answers {
    /// It does.
    InTime,
    /// Its oldest operation has been under way for so long.
    Suspect(Duration),
    /// It failed after so long, and has not finished all operations of then.
    Failed(Duration),
}

/// Told of each change, on the background thread. What is told does not depend on the drive and does not block.
type Told = Box<dyn Fn(Answers) + Send + Sync>;

/// Sees to it that every operation of a drive ends in time.
pub struct DriveWatch {
    world: Arc<dyn World>,
    patience: Patience,
    look_every: Duration,
    told: Told,
    /// Suspect is failed.
    hurried: AtomicBool,
    inner: Mutex<Inner>,
}

struct Inner {
    answers: Answers,
    /// Looks so far.
    looks: u64,
    is_looking: bool,
    idle_looks: u32,
    /// Oldest first.
    under_way: VecDeque<UnderWay>,
    sweep_at: usize,
    /// Of the newest opening.
    failed: Arc<AtomicBool>,
    timeouts: u64,
    /// The newest.
    opening: Weak<WatchedDisk>,
}

struct UnderWay {
    since_look: u64,
    operation: Outstanding,
}

/// The disk of one opening.
struct WatchedDisk {
    /// `None`: it was let go.
    disk: RwLock<Option<Arc<dyn Disk>>>,
    name: String,
    len_bytes: AtomicU64,
    block_bytes: u32,
    may_lack_room: AtomicBool,
    instruments: Option<Arc<DiskInstruments>>,
    watch: Arc<DriveWatch>,
    failed: Arc<AtomicBool>,
}

impl Inner {
    fn sweep(&mut self) {
        self.under_way.retain(|one| !one.operation.is_over());
        self.sweep_at = (2 * self.under_way.len()).max(SWEPT_AT);
    }
}

impl DriveWatch {
    /// A watch of a drive that is not open yet. `told` hears of each change: it is suspect, it failed, it answers in
    /// time again. It hears of a failure before those do who wait for operations.
    pub fn new(
        world: Arc<dyn World>,
        patience: Patience,
        told: impl Fn(Answers) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let look_every = (patience.suspect_after / LOOKS_UNTIL_SUSPECT).clamp(SHORTEST_LOOK, LONGEST_LOOK);
        let inner = Inner {
            answers: Answers::InTime,
            looks: 0,
            is_looking: false,
            idle_looks: 0,
            under_way: VecDeque::new(),
            sweep_at: SWEPT_AT,
            failed: Arc::new(AtomicBool::new(false)),
            timeouts: 0,
            opening: Weak::new(),
        };
        let (told, hurried) = (Box::new(told), AtomicBool::new(false));
        Arc::new(Self { world, patience, look_every, told, hurried, inner: Mutex::new(inner) })
    }

    /// Begins an opening: the disk to use. Refused while operations of an earlier opening are under way.
    ///
    /// # Errors
    /// [`DriveError::Owes`] while operations of an earlier opening are under way, those that were given up
    /// included.
    pub fn admit(self: &Arc<Self>, disk: Arc<dyn Disk>) -> Result<Arc<dyn Disk>, DriveError> {
        let failed = Arc::new(AtomicBool::new(false));
        let mut inner = self.inner.lock();
        inner.sweep();
        let operations = inner.under_way.len();
        if operations > 0 && !planted(Bug::TakeBackEarly) {
            return Err(DriveError::Owes { drive: disk.name().into(), operations });
        }
        // From here on a failure is one of this opening.
        inner.failed = failed.clone();
        let watched = Arc::new(WatchedDisk {
            name: disk.name().to_owned(),
            len_bytes: AtomicU64::new(disk.len_bytes()),
            block_bytes: disk.block_bytes(),
            may_lack_room: AtomicBool::new(disk.may_lack_room()),
            instruments: disk.instruments(),
            disk: RwLock::new(Some(disk)),
            watch: self.clone(),
            failed,
        });
        inner.opening = Arc::downgrade(&watched);
        Ok(watched)
    }

    /// Lets go of the disk of the last opening, whoever holds that: its lock goes when no operation is under way any more.
    /// What is submitted to it from now on fails, as if the drive was not there.
    pub fn let_go(&self) {
        let opening = self.inner.lock().opening.upgrade();
        let disk = opening.and_then(|opening| opening.disk.write().take());
        // NOTE: not with a lock held: closing a disk may take a while.
        drop(disk);
    }

    /// How many operations are under way, those that were given up included.
    pub fn under_way(&self) -> usize {
        let mut inner = self.inner.lock();
        inner.sweep();
        inner.under_way.len()
    }

    /// Whether the drive answers in time, by the last look.
    pub fn answers(&self) -> Answers {
        self.inner.lock().answers
    }

    /// How many operations were given up so far.
    pub fn timeouts(&self) -> u64 {
        self.inner.lock().timeouts
    }

    /// From now on a drive that is suspect has failed: the array stops and does not wait for it.
    pub fn hurry(&self) {
        self.hurried.store(true, Ordering::Release);
    }

    fn begun(self: &Arc<Self>, operation: Outstanding, failed: &AtomicBool, disk: &str) {
        let starts = {
            let mut inner = self.inner.lock();
            if failed.load(Ordering::Acquire) {
                // The drive failed while this was being submitted.
                operation.give_up(self.timed_out(disk));
                inner.timeouts += 1;
            }
            // What is over at the front goes at once. The rest is swept when the list has grown.
            while inner.under_way.front().is_some_and(|first| first.operation.is_over()) {
                inner.under_way.pop_front();
            }
            let since_look = inner.looks;
            inner.under_way.push_back(UnderWay { since_look, operation });
            if inner.under_way.len() >= inner.sweep_at {
                inner.sweep();
            }
            !std::mem::replace(&mut inner.is_looking, true)
        };
        if starts {
            self.world.spawn(Thread::Background, Box::pin(self.clone().keep_looking(disk.to_owned())));
        }
    }

    fn timed_out(&self, disk: &str) -> DiskError {
        let waited = if self.hurried.load(Ordering::Acquire) {
            self.patience.suspect_after
        } else {
            self.patience.fail_after
        };
        DiskError::TimedOut { disk: disk.to_owned(), waited_s: waited.as_secs_f64().round() as u64 }
    }

    async fn keep_looking(self: Arc<Self>, disk: String) {
        loop {
            self.world.sleep(self.look_every).await;
            let Some(change) = self.look() else { return };
            let Some(answers) = change else { continue };
            (self.told)(answers);
            if matches!(answers, Answers::Failed(_)) {
                self.give_up(&disk);
            }
        }
    }

    /// One look. `None`: nothing has been under way for a while, and the watch ends. Otherwise what has changed.
    fn look(&self) -> Option<Option<Answers>> {
        let mut inner = self.inner.lock();
        inner.looks += 1;
        inner.sweep();
        let oldest = inner.under_way.front().map(|first| inner.looks - first.since_look);
        assert!(oldest != Some(0), "what is under way began before this look");
        // The look at which it was submitted may have been just over.
        let waited = oldest.map_or(Duration::ZERO, |looks| self.look_every * (looks as u32 - 1));
        inner.idle_looks = if oldest.is_some() { 0 } else { inner.idle_looks + 1 };
        // A drive that failed stays so until all that it was given is over.
        let before = inner.answers;
        let fail_after = if self.hurried.load(Ordering::Acquire) {
            self.patience.suspect_after
        } else {
            self.patience.fail_after
        };
        let now = match before {
            Answers::Failed(_) if oldest.is_some() => before,
            _ if oldest.is_some() && waited >= fail_after => Answers::Failed(waited),
            _ if oldest.is_some() && waited >= self.patience.suspect_after => Answers::Suspect(waited),
            _ => Answers::InTime,
        };
        inner.answers = now;
        if matches!(now, Answers::Failed(_)) {
            // Also of an opening that was refused nothing yet: what it submits from now on is refused.
            inner.failed.store(true, Ordering::Release);
        }
        if inner.idle_looks >= IDLE_LOOKS {
            inner.is_looking = false;
            inner.idle_looks = 0;
            return None;
        }
        let is_change = std::mem::discriminant(&before) != std::mem::discriminant(&now);
        Some(is_change.then_some(now))
    }

    fn give_up(&self, disk: &str) {
        let mut inner = self.inner.lock();
        let given_up = inner.under_way.iter().filter(|one| one.operation.give_up(self.timed_out(disk)));
        inner.timeouts += given_up.count() as u64;
    }
}

impl WatchedDisk {
    /// Why nothing can be submitted to it any more.
    fn is_gone(&self, op: &DiskOp) -> DiskError {
        let (operation, offset, len) = match op {
            DiskOp::Read { offset, buf } => ("read", *offset, buf.len() as u64),
            DiskOp::Write { offset, data, .. } => {
                ("write", *offset, data.iter().map(|s| s.len() as u64).sum())
            }
            DiskOp::Flush => ("flush", 0, 0),
            DiskOp::Discard { offset, len } => ("discard", *offset, *len),
        };
        let source = io::Error::from_raw_os_error(ENODEV);
        DiskError::Io { disk: self.name.clone(), operation, offset, len, source }
    }
}

impl Disk for WatchedDisk {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Acquire)
    }

    fn measure(&self) -> u64 {
        // One that was let go is as it was.
        let Some(disk) = &*self.disk.read() else { return self.len_bytes() };
        let found = disk.measure();
        self.len_bytes.store(disk.len_bytes(), Ordering::Release);
        self.may_lack_room.store(disk.may_lack_room(), Ordering::Release);
        found
    }

    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn may_lack_room(&self) -> bool {
        self.may_lack_room.load(Ordering::Acquire)
    }

    fn instruments(&self) -> Option<Arc<DiskInstruments>> {
        self.instruments.clone()
    }

    fn submit(&self, op: DiskOp) -> Completion {
        if self.failed.load(Ordering::Acquire) {
            return Completion::ready(Err(self.watch.timed_out(&self.name)));
        }
        let disk = self.disk.read();
        let Some(disk) = &*disk else { return Completion::ready(Err(self.is_gone(&op))) };
        let completion = disk.submit(op);
        self.watch.begun(completion.outstanding(), &self.failed, &self.name);
        completion
    }
}

#[cfg(test)]
mod tests;
