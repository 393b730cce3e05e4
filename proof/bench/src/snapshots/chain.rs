//! Random reads and overwrites of a volume that has a snapshot, of the snapshot, and of the end of a long chain of
//! snapshots of snapshots, each of which was written to, against volumes that have none.
//!
//! All are of the same size and lie on one array. Each has a plain volume of its own that is measured right before or
//! right after it, so that no volume is more at home in the read cache than what it is compared with. Two plain volumes
//! compared with each other tell how far figures of the same vary.
//!
//! What else makes one volume faster than another changes from round to round: another pair goes first, and of each
//! pair the other, which is then served by the other of two threads. Where cached blocks happen to lie in RAM matters,
//! too: for reads of them the array is started anew each round. For all else it runs on, after a run that does not count.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use quoin_initiator::{Connection, Disk, Rng};
use serde::Serialize;

use super::{BLOCK_BYTES, Bar, Bench, Common, rest, tell, volume};
use crate::filler::Carry;
use crate::load::{self, At, Pattern, Spec};
use crate::markdown::{finish, table};
use crate::pressure::fill;
use crate::quoin::Serving;
use crate::stats::median;

const LEAST_IOPS: f64 = 0.95;
const MOST_CPU: f64 = 1.1;
/// What is asked for again until it comes from the read cache: little enough that it stays there of all volumes.
const CACHED_BYTES: u64 = 16 << 20;
/// Where the end of the chain is seen.
const CHAIN_LUN: u16 = 100;

/// How deep, how large, how long.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Links of the chain.
    #[arg(long, default_value_t = 100)]
    depth: u32,
    /// Blocks written between two links.
    #[arg(long, value_parser = crate::units::parse_count, default_value = "1000")]
    between: u64,
    /// Size of each volume; all of it is written.
    #[arg(long, value_parser = crate::units::parse_bytes, value_name = "SIZE", default_value = "2g")]
    size: u64,
    /// RAM of the array.
    #[arg(long, value_parser = crate::units::parse_bytes, value_name = "SIZE", default_value = "512m")]
    memory: u64,
    /// Length of a run.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Runs of each.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Transfers in flight.
    #[arg(long, default_value_t = 32)]
    in_flight: usize,
    /// Only this is done to them, repeatable; everything by default.
    #[arg(long, value_enum)]
    access: Vec<Access>,
}

/// What is done to all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Access {
    CachedReads,
    Reads,
    FirstOverwrites,
    Overwrites,
}

impl Access {
    const ALL: [Access; 4] =
        [Access::CachedReads, Access::Reads, Access::FirstOverwrites, Access::Overwrites];

    fn name(self) -> &'static str {
        match self {
            Access::CachedReads => "reads, cached",
            Access::Reads => "reads",
            Access::FirstOverwrites => "overwrites, first touch",
            Access::Overwrites => "overwrites",
        }
    }

    fn writes(self) -> bool {
        matches!(self, Access::FirstOverwrites | Access::Overwrites)
    }

    /// What it must reach; first touches copy metadata, and are only told.
    fn has_bar(self) -> bool {
        self != Access::FirstOverwrites
    }
}

/// What is measured, and the plain volume that it is compared with, by their LUNs.
struct Object {
    of: &'static str,
    lun: u16,
    plain: u16,
}

/// Medians of one object under one access.
#[derive(Debug, Serialize)]
struct Line {
    access: Access,
    of: &'static str,
    iops: f64,
    cpu_us: f64,
    p50_us: f64,
    p99_us: f64,
    /// The share of blocks that came from the read cache, of reads.
    hit_ratio: Option<f64>,
    /// Medians over the rounds of what it was relative to the plain volume right before or after it.
    iops_ratio: f64,
    cpu_ratio: f64,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    iops: f64,
    cpu_us: f64,
    p50_us: f64,
    p99_us: f64,
    hit_ratio: f64,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    ensure!(options.rounds > 0 && options.depth > 0, "--rounds and --depth must be above 0");
    // Seven volumes, of which two are overwritten while something else holds their former content; and some to spare.
    let room = options.size * 11 + u64::from(options.depth) * options.between * BLOCK_BYTES;
    let bench = Bench::create(&options.common, room)?;
    let objects = create(options, &start(options, &bench)?)?;
    let mut lines = Vec::new();
    let is_wanted = |access: &Access| options.access.is_empty() || options.access.contains(access);
    for access in Access::ALL.into_iter().filter(is_wanted) {
        if access == Access::Overwrites {
            eprintln!("overwriting all volumes once");
            let serving = start(options, &bench)?;
            for lun in objects.iter().flat_map(|object| [object.plain, object.lun]) {
                overwrite_all(&serving.lun(lun))?;
            }
        }
        lines.append(&mut measure(options, &bench, &objects, access)?);
    }
    let bars: Vec<Bar> = lines.iter().filter(|line| line.access.has_bar()).flat_map(bars).collect();
    tell(&options.common, figures(&lines), &lines, &bars)
}

