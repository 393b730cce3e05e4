//! Command descriptor blocks to typed commands.

use crate::sense::Sense;

/// `blocks` logical blocks from `lba` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First logical block.
    pub lba: u64,
    /// Number of logical blocks.
    pub blocks: u32,
}

/// What a verifying command compares the medium with (the BYTCHK field).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bytchk {
    /// Nothing: it must be readable.
    Medium,
    /// Data sent along, block for block.
    Data,
    /// One block sent along, against every block.
    OneBlock,
}

/// MODE SENSE 6 or 10.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModeSense {
    /// The 10-byte form, with its longer header.
    pub long: bool,
    /// DBD: leave the block descriptor out.
    pub no_block_descriptor: bool,
    /// LLBAA: the long block descriptor may be used.
    pub long_block_descriptor: bool,
    /// PC: 0 current, 1 changeable, 2 default, 3 saved.
    pub page_control: u8,
    /// PAGE CODE.
    pub page: u8,
    /// SUBPAGE CODE.
    pub subpage: u8,
    /// ALLOCATION LENGTH.
    pub allocation: u32,
}

/// MODE SELECT 6 or 10.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModeSelect {
    /// The 10-byte form, with its longer header.
    pub long: bool,
    /// PARAMETER LIST LENGTH.
    pub parameter_bytes: u32,
}

/// LOG SENSE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogSense {
    /// PAGE CODE.
    pub page: u8,
    /// SUBPAGE CODE.
    pub subpage: u8,
    /// PARAMETER POINTER: parameters with lower codes are left out.
    pub pointer: u16,
    /// ALLOCATION LENGTH.
    pub allocation: u32,
}

/// REPORT SUPPORTED OPERATION CODES.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReportOpcodes {
    /// RCTD: with command timeouts descriptors.
    pub timeouts: bool,
    /// REPORTING OPTIONS.
    pub options: u8,
    /// REQUESTED OPERATION CODE.
    pub opcode: u8,
    /// REQUESTED SERVICE ACTION.
    pub service_action: u16,
    /// ALLOCATION LENGTH.
    pub allocation: u32,
}

/// A parsed command. FUA and DPO are accepted and mean nothing: there is no volatile cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// TEST UNIT READY.
    TestUnitReady,
    /// REQUEST SENSE.
    RequestSense {
        /// DESC: descriptor format.
        descriptor: bool,
        /// ALLOCATION LENGTH.
        allocation: u32,
    },
    /// INQUIRY.
    Inquiry {
        /// The vital product data page, with EVPD.
        page: Option<u8>,
        /// ALLOCATION LENGTH.
        allocation: u32,
    },
    /// MODE SENSE.
    ModeSense(ModeSense),
    /// MODE SELECT.
    ModeSelect(ModeSelect),
    /// LOG SENSE.
    LogSense(LogSense),
    /// SEND DIAGNOSTIC: the default self-test.
    SendDiagnostic,
    /// START STOP UNIT.
    StartStopUnit,
    /// REPORT LUNS.
    ReportLuns {
        /// SELECT REPORT.
        select: u8,
        /// ALLOCATION LENGTH.
        allocation: u32,
    },
    /// READ CAPACITY (10).
    ReadCapacity10,
    /// READ CAPACITY (16).
    ReadCapacity16 {
        /// ALLOCATION LENGTH.
        allocation: u32,
    },
    /// GET LBA STATUS.
    GetLbaStatus {
        /// STARTING LOGICAL BLOCK ADDRESS.
        lba: u64,
        /// ALLOCATION LENGTH.
        allocation: u32,
    },
    /// REPORT SUPPORTED OPERATION CODES.
    ReportOpcodes(ReportOpcodes),
    /// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS.
    ReportTaskManagement {
        /// REPD: the extended parameter data.
        extended: bool,
        /// ALLOCATION LENGTH.
        allocation: u32,
    },
    /// READ DEFECT DATA.
    ReadDefectData {
        /// The 12-byte form, with its longer header.
        long: bool,
        /// REQ_PLIST, REQ_GLIST and DEFECT LIST FORMAT.
        format: u8,
        /// ALLOCATION LENGTH.
        allocation: u32,
    },
    /// READ.
    Read(Extent),
    /// WRITE.
    Write(Extent),
    /// WRITE AND VERIFY: the medium, or what was sent against what was stored.
    WriteAndVerify(Extent, Bytchk),
    /// VERIFY.
    Verify(Extent, Bytchk),
    /// PRE-FETCH.
    PreFetch(Extent),
    /// SYNCHRONIZE CACHE.
    SynchronizeCache(Extent),
    /// WRITE SAME.
    WriteSame {
        /// Where.
        extent: Extent,
        /// NDOB: no data is sent, the pattern is zeroes.
        no_data: bool,
        /// ANCHOR: space is to be kept for what is unmapped.
        anchor: bool,
    },
    /// UNMAP.
    Unmap {
        /// ANCHOR: space is to be kept for what is unmapped.
        anchor: bool,
        /// PARAMETER LIST LENGTH.
        parameter_bytes: u32,
    },
}

