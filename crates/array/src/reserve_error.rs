//! Why a change of a snapshot reserve was refused, and the problem reported to clients.

use quoin_api::{NextStep as Next, Problem, ProblemKind as Kind};
use thiserror::Error;

/// Why a request about snapshot reserves was refused. [`ArrayError::problem`](crate::ArrayError::problem) adds what to do next.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ReserveError {
    /// A snapshot reserve is one of two things.
    #[error("a snapshot reserve is from 1 to 100 percent, or a size")]
    Invalid,
    /// Setting a snapshot reserve deletes snapshots or takes volumes offline, and that was not confirmed.
    #[error("{effect}")]
    Unconfirmed {
        /// Whose reserve it is.
        which: String,
        /// What it would do.
        effect: String,
    },
    /// Too many volumes and groups have a snapshot reserve.
    #[error("{most} volumes and groups have a snapshot reserve, the maximum")]
    TooMany {
        /// Whose reserve it is.
        which: String,
        /// How many may have one.
        most: usize,
    },
}

impl ReserveError {
    /// Returns the problem as reported to clients.
    pub(crate) fn problem(&self) -> Problem {
        let (kind, which, next) = match self {
            Self::Invalid => (Kind::Invalid, "the snapshot reserve", Next::GiveReserve),
            Self::Unconfirmed { which, .. } => (Kind::Unconfirmed, which.as_str(), Next::ConfirmReserve),
            Self::TooMany { which, .. } => (Kind::TooMany, which.as_str(), Next::RemoveReserve),
        };
        Problem::new(kind, "snapshot reserve not set", which, self.to_string(), next)
    }
}
