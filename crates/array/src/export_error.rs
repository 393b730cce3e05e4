//! Why a change of exports was refused, and the problem reported to clients.

use quoin_api::{NextStep as Next, Problem, ProblemKind as Kind};
use quoin_target::BadRule;
use quoin_volume::BadName;
use thiserror::Error;

/// Why a request about exports was refused. [`ExportError::problem`] adds what to do next.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ExportError {
    /// The name breaks the rules for names.
    #[error(transparent)]
    Name(BadName),
    /// No export has the name.
    #[error("export {name} does not exist")]
    NotFound {
        /// The name asked for.
        name: String,
    },
    /// The name is taken.
    #[error("export {name} already exists; it exports volume {volume}")]
    Exists {
        /// The name.
        name: String,
        /// The volume it shows.
        volume: String,
    },
    /// There are as many as there may be.
    #[error("there are {limit} exports, the maximum")]
    TooMany {
        /// The export asked for.
        name: String,
        /// How many there may be.
        limit: usize,
    },
    /// A rule about who may see it is invalid.
    #[error("export {name}: {why}")]
    Rule {
        /// The export.
        name: String,
        /// What is wrong.
        why: BadRule,
    },
    /// The volume is still exported.
    #[error("volume {volume} is exported as {}", exports.join(", "))]
    VolumeExported {
        /// The volume.
        volume: String,
        /// Its exports.
        exports: Vec<String>,
    },
}

impl ExportError {
    /// Returns the problem as reported to clients.
    pub fn problem(&self) -> Problem {
        let (not_created, of) = ("export not created", |name: &str| format!("export {name}"));
        let (kind, title, which, next) = match self {
            Self::Name(bad) => {
                (Kind::Invalid, not_created, format!("export {:?}", bad.name), Next::ChooseAnotherName)
            }
            Self::NotFound { name } => (Kind::NotFound, "no such export", of(name), Next::ListExports),
            Self::Exists { name, .. } => (Kind::Exists, not_created, of(name), Next::ChooseAnotherName),
            Self::TooMany { name, .. } => (Kind::ExportsUsedUp, not_created, of(name), Next::DeleteExports),
            Self::Rule { name, why } => {
                return Problem::new(Kind::Invalid, not_created, of(name), self.to_string(), why.next());
            }
            Self::VolumeExported { volume, .. } => {
                let next = Next::DeleteExportFirst { volume };
                (Kind::InUse, "volume not deleted", format!("volume {volume}"), next)
            }
        };
        Problem::new(kind, title, which, self.to_string(), next)
    }
}
