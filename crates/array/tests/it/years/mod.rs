//! An array in the simulated world, where days pass in a moment and the wall clock is set at will.

use quoin_api::{State, VolumeCreate};
use quoin_array::{Array, ArrayOptions, EventSelection, SpacePercents};
use quoin_base::{GIB, MIB, PoolId};
use quoin_drive::Roles;
use quoin_pool::{FormatOptions, PoolOptions};
use quoin_target::Target;
use quoin_world::{Disk, Job, Nanos, Task, Thread, World, one_shot};
use quoin_world_sim::{SimDisk, SimOptions, SimWorld};
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

const IQN: &str = "iqn.2026-11.io.quoin:years";
const DRIVE_BYTES: u64 = 256 * MIB;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

pub(crate) struct Years {
    sim: Arc<SimWorld>,
    clock: Arc<Clock>,
    disk: Arc<SimDisk>,
    pool: PoolId,
}

/// The simulated world with a wall clock that can be set.
pub(crate) struct Clock {
    inner: Arc<SimWorld>,
    offset_ms: AtomicI64,
}

impl Clock {
    /// Sets the wall clock forward by so many hours, or back.
    pub(crate) fn set_by(&self, hours: i64) {
        self.offset_ms.fetch_add(hours * 3_600_000, Ordering::Relaxed);
    }
}

impl World for Clock {
    fn now(&self) -> Nanos {
        self.inner.now()
    }
    fn wall_clock_ms(&self) -> u64 {
        self.inner.wall_clock_ms().saturating_add_signed(self.offset_ms.load(Ordering::Relaxed))
    }
    fn sleep(&self, duration: Duration) -> Task {
        self.inner.sleep(duration)
    }
    fn yield_now(&self) -> Task {
        self.inner.yield_now()
    }
    fn random_u64(&self) -> u64 {
        self.inner.random_u64()
    }
    fn data_threads(&self) -> usize {
        self.inner.data_threads()
    }
    fn current(&self) -> Option<Thread> {
        self.inner.current()
    }
    fn spawn(&self, thread: Thread, task: Task) {
        self.inner.spawn(thread, task);
    }
    fn workers(&self) -> usize {
        self.inner.workers()
    }
    fn offload(&self, job: Job) {
        self.inner.offload(job);
    }
}

pub(crate) fn create(name: &str) -> VolumeCreate {
    VolumeCreate::new(name, GIB)
}

impl Years {
    pub(crate) fn new(seed: u64) -> Self {
        let sim = SimWorld::new(seed, SimOptions { data_threads: 1, ..SimOptions::default() });
        let clock = Arc::new(Clock { inner: sim.clone(), offset_ms: AtomicI64::new(0) });
        let disk = sim.disk("drive", DRIVE_BYTES);
        let drive = quoin_pool::NewDrive::alone(disk.clone(), Roles { journal: true, data: true });
        let (world, drives) = (clock.clone(), vec![drive]);
        let options = FormatOptions {
            pool_name: "years".into(),
            slab_bytes: 4 * MIB as u32,
            ..FormatOptions::default()
        };
        let pool = sim.run(async move { quoin_pool::format(&*world, drives, options).await.unwrap() });
        Self { sim, clock, disk, pool: pool.unwrap() }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Starts the array, does `work` with it, and stops it, or kills it if `ending` says so.
    pub(crate) fn boot<T, F>(&self, ending: Ending, work: impl FnOnce(Day) -> F) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let array = self.array();
        let day = Day { array: array.clone(), clock: self.clock.clone(), drive: self.disk.clone() };
        let work = work(day.clone());
        let world = self.clock.clone();
        let main = async move {
            let (ended, end) = one_shot();
            let run = array.clone().run();
            let task = async move {
                run.await;
                ended.send(());
            };
            world.spawn(Thread::Data(0), Box::pin(task));
            while day.array.status().state != State::Online {
                day.pass(Duration::from_millis(100)).await;
            }
            let outcome = work.await;
            if ending == Ending::Stop {
                array.stop();
                end.await;
            }
            outcome
        };
        let outcome = self.sim.run(main).unwrap();
        if ending == Ending::Kill {
            self.sim.kill();
        }
        outcome
    }

    /// Time passes while the array is off.
    pub(crate) fn off(&self, time: Duration) {
        let sleep = self.sim.sleep(time);
        self.sim.run(sleep).unwrap();
    }

    fn array(&self) -> Arc<Array> {
        let options = ArrayOptions {
            name: "years".into(),
            pool: self.pool,
            iqn: IQN.into(),
            version: "0".into(),
            nbd: Vec::new(),
            pool_options: PoolOptions::default(),
            space: SpacePercents::default(),
            spare_domains: 0,
        };
        let bay = vec![self.disk.clone() as Arc<dyn Disk>];
        Array::new(self.clock.clone(), Box::new(bay), Target::new(IQN), options)
    }
}

impl Drop for Years {
    fn drop(&mut self) {
        self.sim.end();
    }
}

/// How a boot ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Stop,
    Kill,
}

/// An array that runs.
#[derive(Clone)]
pub(crate) struct Day {
    pub(crate) array: Arc<Array>,
    pub(crate) clock: Arc<Clock>,
    /// The drive of its pool.
    pub(crate) drive: Arc<SimDisk>,
}

impl Day {
    /// Time passes.
    pub(crate) async fn pass(&self, time: Duration) {
        self.clock.sleep(time).await;
    }

    /// The drive fails, somebody notices, and later it answers again and the pool is reopened.
    pub(crate) async fn lose_drive(&self, notice: impl Future<Output = ()>) {
        self.drive.fail();
        notice.await;
        self.wait(State::Offline).await;
        self.drive.revive();
        self.wait(State::Online).await;
    }

    async fn wait(&self, state: State) {
        while self.array.status().state != state {
            self.pass(Duration::from_millis(5)).await;
        }
    }

    /// How many events say this.
    pub(crate) fn times_told(&self, part: &str) -> usize {
        self.told().iter().filter(|told| told.contains(part)).count()
    }

    /// What events say, newest first.
    pub(crate) fn told(&self) -> Vec<String> {
        let events = self.array.events(EventSelection::default());
        events
            .into_iter()
            .map(|event| format!("{}: {}: {}", event.severity, event.object, event.text))
            .collect()
    }
}
