//! An array in a temporary directory, with drives that can be broken and mended.

use quoin_api::{State, VolumeCreate};
use quoin_array::{Array, ArrayOptions, Bay, EventSelection, Finding, Listen, SpacePercents};
use quoin_base::{DriveIndex, GIB, Layout, MIB, PoolId};
use quoin_drive::{Patience, Roles};
use quoin_emulate::{EmulatedDrive, Emulation, Technology};
use quoin_pool::{FormatOptions, NewDrive, PoolOptions};
use quoin_target::Target;
use quoin_world::{Completer, Completion, Disk, DiskError, DiskOp, Thread, one_shot};
use quoin_world_linux::{LinuxWorld, OpenOptions, block_on, open_disk};
use serde_json::Value;
use std::{
    future::{Future, poll_fn},
    io::{self, Write},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::Poll,
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// What the path of a drive ends with that was moved.
const MOVED: &str = ".moved";
const DRIVE_BYTES: u64 = 256 * MIB;
const IQN: &str = "iqn.2026-11.io.quoin:lab";

pub(crate) struct Lab {
    directory: TempDir,
    world: Arc<LinuxWorld>,
    pool: PoolId,
    /// What is wrong with each drive.
    faults: Vec<Arc<Fault>>,
    patience: Patience,
    /// So many times more another process has the last drive.
    in_use: Arc<AtomicUsize>,
    runs: Mutex<Vec<quoin_world::OneShot<()>>>,
}

#[derive(Default)]
struct Fault {
    /// It fails everything, and cannot be opened.
    is_broken: AtomicBool,
    /// It answers nothing.
    is_hung: AtomicBool,
    unanswered: Mutex<Vec<Completer>>,
}

pub(crate) fn create(name: &str) -> VolumeCreate {
    VolumeCreate::new(name, GIB)
}

/// The text of the newest event, and what it says of a field: before and after.
pub(crate) fn newest(array: &Array, field: &str) -> (String, Option<(Value, Value)>) {
    let event = array.events(EventSelection { limit: 1, ..EventSelection::default() }).remove(0);
    let change = event.changes.into_iter().find(|change| change.field == field);
    (event.text, change.map(|change| (change.before, change.after)))
}

/// Waits until the former tails of all volumes are given back.
pub(crate) async fn trimmed(array: &Array) {
    while array.list_volumes().unwrap().iter().any(|volume| volume.trimming) {
        let mut is_later = false;
        poll_fn(|cx| {
            cx.waker().wake_by_ref();
            if std::mem::replace(&mut is_later, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Lab {
    /// Two drives for everything.
    pub(crate) fn new() -> Self {
        Self::with(&[Roles { journal: true, data: true }; 2], 1)
    }

    /// A journal of two columns. The last drive holds nothing else.
    pub(crate) fn with_columns() -> Self {
        let both = Roles { journal: true, data: true };
        let mut lab = Self::with(&[both, Roles { data: false, ..both }], 2);
        // Long enough for a machine with other work.
        lab.patience = Patience { suspect_after: Duration::from_secs(2), fail_after: Duration::from_secs(4) };
        lab
    }

    /// Drives for everything, each a fault domain, over which data is laid out so.
    pub(crate) fn with_layout(drives: usize, layout: Layout) -> Self {
        let both = Roles { journal: true, data: true };
        let mut lab = Self::laid_out(&vec![both; drives], layout.parity() + 1, layout);
        lab.patience = Patience { suspect_after: Duration::from_secs(1), fail_after: Duration::from_secs(2) };
        lab
    }

    fn with(roles: &[Roles], journal_columns: u8) -> Self {
        Self::laid_out(roles, journal_columns, Layout::NONE)
    }

    fn laid_out(roles: &[Roles], journal_columns: u8, layout: Layout) -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let world = LinuxWorld::start(1).unwrap();
        let disks: Vec<_> = paths(directory.path(), roles.len())
            .iter()
            .map(|path| open_disk(path.as_ref(), OpenOptions { create_len: Some(DRIVE_BYTES) }).unwrap())
            .zip(roles.iter().copied())
            .map(|(disk, roles)| NewDrive::alone(disk, roles))
            .collect();
        let options = FormatOptions {
            pool_name: "lab".into(),
            slab_bytes: 4 * MIB as u32,
            journal_columns,
            layout,
            ..FormatOptions::default()
        };
        let inner = world.clone();
        let made = world.run_on(Thread::Data(0), async move {
            quoin_pool::format(&*inner, disks, options).await.unwrap()
        });
        let pool = block_on(made).unwrap();
        Self {
            directory,
            world,
            pool,
            faults: roles.iter().map(|_| Arc::default()).collect(),
            patience: Patience::default(),
            in_use: Arc::default(),
            runs: Mutex::default(),
        }
    }

    pub(crate) fn world(&self) -> Arc<LinuxWorld> {
        self.world.clone()
    }

    /// Starts the array and waits until it is ready.
    pub(crate) fn start(&self) -> Arc<Array> {
        let array = self.start_unready();
        self.wait(&array, State::Online);
        array
    }

    /// The same, with what accepts connections for it.
    pub(crate) fn start_with(&self, listen: Box<dyn Listen>) -> Arc<Array> {
        let array = self.create();
        array.listen_with(listen);
        self.run(&array);
        self.wait(&array, State::Online);
        array
    }

    pub(crate) fn start_unready(&self) -> Arc<Array> {
        let array = self.create();
        self.run(&array);
        array
    }

    fn create(&self) -> Arc<Array> {
        let options = ArrayOptions {
            name: "lab".into(),
            pool: self.pool,
            iqn: IQN.into(),
            version: "0".into(),
            nbd: Vec::new(),
            pool_options: PoolOptions::default(),
            space: SpacePercents::default(),
            spare_domains: 0,
        };
        let (paths, faults) = (self.paths(), self.faults.clone());
        let emulated = EmulatedDrive::new(self.world.clone(), Emulation::of(Technology::Flash));
        let (patience, in_use) = (self.patience, self.in_use.clone());
        let bay = LabBay { paths, faults, patience, in_use, emulated };
        Array::new(self.world.clone(), Box::new(bay), Target::new(IQN), options)
    }

    fn run(&self, array: &Arc<Array>) {
        self.runs.lock().unwrap().push(self.world.run_on(Thread::Background, array.clone().run()));
    }

    pub(crate) fn stop(&self, array: Arc<Array>) {
        array.stop();
        for run in self.runs.lock().unwrap().drain(..) {
            block_on(run).unwrap();
        }
    }

    pub(crate) fn on_array<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        array: &Arc<Array>,
        work: impl FnOnce(Arc<Array>) -> F,
    ) -> T {
        block_on(self.world.run_on(Thread::Background, work(array.clone()))).unwrap()
    }

    /// Opens the pool of an array that is stopped, does something to it and closes it.
    pub(crate) fn with_pool<F: Future<Output = ()> + Send>(
        &self,
        work: impl FnOnce(Arc<quoin_pool::Pool>) -> F + Send + 'static,
    ) {
        let (world, paths) = (self.world.clone(), self.paths());
        let done = self.world.run_on(Thread::Background, async move {
            let open = |path: &String| open_disk(path.as_ref(), OpenOptions { create_len: None }).unwrap();
            let drives = quoin_drive::open_set(paths.iter().map(open).collect()).await.unwrap();
            let pool = quoin_pool::Pool::open(world, drives, PoolOptions::default()).await.unwrap();
            work(pool.clone()).await;
            pool.close().await.unwrap();
        });
        block_on(done).unwrap();
    }

    /// The next so many times, another process has one of the drives.
    pub(crate) fn use_drive(&self, times: usize) {
        self.in_use.store(times, Ordering::Relaxed);
    }

    fn paths(&self) -> Vec<String> {
        paths(self.directory.path(), self.faults.len())
    }

    fn last(&self) -> usize {
        self.faults.len() - 1
    }

    /// A drive that is not the array's.
    pub(crate) fn spare_drive(&self) -> String {
        let path = self.directory.path().join("spare");
        std::fs::File::create(&path).and_then(|file| file.set_len(DRIVE_BYTES)).unwrap();
        path.display().to_string()
    }

    /// From now on the last drive fails all that is asked of it, and cannot be opened.
    pub(crate) fn break_drive(&self) {
        self.set_broken(self.last(), true);
    }

    pub(crate) fn mend_drive(&self) {
        self.set_broken(self.last(), false);
    }

    pub(crate) fn set_broken(&self, drive: usize, is_broken: bool) {
        self.faults[drive].is_broken.store(is_broken, Ordering::Relaxed);
    }

    /// From now on the last drive answers nothing.
    pub(crate) fn hang_drive(&self) {
        self.faults[self.last()].is_hung.store(true, Ordering::Relaxed);
    }

    /// The last drive answers what it was asked, with failures, and all else as it should.
    pub(crate) fn wake_drive(&self) {
        let fault = &self.faults[self.last()];
        fault.is_hung.store(false, Ordering::Relaxed);
        let unanswered: Vec<_> = fault.unanswered.lock().unwrap().drain(..).collect();
        unanswered.into_iter().for_each(|completer| completer.complete(Err(failure("lab"))));
    }

    /// The last drive is at another path from now on.
    pub(crate) fn move_drive(&self) {
        let path = &self.paths()[self.last()];
        std::fs::rename(path, format!("{path}{MOVED}")).unwrap();
    }

    /// Wipes what tells that the last drive is Quoin's.
    pub(crate) fn wipe_drive(&self) {
        let path = &self.paths()[self.last()];
        std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all(&[0; 8 << 20]).unwrap();
    }

    pub(crate) fn wait(&self, array: &Array, state: State) {
        self.until(|| array.status().state == state);
    }

    pub(crate) fn until(&self, condition: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !condition() {
            assert!(Instant::now() < deadline, "waited for a minute in vain");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.world.shutdown();
    }
}

fn paths(directory: &Path, drives: usize) -> Vec<String> {
    (0..drives).map(|n| directory.join(format!("drive-{n}")).display().to_string()).collect()
}

fn failure(disk: &str) -> DiskError {
    let source = io::Error::other("broken");
    DiskError::Io { disk: disk.to_owned(), operation: "write", offset: 0, len: 0, source }
}

struct LabBay {
    paths: Vec<String>,
    faults: Vec<Arc<Fault>>,
    patience: Patience,
    in_use: Arc<AtomicUsize>,
    /// Stands for the first drive. It is told what to do, and no I/O goes through it.
    emulated: Arc<EmulatedDrive>,
}

impl Bay for LabBay {
    fn emulated(&self, path: &str) -> Option<Arc<EmulatedDrive>> {
        (self.paths[0] == path).then(|| self.emulated.clone())
    }

    fn paths(&self) -> Vec<String> {
        self.paths.clone()
    }

    fn open(&self, path: &str) -> Result<Arc<dyn Disk>, String> {
        // One that is to be added has no fault.
        let at = self.paths.iter().position(|one| one == path.trim_end_matches(MOVED));
        let fault = at.map(|at| self.faults[at].clone()).unwrap_or_default();
        if fault.is_broken.load(Ordering::Relaxed) {
            return Err(format!("{path}: broken"));
        }
        let inner = open_disk(path.as_ref(), OpenOptions { create_len: None }).map_err(|e| e.to_string())?;
        Ok(Arc::new(LabDisk { inner, fault }))
    }

    fn open_unless_in_use(&self, path: &str) -> Result<Option<Arc<dyn Disk>>, String> {
        let last = self.paths.last().is_some_and(|last| last == path);
        let one_less = |left: usize| left.checked_sub(1);
        if last && self.in_use.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            return Ok(None);
        }
        self.open(path).map(Some)
    }

    fn begin_search(&self, _: PoolId, _: &[String]) -> Finding {
        let moved =
            self.paths.iter().enumerate().map(|(at, path)| (DriveIndex(at as u16), format!("{path}{MOVED}")));
        let (sender, finding) = one_shot();
        sender.send(moved.filter(|(_, path)| Path::new(path).exists()).collect());
        finding
    }

    fn patience(&self) -> Patience {
        self.patience
    }
}

struct LabDisk {
    inner: Arc<dyn Disk>,
    fault: Arc<Fault>,
}

impl Disk for LabDisk {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn measure(&self) -> u64 {
        self.inner.measure()
    }

    fn block_bytes(&self) -> u32 {
        self.inner.block_bytes()
    }

    fn submit(&self, op: DiskOp) -> Completion {
        if self.fault.is_broken.load(Ordering::Relaxed) {
            return Completion::ready(Err(failure(self.name())));
        }
        if self.fault.is_hung.load(Ordering::Relaxed) {
            let (completer, completion) = Completion::new();
            self.fault.unanswered.lock().unwrap().push(completer);
            return completion;
        }
        self.inner.submit(op)
    }
}
