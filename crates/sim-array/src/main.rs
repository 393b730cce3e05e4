//! `quoin-sim-array`: runs seeds of the simulation of the array, and tells what they exercised or how to replay what
//! failed.

use anyhow::{Result, bail};
use clap::Parser;
use quoin_sim_array::{Totals, run_seed};
use std::{
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Seeds from which on a run must have exercised everything.
const ENOUGH_SEEDS: u64 = 150;

/// Runs the array on a simulated world, seed by seed, against a model of what it must remember.
#[derive(Parser)]
#[command(name = "quoin-sim-array", version)]
struct Cli {
    /// How many seeds
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed
    #[arg(long, visible_alias = "first", default_value_t = 0)]
    from: u64,
    /// Stop after so many seconds, however many seeds are left
    #[arg(long)]
    seconds: Option<u64>,
    /// Seeds run at the same time; 0: one a core
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Every so many seeds one is run a second time and must go the same way
    #[arg(long, default_value_t = 10)]
    twice_every: u64,
    /// Plant each known bug in turn, and look for the seed that finds it
    #[cfg(feature = "planted-bugs")]
    #[arg(long)]
    bugs: bool,
    /// A bug to plant
    #[cfg(feature = "planted-bugs")]
    #[arg(long)]
    bug: Option<String>,
    /// Print every boot
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Default)]
struct Found {
    totals: Totals,
    violations: u64,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        // A panic of the engine is a finding like any other, told once with its seed.
        std::panic::set_hook(Box::new(|_| {}));
    }
    #[cfg(feature = "planted-bugs")]
    let outcome = if cli.bugs { quoin_sim_array::bugs::look_for_all() } else { run(&cli) };
    #[cfg(not(feature = "planted-bugs"))]
    let outcome = run(&cli);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    let threads = match cli.threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let (next, found, started) = (AtomicU64::new(cli.from), Mutex::new(Found::default()), Instant::now());
    let over = || cli.seconds.is_some_and(|s| started.elapsed() >= Duration::from_secs(s));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                plant(cli);
                while !over() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= cli.from + cli.seeds {
                        break;
                    }
                    one(seed, cli, &found);
                }
            });
        }
    });
    let Found { totals, violations } = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let seconds = started.elapsed().as_secs_f64();
    let seeds = totals.seeds;
    println!("exercised by {seeds} seeds in {seconds:.1} s, {:.1} a second:", seeds as f64 / seconds);
    print!("{totals}");
    if violations > 0 {
        bail!("{violations} of {seeds} seeds found a violation");
    }
    let missing = totals.missing();
    if seeds >= ENOUGH_SEEDS && !missing.is_empty() {
        bail!("the harness itself failed: nothing exercised {}", missing.join(", "));
    }
    println!("no violation");
    Ok(())
}

fn one(seed: u64, cli: &Cli, found: &Mutex<Found>) {
    let outcome = run_seed(seed, cli.verbose);
    let mut violation = outcome.violation;
    if violation.is_none() && cli.twice_every > 0 && seed.is_multiple_of(cli.twice_every) {
        let again = run_seed(seed, false);
        if again.trace_hash != outcome.trace_hash {
            let (first, second) = (outcome.trace_hash, again.trace_hash);
            violation = Some(format!("not deterministic: trace {first:#x}, then {second:#x}"));
        }
    }
    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
    found.totals.add(&outcome.totals);
    if let Some(violation) = violation {
        found.violations += 1;
        println!("\nVIOLATION: seed {seed}: {violation}");
        println!("  replay: {}", replay(seed, cli));
    }
}

#[cfg(feature = "planted-bugs")]
fn replay(seed: u64, cli: &Cli) -> String {
    let bug = cli.bug.as_ref().map_or_else(String::new, |bug| format!(" --bug {bug}"));
    format!("cargo run -p quoin-sim-array --features planted-bugs -- --from {seed} --seeds 1 -v{bug}")
}

#[cfg(not(feature = "planted-bugs"))]
fn replay(seed: u64, _: &Cli) -> String {
    format!("cargo run -p quoin-sim-array -- --from {seed} --seeds 1 -v")
}

#[cfg(feature = "planted-bugs")]
fn plant(cli: &Cli) {
    quoin_pool::bugs::plant(cli.bug.as_deref().and_then(quoin_sim::bugs::named));
}

#[cfg(not(feature = "planted-bugs"))]
fn plant(_: &Cli) {}
