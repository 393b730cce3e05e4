//! The target as initiators see it: one name, hosts (groups of initiator names), and which volume each host
//! sees under which logical unit number.
//!
//! Promises: changes take effect with the next command of every session; initiators learn of them by unit
//! attentions; an initiator name that belongs to no host sees no unit. A command admitted to a device runs
//! to its end: resets and reconnects wait for it rather than cancel it, so that nothing a host gave up on
//! can take effect after the host was told that it is gone.
//!
//! Does not know the wire, nor how the maps are kept over restarts: all here is in memory. Assumes of
//! transports: one [`Nexus`] per session, used from one thread.

mod clock;
mod copies;
mod copy;
mod counters;
mod credentials;
mod error;
mod exports;
mod hosts;
mod inside;
mod log;
mod lun;
mod mapping;
mod memory;
mod modes;
mod nexus;
mod queue;
mod reservations;
mod reserve;
mod sanitize;
mod sanitizing;
mod send_queue;
mod settings;
mod shared_modes;
mod token_copy;
mod tokens;
mod traffic;
mod unit;

pub use clock::{Clock, RuntimeClock, over, within};
pub use credentials::{Credentials, Login, Secret};
pub use error::TargetError;
pub use exports::{
    BadRule, Client, ClientAddress, Connected, Export, ExportClient, ExportRules, Exports, Shown,
};
pub use hosts::{HostView, Mapping, SessionView, Target};
pub use lun::Lun;
pub use memory::{SessionMemory, SessionShare};
pub use nexus::{Admission, Nexus, NexusName, Notice, Notices, Request};
pub use quoin_scsi::{ReservationType, naa};
pub use reservations::{RegistrationView, ReservationsView};
pub use send_queue::{Place, SendQueue};
pub use traffic::{Done, Traffic, TrafficView};
pub use unit::Access;

#[cfg(test)]
mod tests;
