//! Giving back what a deleted volume held, a few leaves at a time, so that hosts do not notice.

use crate::{
    committer::Committer,
    error::PoolError,
    format::{TREE_FAN_OUT, TREE_LEVELS, ThinEntry},
    layer::Layer,
    tree::node,
};
use std::sync::{Arc, atomic::Ordering};

/// Leaves freed in one step: 4 MiB of mapped space each.
const LEAVES: usize = 8;

impl Committer {
    /// Frees some of a deleted volume. False if there is none.
    pub(crate) async fn remove_some(&mut self) -> Result<bool, PoolError> {
        let pool = self.pool.clone();
        let Some(layer) = pool.deleting.lock().first().cloned() else { return Ok(false) };
        for _ in 0..LEAVES {
            if !self.remove_leaf(&layer).await? {
                pool.deleting.lock().retain(|l| l.volume != layer.volume);
                pool.requests.catalog_changed();
                break;
            }
        }
        self.committed();
        Ok(true)
    }

    /// Frees the first leaf of the tree, and the nodes above it that this leaves empty. False once the tree is
    /// gone.
    async fn remove_leaf(&mut self, layer: &Arc<Layer>) -> Result<bool, PoolError> {
        let pool = self.pool.clone();
        let root = layer.root.load(Ordering::Acquire);
        if root == 0 {
            return Ok(false);
        }
        // The way down to the first leaf: page numbers, and the slot taken in each.
        let mut way = vec![(root, 0)];
        for _ in 1..TREE_LEVELS {
            let Some((number, slot)) = way.last_mut() else { break };
            let Some(page) = pool.pages.get(node(*number)).await? else { break };
            let Some(first) = (0..TREE_FAN_OUT as usize).find(|&i| page.get(i) != 0) else { break };
            *slot = first;
            way.push((page.get(first), 0));
        }
        if way.len() == TREE_LEVELS as usize {
            let leaf = way[way.len() - 1].0;
            if let Some(page) = pool.pages.get(node(leaf)).await? {
                for entry in 0..TREE_FAN_OUT as usize {
                    if let Some(number) = ThinEntry(page.get(entry)).block() {
                        self.drop_reference(number).await?;
                        layer.mapped_blocks.fetch_sub(1, Ordering::Relaxed);
                    }
                }
            }
        }
        while let Some((number, _)) = way.pop() {
            self.drop_page(node(number)).await?;
            self.tree_free += 1;
            let Some(&(parent, slot)) = way.last() else {
                layer.root.store(0, Ordering::Release);
                break;
            };
            let page = pool.pages.change(node(parent)).await?;
            page.set(slot, 0);
            if (0..TREE_FAN_OUT as usize).any(|i| page.get(i) != 0) {
                break;
            }
        }
        Ok(true)
    }
}
