//! Dropping block numbers without a look at their entries, and merging what was dropped. What holds of dropped numbers is
//! told in [`crate::maps::dropped`].

use crate::{
    bugs::{Bug, planted},
    commit::committer::Committer,
    error::PoolError,
    fork::layer::Layer,
    format::{BLOCKS_PER_PAGE, PAGE_BYTES},
    maps::{
        blocks::{self, block_page, blocks_of, referenced_yet_free},
        dropped::{TABLE_PAGES, WORDS, bits_in, bits_page, first_word, is_among, table_pages_of},
    },
};
use futures_util::{StreamExt, stream};
use quoin_base::{BlockNumber, PageNumber};

/// Numbers dropped of a page of the table from which on it is merged.
const MERGE_FROM: u32 = 16;
/// Pages of the table that a step merges at the most.
const MERGE_PAGES: usize = 64;
/// Which part of the free space what is dropped may take.
const FREE_PART: u64 = 4;
/// Pages of bits looked through in one step for something to merge.
const LOOKED_THROUGH: u64 = 16;

impl Committer {
    /// Whether the reference of a block that this layer overwrites is dropped without a look at its entry.
    pub(crate) fn drops_unseen(&self, owner: &Layer, number: BlockNumber) -> bool {
        let slice = &self.slice;
        let page = block_page(number);
        if self.blocks.freed_from.is_dirty(page) {
            return false;
        }
        let is_alone = owner.lent() == 0 || planted(Bug::DropLent);
        is_alone
            && !slice.metadata.pages.is_resident(page, !self.is_table_large())
            && self.has_room_to_drop(1)
    }

    /// Whether the block table is so large that a checkpoint is made before all of it is dirty: a page that is clean is
    /// better left so.
    fn is_table_large(&self) -> bool {
        self.blocks.numbers.table_pages() * PAGE_BYTES as u64 > self.slice.options().dirty_bytes
    }

    fn has_room_to_drop(&self, more: u64) -> bool {
        let bytes = (self.blocks.dropped.count + more) * self.slice.buffer.block_bytes;
        bytes <= self.slice.space.free_bytes() / FREE_PART
    }

    /// Drops the one reference of a block that its layer overwrote, to be merged later. False if it has to be dropped now.
    pub(crate) async fn drop_unseen(
        &mut self,
        owner: &Layer,
        number: BlockNumber,
    ) -> Result<bool, PoolError> {
        if !self.drops_unseen(owner, number) {
            return Ok(false);
        }
        let slice = self.slice.clone();
        let table_page = block_page(number).index;
        // Where its bit cannot be read its entry may still be.
        let Ok(page) = slice.metadata.pages.change(bits_page(table_page)).await else { return Ok(false) };
        slice.front.forget_content(number);
        if planted(Bug::LoseDropped) {
            return Ok(true);
        }
        let first = first_word(table_page);
        let (word, bit) = (first + (number.0 % BLOCKS_PER_PAGE / 64) as usize, 1 << (number.0 % 64));
        if page.get(word) & bit != 0 {
            return Err(referenced_yet_free(number));
        }
        page.set(word, page.get(word) | bit);
        self.blocks.dropped.count += 1;
        self.tell_dropped();
        if bits_in(&page, table_page).count_ones() >= MERGE_FROM {
            self.blocks.dropped.due.insert(table_page);
        }
        Ok(true)
    }

    /// Frees the entries of what was dropped of a page of the block table. False if there is nothing, or if the page cannot
    /// be read now.
    pub(crate) async fn merge_dropped(&mut self, table_page: PageNumber) -> Result<bool, PoolError> {
        self.blocks.dropped.due.remove(&table_page);
        if self.blocks.dropped.count == 0 {
            return Ok(false);
        }
        let slice = self.slice.clone();
        let bits = bits_page(table_page);
        // While the bits cannot be read the space of what was dropped there stays taken.
        let Ok(Some(held)) = slice.metadata.pages.get(bits).await else { return Ok(false) };
        let dropped = bits_in(&held, table_page);
        if dropped == 0 {
            return Ok(false);
        }
        // Both pages are held until the entries are freed: a page that was read cannot fail to be read any more.
        let _table = match slice.metadata.pages.get(blocks::table_page(table_page)).await {
            Ok(page) => page,
            Err(error) if slice.store.is_damage(&error).await => None,
            // The drive may recover.
            Err(_) => return Ok(false),
        };
        // NOTE: the bits go first. What an entry says is checked when it is freed: one that is free already is an error.
        let page = slice.metadata.pages.change(bits).await?;
        if !planted(Bug::MergeTwice) {
            (0..WORDS).for_each(|word| page.set(first_word(table_page) + word, 0));
        }
        for number in blocks_of(table_page).filter(|number| is_among(dropped, *number)) {
            self.drop_reference(number).await?;
        }
        self.blocks.dropped.count = self.blocks.dropped.count.saturating_sub(dropped.count_ones().into());
        self.tell_dropped();
        Ok(true)
    }

