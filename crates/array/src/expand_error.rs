//! Why the pool did not grow with its drives, and the problem reported to clients.

use quoin_api::{NextStep as Next, Problem, ProblemKind as Kind};
use thiserror::Error;

/// Why the pool did not grow. [`ArrayError::problem`](crate::ArrayError::problem) adds what to do next.
#[derive(Debug, Error)]
pub enum ExpandError {
    /// It cannot grow so.
    #[error("{why}")]
    Refused {
        /// Why.
        why: String,
    },
    /// The file system under drives has no room for it.
    #[error("{why}")]
    NoRoom {
        /// How much is lacking, and where.
        why: String,
    },
    /// It was interrupted when some drives had grown.
    #[error("{why}; {}", if grown.is_empty() { "no drive grew".to_owned() } else { format!("grown: {}", grown.join(", ")) })]
    Partly {
        /// The drives that have grown.
        grown: Vec<String>,
        /// Why the next one did not.
        why: String,
    },
}

impl ExpandError {
    /// Returns the problem as reported to clients.
    pub(crate) fn problem(&self) -> Problem {
        let (kind, title, next) = match self {
            Self::Refused { .. } => (Kind::Invalid, "pool not expanded", Next::NameDrivesToExpand),
            Self::NoRoom { .. } => (Kind::NoSpace, "pool not expanded", Next::ExpandByLess),
            Self::Partly { .. } => (Kind::Pool, "pool not expanded", Next::ResumeExpansion),
        };
        Problem::new(kind, title, "the pool", self.to_string(), next)
    }
}
