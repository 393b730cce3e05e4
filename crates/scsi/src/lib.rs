//! The SCSI block command set (SPC-4, SBC-3) over a [`quoin_volume::BlockDevice`].
//!
//! Promises: [`Command::parse`] takes any bytes without panicking; what a command moves is known, and its
//! range checked, before any data is asked of the initiator ([`Command::transfer`]); GOOD for a write means
//! that the device hardened it, since there is no volatile cache (WCE = 0); limits and provisioning are
//! advertised as they are enforced ([`limits`]).
//!
//! Does not know: logical unit numbers, unit attentions, initiators and who has reserved what (the target's business),
//! transports, what copies take between units. Assumes of the device: what its trait says, nothing more.

mod cdb;
mod command;
mod data_out;
mod designators;
mod execute;
mod extended_copy;
mod fields;
mod geometry;
mod inquiry;
pub mod limits;
mod log;
mod mode;
mod modify;
mod opcode;
mod persistent_reserve;
mod provision;
mod reply;
mod report_opcodes;
mod rod_token;
mod sanitize;
mod sense;
mod target_ports;
mod transfer;
mod unit;

pub use command::{
    Bytchk, Command, Extent, LogSelect, LogSense, ModeSelect, ModeSense, Needs, ReportOpcodes,
};
pub use designators::naa;
pub use execute::execute;
pub use extended_copy::{
    CopyList, CopyResults, CopyStatus, Designator, Segment, copy_status, operating_parameters,
};
pub use geometry::Geometry;
pub use inquiry::{no_unit_inquiry, report_luns};
pub use log::{LogCounter, LogCounts, log_select, log_sense};
pub use mode::mode_select;
pub use persistent_reserve::{
    InitiatorPort, Registration, ReservationType, ReserveAction, ReserveIn, ReserveOut, ReserveParameters,
    read_full_status, read_keys, read_reservation, reserve_capabilities,
};
pub use reply::Reply;
pub use rod_token::{
    PopulateToken, TOKEN_BYTES, TOKEN_MAX_BYTES, Token, TokenOutcome, WriteUsingToken, rod_token_information,
};
pub use sanitize::{Overwrite, Sanitize, SanitizeAction};
pub use sense::{Sense, SenseKey, Status};
pub use target_ports::target_port_groups;
pub use transfer::Transfer;
pub use unit::{Modes, Port, Unit};

#[cfg(test)]
mod tests;
