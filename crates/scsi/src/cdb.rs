//! Command descriptor blocks to typed commands.

use crate::{
    opcode::{self, Form, service_action},
    sense::Sense,
};

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

/// Fields of a CDB's second byte, unless said otherwise.
mod bit {
    /// RDPROTECT, WRPROTECT or VRPROTECT: there is no protection information, so all must be 0.
    pub(super) const PROTECT: u8 = 0xE0;
    /// REQUEST SENSE.
    pub(super) const DESC: u8 = 0x01;
    /// INQUIRY.
    pub(super) const EVPD: u8 = 0x01;
    pub(super) const CMDDT: u8 = 0x02;
    /// MODE SENSE.
    pub(super) const DBD: u8 = 0x08;
    pub(super) const LLBAA: u8 = 0x10;
    /// MODE SELECT.
    pub(super) const SAVE_PAGES: u8 = 0x01;
    pub(super) const PAGE_FORMAT: u8 = 0x10;
    /// SEND DIAGNOSTIC.
    pub(super) const SELFTEST: u8 = 0x04;
    /// LOG SENSE: PPC and SP.
    pub(super) const PPC_SP: u8 = 0x03;
    /// READ CAPACITY (10), byte 8.
    pub(super) const PMI: u8 = 0x01;
    /// WRITE SAME. PBDATA and LBDATA are obsolete.
    pub(super) const SAME_ANCHOR: u8 = 0x10;
    pub(super) const SAME_UNMAP: u8 = 0x08;
    pub(super) const PBDATA_LBDATA: u8 = 0x06;
    pub(super) const NDOB: u8 = 0x01;
    /// UNMAP.
    pub(super) const UNMAP_ANCHOR: u8 = 0x01;
    /// REPORT SUPPORTED OPERATION CODES, and TASK MANAGEMENT FUNCTIONS, byte 2.
    pub(super) const RCTD: u8 = 0x80;
    pub(super) const REPD: u8 = 0x80;
    /// CONTROL, the last byte.
    pub(super) const NACA: u8 = 0x04;
}

/// PAGE CODE of a byte whose other bits mean something else.
const PAGE_CODE: u8 = 0x3F;
/// SERVICE ACTION.
const SERVICE_ACTION: u8 = 0x1F;
/// REQ_PLIST, REQ_GLIST and DEFECT LIST FORMAT.
pub(crate) const DEFECT_LIST: u8 = 0x1F;
/// REPORTING OPTIONS.
const REPORTING_OPTIONS: u8 = 0x07;
/// SELECT REPORT: up to this one all are known.
const SELECT_REPORT_MAX: u8 = 2;
/// LOGICAL BLOCK ADDRESS of the 6-byte forms.
const LBA_6: u32 = 0x1F_FFFF;
/// What TRANSFER LENGTH 0 means in the 6-byte forms.
const BLOCKS_6_OF_0: u32 = 256;

const INVALID_FIELD: Result<Command, Sense> = Err(Sense::INVALID_FIELD_IN_CDB);

struct Cdb {
    bytes: [u8; 16],
    form: Form,
}

impl Cdb {
    /// Takes a CDB's bytes, as many as its operation code says it has.
    fn new(bytes: &[u8]) -> Result<Self, Sense> {
        let opcode = *bytes.first().ok_or(Sense::INVALID_OPERATION_CODE)?;
        let form = Form::of(opcode).ok_or(Sense::INVALID_OPERATION_CODE)?;
        let given = bytes.get(..form.bytes()).ok_or(Sense::INVALID_FIELD_IN_CDB)?;
        let mut bytes = [0; 16];
        bytes[..given.len()].copy_from_slice(given);
        Ok(Self { bytes, form })
    }

