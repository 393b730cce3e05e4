//! `quoin-sim-array`: runs seeds of the simulation of the array, and tells what they exercised or how to replay what
//! failed.

use clap::Parser;
use quoin_sim::{Outcome, SeedArgs, Simulation, run_seeds};
use quoin_sim_array::{Totals, run_seed};
use std::process::ExitCode;

/// Seeds from which on a run must have exercised everything.
const ENOUGH_SEEDS: u64 = 150;

/// Runs the array on a simulated world, seed by seed, against a model of what it must remember.
#[derive(Parser)]
#[command(name = "quoin-sim-array", version)]
struct Cli {
    #[cfg(feature = "planted-bugs")]
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    seeds: SeedArgs,
    /// A bug to plant
    #[cfg(feature = "planted-bugs")]
    #[arg(long)]
    bug: Option<String>,
}

#[cfg(feature = "planted-bugs")]
#[derive(clap::Subcommand)]
enum Command {
    /// Plants each known bug in turn and looks for a seed that finds it.
    Bugs(quoin_sim::search::SearchArgs),
}

impl Simulation for Cli {
    type Totals = Totals;

    fn run(&self, seed: u64, verbose: bool) -> Outcome<Totals> {
        run_seed(seed, verbose)
    }

    fn replay(&self, seed: u64) -> String {
        replay(seed, self)
    }

    fn enough_seeds(&self) -> Option<u64> {
        Some(ENOUGH_SEEDS)
    }

    fn begin_thread(&self) {
        plant(self);
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        // A panic of the engine is a finding like any other, told once with its seed.
        std::panic::set_hook(Box::new(|_| {}));
    }
    #[cfg(feature = "planted-bugs")]
    let outcome = match &cli.command {
        Some(Command::Bugs(args)) => quoin_sim_array::bugs::look_for_all(args),
        None => run_seeds(&cli.seeds, &cli),
    };
    #[cfg(not(feature = "planted-bugs"))]
    let outcome = run_seeds(&cli.seeds, &cli);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
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
