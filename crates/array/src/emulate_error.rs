//! Why an emulated drive was not told what to do, and the problem reported to clients.

use quoin_api::{NextStep as Next, Problem, ProblemKind as Kind};
use quoin_emulate::EmulateError;
use thiserror::Error;

/// Why a request about an emulated drive was refused. [`ArrayError::problem`](crate::ArrayError::problem) adds what to do
/// next.
#[derive(Debug, Error)]
pub enum DriveEmulateError {
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
    /// The drive is a real one.
    #[error("drive {drive} is not emulated")]
    NotEmulated {
        /// The drive.
        drive: String,
    },
    /// A value that does not belong to the action, or is out of range.
    #[error("{why}")]
    Invalid {
        /// The drive.
        drive: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The drive did not do it.
    #[error("drive {drive}: {error}")]
    Refused {
        /// The drive.
        drive: String,
        /// Why.
        error: EmulateError,
    },
}

impl DriveEmulateError {
    /// Returns the problem as reported to clients.
    pub(crate) fn problem(&self) -> Problem {
        let title = "drive not changed";
        let (kind, title, drive, next) = match self {
            Self::NotFound { drive } => (Kind::NotFound, "no such drive", drive, Next::ListDrives),
            Self::Ambiguous { drive, .. } => (Kind::Ambiguous, title, drive, Next::GiveWholePath),
            Self::NotEmulated { drive } => (Kind::NotEmulated, title, drive, Next::EmulateDrive),
            Self::Invalid { drive, .. } => (Kind::Invalid, title, drive, Next::SeeEmulateHelp),
            Self::Refused { drive, error } => match error {
                EmulateError::Detached | EmulateError::NotOpen => {
                    (Kind::NotReady, title, drive, Next::AwaitDrives)
                }
                EmulateError::Hung => (Kind::NotReady, title, drive, Next::ReturnDrive { drive }),
                EmulateError::Blank => (Kind::Empty, title, drive, Next::WriteFirst),
                EmulateError::Disk(_) => (Kind::Pool, title, drive, Next::CheckPool),
            },
        };
        Problem::new(kind, title, format!("drive {drive}"), self.to_string(), next)
    }
}