fn start<'a>(options: &Options, bench: &'a Bench) -> Result<Serving<'a>> {
    let serving = bench.array.serve_within(Some(options.memory))?;
    rest(&serving)?;
    Ok(serving)
}

/// Makes and fills all that is measured.
fn create(options: &Options, serving: &Serving<'_>) -> Result<Vec<Object>> {
    eprintln!("writing volumes, and a chain of {} links", options.depth);
    serving.create_host()?;
    let make = |name: &str, lun: u16| volume(serving, name, options.size, lun, options.size);
    make("again", 1)?;
    make("source", 2)?;
    make("chain0", 3)?;
    serving.tell(&["snapshot", "create", "source", "snapshot"])?;
    serving.show("snapshot", 4)?;
    for link in 1..=options.depth {
        let (from, to) = (format!("chain{}", link - 1), format!("chain{link}"));
        serving.tell(&["snapshot", "create", &from, &to])?;
        let at = serving.show(&to, CHAIN_LUN)?;
        let mut disk = Disk::open(&at.endpoint(), CHAIN_LUN)?;
        let (mut rng, mut data) = (Rng::new(u64::from(link)), vec![0; BLOCK_BYTES as usize]);
        for _ in 0..options.between {
            rng.fill(&mut data[..64]);
            disk.write(rng.below(options.size / BLOCK_BYTES) * BLOCK_BYTES, &mut data)?;
        }
        disk.close()?;
        if link < options.depth {
            serving.tell(&["unmap", &to, "--host", "bench", "--force"])?;
        }
    }
    let named = [("plain again", 1), ("source", 2), ("snapshot", 4), ("end of chain", CHAIN_LUN)];
    let with_plain = |((of, lun), plain)| {
        make(&format!("plain{plain}"), plain)?;
        Ok(Object { of, lun, plain })
    };
    named.into_iter().zip(5..).map(with_plain).collect()
}

/// Overwrites each block once, so that none is touched for the first time any more.
fn overwrite_all(at: &At) -> Result<()> {
    let mut connection = Connection::login(&at.endpoint(), at.lun)?;
    let capacity = connection.capacity()?;
    fill(&mut connection, capacity, u64::from(at.lun) + 1000)?;
    connection.logout()
}

fn measure(options: &Options, bench: &Bench, objects: &[Object], access: Access) -> Result<Vec<Line>> {
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); objects.len()];
    // Of each, what the plain volume did right before or after it.
    let mut plain = samples.clone();
    let mut serving = start(options, bench)?;
    if access != Access::CachedReads {
        // What comes first after a start pays for what is cold.
        sample(options, &serving, &serving.lun(objects[0].plain), access, 0)?;
    }
    for round in 0..options.rounds {
        if access == Access::CachedReads && round > 0 {
            drop(serving);
            serving = start(options, bench)?;
        }
        for turn in 0..objects.len() {
            let which = (turn + round) % objects.len();
            let Object { lun, plain: plain_lun, .. } = objects[which];
            let seed = (round * objects.len() + turn) as u64 * 2 + 1;
            let mut pair = [(plain_lun, &mut plain[which]), (lun, &mut samples[which])];
            // Who is first in a round is so with either of its pair first, in turn.
            if (round + round / objects.len()) % 2 == 1 {
                pair.reverse();
            }
            for ((lun, samples), seed) in pair.into_iter().zip(seed..) {
                samples.push(sample(options, &serving, &serving.lun(lun), access, seed)?);
            }
            let (own, plain) = (samples[which][round], plain[which][round]);
            eprintln!(
                "{}, round {} of {}: {:<14} {:>7.0} IOPS {:>5.1} µs CPU, {:.2} and {:.2} × plain",
                access.name(),
                round + 1,
                options.rounds,
                objects[which].of,
                own.iops,
                own.cpu_us,
                own.iops / plain.iops,
                own.cpu_us / plain.cpu_us
            );
        }
    }
    let all_plain = plain.concat();
    let mut lines = vec![line(access, "plain", &all_plain, &all_plain)];
    lines.extend(
        objects
            .iter()
            .zip(&samples)
            .zip(&plain)
            .map(|((o, samples), plain)| line(access, o.of, samples, plain)),
    );
    Ok(lines)
}

