//! Changes of the block table: blocks and references that come and go, and numbers that are free.

use crate::{
    bugs::{Bug, planted},
    commit::committer::Committer,
    error::PoolError,
    format::{BLOCKS_PER_PAGE, BlockInfo},
    maps::blocks::{BlockPlace, block_page, block_word, entry_in, referenced_yet_free},
};
use quoin_world::atomic::Ordering;

impl Committer {
    /// Fills in the entry of a number just taken, for content just placed, with one reference.
    pub(crate) async fn add_block(&mut self, number: u64, place: BlockPlace) -> Result<(), PoolError> {
        let slice = self.slice.clone();
        let (id, at) = (block_page(number), block_word(number));
        let was_dirty = self.added_to.is_dirty(id) || slice.metadata.pages.is_resident(id, false);
        let page = self.added_to.change(&slice.metadata.pages, id).await?;
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
    pub(crate) async fn add_reference(&mut self, number: u64) -> Result<u32, PoolError> {
        let slice = self.slice.clone();
        let place = slice.block(number).await?.ok_or_else(|| referenced_yet_free(number))?;
        let page = slice.metadata.pages.change(block_page(number)).await?;
        let count = place.info.count();
        page.set(block_word(number) + 3, place.info.counted(count + 1).0);
        slice.forks.read().copies.fetch_add(1, Ordering::Relaxed);
        Ok(count)
    }

    /// Drops one reference of a block, and with the last one the block. True if others are left.
    pub(crate) async fn drop_reference(&mut self, number: u64) -> Result<bool, PoolError> {
        let slice = self.slice.clone();
        let id = block_page(number);
        let place = match self.freed_from.get(&slice.metadata.pages, id).await {
            Ok(page) => {
                page.and_then(|page| entry_in(&page, number)).ok_or_else(|| referenced_yet_free(number))?
            }
            // Where it lies is not known: that space stays taken, and what takes its place is sound.
            Err(error @ PoolError::Corrupt { .. }) => {
                tracing::error!(number, %error, "a block cannot be given back");
                return Ok(false);
            }
            Err(error) if slice.store.is_unreadable(&error).await => {
                tracing::error!(number, %error, "a block cannot be given back");
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let page = self.freed_from.change(&slice.metadata.pages, id).await?;
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
        page.set(at + 2, self.first_without());
        self.blocks_free += 1;
        if planted(Bug::EarlyNumberReuse) {
            (self.sweeping, self.block_cursor) = (true, number);
        }
        slice.front.forget_content(number);
        if !place.location.is_none() {
            slice.segments.release(place.location, self.first_without())?;
        }
        Ok(false)
    }

    /// A number that nothing refers to, no durable checkpoint knows and no reader looks at.
    pub(crate) async fn take_block_number(&mut self) -> Result<u64, PoolError> {
        // While many numbers are free they are looked for, from the first one on.
        if self.sweeping {
            let slice = self.slice.clone();
            while self.block_cursor < self.blocks_end {
                let number = self.block_cursor;
                self.block_cursor += 1;
                let reused = planted(Bug::ReuseDropped) && self.is_dropped(number).await;
                let free = match self.swept.get(&slice.metadata.pages, block_page(number)).await {
                    Err(error) if slice.store.is_damage(&error).await => {
                        self.block_cursor = number.next_multiple_of(BLOCKS_PER_PAGE).max(number + 1);
                        false
                    }
                    Err(error) => return Err(error),
                    Ok(None) => true,
                    Ok(Some(page)) => {
                        let at = block_word(number);
                        BlockInfo(page.get(at + 3)).count() == 0
                            && (page.get(at + 2) <= self.reusable || planted(Bug::EarlyNumberReuse))
                    }
                };
                if (free || reused)
                    && (!slice.front.placer.numbers().is_lent(number) || planted(Bug::LendTwice))
                {
                    // A root whose count is too low is mended by counting, not by going below nothing.
                    self.blocks_free = self.blocks_free.saturating_sub(1);
                    return Ok(number);
                }
            }
            self.sweeping = false;
        }
        // Else it is a new one, at the table's end. A page that cannot be read is passed over.
        if let Err(error) = self.slice.metadata.pages.get(block_page(self.blocks_end)).await
            && self.slice.store.is_damage(&error).await
        {
            self.blocks_end = self.blocks_end.next_multiple_of(BLOCKS_PER_PAGE);
        }
        let number = self.blocks_end;
        assert!(number > 0, "0 is the number of no block");
        self.blocks_end += 1;
        Ok(number)
    }

    /// Decides, after a checkpoint, whether freed numbers are worth looking for.
    pub(crate) fn consider_sweep(&mut self) {
        if !self.sweeping && self.blocks_free > BLOCKS_PER_PAGE + self.blocks_end / 8 {
            self.sweeping = true;
            self.block_cursor = 1;
        }
    }
}
