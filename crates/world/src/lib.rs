//! What the engines need of the world, as traits that production and simulation both implement.
//!
//! An engine crate names no runtime, no clock, no file and no source of randomness: it gets a [`World`] and
//! [`Disk`]s. One implementation drives io_uring and tokio, another a virtual clock and simulated drives
//! that lose, tear and corrupt; the engine cannot tell which.
//!
//! Promises to engines: a future spawned on a [`Thread`] is only ever polled there; a [`Disk`] call never
//! blocks; a [`Completion`] resolves exactly once. Assumes of engines: no lock is held across an await, and
//! nothing blocks a thread.

mod buf;
mod completion;
mod disk;
mod gate;
mod huge_pages;
mod lock;
mod offload;
mod sync;

pub use buf::{BUF_ALIGN_BYTES, Buf, Filling, Slice, buffer_ram_bytes, limit_spare_bytes};
pub use completion::{Completer, Completion, Outstanding};
pub use disk::{Disk, DiskError, DiskInstruments, DiskOp};
pub use gate::{Gate, GatePass};
pub use huge_pages::{HUGE_PAGE_BYTES, add_huge_pages};
pub use lock::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic};
pub use offload::{Job, offload};
pub use sync::{AsyncMutex, AsyncMutexGuard, Event, OneShot, OneShotSender, one_shot};

use quoin_base::SliceId;
use std::{future::Future, pin::Pin, time::Duration};

/// A task to spawn.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A future that was compiled in the crate that returns it. The code of an `async fn` is compiled anew in every crate that
/// polls it, along with all that it awaits: where a layer's whole work lies behind a call, the call returns this.
pub type Compiled<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A thread of the array. Each runs a single-threaded executor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Thread {
    /// The data thread of this index: front-end connections, and the journal lane of the same index.
    Data(usize),
    /// The thread that changes the metadata of this slice: destage, checkpoints, cleaning.
    Committer(SliceId),
    /// The thread for management, schedules and other work that yields to hosts.
    Background,
}

/// Time since some fixed moment before the array started, in nanoseconds. Never goes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Clock, randomness and tasks.
pub trait World: Send + Sync {
    /// The monotonic clock.
    fn now(&self) -> Nanos;
    /// Milliseconds since the Unix epoch, for people to read. May jump; never used to order anything.
    fn wall_clock_ms(&self) -> u64;
    /// Resolves after `duration`.
    fn sleep(&self, duration: Duration) -> Task;
    /// The same, but as exactly as the world can, where [`World::sleep`] may take up to a few milliseconds longer. It costs
    /// more, and is exact on threads of the array only.
    fn sleep_precisely(&self, duration: Duration) -> Task {
        self.sleep(duration)
    }
    /// Lets every other ready task of this thread run once.
    fn yield_now(&self) -> Task;
    /// 64 random bits.
    fn random_u64(&self) -> u64;
    /// How many data threads there are: at least one.
    fn data_threads(&self) -> usize;
    /// The thread this is called on; `None` on one that is not the array's, where no disk may be used.
    fn current(&self) -> Option<Thread>;
    /// Runs `task` on `thread` until it ends.
    fn spawn(&self, thread: Thread, task: Task);
    /// How many threads there are for [`World::offload`]. None, where the only core is that of the caller.
    fn workers(&self) -> usize;
    /// Does `job` on a worker, which yields to data threads. Where there are none, it is done before this returns.
    fn offload(&self, job: Job);
}
