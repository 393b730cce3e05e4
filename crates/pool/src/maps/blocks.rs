//! The block table: block number → place, checksum and reference count. Four words an entry: two of
//! fingerprint, one location, one [`BlockInfo`]. A free entry has count 0 and, in place of its location, the
//! generation of the first checkpoint without it, before which it is not used again.

use crate::{
    error::PoolError,
    format::{BLOCKS_PER_PAGE, BlockInfo, Location, PageSpace},
    meta::{Page, PageId},
};
use quoin_base::{BlockNumber, PageNumber};
use quoin_reduction::Fingerprint;

/// A page of the table.
pub(crate) fn table_page(number: PageNumber) -> PageId {
    PageId::new(PageSpace::Blocks, number)
}

/// The page of a block's entry.
pub(crate) fn block_page(number: BlockNumber) -> PageId {
    table_page(PageNumber(number.0 / BLOCKS_PER_PAGE))
}

pub(crate) fn block_word(number: BlockNumber) -> usize {
    (number.0 % BLOCKS_PER_PAGE) as usize * 4
}

/// The blocks whose entries are in a page of the table.
pub(crate) fn blocks_of(table_page: PageNumber) -> impl Iterator<Item = BlockNumber> {
    let first = BlockNumber(table_page.0 * BLOCKS_PER_PAGE);
    first.until(first.plus(BLOCKS_PER_PAGE))
}

/// The first block from this one on whose entry begins a page of the table.
pub(crate) fn page_begin_from(number: BlockNumber) -> BlockNumber {
    BlockNumber(number.0.next_multiple_of(BLOCKS_PER_PAGE))
}

/// Where a block is and what it must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockPlace {
    pub location: Location,
    pub info: BlockInfo,
}

impl BlockPlace {
    /// Whether it can have more references. Those that a batch of destage adds are not counted yet when it asks.
    pub(crate) fn may_be_shared(&self) -> bool {
        self.info.count() < BlockInfo::MOST / 2
    }
}

pub(crate) fn referenced_yet_free(number: BlockNumber) -> PoolError {
    PoolError::corrupt(format!("block {number}"), "it is referenced, yet free")
}

/// The fingerprint of a block's content, of an entry in use; `None`: it is not known.
pub(crate) fn fingerprint_in(page: &Page, number: BlockNumber) -> Option<Fingerprint> {
    let at = block_word(number);
    let bits = u128::from(page.get(at)) | u128::from(page.get(at + 1)) << 64;
    (bits != 0).then_some(Fingerprint(bits))
}

/// The entry of a block in its page of the table; `None` if it is free.
pub(crate) fn entry_in(page: &Page, number: BlockNumber) -> Option<BlockPlace> {
    let at = block_word(number);
    loop {
        let info = BlockInfo(page.get(at + 3));
        if info.count() == 0 {
            return None;
        }
        let location = Location(page.get(at + 2));
        if page.get(at + 3) == info.0 {
            return Some(BlockPlace { location, info });
        }
    }
}
