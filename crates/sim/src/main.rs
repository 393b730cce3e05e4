//! `quoin-sim`: runs seeds of the simulation, and tells what they exercised or how to replay what failed.

#[path = "main/wire.rs"]
mod wire;

use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand};
use quoin_sim::{Choices, Faults, Load, Totals, run_seed};
use std::{
    io::{IsTerminal, Write as _},
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Seeds from which on a run must have exercised everything.
const ENOUGH_SEEDS: u64 = 150;

/// Runs the storage engine on a simulated world, seed by seed, against a model of what it must remember.
#[derive(Parser)]
#[command(name = "quoin-sim", version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Runs iSCSI and NBD sessions over a simulated network, with volumes and pool below them.
    Wire(wire::WireArgs),
    /// Plants each known bug in turn and looks for the seed that finds it.
    #[cfg(feature = "planted-bugs")]
    Bugs {
        /// How many times the stated number of seeds each bug is given.
        #[arg(long, default_value_t = 1)]
        patience: u64,
        /// Only this one.
        #[arg(long)]
        only: Option<String>,
    },
}

#[derive(Args)]
struct RunArgs {
    /// How many seeds.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first seed.
    #[arg(long, visible_alias = "first", default_value_t = 0)]
    from: u64,
    /// Stop after so many seconds, however many seeds are left.
    #[arg(long)]
    seconds: Option<u64>,
    /// Seeds run at the same time; 0: one a core.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Every so many seeds one is run a second time and must go the same way.
    #[arg(long, default_value_t = 10)]
    twice_every: u64,
    /// What goes wrong with drives, for all seeds: none, slow, errors, death, hang, silent, rot, latent, roots.
    #[arg(long, value_parser = parse_faults)]
    faults: Option<Faults>,
    /// What the clients do, for all seeds: mixed, hot, full, churn, uniform, rewrite, forks, sparse.
    #[arg(long, value_parser = parse_load)]
    load: Option<Load>,
    /// Next to no RAM for metadata and read cache, for all seeds.
    #[arg(long)]
    little_ram: bool,
    /// A bug to plant.
    #[cfg(feature = "planted-bugs")]
    #[arg(long)]
    bug: Option<String>,
    /// Prints every boot.
    #[arg(short, long)]
    verbose: bool,
}

fn parse_faults(name: &str) -> Result<Faults, String> {
    Faults::ALL.into_iter().find(|f| f.name() == name).ok_or_else(|| "no such fault".into())
}

fn parse_load(name: &str) -> Result<Load, String> {
    Load::ALL.into_iter().find(|l| l.name() == name).ok_or_else(|| "no such load".into())
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // A panic of the engine is a finding like any other, told once with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    let outcome = match cli.command {
        Some(Command::Wire(args)) => wire::run(&args),
        #[cfg(feature = "planted-bugs")]
        Some(Command::Bugs { patience, only }) => look_for_bugs(patience, only.as_deref()),
        None => run(&cli.run),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

struct Found {
    totals: Totals,
    violations: u64,
}

fn run(args: &RunArgs) -> Result<()> {
    let threads = match args.threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let (faults, load, little_ram, verbose) = (args.faults, args.load, args.little_ram, args.verbose);
    let choices = Choices { faults, load, little_ram, verbose };
    let (next, ended) = (AtomicU64::new(args.from), AtomicBool::new(false));
    let found = Mutex::new(Found { totals: Totals::default(), violations: 0 });
    let started = Instant::now();
    let over = || args.seconds.is_some_and(|s| started.elapsed() >= Duration::from_secs(s));
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    plant(args);
                    while !over() {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= args.from + args.seeds {
                            break;
                        }
                        one(seed, args, choices, &found);
                    }
                })
            })
            .collect();
        if !args.verbose && std::io::stdout().is_terminal() {
            scope.spawn(|| live_line(&found, &ended, started));
        }
        for worker in workers {
            let _ = worker.join();
        }
        ended.store(true, Ordering::Relaxed);
    });
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let seconds = started.elapsed().as_secs_f64();
    let seeds = found.totals.seeds;
    println!("exercised by {seeds} seeds in {seconds:.1} s, {:.1} a second:", seeds as f64 / seconds);
    print!("{}", found.totals);
    if found.violations > 0 {
        bail!("{} of {seeds} seeds found a violation", found.violations);
    }
    let missing = found.totals.missing();
    if seeds >= ENOUGH_SEEDS && args.faults.is_none() && args.load.is_none() && !missing.is_empty() {
        bail!("the harness itself failed: nothing exercised {}", missing.join(", "));
    }
    println!("no violation");
    Ok(())
}

