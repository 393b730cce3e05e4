//! Runs one seed, from an empty pool through its boots to the closing check.

use crate::{
    boot::{BootRun, End},
    choices::{Choices, Faults},
    client::{Model, Shared},
    damage::{self, data_region, journal_region, root_slots},
    growing,
    model::{CatalogModel, History},
    policies::Policies,
    runner::Outcome,
    scenario::{Boot, Ending, Scenario},
    totals::Totals,
};
use parking_lot::Mutex;
use quoin_base::ByteRange;
use quoin_drive::{Answers, DriveWatch, MemberState, Patience, inspect_set};
use quoin_pool::{NewDrive, Pool, check, format};
use quoin_world::{Disk, Thread, World};
use quoin_world_sim::{FaultPlan, PowerCut, SimDisk, SimOptions, SimWorld, Stopped};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

/// Steps after which a boot counts as never ending.
const STEP_LIMIT: u64 = 4_000_000;
/// With RAM for a single page of metadata, pages are read from drives again and again: what unmaps all blocks below one
/// damaged node of a map, 262,144 of them, takes many times the steps of an ordinary boot.
const STEP_LIMIT_LITTLE_RAM: u64 = 40_000_000;

/// Longer than any drive that does not hang takes.
const PATIENCE: Patience =
    Patience { suspect_after: Duration::from_millis(600), fail_after: Duration::from_millis(1200) };

struct Run {
    seed: u64,
    choices: Choices,
    world: Arc<SimWorld>,
    disks: Vec<Arc<SimDisk>>,
    /// A disk that the pool gets while it serves.
    spare: Option<Arc<SimDisk>>,
    scenario: Scenario,
    model: Arc<Mutex<Model>>,
    totals: Arc<Mutex<Totals>>,
    rng: ChaCha8Rng,
    /// Silent faults have been at work, and what they damaged may be gone for good.
    damaged: bool,
    /// Silent faults have been at work, perhaps on no more drives than the layout makes up for.
    spoiled: bool,
    closed: bool,
    /// Drives are absent that the pool waits for.
    any_absent: bool,
    /// The last boot left a drive that hangs, or will.
    hangs_on: bool,
    /// What the drive that loses its part of the journal had of it earlier.
    old_journal: Vec<u8>,
    /// Of each disk. A new process has new ones.
    watches: Vec<Arc<DriveWatch>>,
    /// The pool while it is open.
    opened: Arc<Mutex<Option<Arc<Pool>>>>,
}

/// What a seed is like, with what was chosen for it.
fn scenario_of(seed: u64, choices: Choices) -> Scenario {
    let mut scenario = Scenario::new(seed, choices);
    if choices.little_ram {
        (scenario.pool.metadata_bytes, scenario.pool.cache_bytes) = (4096, 40 << 10);
    }
    if growing::is_chosen(seed, choices) {
        growing::enlarge(seed, &mut scenario);
    }
    scenario
}

/// Runs a seed.
pub fn run_seed(seed: u64, choices: Choices) -> Outcome<Totals> {
    let scenario = scenario_of(seed, choices);
    let step_limit = if choices.little_ram { STEP_LIMIT_LITTLE_RAM } else { STEP_LIMIT };
    let world = SimWorld::new(seed, SimOptions { data_threads: scenario.threads, step_limit });
    let disks: Vec<_> =
        scenario.drives.iter().enumerate().map(|(i, (len, _))| world.disk(&format!("d{i}"), *len)).collect();
    let is_sound = matches!(scenario.faults, Faults::None | Faults::Slow);
    let fails = matches!(scenario.faults, Faults::Errors | Faults::Death);
    let has_spare = (is_sound && seed % 4 == 1) || (fails && seed % 8 == 5);
    let spare = has_spare.then(|| world.disk("added", scenario.drives[0].0));
    // Large writes go to such drives in another order.
    if seed % 3 == 2 {
        disks.iter().for_each(|disk| disk.make_sparse());
    }
    let model = Model {
        history: History::new(),
        // In a quarter of the seeds.
        catalog: CatalogModel::new(choices.deduplicated || seed / 9 % 4 == 3),
        deleting: BTreeSet::new(),
        cutting: BTreeSet::new(),
        forking: Vec::new(),
        hidden: BTreeSet::new(),
        copying: BTreeSet::new(),
    };
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(78);
    let mut run = Run {
        seed,
        choices,
        world,
        disks,
        spare,
        scenario,
        model: Arc::new(Mutex::new(model)),
        totals: Arc::default(),
        rng,
        damaged: false,
        spoiled: false,
        closed: false,
        any_absent: false,
        hangs_on: false,
        old_journal: Vec::new(),
        watches: Vec::new(),
        opened: Arc::default(),
    };
    run.watch_drives();
    // A pool that is dropped at the end of a boot gives back what its buffers hold: counts that go below nothing panic there.
    let all = catch_unwind(AssertUnwindSafe(|| run.all()));
    let violation = all.unwrap_or_else(|_| Err("a pool panicked when it was dropped".to_owned())).err();
    let (steps, disk_ops) = run.world.progress();
    let mut totals = *run.totals.lock();
    totals.seeds = 1;
    totals.steps = steps;
    totals.disk_ops = disk_ops;
    run.disks.iter().for_each(|disk| totals.add_injected(&disk.injected()));
    let trace_hash = run.world.trace_hash();
    run.world.end();
    Outcome { totals, trace_hash, violation }
}

