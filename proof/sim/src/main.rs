//! `quoin-sim`: runs seeds of the simulation, and tells what they exercised or how to replay what failed.

#[path = "main/wire.rs"]
mod wire;

use clap::{Args, Parser, Subcommand};
use quoin_base::Layout;
use quoin_sim::{Choices, Faults, Load, Outcome, SeedArgs, Simulation, Totals, run_seed, run_seeds};
use std::process::ExitCode;

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
    /// Plants each known bug in turn and looks for a seed that finds it.
    #[cfg(feature = "planted-bugs")]
    Bugs(quoin_sim::search::SearchArgs),
}

#[derive(Args)]
struct RunArgs {
    #[command(flatten)]
    seeds: SeedArgs,
    /// What goes wrong with drives, for all seeds: none, slow, errors, death, late, hang, silent, rot, latent, roots, column.
    #[arg(long, value_parser = parse_faults)]
    faults: Option<Faults>,
    /// What the clients do, for all seeds: mixed, hot, full, churn, uniform, rewrite, forks, sparse, turns.
    #[arg(long, value_parser = parse_load)]
    load: Option<Load>,
    /// Next to no RAM for metadata and read cache, for all seeds.
    #[arg(long)]
    little_ram: bool,
    /// Divide the pool into this many slices; by default some seeds have three
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=4))]
    slices: Option<u8>,
    /// Lay each extent of the journal on this many drives; by default some seeds have two or three
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=4))]
    columns: Option<u8>,
    /// Protect data so: mirror, mirror-3, raid5, raid6, 8+2; by default nothing is protected
    #[arg(long)]
    layout: Option<Layout>,
    /// Have drives leave, be removed and come back in all seeds where they may; by default in some
    #[arg(long)]
    leaving: bool,
    /// Have drives become longer in all seeds; by default in some
    #[arg(long)]
    growing: bool,
    /// Deduplicate volumes in all seeds; by default in a quarter
    #[arg(long)]
    deduplicated: bool,
    /// Give volumes other layouts while they are used; with a layout that protects data
    #[arg(long, requires = "layout")]
    policies: bool,
    /// Keep a fault domain spare, so that drives vanish from full pools too; with a layout that protects data
    #[arg(long, requires = "layout")]
    spare: bool,
    /// A bug to plant.
    #[cfg(feature = "planted-bugs")]
    #[arg(long)]
    bug: Option<String>,
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
        Some(Command::Wire(args)) => run_seeds(&args.seeds, &args),
        #[cfg(feature = "planted-bugs")]
        Some(Command::Bugs(args)) => quoin_sim::bugs::look_for_all(&args),
        None => run_seeds(&cli.run.seeds, &cli.run),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

impl RunArgs {
    fn choices(&self, verbose: bool) -> Choices {
        Choices {
            faults: self.faults,
            load: self.load,
            little_ram: self.little_ram,
            slices: self.slices,
            columns: self.columns,
            layout: self.layout,
            leaving: self.leaving,
            growing: self.growing,
            deduplicated: self.deduplicated,
            policies: self.policies,
            spare: self.spare,
            verbose,
        }
    }
}

impl Simulation for RunArgs {
    type Totals = Totals;

    fn run(&self, seed: u64, verbose: bool) -> Outcome<Totals> {
        run_seed(seed, self.choices(verbose))
    }

    fn replay(&self, seed: u64) -> String {
        let mut command = "cargo run -p quoin-sim".to_owned();
        let bug = bug_of(self);
        if bug.is_some() {
            command += " --features planted-bugs";
        }
        command += &format!(" -- --from {seed} --seeds 1 -v");
        if let Some(faults) = self.faults {
            command += &format!(" --faults {}", faults.name());
        }
        if let Some(load) = self.load {
            command += &format!(" --load {}", load.name());
        }
        if self.little_ram {
            command += " --little-ram";
        }
        if let Some(slices) = self.slices {
            command += &format!(" --slices {slices}");
        }
        if let Some(columns) = self.columns {
            command += &format!(" --columns {columns}");
        }
        if let Some(layout) = self.layout {
            command += &format!(" --layout {layout}");
        }
        if self.leaving {
            command += " --leaving";
        }
        if self.growing {
            command += " --growing";
        }
        if self.deduplicated {
            command += " --deduplicated";
        }
        if self.policies {
            command += " --policies";
        }
        if self.spare {
            command += " --spare";
        }
        if let Some(bug) = bug {
            command += &format!(" --bug {bug}");
        }
        command
    }

    fn enough_seeds(&self) -> Option<u64> {
        (self.faults.is_none() && self.load.is_none() && self.layout.is_none()).then_some(ENOUGH_SEEDS)
    }

    fn begin_thread(&self) {
        plant(self);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_replayed_with_all_that_was_chosen_for_it() {
        let words = "quoin-sim --faults slow --load full --little-ram --layout raid6 --leaving --growing --seeds 9 \
             --from 4";
        let cli = Cli::parse_from(words.split(' '));
        let replay = cli.run.replay(7);
        let (_, options) = replay.split_once(" -- ").unwrap();
        let again = Cli::parse_from(["quoin-sim"].into_iter().chain(options.split(' ')));
        assert_eq!((again.run.seeds.from, again.run.seeds.seeds), (7, 1));
        assert_eq!(again.run.choices(true), cli.run.choices(true));
    }
}
