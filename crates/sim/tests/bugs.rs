//! Every planted bug is found within its number of seeds.
#![cfg(feature = "planted-bugs")]

#[test]
fn every_planted_bug_is_found() {
    std::panic::set_hook(Box::new(|_| {}));
    let missed: Vec<_> = quoin_sim::bugs::all()
        .into_iter()
        .filter(|planted| planted.look(1).is_none())
        .map(|planted| format!("{:?} within {} seeds", planted.bug, planted.within))
        .collect();
    assert!(missed.is_empty(), "not found: {}", missed.join(", "));
}
