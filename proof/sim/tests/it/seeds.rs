//! Fixed seeds, run as the command runs them.

use quoin_sim::{Choices, Faults, Figures as _, Load, Totals, run_seed};

fn run(seeds: impl Iterator<Item = u64>, choices: Choices) -> Totals {
    let mut totals = Totals::default();
    for seed in seeds {
        let outcome = run_seed(seed, choices);
        assert_eq!(outcome.violation, None, "seed {seed}, {choices:?}");
        totals.add(&outcome.totals);
    }
    totals
}

#[test]
fn seeds_of_every_kind_pass_and_exercise_the_engine() {
    let totals = run(0..40, Choices::default());
    assert!(totals.power_cuts > 20 && totals.checkpoints > 100 && totals.replayed_records > 100, "{totals}");
}

#[test]
fn every_fault_and_every_load_passes() {
    for faults in Faults::ALL {
        run(1000..1004, Choices { faults: Some(faults), ..Choices::default() });
    }
    for load in Load::ALL {
        run(2000..2003, Choices { load: Some(load), ..Choices::default() });
    }
}

#[test]
fn a_seed_always_goes_the_same_way_and_another_does_not() {
    for seed in 3000..3008 {
        let (first, second) = (run_seed(seed, Choices::default()), run_seed(seed, Choices::default()));
        assert_eq!(first.trace_hash, second.trace_hash, "seed {seed}");
        assert_eq!(first.totals, second.totals, "seed {seed}");
        assert_ne!(first.trace_hash, run_seed(seed + 100, Choices::default()).trace_hash);
    }
}

/// Each seed found a bug in the engine when it was run first; which seed would find it again changes with the
/// engine, so that the tests of the pool hold the bug itself.
#[test]
fn seeds_that_once_failed_pass() {
    run([9, 18, 67, 68, 201, 271, 299, 302, 322, 839].into_iter(), Choices::default());
    let slow_and_full = Choices { faults: Some(Faults::Slow), load: Some(Load::Full), ..Choices::default() };
    run([574, 847, 1122].into_iter(), slow_and_full);
    // Here the model was wrong: of what a block's other sectors tell, and of zeroes in doubt over certain ones.
    let slow_and_churned =
        Choices { faults: Some(Faults::Slow), load: Some(Load::Churn), ..Choices::default() };
    run([159].into_iter(), slow_and_churned);
    run([28].into_iter(), Choices { little_ram: true, ..Choices::default() });
}

/// Pools that keep a fault domain spare are filled, and lose a drive at any moment: they stay online, and it is made up for.
#[test]
fn full_pools_with_a_spare_domain_lose_drives_and_stay_online() {
    for layout in ["mirror", "raid5"] {
        let layout = layout.parse().ok();
        let spare = Choices {
            faults: Some(Faults::Vanish),
            load: Some(Load::Full),
            layout,
            spare: true,
            ..Choices::default()
        };
        let totals = run(5000..5008, spare);
        assert!(totals.vanished_drives > 4 && totals.rebuilt_columns > 0 && totals.offline == 0, "{totals}");
    }
}
