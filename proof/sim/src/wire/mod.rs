//! iSCSI and NBD sessions, volumes and pool on a simulated world, with hosts on the other side of a simulated network.
//!
//! The front ends are the real ones, from the first byte of a connection to its last. Hosts have many commands under
//! way, send data in all the ways there are, abort and reset, lose connections in the middle of anything and come back;
//! the array is cut off and started again. The history of every sector explains all that hosts were told.
//!
//! Shows: what a host was told GOOD is there; a command that was ended is wholly there or not, for each block of the
//! pool, and never takes effect after the host was told of its end.
//! Does not show: TLS, CHAP, discovery, changes of what hosts see, and the kernel's sockets.

mod command;
mod initiator;
mod local;
mod login;
mod nbd;
mod shared;
mod stream;
mod totals;

pub use totals::WireTotals;

use crate::{
    boot::check_pool,
    choices::{Choices, Faults, Load},
    model::{History, Window},
    runner::Outcome,
    scenario::{Scenario, log_uniform},
};
use initiator::Initiator;
use nbd::NbdClient;
use parking_lot::Mutex;
use quoin_base::{ByteRange, MIB, SECTOR_BYTES};
use quoin_drive::open_set;
use quoin_iscsi::IscsiServer;
use quoin_nbd::NbdServer;
use quoin_pool::{NewDrive, Pool, Transaction, format};
use quoin_target::{Access, ExportRules, Exports, Lun, Target};
use quoin_volume::{BlockDevice, Folder, PoolSlot, Tags, Volume, VolumeSpec, Volumes};
use quoin_world::{Disk, Event, Thread, World};
use quoin_world_sim::{FaultPlan, PowerCut, SimDisk, SimOptions, SimWorld, Stopped};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use shared::{Array, Shared, Unit};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

const TARGET_NAME: &str = "iqn.2026-11.quoin.test:wire";
const STEP_LIMIT: u64 = 8_000_000;
/// What of a volume is used.
const USED_SECTORS: u32 = 1024;
/// Sectors of one verifying read.
const READ_SECTORS: u32 = 256;

/// How a boot ends.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// When all hosts are done.
    Close,
    Step(u64),
    DiskOp(u64),
}

struct Run {
    shared: Arc<Shared>,
    disks: Vec<Arc<SimDisk>>,
    scenario: Scenario,
    rng: ChaCha8Rng,
}

fn export_name(unit: usize) -> String {
    format!("v{unit}")
}

/// Runs a seed.
pub fn run_wire_seed(seed: u64, verbose: bool) -> Outcome<WireTotals> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(90);
    let faults = if rng.random_bool(0.4) { Faults::Slow } else { Faults::None };
    let choices = Choices {
        faults: Some(faults),
        load: Some(Load::Mixed),
        slices: Some(1),
        columns: Some(1),
        ..Choices::default()
    };
    let scenario = Scenario::new(seed, choices);
    let world = SimWorld::new(seed, SimOptions { data_threads: scenario.threads, step_limit: STEP_LIMIT });
    let drives = scenario.drives.iter().enumerate();
    let disks: Vec<_> = drives.map(|(i, (len, _))| world.disk(&format!("d{i}"), *len)).collect();
    if let Some(slow) = scenario.slow_drive {
        let latency = Duration::from_micros(50)..=Duration::from_micros(3000);
        disks[slow].set_faults(FaultPlan { latency, slow: 0.03, ..FaultPlan::default() });
    }
    let shared = Arc::new(Shared {
        world: world.clone(),
        history: Mutex::new(History::new()),
        totals: Mutex::default(),
        violation: Mutex::default(),
        stop: AtomicBool::new(false),
        links: AtomicU64::new(0),
    });
    let mut run = Run { shared: shared.clone(), disks, scenario, rng };
    let violation = run.all(seed, verbose).err();
    let mut totals = *shared.totals.lock();
    (totals.seeds, totals.steps) = (1, world.progress().0);
    let trace_hash = world.trace_hash();
    world.end();
    Outcome { totals, trace_hash, violation }
}

impl Run {
    fn all(&mut self, seed: u64, verbose: bool) -> Result<(), String> {
        self.set_up()?;
        let boots = self.rng.random_range(1..=4);
        for number in 1..=boots {
            let ending = match self.rng.random_range(0..10) {
                _ if number == boots => Ending::Close,
                0..=2 => Ending::Close,
                3..=6 => Ending::Step(log_uniform(&mut self.rng, 500, 60_000)),
                _ => Ending::DiskOp(log_uniform(&mut self.rng, 1, 1500)),
            };
            let ended = self.boot(number, ending, number == boots);
            let ended = ended.map_err(|why| format!("boot {number}, {ending:?}: {why}"))?;
            if verbose {
                println!("seed {seed} boot {number}: {ending:?}: {ended}");
            }
        }
        Ok(())
    }

