//! PostgreSQL under load while the drives of its array fail one after the other, with a ledger of every acknowledged commit.
//!
//! The array's drives are emulated. Data and log of the database are on volumes of their own, with a layout each. Each round
//! a drive fails, is pulled or hangs; the database must not see an error. Commits are counted before, while what the drive
//! held is rebuilt, and after that; then another takes its place. At the end of a round the ledger is compared with the
//! database, and at the end of the trial everything is examined.

use crate::{
    array::{Array, Kind, Pool},
    attach::Attached,
    load::{Load, Running},
    postgres::{Places, Postgres},
    process::{pause, wait_until},
};
use anyhow::{Context, Result, ensure};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

/// How long a rebuild may take.
const REBUILD_LIMIT: Duration = Duration::from_secs(1800);
/// How often the rate of commits is noted.
const SAMPLE: Duration = Duration::from_millis(500);

/// What to do to the drives of PostgreSQL's array.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Plan {
    /// Drives that fail
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Seconds of load before each failure, after as many that do not count, and after each rebuild
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Clients
    #[arg(long, default_value_t = 8)]
    clients: i32,
    /// Drives of the array
    #[arg(long, default_value_t = 6)]
    drives: u32,
    /// MiB of each drive
    #[arg(long, default_value_t = 2048)]
    drive_mib: u64,
    /// How the array lays out the volume with the data
    #[arg(long, default_value = "raid5")]
    layout: String,
    /// How it lays out the volume with the log
    #[arg(long, default_value = "mirror")]
    log_layout: String,
    /// Speed of the drives, as for quoin init
    #[arg(long, default_value = "flash")]
    emulate: String,
    /// Let no drive fail: what the rates do by themselves
    #[arg(long)]
    control: bool,
    /// Slices of the array's pool
    #[arg(long, default_value_t = 1)]
    slices: u8,
    /// Seconds after which a drive that does not answer has failed
    #[arg(long, default_value_t = 2)]
    drive_fail_s: u32,
    /// Kill the array in the midst of every this many rebuilds; 0: never
    #[arg(long, default_value_t = 0)]
    kill_every: u32,
    /// Decides what happens when; drawn and printed if not given
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// The quoin binary; the one beside this program if not given
    #[arg(long)]
    pub(crate) quoin: Option<PathBuf>,
}

/// The volume with the data, and
const DATA: &str = "data";
/// that with the log, and its policy.
const LOG: &str = "log";

/// How a drive fails.
const FAULTS: [&str; 3] = ["fail", "detach", "hang"];

/// A trial set up. Fields are in the order in which they have to go when it is dropped.
pub(crate) struct Trial {
    postgres: Postgres,
    /// The volumes with the data and the log, attached.
    hosts: Vec<Attached>,
    array: Array,
    load: Load,
    runtime: Runtime,
    rng: ChaCha8Rng,
    plan: Plan,
    work: PathBuf,
    drives: Vec<PathBuf>,
    failures: Vec<Failure>,
    started: Instant,
}

/// What a classic hyper-converged array did when a drive failed under a database: VMware's reference architecture for SQL
/// Server on vSAN 6.2 (2016), transactions a second before and after, and how long it took to be steady again.
const REFERENCE: &str = "vSAN 6.2, SQL Server: 1813 -> 1643 transactions/s (91 %), steady after 160 s";

/// What a drive's failure did to the database.
#[derive(Debug)]
struct Failure {
    fault: &'static str,
    before: f64,
    during: f64,
    after: f64,
    rebuilt: Duration,
}

impl Failure {
    fn part(&self, rate: f64) -> f64 {
        100.0 * rate / self.before.max(1.0)
    }
}

/// Commits a second, sampled over a time.
#[derive(Debug, Default)]
struct Rates(Vec<f64>);

impl Rates {
    fn median(&self) -> f64 {
        median(&self.0)
    }
}

