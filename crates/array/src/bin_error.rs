//! Why requests about the recycle bin were refused, and the problem reported to clients.

use quoin_api::{NextStep as Next, Problem, ProblemKind as Kind};
use thiserror::Error;

/// Why a request about the recycle bin was refused. [`BinError::problem`] adds what to do next.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum BinError {
    /// No deleted volume has the name or identity.
    #[error("the recycle bin has no volume {which}")]
    NotFound {
        /// What was asked for.
        which: String,
    },
    /// The volume was deleted and can be restored.
    #[error("volume {name} does not exist: it was deleted and is in the recycle bin")]
    Deleted {
        /// Its name.
        name: String,
    },
    /// Several deleted volumes have the name.
    #[error("the recycle bin has {} volumes of this name: {}", volumes.len(), volumes.join(", "))]
    Ambiguous {
        /// The name.
        which: String,
        /// The identities, and when each was deleted.
        volumes: Vec<String>,
    },
    /// Another volume has the name by now.
    #[error("a volume {name} exists")]
    NameTaken {
        /// The deleted volume as it was asked for.
        volume: String,
        /// The name.
        name: String,
    },
    /// The pool cannot keep the space that the volume had reserved.
    #[error(
        "the pool cannot reserve {wanted_bytes} bytes for the thick volume: {free_bytes} bytes are neither used nor \
         reserved"
    )]
    CannotReserve {
        /// The deleted volume as it was asked for.
        volume: String,
        /// The bytes to reserve.
        wanted_bytes: u64,
        /// The most that could be reserved.
        free_bytes: u64,
    },
    /// The pool cannot keep the space of a thick volume, and the recycle bin holds some.
    #[error(
        "the pool cannot keep {wanted_bytes} bytes more for volume {name}: {free_bytes} bytes are neither used nor kept \
         for others, and the recycle bin holds {held_bytes} bytes"
    )]
    HoldsSpace {
        /// What was not done.
        title: &'static str,
        /// The volume.
        name: String,
        /// The bytes asked for.
        wanted_bytes: u64,
        /// The most that could be kept.
        free_bytes: u64,
        /// How much space emptying the recycle bin frees.
        held_bytes: u64,
    },
    /// A time for which nothing can be kept.
    #[error("deleted volumes cannot be kept for {keep_s} seconds, more than 100 years")]
    Keep {
        /// The time asked for.
        keep_s: u64,
    },
}

impl BinError {
    /// Returns the problem as reported to clients.
    pub fn problem(&self) -> Problem {
        let (not_restored, of) = ("volume not restored", |name: &str| format!("volume {name}"));
        let (kind, title, which, next) = match self {
            Self::NotFound { which } => {
                (Kind::NotFound, "no such deleted volume", of(which), Next::ListDeleted)
            }
            Self::Deleted { name } => {
                (Kind::NotFound, "no such volume", of(name), Next::RestoreDeleted { volume: name })
            }
            Self::Ambiguous { which, .. } => {
                (Kind::Ambiguous, "nothing was changed", of(which), Next::NameDeletedByUuid)
            }
            Self::NameTaken { volume, name } => {
                (Kind::Exists, not_restored, of(name), Next::RestoreUnderAnotherName { volume })
            }
            Self::CannotReserve { volume, .. } => {
                (Kind::NoSpace, not_restored, of(volume), Next::RestoreThin)
            }
            Self::HoldsSpace { title, name, .. } => (Kind::NoSpace, *title, of(name), Next::EmptyBin),
            Self::Keep { .. } => (Kind::Invalid, "recycle bin not set", "the time".into(), Next::GiveBinTime),
        };
        Problem::new(kind, title, which, self.to_string(), next)
    }
}
