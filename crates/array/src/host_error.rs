//! Why requests about hosts were refused, and the problem reported to clients.

use quoin_api::{Problem, ProblemKind as Kind};
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
        let (kind, title, which, next): (_, _, _, String) = match self {
            Self::Name(bad) => {
                (Kind::Invalid, title, format!("host {:?}", bad.name), "choose another name".into())
            }
            Self::NotFound { name } => {
                (Kind::NotFound, "no such host", of(name), "list them: quoin host list".into())
            }
            Self::Exists { name, .. } => (Kind::Exists, title, of(name), "choose another name".into()),
            Self::NoInitiator { host } => {
                let next = "give at least one, such as --initiator iqn.2026-11.test:h1";
                (Kind::Invalid, title, of(host), next.into())
            }
            Self::Initiator { initiator, .. } => {
                let next = "give the initiator name of the host, such as iqn.1993-08.org.debian:01:abcdef; on Linux \
                            it is in /etc/iscsi/initiatorname.iscsi";
                (Kind::Invalid, title, format!("initiator {initiator:?}"), next.into())
            }
            Self::InitiatorTaken { initiator, host } => {
                let next =
                    format!("map volumes to host {host} instead, or give that host other initiators first");
                (Kind::InitiatorTaken, title, format!("initiator {initiator}"), next)
            }
            Self::Chap { host, .. } => {
                let next = "use a different random secret for each direction; 12 to 16 characters work with every \
                            initiator";
                (Kind::Invalid, "credentials not set", of(host), next.into())
            }
            Self::ChapSetAndRemoved { host } => {
                (Kind::Invalid, "host not changed", of(host), "give only one of the two".into())
            }
            Self::TooManyToRename { host, .. } => {
                let next = "unmap volumes from it until it has 250 at most, rename it, and map them again";
                (Kind::TooMany, "host not renamed", of(host), next.into())
            }
            Self::Mapped { host, .. } => {
                let next = format!("unmap them first, or use: quoin host delete {host} --unmap");
                (Kind::InUse, "host not deleted", of(host), next)
            }
        };
        Problem::new(kind, title, which, self.to_string(), next)
    }
}
