//! Snapshots of a consistency group with a PostgreSQL on it: data directory, log and a tablespace on a volume each.
//!
//! Every round takes a snapshot of the group while clients commit, attaches it beside the original, starts a second
//! PostgreSQL on it and lets it recover. It must hold every commit that was acknowledged before the snapshot was
//! begun, none that was sent after it was done, and of the others the first ones of each client; all of its pages and
//! relations must be whole. Then it is ravaged, and the source must not notice. Some rounds kill the array in the middle
//! of taking the snapshot, which then is there of all volumes or of none; some refresh it; some take the database back to
//! it. In the end all is deleted, and the space has to be back.

mod host;

use crate::{
    array::{Array, Kind, Pool},
    load::{Load, Running, Windows, verify_moment},
    postgres::Postgres,
    process::{pause, run, wait_until},
    space,
};
use anyhow::{Context, Result, ensure};
use host::{Host, PARTS};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

const GROUP: &str = "pg";
const DRIVES: u32 = 2;
const DRIVE_BYTES: u64 = 6 << 30;
const VOLUME_BYTES: u64 = 2 << 30;
const SOURCE_LUN: u32 = 1;
const COPY_LUN: u32 = 11;
/// How long commits may take to resume after the array is ready again.
const RESUME_LIMIT: Duration = Duration::from_secs(120);
/// Sets that are kept from round to round: what is deleted is drawn among them.
const SETS_KEPT: usize = 2;

/// What to do with the database's snapshots.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Plan {
    /// Rounds
    #[arg(long, default_value_t = 6)]
    pub(crate) rounds: u32,
    /// Seconds of load before each snapshot, on average
    #[arg(long, default_value_t = 6)]
    pub(crate) seconds: u64,
    /// Clients
    #[arg(long, default_value_t = 6)]
    pub(crate) clients: i32,
    /// Kill the array while a snapshot is taken, every this many rounds, from the second on
    #[arg(long, default_value_t = 3)]
    pub(crate) kill_every: u32,
    /// Take the database back to a snapshot every this many rounds
    #[arg(long, default_value_t = 2)]
    pub(crate) restore_every: u32,
    /// Refresh the snapshot every this many rounds, and examine it again
    #[arg(long, default_value_t = 3)]
    pub(crate) refresh_every: u32,
    /// Slices of the array's pool
    #[arg(long, default_value_t = 1)]
    pub(crate) slices: u8,
    /// Decides what happens when; drawn and printed if not given
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// The quoin binary; the one beside this program if not given
    #[arg(long)]
    pub(crate) quoin: Option<PathBuf>,
}

/// A trial set up. Fields are in the order in which they have to go when it is dropped.
pub(crate) struct Trial {
    postgres: Postgres,
    host: Host,
    array: Array,
    load: Load,
    runtime: Runtime,
    rng: ChaCha8Rng,
    plan: Plan,
    work: PathBuf,
    sets: Vec<String>,
    started: Instant,
}

impl Trial {
    /// Brings up an array, its group of volumes, and a database on them.
    pub(crate) fn create(plan: Plan, quoin: &Path, work: &Path, seed: u64) -> Result<Self> {
        let started = Instant::now();
        let runtime = Runtime::new()?;
        let array =
            Array::without_volumes(Kind::Quoin, quoin, work, Pool::of(make_drives(work)?, plan.slices))?;
        for (name, lun) in PARTS.iter().zip(SOURCE_LUN..) {
            array.add_volume(name, VOLUME_BYTES, lun)?;
        }
        let members = PARTS.map(|name| ["--volume", name]).concat();
        array.tell(&[&["group", "create", GROUP][..], &members].concat())?;
        let host = Host::attach(&work.join("source"), &array, SOURCE_LUN)?;
        host.format()?;
        host.mount()?;
        let mut postgres = Postgres::create(work, host.places())?;
        postgres.start(&runtime)?;
        let load = Load::create(&runtime, &postgres.config(), plan.clients, seed)?;
        postgres.spread(&runtime)?;
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let (work, sets) = (work.to_owned(), Vec::new());
        let trial = Self { postgres, host, array, load, runtime, rng, plan, work, sets, started };
        trial.say("PostgreSQL runs on a group of three volumes");
        Ok(trial)
    }