fn median(of: &[f64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

impl Trial {
    /// Brings up the drives, an array on them, and a database on its volumes.
    pub(crate) fn create(plan: Plan, quoin: &Path, work: &Path, seed: u64) -> Result<Self> {
        let started = Instant::now();
        let runtime = Runtime::new()?;
        let drives: Vec<_> = (0..plan.drives).map(|number| work.join(format!("drive{number}"))).collect();
        for drive in &drives {
            File::create(drive)?.set_len(plan.drive_mib << 20)?;
        }
        let pool = Pool {
            drives: drives.clone(),
            slices: plan.slices,
            layout: plan.layout.clone(),
            emulate: Some(plan.emulate.clone()),
            settings: format!("drive_suspect_s = 1\ndrive_fail_s = {}\n", plan.drive_fail_s),
        };
        let array = Array::without_volumes(Kind::Quoin, quoin, work, pool)?;
        // What a drive holds that is pulled or hangs is rebuilt at once, too.
        array.tell(&["rebuild", "set", "--repair-delay", "0s"])?;
        let data_bytes = (plan.drive_mib << 20) * u64::from(plan.drives) / 4;
        array.tell(&["policy", "create", LOG, "--layout", &plan.log_layout])?;
        let mut hosts = Vec::new();
        for (name, bytes, lun) in [(DATA, data_bytes, 1), (LOG, data_bytes / 4, 2)] {
            array.add_volume(name, bytes, lun)?;
            let host = Attached::attach(&work.join(name), &array.target_at(lun)?)?;
            host.format()?;
            host.mount()?;
            hosts.push(host);
        }
        array.tell(&["volume", "set", LOG, "--policy", LOG])?;
        let places = Places::data_and_log(hosts[0].mountpoint(), hosts[1].mountpoint());
        let mut postgres = Postgres::create(work, places)?;
        postgres.start(&runtime)?;
        let load = Load::create(&runtime, &postgres.config(), plan.clients, seed)?;
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let work = work.to_owned();
        let trial = Self {
            postgres,
            hosts,
            array,
            load,
            runtime,
            rng,
            plan,
            work,
            drives,
            failures: Vec::new(),
            started,
        };
        trial.say(&format!(
            "PostgreSQL runs on an array of {} drives, with its data on {} and its log on {}",
            trial.plan.drives, trial.plan.layout, trial.plan.log_layout
        ));
        Ok(trial)
    }

    /// Runs all rounds and an orderly end.
    pub(crate) fn run(&mut self) -> Result<()> {
        for number in 1..=self.plan.rounds {
            self.round(number).with_context(|| format!("round {number}"))?;
        }
        self.compare();
        self.scrub()?;
        self.postgres.check_relations()?;
        self.postgres.stop()?;
        let pages = self.postgres.check_pages()?;
        for host in self.hosts.drain(..) {
            host.unmount()?;
            host.check_file_system()?;
            host.mount()?;
            host.detach()?;
        }
        self.say(&format!("pg_amcheck, pg_checksums ({pages} pages) and e2fsck find nothing"));
        let said = self.array.stop_and_check()?;
        self.say(&format!("stopped in good order; {}", said.lines().last().unwrap_or_default()));
        Ok(())
    }

    fn round(&mut self, number: u32) -> Result<()> {
        let running = self.load.start(&self.runtime, &self.postgres.config());
        let load_time = Duration::from_secs(self.plan.seconds);
        // The first moments are not counted: the clients' caches are cold, and the rate of commits falls while pages get dirty.
        self.sample_for(&running, load_time)?;
        let before = self.sample_for(&running, load_time)?;

        if self.plan.control {
            return self.round_without_failure(number, running, before.median());
        }
        let (drive, fault) = (self.rng.random_range(0..self.drives.len()), FAULTS[number as usize % 3]);
        let name = self.drives[drive].display().to_string();
        let failed = Instant::now();
        self.array.tell(&["drive", "emulate", fault, &name])?;
        self.wait_until_lost(&running, &name)?;
        let noticed = failed.elapsed();
        let is_killed = self.plan.kill_every > 0 && number.is_multiple_of(self.plan.kill_every);
        if is_killed {
            self.array.kill()?;
            let took = self.array.start()?;
            self.say(&format!(
                "array killed in the midst of the rebuild, ready again in {:.2} s",
                took.as_secs_f64()
            ));
        }
        let during = self.sample_until_rebuilt(&running)?;
        let rebuilt = failed.elapsed();
        let after = self.sample_for(&running, load_time)?;
        running.without_errors()?;
        self.load.stop(&self.runtime, running)?;
        let verified = self.load.verify(&self.runtime, &self.postgres.config())?;
        self.say(&format!(
            "round {number}: {name}: {fault}; the pool went on without it after {:.2} s and was protected as before after {:.1} s",
            noticed.as_secs_f64(),
            rebuilt.as_secs_f64()
        ));
        let (before, during, after) = (before.median(), during.median(), after.median());
        let failure = Failure { fault, before, during, after, rebuilt };
        self.say(&format!(
            "round {number}: median of commits/s: before {before:.0}, during the rebuild {during:.0} ({:.0} %), after it \
             {after:.0} ({:.0} %)",
            failure.part(during),
            failure.part(after)
        ));
        self.failures.push(failure);
        self.say(&format!(
            "round {number}: no error, all {} acknowledged commits are there ({} rows right)",
            verified.commits, verified.rows
        ));
        self.replace(drive, self.plan.drives + number)
    }

    /// Goes on as if a drive had failed and was rebuilt in as many seconds as are measured before and after.
    fn round_without_failure(&mut self, number: u32, running: Running, before: f64) -> Result<()> {
        let load_time = Duration::from_secs(self.plan.seconds);
        let [during, after] = [self.sample_for(&running, load_time)?, self.sample_for(&running, load_time)?];
        running.without_errors()?;
        self.load.stop(&self.runtime, running)?;
        let (during, after) = (during.median(), after.median());
        self.say(&format!("round {number}, no failure: commits/s {before:.0}, {during:.0}, {after:.0}"));
        self.failures.push(Failure { fault: "none", before, during, after, rebuilt: load_time });
        Ok(())
    }

    /// Says what the failures did, beside the reference.
    fn compare(&self) {
        for failure in &self.failures {
            let Failure { fault, before, during, after, rebuilt } = failure;
            self.say(&format!(
                "{fault}: {before:.0} -> {during:.0} commits/s ({:.0} %), {after:.0} ({:.0} %) after the rebuild, which took \
                 {:.1} s",
                failure.part(*during),
                failure.part(*after),
                rebuilt.as_secs_f64()
            ));
        }
        let median_of = |part: fn(&Failure) -> f64| {
            median(&self.failures.iter().map(|failure| failure.part(part(failure))).collect::<Vec<_>>())
        };
        self.say(&format!(
            "median of {} failures: {:.0} % of the commits during the rebuild, {:.0} % after it",
            self.failures.len(),
            median_of(|failure| failure.during),
            median_of(|failure| failure.after)
        ));
        self.say(&format!("for comparison: {REFERENCE}"));
    }

    /// Another drive, with this number, takes the place of one that failed.
    fn replace(&mut self, drive: usize, number: u32) -> Result<()> {
        let path = self.work.join(format!("drive{number}"));
        File::create(&path)?.set_len(self.plan.drive_mib << 20)?;
        let name = path.display().to_string();
        // NOTE: the new one is not emulated: it does not fail on command.
        let failed = self.drives.remove(drive).display().to_string();
        self.array.tell(&["drive", "replace", &failed, &name])?;
        ensure!(!self.drives.is_empty(), "all drives failed: fewer rounds");
        Ok(())
    }

    fn wait_until_lost(&mut self, running: &Running, name: &str) -> Result<()> {
        let limit = Duration::from_secs(30 + u64::from(self.plan.drive_fail_s));
        wait_until(&format!("the pool to go on without {name}"), limit, || {
            running.without_errors()?;
            let listed: Vec<Value> =
                serde_json::from_str(&self.array.tell(&["drive", "list", "-o", "json"])?)?;
            let drive = listed.iter().find(|drive| drive["path"] == name).context("the drive is listed")?;
            Ok(drive["state"] != "active" && drive["state"] != "suspect")
        })
    }

    /// Samples the rate of commits until nothing lacks a column any more.
    fn sample_until_rebuilt(&mut self, running: &Running) -> Result<Rates> {
        let (mut rates, since) = (Rates::default(), Instant::now());
        loop {
            rates.0.extend(self.sample_for(running, SAMPLE)?.0);
            let protection = &self.array.status()?["protection"];
            let degraded = protection["degraded_bytes"].as_u64().context("protection in the status")?;
            if degraded == 0 {
                return Ok(rates);
            }
            ensure!(since.elapsed() < REBUILD_LIMIT, "the rebuild does not end: {protection}");
        }
    }

    /// Samples the rate of commits.
    fn sample_for(&mut self, running: &Running, duration: Duration) -> Result<Rates> {
        let (mut rates, until) = (Rates::default(), Instant::now() + duration);
        let commits = || running.figures.commits.load(Ordering::Relaxed);
        while Instant::now() < until {
            let (seen, since) = (commits(), Instant::now());
            pause(SAMPLE)?;
            self.array.alive()?;
            running.without_errors()?;
            rates.0.push((commits() - seen) as f64 / since.elapsed().as_secs_f64());
        }
        Ok(rates)
    }

    /// Scrubs all; nothing may be damaged.
    fn scrub(&self) -> Result<()> {
        self.array.tell(&["scrub", "set", "--rate", "0"])?;
        self.array.tell(&["scrub", "start"])?;
        let status = || -> Result<Value> {
            Ok(serde_json::from_str(&self.array.tell(&["scrub", "status", "-o", "json"])?)?)
        };
        wait_until("the end of the scrub", REBUILD_LIMIT, || Ok(status()?["running"].is_null()))?;
        let status = status()?;
        let is_sound = status["damaged"].as_array().is_some_and(Vec::is_empty);
        ensure!(status["last"]["outcome"] == "completed" && is_sound, "the scrub found damage: {status}");
        Ok(())
    }

    fn say(&self, what: &str) {
        println!("[{:7.1} s] {what}", self.started.elapsed().as_secs_f64());
    }
}
