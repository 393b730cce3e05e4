//! The planted bugs, and within how many seeds each must be found.

use crate::{Choices, Faults, Load, run_seed};
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

/// Bugs that can be planted and that the simulation does not reach: each needs two rare things at once, such as a
/// root that tears where it overwrites the only good one. `docs/limits.md` names them.
const UNREACHED: [Bug; 3] = [Bug::SameRootSlot, Bug::IgnoreReaders, Bug::EarlyNumberReuse];

/// Every planted bug that the simulation has to find.
pub fn all() -> Vec<Planted> {
    let reached = Bug::ALL.into_iter().filter(|bug| !UNREACHED.contains(bug));
    reached.map(|bug| Planted { bug, within: within(bug), choices: choices(bug) }).collect()
}

/// The bug of this name.
pub fn named(name: &str) -> Option<Bug> {
    Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == name)
}

fn within(bug: Bug) -> u64 {
    match bug {
        Bug::TailPastDisplaced | Bug::EarlyExtentReuse => 1000,
        _ => 200,
    }
}

fn choices(_: Bug) -> Choices {
    Choices { faults: None::<Faults>, load: None::<Load>, verbose: false }
}

impl Planted {
    /// Runs seeds until one finds the bug: how many that took, and what was found. `None` if the stated number
    /// of seeds, times `patience`, was not enough.
    pub fn look(&self, patience: u64) -> Option<(u64, String)> {
        (0..self.within * patience).find_map(|seed| {
            plant(Some(self.bug));
            let what = run_seed(seed, self.choices).violation;
            plant(None);
            // A seed that fails without it too tells nothing about the bug.
            let what = what.filter(|_| run_seed(seed, self.choices).violation.is_none());
            what.map(|what| (seed + 1, what))
        })
    }
}
