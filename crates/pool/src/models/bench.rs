//! A world whose threads are a model checker's, with a drive in RAM and a pool on it.

use crate::{FormatOptions, Pool, PoolOptions, Transaction, format};
use quoin_base::{Layout, MIB, VolumeId};
use quoin_drive::{Roles, open_set};
use quoin_world::{Buf, Completion, Disk, DiskOp, Job, Nanos, Task, Thread, World};
use shuttle::{current, future};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

const SECTOR: u64 = 512;
const PAGE: usize = 4096;
const SLAB_BYTES: u32 = 256 << 10;
const DRIVE_BYTES: u64 = 14 * MIB;
/// Sleeps up to this end by themselves; longer ones never do, so that nothing happens but what a model asks for.
const SHORT: Duration = Duration::from_millis(10);

type Pages = BTreeMap<u64, Arc<[u8; PAGE]>>;

/// Its lock is std's: no switch between threads happens while it is held.
pub(super) struct RamDisk(Mutex<Pages>);

impl RamDisk {
    fn perform(&self, op: DiskOp) -> Buf {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = |sector: u64| (sector / 8, (sector % 8 * SECTOR) as usize);
        match op {
            DiskOp::Read { offset, mut buf } => {
                for (sector, bytes) in (offset / SECTOR..).zip(buf.as_mut_slice().chunks_mut(SECTOR as usize))
                {
                    let (number, start) = place(sector);
                    match pages.get(&number) {
                        Some(page) => bytes.copy_from_slice(&page[start..start + bytes.len()]),
                        None => bytes.fill(0),
                    }
                }
                buf
            }
            DiskOp::Write { offset, data, .. } => {
                let sectors = data.iter().flat_map(|slice| slice.chunks(SECTOR as usize));
                for (sector, bytes) in (offset / SECTOR..).zip(sectors) {
                    let (number, start) = place(sector);
                    if pages.contains_key(&number) || bytes.iter().any(|byte| *byte != 0) {
                        let page = pages.entry(number).or_insert_with(|| Arc::new([0; PAGE]));
                        Arc::make_mut(page)[start..start + bytes.len()].copy_from_slice(bytes);
                    }
                }
                Buf::default()
            }
            DiskOp::Flush | DiskOp::Discard { .. } => Buf::default(),
        }
    }
}

/// The drive as the engine sees it: what it is asked to do is done some time later, elsewhere.
struct SharedDisk(Arc<RamDisk>);

impl Disk for SharedDisk {
    fn name(&self) -> &str {
        "ram"
    }

    fn len_bytes(&self) -> u64 {
        DRIVE_BYTES
    }

    fn block_bytes(&self) -> u32 {
        SECTOR as u32
    }

    fn submit(&self, op: DiskOp) -> Completion {
        let (completer, completion) = Completion::new();
        let disk = self.0.clone();
        future::spawn(async move { completer.complete(Ok(disk.perform(op))) });
        completion
    }
}

/// Which of the array's threads a task stands for.
#[derive(Clone, Copy, Debug)]
struct On(Thread);

pub(super) struct ModelWorld {
    ticks: AtomicU64,
}

impl World for ModelWorld {
    fn now(&self) -> Nanos {
        Nanos(1_000_000_000 + self.ticks.fetch_add(1000, Ordering::Relaxed))
    }

    fn wall_clock_ms(&self) -> u64 {
        0
    }

    fn sleep(&self, duration: Duration) -> Task {
        Box::pin(async move {
            if duration <= SHORT { future::yield_now().await } else { std::future::pending().await }
        })
    }

    fn yield_now(&self) -> Task {
        Box::pin(future::yield_now())
    }

    fn random_u64(&self) -> u64 {
        self.ticks.fetch_add(0x9e37_79b9, Ordering::Relaxed)
    }

    fn data_threads(&self) -> usize {
        2
    }

    fn current(&self) -> Option<Thread> {
        current::get_label_for_task::<On>(current::me()).map(|on| on.0)
    }

    fn spawn(&self, thread: Thread, task: Task) {
        drop(on(thread, task));
    }

    fn workers(&self) -> usize {
        1
    }

    fn offload(&self, job: Job) {
        drop(future::spawn(async move { job() }));
    }
}

fn on<T: Send + 'static>(
    thread: Thread,
    task: impl Future<Output = T> + Send + 'static,
) -> future::JoinHandle<T> {
    future::spawn(async move {
        current::set_label_for_task(current::me(), On(thread));
        task.await
    })
}

pub(super) struct Bench {
    world: Arc<ModelWorld>,
    disk: Arc<RamDisk>,
    pub(super) volume: VolumeId,
}

impl Bench {
    /// A pool with an empty volume, not open. It is made once and copied.
    pub(super) async fn new() -> Self {
        static MADE: OnceLock<Pages> = OnceLock::new();
        let bench = |pages| Self {
            world: Arc::new(ModelWorld { ticks: AtomicU64::new(0) }),
            disk: Arc::new(RamDisk(Mutex::new(pages))),
            volume: VolumeId(1),
        };
        if let Some(pages) = MADE.get() {
            return bench(pages.clone());
        }
        let made = bench(Pages::new());
        made.make().await;
        let pages = made.disk.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        bench(MADE.get_or_init(|| pages).clone())
    }

    async fn make(&self) {
        let roles = Roles { journal: true, data: true };
        let options = FormatOptions {
            pool_name: "model".into(),
            slab_bytes: SLAB_BYTES,
            row_bytes: SLAB_BYTES / 4,
            journal_bytes: Some(4 * MIB),
            slices: 1,
            journal_columns: 1,
            layout: Layout::NONE,
        };
        let disk: Arc<dyn Disk> = Arc::new(SharedDisk(self.disk.clone()));
        format(&*self.world, vec![crate::NewDrive::alone(disk, roles)], options).await.unwrap();
        let pool = self.open().await;
        pool.commit(Transaction::new().create_volume(self.volume)).await.unwrap();
        pool.close().await.unwrap();
    }

    pub(super) async fn open(&self) -> Arc<Pool> {
        let options = PoolOptions {
            buffer_bytes: 4 * MIB,
            metadata_bytes: MIB,
            dirty_bytes: 256 << 10,
            cache_bytes: MIB,
            ..PoolOptions::default()
        };
        let disk: Arc<dyn Disk> = Arc::new(SharedDisk(self.disk.clone()));
        Pool::open(self.world.clone(), open_set(vec![disk]).await.unwrap(), options).await.unwrap()
    }

    /// Runs `task` on a data thread.
    pub(super) fn on<T: Send + 'static>(
        &self,
        thread: usize,
        task: impl Future<Output = T> + Send + 'static,
    ) -> future::JoinHandle<T> {
        on(Thread::Data(thread), task)
    }
}
