//! Walking and changing a volume's thin map: a radix tree of fixed height whose nodes are pages of the tree
//! space, named by page number. Leaves hold thin entries, nodes above hold page numbers; 0 means nothing.

use crate::{
    committer::Committer,
    error::PoolError,
    format::{Space, TREE_FAN_OUT, TREE_LEVELS},
    layer::Layer,
    meta::{Page, PageId},
    pool::Pool,
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

impl Pool {
    /// The leaf that maps `block`, if there is one.
    pub(crate) async fn leaf(&self, layer: &Layer, block: u64) -> Result<Option<Arc<Page>>, PoolError> {
        let mut number = layer.root.load(Ordering::Acquire);
        for level in (1..TREE_LEVELS).rev() {
            if number == 0 {
                return Ok(None);
            }
            number = match self.pages.word(node(number), slot(block, level)) {
                Some(child) => child,
                None => match self.pages.get(node(number)).await? {
                    Some(page) => page.get(slot(block, level)),
                    None => return Ok(None),
                },
            };
        }
        if number == 0 { Ok(None) } else { self.pages.get(node(number)).await }
    }
}

impl Committer {
    /// The leaf that maps `block`, dirty, with its way there made if need be.
    pub(crate) async fn leaf_to_change(&mut self, layer: &Layer, block: u64) -> Result<Arc<Page>, PoolError> {
        let pool = self.pool.clone();
        let mut number = layer.root.load(Ordering::Acquire);
        if number == 0 {
            number = self.take_tree_page().await?;
            pool.pages.change(node(number)).await?;
            layer.root.store(number, Ordering::Release);
        }
        for level in (1..TREE_LEVELS).rev() {
            let page = pool.pages.get(node(number)).await?.ok_or_else(|| {
                PoolError::page(Space::Tree, number, format!("node of volume {} is missing", layer.volume))
            })?;
            let slot = slot(block, level);
            let child = page.get(slot);
            number = if child != 0 {
                child
            } else {
                let child = self.take_tree_page().await?;
                pool.pages.change(node(child)).await?;
                pool.pages.change(node(number)).await?.set(slot, child);
                child
            };
        }
        pool.pages.change(node(number)).await
    }

    /// A page number of the tree space that nothing uses.
    async fn take_tree_page(&mut self) -> Result<u64, PoolError> {
        let pool = self.pool.clone();
        if self.tree_free > WORTH_LOOKING + self.tree_end / 4 {
            while self.tree_cursor < self.tree_end {
                let number = self.tree_cursor;
                self.tree_cursor += 1;
                if !pool.pages.exists(node(number)).await? {
                    self.tree_free = self.tree_free.saturating_sub(1);
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
