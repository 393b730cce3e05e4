//! Why requests about hosts were refused, and the problem reported to clients.

use quoin_api::{NextStep as Next, Problem, ProblemKind as Kind};
use quoin_volume::BadName;
use thiserror::Error;

/// Why a request about hosts was refused. [`ArrayError::problem`](crate::ArrayError::problem) adds what to do next.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum HostError {
    /// The name of a host breaks the rules for names.
    #[error(transparent)]
    Name(#[from] BadName),
    /// No host has the name.
    #[error("host {name} does not exist")]
    NotFound {
        /// The name asked for.
        name: String,
    },
    /// The name is taken.
    #[error("host {name} already exists, with {}", initiators.join(", "))]
    Exists {
        /// The name.
        name: String,
        /// The existing host's initiators.
        initiators: Vec<String>,
    },
    /// A host without an initiator could never log in.
    #[error("host {host} has no initiator")]
    NoInitiator {
        /// The host asked for.
        host: String,
    },
    /// Not the name of an initiator.
    #[error("{initiator:?} is not an iSCSI name: {why}")]
    Initiator {
        /// What was given.
        initiator: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The initiator belongs to another host.
    #[error("initiator {initiator} belongs to host {host}")]
    InitiatorTaken {
        /// The initiator.
        initiator: String,
        /// The host that has it.
        host: String,
    },
    /// A host's credentials break the rules for them.
    #[error("{why}")]
    Chap {
        /// The host.
        host: String,
        /// What is wrong with them.
        why: String,
    },
    /// A change of a host that says two things.
    #[error("CHAP cannot be set and removed at once")]
    ChapSetAndRemoved {
        /// The host.
        host: String,
    },
    /// The host still sees volumes.
    #[error("host {host} has these volumes mapped: {}", volumes.join(", "))]
    Mapped {
        /// The host.
        host: String,
        /// The volumes it sees.
        volumes: Vec<String>,
    },
    /// The host's mappings do not fit one transaction.
    #[error("host {host} has {mappings} mappings, more than can be changed at once")]
    TooManyToRename {
        /// The host.
        host: String,
        /// How many mappings it has.
        mappings: usize,
    },
}

impl HostError {
    /// Returns the problem as reported to clients; `title` says what was not done, where the error does not say it.
    pub(crate) fn problem(&self, title: &str) -> Problem {
        let of = |host: &str| format!("host {host}");
        let (kind, title, which, next) = match self {
            Self::Name(bad) => {
                (Kind::Invalid, title, format!("host {:?}", bad.name), Next::ChooseAnotherName)
            }
            Self::NotFound { name } => (Kind::NotFound, "no such host", of(name), Next::ListHosts),
            Self::Exists { name, .. } => (Kind::Exists, title, of(name), Next::ChooseAnotherName),
            Self::NoInitiator { host } => (Kind::Invalid, title, of(host), Next::GiveInitiator),
            Self::Initiator { initiator, .. } => {
                (Kind::Invalid, title, format!("initiator {initiator:?}"), Next::WriteInitiator)
            }
            Self::InitiatorTaken { initiator, host } => {
                let next = Next::UseOtherInitiators { host };
                (Kind::InitiatorTaken, title, format!("initiator {initiator}"), next)
            }
            Self::Chap { host, .. } => {
                (Kind::Invalid, "credentials not set", of(host), Next::ChooseOtherSecrets)
            }
            Self::ChapSetAndRemoved { host } => {
                (Kind::Invalid, "host not changed", of(host), Next::GiveOneOfTheTwo)
            }
            Self::TooManyToRename { host, .. } => {
                (Kind::TooMany, "host not renamed", of(host), Next::RenameWithFewerMappings)
            }
            Self::Mapped { host, .. } => {
                (Kind::InUse, "host not deleted", of(host), Next::UnmapHost { host })
            }
        };
        Problem::new(kind, title, which, self.to_string(), next)
    }
}
