//! An array in a temporary directory, with a drive that can be broken and mended.

#![allow(dead_code, reason = "shared by several tests")]

use quoin_api::{State, VolumeCreate};
use quoin_array::{Array, ArrayOptions, Bay, SpacePercents};
use quoin_base::{GIB, MIB, PoolId};
use quoin_drive::Roles;
use quoin_pool::{FormatOptions, PoolOptions};
use quoin_target::Target;
use quoin_world::{Completion, Disk, DiskError, DiskOp, Thread};
use quoin_world_linux::{LinuxWorld, OpenOptions, block_on, open_disk};
use std::{
    future::Future,
    io,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const DRIVES: usize = 2;
const DRIVE_BYTES: u64 = 256 * MIB;
const IQN: &str = "iqn.2026-11.io.quoin:lab";

pub(crate) struct Lab {
    directory: TempDir,
    world: Arc<LinuxWorld>,
    pool: PoolId,
    broken: Arc<AtomicBool>,
    /// So many times more another process has the last drive.
    in_use: Arc<AtomicUsize>,
    runs: Mutex<Vec<quoin_world::OneShot<()>>>,
}

pub(crate) fn create(name: &str) -> VolumeCreate {
    VolumeCreate::new(name, GIB)
}

impl Lab {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let world = LinuxWorld::start(1).unwrap();
        let disks: Vec<_> = paths(directory.path())
            .iter()
            .map(|path| open_disk(path.as_ref(), OpenOptions { create_len: Some(DRIVE_BYTES) }).unwrap())
            .map(|disk| (disk, Roles { journal: true, data: true }))
            .collect();
        let options =
            FormatOptions { pool_name: "lab".into(), slab_bytes: 4 * MIB as u32, ..FormatOptions::default() };
        let inner = world.clone();
        let made = world.run_on(Thread::Data(0), async move {
            quoin_pool::format(&*inner, disks, options).await.unwrap()
        });
        let pool = block_on(made).unwrap();
        Self {
            directory,
            world,
            pool,
            broken: Arc::default(),
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

    pub(crate) fn start_unready(&self) -> Arc<Array> {
        let options = ArrayOptions {
            name: "lab".into(),
            pool: self.pool,
            iqn: IQN.into(),
            version: "0".into(),
            portals: Vec::new(),
            nbd: Vec::new(),
            pool_options: PoolOptions::default(),
            space: SpacePercents::default(),
        };
        let (broken, in_use) = (self.broken.clone(), self.in_use.clone());
        let bay = LabBay { paths: paths(self.directory.path()), broken, in_use };
        let array = Array::new(self.world.clone(), Box::new(bay), Target::new(IQN), options);
        self.runs.lock().unwrap().push(self.world.run_on(Thread::Background, array.clone().run()));
        array
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
        let (world, paths) = (self.world.clone(), paths(self.directory.path()));
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

    /// From now on one drive fails all that is asked of it, and cannot be opened.
    pub(crate) fn break_drive(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    pub(crate) fn mend_drive(&self) {
        self.broken.store(false, Ordering::Relaxed);
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

fn paths(directory: &Path) -> Vec<String> {
    (0..DRIVES).map(|n| directory.join(format!("drive-{n}")).display().to_string()).collect()
}

struct LabBay {
    paths: Vec<String>,
    broken: Arc<AtomicBool>,
    in_use: Arc<AtomicUsize>,
}

impl Bay for LabBay {
    fn paths(&self) -> Vec<String> {
        self.paths.clone()
    }

    fn open(&self, path: &str) -> Result<Arc<dyn Disk>, String> {
        let last = self.paths.last().is_some_and(|last| last == path);
        if last && self.broken.load(Ordering::Relaxed) {
            return Err(format!("{path}: broken"));
        }
        let inner = open_disk(path.as_ref(), OpenOptions { create_len: None }).map_err(|e| e.to_string())?;
        let broken = if last { self.broken.clone() } else { Arc::default() };
        Ok(Arc::new(LabDisk { inner, broken }))
    }

    fn open_unless_in_use(&self, path: &str) -> Result<Option<Arc<dyn Disk>>, String> {
        let last = self.paths.last().is_some_and(|last| last == path);
        let one_less = |left: usize| left.checked_sub(1);
        if last && self.in_use.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            return Ok(None);
        }
        self.open(path).map(Some)
    }
}

struct LabDisk {
    inner: Arc<dyn Disk>,
    broken: Arc<AtomicBool>,
}

impl Disk for LabDisk {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.inner.block_bytes()
    }

    fn submit(&self, op: DiskOp) -> Completion {
        if !self.broken.load(Ordering::Relaxed) {
            return self.inner.submit(op);
        }
        let source = io::Error::other("broken");
        let disk = self.name().to_owned();
        Completion::ready(Err(DiskError::Io { disk, operation: "write", offset: 0, len: 0, source }))
    }
}
