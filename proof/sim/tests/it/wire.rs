//! Fixed seeds of the front ends, run as the command runs them.

use quoin_sim::{Figures as _, WireTotals, run_wire_seed};

#[test]
fn seeds_pass_and_exercise_the_front_ends() {
    let mut totals = WireTotals::default();
    for seed in 0..25 {
        let outcome = run_wire_seed(seed, false);
        assert_eq!(outcome.violation, None, "seed {seed}");
        totals.add(&outcome.totals);
    }
    assert!(totals.logins > 100 && totals.reinstatements > 30 && totals.aborted > 50, "{totals}");
}

#[test]
fn a_seed_always_goes_the_same_way() {
    for seed in 1000..1004 {
        let (first, second) = (run_wire_seed(seed, false), run_wire_seed(seed, false));
        assert_eq!(first.trace_hash, second.trace_hash, "seed {seed}");
        assert_eq!(first.totals, second.totals, "seed {seed}");
    }
}
