//! `quoin-sim wire`: seeds of the front ends.

use clap::Args;
use quoin_sim::{Outcome, SeedArgs, Simulation, WireTotals, run_wire_seed};

/// Seeds from which on a run must have exercised everything.
const ENOUGH_SEEDS: u64 = 100;

#[derive(Args)]
pub(crate) struct WireArgs {
    #[command(flatten)]
    pub(crate) seeds: SeedArgs,
}

impl Simulation for WireArgs {
    type Totals = WireTotals;

    fn run(&self, seed: u64, verbose: bool) -> Outcome<WireTotals> {
        run_wire_seed(seed, verbose)
    }

    fn replay(&self, seed: u64) -> String {
        format!("cargo run -p quoin-sim -- wire --from {seed} --seeds 1 -v")
    }

    fn enough_seeds(&self) -> Option<u64> {
        Some(ENOUGH_SEEDS)
    }
}
