//! The SCSI block command set (SPC-4, SBC-3) over a [`quoin_volume::BlockDevice`].
//!
//! Promises: [`Command::parse`] takes any bytes without panicking; what a command moves is known, and its
//! range checked, before any data is asked of the initiator ([`Command::transfer`]); GOOD for a write means
//! that the device hardened it, since there is no volatile cache (WCE = 0); limits and provisioning are
//! advertised as they are enforced ([`limits`]).
//!
//! Does not know: logical unit numbers, unit attentions, initiators (the target's business), transports,
//! reservations, third-party copy. Assumes of the device: what its trait says, nothing more.

mod cdb;
mod execute;
mod inquiry;
pub mod limits;
mod log;
mod mode;
mod opcode;
mod provision;
mod report_opcodes;
mod sense;

pub use cdb::{Bytchk, Command, Extent, LogSense, ModeSelect, ModeSense, ReportOpcodes};
pub use execute::{Geometry, Reply, Transfer, Unit, execute};
pub use inquiry::{Port, no_unit_inquiry, report_luns};
pub use mode::{Modes, mode_select};
pub use sense::{Sense, SenseKey, Status};

#[cfg(test)]
mod tests;
