//! Runs seeds of a simulation on all cores, and tells what they exercised or how to replay what failed.

use crate::Figures;
use anyhow::{Result, bail};
use std::{
    io::{IsTerminal, Write as _},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// How often the live line is written.
const LIVE_EVERY: Duration = Duration::from_millis(200);

/// What came of a seed.
#[derive(Clone, Debug)]
pub struct Outcome<T> {
    /// What was exercised.
    pub totals: T,
    /// Two runs of the same seed and code agree in it.
    pub trace_hash: u64,
    /// The violation, with the boot in which it was met.
    pub violation: Option<String>,
}

/// Which seeds to run.
#[derive(clap::Args, Clone, Debug)]
pub struct SeedArgs {
    /// How many seeds.
    #[arg(long, default_value_t = 300)]
    pub seeds: u64,
    /// The first seed.
    #[arg(long, visible_alias = "first", default_value_t = 0)]
    pub from: u64,
    /// Stop after so many seconds, however many seeds are left.
    #[arg(long)]
    pub seconds: Option<u64>,
    /// Seeds run at the same time; 0: one a core.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// Every so many seeds one is run a second time and must go the same way.
    #[arg(long, default_value_t = 10)]
    pub twice_every: u64,
    /// Prints every boot.
    #[arg(short, long)]
    pub verbose: bool,
}

/// A simulation that has seeds.
pub trait Simulation: Sync {
    /// What its seeds exercise.
    type Totals: Figures;

    /// Runs a seed; prints each boot if `verbose`.
    fn run(&self, seed: u64, verbose: bool) -> Outcome<Self::Totals>;

    /// The command that runs a seed alone in the same way.
    fn replay(&self, seed: u64) -> String;

    /// From how many seeds on a run must have exercised everything; `None`: it need not.
    fn enough_seeds(&self) -> Option<u64>;

    /// Called on each thread before it runs its first seed.
    fn begin_thread(&self) {}
}

struct Found<T> {
    totals: T,
    violations: u64,
}

/// Runs seeds, prints violations and what was exercised.
///
/// # Errors
/// There was a violation, or something was never exercised.
pub fn run_seeds<S: Simulation>(args: &SeedArgs, simulation: &S) -> Result<()> {
    let threads = match args.threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let (next, ended) = (AtomicU64::new(args.from), AtomicBool::new(false));
    let found = Mutex::new(Found { totals: S::Totals::default(), violations: 0 });
    let started = Instant::now();
    let over = || args.seconds.is_some_and(|s| started.elapsed() >= Duration::from_secs(s));
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    simulation.begin_thread();
                    while !over() {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= args.from + args.seeds {
                            break;
                        }
                        one(seed, args, simulation, &found);
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
    let Found { totals, violations } = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (seconds, seeds) = (started.elapsed().as_secs_f64(), totals.seeds());
    println!("exercised by {seeds} seeds in {seconds:.1} s, {:.1} a second:", seeds as f64 / seconds);
    print!("{totals}");
    if violations > 0 {
        bail!("{violations} of {seeds} seeds found a violation");
    }
    let missing = totals.missing();
    if simulation.enough_seeds().is_some_and(|enough| seeds >= enough) && !missing.is_empty() {
        bail!("the harness itself failed: nothing exercised {}", missing.join(", "));
    }
    println!("no violation");
    Ok(())
}

fn one<S: Simulation>(seed: u64, args: &SeedArgs, simulation: &S, found: &Mutex<Found<S::Totals>>) {
    let Outcome { totals, trace_hash, mut violation } = simulation.run(seed, args.verbose);
    if violation.is_none() && args.twice_every > 0 && seed.is_multiple_of(args.twice_every) {
        let again = simulation.run(seed, false).trace_hash;
        if again != trace_hash {
            violation = Some(format!("not deterministic: trace {trace_hash:#x}, then {again:#x}"));
        }
    }
    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
    found.totals.add(&totals);
    if let Some(violation) = violation {
        found.violations += 1;
        println!("\nVIOLATION: seed {seed}: {violation}");
        println!("  replay: {}", simulation.replay(seed));
    }
}

fn live_line<T: Figures>(found: &Mutex<Found<T>>, ended: &AtomicBool, started: Instant) {
    while !ended.load(Ordering::Relaxed) {
        thread::sleep(LIVE_EVERY);
        let (seeds, violations) = {
            let found = found.lock().unwrap_or_else(PoisonError::into_inner);
            (found.totals.seeds(), found.violations)
        };
        let rate = seeds as f64 / started.elapsed().as_secs_f64();
        print!("\r{seeds} seeds ({rate:.1} a second), {violations} violations ");
        let _ = std::io::stdout().flush();
    }
    println!();
}
