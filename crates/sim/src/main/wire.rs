//! `quoin-sim wire`: seeds of the front ends.

use anyhow::{Result, bail};
use clap::Args;
use quoin_sim::{WireTotals, run_wire_seed};
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Seeds from which on a run must have exercised everything.
const ENOUGH_SEEDS: u64 = 100;

#[derive(Args)]
pub(crate) struct WireArgs {
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
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
    /// Prints every boot.
    #[arg(short, long)]
    verbose: bool,
}

pub(crate) fn run(args: &WireArgs) -> Result<()> {
    let threads = match args.threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let next = AtomicU64::new(args.from);
    let found = Mutex::new((WireTotals::default(), 0));
    let started = Instant::now();
    let over = || args.seconds.is_some_and(|s| started.elapsed() >= Duration::from_secs(s));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !over() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= args.from + args.seeds {
                        break;
                    }
                    one(seed, args, &found);
                }
            });
        }
    });
    let (totals, violations) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
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

fn one(seed: u64, args: &WireArgs, found: &Mutex<(WireTotals, u64)>) {
    let outcome = run_wire_seed(seed, args.verbose);
    let mut violation = outcome.violation;
    if violation.is_none() && args.twice_every > 0 && seed.is_multiple_of(args.twice_every) {
        let again = run_wire_seed(seed, false);
        if again.trace_hash != outcome.trace_hash {
            let (first, second) = (outcome.trace_hash, again.trace_hash);
            violation = Some(format!("not deterministic: trace {first:#x}, then {second:#x}"));
        }
    }
    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
    found.0.add(&outcome.totals);
    if let Some(violation) = violation {
        found.1 += 1;
        println!("\nVIOLATION: seed {seed}: {violation}");
        println!("  replay: cargo run -p quoin-sim -- wire --from {seed} --seeds 1 -v");
    }
}