    /// Notes how many there are where everybody can see it.
    pub(crate) fn tell_dropped(&self) {
        self.slice.counters.held.dropped_blocks.set(self.blocks.dropped.count);
    }

    /// Whether something is to be merged: many pages are due, or space is short.
    pub(crate) fn merging_is_due(&self) -> bool {
        let many = (self.blocks.numbers.table_pages() / 32 + 1).min(MERGE_PAGES as u64);
        self.blocks.dropped.due.len() as u64 >= many
            || self.blocks.dropped.count > 0 && !self.has_room_to_drop(0)
    }

    /// Merges some pages of the block table: those that are due, or else what comes next. False if none was merged.
    pub(crate) async fn merge_some(&mut self) -> Result<bool, PoolError> {
        let slice = self.slice.clone();
        let room = slice.space.most_due_bytes().saturating_sub(self.due_bytes());
        let most = slice.space.table_pages_within(room).min(MERGE_PAGES as u64) as usize;
        let mut pages: Vec<PageNumber> = self.blocks.dropped.due.iter().take(most).copied().collect();
        if pages.is_empty() {
            pages = self.pages_to_merge(most).await;
        }
        let fetches: Vec<_> = pages.iter().map(|page| self.fetch_to_merge(*page)).collect();
        stream::iter(fetches).buffer_unordered(MERGE_PAGES).collect::<()>().await;
        let mut did = false;
        for page in pages {
            did |= self.merge_dropped(page).await?;
        }
        if did {
            self.committed();
        }
        Ok(did)
    }

    /// Merges all that can be read.
    pub(crate) async fn merge_all(&mut self) -> Result<(), PoolError> {
        let bits_pages = self.blocks.numbers.table_pages().div_ceil(TABLE_PAGES);
        let mut in_vain = 0;
        while self.blocks.dropped.count > 0 && in_vain <= bits_pages.div_ceil(LOOKED_THROUGH) {
            if self.merge_some().await? {
                in_vain = 0;
            } else {
                // There may have been no room for more dirty pages.
                in_vain += 1;
                self.checkpoint().await?;
            }
            self.slice.world().yield_now().await;
        }
        Ok(())
    }

    async fn fetch_to_merge(&self, table_page: PageNumber) {
        // What cannot be read is dealt with when it is needed.
        drop(self.slice.metadata.pages.get(blocks::table_page(table_page)).await);
    }

    /// The pages of the table with the most to merge among those whose bits are looked through next.
    async fn pages_to_merge(&mut self, most: usize) -> Vec<PageNumber> {
        let bits_pages = self.blocks.numbers.table_pages().div_ceil(TABLE_PAGES);
        for _ in 0..bits_pages.min(LOOKED_THROUGH) {
            let bits_page = PageNumber(self.blocks.dropped.cursor.0 % bits_pages);
            let mut found = Vec::new();
            for page in table_pages_of(bits_page) {
                match self.slice.metadata.pages.dropped_of(page).await {
                    Ok(0) => {}
                    Ok(dropped) => found.push((dropped.count_ones(), page)),
                    // It is told of when it is needed.
                    Err(_) => break,
                }
            }
            if found.len() <= most {
                self.blocks.dropped.cursor = PageNumber(bits_page.next().0 % bits_pages);
            }
            if !found.is_empty() {
                found.sort_unstable_by(|a, b| b.cmp(a));
                return found.into_iter().take(most).map(|(_, page)| page).collect();
            }
        }
        Vec::new()
    }
}
