//! The planted bugs, and within how many seeds each must be found.

use crate::{Choices, Faults, Load, run_seed};
use anyhow::{Result, bail};
use quoin_pool::bugs::{Bug, plant};

/// A planted bug and what it takes to find it.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    /// The bug.
    pub bug: Bug,
    /// Seeds, from 0 on, within which it is found.
    pub within: u64,
    /// What the seeds are made to be like, where ordinary ones would take long.
    pub choices: Choices,
}

/// Every planted bug of [`Bug::ALL`], with what it takes to find it.
pub fn all() -> Vec<Planted> {
    let bugs = Bug::ALL.into_iter();
    bugs.map(|bug| Planted { bug, within: within(bug), choices: choices(bug) }).collect()
}

/// The bug of this name.
pub fn named(name: &str) -> Option<Bug> {
    Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == name)
}

/// Several times what it takes today: which seeds find a bug changes with every change of the engine.
fn within(bug: Bug) -> u64 {
    match bug {
        Bug::EarlySegmentReuse
        | Bug::SkipReadVerify
        | Bug::ReplayTorn
        | Bug::SkipRecoveryFlush
        | Bug::TailPastDisplaced
        | Bug::KeepWaived
        | Bug::EarlyPageReuse
        | Bug::EarlyNumberReuse
        | Bug::StayClosed
        | Bug::VerifyLastBatchOnly => 400,
        Bug::EarlyExtentReuse | Bug::ReplayIntoForked | Bug::PublishMovesEarly => 600,
        Bug::SkipMendRoots => 1000,
        Bug::SameRootSlot => 4000,
        _ => 200,
    }
}

/// What ordinary seeds would find too, after far more of them, is looked for where it shows.
fn choices(bug: Bug) -> Choices {
    let (faults, load) = match bug {
        // A root that is older than a whole turn of the segments leads to what was overwritten.
        Bug::SameRootSlot => (None, Some(Load::Full)),
        // The journal must go round while one checkpoint is being made.
        Bug::EarlyExtentReuse => (Some(Faults::Slow), Some(Load::Rewrite)),
        Bug::SkipMendRoots => (Some(Faults::Roots), None),
        Bug::PublishMovesEarly => (Some(Faults::Slow), Some(Load::Full)),
        // A read must last from before a number is freed until it is used again.
        Bug::EarlyNumberReuse => (Some(Faults::Late), None),
        // The same for a node of a map, which a read must fetch from a drive on its way down.
        Bug::EarlyPageReuse => (Some(Faults::Late), Some(Load::Turns)),
        // A write must wait for its batch while a checkpoint is made.
        Bug::TailPastDisplaced => (Some(Faults::Slow), Some(Load::Hot)),
        // The process must outlive the hang, and what was stuck must meet what was written since.
        Bug::TakeBackEarly => (Some(Faults::Hang), None),
        _ => (None, None),
    };
    // With little RAM a checkpoint waits for pages, and takes longer; and nodes of maps are read from drives.
    let little_ram = matches!(bug, Bug::EarlyExtentReuse | Bug::EarlyPageReuse);
    Choices { faults, load, little_ram, ..Choices::default() }
}

impl Planted {
    /// Looks for it with seeds from 0 on: see [`look`].
    pub fn look(&self, patience: u64) -> Option<(u64, String)> {
        look(self.bug, self.within * patience, |seed| run_seed(seed, self.choices).violation)
    }
}

/// Runs seeds until one finds the bug: how many that took, and what was found. `None` if `within` were not enough.
pub fn look(bug: Bug, within: u64, run: impl Fn(u64) -> Option<String>) -> Option<(u64, String)> {
    (0..within).find_map(|seed| {
        plant(Some(bug));
        let what = run(seed);
        plant(None);
        // A seed that fails without it too tells nothing about the bug.
        let what = what.filter(|_| run(seed).is_none());
        what.map(|what| (seed + 1, what))
    })
}

/// Looks for each bug within so many seeds, and tells how it was found.
///
/// # Errors
/// Some were not found.
pub fn look_for_all(
    bugs: impl Iterator<Item = (Bug, u64)>,
    run: impl Fn(Bug, u64) -> Option<String>,
) -> Result<()> {
    let mut missed = Vec::new();
    for (bug, within) in bugs {
        let name = format!("{bug:?}");
        match look(bug, within, |seed| run(bug, seed)) {
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
