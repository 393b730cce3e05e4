//! Walking and changing a volume's thin map: a radix tree of fixed height whose nodes are pages of the tree
//! space. Leaves and nodes above hold thin entries, of blocks the ones, of nodes the others; 0 means nothing.
//!
//! Layers share nodes: a node belongs to the layer that made it, and only that one changes it, while it is not forked.
//! Who looks meanwhile sees a map as it was at some moment since the look began: a copy is complete before anything
//! leads to it, and what is left behind stays as it was until every reader epoch of then has passed.

use crate::{
    bugs::{Bug, planted},
    commit::committer::Committer,
    error::PoolError,
    fork::layer::Layer,
    format::{DEAD_PAGE, PAGE_WORDS, Space, TREE_FAN_OUT, TREE_LEVELS, ThinEntry},
    integrity::quarantine::Spot,
    lifecycle::slice::Slice,
    meta::{Page, PageId},
};
use std::sync::{Arc, atomic::Ordering};

/// Blocks a tree can address.
pub(crate) const MAX_BLOCKS: u64 = TREE_FAN_OUT.pow(TREE_LEVELS);

/// Free page numbers below which none is looked for.
const WORTH_LOOKING: u64 = 32;

/// Which entry of the node at `level` leads to `block`.
pub(crate) fn slot(block: u64, level: u32) -> usize {
    (block / TREE_FAN_OUT.pow(level) % TREE_FAN_OUT) as usize
}

pub(crate) fn node(number: u64) -> PageId {
    PageId::new(Space::Tree, number)
}

/// What a walk down a map comes to.
enum Met {
    Leaf(Arc<Page>),
    Nothing,
    /// A node that is not there: it was given back after the walk had met its number, or is lost.
    Missing(u64),
}

impl Slice {
    /// The leaf that maps `block`, if there is one. Called within a reader epoch, or by the committer.
    pub(crate) async fn leaf(&self, layer: &Layer, block: u64) -> Result<Option<Arc<Page>>, PoolError> {
        let mut missing = 0;
        loop {
            missing = match self.walk(layer, block).await? {
                Met::Leaf(page) => return Ok(Some(page)),
                Met::Nothing => return Ok(None),
                Met::Missing(number) if number == missing || layer.is_gone() => {
                    return Err(missing_node(layer, number));
                }
                Met::Missing(number) => number,
            };
        }
    }

    async fn walk(&self, layer: &Layer, block: u64) -> Result<Met, PoolError> {
        let mut entry = layer.map_root();
        for level in (1..TREE_LEVELS).rev() {
            let Some(number) = entry.block() else { return Ok(Met::Nothing) };
            entry = ThinEntry(match self.pages.word(node(number), slot(block, level)) {
                Some(child) => child,
                None => match self.tree_page(number).await? {
                    Some(page) => page.get(slot(block, level)),
                    None => return Ok(Met::Missing(number)),
                },
            });
        }
        let Some(number) = entry.block() else { return Ok(Met::Nothing) };
        Ok(self.tree_page(number).await?.map_or(Met::Missing(number), Met::Leaf))
    }
}

pub(crate) fn missing_node(layer: &Layer, number: u64) -> PoolError {
    PoolError::page(Space::Tree, number, format!("node of volume {} is missing", layer.volume.id))
}

impl Committer {
    /// The leaf that maps `block`, a layer's own and dirty, with its way there made or copied if need be.
    pub(crate) async fn leaf_to_change(&mut self, layer: &Layer, block: u64) -> Result<Arc<Page>, PoolError> {
        let slice = self.slice.clone();
        let root = ThinEntry(layer.root.load(Ordering::Acquire));
        let own = self.own_node(layer, root, Spot { block, level: TREE_LEVELS - 1 }).await?;
        if own != root {
            layer.root.store(own.0);
        }
        let mut entry = own;
        for level in (1..TREE_LEVELS).rev() {
            let number = entry.block().unwrap_or(0);
            let page = slice.pages.get(node(number)).await?.ok_or_else(|| missing_node(layer, number))?;
            let slot = slot(block, level);
            let child = ThinEntry(page.get(slot));
            entry = self.own_node(layer, child, Spot { block, level: level - 1 }).await?;
            if entry != child {
                slice.pages.change(node(number)).await?.set(slot, entry.0);
            }
        }
        slice.pages.change(node(entry.block().unwrap_or(0))).await
    }

    /// The node itself if it is the layer's own, else a copy of it, or a new one if there is none; one whose entries are
    /// lost if it is damaged. Its parent is to lead there before it is changed.
    async fn own_node(
        &mut self,
        layer: &Layer,
        entry: ThinEntry,
        spot: Spot,
    ) -> Result<ThinEntry, PoolError> {
        let slice = self.slice.clone();
        let old = match entry.block() {
            None => None,
            Some(number) => match self.tree_page_or_damage(number).await? {
                Ok(page) => Some(page),
                Err(why) => return self.replace_damaged(layer, entry, spot, &why).await,
            },
        };
        if old.is_some() && (self.is_mine(layer, entry) || planted(Bug::ChangeShared)) {
            return Ok(entry);
        }
        let number = self.take_tree_page().await?;
        let page = slice.pages.change(node(number)).await?;
        if let Some(old) = old {
            (0..PAGE_WORDS).for_each(|word| page.set(word, old.get(word)));
            self.bury(layer, ThinEntry(entry.0 | DEAD_PAGE)).await?;
        }
        layer.births.fetch_add(1);
        Ok(ThinEntry::new(number, layer.id))
    }

    /// Gives back a page of the tree space. Its number is not used again while a reader may come by.
    pub(crate) async fn drop_tree_page(&mut self, number: u64) -> Result<(), PoolError> {
        self.drop_page(node(number)).await?;
        self.tree_free += 1;
        self.freed_pages.insert(number, self.slice.readers.current());
        Ok(())
    }

    /// A page number of the tree space that nothing uses.
    pub(crate) async fn take_tree_page(&mut self) -> Result<u64, PoolError> {
        let slice = self.slice.clone();
        if planted(Bug::EarlyPageReuse)
            && let Some(number) = self.freed_pages.newest()
            && !slice.pages.exists(node(number)).await?
        {
            self.tree_free -= 1;
            return Ok(number);
        }
        if self.tree_free > WORTH_LOOKING + self.tree_end / 4 {
            while self.tree_cursor < self.tree_end {
                let number = self.tree_cursor;
                self.tree_cursor += 1;
                if !slice.pages.exists(node(number)).await?
                    && self.freed_pages.may_use(number, &slice.readers)
                {
                    self.tree_free -= 1;
                    return Ok(number);
                }
            }
            // Once round: what was freed behind the cursor is found next time.
            self.tree_cursor = 1;
        }
        let number = self.tree_end;
        self.tree_end += 1;
        self.tree_cursor = self.tree_cursor.min(self.tree_end);
        Ok(number)
    }
}
