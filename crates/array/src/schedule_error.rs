//! Why requests about schedules were refused, and the problem reported to clients.

use quoin_api::{NextStep as Next, Problem, ProblemKind as Kind};
use quoin_volume::BadName;
use thiserror::Error;

/// Why a request about schedules was refused. [`ScheduleError::problem`] adds what to do next.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ScheduleError {
    /// The name breaks the rules for names.
    #[error(transparent)]
    Name(BadName),
    /// The schedule asked for cannot be.
    #[error("schedule {name}: {why}")]
    Invalid {
        /// Its name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The name is taken.
    #[error("schedule {name} already exists")]
    Exists {
        /// The name.
        name: String,
    },
    /// No schedule has the name.
    #[error("schedule {name} does not exist")]
    NotFound {
        /// The name asked for.
        name: String,
    },
    /// Its source was deleted.
    #[error("the volume or group of schedule {name} was deleted")]
    SourceDeleted {
        /// The schedule.
        name: String,
    },
}

impl ScheduleError {
    /// Returns the problem as reported to clients.
    pub fn problem(&self) -> Problem {
        let (not_created, of) = ("schedule not created", |name: &str| format!("schedule {name}"));
        let (kind, title, which, next) = match self {
            Self::Name(bad) => {
                (Kind::Invalid, not_created, format!("schedule {:?}", bad.name), Next::ChooseAnotherName)
            }
            Self::Invalid { name, .. } => (Kind::Invalid, not_created, of(name), Next::WriteSchedule),
            Self::Exists { name } => (Kind::Exists, not_created, of(name), Next::ChooseAnotherName),
            Self::NotFound { name } => (Kind::NotFound, "no such schedule", of(name), Next::ListSchedules),
            Self::SourceDeleted { name } => {
                let next = Next::DeleteSchedule { schedule: name };
                (Kind::Gone, "snapshot not taken", of(name), next)
            }
        };
        Problem::new(kind, title, which, self.to_string(), next)
    }
}
