//! Every planted bug is found within its number of seeds.
//!
//! A test target of its own: it is built with planted bugs, and silences the panics of its whole process.
#![cfg(feature = "planted-bugs")]

use quoin_sim::search::SearchArgs;

#[test]
fn every_planted_bug_is_found() -> anyhow::Result<()> {
    // What the engine panics with is a finding.
    std::panic::set_hook(Box::new(|_| {}));
    quoin_sim::bugs::look_for_all(&SearchArgs::default())
}