fn one(seed: u64, args: &RunArgs, choices: Choices, found: &Mutex<Found>) {
    let outcome = run_seed(seed, choices);
    let mut violation = outcome.violation;
    if violation.is_none() && args.twice_every > 0 && seed.is_multiple_of(args.twice_every) {
        let again = run_seed(seed, Choices { verbose: false, ..choices });
        if again.trace_hash != outcome.trace_hash {
            violation = Some(format!(
                "not deterministic: trace {:#x}, then {:#x}",
                outcome.trace_hash, again.trace_hash
            ));
        }
    }
    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
    found.totals.add(&outcome.totals);
    if let Some(violation) = violation {
        found.violations += 1;
        println!("\nVIOLATION: seed {seed}: {violation}");
        println!("  replay: {}", replay(seed, args));
    }
}

/// The command that runs this seed alone in the same way.
fn replay(seed: u64, args: &RunArgs) -> String {
    let mut command = "cargo run -p quoin-sim".to_owned();
    let bug = bug_of(args);
    if bug.is_some() {
        command += " --features planted-bugs";
    }
    command += &format!(" -- --from {seed} --seeds 1 -v");
    if let Some(faults) = args.faults {
        command += &format!(" --faults {}", faults.name());
    }
    if let Some(load) = args.load {
        command += &format!(" --load {}", load.name());
    }
    if let Some(bug) = bug {
        command += &format!(" --bug {bug}");
    }
    command
}

fn live_line(found: &Mutex<Found>, ended: &AtomicBool, started: Instant) {
    while !ended.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(200));
        let (t, violations) = {
            let found = found.lock().unwrap_or_else(PoisonError::into_inner);
            (found.totals, found.violations)
        };
        print!(
            "\r{} seeds ({:.1}/s), {} boots, {} cuts, {} kills, {} writes, {} checkpoints, {} MiB cleaned, {} laps, {} torn, {violations} violations ",
            t.seeds,
            t.seeds as f64 / started.elapsed().as_secs_f64(),
            t.boots,
            t.power_cuts,
            t.kills,
            t.writes,
            t.checkpoints,
            t.cleaned_bytes >> 20,
            t.journal_wraps,
            t.torn_batches,
        );
        let _ = std::io::stdout().flush();
    }
    println!();
}

#[cfg(feature = "planted-bugs")]
fn bug_of(args: &RunArgs) -> Option<&str> {
    args.bug.as_deref()
}

#[cfg(not(feature = "planted-bugs"))]
fn bug_of(_: &RunArgs) -> Option<&str> {
    None
}

#[cfg(feature = "planted-bugs")]
fn plant(args: &RunArgs) {
    let name = args.bug.as_deref();
    quoin_pool::bugs::plant(name.and_then(quoin_sim::bugs::named));
}

#[cfg(not(feature = "planted-bugs"))]
fn plant(_: &RunArgs) {}

#[cfg(feature = "planted-bugs")]
fn look_for_bugs(patience: u64, only: Option<&str>) -> Result<()> {
    let mut missed = Vec::new();
    for bug in quoin_sim::bugs::all() {
        let name = format!("{:?}", bug.bug);
        if only.is_some_and(|only| only != name) {
            continue;
        }
        match bug.look(patience) {
            Some((seeds, how)) => {
                let how = how.lines().next().unwrap_or_default();
                println!("{name:<20} found after {seeds:>4} of {:>4} seeds: {how}", bug.within);
            }
            None => {
                println!("{name:<20} NOT FOUND within {} seeds", bug.within * patience);
                missed.push(name);
            }
        }
    }
    match missed.is_empty() {
        true => Ok(()),
        false => bail!("not found: {}", missed.join(", ")),
    }
}
