//! Schedules as the catalog keeps them, and which of their rules are due.

use crate::{
    record::{SCHEDULE_OBJECT, encode},
    timetable::{last_due_ms, rules_problem},
};
use quoin_api::{Every, Rule};
use quoin_base::VolumeId;
use quoin_pool::Transaction;
use quoin_volume::Volume;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

/// The tag that names the schedule, and the one that says which of its rules.
pub(crate) const TAGS: [&str; 2] = ["schedule", "every"];

/// The source of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    Volume(VolumeId),
    Group(Uuid),
}

/// A schedule as the catalog keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScheduleRecord {
    pub(crate) name: String,
    pub(crate) source: Source,
    pub(crate) rules: Vec<Rule>,
    pub(crate) at_minute: u16,
    pub(crate) retain_s: Option<u64>,
    pub(crate) paused: bool,
    pub(crate) created_ms: u64,
    /// The moment that was served last, of each rule.
    pub(crate) served_ms: BTreeMap<Every, u64>,
    pub(crate) last_run_ms: Option<u64>,
}

impl ScheduleRecord {
    pub(crate) fn put(&self, tx: Transaction) -> Transaction {
        tx.put(SCHEDULE_OBJECT, &self.name, encode(self))
    }

    /// Its problem in a catalog, under this key, if it has one.
    pub(crate) fn problem(&self, key: &str) -> Option<String> {
        if self.name == key {
            rules_problem(&self.rules)
        } else {
            Some(format!("it calls itself {}", self.name))
        }
    }

    /// The rules that are due.
    pub(crate) fn due(&self, now_ms: u64) -> Vec<Rule> {
        let is_due = |rule: &&Rule| {
            let served_ms = self.served_ms.get(&rule.every).copied().unwrap_or(self.created_ms);
            last_due_ms(rule.every, self.at_minute, now_ms) > served_ms
        };
        self.rules.iter().filter(is_due).copied().collect()
    }

    /// After the clock was set back: runs that now lie in the future count as served now.
    pub(crate) fn forget_the_future(&mut self, now_ms: u64) {
        self.created_ms = self.created_ms.min(now_ms);
        self.served_ms.values_mut().for_each(|served_ms| *served_ms = (*served_ms).min(now_ms));
    }

    pub(crate) fn took(&self, snapshot: &Volume, every: Option<Every>) -> bool {
        let tags = snapshot.tags();
        tags.get(TAGS[0]).is_some_and(|name| *name == self.name)
            && every.is_none_or(|every| tags.get(TAGS[1]).is_some_and(|own| own == every.name()))
    }
}
