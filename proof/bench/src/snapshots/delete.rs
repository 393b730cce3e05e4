//! A snapshot is deleted under load of its source: what hosts notice, and how fast which space comes back.
//!
//! The source is filled, a snapshot taken, and a part of the source or all of it overwritten, so that only the snapshot
//! holds what was there. Then the source is overwritten at random in one go, before, while and after the snapshot's
//! space comes back.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use hdrhistogram::Histogram;
use quoin_initiator::{Connection, Disk, Rng};
use serde::Serialize;

use super::{BLOCK_BYTES, Bar, Bench, Common, rest, tell, volume};
use crate::load::At;
use crate::markdown::{finish, table};
use crate::pressure::fill_first;
use crate::quoin::{Serving, number};
use crate::stats::{Percentiles, histogram};
use crate::units::show_bytes;

const MOST_P99: f64 = 1.2;
const ASK_EVERY: Duration = Duration::from_millis(200);
const BACK_LIMIT: Duration = Duration::from_secs(1800);
const PHASES: [&str; 3] = ["before", "while space comes back", "after"];

/// What snapshot.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Mapped blocks of the snapshot.
    #[arg(long, value_parser = crate::units::parse_count, default_value = "3m")]
    blocks: u64,
    /// Of these, in percent, what its source has overwritten since.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100))]
    overwritten: u64,
    /// Writes in flight.
    #[arg(long, default_value_t = 8)]
    depth: usize,
    /// Writes a second at most, as hosts with a load of their own make.
    #[arg(long, default_value_t = 10_000)]
    iops: u64,
    /// Seconds measured before the deletion, and after all is back.
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct Outcome {
    blocks: u64,
    phases: Vec<Phase>,
    command_ms: f64,
    back_seconds: f64,
    back_bytes: u64,
    expected_bytes: u64,
    /// Used beyond what volumes map, when nothing came back any more.
    left_bytes: u64,
    check: String,
}

#[derive(Debug, Serialize)]
struct Phase {
    name: &'static str,
    seconds: f64,
    iops: f64,
    latency_us: Percentiles,
}

/// What writers look at while they write.
struct Course {
    phase: AtomicUsize,
    stop: AtomicBool,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    ensure!(options.depth > 0 && options.iops > 0, "--depth and --iops must be above 0");
    let bytes = options.blocks * BLOCK_BYTES;
    let expected = bytes * options.overwritten / 100 / BLOCK_BYTES * BLOCK_BYTES;
    let bench = Bench::create(&options.common, bytes + expected)?;
    let serving = bench.array.serve()?;
    serving.create_host()?;
    let at = volume(&serving, "source", bytes, 1, bytes)?;
    serving.tell(&["snapshot", "create", "source", "snapshot"])?;
    let mut connection = Connection::login(&at.endpoint(), 1)?;
    let capacity = connection.capacity()?;
    fill_first(&mut connection, capacity, expected, 2).context("overwriting the source")?;
    connection.logout()?;
    rest(&serving)?;

    let course = Course { phase: AtomicUsize::new(0), stop: AtomicBool::new(false) };
    let (deletion, latencies) = thread::scope(|scope| {
        let writers = (0..options.depth).map(|number| {
            let (at, course) = (&at, &course);
            scope.spawn(move || write(options, at, number as u64, course))
        });
        let writers: Vec<_> = writers.collect();
        let deletion = delete(options, &serving, &course);
        course.stop.store(true, Ordering::Relaxed);
        let latencies = writers.into_iter().map(|writer| writer.join().expect("a writer panicked"));
        (deletion, latencies.collect::<Result<Vec<_>>>())
    });
    let (deletion, latencies) = (deletion?, latencies?);
    rest(&serving)?;
    let left_bytes = space(&serving)?.beyond_volumes();
    drop(serving);
    let phases = PHASES.iter().zip(deletion.seconds).enumerate().map(|(phase, (name, seconds))| {
        let mut all = histogram();
        latencies.iter().for_each(|of| all.add(&of[phase]).expect("all histograms have the same bounds"));
        Phase { name, seconds, iops: all.len() as f64 / seconds, latency_us: Percentiles::of(&all) }
    });
    let outcome = Outcome {
        blocks: options.blocks,
        phases: phases.collect(),
        command_ms: deletion.command_ms,
        back_seconds: deletion.seconds[1],
        back_bytes: deletion.back_bytes,
        expected_bytes: expected,
        left_bytes,
        check: bench.array.check()?,
    };
    let bars = bars(&outcome);
    tell(&options.common, figures(&outcome), &outcome, &bars)
}

type OfPhases = [Histogram<u64>; PHASES.len()];

