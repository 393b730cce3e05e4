//! Why limits were refused, and the problem reported to clients.

use quoin_api::{NextStep as Next, Problem, ProblemKind as Kind};
use thiserror::Error;

/// Why a request about limits was refused. [`ArrayError::problem`](crate::ArrayError::problem) adds what to do next.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum QosError {
    /// Nothing would be limited.
    #[error("neither IOPS nor a bandwidth is given")]
    Nothing,
    /// So many IOPS cannot be a limit.
    #[error("a limit is from {least} to {most} IOPS")]
    Iops {
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// Such a bandwidth cannot be a limit.
    #[error("a limit is from {least} to {most} bytes a second")]
    Bandwidth {
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// Bursts cannot be that long.
    #[error("bursts last {most_s} s at the most")]
    Burst {
        /// The most, in seconds.
        most_s: u64,
    },
    /// Too many objects have limits.
    #[error("{most} volumes, groups and policies have limits, the maximum")]
    TooMany {
        /// How many may have.
        most: usize,
    },
}

impl QosError {
    /// Returns the problem as reported to clients.
    pub(crate) fn problem(&self) -> Problem {
        let (kind, next) = match self {
            Self::TooMany { .. } => (Kind::TooMany, Next::RemoveQos),
            _ => (Kind::Invalid, Next::GiveQos),
        };
        Problem::new(kind, "limits not set", "the limits", self.to_string(), next)
    }
}
