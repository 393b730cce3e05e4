//! Recovery: the same load is killed in the middle of it, over little data and over much, and the array is started
//! again. What the journal holds is to decide how long that takes, not what lies behind it.

use std::fmt::Write;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use comfy_table::{Table, presets};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde_json::Value;

use crate::Output;
use crate::pressure::fill;
use crate::quoin::{Array, Serving, binary, number};
use crate::stats::median;
use quoin_initiator::{self as initiator, Connection, Io, Next, Rng, Shape, Source};

const IO_BYTES: u32 = 8192;
const DEPTH: usize = 32;
/// More than this times the time over little data is no longer the same time.
const SAME: f64 = 1.5;

/// What to kill, and how often.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Directory on the drive to measure; everything made there is removed again.
    #[arg(long, value_name = "DIR", default_value = "var/bench")]
    dir: PathBuf,
    /// Data behind the journal in the small case.
    #[arg(long, value_parser = crate::units::parse_bytes, value_name = "SIZE", default_value = "256m")]
    data: u64,
    /// How many times that in the large case.
    #[arg(long, value_name = "N", default_value_t = 20)]
    times: u64,
    /// What is written before the array is killed: more is destaged before that happens.
    #[arg(long, value_parser = crate::units::parse_bytes, value_name = "SIZE", default_value = "32m")]
    journal: u64,
    /// Kills in each case, of which medians are told.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The `quoin` program; the one beside this program by default.
    #[arg(long, value_name = "PATH")]
    quoin: Option<PathBuf>,
    /// Table for people or JSON for programs.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// One kill and what came after it.
#[derive(Debug, Clone, Copy, Serialize)]
struct Round {
    records: u64,
    bytes: u64,
    /// As the array tells it.
    recovery_ms: f64,
    takeover_ms: f64,
    checkpoint_ms: f64,
    journal_ms: f64,
    replay_ms: f64,
    /// From the start of the program until it was ready.
    ready_ms: f64,
}

/// All kills over one amount of data.
#[derive(Debug, Clone, Serialize)]
struct Case {
    data_bytes: u64,
    rounds: Vec<Round>,
}

impl Case {
    fn median(&self, of: impl Fn(&Round) -> f64) -> f64 {
        median(self.rounds.iter().map(of))
    }
}

#[derive(Debug, Serialize)]
struct Report {
    small: Case,
    large: Case,
    /// Recovery time over much data to that over little.
    ratio: f64,
}

/// Writes at random until somebody else stops the target.
struct Load {
    blocks: u64,
    left_bytes: u64,
    rng: Rng,
}

impl Source for Load {
    fn wants_data(&self) -> bool {
        false
    }

    fn next(&mut self, _: Instant) -> Next {
        if self.left_bytes == 0 {
            return Next::Done;
        }
        self.left_bytes -= u64::from(IO_BYTES).min(self.left_bytes);
        Next::Start(Io {
            write: true,
            offset: self.rng.below(self.blocks) * u64::from(IO_BYTES),
            len: IO_BYTES,
        })
    }

    fn fill(&mut self, _: Io, data: &mut [u8]) {
        self.rng.fill(&mut data[..64]);
    }

    fn completed(&mut self, _: Io, _: &[u8], _: Instant, _: Instant) -> Result<()> {
        Ok(())
    }
}

