//! Compares: all targets of a row in turn, several rounds, the order turned in each; or, quickly, Quoin with the bare
//! drive alone.
//!
//! Every target is started for its run and ended after it, so that none disturbs another.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::bars::{self, Verdict};
use crate::bench::{Bench, Plan};
use crate::idle::{self, Idle};
use crate::matrix::{self, Row, Target};
use crate::quoin::{Array, DRIVES, binary};
use crate::result::RowResult;
use crate::{Output, drive, machine, markdown, nbdkit, tgtd};

const PLAN: Plan = Plan {
    file_bytes: 6 << 30,
    data_bytes: 2 << 30,
    cached_bytes: 128 << 20,
    seconds: 6.0,
    long_seconds: 120.0,
    age_seconds: 20.0,
    probe_seconds: 0.3,
    settles: true,
};
const ROUNDS: usize = 5;

const QUICK_PLAN: Plan = Plan {
    file_bytes: 1 << 30,
    data_bytes: 256 << 20,
    seconds: 1.0,
    probe_seconds: 0.1,
    settles: false,
    ..PLAN
};
const QUICK_ROUNDS: usize = 2;
/// How often a row of the quick look is measured before it has failed.
const QUICK_ATTEMPTS: usize = 2;

/// What to compare, where and for how long.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Directory on the drive to measure; everything made there is removed again.
    #[arg(long, value_name = "DIR", default_value = "var/bench")]
    dir: PathBuf,
    /// A minute to see that nothing became several times slower: a few short rows of Quoin beside the bare drive, without
    /// peers, each of which may fail once.
    #[arg(long)]
    quick: bool,
    /// Only rows whose names contain one of these words.
    #[arg(long, value_delimiter = ',', value_name = "WORD", conflicts_with = "quick")]
    rows: Vec<String>,
    /// Rounds, of which medians are told; 5, or 2 with --quick.
    #[arg(long)]
    rounds: Option<usize>,
    /// Length of each measurement in seconds; 6, or 1 with --quick.
    #[arg(long)]
    seconds: Option<f64>,
    /// Length of the long row; 120.
    #[arg(long)]
    long_seconds: Option<f64>,
    /// How long a volume is overwritten at random to age it; 20.
    #[arg(long)]
    age_seconds: Option<f64>,
    /// Bytes of files that each target has; 6G, or 1G with --quick.
    #[arg(long, value_parser = crate::units::parse_bytes, value_name = "SIZE")]
    file_size: Option<u64>,
    /// Data that rows work on; 2G, or 256M with --quick.
    #[arg(long, value_parser = crate::units::parse_bytes, value_name = "SIZE")]
    data: Option<u64>,
    /// Data of the rows that read from cache; 128M.
    #[arg(long, value_parser = crate::units::parse_bytes, value_name = "SIZE")]
    cached: Option<u64>,
    /// The `quoin` program; the one beside this program by default.
    #[arg(long, value_name = "PATH")]
    quoin: Option<PathBuf>,
    /// A further argument for `quoin init`, repeatable.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    init_arg: Vec<String>,
    /// A further argument for `quoin serve`, repeatable.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    serve_arg: Vec<String>,
    /// A page of Markdown for people or JSON, with every run and command, for programs.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Also write the JSON to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Everything the page is made of.
pub(crate) struct Outcome {
    pub(crate) machine: Vec<(&'static str, String)>,
    pub(crate) settings: String,
    pub(crate) rows: Vec<RowResult>,
    pub(crate) idle: Option<Idle>,
    pub(crate) bars: Vec<Verdict>,
    /// What else a reader has to know of the rows.
    pub(crate) remarks: Vec<String>,
    /// Commands by who ran them.
    pub(crate) commands: BTreeMap<String, Vec<String>>,
}

/// Measures, reports, and says whether every bar is met.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let outcome = measure(options)?;
    match options.output {
        Output::Table => print!("{}", markdown::render(&outcome)),
        Output::Json => println!("{}", serde_json::to_string_pretty(&outcome.raw())?),
    }
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_vec_pretty(&outcome.raw())?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(outcome.bars.iter().all(|bar| bar.met == Some(true)))
}

/// The rows to measure.
fn rows(options: &Options) -> Result<Vec<Row>> {
    if options.quick {
        Ok(matrix::ROWS.into_iter().filter(|row| matrix::QUICK.contains(&row.id)).collect())
    } else {
        matrix::select(&options.rows).map_err(|why| anyhow!(why))
    }
}

