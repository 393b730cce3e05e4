//! What designates a volume to hosts.

use uuid::Uuid;

/// A company identifier with the "locally administered" bit set, so that it can never be another vendor's.
const COMPANY: u128 = 0x02_51_55;

/// Types of designators (SPC-4 §7.8.6.2).
pub(crate) mod designator_type {
    pub(crate) const T10_VENDOR_ID: u8 = 0x1;
    pub(crate) const NAA: u8 = 0x3;
    pub(crate) const RELATIVE_TARGET_PORT: u8 = 0x4;
    pub(crate) const TARGET_PORT_GROUP: u8 = 0x5;
    pub(crate) const SCSI_NAME_STRING: u8 = 0x8;
    pub(crate) const UUID: u8 = 0xA;
}
/// NAA 6h: IEEE registered extended.
const NAA_REGISTERED_EXTENDED: u128 = 0x6;

/// The NAA identifier of a volume, by which hosts name its disk.
pub fn naa(uuid: Uuid) -> [u8; 16] {
    let naa = NAA_REGISTERED_EXTENDED << 124 | COMPANY << 100 | uuid.as_u128() & ((1 << 100) - 1);
    naa.to_be_bytes()
}
