//! What layouts cost hosts: random writes, random and sequential reads, reads while a drive is missing and rebuilt, and
//! the rebuild itself. The layouts take turns on the same emulated drives; the first one is what others are compared with.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;

use crate::load::{Pattern, Report, Spec};
use crate::markdown::{finish, table};
use crate::quoin::{Array, Serving, binary, number};
use crate::stats::median;
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

/// One turn of a layout.
#[derive(Debug, Clone, Copy, Serialize)]
struct Turn {
    write_iops: f64,
    write_p99_us: f64,
    write_cpu_us: f64,
    read_iops: f64,
    read_p99_us: f64,
    sequential_mb_per_second: f64,
    /// While a drive is missing and what it held is rebuilt.
    degraded_iops: f64,
    degraded_p99_us: f64,
    /// Read from and written to the drives in a second of the rebuild while hosts do nothing.
    rebuild_mb_per_second: f64,
    rebuild_seconds: f64,
}

#[derive(Debug, Serialize)]
struct OfLayout {
    layout: String,
    turns: Vec<Turn>,
}

/// A figure of a layout, for the table.
struct Column {
    name: &'static str,
    of: fn(&Turn) -> f64,
}

const COLUMNS: [Column; 9] = [
    Column { name: "write IOPS", of: |turn| turn.write_iops },
    Column { name: "p99 µs", of: |turn| turn.write_p99_us },
    Column { name: "CPU µs a write", of: |turn| turn.write_cpu_us },
    Column { name: "read IOPS", of: |turn| turn.read_iops },
    Column { name: "p99 µs", of: |turn| turn.read_p99_us },
    Column { name: "sequential MB/s", of: |turn| turn.sequential_mb_per_second },
    Column { name: "degraded IOPS", of: |turn| turn.degraded_iops },
    Column { name: "p99 µs", of: |turn| turn.degraded_p99_us },
    Column { name: "rebuild MB/s", of: |turn| turn.rebuild_mb_per_second },
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
    let load = |rw, bs: u64, depth, fill| -> Result<Report> {
        crate::load::run(&Spec {
            at: serving.at(),
            rw,
            bs,
            depth,
            mix: 0,
            seconds: options.seconds,
            warmup: 1.0,
            sessions: 1,
            working_set: None,
            fill,
            preread: false,
            verify: false,
            ledger: None,
            fua: false,
            seed: 1,
            session: 0,
            first: 0,
            target_pid: Some(serving.process.pid()),
        })
    };
    let write = load(Pattern::Randwrite, 8192, 32, true)?;
    let cpu = write.target.context("the array's CPU time")?.cpu.us_per_io;
    let read = load(Pattern::Randread, 8192, 32, false)?;
    let sequential = load(Pattern::Read, 1 << 20, 8, false)?;

    // One of the drives is taken out, the last: hosts read on.
    let last = array.drives().last().context("an array has drives")?.display().to_string();
    serving.tell(&["drive", "fail", &last])?;
    let began = Instant::now();
    let degraded = load(Pattern::Randread, 8192, 32, false)?;
    let (rebuild_mb_per_second, rebuild_seconds) = watch_rebuild(&serving, began)?;
    Ok(Turn {
        write_iops: write.write.iops,
        write_p99_us: write.write.latency_us.p99,
        write_cpu_us: cpu,
        read_iops: read.read.iops,
        read_p99_us: read.read.latency_us.p99,
        sequential_mb_per_second: sequential.read.mb_per_second,
        degraded_iops: degraded.read.iops,
        degraded_p99_us: degraded.read.latency_us.p99,
        rebuild_mb_per_second,
        rebuild_seconds,
    })
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
    let took = since.elapsed().as_secs_f64();
    let did = serving.engine()?.since(&before);
    Ok(((did.drive_read_bytes + did.drive_written_bytes) as f64 / took / 1e6, began.elapsed().as_secs_f64()))
}

fn show(options: &Options, all: &[OfLayout]) {
    for (name, value) in machine::describe(&options.dir) {
        println!("- {name}: {value}");
    }
    println!(
        "\n{} drives, emulated: {}; medians of {} rounds, in brackets the median ratio to {} in the same round\n",
        options.drives, options.emulate, options.rounds, all[0].layout
    );
    let header: Vec<&str> = ["layout"].into_iter().chain(COLUMNS.iter().map(|column| column.name)).collect();
    let mut rows = table(&header);
    for of in all {
        let mut row = vec![of.layout.clone()];
        for column in &COLUMNS {
            let middle = median(of.turns.iter().map(column.of));
            let ratios = of.turns.iter().zip(&all[0].turns).filter(|(_, first)| (column.of)(first) > 0.0);
            let ratio = median(ratios.map(|(turn, first)| (column.of)(turn) / (column.of)(first)));
            row.push(format!("{middle:.0} ({ratio:.2})"));
        }
        rows.add_row(row);
    }
    println!("{}", finish(rows, &[0]));
}