/// Measures, reports, and says whether recovery took the same time over much data.
pub(crate) fn run(options: &Options) -> Result<bool> {
    ensure!(options.rounds > 0 && options.times > 1, "--rounds must be above 0 and --times above 1");
    let small = case(options, options.data).context("over little data")?;
    let large = case(options, options.data * options.times).context("over much data")?;
    let time = |case: &Case| case.median(|round| round.recovery_ms);
    let ratio = time(&large) / time(&small).max(1e-3);
    let report = Report { small, large, ratio };
    match options.output {
        Output::Table => print!("{}", table(&report)),
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    Ok(report.ratio <= SAME)
}

fn case(options: &Options, data_bytes: u64) -> Result<Case> {
    std::fs::create_dir_all(&options.dir)?;
    let dir = tempfile::Builder::new().prefix("quoin-recovery-").tempdir_in(&options.dir)?;
    let binary = binary(options.quoin.as_deref())?;
    // The drives are the same in both cases, and so is the journal.
    let drive_bytes = (options.data * options.times / 2).next_multiple_of(1 << 20).max(1 << 30);
    let array = Array::init(&binary, dir.path(), drive_bytes, &[], &[])?;
    let serving = array.serve()?;
    serving.map_volume(data_bytes)?;
    let mut connection = Connection::login(&serving.at().endpoint(), 0)?;
    let capacity = connection.capacity()?;
    fill(&mut connection, capacity, 1)?;
    connection.logout()?;
    drop(serving);
    let mut rounds = Vec::new();
    for round in 0..options.rounds {
        // A clean stop leaves nothing to replay: what is found afterwards comes from the load.
        let serving = array.serve()?;
        kill_under_load(options, &serving, round as u64)?;
        drop(serving);
        let started = Instant::now();
        let serving = array.serve()?;
        let ready_ms = started.elapsed().as_secs_f64() * 1e3;
        rounds.push(outcome(&serving.status()?, ready_ms)?);
    }
    Ok(Case { data_bytes, rounds })
}

/// Writes so much, and kills the array with more on the way.
fn kill_under_load(options: &Options, serving: &Serving<'_>, round: u64) -> Result<()> {
    let mut connection = Connection::login(&serving.at().endpoint(), 0)?;
    let capacity = connection.capacity()?;
    let blocks = capacity.bytes() / u64::from(IO_BYTES);
    let shape = Shape {
        depth: DEPTH,
        largest_bytes: IO_BYTES as usize,
        block_bytes: capacity.block_bytes,
        fua: false,
    };
    let mut load = Load { blocks, left_bytes: options.journal, rng: Rng::new(round) };
    initiator::run(&mut connection, &mut load, shape).context("before the kill")?;
    let pid = Pid::from_raw(serving.process.pid() as i32).context("the array has no process id")?;
    thread::scope(|scope| {
        let under_load = scope.spawn(|| {
            let mut load = Load { blocks, left_bytes: u64::MAX, rng: Rng::new(round + 1000) };
            initiator::run(&mut connection, &mut load, shape)
        });
        thread::sleep(Duration::from_millis(20));
        kill_process(pid, Signal::KILL)?;
        ensure!(
            under_load.join().expect("the load panicked").is_err(),
            "the load went on though the array was killed"
        );
        Ok(())
    })
}

fn outcome(status: &Value, ready_ms: f64) -> Result<Round> {
    let ms = |name: &str| {
        status["recovery"][name]
            .as_f64()
            .with_context(|| format!("`quoin status -o json` has no number recovery.{name}"))
    };
    Ok(Round {
        records: number(status, "/recovery/replayed_records")?,
        bytes: number(status, "/recovery/replayed_bytes")?,
        recovery_ms: ms("duration_ms")?,
        takeover_ms: ms("takeover_ms")?,
        checkpoint_ms: ms("checkpoint_ms")?,
        journal_ms: ms("journal_ms")?,
        replay_ms: ms("replay_ms")?,
        ready_ms,
    })
}

fn table(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header([
        "data",
        "records",
        "replayed",
        "recovery ms",
        "takeover",
        "checkpoint",
        "journal",
        "replay",
        "until ready ms",
    ]);
    for case in [&report.small, &report.large] {
        for round in &case.rounds {
            let mut row = vec![
                crate::units::show_bytes(case.data_bytes),
                round.records.to_string(),
                crate::units::show_bytes(round.bytes),
            ];
            row.extend(
                [
                    round.recovery_ms,
                    round.takeover_ms,
                    round.checkpoint_ms,
                    round.journal_ms,
                    round.replay_ms,
                    round.ready_ms,
                ]
                .map(|ms| format!("{ms:.1}")),
            );
            table.add_row(row);
        }
    }
    let mut text = format!("{table}\n");
    let _ = writeln!(
        text,
        "Recovery over {} × the data takes {:.2} × the time (medians).",
        report.large.data_bytes / report.small.data_bytes,
        report.ratio
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_recovery_is_read_from_the_status_and_what_it_lacks_is_named() {
        let mut status = json!({"recovery": {"replayed_records": 7, "replayed_bytes": 57344, "duration_ms": 9.5,
            "takeover_ms": 4.0, "checkpoint_ms": 1.0, "journal_ms": 4.0, "replay_ms": 0.5}});
        let round = outcome(&status, 20.0).unwrap();
        assert_eq!((round.records, round.bytes, round.recovery_ms), (7, 57344, 9.5));
        status["recovery"].as_object_mut().unwrap().remove("replay_ms");
        assert!(outcome(&status, 20.0).unwrap_err().to_string().contains("recovery.replay_ms"));
    }

    #[test]
    fn cases_are_compared_by_their_medians() {
        let round = |recovery_ms: f64| Round {
            records: 1,
            bytes: 1,
            recovery_ms,
            takeover_ms: 0.0,
            checkpoint_ms: 0.0,
            journal_ms: 0.0,
            replay_ms: 0.0,
            ready_ms: 0.0,
        };
        let case = Case { data_bytes: 1, rounds: [30.0, 10.0, 11.0].map(round).to_vec() };
        assert_eq!(case.median(|r| r.recovery_ms), 11.0);
    }
}
