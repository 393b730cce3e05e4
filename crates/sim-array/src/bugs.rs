//! The planted bugs that this simulation looks for, and within how many seeds each must be found.

use crate::run_seed;
use anyhow::{Result, bail};
use quoin_pool::bugs::{Bug, plant};

/// Bugs that only show in what administrators do, or that show there, too.
const BUGS: [(Bug, u64); 1] = [(Bug::KeepOldList, 60)];

/// The bugs, each with the number of seeds, from 0 on, within which it is found.
pub fn all() -> impl Iterator<Item = (Bug, u64)> {
    BUGS.into_iter()
}

/// Runs seeds until one finds the bug: how many that took, and what was found. `None` if `within` were not enough.
pub fn look(bug: Bug, within: u64) -> Option<(u64, String)> {
    (0..within).find_map(|seed| {
        plant(Some(bug));
        let what = run_seed(seed, false).violation;
        plant(None);
        // A seed that fails without it too tells nothing about the bug.
        let what = what.filter(|_| run_seed(seed, false).violation.is_none());
        what.map(|what| (seed + 1, what))
    })
}

/// Looks for every bug and tells how it was found.
///
/// # Errors
/// Some were not found.
pub fn look_for_all() -> Result<()> {
    let mut missed = Vec::new();
    for (bug, within) in all() {
        let name = format!("{bug:?}");
        match look(bug, within) {
            Some((seeds, how)) => {
                let how = how.lines().next().unwrap_or_default();
                println!("{name:<20} found after {seeds:>4} of {within:>4} seeds: {how}");
            }
            None => {
                println!("{name:<20} NOT FOUND within {within} seeds");
                missed.push(name);
            }
        }
    }
    match missed.is_empty() {
        true => Ok(()),
        false => bail!("not found: {}", missed.join(", ")),
    }
}
