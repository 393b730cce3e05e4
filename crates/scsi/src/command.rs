//! Commands, with what their CDBs say.

use crate::{
    extended_copy::CopyResults,
    persistent_reserve::{ReserveIn, ReserveOut},
    sanitize::{Sanitize, SanitizeAction},
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
    /// SP: what the modes become is saved.
    pub saves: bool,
    /// The 10-byte form, with its longer header.
    pub long: bool,
    /// PARAMETER LIST LENGTH.
    pub parameter_bytes: u32,
}

/// LOG SELECT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogSelect {
    /// PCR: all parameters of the pages become what they are by default.
    pub resets: bool,
    /// PC: 0 threshold, 1 cumulative, 2 default threshold, 3 default cumulative.
    pub page_control: u8,
    /// PAGE CODE; 0 with a parameter list, which names pages itself.
    pub page: u8,
    /// SUBPAGE CODE.
    pub subpage: u8,
    /// PARAMETER LIST LENGTH.
    pub parameter_bytes: u16,
}

/// LOG SENSE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogSense {
    /// PC, as in LOG SELECT.
    pub page_control: u8,
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
    /// LOG SELECT.
    LogSelect(LogSelect),
    /// LOG SENSE.
    LogSense(LogSense),
    /// SEND DIAGNOSTIC: the default self-test.
    SendDiagnostic,
    /// START STOP UNIT.
    StartStopUnit {
        /// START, without a power condition.
        starts: bool,
    },
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
    /// WRITE ATOMIC: after a loss of power all of it is there, or nothing.
    WriteAtomic(Extent),
    /// COMPARE AND WRITE: blocks to compare with, then as many to write.
    CompareAndWrite(Extent),
    /// ORWRITE: what is sent is combined with what is there by OR.
    OrWrite(Extent),
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
    /// SANITIZE.
    Sanitize(Sanitize),
    /// RESERVE (SPC-2).
    Reserve,
    /// RELEASE (SPC-2).
    Release,
    /// PERSISTENT RESERVE IN.
    PersistentReserveIn {
        /// SERVICE ACTION.
        action: ReserveIn,
        /// ALLOCATION LENGTH.
        allocation: u32,
    },
    /// PERSISTENT RESERVE OUT.
    PersistentReserveOut(ReserveOut),
    /// EXTENDED COPY, with a short list identifier.
    ExtendedCopy {
        /// PARAMETER LIST LENGTH.
        parameter_bytes: u32,
    },
    /// RECEIVE COPY RESULTS.
    ReceiveCopyResults {
        /// SERVICE ACTION and LIST IDENTIFIER.
        what: CopyResults,
        /// ALLOCATION LENGTH.
        allocation: u32,
    },
    /// POPULATE TOKEN.
    PopulateToken {
        /// LIST IDENTIFIER.
        list_id: u32,
        /// PARAMETER LIST LENGTH.
        parameter_bytes: u32,
    },
    /// WRITE USING TOKEN.
    WriteUsingToken {
        /// LIST IDENTIFIER.
        list_id: u32,
        /// PARAMETER LIST LENGTH.
        parameter_bytes: u32,
    },
    /// RECEIVE ROD TOKEN INFORMATION.
    ReceiveRodTokenInformation {
        /// LIST IDENTIFIER.
        list_id: u32,
        /// ALLOCATION LENGTH.
        allocation: u32,
    },
    /// REPORT TARGET PORT GROUPS.
    ReportTargetPortGroups {
        /// PARAMETER DATA FORMAT: with the extended header.
        extended: bool,
        /// ALLOCATION LENGTH.
        allocation: u32,
    },
}

/// What a command asks of a unit that another initiator has reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// Nothing: it is always let in.
    Nothing,
    /// Nothing of a persistent reservation, but it conflicts with RESERVE.
    Presence,
    /// To read.
    Read,
    /// To write, or to change how the unit works.
    Write,
}

impl Command {
    /// True when it changes the medium, which a write-protected unit refuses.
    pub fn writes(&self) -> bool {
        matches!(
            self,
            Command::Write(_)
                | Command::WriteAtomic(_)
                | Command::CompareAndWrite(_)
                | Command::OrWrite(_)
                | Command::WriteAndVerify(..)
                | Command::WriteSame { .. }
                | Command::Unmap { .. }
                | Command::WriteUsingToken { .. }
                | Command::Sanitize(Sanitize {
                    action: SanitizeAction::Overwrite | SanitizeAction::BlockErase,
                    ..
                })
        )
    }

    /// Whether it is one of those that limits of a unit's requests count: what reads or changes the medium, but not what
    /// asks about the unit or has it harden what it took.
    pub fn counts_towards_limits(&self) -> bool {
        self.writes()
            || matches!(
                self,
                Command::Read(_)
                    | Command::Verify(..)
                    | Command::PreFetch(_)
                    | Command::ExtendedCopy { .. }
                    | Command::PopulateToken { .. }
            )
    }

    /// What it asks of a unit that is reserved (SPC-4 table 66, SBC-3 table 13).
    pub fn needs(&self) -> Needs {
        match self {
            Command::Inquiry { .. }
            | Command::ReportLuns { .. }
            | Command::RequestSense { .. }
            | Command::LogSense(_)
            | Command::ReadCapacity10
            | Command::ReadCapacity16 { .. }
            | Command::ReportTargetPortGroups { .. }
            // What these do to a reservation they decide themselves.
            | Command::Reserve
            | Command::Release
            | Command::PersistentReserveIn { .. }
            | Command::PersistentReserveOut(_) => Needs::Nothing,
            Command::TestUnitReady | Command::StartStopUnit { starts: true } => Needs::Presence,
            Command::Read(_)
            | Command::Verify(..)
            | Command::PreFetch(_)
            | Command::GetLbaStatus { .. }
            | Command::ReadDefectData { .. }
            | Command::PopulateToken { .. }
            | Command::ReceiveRodTokenInformation { .. }
            | Command::ModeSense(_)
            | Command::ReportOpcodes(_)
            | Command::ReportTaskManagement { .. } => Needs::Read,
            Command::Write(_)
            | Command::WriteAtomic(_)
            | Command::CompareAndWrite(_)
            | Command::OrWrite(_)
            | Command::WriteAndVerify(..)
            | Command::WriteSame { .. }
            | Command::Unmap { .. }
            | Command::Sanitize(_)
            | Command::SynchronizeCache(_)
            | Command::ModeSelect(_)
            | Command::LogSelect(_)
            | Command::ExtendedCopy { .. }
            | Command::WriteUsingToken { .. }
            | Command::ReceiveCopyResults { .. }
            | Command::StartStopUnit { starts: false }
            | Command::SendDiagnostic => Needs::Write,
        }
    }
}
