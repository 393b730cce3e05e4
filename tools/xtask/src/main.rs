//! `cargo xtask`: what CI runs, and other work on the project itself.

mod ci;
mod fuzz;
mod layers;
mod races;
mod shape;
mod soak;
mod sources;
mod step;

use anyhow::{Context, Result};
use clap::Parser;
use std::path::Path;
use step::{As, cargo, program};

/// Work on the project: checks, tests, soak runs, measurements
///
/// Example: cargo xtask ci --only format,layers,clippy
#[derive(Parser)]
#[command(bin_name = "cargo xtask", verbatim_doc_comment)]
enum Cli {
    /// Everything CI runs; a change that passes is good
    Ci(ci::Options),
    /// Check the dependencies between crates against layers.toml
    Layers,
    /// Check the rules for source files: a header, no file too long, nothing put off
    Sources,
    /// Count what shows the shape of the source (import loops, long functions, open fields, asserts), and refuse what got worse
    ///
    /// Examples: cargo xtask shape; cargo xtask shape --list functions-over-60-lines
    #[command(verbatim_doc_comment)]
    Shape(shape::Options),
    /// Throw bytes at every parser with libFuzzer; what it finds is kept for the ordinary tests
    Fuzz(fuzz::Options),
    /// Look for races: models of the engine under a model checker
    Races(races::Options),
    /// Simulation, races, trials, hostile peers, fuzz replay with new seeds, until the time is up or one fails
    Soak(soak::Options),
    /// Measure against a peer; arguments go to quoin-bench
    Bench {
        /// Arguments of quoin-bench; `compare` if none are given
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

fn main() -> Result<()> {
    // Every path below is relative to the root of the project.
    let manifest = std::env::var("CARGO_MANIFEST_DIR").context("run this as `cargo xtask`")?;
    std::env::set_current_dir(Path::new(&manifest).join("../.."))?;
    match Cli::parse() {
        Cli::Ci(options) => ci::run(&options),
        Cli::Layers => layers::check(),
        Cli::Sources => sources::check(),
        Cli::Shape(options) => shape::run(&options),
        Cli::Fuzz(options) => fuzz::run(&options),
        Cli::Races(options) => races::run(&options),
        Cli::Soak(options) => soak::run(&options),
        Cli::Bench { args } => bench(args),
    }
}

fn bench(mut args: Vec<String>) -> Result<()> {
    if args.is_empty() {
        args.push("compare".to_owned());
    }
    cargo(&["build", "--release", "--package", "quoin", "--package", "quoin-bench"])?;
    program("release", "quoin-bench", As::User, &args)
}
