//! Snapshots of a group of volumes, each of which is written to: whether a write takes longer while one is taken.
//!
//! A window begins with a command and lasts as long as said. In every other one, in an order that is drawn, the command
//! takes a snapshot of the group; in the rest it only asks for the group, so that the cost of a process that starts is
//! in both. A write counts in a window if it was on its way in it. As many windows before the first snapshot tell what
//! snapshots cost that does not fall into their windows.
//!
//! The longest write of all is the drive's: drives stall by themselves, for longer than a snapshot may hold a write. What
//! snapshots do to the longest writes is told by two things that stalls do not decide. One is for how long the array held
//! writers, by its own clock. The other is late windows: those with a write that took longer, by what is allowed, than the
//! longest of a window usually does; with snapshots there may be no more of them than chance makes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use quoin_initiator::{Disk, Rng};
use serde::Serialize;

use super::{BLOCK_BYTES, Bar, Bench, Common, rest, tell, volume};
use crate::load::At;
use crate::markdown::{finish, table};
use crate::quoin::Serving;
use crate::stats::{Percentiles, chance_of_more, histogram, median};
use crate::units::{parse_bytes, parse_count, show_bytes};

const GROUP: &str = "bench";
/// What is filled of each volume but the first.
const SMALL_BLOCKS: u64 = 4096;
/// How much longer than without snapshots the longest write may take.
const LONGEST_US: f64 = 5_000.0;
/// Chance makes differences that are as likely as this, or likelier.
const CHANCE: f64 = 0.01;
/// Medians closer than this are the same.
const SAME: f64 = 0.05;

/// What group, how large, how often.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Provisioned size of each volume and mapped blocks of the first, as SIZE:BLOCKS; repeatable.
    #[arg(long = "case", value_name = "SIZE:BLOCKS", value_parser = parse_case,
          default_values = ["1g:100k", "10t:100k", "10t:1m", "10t:10m"])]
    cases: Vec<(u64, u64)>,
    /// Blocks of the first volume that are written. More are copied within it by reference: they are mapped like the others,
    /// and take no space.
    #[arg(long, value_parser = parse_count, default_value = "1m")]
    written: u64,
    /// Volumes of the group.
    #[arg(long, default_value_t = 16)]
    volumes: u16,
    /// Snapshots taken, and as many windows without.
    #[arg(long, default_value_t = 50)]
    snapshots: usize,
    /// Length of a window.
    #[arg(long, default_value_t = 250)]
    window_ms: u64,
    /// Sets kept; older ones are deleted between windows.
    #[arg(long, default_value_t = 10)]
    keep: usize,
    /// Pause of each writer between two writes, in microseconds; there is one for each volume.
    #[arg(long, default_value_t = 1000)]
    pace_us: u64,
}

fn parse_case(text: &str) -> Result<(u64, u64), String> {
    let (size, blocks) = text.split_once(':').ok_or_else(|| format!("'{text}' is not SIZE:BLOCKS"))?;
    let (size, blocks) = (parse_bytes(size)?, parse_count(blocks)?);
    if blocks * BLOCK_BYTES <= size {
        Ok((size, blocks))
    } else {
        Err(format!("{blocks} blocks of 8 KiB do not fit in {}", show_bytes(size)))
    }
}

/// Writes of all windows of a kind.
#[derive(Debug, Clone, Serialize)]
struct Windows {
    windows: usize,
    writes: u64,
    latency_us: Percentiles,
    /// Each window's longest.
    longest_us: Vec<f64>,
}

impl Windows {
    /// How many had a write longer than this.
    fn above(&self, us: f64) -> usize {
        self.longest_us.iter().filter(|longest| **longest > us).count()
    }
}

/// What one case came to.
#[derive(Debug, Serialize)]
struct Outcome {
    provisioned_bytes: u64,
    blocks: u64,
    before: Windows,
    with: Windows,
    without: Windows,
    /// How long the command took.
    command_ms: f64,
    /// The longest that a snapshot held writers, as the array tells.
    held_us: f64,
}

impl Outcome {
    /// A window with a longer write than this had one that was too long: more than may be above what is usual without
    /// snapshots.
    fn late_us(&self) -> f64 {
        median(self.without.longest_us.iter().copied()) + LONGEST_US
    }
}

/// What happens in a window.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Before,
    With,
    Without,
}

struct Window {
    kind: Kind,
    from: Instant,
    to: Instant,
    command: Duration,
}

type Writes = Vec<(Instant, Instant)>;

pub(crate) fn run(options: &Options) -> Result<bool> {
    ensure!(options.volumes > 0 && options.snapshots > 0, "--volumes and --snapshots must be above 0");
    let outcomes = options.cases.iter().map(|&(bytes, blocks)| case(options, bytes, blocks));
    let outcomes = outcomes.collect::<Result<Vec<_>>>()?;
    let bars: Vec<Bar> = outcomes.iter().flat_map(bars).collect();
    tell(&options.common, figures(&outcomes), &outcomes, &bars)
}

