//! REPORT SUPPORTED OPERATION CODES (SPC-4 §6.34).

use crate::{
    command::ReportOpcodes,
    opcode::{self, service_action},
    sense::Sense,
};

/// A command in the table: `usage` is the CDB usage data behind the operation code.
pub(crate) struct Supported {
    pub(crate) opcode: u8,
    pub(crate) service_action: Option<u8>,
    pub(crate) usage: &'static [u8],
}

const fn op(opcode: u8, usage: &'static [u8]) -> Supported {
    Supported { opcode, service_action: None, usage }
}

const fn action(opcode: u8, service_action: u8, usage: &'static [u8]) -> Supported {
    Supported { opcode, service_action: Some(service_action), usage }
}

const FF: u8 = 0xFF;
/// GROUP NUMBER.
const GN: u8 = 0x3F;

pub(crate) const SUPPORTED: &[Supported] = &[
    op(opcode::TEST_UNIT_READY, &[0, 0, 0, 0, 0]),
    op(opcode::REQUEST_SENSE, &[1, 0, 0, FF, 0]),
    op(opcode::READ_6, &[0x1F, FF, FF, FF, 0]),
    op(opcode::WRITE_6, &[0x1F, FF, FF, FF, 0]),
    op(opcode::INQUIRY, &[1, FF, FF, FF, 0]),
    op(opcode::MODE_SELECT_6, &[0x11, 0, 0, FF, 0]),
    op(opcode::RESERVE_6, &[0, 0, 0, 0, 0]),
    op(opcode::RELEASE_6, &[0, 0, 0, 0, 0]),
    op(opcode::MODE_SENSE_6, &[8, FF, FF, FF, 0]),
    op(opcode::START_STOP_UNIT, &[1, 0, 0, 0xF7, 0]),
    op(opcode::SEND_DIAGNOSTIC, &[4, 0, 0, 0, 0]),
    op(opcode::READ_CAPACITY_10, &[0, FF, FF, FF, FF, 0, 0, 1, 0]),
    op(opcode::READ_10, &[0x18, FF, FF, FF, FF, GN, FF, FF, 0]),
    op(opcode::WRITE_10, &[0x18, FF, FF, FF, FF, GN, FF, FF, 0]),
    op(opcode::WRITE_AND_VERIFY_10, &[0x12, FF, FF, FF, FF, GN, FF, FF, 0]),
    op(opcode::VERIFY_10, &[0x16, FF, FF, FF, FF, GN, FF, FF, 0]),
    op(opcode::PRE_FETCH_10, &[2, FF, FF, FF, FF, GN, FF, FF, 0]),
    op(opcode::SYNCHRONIZE_CACHE_10, &[2, FF, FF, FF, FF, GN, FF, FF, 0]),
    op(opcode::READ_DEFECT_DATA_10, &[0, 0x1F, 0, 0, 0, 0, FF, FF, 0]),
    op(opcode::WRITE_SAME_10, &[0x18, FF, FF, FF, FF, GN, FF, FF, 0]),
    op(opcode::UNMAP, &[1, 0, 0, 0, 0, GN, FF, FF, 0]),
    action(opcode::SANITIZE, service_action::OVERWRITE, &[0xA1, 0, 0, 0, 0, 0, FF, FF, 0]),
    action(opcode::SANITIZE, service_action::BLOCK_ERASE, &[0xA2, 0, 0, 0, 0, 0, 0, 0, 0]),
    action(opcode::SANITIZE, service_action::EXIT_FAILURE_MODE, &[0xBF, 0, 0, 0, 0, 0, 0, 0, 0]),
    op(opcode::LOG_SELECT, &[2, FF, FF, 0, 0, 0, FF, FF, 0]),
    op(opcode::LOG_SENSE, &[0, FF, FF, 0, FF, FF, FF, FF, 0]),
    op(opcode::MODE_SELECT_10, &[0x11, 0, 0, 0, 0, 0, FF, FF, 0]),
    op(opcode::RESERVE_10, &[0, 0, 0, 0, 0, 0, 0, 0, 0]),
    op(opcode::RELEASE_10, &[0, 0, 0, 0, 0, 0, 0, 0, 0]),
    op(opcode::MODE_SENSE_10, &[0x18, FF, FF, 0, 0, 0, FF, FF, 0]),
    action(opcode::PERSISTENT_RESERVE_IN, 0, &[0, 0, 0, 0, 0, 0, FF, FF, 0]),
    action(opcode::PERSISTENT_RESERVE_IN, 1, &[1, 0, 0, 0, 0, 0, FF, FF, 0]),
    action(opcode::PERSISTENT_RESERVE_IN, 2, &[2, 0, 0, 0, 0, 0, FF, FF, 0]),
    action(opcode::PERSISTENT_RESERVE_IN, 3, &[3, 0, 0, 0, 0, 0, FF, FF, 0]),
    action(opcode::PERSISTENT_RESERVE_OUT, 0, &[0, 0, 0, 0, FF, FF, FF, FF, 0]),
    action(opcode::PERSISTENT_RESERVE_OUT, 1, &[1, FF, 0, 0, FF, FF, FF, FF, 0]),
    action(opcode::PERSISTENT_RESERVE_OUT, 2, &[2, FF, 0, 0, FF, FF, FF, FF, 0]),
    action(opcode::PERSISTENT_RESERVE_OUT, 3, &[3, 0, 0, 0, FF, FF, FF, FF, 0]),
    action(opcode::PERSISTENT_RESERVE_OUT, 4, &[4, FF, 0, 0, FF, FF, FF, FF, 0]),
    action(opcode::PERSISTENT_RESERVE_OUT, 5, &[5, FF, 0, 0, FF, FF, FF, FF, 0]),
    action(opcode::PERSISTENT_RESERVE_OUT, 6, &[6, 0, 0, 0, FF, FF, FF, FF, 0]),
    action(opcode::PERSISTENT_RESERVE_OUT, 7, &[7, 0, 0, 0, FF, FF, FF, FF, 0]),
    action(
        opcode::THIRD_PARTY_COPY_OUT,
        service_action::EXTENDED_COPY,
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0],
    ),
    action(
        opcode::THIRD_PARTY_COPY_OUT,
        service_action::POPULATE_TOKEN,
        &[0x10, 0, 0, 0, 0, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0],
    ),
    action(
        opcode::THIRD_PARTY_COPY_OUT,
        service_action::WRITE_USING_TOKEN,
        &[0x11, 0, 0, 0, 0, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0],
    ),
    action(
        opcode::THIRD_PARTY_COPY_IN,
        service_action::RECEIVE_ROD_TOKEN_INFORMATION,
        &[7, FF, FF, FF, FF, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0],
    ),
    action(
        opcode::THIRD_PARTY_COPY_IN,
        service_action::COPY_STATUS,
        &[0, FF, 0, 0, 0, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0],
    ),
    action(
        opcode::THIRD_PARTY_COPY_IN,
        service_action::OPERATING_PARAMETERS,
        &[3, 0, 0, 0, 0, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0],
    ),
    op(opcode::READ_16, &[0x18, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(opcode::WRITE_16, &[0x18, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(opcode::COMPARE_AND_WRITE, &[0x18, FF, FF, FF, FF, FF, FF, FF, FF, 0, 0, 0, FF, GN, 0]),
    op(opcode::OR_WRITE_16, &[0x18, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(opcode::WRITE_AND_VERIFY_16, &[0x12, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(opcode::VERIFY_16, &[0x16, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(opcode::PRE_FETCH_16, &[2, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(opcode::SYNCHRONIZE_CACHE_16, &[2, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(opcode::WRITE_SAME_16, &[0x19, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(opcode::WRITE_ATOMIC_16, &[0x18, FF, FF, FF, FF, FF, FF, FF, FF, 0, 0, FF, FF, GN, 0]),
    action(
        opcode::SERVICE_ACTION_IN_16,
        service_action::READ_CAPACITY_16,
        &[0x10, 0, 0, 0, 0, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0],
    ),
    action(
        opcode::SERVICE_ACTION_IN_16,
        service_action::GET_LBA_STATUS,
        &[0x12, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0, 0],
    ),
    op(opcode::REPORT_LUNS, &[0, FF, 0, 0, 0, FF, FF, FF, FF, 0, 0]),
    action(
        opcode::MAINTENANCE_IN,
        service_action::REPORT_TARGET_PORT_GROUPS,
        &[0x2A, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0],
    ),
    action(
        opcode::MAINTENANCE_IN,
        service_action::REPORT_SUPPORTED_OPERATION_CODES,
        &[0x0C, 0x87, FF, FF, FF, FF, FF, FF, FF, 0, 0],
    ),
    action(
        opcode::MAINTENANCE_IN,
        service_action::REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS,
        &[0x0D, 0x80, 0, 0, 0, FF, FF, FF, FF, 0, 0],
    ),
    op(opcode::READ_12, &[0x18, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(opcode::WRITE_12, &[0x18, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(opcode::WRITE_AND_VERIFY_12, &[0x12, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(opcode::VERIFY_12, &[0x16, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(opcode::READ_DEFECT_DATA_12, &[0x1F, FF, FF, FF, FF, FF, FF, FF, FF, 0, 0]),
];

/// Seconds after which an initiator may take a command for lost: longer than the array takes to come back
/// after its process was killed, so that hosts see a pause and no error.
const RECOMMENDED_TIMEOUT_SECONDS: u8 = 60;
/// A command timeouts descriptor: no nominal time, the same recommendation for every command.
const TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, RECOMMENDED_TIMEOUT_SECONDS];

/// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS data (SPC-4 §6.35): ABORT TASK, ABORT TASK SET, CLEAR TASK SET
/// and LOGICAL UNIT RESET; no ACA, no queries, no I_T NEXUS RESET.
pub(crate) fn task_management(extended: bool) -> Vec<u8> {
    const ABORT_TASK: u8 = 0x80;
    const ABORT_TASK_SET: u8 = 0x40;
    const CLEAR_TASK_SET: u8 = 0x10;
    const LOGICAL_UNIT_RESET: u8 = 0x08;
    let functions = ABORT_TASK | ABORT_TASK_SET | CLEAR_TASK_SET | LOGICAL_UNIT_RESET;
    let mut data = vec![functions, 0, 0, 0];
    if extended {
        // REPD: the header says how many bytes follow it.
        data[3] = 12;
        data.resize(16, 0);
    }
    data
}

/// REPORTING OPTIONS (SPC-4 §6.34).
const ALL: u8 = 0;
const ONE: u8 = 1;
const ONE_WITH_ACTION: u8 = 2;
const ONE_WITH_OR_WITHOUT_ACTION: u8 = 3;
/// A command descriptor's flags: it names a service action, and a timeouts descriptor follows.
const SERVACTV: u8 = 0x01;
const CTDP_ALL: u8 = 0x02;
/// SUPPORT and CTDP of the answer about one command.
const NOT_SUPPORTED: u8 = 1;
const SUPPORTED_AS_IN_STANDARD: u8 = 3;
const CTDP_ONE: u8 = 0x80;

pub(crate) fn report(request: &ReportOpcodes) -> Result<Vec<u8>, Sense> {
    match request.options {
        ALL => Ok(all(request.timeouts)),
        ONE..=ONE_WITH_OR_WITHOUT_ACTION => one(request),
        _ => Err(Sense::INVALID_FIELD_IN_CDB),
    }
}

fn all(timeouts: bool) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    for op in SUPPORTED {
        let servactv = if op.service_action.is_some() { SERVACTV } else { 0 };
        let flags = servactv | if timeouts { CTDP_ALL } else { 0 };
        let len = op.usage.len() as u8 + 1;
        bytes.extend_from_slice(&[op.opcode, 0, 0, op.service_action.unwrap_or(0), 0, flags, 0, len]);
        if timeouts {
            bytes.extend_from_slice(&TIMEOUTS);
        }
    }
    let len = bytes.len() as u32 - 4;
    bytes[..4].copy_from_slice(&len.to_be_bytes());
    bytes
}

fn one(request: &ReportOpcodes) -> Result<Vec<u8>, Sense> {
    let mut same_opcode = SUPPORTED.iter().filter(|op| op.opcode == request.opcode).peekable();
    let has_actions = same_opcode.peek().is_some_and(|op| op.service_action.is_some());
    let exists = same_opcode.peek().is_some();
    let wants_action = match request.options {
        ONE if has_actions => return Err(Sense::INVALID_FIELD_IN_CDB),
        ONE_WITH_ACTION if exists && !has_actions => return Err(Sense::INVALID_FIELD_IN_CDB),
        ONE => false,
        _ => has_actions,
    };
    let found = same_opcode.find(|op| match op.service_action {
        Some(action) => wants_action && u16::from(action) == request.service_action,
        None => request.options == ONE || request.service_action == 0,
    });
    let Some(op) = found else { return Ok(vec![0, NOT_SUPPORTED, 0, 0]) };
    let timeouts = if request.timeouts { CTDP_ONE } else { 0 };
    let mut bytes = vec![0, timeouts | SUPPORTED_AS_IN_STANDARD, 0, op.usage.len() as u8 + 1, op.opcode];
    bytes.extend_from_slice(op.usage);
    if request.timeouts {
        bytes.extend_from_slice(&TIMEOUTS);
    }
    Ok(bytes)
}
