//! The basic header segment of every PDU (RFC 7143 §11), byte for byte.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U16, U32},
    transmute,
};

/// Length of a basic header segment.
pub const BHS_BYTES: usize = 48;
/// "No tag" in a task or transfer tag.
pub const NO_TAG: u32 = 0xFFFF_FFFF;

/// F, the final bit, in the flags of most PDUs; T, transit, in those of login.
pub const FINAL: u8 = 0x80;
/// C, continue, in the flags of login and text.
pub const CONTINUE: u8 = 0x40;
/// I, immediate, in the first byte of requests.
pub const IMMEDIATE: u8 = 0x40;
/// R in the flags of SCSI Command: the initiator expects data.
pub const READ: u8 = 0x40;
/// W in the flags of SCSI Command: the initiator has data.
pub const WRITE: u8 = 0x20;
/// O in the flags of SCSI Response and Data-In: residual overflow.
pub const OVERFLOW: u8 = 0x04;
/// U in the flags of SCSI Response and Data-In: residual underflow.
pub const UNDERFLOW: u8 = 0x02;
/// S in the flags of Data-In: it carries the status.
pub const STATUS: u8 = 0x01;

/// Operation codes of requests and responses.
#[allow(missing_docs, reason = "the RFC's names")]
pub mod opcode {
    pub const NOP_OUT: u8 = 0x00;
    pub const SCSI_COMMAND: u8 = 0x01;
    pub const TASK_REQUEST: u8 = 0x02;
    pub const LOGIN_REQUEST: u8 = 0x03;
    pub const TEXT_REQUEST: u8 = 0x04;
    pub const DATA_OUT: u8 = 0x05;
    pub const LOGOUT_REQUEST: u8 = 0x06;
    pub const SNACK: u8 = 0x10;
    pub const NOP_IN: u8 = 0x20;
    pub const SCSI_RESPONSE: u8 = 0x21;
    pub const TASK_RESPONSE: u8 = 0x22;
    pub const LOGIN_RESPONSE: u8 = 0x23;
    pub const TEXT_RESPONSE: u8 = 0x24;
    pub const DATA_IN: u8 = 0x25;
    pub const LOGOUT_RESPONSE: u8 = 0x26;
    pub const R2T: u8 = 0x31;
    pub const ASYNC_MESSAGE: u8 = 0x32;
    pub const REJECT: u8 = 0x3F;
    /// The bits of a header's first byte that are the operation code.
    pub const MASK: u8 = 0x3F;
}

/// A 24-bit length, big-endian.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct U24([u8; 3]);

impl U24 {
    /// The number.
    pub fn get(self) -> usize {
        usize::from(self.0[0]) << 16 | usize::from(self.0[1]) << 8 | usize::from(self.0[2])
    }

    /// The low 24 bits of `n`.
    pub fn new(n: usize) -> Self {
        Self([(n >> 16) as u8, (n >> 8) as u8, n as u8])
    }
}

macro_rules! pdus {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        #[allow(missing_docs, reason = "the RFC's fields, in its order; rN is reserved")]
        pub struct $name {
            pub opcode: u8,
            pub flags: u8,
            $(pub $field: $type,)*
        }

        const _: () = assert!(size_of::<$name>() == BHS_BYTES);

        impl From<Bhs> for $name {
            fn from(bhs: Bhs) -> Self {
                transmute!(bhs)
            }
        }

        impl From<$name> for Bhs {
            fn from(pdu: $name) -> Self {
                transmute!(pdu)
            }
        }
    )*};
}

/// What every basic header segment has in common.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Bhs {
    /// I bit and operation code.
    pub opcode: u8,
    /// F bit and flags of the operation.
    pub flags: u8,
    /// Of the operation.
    pub specific: [u8; 2],
    /// Length of additional header segments, in 4-byte words.
    pub ahs_words: u8,
    /// DataSegmentLength, without padding.
    pub data_len: U24,
    /// Logical unit number, or of the operation.
    pub lun: [u8; 8],
    /// InitiatorTaskTag.
    pub itt: U32,
    /// Of the operation.
    pub rest: [u8; 28],
}