fn measure(options: &Options) -> Result<Outcome> {
    let rows = rows(options)?;
    let plan = options.plan();
    let rounds = options.rounds.unwrap_or(if options.quick { QUICK_ROUNDS } else { ROUNDS });
    ensure!(rounds > 0 && plan.seconds > 0.0, "--rounds and --seconds must be above 0");
    ensure!(
        plan.cached_bytes <= plan.data_bytes && plan.data_bytes < plan.file_bytes,
        "--cached must not be larger than --data, which must be smaller than --file-size"
    );
    let wants_idle = !options.quick && matrix::is_wanted(matrix::IDLE, &options.rows);
    let targets = |row: &Row| -> Vec<Target> {
        row.targets().filter(|target| !(options.quick && target.is_peer())).collect()
    };
    let all: Vec<Target> = rows.iter().flat_map(targets).chain(wants_idle.then_some(Target::Quoin)).collect();

    std::fs::create_dir_all(&options.dir)?;
    let mut machine = machine::describe(&options.dir);
    machine.push(("fio", drive::version()?));
    if all.iter().any(|target| matches!(target, Target::Tgtd(_))) {
        machine.push(("tgtd", tgtd::version()?));
    }
    if all.contains(&Target::Nbdkit) {
        machine.push(("nbdkit", nbdkit::version()?));
    }
    let program = binary(options.quoin.as_deref())?;
    let mut bench = Bench::prepare(plan, &options.dir, all, |dir, file_bytes| {
        let drive_bytes = file_bytes / DRIVES as u64;
        Array::init(&program, dir, drive_bytes, &options.init_arg, &options.serve_arg)
    })?;
    if let Some(array) = bench.array() {
        machine.push(("Quoin", array.version()?));
    }

    let empty = |row: &Row| RowResult::new(*row, targets(row));
    let mut results: Vec<RowResult> = rows.iter().map(empty).collect();
    let mut verdicts = Vec::new();
    if options.quick {
        for result in &mut results {
            verdicts.extend(quick(&mut bench, result, rounds)?);
        }
    } else {
        for number in 0..rounds {
            for result in &mut results {
                round(&mut bench, result, number)?;
            }
        }
    }
    // A quick look is not made for anyone to quote, and a machine that has other work to do gives many remarks.
    let remarks = results.iter().filter(|_| !options.quick).flat_map(markdown::remarks).collect();
    let idle = bench.array().filter(|_| wants_idle).map(idle::run).transpose().context("row idle")?;
    if !options.quick {
        verdicts = bars::of(&results, idle);
    }
    let settings = settings(&plan, rounds, options.quick);
    let commands = bench.into_commands();
    Ok(Outcome { machine, settings, rows: results, idle, bars: verdicts, remarks, commands })
}

/// One run of everything in a row; each round begins with another target.
fn round(bench: &mut Bench, result: &mut RowResult, round: usize) -> Result<()> {
    let (row, many) = (result.row, result.runs.len());
    for index in 0..many {
        let (target, _) = result.runs[(index + round) % many];
        if !result.is_worth_measuring(target, round) {
            continue;
        }
        let mut sample =
            bench.measure(&row, target).with_context(|| format!("row {}, {}", row.id, target.name()))?;
        sample.round = round;
        eprintln!(
            "round {} {:<13} {:<31} {:>8.0} IOPS {:>8.1} MB/s p99 {:>8.0} µs {}",
            round + 1,
            row.id,
            target.name(),
            sample.iops,
            sample.mb_per_second,
            sample.p99_us,
            sample.invalid.as_ref().map(|why| format!("does not count: {why}")).unwrap_or_default()
        );
        result.runs[(index + round) % many].1.push(sample);
    }
    Ok(())
}

/// A row of the quick look, measured again if it fails.
fn quick(bench: &mut Bench, result: &mut RowResult, rounds: usize) -> Result<Option<Verdict>> {
    for attempt in 1.. {
        for number in 0..rounds {
            round(bench, result, number)?;
        }
        let verdict = bars::of_quick(result);
        if attempt == QUICK_ATTEMPTS || verdict.as_ref().is_some_and(|verdict| verdict.met == Some(true)) {
            return Ok(verdict);
        }
        eprintln!("{}: measured once more, the first attempt failed", result.row.id);
        *result = RowResult::new(result.row, result.runs.iter().map(|(target, _)| *target));
    }
    Ok(None)
}

fn settings(plan: &Plan, rounds: usize, quick: bool) -> String {
    let show = crate::units::show_bytes;
    let mut text = format!(
        "{rounds} round(s) of {} s, each beginning with another target; medians, and in brackets the lowest and the highest \
         round. Ratios are taken within a round. Each target has files of {}, of which {} hold data ({} in rows that read \
         from cache). *Files*: what the bare drive did on the slowest and the fastest file of any target, relative to the \
         median of all. CPU is the target's, for a transfer where nothing else is said.",
        plan.seconds,
        show(plan.file_bytes),
        show(plan.data_bytes),
        show(plan.cached_bytes)
    );
    text += &if quick {
        " A quick look, not to be quoted.".to_owned()
    } else {
        format!(
            " The long row runs for {} s; volumes are aged for {} s.",
            plan.long_seconds, plan.age_seconds
        )
    };
    text
}

impl Options {
    fn plan(&self) -> Plan {
        let plan = if self.quick { QUICK_PLAN } else { PLAN };
        Plan {
            file_bytes: self.file_size.unwrap_or(plan.file_bytes),
            data_bytes: self.data.unwrap_or(plan.data_bytes),
            cached_bytes: self.cached.unwrap_or(plan.cached_bytes),
            seconds: self.seconds.unwrap_or(plan.seconds),
            long_seconds: self.long_seconds.unwrap_or(plan.long_seconds),
            age_seconds: self.age_seconds.unwrap_or(plan.age_seconds),
            ..plan
        }
    }
}

impl Outcome {
    fn raw(&self) -> Value {
        let rows = self.rows.iter().map(|result| {
            let targets: Vec<Value> = result
                .runs
                .iter()
                .map(|(target, samples)| json!({ "name": target.name(), "runs": samples }))
                .collect();
            json!({
                "row": result.row.id,
                "title": result.row.title,
                "files": result.files(),
                "objection": result.objection(),
                "targets": targets,
            })
        });
        let machine: BTreeMap<_, _> = self.machine.iter().cloned().collect();
        json!({
            "machine": machine,
            "settings": self.settings,
            "bars": self.bars,
            "rows": rows.collect::<Vec<_>>(),
            "idle": self.idle,
            "remarks": self.remarks,
            "commands": self.commands,
        })
    }
}
