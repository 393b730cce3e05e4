//! Runs one seed, from an empty array through its boots to the closing check.

use crate::{
    boot::{BootRun, array},
    model::Model,
    scenario::{Boot, Ending, Scenario},
    shared::{Shared, Violation},
    totals::Totals,
};
use parking_lot::Mutex;
use quoin_base::PoolId;
use quoin_pool::{NewDrive, format};
use quoin_sim::Outcome;
use quoin_world_sim::{PowerCut, SimDisk, SimOptions, SimWorld, Stopped};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::{Arc, atomic::AtomicBool};

/// Steps after which a boot counts as never ending.
const STEP_LIMIT: u64 = 6_000_000;

struct Run {
    seed: u64,
    verbose: bool,
    world: Arc<SimWorld>,
    disks: Vec<Arc<SimDisk>>,
    pool: PoolId,
    scenario: Scenario,
    model: Arc<Mutex<Model>>,
    totals: Arc<Mutex<Totals>>,
    rng: ChaCha8Rng,
    cut: bool,
}

/// Runs a seed; prints each boot if `verbose`.
pub fn run_seed(seed: u64, verbose: bool) -> Outcome<Totals> {
    let scenario = Scenario::new(seed);
    let world = SimWorld::new(seed, SimOptions { data_threads: scenario.threads, step_limit: STEP_LIMIT });
    let disks: Vec<_> =
        scenario.drives.iter().enumerate().map(|(i, (len, _))| world.disk(&format!("d{i}"), *len)).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(82);
    let (inner, options) = (world.clone(), scenario.format.clone());
    let drives = disks.iter().zip(&scenario.drives);
    let drives = drives.map(|(disk, (_, roles))| NewDrive::alone(disk.clone(), *roles)).collect();
    let formatted = world.run(async move { format(&*inner, drives, options).await });
    let formatted = formatted.map_err(|e| e.to_string()).and_then(|made| made.map_err(|e| e.to_string()));
    let mut run = match formatted {
        Ok(pool) => Run {
            seed,
            verbose,
            world,
            disks,
            pool,
            scenario,
            model: Arc::new(Mutex::new(Model::new())),
            totals: Arc::default(),
            rng,
            cut: false,
        },
        Err(error) => {
            let violation = Some(format!("formatting: {error}"));
            return Outcome { totals: Totals::default(), trace_hash: 0, violation };
        }
    };
    let violation = run.all().err();
    let mut totals = *run.totals.lock();
    totals.seeds = 1;
    (totals.steps, totals.disk_ops) = run.world.progress();
    let trace_hash = run.world.trace_hash();
    run.world.end();
    Outcome { totals, trace_hash, violation }
}

impl Run {
    fn all(&mut self) -> Result<(), String> {
        if self.verbose {
            println!("seed {}: {:?}", self.seed, self.scenario);
        }
        for number in 1..=self.scenario.boots {
            let last = number == self.scenario.boots;
            let boot = self.scenario.next_boot(last);
            let ended =
                self.boot(number, boot, last).map_err(|why| format!("boot {number} {boot:?}: {why}"))?;
            if self.verbose {
                println!("seed {} boot {number}: {boot:?}: {ended}", self.seed);
            }
        }
        Ok(())
    }

    /// One boot. Returns how it ended.
    fn boot(&mut self, number: u32, boot: Boot, last: bool) -> Result<&'static str, String> {
        {
            let mut model = self.model.lock();
            model.history.begin_boot(number);
            model.begun = 0;
        }
        let shared = Arc::new(Shared {
            world: self.world.clone(),
            array: array(&self.world, &self.disks, self.pool, &self.scenario),
            model: self.model.clone(),
            totals: self.totals.clone(),
            violation: Violation::default(),
            stop: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            boot,
        });
        let run = BootRun {
            shared: shared.clone(),
            disks: self.disks.clone(),
            rng: ChaCha8Rng::seed_from_u64(self.rng.random()),
            hosts: self.scenario.hosts,
            admins: self.scenario.admins,
            first: number == 1,
            last,
            after_crash: std::mem::take(&mut self.cut),
        };
        self.set_cut(number, boot);
        let result = self.world.run(run.run());
        let mut totals = self.totals.lock();
        totals.boots += 1;
        let ended = match result {
            Ok(Some(violation)) => Err(violation),
            Ok(None) => {
                totals.stops += 1;
                Ok("stopped")
            }
            Err(Stopped::PowerCut { .. }) => {
                let counter = if boot.kill { &mut totals.kills } else { &mut totals.power_cuts };
                *counter += 1;
                self.cut = true;
                Ok(if boot.kill { "killed" } else { "power cut" })
            }
            Err(stopped) => {
                // What a task saw before another broke down tells more.
                let first = shared.violation.lock().take();
                Err(first.unwrap_or_else(|| stopped.to_string()))
            }
        };
        drop(totals);
        if !self.cut {
            // Whatever still sleeps belongs to an array that was stopped.
            self.world.kill();
        }
        self.world.cut_power(PowerCut::Never);
        self.model.lock().crash();
        ended
    }

    /// Arranges for the power to fail, or for the process to be killed, at the moment that the boot has for it.
    fn set_cut(&self, number: u32, boot: Boot) {
        let at = match boot.ending {
            Ending::Stop | Ending::Work | Ending::Change(..) => PowerCut::Never,
            // The first boot gets as far as an array with a host in it.
            Ending::Step(_) | Ending::DiskOp(_) if number == 1 => PowerCut::Never,
            Ending::Step(n) => PowerCut::AfterSteps(n),
            Ending::DiskOp(n) => PowerCut::AtDiskOp(n),
        };
        if boot.kill { self.world.kill_process(at) } else { self.world.cut_power(at) }
    }
}