    fn opcode(&self) -> u8 {
        self.bytes[0]
    }
    fn u8(&self, at: usize) -> u8 {
        self.bytes[at]
    }
    fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }
    fn u32(&self, at: usize) -> u32 {
        u32::from(self.u16(at)) << 16 | u32::from(self.u16(at + 2))
    }
    fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) << 32 | u64::from(self.u32(at + 4))
    }
    /// True when any of `mask` is set in byte `at`.
    fn has(&self, at: usize, mask: u8) -> bool {
        self.bytes[at] & mask != 0
    }
    fn service_action(&self) -> u8 {
        self.bytes[1] & SERVICE_ACTION
    }

    /// LBA and length of the 6, 10, 12 or 16 byte forms.
    fn extent(&self) -> Extent {
        match self.form {
            Form::Bytes6 => Extent {
                lba: u64::from(self.u32(0) & LBA_6),
                blocks: if self.u8(4) == 0 { BLOCKS_6_OF_0 } else { self.u8(4).into() },
            },
            Form::Bytes10 => Extent { lba: self.u32(2).into(), blocks: self.u16(7).into() },
            Form::Bytes12 => Extent { lba: self.u32(2).into(), blocks: self.u32(6) },
            Form::Bytes16 => Extent { lba: self.u64(2), blocks: self.u32(10) },
        }
    }

    /// The extent of a command whose second byte starts with a protection field that must be 0. The 6-byte
    /// forms have a part of the LBA there.
    fn unprotected(&self) -> Result<Extent, Sense> {
        match self.form {
            Form::Bytes6 => Ok(self.extent()),
            _ if self.has(1, bit::PROTECT) => Err(Sense::INVALID_FIELD_IN_CDB),
            _ => Ok(self.extent()),
        }
    }

    fn bytchk(&self) -> Result<Bytchk, Sense> {
        match self.u8(1) >> 1 & 3 {
            0 => Ok(Bytchk::Medium),
            1 => Ok(Bytchk::Data),
            3 => Ok(Bytchk::OneBlock),
            _ => Err(Sense::INVALID_FIELD_IN_CDB),
        }
    }

    /// PARAMETER LIST LENGTH or ALLOCATION LENGTH of a command with a 6 and a 10 byte form.
    fn length_6_or_10(&self) -> u32 {
        match self.form {
            Form::Bytes6 => self.u8(4).into(),
            _ => self.u16(7).into(),
        }
    }

    /// Parses the commands of SBC-3; `None` for an operation code that is not one of theirs.
    fn block_command(&self) -> Result<Option<Command>, Sense> {
        let command = match self.opcode() {
            opcode::READ_6 | opcode::READ_10 | opcode::READ_12 | opcode::READ_16 => {
                Command::Read(self.unprotected()?)
            }
            opcode::WRITE_6 | opcode::WRITE_10 | opcode::WRITE_12 | opcode::WRITE_16 => {
                Command::Write(self.unprotected()?)
            }
            opcode::WRITE_AND_VERIFY_10 | opcode::WRITE_AND_VERIFY_12 | opcode::WRITE_AND_VERIFY_16 => {
                let extent = self.unprotected()?;
                match self.bytchk()? {
                    Bytchk::OneBlock => return Err(Sense::INVALID_FIELD_IN_CDB),
                    against => Command::WriteAndVerify(extent, against),
                }
            }
            opcode::VERIFY_10 | opcode::VERIFY_12 | opcode::VERIFY_16 => {
                Command::Verify(self.unprotected()?, self.bytchk()?)
            }
            opcode::PRE_FETCH_10 | opcode::PRE_FETCH_16 => Command::PreFetch(self.extent()),
            opcode::SYNCHRONIZE_CACHE_10 | opcode::SYNCHRONIZE_CACHE_16 => {
                Command::SynchronizeCache(self.extent())
            }
            opcode::WRITE_SAME_10 | opcode::WRITE_SAME_16 => self.write_same()?,
            opcode::UNMAP => {
                let parameter_bytes = self.u16(7).into();
                Command::Unmap { anchor: self.has(1, bit::UNMAP_ANCHOR), parameter_bytes }
            }
            opcode::START_STOP_UNIT => Command::StartStopUnit,
            // LBA and PMI are obsolete, but LBA without PMI has always been an error.
            opcode::READ_CAPACITY_10 if !self.has(8, bit::PMI) && self.u32(2) != 0 => {
                return Err(Sense::INVALID_FIELD_IN_CDB);
            }
            opcode::READ_CAPACITY_10 => Command::ReadCapacity10,
            opcode::READ_DEFECT_DATA_10 => {
                let (format, allocation) = (self.u8(2) & DEFECT_LIST, self.u16(7).into());
                Command::ReadDefectData { long: false, format, allocation }
            }
            opcode::READ_DEFECT_DATA_12 => {
                let (format, allocation) = (self.u8(1) & DEFECT_LIST, self.u32(6));
                Command::ReadDefectData { long: true, format, allocation }
            }
            opcode::SERVICE_ACTION_IN_16 => match self.service_action() {
                service_action::READ_CAPACITY_16 => Command::ReadCapacity16 { allocation: self.u32(10) },
                service_action::GET_LBA_STATUS => {
                    Command::GetLbaStatus { lba: self.u64(2), allocation: self.u32(10) }
                }
                _ => return Err(Sense::INVALID_FIELD_IN_CDB),
            },
            _ => return Ok(None),
        };
        Ok(Some(command))
    }

    fn write_same(&self) -> Result<Command, Sense> {
        let anchors_without_unmap = self.has(1, bit::SAME_ANCHOR) && !self.has(1, bit::SAME_UNMAP);
        if self.has(1, bit::PROTECT | bit::PBDATA_LBDATA) || anchors_without_unmap {
            return INVALID_FIELD;
        }
        Ok(Command::WriteSame {
            extent: self.extent(),
            no_data: self.form == Form::Bytes16 && self.has(1, bit::NDOB),
            anchor: self.has(1, bit::SAME_ANCHOR),
        })
    }

    /// Parses the commands of SPC-4.
    fn primary_command(&self) -> Result<Command, Sense> {
        Ok(match self.opcode() {
            opcode::TEST_UNIT_READY => Command::TestUnitReady,
            opcode::REQUEST_SENSE => {
                Command::RequestSense { descriptor: self.has(1, bit::DESC), allocation: self.u8(4).into() }
            }
            opcode::INQUIRY => match (self.has(1, bit::EVPD), self.u8(2)) {
                _ if self.has(1, bit::CMDDT) => return INVALID_FIELD,
                (false, 0) => Command::Inquiry { page: None, allocation: self.u16(3).into() },
                (false, _) => return INVALID_FIELD,
                (true, page) => Command::Inquiry { page: Some(page), allocation: self.u16(3).into() },
            },
            opcode::MODE_SENSE_6 | opcode::MODE_SENSE_10 => Command::ModeSense(self.mode_sense()),
            opcode::MODE_SELECT_6 | opcode::MODE_SELECT_10 => self.mode_select()?,
            opcode::SEND_DIAGNOSTIC => {
                // SELFTEST alone, without parameters.
                if self.u8(1) != bit::SELFTEST || self.u16(3) != 0 {
                    return INVALID_FIELD;
                }
                Command::SendDiagnostic
            }
            opcode::LOG_SENSE if self.has(1, bit::PPC_SP) => return INVALID_FIELD,
            opcode::LOG_SENSE => Command::LogSense(LogSense {
                page: self.u8(2) & PAGE_CODE,
                subpage: self.u8(3),
                pointer: self.u16(5),
                allocation: self.u16(7).into(),
            }),
            opcode::REPORT_LUNS => match self.u8(2) {
                select @ 0..=SELECT_REPORT_MAX => Command::ReportLuns { select, allocation: self.u32(6) },
                _ => return INVALID_FIELD,
            },
            opcode::MAINTENANCE_IN => self.maintenance_in()?,
            _ => return Err(Sense::INVALID_OPERATION_CODE),
        })
    }

    fn mode_sense(&self) -> ModeSense {
        let long = self.form == Form::Bytes10;
        ModeSense {
            long,
            no_block_descriptor: self.has(1, bit::DBD),
            long_block_descriptor: long && self.has(1, bit::LLBAA),
            page_control: self.u8(2) >> 6,
            page: self.u8(2) & PAGE_CODE,
            subpage: self.u8(3),
            allocation: self.length_6_or_10(),
        }
    }

    fn mode_select(&self) -> Result<Command, Sense> {
        let parameter_bytes = self.length_6_or_10();
        // Nothing can be saved, and pages have the standard's form.
        if self.has(1, bit::SAVE_PAGES) || parameter_bytes > 0 && !self.has(1, bit::PAGE_FORMAT) {
            return INVALID_FIELD;
        }
        Ok(Command::ModeSelect(ModeSelect { long: self.form == Form::Bytes10, parameter_bytes }))
    }

    fn maintenance_in(&self) -> Result<Command, Sense> {
        match self.service_action() {
            service_action::REPORT_SUPPORTED_OPERATION_CODES => Ok(Command::ReportOpcodes(ReportOpcodes {
                timeouts: self.has(2, bit::RCTD),
                options: self.u8(2) & REPORTING_OPTIONS,
                opcode: self.u8(3),
                service_action: self.u16(4),
                allocation: self.u32(6),
            })),
            service_action::REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS => {
                let (extended, allocation) = (self.has(2, bit::REPD), self.u32(6));
                Ok(Command::ReportTaskManagement { extended, allocation })
            }
            _ => INVALID_FIELD,
        }
    }
}

impl Command {
    /// Parses a CDB. Bytes behind the command's own length are ignored.
    ///
    /// # Errors
    /// INVALID COMMAND OPERATION CODE if the unit has no such command. INVALID FIELD IN CDB if the CDB is cut
    /// short, or a field asks for what the unit does not do: an unknown service action, protection
    /// information, NACA.
    pub fn parse(bytes: &[u8]) -> Result<Command, Sense> {
        let cdb = Cdb::new(bytes)?;
        let command = match cdb.block_command()? {
            Some(command) => command,
            None => cdb.primary_command()?,
        };
        // NOTE: checked last, so that an unknown operation code is answered as one. NACA is not supported
        // (NORMACA = 0).
        if cdb.has(cdb.form.bytes() - 1, bit::NACA) { INVALID_FIELD } else { Ok(command) }
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report_opcodes::SUPPORTED;
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
