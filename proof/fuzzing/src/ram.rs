//! The block device that commands are sent to: in RAM, ready at once.

use quoin_ram_device::RamDevice;
use uuid::Uuid;

/// Its size in logical blocks: small, so that any number is soon out of range.
pub(crate) const BLOCKS: u64 = 64;

/// Returns a device that holds something everywhere.
pub(crate) fn ram(block_bytes: u32) -> RamDevice {
    let uuid = Uuid::from_u128(0x0193_2c07_1234_7abc_8def_0123_4567_89ab);
    RamDevice::new(block_bytes).sized(BLOCKS * u64::from(block_bytes)).filled(0xEE).identified(uuid)
}
