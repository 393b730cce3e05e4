//! Command descriptor blocks to typed commands.

use crate::{
    command::{Bytchk, Command, Extent, LogSelect, LogSense, ModeSelect, ModeSense, ReportOpcodes},
    extended_copy::CopyResults,
    opcode::{self, Form, service_action},
    persistent_reserve::{ReserveAction, ReserveIn, ReserveOut},
    sanitize::Sanitize,
    sense::Sense,
};

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
    /// LOG SELECT: PCR and SP.
    pub(super) const PCR: u8 = 0x02;
    pub(super) const SAVE_PARAMETERS: u8 = 0x01;
    /// LOG SENSE: PPC and SP.
    pub(super) const PPC_SP: u8 = 0x03;
    /// START STOP UNIT, byte 4.
    pub(super) const LOEJ: u8 = 0x02;
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
/// POWER CONDITION and START of START STOP UNIT.
const START_POWER: u8 = 0xF1;
const START: u8 = 0x01;
/// TYPE of a persistent reservation.
const RESERVATION_TYPE: u8 = 0x0F;
/// Where a CDB once held the number of the unit.
const LUN_FIELD: u8 = 0xE0;
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
            opcode::VERIFY_10 | opcode::VERIFY_12 | opcode::VERIFY_16 => {
                Command::Verify(self.unprotected()?, self.bytchk()?)
            }
            opcode::PRE_FETCH_10 | opcode::PRE_FETCH_16 => Command::PreFetch(self.extent()),
            opcode::SYNCHRONIZE_CACHE_10 | opcode::SYNCHRONIZE_CACHE_16 => {
                Command::SynchronizeCache(self.extent())
            }
            // Nothing can be ejected. A medium that is there counts as loaded.
            opcode::START_STOP_UNIT if self.u8(4) & (START_POWER | bit::LOEJ) == bit::LOEJ => {
                return Err(Sense::INVALID_FIELD_IN_CDB);
            }
            opcode::START_STOP_UNIT => Command::StartStopUnit { starts: self.u8(4) & START_POWER == START },
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
            _ => return self.writing_command(),
        };
        Ok(Some(command))
    }

    /// The same for those that change the medium.
    fn writing_command(&self) -> Result<Option<Command>, Sense> {
        let command = match self.opcode() {
            opcode::WRITE_6 | opcode::WRITE_10 | opcode::WRITE_12 | opcode::WRITE_16 => {
                Command::Write(self.unprotected()?)
            }
            opcode::WRITE_ATOMIC_16 => {
                // A write may not be cut at boundaries: it is atomic as a whole.
                let extent = Extent { blocks: self.u16(12).into(), ..self.unprotected()? };
                if self.u16(10) != 0 {
                    return Err(Sense::INVALID_FIELD_IN_CDB);
                }
                Command::WriteAtomic(extent)
            }
            opcode::COMPARE_AND_WRITE => {
                Command::CompareAndWrite(Extent { blocks: self.u8(13).into(), ..self.unprotected()? })
            }
            opcode::OR_WRITE_16 => Command::OrWrite(self.unprotected()?),
            opcode::WRITE_AND_VERIFY_10 | opcode::WRITE_AND_VERIFY_12 | opcode::WRITE_AND_VERIFY_16 => {
                let extent = self.unprotected()?;
                match self.bytchk()? {
                    Bytchk::OneBlock => return Err(Sense::INVALID_FIELD_IN_CDB),
                    against => Command::WriteAndVerify(extent, against),
                }
            }
            opcode::WRITE_SAME_10 | opcode::WRITE_SAME_16 => self.write_same()?,
            opcode::UNMAP => {
                let parameter_bytes = self.u16(7).into();
                Command::Unmap { anchor: self.has(1, bit::UNMAP_ANCHOR), parameter_bytes }
            }
            opcode::SANITIZE => Command::Sanitize(Sanitize::parse(&self.bytes)?),
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
            opcode::LOG_SELECT => Command::LogSelect(self.log_select()?),
            opcode::LOG_SENSE => Command::LogSense(LogSense {
                page_control: self.u8(2) >> 6,
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
            opcode::THIRD_PARTY_COPY_OUT => self.copy_command()?,
            opcode::THIRD_PARTY_COPY_IN => self.copy_question()?,
            _ => return self.reserve_command(),
        })
    }

    fn copy_command(&self) -> Result<Command, Sense> {
        let (list_id, parameter_bytes) = (self.u32(6), self.u32(10));
        match self.service_action() {
            service_action::EXTENDED_COPY => Ok(Command::ExtendedCopy { parameter_bytes }),
            service_action::POPULATE_TOKEN => Ok(Command::PopulateToken { list_id, parameter_bytes }),
            service_action::WRITE_USING_TOKEN => Ok(Command::WriteUsingToken { list_id, parameter_bytes }),
            _ => INVALID_FIELD,
        }
    }

    fn copy_question(&self) -> Result<Command, Sense> {
        let allocation = self.u32(10);
        let what = match self.service_action() {
            service_action::COPY_STATUS => CopyResults::CopyStatus(self.u8(2)),
            service_action::OPERATING_PARAMETERS => CopyResults::OperatingParameters,
            service_action::RECEIVE_ROD_TOKEN_INFORMATION => {
                return Ok(Command::ReceiveRodTokenInformation { list_id: self.u32(2), allocation });
            }
            _ => return INVALID_FIELD,
        };
        Ok(Command::ReceiveCopyResults { what, allocation })
    }

    fn reserve_command(&self) -> Result<Command, Sense> {
        Ok(match self.opcode() {
            // Neither extents nor third parties can be reserved.
            opcode::RESERVE_6 | opcode::RESERVE_10 if self.u8(1) & !LUN_FIELD == 0 => Command::Reserve,
            opcode::RELEASE_6 | opcode::RELEASE_10 if self.u8(1) & !LUN_FIELD == 0 => Command::Release,
            opcode::RESERVE_6 | opcode::RESERVE_10 | opcode::RELEASE_6 | opcode::RELEASE_10 => {
                return INVALID_FIELD;
            }
            opcode::PERSISTENT_RESERVE_IN => Command::PersistentReserveIn {
                action: ReserveIn::of(self.service_action()).ok_or(Sense::INVALID_FIELD_IN_CDB)?,
                allocation: self.u16(7).into(),
            },
            opcode::PERSISTENT_RESERVE_OUT => Command::PersistentReserveOut(ReserveOut {
                action: ReserveAction::of(self.service_action()).ok_or(Sense::INVALID_FIELD_IN_CDB)?,
                scope: self.u8(2) >> 4,
                kind: self.u8(2) & RESERVATION_TYPE,
                parameter_bytes: self.u32(5),
            }),
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
        // Pages have the standard's form.
        if parameter_bytes > 0 && !self.has(1, bit::PAGE_FORMAT) {
            return INVALID_FIELD;
        }
        let (saves, long) = (self.has(1, bit::SAVE_PAGES), self.form == Form::Bytes10);
        Ok(Command::ModeSelect(ModeSelect { saves, long, parameter_bytes }))
    }

    fn log_select(&self) -> Result<LogSelect, Sense> {
        let request = LogSelect {
            resets: self.has(1, bit::PCR),
            page_control: self.u8(2) >> 6,
            page: self.u8(2) & PAGE_CODE,
            subpage: self.u8(3),
            parameter_bytes: self.u16(7),
        };
        // Nothing can be saved. A list names its pages itself, and what their parameters become.
        let has_list = request.parameter_bytes > 0;
        let is_named = request.resets || request.page != 0 || request.subpage != 0;
        if self.has(1, bit::SAVE_PARAMETERS) || has_list && is_named {
            return Err(Sense::INVALID_FIELD_IN_CDB);
        }
        Ok(request)
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
            service_action::REPORT_TARGET_PORT_GROUPS => {
                let extended = match self.u8(1) >> 5 {
                    0 => false,
                    1 => true,
                    _ => return INVALID_FIELD,
                };
                Ok(Command::ReportTargetPortGroups { extended, allocation: self.u32(6) })
            }
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
}

#[cfg(test)]
mod tests;
