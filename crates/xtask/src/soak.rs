//! `cargo xtask soak`: the simulation and the trials, again and again with new seeds.

use crate::{
    ci::trial,
    step::{As, cargo, program, step, summary},
};
use anyhow::Result;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long and from which seed.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Minutes to go on
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// The first seed; the time of day if not given
    #[arg(long)]
    seed: Option<u64>,
}

/// Ends with the first failure, whose seed has been printed, or when the time is up.
pub(crate) fn run(options: &Options) -> Result<()> {
    cargo(&["build", "--workspace", "--locked"])?;
    let until = Instant::now() + Duration::from_secs(options.minutes * 60);
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    for seed in options.seed.unwrap_or(now).. {
        if Instant::now() >= until {
            break;
        }
        let first = (seed * 1000).to_string();
        let simulation = ["--first".to_owned(), first, "--seeds".to_owned(), "1000".to_owned()];
        let crash = format!("--rounds 6 --seconds 15 --seed {seed}");
        summary(&[
            step("simulation", || program("debug", "quoin-sim", As::User, &simulation)),
            step("crashes", || trial(&crash)),
            step("power cuts", || trial(&format!("{crash} --power-cut mix"))),
            step("torn writes", || trial(&format!("{crash} --power-cut tear"))),
        ])?;
    }
    Ok(())
}
