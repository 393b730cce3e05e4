//! A volume's thin map: a radix tree of fixed height whose nodes are pages of the tree
//! space. Leaves and nodes above hold thin entries, of blocks the ones, of nodes the others; 0 means nothing.
//!
//! Layers share nodes: a node belongs to the layer that made it, and only that one changes it, while it is not forked.
//! Who looks meanwhile sees a map as it was at some moment since the look began: a copy is complete before anything
//! leads to it, and what is left behind stays as it was until every reader epoch of then has passed.

use crate::{
    error::PoolError,
    fork::layer::Layer,
    format::{PageSpace, TREE_FAN_OUT},
    meta::PageId,
};
use quoin_base::{BlockIndex, PageNumber};

/// Which entry of the node at `level` leads to `block`.
pub(crate) fn slot(block: BlockIndex, level: u32) -> usize {
    (block.0 / TREE_FAN_OUT.pow(level) % TREE_FAN_OUT) as usize
}

pub(crate) fn node(number: PageNumber) -> PageId {
    PageId::new(PageSpace::Tree, number)
}

pub(crate) fn missing_node(layer: &Layer, number: PageNumber) -> PoolError {
    PoolError::page(PageSpace::Tree, number, format!("node of volume {} is missing", layer.volume.id))
}

/// Where a node is in a map.
#[derive(Clone, Copy)]
pub(crate) struct Spot {
    /// A block that it maps.
    pub block: BlockIndex,
    pub level: u32,
}

impl Spot {
    /// The blocks that the node maps: the first, and how many.
    pub(crate) fn span(self) -> (BlockIndex, u64) {
        let blocks = TREE_FAN_OUT.pow(self.level + 1);
        (BlockIndex(self.block.0 / blocks * blocks), blocks)
    }
}
