//! Races between threads, every switch between them drawn by a model checker: the pool's own code, on a drive in
//! RAM. Each model is also run with a wrong order planted, which it has to find.

mod bench;
mod pool;
mod readers;

use crate::bugs::{Bug, plant};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use std::panic::catch_unwind;

/// Changes of tasks that a PCT schedule has, beside those at which a task waits.
const CHANGES: usize = 4;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Runs the model under so many schedules: every other one changes tasks at random places, every other one runs a
/// task as far as it goes but for a few places (PCT), which finds orders in which much happens between two steps.
fn explore(times: usize, model: fn()) {
    let seed = from_environment("QUOIN_MODEL_SEED", 1);
    let times = times * from_environment("QUOIN_MODEL_TIMES", 1) as usize;
    let mut config = shuttle::Config::new();
    config.max_steps = shuttle::MaxSteps::FailAfter(20_000_000);
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    let random = RandomScheduler::new_from_seed(seed, times.div_ceil(2));
    let few_changes = PctScheduler::new_from_seed(seed, CHANGES, times / 2);
    shuttle::Runner::new(random, config.clone()).run(model);
    shuttle::Runner::new(few_changes, config).run(model);
}

/// The model holds, and fails within `patience` times as many schedules with the wrong order.
fn holds_but_not_with(race: Bug, times: usize, patience: usize, model: fn()) {
    explore(times, model);
    plant(Some(race));
    let found = catch_unwind(|| explore(times * patience, model)).is_err();
    plant(None);
    assert!(found, "the model does not see {race:?}");
}
