//! What compression and deduplication cost hosts, and what they save: random writes and reads of what looks like pages of a
//! database. The ways of reduction take turns on the same drives; without any is what the others are compared with.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;

use crate::load::{Pattern, Report, Spec};
use crate::quoin::{Array, Serving, VOLUME, binary};
use crate::turns::{Column, compared};
use crate::{Output, machine};

/// What is measured: a name, and how the volume is set.
const WAYS: [(&str, &[&str]); 5] = [
    ("off", &["--compression", "off", "--dedup", "off"]),
    ("lz4", &["--compression", "lz4"]),
    ("zstd", &["--compression", "zstd"]),
    ("dedup", &["--dedup", "on"]),
    ("lz4+dedup", &["--compression", "lz4", "--dedup", "on"]),
];

/// On which drives, and what load.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Directory for the drive files; everything made there is removed again.
    #[arg(long, value_name = "DIR", default_value = "var/bench")]
    dir: PathBuf,
    /// Size of each of the four drives.
    #[arg(long, value_parser = crate::units::parse_bytes, value_name = "SIZE", default_value = "1g")]
    drive_size: u64,
    /// Size of the volume.
    #[arg(long, value_parser = crate::units::parse_bytes, value_name = "SIZE", default_value = "1g")]
    volume_size: u64,
    /// RAM of the array: less than the data takes, so that reads come from drives.
    #[arg(long, value_parser = crate::units::parse_bytes, value_name = "SIZE", default_value = "256m")]
    memory: u64,
    /// Operations in flight.
    #[arg(long, default_value_t = 32)]
    depth: usize,
    /// Turns.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of each load.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// The `quoin` program; the one beside this program by default.
    #[arg(long, value_name = "PATH")]
    quoin: Option<PathBuf>,
    /// Table for people or JSON for programs.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// One turn of a way.
#[derive(Debug, Clone, Copy, Serialize)]
struct Turn {
    write_iops: f64,
    write_p99_us: f64,
    write_cpu_us: f64,
    /// One write at a time.
    single_write_p50_us: f64,
    read_iops: f64,
    read_cpu_us: f64,
    /// One read at a time, from the drives.
    single_read_p50_us: f64,
    data_reduction: f64,
    /// Of the volume's blocks when writing has ended and the array is idle.
    physical_mb: f64,
}

#[derive(Debug, Serialize)]
struct OfWay {
    way: String,
    turns: Vec<Turn>,
}

const COLUMNS: [Column<Turn>; 9] = [
    Column { name: "write IOPS", of: |turn| turn.write_iops },
    Column { name: "p99 µs", of: |turn| turn.write_p99_us },
    Column { name: "CPU µs a write", of: |turn| turn.write_cpu_us },
    Column { name: "one write, p50 µs", of: |turn| turn.single_write_p50_us },
    Column { name: "read IOPS", of: |turn| turn.read_iops },
    Column { name: "CPU µs a read", of: |turn| turn.read_cpu_us },
    Column { name: "one read, p50 µs", of: |turn| turn.single_read_p50_us },
    Column { name: "data reduction", of: |turn| turn.data_reduction },
    Column { name: "physical MB", of: |turn| turn.physical_mb },
];

pub(crate) fn run(options: &Options) -> Result<bool> {
    ensure!(options.rounds > 0 && options.seconds > 0.0, "--rounds and --seconds must be above 0");
    std::fs::create_dir_all(&options.dir)?;
    let dir = tempfile::Builder::new().prefix("quoin-reduction-").tempdir_in(&options.dir)?;
    let binary = binary(options.quoin.as_deref())?;
    let mut array = Array::init(&binary, dir.path(), options.drive_size, &[], &[])?;
    let mut all: Vec<_> =
        WAYS.iter().map(|(way, _)| OfWay { way: (*way).to_owned(), turns: Vec::new() }).collect();
    for round in 0..options.rounds {
        for (of, (way, set)) in all.iter_mut().zip(WAYS) {
            array.format()?;
            let turn = measure(options, &array, set).with_context(|| format!("reduction {way}"))?;
            eprintln!(
                "round {} {way}: {:.0} writes/s, {:.1} µs of CPU each, reduced {:.2}:1",
                round + 1,
                turn.write_iops,
                turn.write_cpu_us,
                turn.data_reduction
            );
            of.turns.push(turn);
        }
    }
    match options.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&all)?),
        Output::Table => show(options, &all),
    }
    Ok(true)
}

fn measure(options: &Options, array: &Array, set: &[&str]) -> Result<Turn> {
    let serving = array.serve_within(Some(options.memory))?;
    serving.map_volume(options.volume_size)?;
    serving.tell(&[&["volume", "set", VOLUME], set].concat())?;
    let load = |rw, depth, fill| crate::load::run(&spec(options, &serving, rw, depth, fill));
    load(Pattern::Randwrite, options.depth, true)?;
    let write = load(Pattern::Randwrite, options.depth, false)?;
    let single_write = load(Pattern::Randwrite, 1, false)?;
    let read = load(Pattern::Randread, options.depth, false)?;
    let single_read = load(Pattern::Randread, 1, false)?;
    let space: serde_json::Value =
        serde_json::from_str(&serving.tell(&["space", "volume", VOLUME, "-o", "json"])?)?;
    let number = |name: &str| {
        space[name].as_f64().with_context(|| format!("`quoin space volume -o json` has no number {name}"))
    };
    Ok(Turn {
        write_iops: write.write.iops,
        write_p99_us: write.write.latency_us.p99,
        write_cpu_us: cpu_us(&write)?,
        single_write_p50_us: single_write.write.latency_us.p50,
        read_iops: read.read.iops,
        read_cpu_us: cpu_us(&read)?,
        single_read_p50_us: single_read.read.latency_us.p50,
        data_reduction: number("data_reduction_ratio")?,
        physical_mb: number("physical_bytes")? / 1e6,
    })
}

fn cpu_us(report: &Report) -> Result<f64> {
    Ok(report.target.as_ref().context("the array's CPU time")?.cpu.us_per_io)
}

/// Random operations of 8 KiB.
fn spec(options: &Options, serving: &Serving<'_>, rw: Pattern, depth: usize, fill: bool) -> Spec {
    Spec {
        at: serving.at(),
        rw,
        bs: 8192,
        depth,
        mix: 0,
        seconds: if fill { 0.1 } else { options.seconds },
        warmup: if fill { 0.0 } else { 1.0 },
        sessions: 1,
        working_set: None,
        fill,
        preread: false,
        verify: false,
        pages: true,
        ledger: None,
        fua: false,
        seed: 1,
        session: 0,
        first: 0,
        target_pid: Some(serving.process.pid()),
    }
}

fn show(options: &Options, all: &[OfWay]) {
    for (name, value) in machine::describe(&options.dir) {
        println!("- {name}: {value}");
    }
    println!(
        "\n8 KiB, {} in flight, medians of {} rounds, in brackets the median ratio to off in the same round\n",
        options.depth, options.rounds
    );
    let all: Vec<_> = all.iter().map(|of| (of.way.as_str(), &of.turns[..])).collect();
    println!("{}", compared("reduction", &COLUMNS, &all));
}
