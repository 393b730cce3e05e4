//! Why a connection ends.

use crate::{handshake::HandshakeError, wire::BadMagic};
use std::{io, time::Duration};
use thiserror::Error;

/// Why a connection ended otherwise than as the client wished.
#[derive(Debug, Error)]
pub enum NbdError {
    /// The socket failed.
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
    /// The client closed the connection without a word.
    #[error("the client closed the connection without disconnecting")]
    Closed,
    /// The client broke the protocol in negotiation.
    #[error("negotiation ended: {0}")]
    Handshake(#[from] HandshakeError),
    /// The client sent bytes behind its wish for TLS that TLS would not have protected.
    #[error("negotiation ended: the client sent plain bytes behind NBD_OPT_STARTTLS")]
    PlainBehindStartTls,
    /// TLS could not be established.
    #[error("TLS not established: {0}")]
    Tls(io::Error),
    /// Negotiation took too long.
    #[error("connection dropped: negotiation not done after {0:?}")]
    HandshakeTimeout(Duration),
    /// The byte stream of requests cannot be followed.
    #[error("connection dropped: {0}")]
    Magic(#[from] BadMagic),
    /// The client neither goes on with what it began to send nor takes what it asked for.
    #[error("connection dropped: the client stopped in the middle of a request or reply for {0:?}")]
    Stalled(Duration),
    /// The export was taken away.
    #[error("the export was deleted or changed")]
    Revoked,
}

impl NbdError {
    /// Why a negotiation failed, in short, if that is worth telling and was not told: looking at what there is and
    /// leaving is what scanners and health checks do, and who asked for an export was told of then.
    pub(crate) fn ends_negotiation(&self) -> Option<&'static str> {
        match self {
            Self::Handshake(HandshakeError::ExportName { .. }) => None,
            Self::Handshake(_) | Self::Magic(_) => Some("what the client sent is not NBD"),
            Self::PlainBehindStartTls => Some("the client sent plain bytes behind NBD_OPT_STARTTLS"),
            Self::Tls(_) => Some("TLS not established"),
            Self::HandshakeTimeout(_) => Some("negotiation took too long"),
            Self::Io(_) | Self::Closed | Self::Stalled(_) | Self::Revoked => None,
        }
    }

    /// The client said what the protocol does not allow.
    pub(crate) fn is_breach(&self) -> bool {
        matches!(self, Self::Handshake(_) | Self::Magic(_) | Self::PlainBehindStartTls)
    }
}
