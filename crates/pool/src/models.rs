//! Races between threads, every switch between them drawn by a model checker: the pool's own code, on a drive in
//! RAM. Each model is also run with a wrong order planted, which it has to find.

mod bench;
mod pool;
mod readers;

use quoin_world::{Race, plant_race};
use std::panic::catch_unwind;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Runs the model under so many schedules, with a wrong order planted if one is given.
fn explore(race: Option<Race>, times: usize, model: fn()) {
    let seed = from_environment("QUOIN_MODEL_SEED", 1);
    let times = times * from_environment("QUOIN_MODEL_TIMES", 1) as usize;
    let mut config = shuttle::Config::new();
    config.max_steps = shuttle::MaxSteps::FailAfter(20_000_000);
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    plant_race(race);
    let scheduler = shuttle::scheduler::RandomScheduler::new_from_seed(seed, times);
    shuttle::Runner::new(scheduler, config).run(model);
    plant_race(None);
}

/// The model holds, and fails within `patience` times as many schedules with the wrong order.
fn holds_but_not_with(race: Race, times: usize, patience: usize, model: fn()) {
    explore(None, times, model);
    let found = catch_unwind(|| explore(Some(race), times * patience, model)).is_err();
    plant_race(None);
    assert!(found, "the model does not see {race:?}");
}
