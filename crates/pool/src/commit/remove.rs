//! Giving back what nobody uses any more, a little at a time, so that hosts do not notice: layers that were given up,
//! and layers with one child, which become a part of it.

use crate::{
    commit::committer::Committer,
    error::PoolError,
    fork::layer::Layer,
    format::{TREE_FAN_OUT, TREE_LEVELS, ThinEntry},
    integrity::quarantine::LOST_NODE,
    maps::tree::{Spot, node},
};
use quoin_base::{BlockIndex, PageNumber};
use quoin_world::atomic::Ordering;
use std::sync::Arc;

/// Leaves freed, or pages of a deadlist looked through, in one step: 4 MiB of mapped space each.
const PAGES: usize = 8;

impl Committer {
    /// Frees some of what was given up. False if there is nothing.
    pub(crate) async fn remove_some(&mut self) -> Result<bool, PoolError> {
        let slice = self.slice.clone();
        // First the list of a layer whose parent became a part of it.
        let sifting = self.sifting.take();
        if let Some(layer) = sifting {
            for _ in 0..PAGES {
                if !self.sift(&layer).await? {
                    self.committed();
                    slice.requests.catalog_changed();
                    return Ok(true);
                }
                if self.is_much_due() {
                    break;
                }
            }
            self.sifting = Some(layer);
            self.committed();
            return Ok(true);
        }
        // Then layers that were given up.
        let first = slice.forks.read().removing.front().cloned();
        if let Some(layer) = first {
            for _ in 0..PAGES {
                if !self.remove_page(&layer).await? {
                    self.inherit_leaked(&layer);
                    slice.forks.write().removed(&layer);
                    slice.requests.catalog_changed();
                    break;
                }
                if self.is_much_due() {
                    break;
                }
            }
            self.committed();
            return Ok(true);
        }
        // Then another frozen layer with one child becomes a part of that.
        self.sifting = slice.forks.write().merge_one();
        if self.sifting.is_some() {
            slice.requests.catalog_changed();
        }
        Ok(self.sifting.is_some())
    }

    /// Gives back a page of a layer that is gone, and what it owns there. False once nothing is left.
    async fn remove_page(&mut self, layer: &Arc<Layer>) -> Result<bool, PoolError> {
        Ok(self.sift(layer).await? || self.forget_dead(layer).await? || self.remove_node(layer).await?)
    }

    /// Frees a node of a layer's map that leads to nothing more of its own, and the blocks it owns there.
    async fn remove_node(&mut self, layer: &Arc<Layer>) -> Result<bool, PoolError> {
        let slice = self.slice.clone();
        let root = ThinEntry(layer.root.load(Ordering::Acquire));
        if root.is_none() || !self.is_mine(layer, root) {
            layer.root.store(0);
            return Ok(false);
        }
        // The way down through nodes that the layer owns, and the slot that leads to each.
        let mut above: Option<(PageNumber, usize)> = None;
        let mut entry = root;
        let mut block = 0;
        for level in (0..TREE_LEVELS).rev() {
            let Some(number) = entry.node() else { break };
            let page = match self.tree_page_or_damage(number).await? {
                Ok(page) => page,
                Err(why) => {
                    // What it leads to stays taken; it itself is given back below.
                    self.note_damaged(layer, number, Spot { block: BlockIndex(block), level }, &why).await;
                    break;
                }
            };
            let mut next = None;
            for slot in 0..TREE_FAN_OUT as usize {
                let child = ThinEntry(page.get(slot));
                if child.is_none()
                    || level > 0 && child.node() == Some(LOST_NODE)
                    || !self.is_mine(layer, child)
                {
                    continue;
                }
                if level > 0 {
                    block += slot as u64 * TREE_FAN_OUT.pow(level);
                    next = Some((slot, child));
                    break;
                }
                self.free(layer, child).await?;
            }
            let Some((slot, child)) = next else { break };
            above = Some((number, slot));
            entry = child;
        }
        match above {
            Some((number, slot)) => slice.metadata.pages.change(node(number)).await?.set(slot, 0),
            None => layer.root.store(0),
        }
        self.free(layer, entry.as_dead_page()).await?;
        Ok(above.is_some())
    }
}
