//! The keeper of schedules: as the catalog has them, and how many of their runs there were.
//!
//! Invariants:
//! 1. A schedule is known by its own name.
//! 2. There are at most [`SCHEDULES_MAX`], if the catalog had no more.
//! 3. The counts are of the process: reading the catalog again does not touch them.

use crate::{
    ArrayError, ScheduleError,
    record::{SCHEDULE_OBJECT, decode},
    schedule_record::ScheduleRecord,
};
use quoin_api::Rule;
use quoin_pool::Pool;
use std::collections::BTreeMap;

/// How many there may be.
const SCHEDULES_MAX: usize = 1000;

/// The keeper of schedules.
#[derive(Default)]
pub(crate) struct Schedules {
    by_name: BTreeMap<String, ScheduleRecord>,
    runs: u64,
    failures: u64,
}

/// Reads the schedules in the catalog of a pool.
pub(crate) fn read_schedules(pool: &Pool) -> Result<BTreeMap<String, ScheduleRecord>, ArrayError> {
    pool.list(SCHEDULE_OBJECT)
        .into_iter()
        .map(|(key, value)| Ok((key.clone(), decode(&key, &value)?)))
        .collect()
}

impl Schedules {
    /// Takes over the schedules of a newly opened pool.
    pub(crate) fn restore(&mut self, by_name: BTreeMap<String, ScheduleRecord>) {
        self.by_name = by_name;
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// All of them, by name.
    pub(crate) fn list(&self) -> Vec<ScheduleRecord> {
        self.by_name.values().cloned().collect()
    }

    /// The schedule of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&ScheduleRecord> {
        self.by_name.get(name)
    }

    /// Refuses another schedule whose name is taken, or for which there is no room.
    pub(crate) fn require_room_for(&self, name: &str) -> Result<(), ScheduleError> {
        let name = name.to_owned();
        if self.by_name.contains_key(&name) {
            return Err(ScheduleError::Exists { name });
        }
        if self.by_name.len() >= SCHEDULES_MAX {
            let why = format!("there are {SCHEDULES_MAX} schedules, the maximum");
            return Err(ScheduleError::Invalid { name, why });
        }
        Ok(())
    }

    /// Adds or replaces a schedule that was committed.
    pub(crate) fn put(&mut self, record: ScheduleRecord) {
        self.by_name.insert(record.name.clone(), record);
    }

    /// Removes a schedule whose deletion was committed.
    pub(crate) fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
    }

    /// The rules that are due now, each with the name of its schedule.
    pub(crate) fn due(&mut self, now_ms: u64) -> Vec<(String, Rule)> {
        self.by_name.values_mut().for_each(|record| record.forget_the_future(now_ms));
        let active = self.by_name.values().filter(|record| !record.paused);
        active
            .flat_map(|record| record.due(now_ms).into_iter().map(|rule| (record.name.clone(), rule)))
            .collect()
    }

    /// Counts a run.
    pub(crate) fn count_run(&mut self) {
        self.runs += 1;
    }

    /// Counts a run that failed.
    pub(crate) fn count_failure(&mut self) {
        self.failures += 1;
    }

    /// Runs since the process started.
    pub(crate) fn runs(&self) -> u64 {
        self.runs
    }

    /// Of them, those that failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failures
    }
}
