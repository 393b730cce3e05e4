//! Deadlists: what a layer does not use any more and an ancestor of it owns.
//!
//! A list is a chain of pages in the page space of the trees, the page written last first: the number of the next page, how many
//! entries, entries. An entry is that of a map, the number of a page marked as such.
//!
//! # Example
//! A volume maps blocks 1 and 2, and a snapshot is taken of it. Its layer P is frozen, with two children: V, to which the
//! volume goes on to write, and S, which is the snapshot's.
//! 1. The volume overwrites block 1: V maps block 3 in its place. P owns block 1, and S still maps it. So V lists 1 as dead.
//! 2. The snapshot is deleted, and S is given back. P has one child left and becomes a part of V, which owns 1 and 2 now.
//! 3. V's list is sifted. It names block 1, which V owns and does not map: nothing leads there any more, and it is freed.
//!    Block 2 is in no list. V still maps it.

use crate::{
    bugs::{Bug, planted},
    commit::committer::Committer,
    error::PoolError,
    fork::layer::Layer,
    fork::lists::DeadList,
    format::{DEAD_ENTRIES, Dead, PageSpace, ThinEntry},
    maps::{blocks::block_page, tree::node},
};
use quoin_base::{LayerId, PageNumber};
use std::sync::Arc;

impl Committer {
    /// True for what a layer owns.
    pub(crate) fn is_mine(&self, layer: &Layer, entry: ThinEntry) -> bool {
        let birth = entry.birth();
        birth == layer.id || !planted(Bug::ForgetAliases) && self.slice.forks.read().owner(birth) == layer.id
    }

    /// Lists a block or page (see [`ThinEntry::as_dead_page`]) that a layer does not use any more and does not own.
    pub(crate) async fn bury(&mut self, layer: &Layer, entry: ThinEntry) -> Result<(), PoolError> {
        let names_block = matches!(entry.dead(), Dead::Block(_));
        if planted(Bug::ForgetTheDead) && names_block {
            return Ok(());
        }
        let slice = self.slice.clone();
        let mut list = layer.lists.lock().dead;
        // A list whose first page is damaged is given up, and another one begins.
        if !list.is_empty()
            && let Err(why) = self.tree_page_or_damage(list.head).await?
        {
            self.give_up_list(layer, &mut list, &why).await?;
        }
        let DeadList { mut head, entries } = list;
        let mut count =
            if list.is_empty() { DEAD_ENTRIES } else { self.list_page(head).await?.get(1) as usize };
        // That page is full, or there is none: another one comes before it.
        if count == DEAD_ENTRIES {
            let next = std::mem::replace(&mut head, self.take_tree_page().await?);
            let page = slice.metadata.pages.change(node(head)).await?;
            page.set(0, next.0);
            count = 0;
        }
        let page = slice.metadata.pages.change(node(head)).await?;
        page.set(2 + count, entry.0);
        page.set(1, count as u64 + 1);
        let owner = slice.forks.read().owner(entry.birth());
        let mut lists = layer.lists.lock();
        lists.dead = DeadList { head, entries: entries + 1 };
        if names_block {
            *lists.dead_blocks.entry(owner).or_default() += 1;
        }
        Ok(())
    }

    async fn list_page(&self, number: PageNumber) -> Result<Arc<crate::meta::Page>, PoolError> {
        let page = self.slice.metadata.pages.get(node(number)).await?;
        page.ok_or_else(|| PoolError::page(PageSpace::Tree, number, "a page of a deadlist is missing"))
    }

    /// Takes a page of entries off a list; `None` if there is none. Of a list that is damaged nothing is left.
    async fn pop(&mut self, layer: &Layer, list: &mut DeadList) -> Result<Option<Vec<ThinEntry>>, PoolError> {
        if list.is_empty() {
            return Ok(None);
        }
        let page = match self.tree_page_or_damage(list.head).await? {
            Ok(page) => page,
            Err(why) => {
                self.give_up_list(layer, list, &why).await?;
                return Ok(Some(Vec::new()));
            }
        };
        let count = (page.get(1) as usize).min(DEAD_ENTRIES);
        let entries = (0..count).map(|i| ThinEntry(page.get(2 + i))).collect();
        let next = PageNumber(page.get(0));
        self.drop_tree_page(list.head).await?;
        *list = DeadList { head: next, entries: list.entries.saturating_sub(count as u64) };
        Ok(Some(entries))
    }

    /// Looks through a page of what a layer listed before its parent became a part of it: what it owns now nobody can
    /// reach any more. False if there is nothing left.
    pub(crate) async fn sift(&mut self, layer: &Arc<Layer>) -> Result<bool, PoolError> {
        let mut list = layer.lists.lock().sifting;
        let Some(entries) = self.pop(layer, &mut list).await? else { return Ok(false) };
        for entry in entries {
            if let Dead::Block(_) = entry.dead() {
                let owner = self.slice.forks.read().owner(entry.birth());
                layer.lists.lock().sifted(owner);
            }
            // What the layer came to own is freed. What an ancestor owns is listed once more.
            if self.is_mine(layer, entry) {
                self.free(layer, entry).await?;
            } else if !layer.is_gone() {
                self.bury(layer, entry).await?;
            }
        }
        let mut lists = layer.lists.lock();
        lists.sifting = list;
        if list.is_empty() {
            lists.sifting_blocks.clear();
        }
        Ok(true)
    }

    /// Gives back a page of a deadlist that nobody needs any more. What it lists is others'. False if there is none.
    pub(crate) async fn forget_dead(&mut self, layer: &Layer) -> Result<bool, PoolError> {
        let mut list = layer.lists.lock().dead;
        let popped = self.pop(layer, &mut list).await?;
        let mut lists = layer.lists.lock();
        lists.dead = list;
        lists.dead_blocks.clear();
        Ok(popped.is_some())
    }

    /// Gives back a block or page that a layer owns and nobody refers to.
    pub(crate) async fn free(&mut self, owner: &Layer, entry: ThinEntry) -> Result<(), PoolError> {
        if entry.is_none() {
            return Ok(());
        }
        match entry.dead() {
            Dead::Page(number) => self.drop_tree_page(number).await?,
            Dead::Block(number) => {
                // The entry's page is changed anyway. Of one at hand that was done.
                if !self.blocks.freed_from.is_dirty(block_page(number)) {
                    self.merge_dropped(block_page(number).index).await?;
                }
                if self.drop_reference(number).await? {
                    owner.end_loan();
                }
                owner.owned_blocks.fetch_sub(1);
            }
        }
        self.forget_birth(owner, entry.birth());
        Ok(())
    }

    /// The same for a block in whose place there is another now. What its entry says may be left for later.
    pub(crate) async fn free_replaced(&mut self, owner: &Layer, entry: ThinEntry) -> Result<(), PoolError> {
        let Some(number) = entry.block() else { return Ok(()) };
        if !self.drop_unseen(owner, number).await? {
            return self.free(owner, entry).await;
        }
        owner.owned_blocks.fetch_sub(1);
        self.forget_birth(owner, entry.birth());
        Ok(())
    }

    fn forget_birth(&self, owner: &Layer, birth: LayerId) {
        if birth == owner.id {
            owner.births.fetch_sub(1);
        } else {
            self.slice.forks.write().forget_birth(birth);
        }
    }
}
