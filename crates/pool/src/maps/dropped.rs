//! Dropped numbers: blocks that nothing refers to any more, of which the block table does not know yet.
//!
//! Overwrites at random drop numbers from all over the block table. Each page of the table that is not in RAM would have to be
//! read, changed and written for one number. Instead a bit is set: 32,768 numbers share a page of a page space of
//! their own, so that all of these pages together are small. When enough numbers of a page of the table were dropped, their
//! entries are freed together: they are *merged*.
//!
//! Invariants:
//! 1. A dropped number has one reference in the block table, and no map leads to it. So blocks of layers that lent some are
//!    never dropped here: see `Layer::lent`.
//! 2. Until it is merged its place counts as live, and it is not used again. What is told of space is too little by that,
//!    never too much. From then on the rules of a freed number hold.
//! 3. A bit is set in the checkpoint that holds the change of the map which dropped the number, and cleared in the one that
//!    holds the freed entry. A crash undoes or keeps both.
//! 4. [`DroppedNumbers::count`] is how many bits are set.
//! 5. What is dropped takes at most a part of the space that is free: where that is short, entries are freed at once.
//!
//! Example: numbers 5, 9 and 130 are overwritten, and no page of the block table is in RAM.
//! 1. Bits 5, 9 and 130 are set: words 0 and 2 of the first page. No page of the table is read.
//! 2. Fourteen more of the numbers 0 to 127 follow: their page is due.
//! 3. It is read once, the entries of all sixteen are freed, and words 0 and 1 are cleared. Bit 130 waits for its own page.

use crate::{
    error::PoolError,
    format::{BLOCKS_PER_PAGE, PAGE_BYTES, PAGE_WORDS, PageSpace},
    maps::blocks::block_page,
    meta::{Page, PageId, PageStore},
};
use quoin_base::{BlockNumber, PageNumber};
use std::collections::BTreeSet;

/// Pages of the table whose bits share a page.
pub(crate) const TABLE_PAGES: u64 = PAGE_BYTES as u64 * 8 / BLOCKS_PER_PAGE;
/// Words of the bits of a page of the table.
pub(crate) const WORDS: usize = BLOCKS_PER_PAGE as usize / 64;
const _: () = assert!(WORDS == 2 && TABLE_PAGES as usize * WORDS == PAGE_WORDS);

/// The page of a number's bit.
pub(crate) fn bits_page(table_page: PageNumber) -> PageId {
    PageId::new(PageSpace::Dropped, PageNumber(table_page.0 / TABLE_PAGES))
}

/// The pages of the table whose bits are in a page of bits.
pub(crate) fn table_pages_of(bits_page: PageNumber) -> impl Iterator<Item = PageNumber> {
    let first = PageNumber(bits_page.0 * TABLE_PAGES);
    first.until(first.plus(TABLE_PAGES))
}

/// The first word of the bits of a page of the table.
pub(crate) fn first_word(table_page: PageNumber) -> usize {
    (table_page.0 % TABLE_PAGES) as usize * WORDS
}

/// The bits of a page of the table.
pub(crate) fn bits_in(page: &Page, table_page: PageNumber) -> u128 {
    let word = first_word(table_page);
    u128::from(page.get(word)) | u128::from(page.get(word + 1)) << 64
}

/// Whether a number is among the dropped ones of its page of the table.
pub(crate) fn is_among(dropped: u128, number: BlockNumber) -> bool {
    dropped >> (number.0 % BLOCKS_PER_PAGE) & 1 != 0
}

/// What the committer knows of dropped numbers.
pub(crate) struct DroppedNumbers {
    /// How many there are.
    pub count: u64,
    /// Pages of the table of which so many were dropped that they are to be merged.
    pub due: BTreeSet<PageNumber>,
    /// The page of bits that is looked through next for more.
    pub cursor: PageNumber,
}

impl DroppedNumbers {
    pub(crate) fn new(count: u64) -> Self {
        Self { count, due: BTreeSet::new(), cursor: PageNumber(0) }
    }
}

impl PageStore {
    /// The numbers of a page of the block table that were dropped: a bit for each.
    pub(crate) async fn dropped_of(&self, table_page: PageNumber) -> Result<u128, PoolError> {
        let page = self.get(bits_page(table_page)).await?;
        Ok(page.map_or(0, |page| bits_in(&page, table_page)))
    }

    /// Whether a number was dropped and its entry is not free yet.
    pub(crate) async fn is_dropped(&self, number: BlockNumber) -> bool {
        let dropped = self.dropped_of(block_page(number).index).await;
        is_among(dropped.unwrap_or(0), number)
    }
}
