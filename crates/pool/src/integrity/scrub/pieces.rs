//! What is live in a row, and in a page of it.

use crate::format::PAGE_BYTES;
use quoin_base::{ByteRange, crc32c, crc64};
use quoin_stripe::StripeSet;
use std::ops::Range;

/// Something live in a row.
pub(super) struct Live {
    pub(super) range: ByteRange,
    pub(super) sum: Sum,
}

#[derive(Clone, Copy)]
pub(super) enum Sum {
    Head(u32),
    Block(u32),
    Page(u64),
}

impl Sum {
    pub(super) fn verifies(self, bytes: &[u8]) -> bool {
        match self {
            Self::Head(crc) | Self::Block(crc) => crc32c(bytes).0 == crc,
            Self::Page(crc) => crc64(bytes).0 == crc,
        }
    }
}

/// A page of each column of a segment, and what is live in the row that they are in.
pub(super) struct Pieces<'a> {
    pub(super) live: &'a [Live],
    pub(super) set: &'a StripeSet,
    pub(super) page: ByteRange,
}

impl Pieces<'_> {
    /// What is live of the page of a data column, or of every copy.
    pub(super) fn parts(&self, place: usize) -> impl Iterator<Item = ByteRange> {
        self.live.iter().map(move |live| self.set.geometry.column_range(live.range, place))
    }

    pub(super) fn is_live(&self, place: usize) -> bool {
        self.parts(place).any(|part| part.overlaps(&self.page))
    }

    /// What is live of the page, within the page: ranges that do not overlap.
    pub(super) fn live_in_page(&self, place: usize) -> impl Iterator<Item = Range<usize>> {
        self.parts(place).filter(|part| part.overlaps(&self.page)).map(|part| {
            let (from, to) = (part.offset.max(self.page.offset), part.end().min(self.page.end()));
            (from - self.page.offset) as usize..(to - self.page.offset) as usize
        })
    }

    pub(super) fn is_all_live(&self, place: usize) -> bool {
        self.live_in_page(place).map(|part| part.len()).sum::<usize>() == PAGE_BYTES
    }
}
