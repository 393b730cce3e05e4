//! The PostgreSQL trial: rounds of load, crash, recovery and proof.
//!
//! Odd rounds crash everything: the array, PostgreSQL and the whole attach chain, and drop the page cache, so
//! that what is checked afterwards was read from the volume. Even rounds kill the array only: PostgreSQL and
//! the chain live on, wait, and must not see a single error. With a power cut the array's drives also lose or
//! tear what was not flushed.

use crate::{
    array::{Array, Kind, Pool},
    attach::{Attached, drop_page_cache},
    load::{Load, Running},
    postgres::{Places, Postgres},
    process::{pause, wait_until},
};
use anyhow::{Context, Result};
use quoin_faultfs::{Command, CutMode, Mounted, Options};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

const DRIVE_BYTES: u64 = 4 << 30;
const VOLUME_BYTES: u64 = 4 << 30;
/// How long commits may take to resume after the array is ready again.
const RESUME_LIMIT: Duration = Duration::from_secs(120);

/// What to do to PostgreSQL's array.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Plan {
    /// Crash rounds
    #[arg(long, default_value_t = 4)]
    pub(crate) rounds: u32,
    /// Seconds of load before each crash, on average
    #[arg(long, default_value_t = 10)]
    pub(crate) seconds: u64,
    /// Clients
    #[arg(long, default_value_t = 8)]
    pub(crate) clients: i32,
    /// Drive files of the array
    #[arg(long, default_value_t = 2)]
    pub(crate) drives: u32,
    /// Slices of the array's pool
    #[arg(long, default_value_t = 1)]
    pub(crate) slices: u8,
    /// Examine pages, relations and file system after every this many rounds, and after the last
    #[arg(long, default_value_t = 3)]
    pub(crate) examine_every: u32,
    /// With each crash, cut the power of the drives: un-flushed writes are lost, torn, or either
    #[arg(long, value_enum)]
    pub(crate) power_cut: Option<CutMode>,
    /// Make the drives lie about flushes: the trial then has to find damage, and fails if it does not
    #[arg(long, requires = "power_cut")]
    pub(crate) ignore_flushes: bool,
    /// Decides what happens when; drawn and printed if not given
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Who serves the volume
    #[arg(long, value_enum, default_value = "quoin")]
    pub(crate) array: Kind,
    /// The quoin binary; the one beside this program if not given
    #[arg(long)]
    pub(crate) quoin: Option<PathBuf>,
}

/// A trial set up. Fields are in the order in which they have to go when it is dropped.
pub(crate) struct Trial {
    postgres: Postgres,
    host: Option<Attached>,
    array: Array,
    drives: Option<Mounted>,
    load: Load,
    runtime: Runtime,
    rng: ChaCha8Rng,
    plan: Plan,
    work: PathBuf,
    started: Instant,
}

impl Trial {
    /// Brings up the drives, an array on them, and a database on that.
    pub(crate) fn create(plan: Plan, quoin: &Path, work: &Path, seed: u64) -> Result<Self> {
        let started = Instant::now();
        let runtime = Runtime::new()?;
        let (drives, paths) = make_drives(&plan, work)?;
        let array = Array::create(plan.array, quoin, work, Pool::of(paths, plan.slices), VOLUME_BYTES)?;
        let host = Attached::attach(work, &array.target()?)?;
        host.format()?;
        host.mount()?;
        let mut postgres = Postgres::create(work, Places::alone(host.mountpoint()))?;
        postgres.start(&runtime)?;
        let load = Load::create(&runtime, &postgres.config(), plan.clients, seed)?;
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let work = work.to_owned();
        let trial =
            Self { postgres, host: Some(host), array, drives, load, runtime, rng, plan, work, started };
        trial.say("PostgreSQL runs on a volume of the array");
        Ok(trial)
    }

    /// Runs all rounds and an orderly end.
    pub(crate) fn run(&mut self) -> Result<()> {
        if self.plan.ignore_flushes {
            self.ignore_flushes()?;
        }
        for number in 1..=self.plan.rounds {
            self.round(number).with_context(|| format!("round {number}"))?;
        }
        self.postgres.stop()?;
        self.host.take().context("attached")?.detach()?;
        let said = self.array.stop_and_check()?;
        self.say(&format!("stopped in good order; {}", said.lines().last().unwrap_or_default()));
        Ok(())
    }

    fn round(&mut self, number: u32) -> Result<()> {
        let running = self.load.start(&self.runtime, &self.postgres.config());
        let seconds = self.plan.seconds as f64;
        let load_time = Duration::from_secs_f64(self.rng.random_range(seconds * 0.5..=seconds * 1.5));
        self.watch(&running, load_time)?;
        self.crash_array()?;
        self.say(&format!("round {number}: array killed after {} commits", commits(&running)));
        if number % 2 == 1 {
            self.crash_host(running)?;
        } else {
            self.outlive(running)?;
        }
        let verified = self.load.verify(&self.runtime, &self.postgres.config())?;
        self.say(&format!(
            "round {number}: all {} acknowledged commits are there ({} rows right; in doubt: {} done, {} not)",
            verified.commits, verified.rows, verified.doubts_committed, verified.doubts_absent
        ));
        if number.is_multiple_of(self.plan.examine_every) || number == self.plan.rounds {
            self.examine()?;
        }
        Ok(())
    }

