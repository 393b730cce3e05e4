//! Why a connection ends.

use crate::{login::LoginStatus, pdu::FramingError};
use std::{io, time::Duration};
use thiserror::Error;

/// Why a connection ended otherwise than by logout.
#[derive(Debug, Error)]
pub enum IscsiError {
    /// The socket failed.
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
    /// The initiator closed the connection without logging out.
    #[error("the initiator closed the connection without logging out")]
    Closed,
    /// The byte stream cannot be followed.
    #[error("connection dropped: {0}")]
    Framing(#[from] FramingError),
    /// The initiator broke the protocol.
    #[error("connection dropped: protocol error by the initiator: {0}")]
    Protocol(&'static str),
    /// The login was refused.
    #[error("login of {initiator} refused with status {status}: {why}")]
    LoginRefused {
        /// Who, as far as it said.
        initiator: String,
        /// Status-Class and Status-Detail.
        status: LoginStatus,
        /// What was wrong.
        why: &'static str,
    },
    /// The login took too long.
    #[error("connection dropped: not logged in after {0:?}")]
    LoginTimeout(Duration),
    /// The initiator answers no pings.
    #[error("connection dropped: the initiator sent nothing for {0:?} and answered no ping")]
    Silent(Duration),
    /// The initiator does not do its part.
    #[error("connection dropped: the initiator stalls, for {limit:?} {what}")]
    Stalled {
        /// What it does not do.
        what: &'static str,
        /// The time it had.
        limit: Duration,
    },
    /// The server shuts down.
    #[error("connection dropped: the array is shutting down")]
    ShutDown,
    /// The initiator logged in anew under the same name.
    #[error("session replaced by a new login of the same initiator")]
    Reinstated,
}

impl IscsiError {
    /// Why a connection was closed before its login, if that is worth telling and was not told: looking at what there
    /// is and leaving is what scanners and health checks do.
    pub(crate) fn ends_login(&self) -> Option<&'static str> {
        match self {
            Self::Protocol(why) => Some(why),
            Self::Framing(_) => Some("what it sent is not iSCSI"),
            Self::LoginTimeout(_) => Some("it did not log in within the time it has for that"),
            Self::LoginRefused { .. } | Self::Io(_) | Self::Closed | Self::ShutDown => None,
            Self::Silent(_) | Self::Stalled { .. } | Self::Reinstated => None,
        }
    }
}