/// Overwrites blocks at random, its part of the rate, one at a time.
fn write(options: &Options, at: &At, number: u64, course: &Course) -> Result<OfPhases> {
    let mut disk = Disk::open(&at.endpoint(), 1000 + number as u16)?;
    let mut rng = Rng::new(number + 1);
    let mut data = vec![0; BLOCK_BYTES as usize];
    let mut latencies: OfPhases = std::array::from_fn(|_| histogram());
    let every = Duration::from_nanos(1_000_000_000 * options.depth as u64 / options.iops);
    while !course.stop.load(Ordering::Relaxed) {
        rng.fill(&mut data[..64]);
        let started = Instant::now();
        disk.write(rng.below(options.blocks) * BLOCK_BYTES, &mut data)?;
        let latency = started.elapsed();
        latencies[course.phase.load(Ordering::Relaxed)].saturating_record(latency.as_nanos() as u64);
        thread::sleep(every.saturating_sub(latency));
    }
    disk.close()?;
    Ok(latencies)
}

struct Deletion {
    command_ms: f64,
    seconds: [f64; PHASES.len()],
    back_bytes: u64,
}

fn delete(options: &Options, serving: &Serving<'_>, course: &Course) -> Result<Deletion> {
    let quiet = Duration::from_secs_f64(options.seconds);
    // What the source overwrites meanwhile is the snapshot's alone from then on, and comes back with the rest.
    thread::sleep(quiet);
    let before = space(serving)?;
    let began = Instant::now();
    course.phase.store(1, Ordering::Relaxed);
    serving.tell(&["snapshot", "delete", "snapshot", "--now"])?;
    let command_ms = began.elapsed().as_secs_f64() * 1e3;
    while space(serving)?.beyond_volumes() > 0 {
        ensure!(began.elapsed() < BACK_LIMIT, "after {} s space is still coming back", BACK_LIMIT.as_secs());
        thread::sleep(ASK_EVERY);
    }
    let back_seconds = began.elapsed().as_secs_f64();
    let after = space(serving)?;
    course.phase.store(2, Ordering::Relaxed);
    thread::sleep(quiet);
    let seconds = [options.seconds, back_seconds, options.seconds];
    Ok(Deletion { command_ms, seconds, back_bytes: before.live_bytes.saturating_sub(after.live_bytes) })
}

/// Host data on drives, and what of it volumes show.
struct Space {
    live_bytes: u64,
    mapped_bytes: u64,
}

impl Space {
    /// What is on its way back, where no two volumes share anything.
    fn beyond_volumes(&self) -> u64 {
        self.live_bytes.saturating_sub(self.mapped_bytes)
    }
}

fn space(serving: &Serving<'_>) -> Result<Space> {
    let status = serving.status()?;
    let of = |name: &str| number(&status, name);
    let live_bytes = of("/capacity/used_bytes")?.saturating_sub(of("/engine/buffered_bytes")?);
    Ok(Space { live_bytes, mapped_bytes: of("/capacity/mapped_bytes")? })
}

fn figures(outcome: &Outcome) -> comfy_table::Table {
    let mut table = table(&["load of the source", "seconds", "IOPS", "p50", "p99", "p99.9", "longest"]);
    for phase in &outcome.phases {
        let us = phase.latency_us;
        let figures = [us.p50, us.p99, us.p999, us.max].map(|us| format!("{us:.0}"));
        let of = [phase.name.to_owned(), format!("{:.1}", phase.seconds), format!("{:.0}", phase.iops)];
        table.add_row(of.into_iter().chain(figures));
    }
    finish(table, &[0])
}

fn bars(outcome: &Outcome) -> [Bar; 3] {
    let of = format!("snapshot of {} blocks", outcome.blocks);
    let p99 = |phase: usize| outcome.phases[phase].latency_us.p99;
    let ratio = p99(1) / p99(0);
    let rate = outcome.back_bytes as f64 / 1e6 / outcome.back_seconds;
    [
        Bar::new(
            &of,
            "p99 of the source while space comes back at most 1.2 × before",
            format!(
                "{ratio:.2} × ({:.0} to {:.0} µs); the command took {:.0} ms",
                p99(1),
                p99(0),
                outcome.command_ms
            ),
            ratio <= MOST_P99,
        ),
        Bar::new(
            &of,
            "all of its space comes back",
            format!(
                "{} of {} in {:.1} s, {rate:.0} MB/s; {} beyond what volumes map are left",
                show_bytes(outcome.back_bytes),
                show_bytes(outcome.expected_bytes),
                outcome.back_seconds,
                show_bytes(outcome.left_bytes)
            ),
            outcome.left_bytes == 0,
        ),
        Bar::new(&of, "the offline check finds nothing", outcome.check.clone(), true),
    ]
}
