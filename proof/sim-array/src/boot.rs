//! One boot: the array is started, compared with the model, put to use, and stopped, unless it is cut off.

use crate::{
    admin::{Admin, HOST},
    host::{Host, read_all},
    reserve::clear_reserves,
    scenario::{Ending, Scenario},
    schedule::clear_schedules,
    shared::Shared,
};
use quoin_api::{HostCreate, State};
use quoin_array::{Array, ArrayOptions, SpacePercents, check_catalog};
use quoin_base::PoolId;
use quoin_drive::inspect_set;
use quoin_pool::check;
use quoin_sim::problems_of;
use quoin_target::Target;
use quoin_world::{Disk, Event, OneShot, Thread, World, one_shot};
use quoin_world_sim::{SimDisk, SimWorld};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

const IQN: &str = "iqn.2026-11.io.quoin:sim";
const INITIATOR: &str = "iqn.2026-11.test:h1";
/// How often, and how many times, it is looked whether the array is online.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const LOOKS: u32 = 20_000;

/// The array of one boot.
pub(crate) fn array(
    world: &Arc<SimWorld>,
    disks: &[Arc<SimDisk>],
    pool: PoolId,
    scenario: &Scenario,
) -> Arc<Array> {
    let options = ArrayOptions {
        name: "sim".into(),
        pool,
        iqn: IQN.into(),
        version: "0".into(),
        nbd: Vec::new(),
        pool_options: scenario.pool.clone(),
        space: SpacePercents::default(),
        spare_domains: 0,
    };
    let bay: Vec<Arc<dyn Disk>> = disks.iter().map(|disk| disk.clone() as _).collect();
    Array::new(world.clone(), Box::new(bay), Target::new(IQN), options)
}

/// What a boot needs.
pub(crate) struct BootRun {
    pub shared: Arc<Shared>,
    pub disks: Vec<Arc<SimDisk>>,
    pub rng: ChaCha8Rng,
    pub hosts: usize,
    pub admins: usize,
    pub first: bool,
    pub last: bool,
    /// The boot before was cut off.
    pub after_crash: bool,
}

impl BootRun {
    /// A violation, if one was met.
    pub(crate) async fn run(mut self) -> Option<String> {
        let outcome = self.boot().await;
        self.shared.violation.lock().take().or(outcome.err())
    }

    async fn boot(&mut self) -> Result<(), String> {
        if self.shared.boot.check {
            self.check().await?;
        }
        let array = self.shared.array.clone();
        let ended = spawn(&self.shared.world, Thread::Background, array.clone().run());
        self.online().await?;
        if self.first {
            let initiators = vec![INITIATOR.to_owned()];
            let host = HostCreate { name: HOST.into(), initiators, chap: None };
            let (array, initial) =
                (array.clone(), async move |array: Arc<Array>| array.create_host(host).await);
            let made =
                spawn(&self.shared.world, Thread::Background, async move { initial(array).await.map(drop) });
            made.await.ok_or("no answer")?.map_err(|e| e.to_string())?;
        }
        if self.after_crash {
            let shared = self.shared.clone();
            let clear = async move {
                clear_schedules(&shared).await?;
                clear_reserves(&shared).await
            };
            let cleared = spawn(&self.shared.world, Thread::Background, clear);
            cleared.await.ok_or("no answer")??;
        }
        self.compare(self.after_crash)?;
        self.verify(0.3).await?;
        self.work().await;
        if let Some(violation) = self.shared.violation.lock().take() {
            return Err(violation);
        }
        self.compare(false)?;
        if self.shared.boot.ending != Ending::Stop {
            self.shared.world.cut_power_now();
            pending::<()>().await;
        }
        self.verify(if self.last { 1.0 } else { 0.3 }).await?;
        self.shared.stopping.store(true, Ordering::Relaxed);
        array.stop();
        ended.await.ok_or("the array did not end")?;
        if self.last { self.check().await } else { Ok(()) }
    }

    async fn online(&self) -> Result<(), String> {
        for _ in 0..LOOKS {
            if self.shared.array.status().state == State::Online && self.shared.array.is_restored() {
                return Ok(());
            }
            self.shared.world.sleep(LOOK_EVERY).await;
        }
        Err(format!("the array does not come online: {:?}", self.shared.array.status().reason))
    }

    fn compare(&self, after_crash: bool) -> Result<(), String> {
        let (applied, dropped, emptied) =
            self.shared.model.lock().compare(&self.shared.array, after_crash)?;
        let mut totals = self.shared.totals.lock();
        totals.doubtful_applied += applied;
        totals.doubtful_dropped += dropped;
        totals.emptied_early += emptied;
        Ok(())
    }

    /// Reads volumes, each with this probability; those whose content must stay always.
    async fn verify(&mut self, probability: f64) -> Result<(), String> {
        let volumes: Vec<_> = {
            let model = self.shared.model.lock();
            model.volumes.iter().map(|(name, vol)| (name.clone(), vol.is_frozen())).collect()
        };
        for (name, frozen) in volumes {
            if frozen || self.rng.random_bool(probability) {
                read_all(&self.shared, &name, frozen).await?;
            }
        }
        Ok(())
    }

    /// Runs hosts and administrators until all are done.
    async fn work(&mut self) {
        let (world, ended) = (self.shared.world.clone(), Arc::new((AtomicUsize::new(0), Event::new())));
        let start = |thread: Thread, task: quoin_world::Task| {
            let ended = ended.clone();
            let task = async move {
                task.await;
                ended.0.fetch_add(1, Ordering::Relaxed);
                ended.1.notify();
            };
            world.spawn(thread, Box::pin(task));
        };
        for host in 0..self.hosts {
            let rng = ChaCha8Rng::seed_from_u64(self.rng.random());
            let task = Host { shared: self.shared.clone(), rng }.run();
            start(Thread::Data(host % world.data_threads()), Box::pin(task));
        }
        for _ in 0..self.admins {
            let rng = ChaCha8Rng::seed_from_u64(self.rng.random());
            start(Thread::Background, Box::pin(Admin { shared: self.shared.clone(), rng }.run()));
        }
        if let Ending::Change(number, after) = self.shared.boot.ending {
            let shared = self.shared.clone();
            let cut = async move {
                loop {
                    shared.world.sleep(Duration::from_micros(50)).await;
                    if shared.model.lock().begun >= number {
                        shared.world.sleep(after).await;
                        shared.world.cut_power_now();
                    }
                }
            };
            world.spawn(Thread::Background, Box::pin(cut));
        }
        let all = self.hosts + self.admins;
        ended.1.until(|| (ended.0.load(Ordering::Relaxed) >= all).then_some(())).await;
    }

    /// Drives that nobody uses hold a pool and a catalog without a fault.
    async fn check(&self) -> Result<(), String> {
        let disks = self.disks.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect();
        let drives = inspect_set(disks).await.map_err(|e| e.to_string())?;
        let mut report = check(drives).await.map_err(|e| format!("the check failed: {e}"))?;
        check_catalog(&mut report);
        self.shared.totals.lock().checks += 1;
        problems_of(&report)
    }
}

/// Runs a task on a thread; what it returns.
fn spawn<T: Send + 'static>(
    world: &Arc<SimWorld>,
    thread: Thread,
    task: impl Future<Output = T> + Send + 'static,
) -> OneShot<T> {
    let (sender, ended) = one_shot();
    world.spawn(thread, Box::pin(async move { sender.send(task.await) }));
    ended
}