const _: () = assert!(size_of::<Bhs>() == BHS_BYTES);

impl Bhs {
    /// The header in some bytes; none if they are fewer than 48.
    pub fn parse(bytes: &[u8]) -> Option<Bhs> {
        Bhs::read_from_prefix(bytes).ok().map(|(bhs, _)| bhs)
    }

    /// The operation code without the I bit.
    pub fn operation(&self) -> u8 {
        self.opcode & opcode::MASK
    }

    /// The I bit.
    pub fn is_immediate(&self) -> bool {
        self.opcode & IMMEDIATE != 0
    }

    /// Length of all additional header segments in bytes.
    pub fn ahs_bytes(&self) -> usize {
        usize::from(self.ahs_words) * 4
    }

    /// The command sequence number that requests carry.
    pub fn cmd_sn(&self) -> u32 {
        u32::from_be_bytes([self.rest[4], self.rest[5], self.rest[6], self.rest[7]])
    }
}

pdus! {
    /// SCSI Command (§11.3).
    ScsiCommand {
        r1: [u8; 2], ahs_words: u8, data_len: U24, lun: [u8; 8], itt: U32,
        expected_bytes: U32, cmd_sn: U32, exp_stat_sn: U32, cdb: [u8; 16],
    }
    /// SCSI Response (§11.4).
    ScsiResponse {
        response: u8, status: u8, ahs_words: u8, data_len: U24, r1: [u8; 8], itt: U32, snack_tag: U32,
        stat_sn: U32, exp_cmd_sn: U32, max_cmd_sn: U32, exp_data_sn: U32, bidi_residual: U32, residual: U32,
    }
    /// Task Management Function Request (§11.5).
    TaskRequest {
        r1: [u8; 2], ahs_words: u8, data_len: U24, lun: [u8; 8], itt: U32, referenced: U32,
        cmd_sn: U32, exp_stat_sn: U32, ref_cmd_sn: U32, exp_data_sn: U32, r2: [u8; 8],
    }
    /// Task Management Function Response (§11.6).
    TaskResponse {
        response: u8, r1: u8, ahs_words: u8, data_len: U24, r2: [u8; 8], itt: U32, r3: [u8; 4],
        stat_sn: U32, exp_cmd_sn: U32, max_cmd_sn: U32, r4: [u8; 12],
    }
    /// SCSI Data-Out (§11.7).
    DataOut {
        r1: [u8; 2], ahs_words: u8, data_len: U24, lun: [u8; 8], itt: U32, ttt: U32, r2: [u8; 4],
        exp_stat_sn: U32, r3: [u8; 4], data_sn: U32, offset: U32, r4: [u8; 4],
    }
    /// SCSI Data-In (§11.7).
    DataIn {
        r1: u8, status: u8, ahs_words: u8, data_len: U24, lun: [u8; 8], itt: U32, ttt: U32,
        stat_sn: U32, exp_cmd_sn: U32, max_cmd_sn: U32, data_sn: U32, offset: U32, residual: U32,
    }
    /// Ready To Transfer (§11.8).
    R2t {
        r1: [u8; 2], ahs_words: u8, data_len: U24, lun: [u8; 8], itt: U32, ttt: U32,
        stat_sn: U32, exp_cmd_sn: U32, max_cmd_sn: U32, r2t_sn: U32, offset: U32, desired_bytes: U32,
    }
    /// Asynchronous Message (§11.9).
    AsyncMessage {
        r1: [u8; 2], ahs_words: u8, data_len: U24, lun: [u8; 8], no_tag: U32, r2: [u8; 4],
        stat_sn: U32, exp_cmd_sn: U32, max_cmd_sn: U32, event: u8, vendor: u8,
        parameter_1: U16, parameter_2: U16, parameter_3: U16, r3: [u8; 4],
    }
    /// Text Request (§11.10).
    TextRequest {
        r1: [u8; 2], ahs_words: u8, data_len: U24, lun: [u8; 8], itt: U32, ttt: U32,
        cmd_sn: U32, exp_stat_sn: U32, r2: [u8; 16],
    }
    /// Text Response (§11.11).
    TextResponse {
        r1: [u8; 2], ahs_words: u8, data_len: U24, lun: [u8; 8], itt: U32, ttt: U32,
        stat_sn: U32, exp_cmd_sn: U32, max_cmd_sn: U32, r2: [u8; 12],
    }
    /// Login Request (§11.12).
    LoginRequest {
        version_max: u8, version_min: u8, ahs_words: u8, data_len: U24, isid: [u8; 6], tsih: U16, itt: U32,
        cid: U16, r1: [u8; 2], cmd_sn: U32, exp_stat_sn: U32, r2: [u8; 16],
    }
    /// Login Response (§11.13).
    LoginResponse {
        version_max: u8, version_active: u8, ahs_words: u8, data_len: U24, isid: [u8; 6], tsih: U16, itt: U32,
        r1: [u8; 4], stat_sn: U32, exp_cmd_sn: U32, max_cmd_sn: U32, status_class: u8, status_detail: u8,
        r2: [u8; 10],
    }
    /// Logout Request (§11.14).
    LogoutRequest {
        r1: [u8; 2], ahs_words: u8, data_len: U24, r2: [u8; 8], itt: U32, cid: U16, r3: [u8; 2],
        cmd_sn: U32, exp_stat_sn: U32, r4: [u8; 16],
    }
    /// Logout Response (§11.15).
    LogoutResponse {
        response: u8, r1: u8, ahs_words: u8, data_len: U24, r2: [u8; 8], itt: U32, r3: [u8; 4],
        stat_sn: U32, exp_cmd_sn: U32, max_cmd_sn: U32, r4: [u8; 4], time2wait: U16, time2retain: U16,
        r5: [u8; 4],
    }
    /// Reject (§11.17).
    Reject {
        reason: u8, r1: u8, ahs_words: u8, data_len: U24, r2: [u8; 8], no_tag: U32, r3: [u8; 4],
        stat_sn: U32, exp_cmd_sn: U32, max_cmd_sn: U32, data_sn: U32, r4: [u8; 8],
    }
    /// NOP-Out (§11.18).
    NopOut {
        r1: [u8; 2], ahs_words: u8, data_len: U24, lun: [u8; 8], itt: U32, ttt: U32,
        cmd_sn: U32, exp_stat_sn: U32, r2: [u8; 16],
    }
    /// NOP-In (§11.19).
    NopIn {
        r1: [u8; 2], ahs_words: u8, data_len: U24, lun: [u8; 8], itt: U32, ttt: U32,
        stat_sn: U32, exp_cmd_sn: U32, max_cmd_sn: U32, r2: [u8; 12],
    }
}

