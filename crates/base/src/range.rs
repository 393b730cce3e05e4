//! Byte ranges.

use crate::BlockIndex;
use std::ops::Range;

/// `len` bytes from byte `offset` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl ByteRange {
    /// The range of `len` bytes from `offset` on. Who knows where it begins and ends writes `ByteRange::from(start..end)`.
    pub fn new(offset: u64, len: u64) -> Self {
        Self { offset, len }
    }

    /// The first byte behind the range, saturating at `u64::MAX`.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// True when it holds no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True when both ends are multiples of `unit`.
    pub fn is_aligned(&self, unit: u64) -> bool {
        self.offset.is_multiple_of(unit) && self.len.is_multiple_of(unit)
    }

    /// The smallest range around it whose ends are multiples of `unit`.
    pub fn widened(&self, unit: u64) -> ByteRange {
        let start = self.offset / unit * unit;
        ByteRange::from(start..self.end().next_multiple_of(unit))
    }

    /// True when they have a byte in common.
    pub fn overlaps(&self, other: &ByteRange) -> bool {
        self.offset < other.end() && other.offset < self.end()
    }

    /// The block that its first byte is in.
    pub fn first_block(&self, block_bytes: u64) -> BlockIndex {
        BlockIndex(self.offset / block_bytes)
    }

    /// The block behind the last one that it touches.
    pub fn end_block(&self, block_bytes: u64) -> BlockIndex {
        BlockIndex(self.end().div_ceil(block_bytes))
    }

    /// Cuts the range at every multiple of `unit`, in order.
    pub fn split(self, unit: u64) -> impl Iterator<Item = ByteRange> {
        let end = self.end();
        let mut at = self.offset;
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let stop = ((at / unit + 1) * unit).min(end);
                let piece = ByteRange::from(at..stop);
                at = stop;
                piece
            })
        })
    }
}

impl From<Range<u64>> for ByteRange {
    /// # Panics
    /// The range ends before it begins.
    fn from(Range { start, end }: Range<u64>) -> Self {
        assert!(start <= end, "bytes {start} to {end} are no range");
        Self { offset: start, len: end - start }
    }
}

/// A range of a volume of which all is mapped or all is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Extent {
    /// Where.
    pub range: ByteRange,
    /// False: it takes no space and reads as zeroes. True: it may hold data.
    pub mapped: bool,
}

impl Extent {
    /// Appends to extents in order, with the last one if it goes on.
    pub fn push(self, extents: &mut Vec<Extent>) {
        match extents.last_mut() {
            Some(last) if last.mapped == self.mapped && last.range.end() == self.range.offset => {
                last.range.len += self.range.len;
            }
            _ => extents.push(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_cuts_at_multiples_only() {
        let pieces: Vec<_> = ByteRange::new(5, 20).split(8).map(|r| (r.offset, r.len)).collect();
        assert_eq!(pieces, [(5, 3), (8, 8), (16, 8), (24, 1)]);
        assert_eq!(ByteRange::new(8, 0).split(8).count(), 0);
    }

    #[test]
    fn ranges_are_widened_to_whole_units_and_overlap_where_both_are() {
        assert_eq!(ByteRange::from(5..25), ByteRange::new(5, 20));
        assert_eq!(ByteRange::new(5, 20).widened(8), ByteRange::new(0, 32));
        assert_eq!(ByteRange::new(8, 16).widened(8), ByteRange::new(8, 16));
        let range = ByteRange::new(8, 8);
        for (offset, len, overlaps) in [(0, 8, false), (0, 9, true), (15, 1, true), (16, 8, false)] {
            assert_eq!(range.overlaps(&ByteRange::new(offset, len)), overlaps, "{offset}+{len}");
        }
    }
}
