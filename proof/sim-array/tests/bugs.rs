//! Every planted bug is found within its number of seeds.
#![cfg(feature = "planted-bugs")]

use quoin_sim::search::SearchArgs;

#[test]
fn every_planted_bug_is_found() -> anyhow::Result<()> {
    // What the engine panics with is a finding.
    std::panic::set_hook(Box::new(|_| {}));
    quoin_sim_array::bugs::look_for_all(&SearchArgs::default())
}