/// The medians of one object's samples, and what they are to those of its plain volume.
fn line(access: Access, of: &'static str, samples: &[Sample], plain: &[Sample]) -> Line {
    let of_all = |value: fn(&Sample) -> f64| median(samples.iter().map(value));
    let ratio = |value: fn(&Sample) -> f64| {
        median(samples.iter().zip(plain).map(|(sample, plain)| value(sample) / value(plain)))
    };
    Line {
        access,
        of,
        iops: of_all(|sample| sample.iops),
        cpu_us: of_all(|sample| sample.cpu_us),
        p50_us: of_all(|sample| sample.p50_us),
        p99_us: of_all(|sample| sample.p99_us),
        hit_ratio: (!access.writes()).then(|| of_all(|sample| sample.hit_ratio)),
        iops_ratio: ratio(|sample| sample.iops),
        cpu_ratio: ratio(|sample| sample.cpu_us),
    }
}

/// One run.
fn sample(options: &Options, serving: &Serving<'_>, at: &At, access: Access, seed: u64) -> Result<Sample> {
    let before = serving.engine()?;
    let report = load::run(&Spec {
        at: at.clone(),
        rw: if access.writes() { Pattern::Randwrite } else { Pattern::Randread },
        bs: BLOCK_BYTES,
        depth: options.in_flight,
        mix: 0,
        rate: None,
        seconds: options.seconds,
        warmup: if access == Access::CachedReads { 0.25 } else { 1.0 },
        sessions: 1,
        working_set: (access == Access::CachedReads).then_some(CACHED_BYTES.min(options.size)),
        fill: false,
        preread: access == Access::CachedReads,
        verify: false,
        carry: Carry::Stamps,
        ledger: None,
        fua: false,
        seed,
        session: 0,
        first: 0,
        target_pid: Some(serving.process.pid()),
    })?;
    let done = serving.engine()?.since(&before);
    if access.writes() {
        // What one left to be destaged would be the next one's burden.
        std::thread::sleep(Duration::from_millis(500));
        rest(serving)?;
    }
    Ok(Sample {
        iops: report.total.iops,
        cpu_us: report.target.map_or(0.0, |target| target.cpu.us_per_io),
        p50_us: report.total.latency_us.p50,
        p99_us: report.total.latency_us.p99,
        hit_ratio: done.hit_ratio().unwrap_or(0.0),
    })
}

fn figures(lines: &[Line]) -> comfy_table::Table {
    let mut table = table(&["access", "of", "IOPS", "p50", "p99", "CPU", "hits", "IOPS ×", "CPU ×"]);
    for line in lines {
        table.add_row([
            line.access.name().to_owned(),
            line.of.to_owned(),
            format!("{:.0}", line.iops),
            format!("{:.0}", line.p50_us),
            format!("{:.0}", line.p99_us),
            format!("{:.1}", line.cpu_us),
            line.hit_ratio.map_or(String::new(), |hits| format!("{:.1} %", hits * 100.0)),
            format!("{:.2}", line.iops_ratio),
            format!("{:.2}", line.cpu_ratio),
        ]);
    }
    finish(table, &[0, 1])
}

fn bars(line: &Line) -> Vec<Bar> {
    if line.of.starts_with("plain") {
        return Vec::new();
    }
    let of = format!("{}, {}", line.access.name(), line.of);
    vec![
        Bar::new(
            &of,
            "IOPS ≥ 0.95 × plain",
            format!("{:.2} ×", line.iops_ratio),
            line.iops_ratio >= LEAST_IOPS,
        ),
        Bar::new(
            &of,
            "CPU per I/O ≤ 1.1 × plain",
            format!("{:.2} ×", line.cpu_ratio),
            line.cpu_ratio <= MOST_CPU,
        ),
    ]
}
