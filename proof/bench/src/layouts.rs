//! What layouts cost hosts: random writes, reads and writes in sequence, reads while a drive is missing and rebuilt, and the
//! rebuild itself. The layouts take turns on the same emulated drives; the first one is what others are compared with.
//!
//! Where drives have a bandwidth that is emulated, each load also tells which part of the sum of all drives it used: layouts
//! let drives work side by side, and what they do not use is lost.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;

use crate::filler::Carry;
use crate::load::{Pattern, Report, Spec};
use crate::quoin::{Array, Engine, Serving, binary, number};
use crate::turns::{Column, compared};
use crate::{Output, machine};

/// Less than the data takes, so that reads come from drives.
const MEMORY_BYTES: u64 = 160 << 20;
const REBUILD_LIMIT: Duration = Duration::from_secs(3600);

/// Which layouts, and what load.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Directory for the drive files; everything made there is removed again.
    #[arg(long, value_name = "DIR", default_value = "var/bench")]
    dir: PathBuf,
    /// Layouts; the others are compared with the first.
    #[arg(long, value_delimiter = ',', default_value = "mirror,raid5,raid6")]
    layouts: Vec<String>,
    /// Drives.
    #[arg(long, default_value_t = 8)]
    drives: usize,
    /// Size of each.
    #[arg(long, value_parser = crate::units::parse_bytes, value_name = "SIZE", default_value = "512m")]
    drive_size: u64,
    /// Speed to emulate on each, as for `quoin init`; `none`: as fast as the files are.
    #[arg(long, default_value = "flash,iops=20000,mbps=200")]
    emulate: String,
    /// Size of the volume.
    #[arg(long, value_parser = crate::units::parse_bytes, value_name = "SIZE", default_value = "768m")]
    volume_size: u64,
    /// Random operations in flight.
    #[arg(long, default_value_t = 32)]
    depth: usize,
    /// Operations of 1 MiB in flight, in sequence.
    #[arg(long, default_value_t = 8)]
    sequential_depth: usize,
    /// Turns.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of each load.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// The `quoin` program; the one beside this program by default.
    #[arg(long, value_name = "PATH")]
    quoin: Option<PathBuf>,
    /// A further argument for `quoin serve`, repeatable.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    serve_arg: Vec<String>,
    /// Table for people or JSON for programs.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// One turn of a layout. What drives did is a part of the sum of their bandwidth, 0 if that is not known.
#[derive(Debug, Clone, Copy, Serialize)]
struct Turn {
    write_iops: f64,
    write_p99_us: f64,
    write_cpu_us: f64,
    write_drives: f64,
    sequential_write_mb_per_second: f64,
    sequential_write_drives: f64,
    read_iops: f64,
    read_p99_us: f64,
    sequential_mb_per_second: f64,
    sequential_drives: f64,
    /// While a drive is missing and what it held is rebuilt.
    degraded_iops: f64,
    degraded_p99_us: f64,
    /// Read from and written to the drives in a second of the rebuild while hosts do nothing.
    rebuild_mb_per_second: f64,
    rebuild_drives: f64,
    rebuild_seconds: f64,
}

#[derive(Debug, Serialize)]
struct OfLayout {
    layout: String,
    turns: Vec<Turn>,
}

const COLUMNS: [Column<Turn>; 15] = [
    Column { name: "write IOPS", of: |turn| turn.write_iops },
    Column { name: "p99 µs", of: |turn| turn.write_p99_us },
    Column { name: "CPU µs a write", of: |turn| turn.write_cpu_us },
    Column { name: "% of drives", of: |turn| 100.0 * turn.write_drives },
    Column { name: "sequential write MB/s", of: |turn| turn.sequential_write_mb_per_second },
    Column { name: "% of drives", of: |turn| 100.0 * turn.sequential_write_drives },
    Column { name: "read IOPS", of: |turn| turn.read_iops },
    Column { name: "p99 µs", of: |turn| turn.read_p99_us },
    Column { name: "sequential read MB/s", of: |turn| turn.sequential_mb_per_second },
    Column { name: "% of drives", of: |turn| 100.0 * turn.sequential_drives },
    Column { name: "degraded IOPS", of: |turn| turn.degraded_iops },
    Column { name: "p99 µs", of: |turn| turn.degraded_p99_us },
    Column { name: "rebuild MB/s", of: |turn| turn.rebuild_mb_per_second },
    Column { name: "% of drives", of: |turn| 100.0 * turn.rebuild_drives },
    Column { name: "rebuild s", of: |turn| turn.rebuild_seconds },
];

