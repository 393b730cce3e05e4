//! The planted bugs that this simulation looks for, and within how many seeds each must be found.

use crate::run_seed;
use anyhow::Result;
use quoin_pool::bugs::Bug;
use quoin_sim::{
    bugs::finds,
    search::{self, KnownFile, SearchArgs, Wanted},
};

/// Bugs that only show in what administrators do, or that show there, too; each with the number of seeds, from 0 on,
/// within which it is found.
const BUGS: [Wanted; 1] = [Wanted { bug: Bug::KeepOldList, within: 60 }];

const KNOWN: KnownFile = KnownFile {
    path: concat!(env!("CARGO_MANIFEST_DIR"), "/known-seeds.txt"),
    record_with: "cargo run -p quoin-sim-array --features planted-bugs -- bugs --record",
};

/// Looks for every bug and tells how it was found.
///
/// # Errors
/// As [`search::look_for_all`].
pub fn look_for_all(args: &SearchArgs) -> Result<()> {
    search::look_for_all(args, &BUGS, KNOWN, |bug, seed| finds(bug, || run_seed(seed, false).violation))
}