    /// Runs all rounds, deletes all, and ends in good order.
    pub(crate) fn run(mut self) -> Result<()> {
        for number in 1..=self.plan.rounds {
            self.round(number).with_context(|| format!("round {number}"))?;
        }
        self.postgres.stop()?;
        self.host.unmount()?;
        self.host.check_file_systems()?;
        self.host.mount()?;
        self.postgres.start(&self.runtime)?;
        let verified = self.load.verify(&self.runtime, &self.postgres.config())?;
        self.say(&format!("the source, read from its volumes again, has all {} rows", verified.rows));
        self.postgres.check_relations()?;
        self.postgres.stop()?;
        self.postgres.check_pages()?;
        let Self { host, mut array, .. } = {
            self.delete_all_sets()?;
            self
        };
        host.detach()?;
        let back = space::back(&array)?;
        println!("{back}");
        let said = array.stop_and_check()?;
        println!("stopped in good order; {}", said.lines().last().unwrap_or_default());
        Ok(())
    }

    fn round(&mut self, number: u32) -> Result<()> {
        let running = self.load.start(&self.runtime, &self.postgres.config());
        self.watch(&running, self.plan.seconds as f64)?;
        let set = format!("s{number}");
        let kill = number % self.plan.kill_every == 2 % self.plan.kill_every;
        let windows = if kill { self.kill_while_taking(&set, &running)? } else { self.take(&set, &running)? };
        self.host.trim()?;
        self.examine_copy(&set, &windows).with_context(|| format!("the second database, on set {set}"))?;
        if number.is_multiple_of(self.plan.refresh_every) {
            running.open_windows();
            self.array.tell(&["group", "refresh", GROUP, &set])?;
            let windows = running.close_windows();
            self.say(&format!("set {set} refreshed"));
            self.examine_copy(&set, &windows).with_context(|| format!("the refreshed set {set}"))?;
        }
        self.watch(&running, 0.5)?;
        self.load.stop(&self.runtime, running)?;
        let verified = self.load.verify(&self.runtime, &self.postgres.config())?;
        self.say(&format!("round {number}: the source has all {} acknowledged commits", verified.commits));
        if number.is_multiple_of(self.plan.restore_every) {
            self.restore(number)?;
        }
        while self.sets.len() > SETS_KEPT {
            self.delete_some_set()?;
        }
        Ok(())
    }

    /// Takes a snapshot of the group. What each client's rows in it may be is returned.
    fn take(&mut self, set: &str, running: &Running) -> Result<Windows> {
        running.open_windows();
        let began = Instant::now();
        self.array.tell(&["group", "snapshot", GROUP, set])?;
        let took = began.elapsed();
        let windows = running.close_windows();
        self.sets.push(set.to_owned());
        ensure!(self.members(set)? == PARTS.len(), "set {set} does not have a snapshot of each volume");
        self.say(&format!("set {set} taken, {:.0} ms with the command around it", took.as_secs_f64() * 1e3));
        Ok(windows)
    }

    /// Kills the array some time after the command was given: the set is there of all volumes, or of none.
    fn kill_while_taking(&mut self, set: &str, running: &Running) -> Result<Windows> {
        let delay = Duration::from_secs_f64(self.rng.random_range(0.0..0.06));
        let command = self.array.command(&["group", "snapshot", GROUP, set]);
        running.open_windows();
        let told = std::thread::spawn(move || run(&command));
        pause(delay)?;
        self.array.kill()?;
        let told = told.join().expect("running a command does not panic");
        let took = self.array.start()?;
        let before = commits(running);
        wait_until("commits to go on after the array came back", RESUME_LIMIT, || {
            Ok(commits(running) > before)
        })?;
        running.without_errors()?;
        let windows = running.close_windows();
        let members = self.members(set)?;
        self.say(&format!(
            "array killed {:.0} ms after the command was given, ready again in {:.2} s: set {set} {}",
            delay.as_secs_f64() * 1e3,
            took.as_secs_f64(),
            if members == 0 { "was not taken" } else { "is there" }
        ));
        ensure!(
            members == 0 || members == PARTS.len(),
            "set {set} has {members} of {} snapshots",
            PARTS.len()
        );
        if members == 0 {
            ensure!(told.is_err(), "the command said that set {set} was taken, and it is not there");
            return self.take(set, running);
        }
        self.sets.push(set.to_owned());
        Ok(windows)
    }

