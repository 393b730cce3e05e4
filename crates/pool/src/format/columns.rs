//! A column of a segment or a table slab, as it is on drives.

use quoin_base::DriveIndex;
use quoin_stripe::Column;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, little_endian::U16};

/// The drive of a column that is not there.
pub(crate) const NO_DRIVE: u16 = u16::MAX;
/// A column in a [`SegmentEntry`](super::SegmentEntry) or a [`TableSlabEntry`](super::TableSlabEntry).
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Default)]
#[repr(C)]
pub(crate) struct ColumnEntry {
    pub drive: U16,
    pub slab_low: U16,
    pub slab_high: U16,
}
impl From<Column> for ColumnEntry {
    fn from(Column { drive, slab }: Column) -> Self {
        Self {
            drive: drive.0.into(),
            slab_low: (slab as u16).into(),
            slab_high: ((slab >> 16) as u16).into(),
        }
    }
}

impl ColumnEntry {
    pub(crate) fn column(&self) -> Column {
        let slab = u32::from(self.slab_low.get()) | u32::from(self.slab_high.get()) << 16;
        Column { drive: DriveIndex(self.drive.get()), slab }
    }
}
