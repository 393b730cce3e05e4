//! Changes of the block table: blocks and references that come and go, and numbers that are free.

use crate::{
    commit::{block_numbers::BlockNumbers, committer::Committer},
    error::PoolError,
    maps::{
        blocks::{BlockPlace, block_page, block_word, entry_in, referenced_yet_free},
        dropped::DroppedNumbers,
    },
    meta::AtHand,
};
use quoin_base::BlockNumber;
use quoin_world::atomic::Ordering;

/// What the committer knows of the block table.
pub(crate) struct BlockTable {
    pub(super) numbers: BlockNumbers,
    /// Block numbers that nothing refers to and that the block table does not know to be free.
    pub(super) dropped: DroppedNumbers,
    /// Pages where blocks are added, and where they are given back.
    pub(super) added_to: AtHand,
    pub(crate) freed_from: AtHand,
}

impl BlockTable {
    pub(super) fn new(numbers: BlockNumbers, dropped: u64) -> Self {
        let dropped = DroppedNumbers::new(dropped);
        Self { numbers, dropped, added_to: AtHand::default(), freed_from: AtHand::default() }
    }
}

impl Committer {
    /// Fills in the entry of a number just taken, for content just placed, with one reference.
    pub(crate) async fn add_block(
        &mut self,
        number: BlockNumber,
        place: BlockPlace,
    ) -> Result<(), PoolError> {
        let slice = self.slice.clone();
        let (id, at) = (block_page(number), block_word(number));
        let was_dirty = self.blocks.added_to.is_dirty(id) || slice.metadata.pages.is_resident(id, false);
        let page = self.blocks.added_to.change(&slice.metadata.pages, id).await?;
        if !was_dirty {
            // It is written anyway.
            self.merge_dropped(id.index).await?;
        }
        // NOTE: the count comes last. Until then readers take the entry for a free one.
        page.set(at, 0);
        page.set(at + 1, 0);
        page.set(at + 2, place.location.0);
        page.set(at + 3, place.info.0);
        slice.front.forget_content(number);
        Ok(())
    }

    /// Adds a reference to a block that has one. Returns how many it had.
    pub(crate) async fn add_reference(&mut self, number: BlockNumber) -> Result<u32, PoolError> {
        let slice = self.slice.clone();
        let place = slice.block(number).await?.ok_or_else(|| referenced_yet_free(number))?;
        let page = slice.metadata.pages.change(block_page(number)).await?;
        let count = place.info.count();
        page.set(block_word(number) + 3, place.info.counted(count + 1).0);
        slice.forks.read().copies.fetch_add(1, Ordering::Relaxed);
        Ok(count)
    }

    /// Drops one reference of a block, and with the last one the block. True if others are left.
    pub(crate) async fn drop_reference(&mut self, number: BlockNumber) -> Result<bool, PoolError> {
        let slice = self.slice.clone();
        let id = block_page(number);
        let place = match self.blocks.freed_from.get(&slice.metadata.pages, id).await {
            Ok(page) => {
                page.and_then(|page| entry_in(&page, number)).ok_or_else(|| referenced_yet_free(number))?
            }
            // Where it lies is not known: that space stays taken, and what takes its place is sound.
            Err(error @ PoolError::Corrupt { .. }) => {
                tracing::error!(number = number.0, %error, "a block cannot be given back");
                return Ok(false);
            }
            Err(error) if slice.store.is_unreadable(&error).await => {
                tracing::error!(number = number.0, %error, "a block cannot be given back");
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let page = self.blocks.freed_from.change(&slice.metadata.pages, id).await?;
        let at = block_word(number);
        let count = place.info.count() - 1;
        if count > 0 {
            page.set(at + 3, place.info.counted(count).0);
            slice.forks.read().copies.fetch_sub(1, Ordering::Relaxed);
            return Ok(true);
        }
        // NOTE: the count goes first. Readers look at it before and after the place, so that they never take this
        // generation for a place.
        page.set(at + 3, 0);
        page.set(at + 2, self.first_without().0);
        self.blocks.numbers.freed(number);
        slice.front.forget_content(number);
        if !place.location.is_none() {
            slice.segments.release(place.location, self.first_without())?;
        }
        Ok(false)
    }

    /// A number that nothing refers to, no durable checkpoint knows and no reader looks at.
    pub(crate) async fn take_block_number(&mut self) -> Result<BlockNumber, PoolError> {
        self.blocks.numbers.take(&self.slice, self.checkpoints.settled()).await
    }

    /// Lets go of pages that were kept at hand.
    pub(crate) fn let_go_of_pages(&mut self) {
        self.blocks.numbers.let_go_of_page();
        (self.blocks.added_to, self.blocks.freed_from) = Default::default();
    }
}
