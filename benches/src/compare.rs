//! Runs the matrix: all targets of a row in turn on the same file system, the limits beside them, several rounds.
//!
//! Every target is started for its run and ended after it, so that none disturbs another.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use rustix::fs::{Advice, fadvise};
use serde::Serialize;

use crate::drive::{self, Drive};
use crate::echo::{self, Echo};
use crate::idle::{self, Idle};
use crate::load::{self, At, Spec};
use crate::matrix::{self, Data, Limit, MIX, Peer, Row};
use crate::quoin::{Array, Engine, SMALL_VOLUMES};
use crate::tgtd::{self, Tgtd};
use crate::{Output, bars, line, machine, markdown};
use quoin_initiator::Rng;

/// RAM that Quoin may take in rows whose reads are to come from the drive, and in all others.
const MEMORY_BYTES: [u64; 2] = [384 << 20, 2 << 30];
/// How long a limit is measured.
const LIMIT_SECONDS: f64 = 4.0;

/// What to compare, where and for how long.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Directory on the drive to measure; everything made there is removed again.
    #[arg(long, value_name = "DIR", default_value = "var/bench")]
    dir: PathBuf,
    /// Short runs, one round, small data: to see that it works, not to quote.
    #[arg(long)]
    quick: bool,
    /// Only rows whose names contain one of these words.
    #[arg(long, value_delimiter = ',', value_name = "WORD")]
    rows: Vec<String>,
    /// Length of each run in seconds; 6, or 3 with --quick. In more than one round, Quoin's runs of rows that write
    /// are as long as it takes until destage and checkpoints take part, and the journal has been gone through as often
    /// as the bar of the row wants.
    #[arg(long)]
    seconds: Option<f64>,
    /// Rounds, of which medians are told; 3, or 1 with --quick.
    #[arg(long)]
    rounds: Option<usize>,
    /// Data for the rows that go to the drive; larger than the array's caches. 4G, or 1G with --quick.
    #[arg(long, value_parser = crate::units::parse_bytes, value_name = "SIZE")]
    drive_set: Option<u64>,
    /// Data for the rows that are to come from cache.
    #[arg(long, value_parser = crate::units::parse_bytes, value_name = "SIZE", default_value = "128m")]
    cached_set: u64,
    /// The `quoin` program; the one beside this program by default.
    #[arg(long, value_name = "PATH")]
    quoin: Option<PathBuf>,
    /// A further argument for `quoin init`, repeatable.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    init_arg: Vec<String>,
    /// A further argument for `quoin serve`, repeatable.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    serve_arg: Vec<String>,
    /// Also measure tgtd's stores that are not of equal durability, and all of its stores in every round: by default
    /// the better one is found in the first.
    #[arg(long)]
    all_stores: bool,
    /// Measure only tgtd and the limits.
    #[arg(long)]
    without_quoin: bool,
    /// Lines of `row-name: why Quoin is behind tgtd here`.
    #[arg(long, value_name = "FILE")]
    notes: Option<PathBuf>,
    /// Also write the report to a file.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Also write every single run to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One target's run of one row.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sample {
    pub(crate) report: load::Report,
    pub(crate) engine: Option<Engine>,
    /// Why the run does not count.
    pub(crate) invalid: Option<String>,
}

/// One run of a limit.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(crate) enum LimitSample {
    Drive(Drive),
    Echo(Echo),
}

/// All runs of one row.
pub(crate) struct RowResult {
    pub(crate) row: Row,
    pub(crate) peers: Vec<(Peer, Vec<Sample>)>,
    pub(crate) limits: Vec<(Limit, Vec<LimitSample>)>,
}

/// Everything the report is made of.
pub(crate) struct Outcome {
    pub(crate) machine: Vec<(&'static str, String)>,
    pub(crate) settings: String,
    pub(crate) rows: Vec<RowResult>,
    pub(crate) idle: Option<Idle>,
    /// Commands by who ran them.
    pub(crate) commands: BTreeMap<String, Vec<String>>,
    pub(crate) notes: BTreeMap<String, String>,
}

struct Bench {
    seconds: f64,
    rounds: usize,
    all_stores: bool,
    drive_set: u64,
    cached_set: u64,
    dir: tempfile::TempDir,
    file: PathBuf,
    array: Option<Array>,
    commands: BTreeMap<String, Vec<String>>,
}

/// Measures, reports, and says whether every run counts.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let outcome = measure(options)?;
    print!("{}", markdown::render(&outcome));
    Ok(outcome.counts())
}

