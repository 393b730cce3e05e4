//! Looking up where blocks are. Called within a reader epoch, or by the committer.

use crate::{
    error::PoolError,
    fork::layer::Layer,
    format::{TREE_LEVELS, ThinEntry},
    lifecycle::slice::Slice,
    maps::{
        blocks::{BlockPlace, block_page, entry_in},
        tree::{missing_node, node, slot},
    },
    meta::Page,
};
use quoin_base::{BlockIndex, BlockNumber, PageNumber};
use std::sync::Arc;

/// What a walk down a map comes to.
enum Met {
    Leaf(Arc<Page>),
    Nothing,
    /// A node that is not there: it was given back after the walk had met its number, or is lost.
    Missing(PageNumber),
}

impl Slice {
    /// The leaf that maps `block`, if there is one. Called within a reader epoch, or by the committer.
    pub(crate) async fn leaf(
        &self,
        layer: &Layer,
        block: BlockIndex,
    ) -> Result<Option<Arc<Page>>, PoolError> {
        let mut missing = None;
        loop {
            missing = match self.walk(layer, block).await? {
                Met::Leaf(page) => return Ok(Some(page)),
                Met::Nothing => return Ok(None),
                Met::Missing(number) if missing == Some(number) || layer.is_gone() => {
                    return Err(missing_node(layer, number));
                }
                Met::Missing(number) => Some(number),
            };
        }
    }

    async fn walk(&self, layer: &Layer, block: BlockIndex) -> Result<Met, PoolError> {
        let mut entry = layer.map_root();
        for level in (1..TREE_LEVELS).rev() {
            let Some(number) = entry.node() else { return Ok(Met::Nothing) };
            entry = ThinEntry(match self.metadata.pages.word(node(number), slot(block, level)) {
                Some(child) => child,
                None => match self.tree_page(number).await? {
                    Some(page) => page.get(slot(block, level)),
                    None => return Ok(Met::Missing(number)),
                },
            });
        }
        let Some(number) = entry.node() else { return Ok(Met::Nothing) };
        Ok(self.tree_page(number).await?.map_or(Met::Missing(number), Met::Leaf))
    }

    /// The entry of a block; `None` if it is free.
    pub(crate) async fn block(&self, number: BlockNumber) -> Result<Option<BlockPlace>, PoolError> {
        Ok(self.metadata.pages.get(block_page(number)).await?.and_then(|page| entry_in(&page, number)))
    }
}