impl Run {
    fn all(&mut self) -> Result<(), String> {
        let disks: Vec<_> = self
            .disks
            .iter()
            .zip(&self.scenario.drives)
            .map(|(d, (_, roles))| NewDrive::alone(d.clone(), *roles))
            .collect();
        let (world, options) = (self.world.clone(), self.scenario.format.clone());
        let formatted = self.world.run(async move { format(&*world, disks, options).await });
        formatted.map_err(|e| e.to_string())?.map_err(|e| format!("formatting: {e}"))?;
        if self.choices.verbose {
            let mut told = format!("{:?}", self.scenario);
            told.truncate(told.find(", rng:").unwrap_or(told.len()));
            println!("seed {}: {told}", self.seed);
        }
        for number in 1..=self.scenario.boots {
            let last = number == self.scenario.boots;
            let boot = self.scenario.next_boot(last);
            let ended = self.boot(number, boot, last).map_err(|why| {
                let Scenario { faults, load, threads, clients, .. } = &self.scenario;
                format!("{faults:?}, {load:?}, {threads} threads, {clients} clients, boot {number} {boot:?}: {why}")
            })?;
            if self.choices.verbose {
                println!("seed {} boot {number}: {boot:?}: {ended}", self.seed);
            }
            // What is damaged for good ends it.
            if ended == "not opened" && self.damaged {
                break;
            }
        }
        Ok(())
    }

