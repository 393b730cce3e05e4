//! `cargo xtask ci`: everything a change has to pass.

use crate::{
    layers, races, shape, sources,
    step::{self, As, Outcome, cargo, cargo_doc, program, step, summary},
};
use anyhow::{Result, ensure};
use std::process::Command;

/// Seeds of the simulation in CI; a soak runs many more.
const SEEDS: u32 = 300;
/// Of these, from the same first one on, again with a metadata budget far below what there is.
const LITTLE_RAM_SEEDS: &str = "60";

/// Of these, again with three slices; three in ten have as many anyway.
const SLICES_SEEDS: &str = "60";

/// Seeds of pools whose data is protected, with copies and with parity.
const PROTECTED_SEEDS: &str = "40";
/// Seeds in which volumes get other layouts.
const POLICIES_SEEDS: &str = "30";
/// Seeds in which drives go away and come back.
const VANISH_SEEDS: &str = "20";

/// Seeds of the simulation of the array.
const ARRAY_SEEDS: u32 = 40;
/// Seeds of sessions over a simulated network: enough that everything was exercised.
const WIRE_SEEDS: &str = "120";

/// What to run of it.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only these steps, separated by commas
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// List the steps
    #[arg(long)]
    list: bool,
}

/// The seams for planted bugs are in all of them: one build is enough for the tests that plant some and for those that do not.
const TESTS: &[&str] = &[
    "test",
    "--workspace",
    "--locked",
    "--no-fail-fast",
    "--features",
    "quoin-volume/planted-bugs,quoin-sim/planted-bugs,quoin-sim-array/planted-bugs",
];
/// The test of the simulations that may have to search.
const PLANTED_BUGS: &str = "every_planted_bug_is_found";
const BUILD: &str = "build";