struct Cdb([u8; 16]);

impl Cdb {
    fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }
    fn u32(&self, at: usize) -> u32 {
        u32::from(self.u16(at)) << 16 | u32::from(self.u16(at + 2))
    }
    fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) << 32 | u64::from(self.u32(at + 4))
    }
    /// True when any of `mask` is set in byte `at`.
    fn has(&self, at: usize, mask: u8) -> bool {
        self.0[at] & mask != 0
    }

    /// LBA and length of the 6, 10, 12 or 16 byte forms.
    fn extent(&self) -> Extent {
        match self.0[0] >> 5 {
            0 => Extent {
                lba: u64::from(self.u32(0) & 0x1F_FFFF),
                blocks: if self.0[4] == 0 { 256 } else { self.0[4].into() },
            },
            5 => Extent { lba: self.u32(2).into(), blocks: self.u32(6) },
            4 => Extent { lba: self.u64(2), blocks: self.u32(10) },
            _ => Extent { lba: self.u32(2).into(), blocks: self.u16(7).into() },
        }
    }

    /// The extent of a command whose second byte starts with a protection field that must be 0.
    fn unprotected(&self) -> Result<Extent, Sense> {
        if self.has(1, 0xE0) { Err(Sense::INVALID_FIELD_IN_CDB) } else { Ok(self.extent()) }
    }

    fn bytchk(&self) -> Result<Bytchk, Sense> {
        match self.0[1] >> 1 & 3 {
            0 => Ok(Bytchk::Medium),
            1 => Ok(Bytchk::Data),
            3 => Ok(Bytchk::OneBlock),
            _ => Err(Sense::INVALID_FIELD_IN_CDB),
        }
    }
}

/// Length of the CDB by its operation code's group (SPC-4 §4.2.5.1).
fn cdb_bytes(opcode: u8) -> Option<usize> {
    match opcode >> 5 {
        0 => Some(6),
        1 | 2 => Some(10),
        4 => Some(16),
        5 => Some(12),
        _ => None,
    }
}