/// The number of padding bytes behind a data segment of `len` bytes.
pub fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// A request that is all there: its header and where its data lies in the bytes it was parsed from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The header.
    pub bhs: Bhs,
    /// First byte of the data segment.
    pub data_start: usize,
    /// First byte behind the PDU.
    pub end: usize,
}

/// What is on at the moment, as negotiated: which digests, and how long a data segment may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Framing {
    /// CRC32C behind the headers.
    pub header_digest: bool,
    /// CRC32C behind the data.
    pub data_digest: bool,
    /// Our MaxRecvDataSegmentLength.
    pub max_data_bytes: usize,
}

/// Why a byte stream cannot be split into PDUs any further.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FramingError {
    /// The header's checksum is wrong: no length in it can be trusted.
    #[error("header digest error")]
    HeaderDigest,
    /// The data segment is longer than we declared to take.
    #[error("data segment of {0} bytes is longer than the negotiated maximum")]
    TooLong(usize),
}

/// What [`Frame::parse`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed {
    /// A whole PDU.
    Whole(Frame),
    /// A whole PDU whose data does not match its digest.
    BadData(Frame),
    /// More bytes are needed: at least this many altogether.
    Need(usize),
}

impl Frame {
    /// Looks for a PDU at the start of `bytes`.
    ///
    /// # Errors
    /// The stream cannot be followed any further.
    pub fn parse(bytes: &[u8], framing: Framing) -> Result<Parsed, FramingError> {
        let Some(bhs) = Bhs::parse(bytes) else { return Ok(Parsed::Need(BHS_BYTES)) };
        let headers = BHS_BYTES + bhs.ahs_bytes();
        let data_start = headers + if framing.header_digest { 4 } else { 0 };
        let Some(head) = bytes.get(..data_start) else { return Ok(Parsed::Need(data_start)) };
        if framing.header_digest && crate::digest::crc32c([&head[..headers]]) != head[headers..] {
            return Err(FramingError::HeaderDigest);
        }
        let len = bhs.data_len.get();
        if len > framing.max_data_bytes {
            return Err(FramingError::TooLong(len));
        }
        let padded = data_start + len + padding(len);
        let has_digest = framing.data_digest && len > 0;
        let end = padded + if has_digest { 4 } else { 0 };
        let Some(pdu) = bytes.get(..end) else { return Ok(Parsed::Need(end)) };
        let frame = Frame { bhs, data_start, end };
        if has_digest && crate::digest::crc32c([&pdu[data_start..padded]]) != pdu[padded..] {
            return Ok(Parsed::BadData(frame));
        }
        Ok(Parsed::Whole(frame))
    }