fn case(options: &Options, bytes: u64, blocks: u64) -> Result<Outcome> {
    let small = SMALL_BLOCKS.min(bytes / BLOCK_BYTES) * BLOCK_BYTES;
    // Beside the blocks: what the writers overwrite while sets hold the former content.
    let written = blocks.min(options.written);
    let room = written * BLOCK_BYTES + u64::from(options.volumes) * small * 2 + (4 << 30);
    let bench = Bench::create(&options.common, room)?;
    let serving = bench.array.serve()?;
    serving.create_host()?;
    eprintln!("writing {} volumes of {}, {blocks} blocks in the first", options.volumes, show_bytes(bytes));
    let mut units = Vec::new();
    for number in 0..options.volumes {
        let (filled, mapped) =
            if number == 0 { (written, blocks) } else { (small / BLOCK_BYTES, small / BLOCK_BYTES) };
        let at = volume(&serving, &name(number), bytes, number + 1, filled * BLOCK_BYTES)?;
        map_more(&serving, &name(number), filled, mapped)?;
        units.push((at, mapped));
    }
    let members: Vec<String> = (0..options.volumes).flat_map(|n| ["--volume".to_owned(), name(n)]).collect();
    let create = ["group", "create", GROUP].into_iter().chain(members.iter().map(String::as_str));
    serving.tell(&create.collect::<Vec<_>>())?;
    rest(&serving)?;

    eprintln!("{} windows of each kind", options.snapshots);
    let stop = AtomicBool::new(false);
    let pace = Duration::from_micros(options.pace_us);
    let (windows, writes) = thread::scope(|scope| {
        let writers = units.iter().map(|(at, blocks)| scope.spawn(|| write(at, *blocks, pace, &stop)));
        let writers: Vec<_> = writers.collect();
        let windows = windows(options, &serving);
        stop.store(true, Ordering::Relaxed);
        let writes = writers.into_iter().map(|writer| writer.join().expect("a writer panicked"));
        (windows, writes.collect::<Result<Vec<Writes>>>())
    });
    let (windows, writes) = (windows?, writes?.concat());
    let commands = windows.iter().filter(|window| window.kind == Kind::With);
    Ok(Outcome {
        provisioned_bytes: bytes,
        blocks,
        before: summary(&windows, &writes, Kind::Before),
        with: summary(&windows, &writes, Kind::With),
        without: summary(&windows, &writes, Kind::Without),
        command_ms: median(commands.map(|window| window.command.as_secs_f64() * 1e3)),
        held_us: serving.longest_fork_ms()? * 1e3,
    })
}

/// Copies the blocks that a volume has behind them until it maps so many.
fn map_more(serving: &Serving<'_>, name: &str, filled: u64, mapped: u64) -> Result<()> {
    let mut done = filled;
    while done < mapped {
        let blocks = done.min(mapped - done);
        let (to, length) = ((done * BLOCK_BYTES).to_string(), (blocks * BLOCK_BYTES).to_string());
        serving.tell(&["volume", "copy", name, name, "--to", &to, "--length", &length, "--force"])?;
        done += blocks;
    }
    Ok(())
}

fn name(number: u16) -> String {
    format!("bench{number}")
}

/// Overwrites blocks of one volume at random, one at a time.
fn write(at: &At, blocks: u64, pace: Duration, stop: &AtomicBool) -> Result<Writes> {
    let mut disk = Disk::open(&at.endpoint(), at.lun)?;
    let mut rng = Rng::new(u64::from(at.lun));
    let mut data = vec![0; BLOCK_BYTES as usize];
    let mut writes = Writes::new();
    while !stop.load(Ordering::Relaxed) {
        rng.fill(&mut data[..64]);
        let started = Instant::now();
        disk.write(rng.below(blocks) * BLOCK_BYTES, &mut data)?;
        writes.push((started, Instant::now()));
        thread::sleep(pace);
    }
    disk.close()?;
    Ok(writes)
}

fn windows(options: &Options, serving: &Serving<'_>) -> Result<Vec<Window>> {
    let length = Duration::from_millis(options.window_ms);
    let mut rng = Rng::new(1);
    let (mut windows, mut sets) = (Vec::new(), Vec::new());
    thread::sleep(Duration::from_secs(2));
    let mut window = |kind: Kind, command: &[&str]| -> Result<()> {
        let from = Instant::now();
        serving.tell(command)?;
        let command = from.elapsed();
        thread::sleep(length.saturating_sub(command));
        windows.push(Window { kind, from, to: from + length, command });
        thread::sleep(length);
        Ok(())
    };
    for _ in 0..options.snapshots {
        window(Kind::Before, &["group", "show", GROUP])?;
    }
    for number in 0..options.snapshots {
        let set = format!("s{number}");
        let first = rng.below(2) == 0;
        for taken in [first, !first] {
            if taken {
                window(Kind::With, &["group", "snapshot", GROUP, &set])?
            } else {
                window(Kind::Without, &["group", "show", GROUP])?
            }
        }
        sets.push(set);
        if sets.len() > options.keep {
            serving.tell(&["group", "delete-snapshot", GROUP, &sets.remove(0), "--now"])?;
            thread::sleep(length);
        }
    }
    Ok(windows)
}