/// Measures, and tells nothing but the bars; says whether every run counts and every bar is met.
pub(crate) fn run_for_bars(options: &Options, output: Output) -> Result<bool> {
    let outcome = measure(options)?;
    let bars = bars::of(&outcome);
    match output {
        Output::Table => println!("{}", bars::show(&bars)),
        Output::Json => println!("{}", serde_json::to_string_pretty(&bars)?),
    }
    Ok(outcome.counts() && bars.iter().all(|bar| bar.met == Some(true)))
}

fn measure(options: &Options) -> Result<Outcome> {
    let rows = matrix::select(&options.rows).map_err(|why| anyhow!(why))?;
    let notes = options.notes.as_deref().map(read_notes).transpose()?.unwrap_or_default();
    let mut machine = machine::describe(&options.dir);
    machine.push(("tgtd", tgtd::version()?));
    machine.push(("fio", drive::version()?));
    let mut bench = Bench::prepare(options)?;
    if let Some(array) = &bench.array {
        machine.push(("Quoin", array.version()?));
    }
    let mut results: Vec<RowResult> = rows.iter().map(|row| bench.empty_result(*row)).collect();
    for round in 0..bench.rounds {
        for result in &mut results {
            bench.round(round, result)?;
        }
    }
    let idle = matrix::is_wanted(matrix::IDLE, &options.rows).then_some(bench.array.as_ref()).flatten();
    let idle = idle.map(idle::run).transpose().context("row idle")?;
    let settings = format!(
        "{} round(s) of {} s a run after 1 s of warm-up or, where it writes, 6, Quoin's of rows that write longer as their bars want, medians \
         told; {} for rows that go to the drive, {} for cached rows; one session where not said otherwise; random \
         contents. Of tgtd's stores of equal durability the better one of the first round is measured in all.{}",
        bench.rounds,
        bench.seconds,
        crate::units::show_bytes(bench.drive_set),
        crate::units::show_bytes(bench.cached_set),
        if options.quick { " A quick look, not to be quoted." } else { "" }
    );
    let outcome = Outcome { machine, settings, rows: results, idle, commands: bench.commands, notes };
    if let Some(path) = &options.markdown {
        std::fs::write(path, markdown::render(&outcome))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_vec_pretty(&outcome.raw())?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(outcome)
}

impl Outcome {
    /// Whether every run counts.
    fn counts(&self) -> bool {
        self.rows.iter().all(|row| row.peers.iter().flat_map(|(_, s)| s).all(|s| s.invalid.is_none()))
    }

    fn raw(&self) -> serde_json::Value {
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|result| {
                let peers: BTreeMap<_, _> = result.peers.iter().map(|(peer, s)| (peer.name(), s)).collect();
                let limits: BTreeMap<_, _> =
                    result.limits.iter().map(|(limit, s)| (limit.name(), s)).collect();
                serde_json::json!({ "row": result.row.id, "targets": peers, "limits": limits })
            })
            .collect();
        let machine: BTreeMap<_, _> = self.machine.iter().cloned().collect();
        serde_json::json!({
            "machine": machine, "settings": self.settings, "bars": bars::of(self), "rows": rows, "idle": self.idle,
        })
    }
}

