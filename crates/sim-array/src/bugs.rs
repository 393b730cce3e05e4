//! The planted bugs that this simulation looks for, and within how many seeds each must be found.

use crate::run_seed;
use anyhow::Result;
use quoin_pool::bugs::Bug;

/// Bugs that only show in what administrators do, or that show there, too; each with the number of seeds, from 0 on,
/// within which it is found.
const BUGS: [(Bug, u64); 1] = [(Bug::KeepOldList, 60)];

/// Looks for every bug and tells how it was found.
///
/// # Errors
/// Some were not found.
pub fn look_for_all() -> Result<()> {
    quoin_sim::bugs::look_for_all(BUGS.into_iter(), |_, seed| run_seed(seed, false).violation)
}