pub(crate) fn run(options: &Options) -> Result<bool> {
    ensure!(options.rounds > 0 && options.seconds > 0.0, "--rounds and --seconds must be above 0");
    ensure!(!options.layouts.is_empty(), "no layout to measure");
    std::fs::create_dir_all(&options.dir)?;
    let dir = tempfile::Builder::new().prefix("quoin-layouts-").tempdir_in(&options.dir)?;
    let binary = binary(options.quoin.as_deref())?;
    let args = init_args(options, &options.layouts[0]);
    let mut array =
        Array::init_on(&binary, dir.path(), options.drives, options.drive_size, &args, &options.serve_arg)?;
    let mut all: Vec<_> =
        options.layouts.iter().map(|layout| OfLayout { layout: layout.clone(), turns: Vec::new() }).collect();
    for round in 0..options.rounds {
        for of in &mut all {
            array.format_with(init_args(options, &of.layout))?;
            let turn = measure(options, &array).with_context(|| format!("layout {}", of.layout))?;
            eprintln!(
                "round {} {}: {:.0} writes/s, {:.0} reads/s",
                round + 1,
                of.layout,
                turn.write_iops,
                turn.read_iops
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

fn init_args(options: &Options, layout: &str) -> Vec<String> {
    let emulate = (options.emulate != "none").then(|| format!("--emulate={}", options.emulate));
    [format!("--layout={layout}"), "--domain=file".to_owned()].into_iter().chain(emulate).collect()
}

fn measure(options: &Options, array: &Array) -> Result<Turn> {
    let serving = array.serve_within(Some(MEMORY_BYTES))?;
    serving.map_volume(options.volume_size)?;
    let drives = bandwidth(&serving)?;
    let load = |rw, fill| -> Result<Loaded> {
        let (before, since) = (serving.engine()?, Instant::now());
        let report = crate::load::run(&spec(options, &serving, rw, fill))?;
        Ok(Loaded { report, drives: part(moved(&serving, &before, since)?, drives) })
    };
    load(Pattern::Randwrite, true)?;
    let write = load(Pattern::Randwrite, false)?;
    let cpu = write.report.target.as_ref().context("the array's CPU time")?.cpu.us_per_io;
    let sequential_write = load(Pattern::Write, false)?;
    let read = load(Pattern::Randread, false)?;
    let sequential = load(Pattern::Read, false)?;

    // One of the drives is taken out, the last: hosts read on.
    let last = array.drives().last().context("an array has drives")?.display().to_string();
    serving.tell(&["drive", "fail", &last])?;
    let began = Instant::now();
    let degraded = load(Pattern::Randread, false)?;
    let (rebuild_mb_per_second, rebuild_seconds) = watch_rebuild(&serving, began)?;
    let left = drives * (array.drives().len() - 1) as f64 / array.drives().len() as f64;
    let (write_host, read_host) = (&write.report.write, &read.report.read);
    Ok(Turn {
        write_iops: write_host.iops,
        write_p99_us: write_host.latency_us.p99,
        write_cpu_us: cpu,
        write_drives: write.drives,
        sequential_write_mb_per_second: sequential_write.report.write.mb_per_second,
        sequential_write_drives: sequential_write.drives,
        read_iops: read_host.iops,
        read_p99_us: read_host.latency_us.p99,
        sequential_mb_per_second: sequential.report.read.mb_per_second,
        sequential_drives: sequential.drives,
        degraded_iops: degraded.report.read.iops,
        degraded_p99_us: degraded.report.read.latency_us.p99,
        rebuild_mb_per_second,
        rebuild_drives: part(rebuild_mb_per_second, left),
        rebuild_seconds,
    })
}

/// A load: random operations of 8 KiB, or ones of 1 MiB in sequence.
fn spec(options: &Options, serving: &Serving<'_>, rw: Pattern, fill: bool) -> Spec {
    let is_random = matches!(rw, Pattern::Randwrite | Pattern::Randread);
    let (bs, depth) = if is_random { (8192, options.depth) } else { (1 << 20, options.sequential_depth) };
    Spec {
        at: serving.at(),
        rw,
        bs,
        depth,
        mix: 0,
        rate: None,
        seconds: if fill { 0.1 } else { options.seconds },
        warmup: if fill { 0.0 } else { 1.0 },
        sessions: 1,
        working_set: None,
        fill,
        preread: false,
        verify: false,
        carry: Carry::Stamps,
        ledger: None,
        fua: false,
        seed: 1,
        session: 0,
        first: 0,
        target_pid: Some(serving.process.pid()),
    }
}

/// A load, and which part of their bandwidth the drives used for it.
struct Loaded {
    report: Report,
    drives: f64,
}

/// MB a second that all drives together can move, as far as that is emulated.
fn bandwidth(serving: &Serving<'_>) -> Result<f64> {
    let status = serving.status()?;
    let drives = status["drives"].as_array().context("`quoin status -o json` has no list drives")?;
    Ok(drives.iter().filter_map(|drive| drive["emulated"]["mbps"].as_f64()).sum())
}

/// MB a second that drives read and wrote since then.
fn moved(serving: &Serving<'_>, before: &Engine, since: Instant) -> Result<f64> {
    let did = serving.engine()?.since(before);
    Ok((did.drive_read_bytes + did.drive_written_bytes) as f64 / since.elapsed().as_secs_f64() / 1e6)
}

fn part(of: f64, all: f64) -> f64 {
    if all > 0.0 { of / all } else { 0.0 }
}

/// Waits for the end of the rebuild while hosts do nothing: what it read and wrote in a second, and how long it took in
/// all. 0 if it had ended before.
fn watch_rebuild(serving: &Serving<'_>, began: Instant) -> Result<(f64, f64)> {
    let degraded = || number(&serving.status()?, "/protection/degraded_bytes");
    let (before, since) = (serving.engine()?, Instant::now());
    if degraded()? == 0 {
        return Ok((0.0, began.elapsed().as_secs_f64()));
    }
    while degraded()? > 0 {
        ensure!(since.elapsed() < REBUILD_LIMIT, "the rebuild does not end");
        thread::sleep(Duration::from_millis(50));
    }
    Ok((moved(serving, &before, since)?, began.elapsed().as_secs_f64()))
}

fn show(options: &Options, all: &[OfLayout]) {
    for (name, value) in machine::describe(&options.dir) {
        println!("- {name}: {value}");
    }
    println!(
        "\n{} drives, emulated: {}; medians of {} rounds, in brackets the median ratio to {} in the same round\n",
        options.drives, options.emulate, options.rounds, all[0].layout
    );
    let all: Vec<_> = all.iter().map(|of| (of.layout.as_str(), &of.turns[..])).collect();
    println!("{}", compared("layout", &COLUMNS, &all));
}
