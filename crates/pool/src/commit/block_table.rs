//! Changes of the block table: blocks and references that come and go, and numbers that are free.

use crate::{
    bugs::{Bug, planted},
    commit::{block_numbers::BlockNumbers, committer::Committer, learning::Learning},
    error::PoolError,
    maps::{
        blocks::{BlockPlace, block_page, block_word, entry_in, fingerprint_in, referenced_yet_free},
        dropped::DroppedNumbers,
    },
    meta::AtHand,
};
use quoin_base::BlockNumber;
use quoin_reduction::Fingerprint;
use quoin_world::atomic::Ordering;

/// What the committer knows of the block table.
pub(crate) struct BlockTable {
    pub(super) numbers: BlockNumbers,
    /// Block numbers that nothing refers to and that the block table does not know to be free.
    pub(super) dropped: DroppedNumbers,
    pub(super) learning: Learning,
    /// Pages where blocks are added, and where they are given back.
    pub(super) added_to: AtHand,
    pub(crate) freed_from: AtHand,
}

impl BlockTable {
    pub(super) fn new(numbers: BlockNumbers, dropped: u64) -> Self {
        let dropped = DroppedNumbers::new(dropped);
        let learning = Learning::new(numbers.table_pages());
        Self { numbers, dropped, learning, added_to: AtHand::default(), freed_from: AtHand::default() }
    }
}

impl Committer {
    /// Fills in the entry of a number just taken, for content just placed.
    pub(crate) async fn add_block(
        &mut self,
        number: BlockNumber,
        place: BlockPlace,
        fingerprint: Option<Fingerprint>,
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
        let bits = fingerprint.map_or(0, |fingerprint| fingerprint.0);
        page.set(at, bits as u64);
        page.set(at + 1, (bits >> 64) as u64);
        page.set(at + 2, place.location.0);
        page.set(at + 3, place.info.0);
        slice.front.forget_content(number);
        if let Some(fingerprint) = fingerprint {
            slice.fingerprints().note(fingerprint, number);
        }
        Ok(())
    }

    /// Adds a reference to a block that has one, which counts as lent from now on.
    pub(crate) async fn add_reference(&mut self, number: BlockNumber) -> Result<(), PoolError> {
        let slice = self.slice.clone();
        let page = slice.metadata.pages.change(block_page(number)).await?;
        let BlockPlace { info, .. } = entry_in(&page, number).ok_or_else(|| referenced_yet_free(number))?;
        let owner = info.bearer().and_then(|bearer| slice.forks.owner_of(bearer));
        if let Some(owner) = owner.filter(|_| !planted(Bug::ForgetBearer)) {
            owner.lend_first();
        }
        slice.forks.read().copies.fetch_add(1, Ordering::Relaxed);
        page.set(block_word(number) + 3, info.counted(info.count() + 1).0);
        Ok(())
    }

    /// Drops one reference of a block, and with the last one the block. True if the reference counted as lent.
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
        let fingerprint = fingerprint_in(&page, number);
        // NOTE: the count goes first. Readers look at it before and after the place, so that they never take this
        // generation for a place.
        page.set(at + 3, 0);
        page.set(at + 2, self.first_without().0);
        self.blocks.numbers.freed(number);
        slice.front.forget_content(number);
        if let Some(fingerprint) = fingerprint {
            slice.fingerprints().forget(fingerprint, number);
        }
        if !place.location.is_none() {
            slice.segments.release(place.location, self.first_without())?;
        }
        Ok(place.info.is_lent())
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
