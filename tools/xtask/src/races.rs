//! `cargo xtask races`: the models of what threads do to each other, under a model checker.

use crate::step::{cargo_command, run as run_command};
use anyhow::Result;

/// Which schedules, and how many.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Draws the schedules
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// How many times the usual number of them
    #[arg(long, default_value_t = 1)]
    pub(crate) times: u64,
}

/// Models of `world`, then of `pool`: built apart from everything else, for their locks are the model checker's.
pub(crate) fn run(options: &Options) -> Result<()> {
    let world = "test --locked --package quoin-world --features shuttle --test models";
    let pool = "test --locked --package quoin-pool --features shuttle,planted-bugs --lib models";
    for line in [world, pool] {
        let mut command = cargo_command();
        command.args(line.split(' ')).env("QUOIN_MODEL_SEED", options.seed.to_string());
        run_command(command.env("QUOIN_MODEL_TIMES", options.times.to_string()))?;
    }
    Ok(())
}
