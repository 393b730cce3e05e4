//! What segments hold.

use crate::format::PAGE_BYTES;

/// What a segment holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Stream {
    /// Destaged host data.
    Data = 1,
    /// Metadata pages.
    Meta = 2,
    /// Data that the cleaner moved.
    Cleaned = 3,
    /// Large writes of hosts, placed as they came in.
    Placed = 5,
}

/// What the contents of data rows begin at a multiple of. Drives answer reads of a block sooner if it crosses no
/// such boundary.
pub(super) const DATA_ALIGN_BYTES: u64 = 8192;

impl Stream {
    /// Where the contents of a row that begins at byte `offset` begin, the first of `len_bytes`: after its head.
    pub(crate) fn contents_begin(self, offset: u64, len_bytes: u64) -> u64 {
        let after_head = offset + PAGE_BYTES as u64;
        // What is packed crosses boundaries wherever it begins.
        let is_packed = !len_bytes.is_multiple_of(PAGE_BYTES as u64);
        if self.is_metadata() || is_packed {
            after_head
        } else {
            after_head.next_multiple_of(DATA_ALIGN_BYTES)
        }
    }

    pub(crate) fn is_metadata(self) -> bool {
        self == Self::Meta
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Data),
            2 => Some(Self::Meta),
            3 => Some(Self::Cleaned),
            5 => Some(Self::Placed),
            _ => None,
        }
    }
}
