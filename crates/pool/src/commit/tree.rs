//! Changes of thin maps: nodes that a layer makes, copies and gives back.

use crate::{
    bugs::{Bug, planted},
    commit::committer::Committer,
    error::PoolError,
    fork::layer::Layer,
    format::{PAGE_WORDS, TREE_LEVELS, ThinEntry},
    maps::tree::{Spot, missing_node, node, slot},
    meta::Page,
};
use quoin_base::{BlockIndex, PageNumber};
use std::sync::{Arc, atomic::Ordering};

impl Committer {
    /// The leaf that maps `block`, a layer's own and dirty, with its way there made or copied if need be.
    pub(crate) async fn leaf_to_change(
        &mut self,
        layer: &Layer,
        block: BlockIndex,
    ) -> Result<Arc<Page>, PoolError> {
        let slice = self.slice.clone();
        let root = ThinEntry(layer.root.load(Ordering::Acquire));
        let own = self.own_node(layer, root, Spot { block, level: TREE_LEVELS - 1 }).await?;
        if own != root {
            layer.root.store(own.0);
        }
        // From the top down: a node is the layer's own before one below it changes.
        let mut entry = own;
        for level in (1..TREE_LEVELS).rev() {
            let number = entry.node().unwrap_or_default();
            let page =
                slice.metadata.pages.get(node(number)).await?.ok_or_else(|| missing_node(layer, number))?;
            let slot = slot(block, level);
            let child = ThinEntry(page.get(slot));
            entry = self.own_node(layer, child, Spot { block, level: level - 1 }).await?;
            if entry != child {
                slice.metadata.pages.change(node(number)).await?.set(slot, entry.0);
            }
        }
        slice.metadata.pages.change(node(entry.node().unwrap_or_default())).await
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
        let old = match entry.node() {
            None => None,
            Some(number) => match self.tree_page_or_damage(number).await? {
                Ok(page) => Some(page),
                Err(why) => return self.replace_damaged(layer, entry, spot, &why).await,
            },
        };
        if old.is_some() && (self.is_mine(layer, entry) || planted(Bug::ChangeShared)) {
            return Ok(entry);
        }
        // A node of its own: an empty one, or a copy of the one that others share, which is listed then.
        let number = self.take_tree_page().await?;
        let page = slice.metadata.pages.change(node(number)).await?;
        if let Some(old) = old {
            (0..PAGE_WORDS).for_each(|word| page.set(word, old.get(word)));
            self.bury(layer, entry.as_dead_page()).await?;
        }
        layer.births.fetch_add(1);
        Ok(ThinEntry::of_node(number, layer.id))
    }

    /// Gives back a page of the page space of the trees. Its number is not used again while a reader may come by.
    pub(crate) async fn drop_tree_page(&mut self, number: PageNumber) -> Result<(), PoolError> {
        self.drop_page(node(number)).await?;
        self.tree.give_back(number, self.slice.segments.readers().current());
        Ok(())
    }

    /// A page number of the page space of the trees that nothing uses.
    pub(crate) async fn take_tree_page(&mut self) -> Result<PageNumber, PoolError> {
        self.tree.take(&self.slice.metadata.pages, self.slice.segments.readers()).await
    }
}