    /// One boot. Returns how it ended.
    fn boot(&mut self, number: u32, boot: Boot, last: bool) -> Result<&'static str, String> {
        let fails =
            matches!(self.scenario.faults, Faults::Errors | Faults::Death | Faults::Hang | Faults::Beyond);
        let may_fail = (boot.faulty && fails) || std::mem::take(&mut self.hangs_on);
        let spoils = boot.faulty && self.scenario.spoils();
        // What redundancy makes up for excuses nothing.
        self.spoiled |= spoils;
        self.damaged |= spoils && !self.scenario.is_made_up_for();
        self.set_faults(boot.faulty);
        self.model.lock().history.begin_boot(number);
        let shared = Arc::new(Shared {
            world: self.world.clone(),
            model: self.model.clone(),
            totals: self.totals.clone(),
            violation: Arc::default(),
            stop: AtomicBool::new(false),
            load: self.scenario.load,
            boot,
            may_fail,
            dies: self.scenario.faults == Faults::Death,
            beyond: (self.scenario.faults == Faults::Beyond).then(Default::default),
            damaged: self.damaged,
            spoiled: self.spoiled,
            policies: Policies::new(self.choices.policies),
        });
        let opened = self.opened.clone();
        let run = BootRun {
            shared,
            disks: self.disks.clone(),
            watches: self.watches.clone(),
            // The last of the watches is the spare's, if there is one.
            spare: self.spare.clone().zip(self.watches.last().cloned()),
            admitted: Vec::new(),
            options: self.scenario.pool.clone(),
            rng: ChaCha8Rng::seed_from_u64(self.rng.random()),
            clients: self.scenario.clients,
            faults: self.scenario.faults,
            opened: opened.clone(),
            closed_before: std::mem::take(&mut self.closed),
            any_absent: self.any_absent,
            leaves: self.has_drives_leave().then(|| self.seed << 8 | u64::from(number)),
            grows: growing::is_chosen(self.seed, self.choices).then(|| self.seed << 8 | u64::from(number)),
            lays_out: self.choices.policies.then(|| self.seed << 8 | u64::from(number)),
            keeps_spare: self.choices.spare,
            is_first: number == 1,
            last,
            lacks_rows: false,
        };
        self.set_cut(boot, &opened);
        let result = self.world.run(run.run());
        let pool = opened.lock().take();
        let ended = self.ended(boot, result, pool.as_ref(), may_fail);
        let cut = ended.as_ref().is_ok_and(|e| *e == "killed" || *e == "power cut");
        self.end_boot(cut, number + 1 >= self.scenario.boots);
        if self.damaged && !last && ended.is_ok() {
            self.spare_batches_in_doubt()?;
        }
        ended
    }

    /// Whether drives leave in this seed. Not where drives hold something wrong: what is there of a seed's drives then is told
    /// by their positions.
    fn has_drives_leave(&self) -> bool {
        let is_right = !self.scenario.spoils()
            && !matches!(self.scenario.faults, Faults::Roots | Faults::Column)
            && !self.scenario.faults.has_drives_vanish();
        is_right && self.disks.len() > 1 && (self.choices.leaving || self.seed % 6 == 4)
    }

    /// Counts how a boot ended, and tells it; fails for a violation.
    fn ended(
        &mut self,
        boot: Boot,
        result: Result<End, Stopped>,
        pool: Option<&Arc<Pool>>,
        may_fail: bool,
    ) -> Result<&'static str, String> {
        let mut totals = self.totals.lock();
        totals.boots += 1;
        let failed = |pool: &Arc<Pool>| pool.members().all.iter().any(|m| m.state == MemberState::Failed);
        totals.boots_without_drive += u64::from(pool.is_some_and(failed));
        if let Some(pool) = pool {
            self.any_absent = pool.members().all.iter().any(|m| m.state == MemberState::Absent);
        }
        // Counts that went below nothing panic where they are added up.
        let figures = pool.map(|pool| catch_unwind(AssertUnwindSafe(|| pool.stats())));
        if let Some(Ok(stats)) = &figures {
            totals.add_pool(stats);
        }
        match result {
            Ok(_) | Err(Stopped::PowerCut { .. }) if matches!(figures, Some(Err(_))) => {
                Err("the pool's figures do not add up".to_owned())
            }
            Ok(End::Violated(violation)) => Err(violation),
            Ok(End::Closed) => {
                totals.closes += 1;
                // What a failing drive would not let it destage stays in the journal.
                self.closed = !may_fail;
                Ok("closed")
            }
            Ok(End::Offline) => {
                totals.offline += 1;
                Ok("offline")
            }
            Ok(End::NotOpened(reason)) => {
                totals.failed_opens += 1;
                if self.choices.verbose {
                    println!("not opened: {reason}");
                }
                Ok("not opened")
            }
            Err(Stopped::PowerCut { .. }) => {
                let counter = if boot.kill { &mut totals.kills } else { &mut totals.power_cuts };
                *counter += 1;
                totals.cuts_in_recovery += u64::from(pool.is_none());
                Ok(if boot.kill { "killed" } else { "power cut" })
            }
            Err(stopped) => Err(stopped.to_string()),
        }
    }

    /// Undoes damage to rows of large writes whose batches nothing tells to be hardened. The engine cannot tell it from what a
    /// power cut tore before it was acknowledged, and drops the batch: `docs/limits.md` says so.
    fn spare_batches_in_doubt(&self) -> Result<(), String> {
        loop {
            let disks: Vec<_> = self.disks.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect();
            let checked = self.world.run(async move {
                match inspect_set(disks).await {
                    Ok(drives) => check(drives).await.ok(),
                    Err(_) => None,
                }
            });
            // What cannot be checked will not be opened, as it may.
            let Some(report) = checked.map_err(|stopped| stopped.to_string())? else { return Ok(()) };
            let undo = |(drive, range): &(String, ByteRange)| {
                let disk = self.disks.iter().find(|disk| disk.name() == drive);
                disk.map_or(0, |disk| disk.undo_lies(*range))
            };
            // Behind a batch that verifies now may be another.
            let undone: u64 = report.dropped_rows.iter().map(undo).sum();
            self.totals.lock().spared_sectors += undone;
            if undone == 0 {
                return Ok(());
            }
        }
    }

    fn watch_drives(&mut self) {
        let watch = |disk: &Arc<SimDisk>| {
            let (opened, name) = (self.opened.clone(), disk.name().to_owned());
            DriveWatch::new(self.world.clone(), PATIENCE, move |answers| {
                let pool = opened.lock().clone();
                if let (Answers::Failed(_), Some(pool)) = (answers, pool) {
                    pool.drive_is_lost(&name, format!("drive {name} does not answer"));
                }
            })
        };
        self.watches = self.disks.iter().chain(&self.spare).map(watch).collect();
    }

    /// Clears the way for the next boot.
    fn end_boot(&mut self, cut: bool, next_is_last: bool) {
        // The process goes on where a drive hangs, and so does what it asked of the drive.
        let may_go_on = !cut && !next_is_last && self.scenario.faults == Faults::Hang;
        let goes_on = may_go_on && self.rng.random_bool(0.8);
        self.hangs_on = goes_on;
        if !goes_on {
            if !cut {
                // Whatever still sleeps belongs to a pool that was closed.
                self.world.kill();
            }
            self.watch_drives();
        }
        self.world.cut_power(PowerCut::Never);
        // Some drives are still away when the pool is opened again, or others are.
        let vanishes = self.scenario.faults.has_drives_vanish() && !next_is_last;
        if !vanishes || self.rng.random_bool(0.6) {
            self.disks.iter().chain(&self.spare).for_each(|disk| disk.revive());
            let parity = usize::from(self.scenario.format.layout.parity());
            let away = if vanishes { self.rng.random_range(0..=parity) } else { 0 };
            for _ in 0..away {
                self.disks[self.rng.random_range(0..self.disks.len())].vanish();
            }
        }
        let mut model = self.model.lock();
        model.history.crash();
        model.catalog.crash();
    }

    fn set_cut(&self, boot: Boot, opened: &Arc<Mutex<Option<Arc<Pool>>>>) {
        let at = match boot.ending {
            Ending::Close | Ending::Work | Ending::Checkpoint(..) | Ending::Seen(_) | Ending::Verified => {
                PowerCut::Never
            }
            Ending::Root(n) => PowerCut::AtWriteTo(root_slots(), n),
            Ending::Journal(n) => PowerCut::AtWriteTo(journal_region(&self.scenario, 0), n),
            Ending::DiskOp(n) => PowerCut::AtDiskOp(n),
            Ending::Step(n) => PowerCut::AfterSteps(n),
        };
        if boot.kill {
            self.world.kill_process(at)
        } else {
            self.world.cut_power(at)
        }
        let Ending::Checkpoint(count, after) = boot.ending else { return };
        let (world, opened) = (self.world.clone(), opened.clone());
        self.world.spawn(
            Thread::Background,
            Box::pin(async move {
                loop {
                    world.sleep(Duration::from_micros(100)).await;
                    let reached = opened.lock().as_ref().is_some_and(|p| p.stats().checkpoints >= count);
                    if reached {
                        world.sleep(after).await;
                        world.cut_power_now();
                    }
                }
            }),
        );
    }

    fn set_faults(&mut self, faulty: bool) {
        let scenario = &self.scenario;
        // The disk that is added may be the one.
        let victim = self.rng.random_range(0..self.disks.len() + usize::from(self.spare.is_some()));
        let rate = [0.02, 0.005, 0.001][self.rng.random_range(0..3)];
        for (i, disk) in self.disks.iter().chain(&self.spare).enumerate() {
            let mut plan = FaultPlan::default();
            if scenario.slow_drive == Some(i) {
                plan.latency = Duration::from_micros(50)..=Duration::from_micros(3000);
                plan.slow = 0.03;
            }
            match scenario.faults {
                Faults::Late if faulty => plan.late_read = 10.0 * rate,
                Faults::Errors if faulty && i == victim => {
                    (plan.read_error, plan.write_error, plan.flush_error) = (rate, rate / 10.0, rate / 10.0);
                }
                Faults::Column if faulty && i == damage::column_victim(self.seed, scenario) => {
                    plan.lost_write = [0.3, rate, 1.0][self.rng.random_range(0..3)];
                    plan.only = Some(journal_region(scenario, i));
                }
                Faults::Silent if faulty && scenario.may_be_spoiled(i) => {
                    // Often enough that also blocks of which only a part is overwritten are hit.
                    let rate = 8.0 * rate;
                    (plan.lost_write, plan.misdirected_write, plan.bit_flip) = (rate, rate, rate);
                    plan.only = Some(data_region(scenario, i));
                }
                _ => {}
            }
            disk.set_faults(plan);
        }
        match scenario.faults {
            Faults::Roots if faulty => {
                damage::damage_roots(self.seed, self.scenario.format.slices, &self.disks, &mut self.rng)
            }
            Faults::Column if faulty => {
                let victim = damage::column_victim(self.seed, &self.scenario);
                let at = journal_region(&self.scenario, victim);
                let (disk, old) = (&self.disks[victim], &mut self.old_journal);
                damage::damage_column(disk, at, self.closed, old, &mut self.rng)
            }
            Faults::Rot | Faults::Latent if faulty => {
                damage::spawn(&self.world, scenario, &self.disks, self.rng.random());
            }
            _ => {}
        }
    }
}
