//! Fixed seeds, run as the command runs them.

use quoin_sim::Figures as _;
use quoin_sim_array::{Totals, run_seed};

#[test]
fn seeds_pass_and_exercise_management() {
    let mut totals = Totals::default();
    for seed in 0..24 {
        let outcome = run_seed(seed, false);
        assert_eq!(outcome.violation, None, "seed {seed}");
        totals.add(&outcome.totals);
    }
    let cuts = totals.power_cuts + totals.kills;
    assert!(cuts > 10 && totals.changes > 100 && totals.snapshots > 10 && totals.writes > 500, "{totals}");
}

#[test]
fn a_seed_always_goes_the_same_way_and_another_does_not() {
    for seed in 3000..3004 {
        let (first, second) = (run_seed(seed, false), run_seed(seed, false));
        assert_eq!((first.trace_hash, first.totals), (second.trace_hash, second.totals), "seed {seed}");
        assert_ne!(first.trace_hash, run_seed(seed + 100, false).trace_hash);
    }
}
