//! The size of a unit, and where its blocks are on the device.

use crate::{command::Extent, limits, sense::Sense};
use quoin_base::ByteRange;
use quoin_volume::{BlockDevice, DeviceError, Provisioning};

/// A unit's size, logical block and provisioning, as they are at this moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Logical block, 512 or 4096 bytes.
    pub block_bytes: u32,
    /// What of its space is kept for it.
    pub provisioning: Provisioning,
}

impl Geometry {
    /// A device's geometry now.
    pub fn of(device: &impl BlockDevice) -> Self {
        let (size_bytes, block_bytes) = (device.size_bytes(), device.block_bytes());
        Self { size_bytes, block_bytes, provisioning: device.provisioning() }
    }

    /// Size in logical blocks.
    pub fn blocks(&self) -> u64 {
        self.size_bytes / u64::from(self.block_bytes.max(1))
    }

    /// The extent of a WRITE SAME, whose 0 blocks mean all up to the unit's end.
    pub(crate) fn range_to_fill(&self, extent: Extent) -> Result<ByteRange, Sense> {
        if extent.blocks > 0 {
            return self.range_within(extent, limits::WRITE_SAME_BYTES);
        }
        let start = self.range(extent)?.offset;
        let end = self.blocks() * u64::from(self.block_bytes);
        let range = ByteRange::from(start..end);
        if range.len > limits::WRITE_SAME_BYTES { Err(Sense::INVALID_FIELD_IN_CDB) } else { Ok(range) }
    }

    /// The extent in bytes.
    ///
    /// # Errors
    /// LBA OUT OF RANGE if it is not within the unit.
    pub fn range(&self, extent: Extent) -> Result<ByteRange, Sense> {
        match extent.lba.checked_add(extent.blocks.into()) {
            Some(end) if end <= self.blocks() => Ok(ByteRange::new(
                extent.lba * u64::from(self.block_bytes),
                u64::from(extent.blocks) * u64::from(self.block_bytes),
            )),
            _ => Err(Sense::LBA_OUT_OF_RANGE),
        }
    }

    pub(crate) fn range_within(&self, extent: Extent, limit_bytes: u64) -> Result<ByteRange, Sense> {
        let range = self.range(extent)?;
        if range.len > limit_bytes { Err(Sense::INVALID_FIELD_IN_CDB) } else { Ok(range) }
    }

    /// Returns what makes a sense of an error of the unit's device.
    pub(crate) fn sense_of(self) -> impl Fn(DeviceError) -> Sense {
        move |error| Sense::of_device(&error, self.block_bytes)
    }
}