    /// Makes the pool and its volumes.
    fn set_up(&self) -> Result<(), String> {
        let shared = self.shared.clone();
        let world = shared.world.clone();
        let disks = self.disks();
        let roles = self.scenario.drives.iter().map(|(_, roles)| *roles);
        let with_roles: Vec<_> =
            disks.iter().cloned().zip(roles).map(|(disk, roles)| NewDrive::alone(disk, roles)).collect();
        let (formatting, pool_options) = (self.scenario.format.clone(), self.scenario.pool.clone());
        let made = self.shared.world.run(async move {
            format(&*world, with_roles, formatting).await.map_err(|e| e.to_string())?;
            let drives = open_set(disks).await.map_err(|e| e.to_string())?;
            let pool = Pool::open(world.clone(), drives, pool_options).await.map_err(|e| e.to_string())?;
            let slot = Arc::new(PoolSlot::empty("not opened"));
            slot.fill(pool.clone());
            let volumes = Volumes::new(world, slot);
            volumes.restore(&pool).map_err(|e| e.to_string())?;
            for (unit, block_bytes) in [512, 4096].into_iter().enumerate() {
                let spec = VolumeSpec {
                    name: export_name(unit),
                    size_bytes: 64 * MIB,
                    block_bytes,
                    thick: false,
                    tags: Tags::default(),
                    folder: Folder::default(),
                    policy: Default::default(),
                };
                let volume = volumes.create(spec, Transaction::default()).await.map_err(|e| e.to_string())?;
                let windows = [Window { first: 0, sectors: USED_SECTORS }];
                shared.history.lock().add_volume(volume.id().0, &windows);
            }
            pool.close().await.map_err(|e| e.to_string())
        });
        made.map_err(|e| e.to_string())?
    }

    fn disks(&self) -> Vec<Arc<dyn Disk>> {
        self.disks.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect()
    }

    fn boot(&mut self, number: u32, ending: Ending, last: bool) -> Result<&'static str, String> {
        let shared = self.shared.clone();
        shared.history.lock().begin_boot(number);
        shared.stop.store(false, Ordering::Relaxed);
        let boot = Boot {
            shared: shared.clone(),
            disks: self.disks(),
            pool: self.scenario.pool.clone(),
            rng: ChaCha8Rng::seed_from_u64(self.rng.random()),
            last,
        };
        let at = match ending {
            Ending::Close => PowerCut::Never,
            Ending::Step(step) => PowerCut::AfterSteps(step),
            Ending::DiskOp(op) => PowerCut::AtDiskOp(op),
        };
        if self.rng.random_bool(0.4) {
            shared.world.kill_process(at)
        } else {
            shared.world.cut_power(at)
        }
        let result = shared.world.run(boot.run());
        shared.totals.lock().boots += 1;
        let violation = shared.violation.lock().take();
        let ended = match (violation, result) {
            (Some(violation), _) => Err(violation),
            (None, Ok(Ok(()))) => Ok("closed"),
            (None, Ok(Err(why))) => Err(why),
            (None, Err(Stopped::PowerCut { .. })) => {
                shared.totals.lock().crashes += 1;
                Ok("crashed")
            }
            (None, Err(stopped)) => Err(stopped.to_string()),
        };
        if ended == Ok("closed") {
            // Whatever still sleeps belongs to an array that was stopped.
            shared.world.kill();
        }
        shared.world.cut_power(PowerCut::Never);
        shared.history.lock().crash();
        ended
    }
}

/// One boot of the array.
struct Boot {
    shared: Arc<Shared>,
    disks: Vec<Arc<dyn Disk>>,
    pool: quoin_pool::PoolOptions,
    rng: ChaCha8Rng,
    last: bool,
}

impl Boot {
    async fn run(mut self) -> Result<(), String> {
        let world = self.shared.world.clone();
        let drives = open_set(self.disks.clone()).await.map_err(|e| e.to_string())?;
        let opened = Pool::open(world.clone(), drives, self.pool.clone()).await;
        let pool = opened.map_err(|e| format!("the pool cannot be opened: {e}"))?;
        let slot = Arc::new(PoolSlot::empty("not opened"));
        slot.fill(pool.clone());
        let volumes = Volumes::new(world, slot);
        volumes.restore(&pool).map_err(|e| e.to_string())?;
        let volumes: Vec<_> = (0..2)
            .map(|unit| volumes.get(&export_name(unit)))
            .collect::<Result<_, _>>()
            .map_err(|e| e.to_string())?;
        self.verify(&volumes, 0.3).await?;
        let array = self.array(&volumes)?;
        self.load(&array).await;
        self.shared.stop.store(true, Ordering::Relaxed);
        array.reset_all_but_one().await;
        array.iscsi.shutdown().await;
        array.nbd.shutdown().await;
        if self.shared.violation.lock().is_some() {
            return Ok(());
        }
        // Nothing is under way any more: what nobody was told of took effect before now, or never.
        self.shared.history.lock().crash();
        self.verify(&volumes, if self.last { 1.0 } else { 0.3 }).await?;
        pool.close().await.map_err(|e| format!("the pool cannot be closed: {e}"))?;
        if self.last { check_pool(self.disks).await } else { Ok(()) }
    }

