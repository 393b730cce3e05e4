//! INQUIRY, vital product data, READ CAPACITY and REPORT LUNS data.

use crate::{
    cdb, designators, extended_copy, geometry::Geometry, limits, sense::Sense, target_ports, unit::Port,
};
use quoin_volume::Provisioning;
use uuid::Uuid;

const VENDOR: &[u8; 8] = b"QUOIN   ";
const PRODUCT: &[u8; 16] = b"volume          ";
const REVISION: &[u8; 4] = b"0001";
/// SAM-5, SPC-4, SBC-3, iSCSI (SPC-4 table 142).
const VERSIONS: [u16; 4] = [0x00A0, 0x0460, 0x04C0, 0x0960];
/// The longest sense data: descriptor format with an information descriptor.
const MAX_SENSE_BYTES: u8 = 20;

/// PERIPHERAL QUALIFIER and PERIPHERAL DEVICE TYPE: a direct access block device; or none that could be here
/// (011b, 1Fh).
const DIRECT_ACCESS: u8 = 0x00;
const NO_UNIT: u8 = 0x7F;

/// Vital product data pages (SPC-4 §7.8, SBC-3 §6.5).
mod page {
    pub(super) const SUPPORTED_PAGES: u8 = 0x00;
    pub(super) const UNIT_SERIAL_NUMBER: u8 = 0x80;
    pub(super) const DEVICE_IDENTIFICATION: u8 = 0x83;
    pub(super) const EXTENDED_INQUIRY_DATA: u8 = 0x86;
    pub(super) const THIRD_PARTY_COPY: u8 = 0x8F;
    pub(super) const BLOCK_LIMITS: u8 = 0xB0;
    pub(super) const BLOCK_DEVICE_CHARACTERISTICS: u8 = 0xB1;
    pub(super) const LOGICAL_BLOCK_PROVISIONING: u8 = 0xB2;
    pub(super) const ALL: [u8; 8] = [
        SUPPORTED_PAGES,
        UNIT_SERIAL_NUMBER,
        DEVICE_IDENTIFICATION,
        EXTENDED_INQUIRY_DATA,
        THIRD_PARTY_COPY,
        BLOCK_LIMITS,
        BLOCK_DEVICE_CHARACTERISTICS,
        LOGICAL_BLOCK_PROVISIONING,
    ];
}

/// Standard INQUIRY data (SPC-4 §6.6.2).
fn standard(qualifier_and_type: u8) -> Vec<u8> {
    const VERSION_SPC_4: u8 = 0x06;
    const RESPONSE_DATA_FORMAT: u8 = 0x02;
    const CMDQUE: u8 = 0x02;
    // TPGS 01b: access states of ports change only by themselves.
    const IMPLICIT: u8 = 0x10;
    /// 3PC: third-party copies.
    const THIRD_PARTY: u8 = 0x08;
    let mut bytes = vec![0; 96];
    bytes[0] = qualifier_and_type;
    bytes[2] = VERSION_SPC_4;
    bytes[3] = RESPONSE_DATA_FORMAT;
    // ADDITIONAL LENGTH: what follows the first five bytes.
    bytes[4] = 91;
    bytes[5] = IMPLICIT | THIRD_PARTY;
    bytes[7] = CMDQUE;
    bytes[8..16].copy_from_slice(VENDOR);
    bytes[16..32].copy_from_slice(PRODUCT);
    bytes[32..36].copy_from_slice(REVISION);
    for (at, version) in (58..).step_by(2).zip(VERSIONS) {
        bytes[at..at + 2].copy_from_slice(&version.to_be_bytes());
    }
    bytes
}

/// Returns the standard INQUIRY data of a logical unit number with nothing behind it.
pub fn no_unit_inquiry() -> Vec<u8> {
    standard(NO_UNIT)
}