    /// PostgreSQL and the attach chain die with the array, and all come back.
    fn crash_host(&mut self, running: Running) -> Result<()> {
        self.postgres.kill();
        let mut host = self.host.take().context("attached")?;
        host.kill();
        self.postgres.ended()?;
        host.gone()?;
        self.load.stop(&self.runtime, running)?;
        drop_page_cache()?;
        self.restart_array()?;
        let host = self.host.insert(Attached::attach(&self.work, &self.array.target()?)?);
        host.mount()?;
        let recovery = self.postgres.start(&self.runtime)?;
        self.say(&format!("PostgreSQL recovered from its log in {:.2} s", recovery.as_secs_f64()));
        Ok(())
    }

    /// PostgreSQL and the attach chain live on while the array is gone.
    fn outlive(&mut self, running: Running) -> Result<()> {
        let killed = Instant::now();
        let outage = self.rng.random_range(0.0..3.0);
        pause(Duration::from_secs_f64(outage))?;
        self.restart_array()?;
        let before = commits(&running);
        wait_until("commits to go on after the array came back", RESUME_LIMIT, || {
            Ok(commits(&running) > before)
        })?;
        self.say(&format!("commits go on {:.2} s after the kill", killed.elapsed().as_secs_f64()));
        self.watch(&running, Duration::from_secs(self.plan.seconds.div_ceil(3)))?;
        running.without_errors()?;
        self.load.stop(&self.runtime, running)
    }

    fn restart_array(&mut self) -> Result<()> {
        let took = self.array.start()?;
        let recovery = self.array.figures("recovery");
        self.say(&format!("array ready again in {:.2} s ({recovery})", took.as_secs_f64()));
        Ok(())
    }

    /// Everything that can be checked without knowing what was acknowledged.
    fn examine(&mut self) -> Result<()> {
        let started = Instant::now();
        self.postgres.check_relations()?;
        let host = self.host.as_ref().context("attached")?;
        let trimmed = host.trim()?;
        self.postgres.stop()?;
        let pages = self.postgres.check_pages()?;
        host.unmount()?;
        host.check_file_system()?;
        host.mount()?;
        self.postgres.start(&self.runtime)?;
        let took = started.elapsed().as_secs_f64();
        let engine = self.array.figures("engine");
        self.say(&format!("pg_amcheck, pg_checksums ({pages} pages) and e2fsck find nothing ({took:.1} s)"));
        self.say(&format!("{}; engine: {engine}", trimmed.trim()));
        Ok(())
    }

    /// Shows live figures for a while.
    fn watch(&mut self, running: &Running, duration: Duration) -> Result<()> {
        let until = Instant::now() + duration;
        let mut seen = commits(running);
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let slice = left.min(Duration::from_secs(1));
            pause(slice)?;
            self.array.alive()?;
            let now = commits(running);
            let rate = (now - seen) as f64 / slice.as_secs_f64().max(0.001);
            if slice > Duration::from_millis(500) {
                self.say(&format!("{rate:6.0} commits/s   {now:8} this round"));
            }
            running.without_errors()?;
            seen = now;
        }
        Ok(())
    }

    /// Kills the array; if the plan says so the power of its drives goes first, in the middle of their work.
    fn crash_array(&mut self) -> Result<()> {
        let Some((mode, drives)) = self.plan.power_cut.zip(self.drives.as_ref()) else {
            return self.array.kill();
        };
        // It is not to tell anybody that its drives are gone: with the power it goes too.
        self.array.halt()?;
        let cut = drives.shelf().power_cut(mode, self.rng.random())?;
        self.array.kill()?;
        drives.shelf().restore();
        self.say(&format!(
            "power cut: un-flushed writes lost {}, torn {}, kept {}",
            cut.lost, cut.torn, cut.kept
        ));
        Ok(())
    }

    fn ignore_flushes(&self) -> Result<()> {
        let shelf = self.drives.as_ref().context("drives that can lie")?.shelf();
        for drive in shelf.status().drives {
            shelf.apply(&Command::IgnoreFlushes { drive: drive.name })?;
        }
        self.say("from now on the drives lie about flushes");
        Ok(())
    }

    fn say(&self, what: &str) {
        println!("[{:7.1} s] {what}", self.started.elapsed().as_secs_f64());
    }
}

fn commits(running: &Running) -> u64 {
    running.figures.commits.load(Ordering::Relaxed)
}

/// Sparse drive files; under a file system that can cut their power if the plan asks for it.
fn make_drives(plan: &Plan, work: &Path) -> Result<(Option<Mounted>, Vec<PathBuf>)> {
    let backing = work.join("backing");
    std::fs::create_dir(&backing)?;
    let names: Vec<String> = (0..plan.drives).map(|number| format!("drive{number}")).collect();
    for name in &names {
        File::create(backing.join(name))?.set_len(DRIVE_BYTES)?;
    }
    if plan.power_cut.is_none() {
        return Ok((None, names.iter().map(|name| backing.join(name)).collect()));
    }
    let mountpoint = work.join("drives");
    std::fs::create_dir(&mountpoint)?;
    let mounted = Mounted::new(&backing, &mountpoint, Options::default())?;
    Ok((Some(mounted), names.iter().map(|name| mountpoint.join(name)).collect()))
}
