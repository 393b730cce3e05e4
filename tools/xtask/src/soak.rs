//! `cargo xtask soak`: everything that is drawn by seed, again and again with new seeds.

use crate::{
    ci::trial,
    races,
    step::{As, Outcome, cargo, program, step, summary},
};
use anyhow::{Result, ensure};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long and from which seed.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Minutes to go on; the turn that has begun is ended
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// The first seed; the time of day if not given
    #[arg(long)]
    seed: Option<u64>,
    /// Go on after a failure, and tell all of them in the end
    #[arg(long)]
    keep_going: bool,
    /// Only these parts, separated by commas
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// List the parts
    #[arg(long)]
    list: bool,
}

/// One part of a turn. It gets the turn's seed and its number, counted from 0.
struct Part {
    name: &'static str,
    /// Only in every so many turns, and in the first.
    every: u64,
    work: fn(u64) -> Work,
}

enum Work {
    /// A program of the workspace.
    Program(&'static str, String),
    /// PostgreSQL on an array: which trial, and its arguments.
    Trial(&'static str, String),
    /// Models under a model checker.
    Races(u64),
    /// Cargo.
    Cargo(&'static str),
}

const SIM_SEEDS: u64 = 400;
/// Times as many schedules of the models as in CI.
const RACE_TIMES: u64 = 10;

const PARTS: &[Part] = &[
    Part { name: "simulation", every: 1, work: |seed| simulation(seed, "") },
    Part { name: "three slices", every: 1, work: |seed| simulation(seed, " --slices 3") },
    Part { name: "little memory", every: 1, work: |seed| simulation(seed, " --little-ram") },
    Part { name: "full pool", every: 2, work: |seed| simulation(seed, " --load full") },
    Part { name: "churn", every: 2, work: |seed| simulation(seed, " --load churn") },
    Part { name: "failing drives", every: 2, work: |seed| simulation(seed, " --faults errors") },
    Part { name: "silent faults", every: 2, work: |seed| simulation(seed, " --faults silent") },
    Part { name: "late reads", every: 2, work: |seed| simulation(seed, " --faults late --load turns") },
    Part { name: "simulation of the array", every: 1, work: array },
    Part { name: "rot", every: 2, work: |seed| simulation(seed, " --faults rot --load full") },
    Part { name: "latent errors", every: 2, work: |seed| simulation(seed, " --faults latent") },
    Part { name: "damaged roots", every: 4, work: |seed| simulation(seed, " --faults roots") },
    Part { name: "sparse volumes", every: 2, work: |seed| simulation(seed, " --load sparse") },
    Part { name: "sessions", every: 1, work: sessions },
    Part {
        name: "crashes",
        every: 1,
        work: |seed| Work::Trial("postgres", format!("--rounds 6 --seconds 15 --seed {seed}")),
    },
    Part { name: "power cuts", every: 1, work: |seed| power_cuts(seed, "mix") },
    Part { name: "torn writes", every: 2, work: |seed| power_cuts(seed, "tear") },
    Part { name: "power losses", every: 2, work: |seed| power_cuts(seed, "lose") },
    Part {
        name: "snapshots",
        every: 1,
        work: |seed| {
            let slices = slices_of(seed);
            Work::Trial("snapshots", format!("--rounds 12 --seconds 10 --seed {seed} --slices {slices}"))
        },
    },
    Part {
        name: "raw snapshots",
        every: 1,
        work: |seed| {
            let slices = slices_of(seed);
            Work::Program(
                "quoin-trial",
                format!("raw-snapshots --rounds 400 --seed {seed} --slices {slices}"),
            )
        },
    },
    Part {
        name: "failures",
        every: 1,
        work: |seed| Work::Program("quoin-trial", format!("failures --histories 200 --seed {seed}")),
    },
    Part {
        name: "failing drives",
        every: 1,
        work: |seed| {
            let (layout, drives) = [("raid5", 7), ("mirror", 5), ("raid6", 9)][seed as usize % 3];
            let plan = format!("--rounds 3 --seconds 8 --kill-every 2 --layout {layout} --drives {drives}");
            Work::Trial("drives", format!("{plan} --seed {seed} --slices {}", slices_of(seed)))
        },
    },
    Part { name: "lying drives", every: 4, work: lying_drives },
    Part {
        name: "hostile peers",
        every: 1,
        work: |seed| fuzz(seed, " --target iscsi_session --seconds 120"),
    },
    Part { name: "fuzz replay", every: 1, work: |seed| fuzz(seed, " --seconds 240") },
    Part { name: "races", every: 1, work: Work::Races },
    Part { name: "planted bugs", every: 8, work: |_| planted_bugs() },
];

/// How many slices the pool of a trial has: groups span slices in every other one.
fn slices_of(seed: u64) -> u8 {
    if seed.is_multiple_of(2) { 1 } else { 3 }
}

fn simulation(seed: u64, more: &str) -> Work {
    let first = seed.wrapping_mul(SIM_SEEDS) % (1 << 48);
    Work::Program("quoin-sim", format!("--first {first} --seeds {SIM_SEEDS}{more}"))
}

fn array(seed: u64) -> Work {
    let first = seed.wrapping_mul(SIM_SEEDS) % (1 << 48);
    Work::Program("quoin-sim-array", format!("--first {first} --seeds {SIM_SEEDS}"))
}

fn sessions(seed: u64) -> Work {
    let first = seed.wrapping_mul(SIM_SEEDS) % (1 << 48);
    Work::Program("quoin-sim", format!("wire --first {first} --seeds {SIM_SEEDS}"))
}

fn power_cuts(seed: u64, how: &str) -> Work {
    Work::Trial("postgres", format!("--rounds 6 --seconds 15 --seed {seed} --power-cut {how}"))
}

fn lying_drives(seed: u64) -> Work {
    Work::Trial("postgres", format!("--rounds 2 --seconds 6 --seed {seed} --power-cut lose --ignore-flushes"))
}

fn fuzz(seed: u64, more: &str) -> Work {
    Work::Program("quoin-fuzz", format!("mutate proof/fuzz --seed {seed}{more}"))
}

fn planted_bugs() -> Work {
    Work::Cargo("run --locked --package quoin-sim --features planted-bugs -- bugs --patience 4")
}

impl Work {
    /// The command to replay it with.
    fn line(&self) -> String {
        match self {
            Work::Program(program, args) => format!("cargo run --bin {program} -- {args}"),
            Work::Trial(name, args) => format!("cargo run --bin quoin-trial -- {name} {args}"),
            Work::Races(seed) => format!("cargo xtask races --seed {seed} --times {RACE_TIMES}"),
            Work::Cargo(args) => format!("cargo {args}"),
        }
    }

    fn run(&self) -> Result<()> {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        match self {
            Work::Program(name, args) => program("debug", name, As::User, &words(args)),
            Work::Trial(name, args) => trial(name, args),
            Work::Races(seed) => races::run(&races::Options { seed: *seed, times: RACE_TIMES }),
            Work::Cargo(args) => crate::step::run(crate::step::cargo_command().args(words(args))),
        }
    }
}

/// Ends when the time is up, or with the first failure. How to replay it is printed, and once more at the end.
pub(crate) fn run(options: &Options) -> Result<()> {
    let names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
    if options.list {
        println!("{}", names.join("\n"));
        return Ok(());
    }
    for only in &options.only {
        ensure!(names.contains(&only.as_str()), "no part called {only}; there are: {}", names.join(", "));
    }
    cargo(&["build", "--workspace", "--locked"])?;
    let until = Instant::now() + Duration::from_secs(options.minutes * 60);
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let first = options.seed.unwrap_or(now);
    let chosen = |part: &&Part| options.only.is_empty() || options.only.iter().any(|only| only == part.name);
    let (mut outcomes, mut failed) = (Vec::new(), Vec::new());
    'turns: for turn in 0.. {
        let seed = first + turn;
        for part in PARTS.iter().filter(chosen).filter(|part| turn % part.every == 0) {
            if Instant::now() >= until {
                break 'turns;
            }
            let work = (part.work)(seed);
            let outcome = step(part.name, || work.run());
            if outcome.is_failure() {
                println!("== again: {}", work.line());
                failed.push(work.line());
            }
            outcomes.push(outcome);
            if !failed.is_empty() && !options.keep_going {
                break 'turns;
            }
        }
    }
    tell(&outcomes, &failed)
}

fn tell(outcomes: &[Outcome], failed: &[String]) -> Result<()> {
    let told = summary(outcomes);
    if !failed.is_empty() {
        println!("\n== to replay what failed\n{}", failed.join("\n"));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_replayed_by_the_line_that_is_printed() {
        let part = |name: &str| PARTS.iter().find(|part| part.name == name).map(|part| (part.work)(7).line());
        assert_eq!(
            part("little memory").unwrap(),
            "cargo run --bin quoin-sim -- --first 2800 --seeds 400 --little-ram"
        );
        assert_eq!(part("races").unwrap(), "cargo xtask races --seed 7 --times 10");
        assert!(part("power cuts").unwrap().contains("--seed 7 --power-cut mix"));
    }
}
