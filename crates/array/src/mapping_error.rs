//! Why requests about mappings were refused, and the problem reported to clients.

use quoin_api::{NextStep as Next, Problem, ProblemKind as Kind};
use thiserror::Error;

/// Why a request about mappings was refused. [`ArrayError::problem`](crate::ArrayError::problem) adds what to do next.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum MappingError {
    /// The logical unit number is too high.
    #[error("LUN {lun} is out of range")]
    LunOutOfRange {
        /// The number asked for.
        lun: u16,
    },
    /// The logical unit number is in use.
    #[error("LUN {lun} of host {host} is volume {volume}")]
    LunTaken {
        /// The host.
        host: String,
        /// The number asked for.
        lun: u16,
        /// The volume that has it.
        volume: String,
    },
    /// The host sees as many volumes as it can.
    #[error("host {host} has 1000 mappings, the maximum")]
    LunsUsedUp {
        /// The host.
        host: String,
    },
    /// The host sees the volume already.
    #[error("host {host} already has volume {volume}, as LUN {lun}")]
    Exists {
        /// The volume.
        volume: String,
        /// The host.
        host: String,
        /// The number it has.
        lun: u16,
    },
    /// The host does not see the volume.
    #[error("volume {volume} is not mapped to host {host}")]
    NotFound {
        /// The volume.
        volume: String,
        /// The host.
        host: String,
    },
}

impl MappingError {
    /// Returns the problem as reported to clients.
    pub(crate) fn problem(&self) -> Problem {
        let not_mapped = "volume not mapped";
        let (kind, title, which, next) = match self {
            Self::LunOutOfRange { lun } => {
                (Kind::Invalid, not_mapped, format!("LUN {lun}"), Next::ChooseLunInRange)
            }
            Self::LunTaken { host, lun, .. } => {
                (Kind::LunTaken, not_mapped, format!("LUN {lun} of host {host}"), Next::ChooseAnotherLun)
            }
            Self::LunsUsedUp { host } => {
                (Kind::LunsUsedUp, not_mapped, format!("host {host}"), Next::UnmapOneVolume)
            }
            Self::Exists { volume, host, .. } => {
                let next = Next::SetMapping { volume, host };
                (Kind::Exists, not_mapped, format!("volume {volume}, host {host}"), next)
            }
            Self::NotFound { volume, host } => {
                let which = format!("mapping of volume {volume} to host {host}");
                (Kind::NotFound, "no such mapping", which, Next::ListMappings)
            }
        };
        Problem::new(kind, title, which, self.to_string(), next)
    }
}
