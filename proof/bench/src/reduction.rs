//! What compression and deduplication cost hosts, and what they save: random writes and reads of what looks like pages of a
//! database. The ways of reduction take turns on the same drives; without any is what the others are compared with.

use std::{cell::Cell, path::PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;

use crate::filler::Carry;
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

/// Of the writes that the array takes without reduction: a load that leaves room for all that is done later.
const PART_OF_LOAD: f64 = 0.6;
/// What cached reads read.
const CACHED_BYTES: u64 = 32 << 20;

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
    /// What writes carry.
    #[arg(long, value_enum, default_value = "pages")]
    carry: Carry,
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
    /// At [`PART_OF_LOAD`] of what the first way takes in this round.
    paced_write_p99_us: f64,
    /// One write at a time.
    single_write_p50_us: f64,
    read_iops: f64,
    read_cpu_us: f64,
    /// One read at a time, from the drives.
    single_read_p50_us: f64,
    cached_read_iops: f64,
    /// One read at a time, from the cache.
    single_cached_read_p50_us: f64,
    data_reduction: f64,
    /// Of the volume's blocks when writing has ended and the array is idle.
    physical_mb: f64,
}

#[derive(Debug, Serialize)]
struct OfWay {
    way: String,
    turns: Vec<Turn>,
}

const COLUMNS: [Column<Turn>; 12] = [
    Column { name: "write IOPS", of: |turn| turn.write_iops },
    Column { name: "p99 µs", of: |turn| turn.write_p99_us },
    Column { name: "CPU µs a write", of: |turn| turn.write_cpu_us },
    Column { name: "p99 µs at 60 %", of: |turn| turn.paced_write_p99_us },
    Column { name: "one write, p50 µs", of: |turn| turn.single_write_p50_us },
    Column { name: "read IOPS", of: |turn| turn.read_iops },
    Column { name: "CPU µs a read", of: |turn| turn.read_cpu_us },
    Column { name: "one read, p50 µs", of: |turn| turn.single_read_p50_us },
    Column { name: "cached read IOPS", of: |turn| turn.cached_read_iops },
    Column { name: "one cached read, p50 µs", of: |turn| turn.single_cached_read_p50_us },
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
        let mut first_iops = None;
        for (of, (way, set)) in all.iter_mut().zip(WAYS) {
            array.format()?;
            let turn =
                measure(options, &array, set, &mut first_iops).with_context(|| format!("reduction {way}"))?;
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

fn measure(options: &Options, array: &Array, set: &[&str], first_iops: &mut Option<f64>) -> Result<Turn> {
    let serving = array.serve_within(Some(options.memory))?;
    serving.map_volume(options.volume_size)?;
    serving.tell(&[&["volume", "set", VOLUME], set].concat())?;
    let seed = Cell::new(0);
    let random = |rw, depth| {
        // Else each load would write what the one before wrote.
        seed.set(seed.get() + 1);
        Spec { rw, depth, seed: seed.get(), ..spec(options, &serving) }
    };
    let load = |rw, depth| crate::load::run(&random(rw, depth));
    let (write, read) = (Pattern::Randwrite, Pattern::Randread);
    let fill = Spec { seconds: 0.1, warmup: 0.0, fill: true, ..random(write, options.depth) };
    crate::load::run(&fill)?;
    let writes = load(write, options.depth)?;
    let rate = PART_OF_LOAD * *first_iops.get_or_insert(writes.write.iops);
    // Deep enough for what comes in while the array holds some back.
    let paced_writes = crate::load::run(&Spec { rate: Some(rate), ..random(write, 4 * options.depth) })?;
    let single_write = load(write, 1)?;
    let reads = load(read, options.depth)?;
    let single_read = load(read, 1)?;
    let cached = |depth| {
        let set = Some(CACHED_BYTES.min(options.volume_size));
        crate::load::run(&Spec { working_set: set, preread: true, ..random(read, depth) })
    };
    let (cached_reads, single_cached_read) = (cached(options.depth)?, cached(1)?);
    let space: serde_json::Value =
        serde_json::from_str(&serving.tell(&["space", "volume", VOLUME, "-o", "json"])?)?;
    let number = |name: &str| {
        space[name].as_f64().with_context(|| format!("`quoin space volume -o json` has no number {name}"))
    };
    Ok(Turn {
        write_iops: writes.write.iops,
        write_p99_us: writes.write.latency_us.p99,
        write_cpu_us: cpu_us(&writes)?,
        paced_write_p99_us: paced_writes.write.latency_us.p99,
        single_write_p50_us: single_write.write.latency_us.p50,
        read_iops: reads.read.iops,
        read_cpu_us: cpu_us(&reads)?,
        single_read_p50_us: single_read.read.latency_us.p50,
        cached_read_iops: cached_reads.read.iops,
        single_cached_read_p50_us: single_cached_read.read.latency_us.p50,
        data_reduction: number("data_reduction_ratio")?,
        physical_mb: number("physical_bytes")? / 1e6,
    })
}

fn cpu_us(report: &Report) -> Result<f64> {
    Ok(report.target.as_ref().context("the array's CPU time")?.cpu.us_per_io)
}

/// Random operations of 8 KiB.
fn spec(options: &Options, serving: &Serving<'_>) -> Spec {
    Spec {
        at: serving.at(),
        rw: Pattern::Randwrite,
        bs: 8192,
        depth: options.depth,
        mix: 0,
        rate: None,
        seconds: options.seconds,
        warmup: 1.0,
        sessions: 1,
        working_set: None,
        fill: false,
        preread: false,
        verify: false,
        carry: options.carry,
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
        "\n8 KiB, {:?}, {} in flight, medians of {} rounds, in brackets the median ratio to off in the same round\n",
        options.carry, options.depth, options.rounds
    );
    let all: Vec<_> = all.iter().map(|of| (of.way.as_str(), &of.turns[..])).collect();
    println!("{}", compared("reduction", &COLUMNS, &all));
}
