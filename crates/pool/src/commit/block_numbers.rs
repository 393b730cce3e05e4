//! Block numbers: which are free, and which may be used again.

use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    format::{BLOCKS_PER_PAGE, BlockInfo, Root},
    lifecycle::slice::Slice,
    maps::blocks::{block_page, block_word, page_begin_from},
    meta::AtHand,
};
use quoin_base::{BlockNumber, CheckpointGeneration};

/// The numbers of a slice's blocks.
pub(crate) struct BlockNumbers {
    /// All that were ever used are below.
    end: BlockNumber,
    /// How many below are free, beside those that are lent.
    free: u64,
    /// While many are free: where they are looked for next.
    sweep: Option<BlockNumber>,
    /// The page of the block table where they are looked for.
    swept: AtHand,
}

impl BlockNumbers {
    pub(crate) fn new(end: BlockNumber, free: u64) -> Self {
        Self { end, free, sweep: None, swept: AtHand::default() }
    }

    /// A number that nothing refers to and no reader looks at. One that was freed is used again only if that was for a
    /// checkpoint up to `settled`.
    pub(crate) async fn take(
        &mut self,
        slice: &Slice,
        settled: CheckpointGeneration,
    ) -> Result<BlockNumber, PoolError> {
        // While many numbers are free they are looked for, from the first one on.
        while let Some(number) = self.sweep.filter(|number| *number < self.end) {
            self.sweep = Some(number.next());
            if self.is_free(slice, number, settled).await? {
                // A root whose count is too low is mended by counting, not by going below nothing.
                self.free = self.free.saturating_sub(1);
                return Ok(number);
            }
        }
        self.sweep = None;
        // Else it is a new one, at the table's end. A page that cannot be read is passed over.
        if let Err(error) = slice.metadata.pages.get(block_page(self.end)).await
            && slice.store.is_damage(&error).await
        {
            self.end = page_begin_from(self.end);
        }
        let number = self.end;
        assert!(number > BlockNumber(0), "0 is the number of no block");
        self.end = number.next();
        Ok(number)
    }

    /// Puts back the number that was taken last.
    pub(super) fn put_back(&mut self, number: BlockNumber) {
        if self.sweep.is_none() && number.next() == self.end {
            self.end = number;
        } else {
            self.free += 1;
            self.sweep = Some(number);
        }
    }

    /// Whether a number may be used. Passes over the rest of a page that is damaged.
    async fn is_free(
        &mut self,
        slice: &Slice,
        number: BlockNumber,
        settled: CheckpointGeneration,
    ) -> Result<bool, PoolError> {
        let reused = planted(Bug::ReuseDropped) && slice.metadata.pages.is_dropped(number).await;
        let free = match self.swept.get(&slice.metadata.pages, block_page(number)).await {
            Err(error) if slice.store.is_damage(&error).await => {
                self.sweep = Some(page_begin_from(number).max(number.next()));
                false
            }
            Err(error) => return Err(error),
            Ok(None) => true,
            Ok(Some(page)) => {
                let at = block_word(number);
                BlockInfo(page.get(at + 3)).count() == 0
                    && (CheckpointGeneration(page.get(at + 2)) <= settled || planted(Bug::EarlyNumberReuse))
            }
        };
        Ok((free || reused) && (!slice.front.placer.numbers().is_lent(number) || planted(Bug::LendTwice)))
    }

    /// Counts a number that came free.
    pub(crate) fn freed(&mut self, number: BlockNumber) {
        self.free += 1;
        if planted(Bug::EarlyNumberReuse) {
            self.sweep = Some(number);
        }
    }

    /// Decides, after a checkpoint, whether freed numbers are worth looking for.
    pub(crate) fn consider_sweep(&mut self) {
        if self.free > BLOCKS_PER_PAGE + self.end.0 / 8 {
            self.sweep.get_or_insert(BlockNumber(1));
        }
    }

    /// Pages of the block table up to the last number.
    pub(crate) fn table_pages(&self) -> u64 {
        self.end.0 / BLOCKS_PER_PAGE + 1
    }

    /// Lets go of the page that was kept at hand.
    pub(crate) fn let_go_of_page(&mut self) {
        self.swept = AtHand::default();
    }

    /// Puts down how many there are. What is lent is free, as far as a checkpoint goes.
    pub(crate) fn enter(&self, root: &mut Root, lent: u64) {
        root.blocks_end = self.end.0.into();
        root.blocks_free = (self.free + lent).into();
    }
}