impl Command {
    /// Parses a CDB. Bytes behind the command's own length are ignored.
    ///
    /// # Errors
    /// The sense to answer with: INVALID COMMAND OPERATION CODE or INVALID FIELD IN CDB.
    pub fn parse(bytes: &[u8]) -> Result<Command, Sense> {
        let invalid = Err(Sense::INVALID_FIELD_IN_CDB);
        let opcode = *bytes.first().ok_or(Sense::INVALID_OPERATION_CODE)?;
        let len = cdb_bytes(opcode).ok_or(Sense::INVALID_OPERATION_CODE)?;
        let Some(bytes) = bytes.get(..len) else { return invalid };
        let mut cdb = Cdb([0; 16]);
        cdb.0[..len].copy_from_slice(bytes);
        let command = match opcode {
            0x00 => Command::TestUnitReady,
            0x03 => Command::RequestSense { descriptor: cdb.has(1, 1), allocation: cdb.0[4].into() },
            0x08 | 0x28 | 0xA8 | 0x88 => Command::Read(cdb.unprotected_unless_6(opcode)?),
            0x0A | 0x2A | 0xAA | 0x8A => Command::Write(cdb.unprotected_unless_6(opcode)?),
            0x12 => match (cdb.has(1, 1), cdb.0[2]) {
                _ if cdb.has(1, 2) => return invalid,
                (false, 0) => Command::Inquiry { page: None, allocation: cdb.u16(3).into() },
                (false, _) => return invalid,
                (true, page) => Command::Inquiry { page: Some(page), allocation: cdb.u16(3).into() },
            },
            0x1A | 0x5A => Command::ModeSense(ModeSense {
                long: opcode == 0x5A,
                no_block_descriptor: cdb.has(1, 8),
                long_block_descriptor: opcode == 0x5A && cdb.has(1, 0x10),
                page_control: cdb.0[2] >> 6,
                page: cdb.0[2] & 0x3F,
                subpage: cdb.0[3],
                allocation: if opcode == 0x5A { cdb.u16(7).into() } else { cdb.0[4].into() },
            }),
            // Nothing can be saved (SP), and pages have the standard's form (PF).
            0x15 | 0x55 if cdb.has(1, 1) => return invalid,
            0x15 | 0x55 => {
                let parameter_bytes = if opcode == 0x55 { cdb.u16(7).into() } else { cdb.0[4].into() };
                if parameter_bytes > 0 && !cdb.has(1, 0x10) {
                    return invalid;
                }
                Command::ModeSelect(ModeSelect { long: opcode == 0x55, parameter_bytes })
            }
            0x1B => Command::StartStopUnit,
            // SELFTEST alone, without parameters.
            0x1D if cdb.0[1] != 4 || cdb.u16(3) != 0 => return invalid,
            0x1D => Command::SendDiagnostic,
            // PPC and SP.
            0x4D if cdb.has(1, 3) => return invalid,
            0x4D => Command::LogSense(LogSense {
                page: cdb.0[2] & 0x3F,
                subpage: cdb.0[3],
                pointer: cdb.u16(5),
                allocation: cdb.u16(7).into(),
            }),
            // LBA and PMI are obsolete, but LBA without PMI has always been an error.
            0x25 if !cdb.has(8, 1) && cdb.u32(2) != 0 => return invalid,
            0x25 => Command::ReadCapacity10,
            0x2E | 0xAE | 0x8E => {
                let extent = cdb.unprotected()?;
                match cdb.bytchk()? {
                    Bytchk::OneBlock => return invalid,
                    against => Command::WriteAndVerify(extent, against),
                }
            }
            0x2F | 0xAF | 0x8F => Command::Verify(cdb.unprotected()?, cdb.bytchk()?),
            0x34 | 0x90 => Command::PreFetch(cdb.extent()),
            0x35 | 0x91 => Command::SynchronizeCache(cdb.extent()),
            // WRPROTECT; PBDATA and LBDATA (obsolete).
            0x41 | 0x93 if cdb.has(1, 0xE6) => return invalid,
            0x37 => Command::ReadDefectData {
                long: false,
                format: cdb.0[2] & 0x1F,
                allocation: cdb.u16(7).into(),
            },
            0xB7 => Command::ReadDefectData { long: true, format: cdb.0[1] & 0x1F, allocation: cdb.u32(6) },
            // ANCHOR without UNMAP.
            0x41 | 0x93 if cdb.0[1] & 0x18 == 0x10 => return invalid,
            0x41 | 0x93 => Command::WriteSame {
                extent: cdb.extent(),
                no_data: opcode == 0x93 && cdb.has(1, 1),
                anchor: cdb.has(1, 0x10),
            },
            0x42 => Command::Unmap { anchor: cdb.has(1, 1), parameter_bytes: cdb.u16(7).into() },
            0x9E if cdb.0[1] & 0x1F == 0x10 => Command::ReadCapacity16 { allocation: cdb.u32(10) },
            0x9E if cdb.0[1] & 0x1F == 0x12 => {
                Command::GetLbaStatus { lba: cdb.u64(2), allocation: cdb.u32(10) }
            }
            0xA0 => match cdb.0[2] {
                select @ 0..=2 => Command::ReportLuns { select, allocation: cdb.u32(6) },
                _ => return invalid,
            },
            0xA3 if cdb.0[1] & 0x1F == 0x0C => Command::ReportOpcodes(ReportOpcodes {
                timeouts: cdb.has(2, 0x80),
                options: cdb.0[2] & 7,
                opcode: cdb.0[3],
                service_action: cdb.u16(4),
                allocation: cdb.u32(6),
            }),
            0xA3 if cdb.0[1] & 0x1F == 0x0D => {
                Command::ReportTaskManagement { extended: cdb.has(2, 0x80), allocation: cdb.u32(6) }
            }
            // Known operation codes with unknown service actions.
            0x9E | 0xA3 => return invalid,
            _ => return Err(Sense::INVALID_OPERATION_CODE),
        };
        // NACA is not supported, as NORMACA = 0 says.
        if cdb.has(len - 1, 0x04) { invalid } else { Ok(command) }
    }
}

