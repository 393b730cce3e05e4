//! Why a drive was not shown, added or taken out, and the problem reported to clients.

use quoin_api::{NextStep as Next, Problem, ProblemKind as Kind};
use thiserror::Error;

/// Why a request about a drive was refused. [`ArrayError::problem`](crate::ArrayError::problem) adds what to do next.
#[derive(Debug, Error)]
pub enum DriveChangeError {
    /// No drive has the path.
    #[error("no drive of the array has the path {drive}")]
    NotFound {
        /// The path asked for.
        drive: String,
    },
    /// Several drives have a path that ends so.
    #[error("the paths of several drives end in {drive}: {}", paths.join(", "))]
    Ambiguous {
        /// The path asked for.
        drive: String,
        /// The paths that end so.
        paths: Vec<String>,
    },
    /// It is none of the pool's.
    #[error("drive {drive} is not one that the pool has")]
    NotInPool {
        /// The drive.
        drive: String,
    },
    /// Without it data would be lost, or the pool would go offline.
    #[error("{why}")]
    Needed {
        /// The drive.
        drive: String,
        /// What would be lost.
        why: String,
    },
    /// The other drives lack something for it to leave.
    #[error("{why}")]
    NotEvacuated {
        /// The drive.
        drive: String,
        /// What is lacking.
        why: String,
        /// It could leave if narrower segments were confirmed.
        confirm: bool,
    },
    /// It does not leave.
    #[error("drive {drive} is not being evacuated")]
    NotLeaving {
        /// The drive.
        drive: String,
    },
    /// The configuration has it already.
    #[error("the array has drive {drive} already")]
    Exists {
        /// The drive.
        drive: String,
    },
    /// It holds something.
    #[error("drive {drive} holds {what}")]
    Holds {
        /// The drive.
        drive: String,
        /// What it holds.
        what: String,
    },
    /// It cannot be used.
    #[error("{why}")]
    NotAdded {
        /// The drive.
        drive: String,
        /// Why.
        why: String,
    },
}

impl DriveChangeError {
    /// Returns the problem as reported to clients.
    pub(crate) fn problem(&self) -> Problem {
        let (kind, title, drive, next) = match self {
            Self::NotFound { drive } => {
                (Kind::NotFound, "no such drive", drive, Next::ListDrives.to_string())
            }
            Self::Ambiguous { drive, .. } => {
                (Kind::Ambiguous, "drive not found", drive, Next::GiveWholePath.to_string())
            }
            Self::NotInPool { drive } => {
                (Kind::NotFound, "drive not taken out", drive, Next::TakeOutDrive { drive }.to_string())
            }
            Self::Needed { drive, .. } => {
                (Kind::DataLost, "drive not taken out", drive, Next::AddBefore.to_string())
            }
            Self::NotEvacuated { drive, confirm: true, .. } => {
                (Kind::Unconfirmed, "drive not evacuated", drive, Next::ConfirmNarrower { drive }.to_string())
            }
            Self::NotEvacuated { drive, .. } => {
                (Kind::NoSpace, "drive not evacuated", drive, Next::MakeRoomForDrive.to_string())
            }
            Self::NotLeaving { drive } => {
                (Kind::NotRunning, "nothing to cancel", drive, Next::ListDrives.to_string())
            }
            Self::Exists { drive } => (Kind::Exists, "drive not added", drive, Next::ListDrives.to_string()),
            Self::Holds { drive, .. } => {
                (Kind::InUse, "drive not added", drive, Next::EraseDrive.to_string())
            }
            Self::NotAdded { drive, .. } => {
                (Kind::Invalid, "drive not added", drive, Next::CheckDrive.to_string())
            }
        };
        Problem::new(kind, title, format!("drive {drive}"), self.to_string(), next)
    }
}
