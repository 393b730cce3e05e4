//! INQUIRY, vital product data, READ CAPACITY and REPORT LUNS data.

use crate::{execute::Geometry, limits, sense::Sense};
use quoin_volume::Provisioning;
use uuid::Uuid;

const VENDOR: &[u8; 8] = b"QUOIN   ";
const PRODUCT: &[u8; 16] = b"volume          ";
const REVISION: &[u8; 4] = b"0001";
/// SAM-5, SPC-4, SBC-3, iSCSI (SPC-4 table 142).
const VERSIONS: [u16; 4] = [0x00A0, 0x0460, 0x04C0, 0x0960];
/// A company identifier with the "locally administered" bit set, so that it can never be another vendor's.
const COMPANY: u128 = 0x02_51_55;

/// The longest sense data: descriptor format with an information descriptor.
const MAX_SENSE_BYTES: u8 = 20;

/// The port through which a unit is reached, for the device identification page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// The target's iSCSI name.
    pub target_name: String,
    /// The target portal group tag, which is also the relative port identifier.
    pub group: u16,
}

fn standard(qualifier_and_type: u8) -> Vec<u8> {
    let mut bytes = vec![0; 96];
    bytes[0] = qualifier_and_type;
    bytes[2] = 0x06; // SPC-4
    bytes[3] = 0x02; // response data format
    bytes[4] = 91;
    bytes[7] = 0x02; // CMDQUE
    bytes[8..16].copy_from_slice(VENDOR);
    bytes[16..32].copy_from_slice(PRODUCT);
    bytes[32..36].copy_from_slice(REVISION);
    for (at, version) in (58..).step_by(2).zip(VERSIONS) {
        bytes[at..at + 2].copy_from_slice(&version.to_be_bytes());
    }
    bytes
}

/// Standard INQUIRY data of a logical unit number with nothing behind it: qualifier 011b, type 1Fh.
pub fn no_unit_inquiry() -> Vec<u8> {
    standard(0x7F)
}

pub(crate) fn inquiry(
    page: Option<u8>,
    uuid: Uuid,
    geometry: Geometry,
    has_thresholds: bool,
    port: &Port,
) -> Result<Vec<u8>, Sense> {
    let Some(page) = page else { return Ok(standard(0)) };
    let body = match page {
        0x00 => vec![0x00, 0x80, 0x83, 0x86, 0xB0, 0xB1, 0xB2],
        0x80 => uuid.simple().to_string().into_bytes(),
        0x83 => device_identification(uuid, port),
        0x86 => extended(),
        0xB0 => block_limits(geometry),
        0xB1 => {
            let mut body = vec![0; 60];
            body[1] = 1; // non-rotating
            body
        }
        0xB2 => provisioning(geometry, has_thresholds),
        _ => return Err(Sense::INVALID_FIELD_IN_CDB),
    };
    let [high, low] = (body.len() as u16).to_be_bytes();
    Ok([vec![0, page, high, low], body].concat())
}

/// Logical block provisioning (SBC-3 §6.5.5): UNMAP and both WRITE SAME unmap, what is unmapped reads as zeroes.
fn provisioning(geometry: Geometry, has_thresholds: bool) -> Vec<u8> {
    const LBPU: u8 = 0x80;
    const LBPWS: u8 = 0x40;
    const LBPWS10: u8 = 0x20;
    const LBPRZ: u8 = 0x04;
    const ANC_SUP: u8 = 0x02;
    let unmaps = LBPU | LBPWS | LBPWS10 | LBPRZ;
    let (flags, kind) = match geometry.provisioning {
        Provisioning::Resource => (unmaps | ANC_SUP, 1),
        Provisioning::Thin => (unmaps, 2),
    };
    let set_blocks = limits::THRESHOLD_SET_BYTES / u64::from(geometry.block_bytes);
    vec![if has_thresholds { set_blocks.ilog2() as u8 } else { 0 }, flags, kind, 0]
}

/// Code sets of a designator.
const BINARY: u8 = 1;
const ASCII: u8 = 2;
const UTF8: u8 = 3;

/// One designation descriptor (SPC-4 §7.8.6). `association`: 0 unit, 1 port, 2 target.
fn designator(out: &mut Vec<u8>, code_set: u8, association: u8, kind: u8, value: &[u8]) {
    const ISCSI: u8 = 5;
    let protocol = if association == 0 { 0 } else { ISCSI << 4 };
    let valid = if association == 0 { 0 } else { 0x80 };
    out.extend_from_slice(&[protocol | code_set, valid | association << 4 | kind, 0, value.len() as u8]);
    out.extend_from_slice(value);
}