    /// The data segment, from the bytes the frame was parsed from.
    pub fn data<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.data_start..self.data_start + self.bhs.data_len.get()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: Framing = Framing { header_digest: false, data_digest: false, max_data_bytes: 8192 };

    #[test]
    fn fields_are_where_the_rfc_puts_them() {
        let mut bytes = [0; 48];
        bytes[0] = 0x41;
        bytes[5..8].copy_from_slice(&[0, 2, 1]);
        bytes[16..20].copy_from_slice(&[1, 2, 3, 4]);
        bytes[24..28].copy_from_slice(&[0, 0, 0, 9]);
        bytes[32] = 0x28;
        let bhs = Bhs::parse(&bytes).unwrap();
        let command = ScsiCommand::from(bhs);
        assert_eq!((bhs.operation(), bhs.is_immediate(), bhs.cmd_sn()), (opcode::SCSI_COMMAND, true, 9));
        assert_eq!((command.data_len.get(), command.itt.get(), command.cdb[0]), (513, 0x0102_0304, 0x28));
        assert_eq!(Bhs::from(command), bhs);
    }

    #[test]
    fn digests_are_checked() {
        let framing = Framing { header_digest: true, data_digest: true, ..PLAIN };
        let mut pdu = Bhs { data_len: U24::new(5), ..Bhs::default() }.as_bytes().to_vec();
        pdu.extend_from_slice(&crate::digest::crc32c([&pdu[..]]));
        let data = [1, 2, 3, 4, 5, 0, 0, 0];
        pdu.extend_from_slice(&data);
        pdu.extend_from_slice(&crate::digest::crc32c([&data[..]]));
        assert!(
            matches!(Frame::parse(&pdu, framing), Ok(Parsed::Whole(f)) if f.data(&pdu) == [1, 2, 3, 4, 5])
        );
        pdu[53] ^= 1;
        assert!(matches!(Frame::parse(&pdu, framing), Ok(Parsed::BadData(_))));
        pdu[3] ^= 1;
        assert_eq!(Frame::parse(&pdu, framing), Err(FramingError::HeaderDigest));
    }

    proptest! {
        #[test]
        fn any_bytes_are_framed_refused_or_too_few(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            header_digest: bool,
            data_digest: bool,
        ) {
            let framing = Framing { header_digest, data_digest, max_data_bytes: 200 };
            match Frame::parse(&bytes, framing) {
                Ok(Parsed::Whole(frame) | Parsed::BadData(frame)) => prop_assert!(frame.end <= bytes.len()),
                Ok(Parsed::Need(n)) => prop_assert!(n > bytes.len()),
                Err(_) => {}
            }
        }
    }
}
