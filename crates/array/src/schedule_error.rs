//! Why requests about schedules were refused, and the problem reported to clients.

use quoin_api::{Problem, ProblemKind};
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
    /// The problem as reported to clients.
    pub fn problem(&self) -> Problem {
        let why = self.to_string();
        let which = |name: &str| format!("schedule {name}");
        match self {
            Self::Name(bad) => {
                let which = format!("schedule {:?}", bad.name);
                Problem::new(ProblemKind::Invalid, "schedule not created", which, why, "choose another name")
            }
            Self::Invalid { name, .. } => Problem::new(
                ProblemKind::Invalid,
                "schedule not created",
                which(name),
                why,
                "give it as in: quoin schedule create nightly --volume v1 --every hourly:24,daily:7 --at 02:30",
            ),
            Self::Exists { name } => Problem::new(
                ProblemKind::Exists,
                "schedule not created",
                which(name),
                why,
                "choose another name",
            ),
            Self::NotFound { name } => Problem::new(
                ProblemKind::NotFound,
                "no such schedule",
                which(name),
                why,
                "list them: quoin schedule list",
            ),
            Self::SourceDeleted { name } => Problem::new(
                ProblemKind::Gone,
                "snapshot not taken",
                which(name),
                why,
                format!("delete the schedule: quoin schedule delete {name}"),
            ),
        }
    }
}
