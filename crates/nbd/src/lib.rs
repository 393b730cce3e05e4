//! The NBD front end: wire format, fixed newstyle negotiation, transmission, TLS, and the server that runs them.
//!
//! Promises: no byte sequence of a peer makes it panic, hold more memory than its limits say, or harm another
//! connection; a reply to a write, trim or zeroing follows its hardening, so that flush and FUA have nothing left
//! to do and any number of connections may work on one export; whatever one wake-up of a connection brings is
//! parsed together, runs concurrently and is answered with one vectored write; read data goes from the device's
//! buffers to the socket uncopied, and of write data only what came in one piece with its request is copied, once.
//!
//! Requests that are not made of whole blocks are served too, but for clients that agreed to send none.
//!
//! Assumes that a connection is served on one data thread from beginning to end, inside a `LocalSet`.

mod command;
mod connection;
mod error;
pub mod handshake;
mod metrics;
pub mod operation;
pub mod options;
mod receive;
mod server;
mod session;
mod socket;
mod tls;
mod transmit;
pub mod wire;

pub use error::NbdError;
pub use handshake::TlsMode;
pub use metrics::{Metrics, MetricsSnapshot};
pub use server::{Accepted, Listener, NbdServer, Options, Refused};
pub use socket::ByteStream;
pub use tls::{Tls, TlsError};