    fn array(&self, volumes: &[Arc<Volume>]) -> Result<Arc<Array>, String> {
        let world = self.shared.world.clone();
        let target = Target::new(TARGET_NAME);
        let exports = Arc::new(Exports::default());
        for host in 1..=2 {
            let names = [initiator_name(host)];
            target.set_host(&format!("h{host}"), &names, None).map_err(|e| e.to_string())?;
        }
        for (unit, volume) in volumes.iter().enumerate() {
            let lun = Lun::new(unit as u16).ok_or("no such LUN")?;
            for host in 1..=2 {
                let mapped = target.map(&format!("h{host}"), lun, volume.clone(), Access::ReadWrite);
                mapped.map_err(|e| e.to_string())?;
            }
            let networks = ["10.0.0.0/24".to_owned()];
            let rules = ExportRules::new(&networks, &[]).map_err(|e| e.to_string())?;
            exports.set(&export_name(unit), volume.clone(), rules, Access::ReadWrite);
        }
        let random = world.clone();
        let options = quoin_iscsi::Options {
            clock: world.clone(),
            ping_after: Duration::from_millis(100),
            ..quoin_iscsi::Options::new(move || random.random_u64())
        };
        let nbd_options = quoin_nbd::Options { clock: world, ..quoin_nbd::Options::default() };
        let units = volumes.iter().map(|volume| Unit {
            volume: volume.id().0,
            block_sectors: volume.block_bytes() / SECTOR_BYTES as u32,
            sectors: USED_SECTORS,
        });
        Ok(Arc::new(Array {
            shared: self.shared.clone(),
            units: units.collect(),
            iscsi: IscsiServer::new(target, options),
            nbd: NbdServer::new(exports, None, nbd_options),
            open: AtomicU64::new(0),
            switches: Mutex::default(),
            resets: volumes.iter().map(|_| Default::default()).collect(),
        }))
    }

    /// Lets hosts do their part.
    async fn load(&mut self, array: &Arc<Array>) {
        let world = self.shared.world.clone();
        let (sessions, clients) = (self.rng.random_range(1..=3), self.rng.random_range(0..=2));
        let done = Arc::new((AtomicUsize::new(0), Event::new()));
        let operations = log_uniform(&mut self.rng, 20, 300) as u32;
        for number in 0..sessions + clients {
            let rng = ChaCha8Rng::seed_from_u64(self.rng.random());
            let (array, number, done) = (array.clone(), number as u64, done.clone());
            let is_session = number < sessions as u64;
            let task = async move {
                let forgotten = Vec::new();
                if is_session {
                    // The third session is another of the second host's.
                    let name = initiator_name(1 + number.min(1));
                    let isid = [0x80, 0, 0, 0, 0, number as u8];
                    let (tsih, orphans) = (0, Vec::new());
                    let session =
                        Initiator { array, rng, number, name, isid, operations, tsih, orphans, forgotten };
                    session.run().await;
                } else {
                    NbdClient { array, rng, number, operations, forgotten }.run().await;
                }
                done.0.fetch_add(1, Ordering::Relaxed);
                done.1.notify();
            };
            world.spawn(Thread::Data(number as usize % world.data_threads()), Box::pin(task));
        }
        let all = sessions + clients;
        done.1.until(|| (done.0.load(Ordering::Relaxed) >= all).then_some(())).await;
    }

    /// Reads a share of all that is used of the volumes.
    async fn verify(&mut self, volumes: &[Arc<Volume>], share: f64) -> Result<(), String> {
        for volume in volumes {
            for first in (0..USED_SECTORS).step_by(READ_SECTORS as usize) {
                if !self.rng.random_bool(share) {
                    continue;
                }
                let begun = self.shared.history.lock().begin_read();
                let len = u64::from(READ_SECTORS) * SECTOR_BYTES;
                let range = ByteRange::new(u64::from(first) * SECTOR_BYTES, len);
                let slices = volume.read(range).await.map_err(|e| format!("a read failed: {e}"))?;
                let bytes = slices.iter().map(|slice| &slice[..]);
                self.shared.history.lock().read_returned(begun, volume.id().0, 0, first, bytes)?;
            }
        }
        Ok(())
    }
}

fn initiator_name(host: u64) -> String {
    format!("iqn.2026-11.quoin.test:host{host}")
}
