//! REPORT SUPPORTED OPERATION CODES (SPC-4 §6.34).

use crate::{cdb::ReportOpcodes, sense::Sense};

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
    op(0x00, &[0, 0, 0, 0, 0]),
    op(0x03, &[1, 0, 0, FF, 0]),
    op(0x08, &[0x1F, FF, FF, FF, 0]),
    op(0x0A, &[0x1F, FF, FF, FF, 0]),
    op(0x12, &[1, FF, FF, FF, 0]),
    op(0x15, &[0x10, 0, 0, FF, 0]),
    op(0x1A, &[8, FF, FF, FF, 0]),
    op(0x1B, &[1, 0, 0, 0xF7, 0]),
    op(0x1D, &[4, 0, 0, 0, 0]),
    op(0x25, &[0, FF, FF, FF, FF, 0, 0, 1, 0]),
    op(0x28, &[0x18, FF, FF, FF, FF, GN, FF, FF, 0]),
    op(0x2A, &[0x18, FF, FF, FF, FF, GN, FF, FF, 0]),
    op(0x2E, &[0x12, FF, FF, FF, FF, GN, FF, FF, 0]),
    op(0x2F, &[0x16, FF, FF, FF, FF, GN, FF, FF, 0]),
    op(0x34, &[2, FF, FF, FF, FF, GN, FF, FF, 0]),
    op(0x35, &[2, FF, FF, FF, FF, GN, FF, FF, 0]),
    op(0x37, &[0, 0x1F, 0, 0, 0, 0, FF, FF, 0]),
    op(0x41, &[0x18, FF, FF, FF, FF, GN, FF, FF, 0]),
    op(0x42, &[1, 0, 0, 0, 0, GN, FF, FF, 0]),
    op(0x4D, &[0, FF, FF, 0, FF, FF, FF, FF, 0]),
    op(0x55, &[0x10, 0, 0, 0, 0, 0, FF, FF, 0]),
    op(0x5A, &[0x18, FF, FF, 0, 0, 0, FF, FF, 0]),
    op(0x88, &[0x18, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(0x8A, &[0x18, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(0x8E, &[0x12, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(0x8F, &[0x16, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(0x90, &[2, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(0x91, &[2, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(0x93, &[0x19, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    action(0x9E, 0x10, &[0x10, 0, 0, 0, 0, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0]),
    action(0x9E, 0x12, &[0x12, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0, 0]),
    op(0xA0, &[0, FF, 0, 0, 0, FF, FF, FF, FF, 0, 0]),
    action(0xA3, 0x0C, &[0x0C, 0x87, FF, FF, FF, FF, FF, FF, FF, 0, 0]),
    action(0xA3, 0x0D, &[0x0D, 0x80, 0, 0, 0, FF, FF, FF, FF, 0, 0]),
    op(0xA8, &[0x18, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(0xAA, &[0x18, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(0xAE, &[0x12, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(0xAF, &[0x16, FF, FF, FF, FF, FF, FF, FF, FF, GN, 0]),
    op(0xB7, &[0x1F, FF, FF, FF, FF, FF, FF, FF, FF, 0, 0]),
];

/// Seconds after which an initiator may take a command for lost: longer than the array takes to come back after
/// its process was killed, so that hosts see a pause and no error.
const RECOMMENDED_TIMEOUT_SECONDS: u8 = 60;
/// A command timeouts descriptor: no nominal time, the same recommendation for every command.
const TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, RECOMMENDED_TIMEOUT_SECONDS];

/// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS data (SPC-4 §6.35): ABORT TASK, ABORT TASK SET, CLEAR TASK SET and
/// LOGICAL UNIT RESET; no ACA, no queries, no I_T NEXUS RESET.
pub(crate) fn task_management(extended: bool) -> Vec<u8> {
    const ABORT_TASK: u8 = 0x80;
    const ABORT_TASK_SET: u8 = 0x40;
    const CLEAR_TASK_SET: u8 = 0x10;
    const LOGICAL_UNIT_RESET: u8 = 0x08;
    let functions = ABORT_TASK | ABORT_TASK_SET | CLEAR_TASK_SET | LOGICAL_UNIT_RESET;
    let mut data = vec![functions, 0, 0, 0];
    if extended {
        data[3] = 12;
        data.resize(16, 0);
    }
    data
}

pub(crate) fn report(request: &ReportOpcodes) -> Result<Vec<u8>, Sense> {
    match request.options {
        0 => Ok(all(request.timeouts)),
        1..=3 => one(request),
        _ => Err(Sense::INVALID_FIELD_IN_CDB),
    }
}

fn all(timeouts: bool) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    for op in SUPPORTED {
        let flags = u8::from(op.service_action.is_some()) | u8::from(timeouts) << 1;
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
        1 if has_actions => return Err(Sense::INVALID_FIELD_IN_CDB),
        2 if exists && !has_actions => return Err(Sense::INVALID_FIELD_IN_CDB),
        1 => false,
        _ => has_actions,
    };
    let found = same_opcode.find(|op| match op.service_action {
        Some(action) => wants_action && u16::from(action) == request.service_action,
        None => request.options == 1 || request.service_action == 0,
    });
    let Some(op) = found else { return Ok(vec![0, 1, 0, 0]) };
    let timeouts = u8::from(request.timeouts) << 7;
    let mut bytes = vec![0, timeouts | 3, 0, op.usage.len() as u8 + 1, op.opcode];
    bytes.extend_from_slice(op.usage);
    if request.timeouts {
        bytes.extend_from_slice(&TIMEOUTS);
    }
    Ok(bytes)
}
