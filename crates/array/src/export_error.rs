//! Why a change of exports was refused, and the problem reported to clients.

use quoin_api::{Problem, ProblemKind};
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
    /// The problem as reported to clients.
    pub fn problem(&self) -> Problem {
        let why = self.to_string();
        let created = "export not created";
        match self {
            Self::Name(bad) => {
                let which = format!("export {:?}", bad.name);
                Problem::new(ProblemKind::Invalid, created, which, why, "choose another name")
            }
            Self::NotFound { name } => {
                let next = "list them: quoin export list";
                Problem::new(ProblemKind::NotFound, "no such export", format!("export {name}"), why, next)
            }
            Self::Exists { name, .. } => Problem::new(
                ProblemKind::Exists,
                created,
                format!("export {name}"),
                why,
                "choose another name",
            ),
            Self::TooMany { name, .. } => {
                let next = "delete exports that nobody needs: quoin export list";
                Problem::new(ProblemKind::ExportsUsedUp, created, format!("export {name}"), why, next)
            }
            Self::Rule { name, why: bad } => {
                Problem::new(ProblemKind::Invalid, created, format!("export {name}"), why, bad.next())
            }
            Self::VolumeExported { volume, .. } => {
                let next = format!("delete the export first, or use: quoin volume delete {volume} --unmap");
                Problem::new(ProblemKind::InUse, "volume not deleted", format!("volume {volume}"), why, next)
            }
        }
    }
}
