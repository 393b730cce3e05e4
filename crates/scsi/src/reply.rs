//! What a command came to.

use crate::sense::{Sense, Status};
use quoin_world::Slice;

/// What a command came to.
#[derive(Debug)]
pub struct Reply {
    /// SCSI status.
    pub status: Status,
    /// With [`Status::CheckCondition`], why.
    pub sense: Option<Sense>,
    /// The sense goes out in descriptor format, as D_SENSE of the control mode page says.
    pub descriptor_sense: bool,
    /// Data for the initiator, one slice after the other.
    pub data: Vec<Slice>,
    /// Bytes the command wanted to move either way; from it follow the transport's residual counts. May
    /// exceed what `data` holds if the initiator expected less.
    pub wanted_bytes: u64,
}

impl Reply {
    /// GOOD, with nothing to move.
    pub fn good() -> Self {
        Self { status: Status::Good, sense: None, descriptor_sense: false, data: Vec::new(), wanted_bytes: 0 }
    }

    /// CHECK CONDITION.
    pub fn check(sense: Sense) -> Self {
        Self { status: Status::CheckCondition, sense: Some(sense), ..Self::good() }
    }

    /// RESERVATION CONFLICT.
    pub fn conflict() -> Self {
        Self { status: Status::ReservationConflict, ..Self::good() }
    }

    /// REQUEST SENSE's answer with `sense` as its parameter data, in descriptor or fixed format.
    pub fn request_sense(sense: Sense, descriptor: bool, allocation: u32) -> Self {
        Self::parameters(sense.data(descriptor), allocation)
    }

    /// The sense data to go with the status, if there is any.
    pub fn sense_data(&self) -> Option<Vec<u8>> {
        self.sense.map(|sense| sense.data(self.descriptor_sense))
    }

    /// GOOD with parameter data, cut to the command's allocation length.
    pub fn parameters(mut data: Vec<u8>, allocation: u32) -> Self {
        data.truncate(allocation as usize);
        let wanted_bytes = data.len() as u64;
        let data = if data.is_empty() { Vec::new() } else { vec![Slice::copy_of(&data)] };
        Self { data, wanted_bytes, ..Self::good() }
    }
}
