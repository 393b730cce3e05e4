//! Why a change of portals was refused, and the problem reported to clients.

use quoin_api::{NextStep as Next, Problem, ProblemKind as Kind};
use std::net::SocketAddr;
use thiserror::Error;

/// Why a request about portals was refused. [`PortalError::problem`] adds what to do next.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum PortalError {
    /// What was given cannot be the address of a portal.
    #[error("{given} cannot be a portal: {why}")]
    Address {
        /// What was given.
        given: String,
        /// Why not.
        why: &'static str,
    },
    /// No portal has the address.
    #[error("there is no portal {given}")]
    NotFound {
        /// What was asked for.
        given: String,
    },
    /// There is such a portal.
    #[error("portal {address} already exists")]
    Exists {
        /// The address.
        address: SocketAddr,
    },
    /// There are as many as there may be.
    #[error("there are {limit} portals, the maximum")]
    TooMany {
        /// The portal asked for.
        address: SocketAddr,
        /// How many there may be.
        limit: usize,
    },
    /// The array cannot listen at the address.
    #[error("{why}")]
    Unavailable {
        /// What was not done.
        title: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why not.
        why: String,
    },
    /// The configuration names the portal, so that it would be there again after a restart.
    #[error("portal {address} is one of --iscsi or of [serve] in quoin.toml")]
    Configured {
        /// The address.
        address: SocketAddr,
    },
}

impl PortalError {
    /// Returns the problem as reported to clients.
    pub fn problem(&self) -> Problem {
        let (not_created, of) = ("portal not created", |address: &SocketAddr| format!("portal {address}"));
        let portal;
        let (kind, title, which, next) = match self {
            Self::Address { given, .. } => {
                (Kind::Invalid, "not a portal", format!("portal {given}"), Next::GivePortal)
            }
            Self::NotFound { given } => {
                (Kind::NotFound, "no such portal", format!("portal {given}"), Next::ListPortals)
            }
            Self::Exists { address } => (Kind::Exists, not_created, of(address), Next::ListPortals),
            Self::TooMany { address, .. } => (Kind::TooMany, not_created, of(address), Next::DeletePortal),
            Self::Unavailable { title, address, .. } => {
                (Kind::Unavailable, *title, of(address), Next::GivePortal)
            }
            Self::Configured { address } => {
                portal = address.to_string();
                let next = Next::DisablePortal { portal: &portal };
                (Kind::InUse, "portal not deleted", of(address), next)
            }
        };
        Problem::new(kind, title, which, self.to_string(), next)
    }
}
