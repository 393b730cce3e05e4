//! The iSCSI front end (RFC 7143): wire format, login, sessions, and the server that runs them.
//!
//! Promises: no byte sequence of a peer makes it panic, hold more memory than its limits say, or harm another
//! session; whatever one wake-up of a connection brings is parsed together, runs concurrently and is
//! answered with one vectored write; read data goes from the device's buffers to the socket uncopied, write
//! data is copied once from the receive buffer.
//!
//! One connection a session, error recovery level 0: a lost connection ends its session, and a login under
//! the same name waits until the last command of the old one has ended. A peer that takes no answers or does not
//! send what it announced is cut off; one that cannot log in waits ever longer. Assumes that a connection is served
//! on one data thread from beginning to end, inside a `LocalSet`.

mod chap;
mod command;
mod connection;
mod control;
mod data_out;
mod digest;
mod error;
mod limits;
pub mod login;
mod login_throttle;
mod metrics;
pub mod params;
pub mod pdu;
mod receive;
mod response;
mod scsi_command;
mod sequence;
mod server;
mod session;
mod stall;
mod strangers;
mod task_attribute;
mod task_management;
mod task_set;
pub mod text;
mod transmit;
mod tsih;

pub use error::IscsiError;
pub use login_throttle::LoginFailure;
pub use metrics::{Metrics, MetricsSnapshot};
pub use server::{Accepted, IscsiServer, Options, Portal};