impl Command {
    /// True when it changes the medium, which a write-protected unit refuses.
    pub fn writes(&self) -> bool {
        matches!(
            self,
            Command::Write(_)
                | Command::WriteAndVerify(..)
                | Command::WriteSame { .. }
                | Command::Unmap { .. }
        )
    }
}

impl Cdb {
    fn unprotected_unless_6(&self, opcode: u8) -> Result<Extent, Sense> {
        if opcode < 0x20 { Ok(self.extent()) } else { self.unprotected() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opcodes::SUPPORTED;
    use proptest::prelude::*;

    #[test]
    fn extents_of_every_form() {
        let parse = |bytes: &[u8]| Command::parse(bytes).unwrap();
        assert_eq!(parse(&[0x08, 0xFF, 2, 3, 0, 0]), Command::Read(Extent { lba: 0x1F_0203, blocks: 256 }));
        assert_eq!(
            parse(&[0x2A, 0x08, 0, 0, 0, 9, 0, 1, 2, 0]),
            Command::Write(Extent { lba: 9, blocks: 0x102 })
        );
        assert_eq!(
            parse(&[0xA8, 0, 0, 0, 1, 0, 0, 0, 0, 7, 0, 0]),
            Command::Read(Extent { lba: 256, blocks: 7 })
        );
        assert_eq!(
            parse(&[0x88, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0]),
            Command::Read(Extent { lba: 1 << 32, blocks: 8 })
        );
    }

    #[test]
    fn refusals() {
        let refused = |bytes: &[u8]| Command::parse(bytes).unwrap_err();
        assert_eq!(refused(&[]), Sense::INVALID_OPERATION_CODE);
        assert_eq!(refused(&[0x5E; 16]), Sense::INVALID_OPERATION_CODE);
        assert_eq!(refused(&[0x28, 0x20, 0, 0, 0, 0, 0, 0, 1, 0]), Sense::INVALID_FIELD_IN_CDB);
        assert_eq!(refused(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 4]), Sense::INVALID_FIELD_IN_CDB);
        assert_eq!(refused(&[0x28, 0, 0, 0]), Sense::INVALID_FIELD_IN_CDB);
        assert_eq!(refused(&[0x12, 0, 0x80, 0, 36, 0]), Sense::INVALID_FIELD_IN_CDB);
    }

    #[test]
    fn every_command_reported_as_supported_parses() {
        for op in SUPPORTED {
            let mut cdb = [0; 16];
            cdb[0] = op.opcode;
            cdb[1] = op.service_action.unwrap_or(0);
            // SEND DIAGNOSTIC does nothing but its self-test.
            cdb[1] |= if op.opcode == 0x1D { 4 } else { 0 };
            assert!(Command::parse(&cdb[..op.usage.len() + 1]).is_ok(), "{:#x}", op.opcode);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = Command::parse(&bytes);
        }
    }
}
