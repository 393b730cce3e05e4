//! Why reservations were not cleared, and the problem reported to clients.

use quoin_api::{NextStep as Next, Problem, ProblemKind as Kind};
use quoin_volume::DeviceError;
use thiserror::Error;

/// Why reservations were not cleared.
#[derive(Debug, Error)]
pub enum ReservationError {
    /// Hosts rely on them.
    #[error("hosts rely on them: {}", users.join("; "))]
    InUse {
        /// The volume.
        volume: String,
        /// Who is registered, or has reserved the volume.
        users: Vec<String>,
    },
    /// The volume cannot harden the change.
    #[error("{error}")]
    NotKept {
        /// The volume.
        volume: String,
        /// Why.
        error: DeviceError,
    },
}

impl ReservationError {
    /// Returns the problem as reported to clients.
    pub(crate) fn problem(&self) -> Problem {
        let (kind, volume, next) = match self {
            Self::InUse { volume, .. } => (Kind::InUse, volume, Next::ClearReservations { volume }),
            Self::NotKept { volume, .. } => (Kind::Pool, volume, Next::CheckPool),
        };
        Problem::new(kind, "reservations not cleared", format!("volume {volume}"), self.to_string(), next)
    }
}