/// A name terminated by a NUL and padded with NULs to a multiple of 4.
fn name_string(mut name: String) -> Vec<u8> {
    name.truncate(248);
    let mut bytes = name.into_bytes();
    bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
    bytes
}

fn device_identification(uuid: Uuid, port: &Port) -> Vec<u8> {
    let mut out = Vec::new();
    let naa = 0x6 << 124 | COMPANY << 100 | uuid.as_u128() & ((1 << 100) - 1);
    designator(&mut out, BINARY, 0, 3, &naa.to_be_bytes());
    let simple = uuid.simple().to_string();
    designator(&mut out, ASCII, 0, 1, &[&VENDOR[..], simple.as_bytes()].concat());
    designator(&mut out, BINARY, 0, 0xA, &[&[0x10, 0][..], uuid.as_bytes()].concat());
    designator(&mut out, BINARY, 1, 4, &[&[0, 0][..], &port.group.to_be_bytes()].concat());
    designator(&mut out, BINARY, 1, 5, &[&[0, 0][..], &port.group.to_be_bytes()].concat());
    designator(&mut out, UTF8, 1, 8, &name_string(format!("{},t,0x{:04x}", port.target_name, port.group)));
    designator(&mut out, UTF8, 2, 8, &name_string(port.target_name.clone()));
    out
}

/// Extended INQUIRY data (SPC-4 §7.8.7): simple, ordered and head of queue tasks; a unit attention about the list
/// of units is cleared for the asking nexus only; the longest sense data.
fn extended() -> Vec<u8> {
    const HEADSUP_ORDSUP_SIMPSUP: u8 = 0x07;
    const LUICLR: u8 = 0x01;
    let mut body = vec![0; 60];
    (body[1], body[3], body[9]) = (HEADSUP_ORDSUP_SIMPSUP, LUICLR, MAX_SENSE_BYTES);
    body
}

fn block_limits(geometry: Geometry) -> Vec<u8> {
    let blocks = |bytes: u64| bytes / u64::from(geometry.block_bytes);
    let blocks32 = |bytes: u64| (blocks(bytes) as u32).to_be_bytes();
    let mut page = [0; 64];
    page[4] = 1; // WSNZ: WRITE SAME of 0 blocks is refused
    page[6..8].copy_from_slice(&(blocks(limits::PHYSICAL_BLOCK_BYTES) as u16).to_be_bytes());
    page[8..12].copy_from_slice(&blocks32(limits::TRANSFER_BYTES));
    page[12..16].copy_from_slice(&blocks32(limits::OPTIMAL_TRANSFER_BYTES));
    page[20..24].copy_from_slice(&blocks32(limits::UNMAP_BYTES));
    page[24..28].copy_from_slice(&limits::UNMAP_DESCRIPTORS.to_be_bytes());
    page[28..32].copy_from_slice(&blocks32(limits::PHYSICAL_BLOCK_BYTES));
    page[32] = 0x80; // UGAVALID, alignment 0
    page[36..44].copy_from_slice(&blocks(limits::WRITE_SAME_BYTES).to_be_bytes());
    page[4..].to_vec()
}

pub(crate) fn read_capacity_10(geometry: Geometry) -> Vec<u8> {
    let last = u32::try_from(geometry.blocks().saturating_sub(1)).unwrap_or(u32::MAX);
    [last.to_be_bytes(), geometry.block_bytes.to_be_bytes()].concat()
}

pub(crate) fn read_capacity_16(geometry: Geometry) -> Vec<u8> {
    let mut bytes = vec![0; 32];
    bytes[..8].copy_from_slice(&geometry.blocks().saturating_sub(1).to_be_bytes());
    bytes[8..12].copy_from_slice(&geometry.block_bytes.to_be_bytes());
    let per_physical = limits::PHYSICAL_BLOCK_BYTES / u64::from(geometry.block_bytes);
    bytes[13] = per_physical.max(1).ilog2() as u8;
    bytes[14] = 0x80 | 0x40; // LBPME, LBPRZ
    bytes
}

/// READ DEFECT DATA: lists as they were asked for, without defects. `format` is the request's list bits and
/// format.
pub(crate) fn no_defects(long: bool, format: u8) -> Vec<u8> {
    let mut bytes = vec![0; if long { 8 } else { 4 }];
    bytes[1] = format & 0x1F;
    bytes
}

/// REPORT LUNS data for logical unit numbers in wire form (SAM-5 §4.7), in order.
pub fn report_luns(luns: impl Iterator<Item = [u8; 8]>) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    luns.for_each(|lun| bytes.extend_from_slice(&lun));
    let len = bytes.len() as u32 - 8;
    bytes[..4].copy_from_slice(&len.to_be_bytes());
    bytes
}