type Step = (&'static str, fn() -> Result<()>);

const STEPS: &[Step] = &[
    ("format", || cargo(&["fmt", "--all", "--check"])),
    ("layers", layers::check),
    ("sources", sources::check),
    ("shape", || shape::run(&shape::Options::default())),
    ("clippy", || cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])),
    ("docs", || cargo_doc(&["doc", "--workspace", "--no-deps", "--locked"])),
    ("tests", || cargo(&[TESTS, &["--", "--skip", PLANTED_BUGS]].concat())),
    ("planted bugs", || cargo(&[TESTS, &["--test", "bugs", "--", "--nocapture", PLANTED_BUGS]].concat())),
    // The programs without the seams, over those that the tests were built with.
    (BUILD, || cargo(&["build", "--workspace", "--locked"])),
    ("OpenAPI document", || step::run(&mut Command::new("proof/scripts/openapi.sh"))),
    ("races", || races::run(&races::Options { seed: 1, times: 1 })),
    ("simulation", || program("debug", "quoin-sim", As::User, &["--seeds".to_owned(), SEEDS.to_string()])),
    ("simulation with three slices", || {
        let args = ["--seeds", SLICES_SEEDS, "--slices", "3"].map(str::to_owned);
        program("debug", "quoin-sim", As::User, &args)
    }),
    ("simulation with little RAM", || {
        let args = ["--seeds", LITTLE_RAM_SEEDS, "--little-ram"].map(str::to_owned);
        program("debug", "quoin-sim", As::User, &args)
    }),
    ("simulation with mirrors", || {
        let args = ["--seeds", PROTECTED_SEEDS, "--layout", "mirror"].map(str::to_owned);
        program("debug", "quoin-sim", As::User, &args)
    }),
    ("simulation with parity", || {
        let args = ["--seeds", PROTECTED_SEEDS, "--layout", "raid5"].map(str::to_owned);
        program("debug", "quoin-sim", As::User, &args)?;
        let args = ["--seeds", PROTECTED_SEEDS, "--layout", "raid6"].map(str::to_owned);
        program("debug", "quoin-sim", As::User, &args)
    }),
    ("simulation with policies", || {
        ["mirror", "raid5"].into_iter().try_for_each(|layout| {
            let args = ["--seeds", POLICIES_SEEDS, "--layout", layout, "--policies"].map(str::to_owned);
            program("debug", "quoin-sim", As::User, &args)
        })
    }),
    ("simulation with absent drives", || {
        ["mirror", "raid6"].into_iter().try_for_each(|layout| {
            let args = ["--seeds", VANISH_SEEDS, "--layout", layout, "--faults", "vanish"].map(str::to_owned);
            program("debug", "quoin-sim", As::User, &args)
        })
    }),
    ("simulation of full pools with a spare domain", || {
        ["mirror", "raid5"].into_iter().try_for_each(|layout| {
            let wanted = ["--seeds", VANISH_SEEDS, "--layout", layout];
            let full = ["--faults", "vanish", "--load", "full", "--spare"];
            let args: Vec<_> = wanted.into_iter().chain(full).map(str::to_owned).collect();
            program("debug", "quoin-sim", As::User, &args)
        })
    }),
    ("simulation of the array", || {
        program("debug", "quoin-sim-array", As::User, &["--seeds".to_owned(), ARRAY_SEEDS.to_string()])
    }),
    ("simulated sessions", || {
        program("debug", "quoin-sim", As::User, &["wire", "--seeds", WIRE_SEEDS].map(str::to_owned))
    }),
    ("raw snapshots", || {
        program("debug", "quoin-trial", As::User, &["raw-snapshots", "--rounds", "30"].map(str::to_owned))
    }),
    ("raw snapshots with three slices", || {
        let args = ["raw-snapshots", "--rounds", "25", "--slices", "3"].map(str::to_owned);
        program("debug", "quoin-trial", As::User, &args)
    }),
    ("failures", || {
        program("debug", "quoin-trial", As::User, &["failures", "--histories", "15"].map(str::to_owned))
    }),
    ("failing drives", || trial("drives", "--rounds 2 --seconds 4 --kill-every 2 --slices 2")),
    // The database's three volumes are in slices of their own.
    ("snapshots", || trial("snapshots", "--rounds 2 --seconds 3 --refresh-every 2 --slices 3")),
    ("crashes", || trial("postgres", "--rounds 4 --seconds 10 --examine-every 2")),
    ("power cuts", || trial("postgres", "--rounds 4 --seconds 8 --power-cut mix")),
    ("power losses", || trial("postgres", "--rounds 2 --seconds 8 --power-cut lose")),
    ("lying drives", || trial("postgres", "--rounds 2 --seconds 6 --power-cut lose --ignore-flushes")),
    ("bench", || program("debug", "quoin-bench", As::User, &["compare", "--quick"].map(str::to_owned))),
    ("guest", || program("debug", "quoin-trial", As::User, &["guest".to_owned()])),
    ("make up", || step::run(Command::new("proof/scripts/make_up.sh").env("PROFILE", "dev"))),
];

/// Runs the steps one after the other, also after one has failed, unless nothing can be built.
pub(crate) fn run(options: &Options) -> Result<()> {
    let names: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
    if options.list {
        println!("{}", names.join("\n"));
        return Ok(());
    }
    for only in &options.only {
        ensure!(names.contains(&only.as_str()), "no step called {only}; there are: {}", names.join(", "));
    }
    let chosen = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let mut outcomes = Vec::new();
    for (name, work) in STEPS.iter().filter(|(name, _)| chosen(name)) {
        outcomes.push(step(name, work));
        // What comes after would try the programs of an earlier build.
        if *name == BUILD && outcomes.last().is_some_and(Outcome::is_failure) {
            break;
        }
    }
    summary(&outcomes)
}

/// A trial with PostgreSQL on volumes of an array.
pub(crate) fn trial(name: &str, args: &str) -> Result<()> {
    let args: Vec<String> = [name].into_iter().chain(args.split(' ')).map(str::to_owned).collect();
    program("debug", "quoin-trial", As::Root, &args)
}