    /// Starts a second PostgreSQL on the set beside the first one, compares, and leaves nothing there as it was.
    fn examine_copy(&mut self, set: &str, windows: &Windows) -> Result<()> {
        for (part, lun) in PARTS.iter().zip(COPY_LUN..) {
            self.array.map(&snapshot(part, set), lun)?;
        }
        let work = self.work.join("copy");
        let host = Host::attach(&work, &self.array, COPY_LUN)?;
        host.mount()?;
        let mut copy = Postgres::of_copy(&work, host.places())?;
        let recovery = copy.start(&self.runtime)?;
        copy.is_apart()?;
        let found = verify_moment(&self.runtime, &copy.config(), windows)?;
        copy.check_relations()?;
        copy.ravage(&self.runtime)?;
        copy.stop()?;
        let pages = copy.check_pages()?;
        host.unmount()?;
        host.check_file_systems()?;
        host.mount()?;
        host.detach()?;
        for part in PARTS {
            self.array.unmap(&snapshot(part, set))?;
        }
        self.say(&format!(
            "set {set}: recovered in {:.2} s beside the source; {} rows right, {} of {} commits in flight; pg_amcheck, \
             pg_checksums ({pages} pages) and e2fsck find nothing; ravaged",
            recovery.as_secs_f64(),
            found.rows,
            found.later,
            found.sent
        ));
        Ok(())
    }

    /// Takes the database back to a set that clients have gone on from, and looks at what was kept of the state between.
    fn restore(&mut self, number: u32) -> Result<()> {
        let (set, kept) = (format!("r{number}"), format!("k{number}"));
        let running = self.load.start(&self.runtime, &self.postgres.config());
        self.watch(&running, 1.0)?;
        let windows = self.take(&set, &running)?;
        self.watch(&running, 2.0)?;
        self.load.stop(&self.runtime, running)?;
        let present = self.load.present();
        self.postgres.kill();
        self.postgres.ended()?;
        self.host.unmount()?;
        self.array.tell(&["group", "restore", GROUP, &set, "--keep", &kept, "--force"])?;
        self.sets.push(kept.clone());
        self.host.forget()?;
        self.host.mount()?;
        self.postgres.start(&self.runtime)?;
        let found = self.load.taken_back(&self.runtime, &self.postgres.config(), &windows)?;
        self.say(&format!(
            "restored set {set}: {} rows as at its moment, {} of {} commits in flight",
            found.rows, found.later, found.sent
        ));
        self.examine_copy(&kept, &present).with_context(|| format!("what was kept as {kept}"))
    }

    /// Snapshots the set has.
    fn members(&self, set: &str) -> Result<usize> {
        let listed = self.array.tell(&["snapshot", "list", "--group", GROUP, "-o", "json"])?;
        let listed: serde_json::Value = serde_json::from_str(&listed)?;
        let names: Vec<&str> =
            listed.as_array().into_iter().flatten().filter_map(|s| s["name"].as_str()).collect();
        Ok(PARTS.iter().filter(|part| names.contains(&snapshot(part, set).as_str())).count())
    }

    fn delete_some_set(&mut self) -> Result<()> {
        let set = self.sets.swap_remove(self.rng.random_range(0..self.sets.len()));
        self.array.tell(&["group", "delete-snapshot", GROUP, &set, "--now"])?;
        self.say(&format!("set {set} deleted"));
        Ok(())
    }

    fn delete_all_sets(&mut self) -> Result<()> {
        while !self.sets.is_empty() {
            self.delete_some_set()?;
        }
        Ok(())
    }

    /// Lets the load go on for about so long.
    fn watch(&mut self, running: &Running, seconds: f64) -> Result<()> {
        let (before, seconds) = (commits(running), self.rng.random_range(seconds * 0.5..=seconds * 1.5));
        pause(Duration::from_secs_f64(seconds))?;
        self.array.alive()?;
        running.without_errors()?;
        self.say(&format!("{:6.0} commits/s", (commits(running) - before) as f64 / seconds));
        Ok(())
    }

    fn say(&self, what: &str) {
        println!("[{:7.1} s] {what}", self.started.elapsed().as_secs_f64());
    }
}

/// The name of a set's snapshot of a volume.
fn snapshot(volume: &str, set: &str) -> String {
    format!("{volume}.{set}")
}

fn commits(running: &Running) -> u64 {
    running.figures.commits.load(Ordering::Relaxed)
}

/// Sparse drive files.
fn make_drives(work: &Path) -> Result<Vec<PathBuf>> {
    let paths = (0..DRIVES).map(|number| work.join(format!("drive{number}")));
    paths.map(|path| File::create(&path)?.set_len(DRIVE_BYTES).map(|()| path).map_err(Into::into)).collect()
}