impl Bench {
    fn prepare(options: &Options) -> Result<Bench> {
        let (seconds, rounds, drive_set) = if options.quick { (3.0, 1, 1 << 30) } else { (6.0, 3, 4 << 30) };
        let drive_set = options.drive_set.unwrap_or(drive_set);
        ensure!(
            options.cached_set <= drive_set,
            "--cached-set must not be larger than --drive-set, the size of the volume"
        );
        std::fs::create_dir_all(&options.dir)?;
        let dir = tempfile::Builder::new()
            .prefix("quoin-bench-")
            .tempdir_in(&options.dir)
            .with_context(|| format!("cannot make a directory in {}", options.dir.display()))?;
        let file = dir.path().join("tgtd.img");
        eprintln!("writing {} to {}", crate::units::show_bytes(drive_set), file.display());
        write_noise(&file, drive_set).with_context(|| format!("cannot write {}", file.display()))?;
        let mut bench = Bench {
            seconds: options.seconds.unwrap_or(seconds),
            rounds: options.rounds.unwrap_or(rounds).max(1),
            all_stores: options.all_stores,
            drive_set,
            cached_set: options.cached_set,
            dir,
            file,
            array: None,
            commands: BTreeMap::new(),
        };
        if !options.without_quoin {
            let beside = || Some(std::env::current_exe().ok()?.with_file_name("quoin"));
            let binary = options.quoin.clone().or_else(beside).context("name the program with --quoin")?;
            bench.make_array(&binary, options)?;
        }
        Ok(bench)
    }

    /// Makes the array, verifies that it keeps data, and fills its volume.
    fn make_array(&mut self, binary: &Path, options: &Options) -> Result<()> {
        let array =
            Array::create(binary, self.dir.path(), self.drive_set, &options.init_arg, &options.serve_arg)?;
        eprintln!("filling the array's volume");
        let serving = array.serve()?;
        let mut spec = self.spec(matrix::ROWS[0], serving.portal, &serving.target, array.initiator());
        (spec.fill, spec.warmup, spec.seconds, spec.working_set) = (true, 0.0, 0.1, None);
        load::run(&spec)?;
        for at in serving.small() {
            load::run(&Spec { at, ..spec.clone() })?;
        }
        let verify =
            Spec { fill: false, verify: true, seconds: 1.0, working_set: Some(self.cached_set), ..spec };
        let verified = load::run(&Spec { rw: load::Pattern::Randrw, ..verify })?.verified.unwrap_or_default();
        ensure!(
            verified.mismatches == 0,
            "the array returns wrong data, so its speed does not matter: {}",
            verified.examples.join("; ")
        );
        drop(serving);
        self.commands.insert("Quoin".to_owned(), array.commands.clone());
        self.array = Some(array);
        Ok(())
    }

    fn empty_result(&self, row: Row) -> RowResult {
        let peers = row.peers().filter(|peer| match peer {
            Peer::Quoin | Peer::Alone => self.array.is_some(),
            Peer::Tgtd(_) => self.all_stores || row.inequality(*peer).is_none(),
        });
        RowResult {
            row,
            peers: peers.map(|peer| (peer, Vec::new())).collect(),
            limits: row.limits().into_iter().map(|limit| (limit, Vec::new())).collect(),
        }
    }

    /// One run of everything in a row; each round begins with another target. After the first round only the better
    /// store of tgtd goes on.
    fn round(&mut self, round: usize, result: &mut RowResult) -> Result<()> {
        let row = result.row;
        let best = line::best_equal(result).map(|(_, name)| name);
        let goes_on = |peer: &Peer| {
            !matches!(peer, Peer::Tgtd(_))
                || self.all_stores
                || best.as_ref().is_none_or(|best| peer.name() == *best)
        };
        let goes_on: Vec<bool> = result.peers.iter().map(|(peer, _)| goes_on(peer)).collect();
        let many = result.peers.len();
        for index in 0..many {
            if !goes_on[(index + round) % many] {
                continue;
            }
            let (peer, samples) = &mut result.peers[(index + round) % many];
            let sample = self
                .measure(row, *peer)
                .with_context(|| format!("row {}, target {}", row.id, peer.name()))?;
            let total = &sample.report.total;
            eprintln!(
                "round {} {:<15} {:<23} {:>8.0} IOPS {:>8.1} MB/s p50 {:>8.1} µs {}",
                round + 1,
                row.id,
                peer.name(),
                total.iops,
                total.mb_per_second,
                total.latency_us.p50,
                sample.invalid.as_ref().map(|why| format!("INVALID: {why}")).unwrap_or_default()
            );
            samples.push(sample);
        }
        for (limit, samples) in &mut result.limits {
            samples.push(self.limit(*limit).with_context(|| format!("row {}, {}", row.id, limit.name()))?);
        }
        Ok(())
    }

