//! A small iSCSI initiator (RFC 7143) for those that put load on targets and compare what they read with what they wrote.
//!
//! Promises: one session over one connection, no digests; nothing blocks on sending while the target may be blocked
//! on us; a command that ends with a unit attention is sent again, everything else that is not GOOD is an error. Never
//! logs in again by itself: a connection that broke is the caller's business. Knows nothing of the target.

mod commands;
mod connection;
mod disk;
mod engine;
mod pdu;
mod rng;
mod sender;

pub use commands::Command;
pub use connection::{Capacity, Connection, Endpoint};
pub use disk::Disk;
pub use engine::{Io, Next, Shape, Source, run};
pub use pdu::HEADER_BYTES;
pub use rng::Rng;