fn summary(windows: &[Window], writes: &[(Instant, Instant)], kind: Kind) -> Windows {
    let windows: Vec<&Window> = windows.iter().filter(|window| window.kind == kind).collect();
    let mut all = histogram();
    let mut longest = vec![Duration::ZERO; windows.len()];
    for &(started, ended) in writes {
        let within = windows.iter().position(|window| started < window.to && ended >= window.from);
        if let Some(window) = within {
            all.saturating_record((ended - started).as_nanos() as u64);
            longest[window] = longest[window].max(ended - started);
        }
    }
    Windows {
        windows: windows.len(),
        writes: all.len(),
        latency_us: Percentiles::of(&all),
        longest_us: longest.iter().map(|longest| longest.as_secs_f64() * 1e6).collect(),
    }
}

fn figures(outcomes: &[Outcome]) -> comfy_table::Table {
    let mut table = table(&[
        "provisioned",
        "blocks",
        "windows",
        "writes",
        "p50",
        "p99",
        "longest of a window, median",
        "longest",
        "late windows",
        "command ms",
        "held",
    ]);
    for outcome in outcomes {
        let kinds = [("before", &outcome.before), ("with", &outcome.with), ("without", &outcome.without)];
        for (what, windows) in kinds {
            let us = windows.latency_us;
            table.add_row([
                show_bytes(outcome.provisioned_bytes),
                outcome.blocks.to_string(),
                format!("{} {what}", windows.windows),
                windows.writes.to_string(),
                format!("{:.0}", us.p50),
                format!("{:.0}", us.p99),
                format!("{:.0}", median(windows.longest_us.iter().copied())),
                format!("{:.0}", us.max),
                windows.above(outcome.late_us()).to_string(),
                if what == "with" { format!("{:.0}", outcome.command_ms) } else { String::new() },
                if what == "with" { format!("{:.0}", outcome.held_us) } else { String::new() },
            ]);
        }
    }
    finish(table, &[2])
}

fn bars(outcome: &Outcome) -> [Bar; 3] {
    let of = format!("{}, {} blocks", show_bytes(outcome.provisioned_bytes), outcome.blocks);
    let (with, without) = (&outcome.with, &outcome.without);
    let (p50_with, p50_without) = (with.latency_us.p50, without.latency_us.p50);
    let extra = p50_with - p50_without;
    let late = outcome.late_us();
    let (late_with, late_without) = (with.above(late), without.above(late));
    let chance = chance_of_more(late_with, with.windows, late_without, without.windows);
    [
        Bar::new(
            &of,
            "median extra latency of a write: none",
            format!("{extra:+.0} µs ({p50_with:.0} to {p50_without:.0})"),
            extra <= p50_without * SAME,
        ),
        Bar::new(
            &of,
            "a snapshot holds writers at most 5 ms",
            format!("{:.2} ms", outcome.held_us / 1e3),
            outcome.held_us <= LONGEST_US,
        ),
        Bar::new(
            &of,
            "windows with a write 5 ms above the usual longest: no more than chance makes (1 %)",
            format!(
                "{late_with} of {} to {late_without} of {} ({:.0} %)",
                with.windows,
                without.windows,
                chance * 100.0
            ),
            chance >= CHANCE,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_counts_where_it_was_on_its_way() {
        let zero = Instant::now();
        let at = |ms: u64| zero + Duration::from_millis(ms);
        let window = |kind, from| Window { kind, from: at(from), to: at(from + 10), command: Duration::ZERO };
        let windows = [window(Kind::With, 10), window(Kind::Without, 30), window(Kind::With, 50)];
        let writes =
            [(0, 5), (8, 12), (19, 40), (45, 46), (55, 56), (59, 70)].map(|(from, to)| (at(from), at(to)));
        let with = summary(&windows, &writes, Kind::With);
        assert_eq!((with.windows, with.writes), (2, 4));
        assert!((with.latency_us.max - 21_000.0).abs() < 50.0, "{}", with.latency_us.max);
        assert_eq!((with.above(10_900.0), with.above(11_100.0), with.above(21_100.0)), (2, 1, 0));
        let without = summary(&windows, &writes, Kind::Without);
        assert_eq!(without.writes, 1, "a long write counts in each kind of window it touches");
    }

    #[test]
    fn cases_are_sizes_and_blocks() {
        assert_eq!(parse_case("10t:4m"), Ok((10 << 40, 4_000_000)));
        assert!(parse_case("1g:1m").unwrap_err().contains("do not fit"));
        assert!(parse_case("1g").is_err());
    }
}