    fn measure(&mut self, row: Row, peer: Peer) -> Result<Sample> {
        match peer {
            Peer::Quoin | Peer::Alone => {
                let array = self.array.as_ref().context("there is no array")?;
                let from_drive = !row.writes() && row.data == Data::Drive;
                let serving = array.serve_within(Some(MEMORY_BYTES[usize::from(!from_drive)]))?;
                let mut spec = self.spec(row, serving.portal, &serving.target, array.initiator());
                if row.several {
                    let mut units = serving.small();
                    spec.at = units.remove(0);
                    if peer == Peer::Quoin {
                        spec.sessions += units.len() as u16;
                        spec.more = units;
                    }
                    spec.working_set = Some(self.drive_set / u64::from(SMALL_VOLUMES));
                }
                if self.rounds > 1 {
                    spec.seconds = spec.seconds.max(row.least_seconds);
                }
                spec.target_pid = Some(serving.process.pid());
                let before = serving.engine()?;
                let report = load::run(&spec)?;
                let engine = serving.engine()?.since(&before);
                let invalid = if row.writes() { engine.objection(row.least_wraps) } else { None };
                Ok(Sample { report, engine: Some(engine), invalid })
            }
            Peer::Tgtd(store) => {
                self.settle()?;
                let tgtd = Tgtd::start(self.dir.path(), &self.file, store)?;
                let mut spec = self.spec(row, tgtd.portal, tgtd::TARGET, "iqn.2026-11.io.quoin:bench");
                spec.target_pid = Some(tgtd.process.pid());
                self.commands.entry(peer.name()).or_insert_with(|| {
                    let opened = format!("# its file was opened {}", tgtd.open_flags);
                    tgtd.commands.iter().cloned().chain([opened]).collect()
                });
                Ok(Sample { report: load::run(&spec)?, engine: None, invalid: None })
            }
        }
    }

    fn limit(&mut self, limit: Limit) -> Result<LimitSample> {
        match limit {
            Limit::Drive(access) => {
                self.settle()?;
                let seconds = self.seconds.min(LIMIT_SECONDS);
                let command = drive::command(access, &self.file, self.drive_set, seconds);
                let commands = self.commands.entry("bare file".to_owned()).or_default();
                let line = crate::process::line(&command);
                if !commands.contains(&line) {
                    commands.push(line);
                }
                Ok(LimitSample::Drive(drive::run(access, &self.file, self.drive_set, seconds)?))
            }
            Limit::Echo(exchange) => Ok(LimitSample::Echo(echo::run(exchange, self.seconds.min(3.0))?)),
        }
    }

    /// Leaves nothing of the file waiting to be written, nor in the page cache.
    fn settle(&self) -> Result<()> {
        let file = File::open(&self.file)?;
        file.sync_all()?;
        Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
    }

    fn spec(&self, row: Row, portal: std::net::SocketAddr, target: &str, initiator: &str) -> Spec {
        let cached = row.data == Data::Cached;
        Spec {
            at: At { portal, target: target.to_owned(), initiator: initiator.to_owned(), lun: 1 },
            rw: row.pattern,
            bs: row.io_bytes,
            depth: row.depth,
            mix: MIX,
            seconds: self.seconds,
            warmup: row.warmup_seconds(),
            sessions: 1,
            working_set: Some(if cached { self.cached_set } else { self.drive_set }),
            fill: false,
            preread: cached,
            verify: false,
            ledger: None,
            fua: false,
            seed: 1,
            more: Vec::new(),
            target_pid: None,
        }
    }
}

pub(crate) fn write_noise(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create(path)?;
    let mut chunk = vec![0; 1 << 20];
    let mut rng = Rng::new(7);
    let mut left = bytes;
    while left > 0 {
        rng.fill(&mut chunk);
        let take = left.min(chunk.len() as u64);
        file.write_all(&chunk[..take as usize])?;
        left -= take;
    }
    Ok(file.sync_all()?)
}

fn read_notes(path: &Path) -> Result<BTreeMap<String, String>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read the notes {}", path.display()))?;
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    Ok(pairs.map(|(id, why)| (id.trim().to_owned(), why.trim().to_owned())).collect())
}
