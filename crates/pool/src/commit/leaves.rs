//! Walks of the map of a layer, leaf by leaf, through the nodes that it owns: so each of its blocks is met.

use crate::{
    commit::{
        committer::Committer,
        conversions::{Leaves, OwnLeaf},
    },
    error::PoolError,
    fork::layer::Layer,
    format::{TREE_FAN_OUT, TREE_LEVELS, ThinEntry},
    integrity::quarantine::LOST_NODE,
    meta::Page,
};
use quoin_base::{BlockIndex, PageNumber};
use quoin_world::atomic::Ordering;
use std::sync::Arc;

impl Committer {
    /// The next leaf that the layer owns, from where the walk is.
    pub(super) async fn next_own_leaf(
        &self,
        layer: &Layer,
        walk: &mut Leaves,
    ) -> Result<Option<OwnLeaf>, PoolError> {
        // From the top down each time: nodes may be copied or given back between steps.
        'from_the_top: loop {
            let mut entry = ThinEntry(layer.root.load(Ordering::Acquire));
            if entry.is_none() || !self.is_mine(layer, entry) {
                return Ok(None);
            }
            // The first block that the node at hand maps.
            let mut base = 0;
            for level in (0..TREE_LEVELS).rev() {
                let (of_slot, of_node) = (TREE_FAN_OUT.pow(level), TREE_FAN_OUT.pow(level + 1));
                let page = match entry.node() {
                    Some(number) => self.page_of_map(number, walk).await?,
                    None => None,
                };
                if let Some(page) = &page
                    && level == 0
                {
                    return Ok(Some(OwnLeaf { first: BlockIndex(base), page: page.clone() }));
                }
                let first = (walk.from.0.saturating_sub(base) / of_slot).min(TREE_FAN_OUT);
                let own = |slot: &u64| {
                    let page = page.as_ref()?;
                    let child = ThinEntry(page.get(*slot as usize));
                    let leads_on = !child.is_none() && child.node() != Some(LOST_NODE);
                    (leads_on && self.is_mine(layer, child)).then_some((*slot, child))
                };
                let Some((slot, child)) = (first..TREE_FAN_OUT).find_map(|slot| own(&slot)) else {
                    // Nothing more below this node.
                    walk.from = BlockIndex(base + of_node);
                    if level == TREE_LEVELS - 1 {
                        return Ok(None);
                    }
                    continue 'from_the_top;
                };
                base += slot * of_slot;
                walk.from = walk.from.max(BlockIndex(base));
                entry = child;
            }
        }
    }

    /// A page of a map. `None`: it is damaged, and what it leads to stays where it is.
    async fn page_of_map(
        &self,
        number: PageNumber,
        walk: &mut Leaves,
    ) -> Result<Option<Arc<Page>>, PoolError> {
        let page = self.tree_page_or_damage(number).await?.ok();
        walk.is_incomplete |= page.is_none();
        Ok(page)
    }
}