pub(crate) fn inquiry(
    page: Option<u8>,
    uuid: Uuid,
    geometry: Geometry,
    has_thresholds: bool,
    port: &Port,
) -> Result<Vec<u8>, Sense> {
    let Some(page) = page else { return Ok(standard(DIRECT_ACCESS)) };
    let body = match page {
        page::SUPPORTED_PAGES => page::ALL.to_vec(),
        page::UNIT_SERIAL_NUMBER => uuid.simple().to_string().into_bytes(),
        page::DEVICE_IDENTIFICATION => device_identification(uuid, port),
        page::EXTENDED_INQUIRY_DATA => extended(),
        page::THIRD_PARTY_COPY => extended_copy::third_party_copy_page(geometry.block_bytes),
        page::BLOCK_LIMITS => block_limits(geometry),
        page::BLOCK_DEVICE_CHARACTERISTICS => {
            // MEDIUM ROTATION RATE 0001h: it does not rotate. WABEREQ 01b: after a SANITIZE that
            // erased it, it can be read.
            let mut body = vec![0; 60];
            (body[1], body[3]) = (1, 0x40);
            body
        }
        page::LOGICAL_BLOCK_PROVISIONING => provisioning(geometry, has_thresholds),
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
    const RESOURCE: u8 = 1;
    const THIN: u8 = 2;
    let unmaps = LBPU | LBPWS | LBPWS10 | LBPRZ;
    let (flags, kind) = match geometry.provisioning {
        Provisioning::Resource => (unmaps | ANC_SUP, RESOURCE),
        Provisioning::Thin => (unmaps, THIN),
    };
    let set_blocks = limits::THRESHOLD_SET_BYTES / u64::from(geometry.block_bytes);
    vec![if has_thresholds { set_blocks.ilog2() as u8 } else { 0 }, flags, kind, 0]
}

/// Code sets of a designator.
const BINARY: u8 = 1;
const ASCII: u8 = 2;
const UTF8: u8 = 3;

/// What a designator names.
const UNIT: u8 = 0;
const TARGET_PORT: u8 = 1;
const TARGET_DEVICE: u8 = 2;
/// A UUID designator's type: one as RFC 4122 has it.
const RFC_4122: u8 = 0x10;

/// One designation descriptor (SPC-4 §7.8.6).
fn designator(out: &mut Vec<u8>, code_set: u8, association: u8, kind: u8, value: &[u8]) {
    const ISCSI: u8 = 5;
    const PIV: u8 = 0x80;
    // A unit is the same by every protocol.
    let (protocol, valid) = if association == UNIT { (0, 0) } else { (ISCSI << 4, PIV) };
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
    use designators::designator_type as kind;
    designator(&mut out, BINARY, UNIT, kind::NAA, &designators::naa(uuid));
    let simple = uuid.simple().to_string();
    designator(&mut out, ASCII, UNIT, kind::T10_VENDOR_ID, &[&VENDOR[..], simple.as_bytes()].concat());
    designator(&mut out, BINARY, UNIT, kind::UUID, &[&[RFC_4122, 0][..], uuid.as_bytes()].concat());
    let relative = [&[0, 0][..], &port.group.to_be_bytes()].concat();
    designator(&mut out, BINARY, TARGET_PORT, kind::RELATIVE_TARGET_PORT, &relative);
    let group = [&[0, 0][..], &target_ports::GROUP.to_be_bytes()].concat();
    designator(&mut out, BINARY, TARGET_PORT, kind::TARGET_PORT_GROUP, &group);
    let port_name = name_string(format!("{},t,0x{:04x}", port.target_name, port.group));
    designator(&mut out, UTF8, TARGET_PORT, kind::SCSI_NAME_STRING, &port_name);
    designator(&mut out, UTF8, TARGET_DEVICE, kind::SCSI_NAME_STRING, &name_string(port.target_name.clone()));
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
    const UGAVALID: u8 = 0x80;
    let mut page = [0; 64];
    // WSNZ = 0: WRITE SAME of 0 blocks goes to the end of the unit.
    page[5] = limits::COMPARED_BLOCKS;
    page[6..8].copy_from_slice(&(blocks(limits::STORED_BLOCK_BYTES) as u16).to_be_bytes());
    page[8..12].copy_from_slice(&blocks32(limits::TRANSFER_BYTES));
    page[12..16].copy_from_slice(&blocks32(limits::OPTIMAL_TRANSFER_BYTES));
    page[20..24].copy_from_slice(&blocks32(limits::UNMAP_BYTES));
    page[24..28].copy_from_slice(&limits::UNMAP_DESCRIPTORS.to_be_bytes());
    page[28..32].copy_from_slice(&blocks32(limits::STORED_BLOCK_BYTES));
    // With alignment 0.
    page[32] = UGAVALID;
    // Atomic writes may begin anywhere and are of any length up to this.
    page[44..48].copy_from_slice(&blocks32(limits::ATOMIC_BYTES));
    page[36..44].copy_from_slice(&blocks(limits::WRITE_SAME_BYTES).to_be_bytes());
    page[4..].to_vec()
}

pub(crate) fn read_capacity_10(geometry: Geometry) -> Vec<u8> {
    let last = u32::try_from(geometry.blocks().saturating_sub(1)).unwrap_or(u32::MAX);
    [last.to_be_bytes(), geometry.block_bytes.to_be_bytes()].concat()
}

pub(crate) fn read_capacity_16(geometry: Geometry) -> Vec<u8> {
    const LBPME: u8 = 0x80;
    const LBPRZ: u8 = 0x40;
    let mut bytes = vec![0; 32];
    bytes[..8].copy_from_slice(&geometry.blocks().saturating_sub(1).to_be_bytes());
    bytes[8..12].copy_from_slice(&geometry.block_bytes.to_be_bytes());
    let per_physical = limits::PHYSICAL_BLOCK_BYTES / u64::from(geometry.block_bytes);
    bytes[13] = per_physical.max(1).ilog2() as u8;
    bytes[14] = LBPME | LBPRZ;
    bytes
}

/// READ DEFECT DATA: lists as they were asked for, without defects. `format` is the request's list bits and
/// format.
pub(crate) fn no_defects(long: bool, format: u8) -> Vec<u8> {
    let mut bytes = vec![0; if long { 8 } else { 4 }];
    bytes[1] = format & cdb::DEFECT_LIST;
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
