//! Numbers of pages of the page space of the trees: which are free, and which may be used again.

use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    format::Root,
    maps::{freed::FreedPages, tree::node},
    meta::PageStore,
    segment::readers::{ReaderEpoch, ReaderEpochs},
};
use quoin_base::PageNumber;

/// Free page numbers below which none is looked for.
const WORTH_LOOKING: u64 = 32;

/// The numbers of the page space of the trees.
pub(crate) struct TreeNumbers {
    /// All that were ever used are below.
    end: PageNumber,
    /// How many below are free.
    free: u64,
    /// Where free ones are looked for next.
    cursor: PageNumber,
    /// Those that came free and that readers may still come by.
    freed: FreedPages,
}

impl TreeNumbers {
    pub(crate) fn new(end: PageNumber, free: u64) -> Self {
        Self { end, free, cursor: PageNumber(1), freed: FreedPages::default() }
    }

    /// A number that nothing uses.
    pub(crate) async fn take(
        &mut self,
        pages: &PageStore,
        readers: &ReaderEpochs,
    ) -> Result<PageNumber, PoolError> {
        if let Some(number) = self.reusable_at_once(pages).await? {
            self.free -= 1;
            return Ok(number);
        }
        // Free numbers are looked for once they are many.
        if self.free > WORTH_LOOKING + self.end.0 / 4 {
            while self.cursor < self.end {
                let number = self.cursor;
                self.cursor = number.next();
                if !pages.exists(node(number)).await? && self.freed.may_use(number, readers) {
                    self.free -= 1;
                    return Ok(number);
                }
            }
            // Once round: what was freed behind the cursor is found next time.
            self.cursor = PageNumber(1);
        }
        let number = self.end;
        self.end = number.next();
        self.cursor = self.cursor.min(self.end);
        Ok(number)
    }

    /// A number that may be used again though readers may come by: none.
    async fn reusable_at_once(&mut self, pages: &PageStore) -> Result<Option<PageNumber>, PoolError> {
        let newest = if planted(Bug::EarlyPageReuse) { self.freed.newest() } else { None };
        match newest {
            Some(number) if !pages.exists(node(number)).await? => Ok(Some(number)),
            _ => Ok(None),
        }
    }

    /// Gives a number back. It is not used again while a reader of this epoch may come by.
    pub(crate) fn give_back(&mut self, number: PageNumber, reader_epoch: ReaderEpoch) {
        self.free += 1;
        self.freed.insert(number, reader_epoch);
    }

    /// Forgets what no reader can come by any more.
    pub(crate) fn forget_passed(&mut self, readers: &ReaderEpochs) {
        self.freed.forget_passed(readers);
    }

    /// RAM that numbers take that readers may still come by, about.
    pub(crate) fn freed_ram_bytes(&self) -> u64 {
        self.freed.ram_bytes()
    }

    /// Puts down how many there are.
    pub(crate) fn enter(&self, root: &mut Root) {
        root.tree_end = self.end.0.into();
        root.tree_free = self.free.into();
    }
}
