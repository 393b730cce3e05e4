//! What lies below what is written: which blocks of it are replaced, so that they take no space.

use crate::{
    buffer::{BlockKey, Shard},
    error::PoolError,
    fork::{layer::Layer, layers::Layers, lending::Lending},
    format::{TREE_FAN_OUT, ThinEntry},
    lifecycle::slice::Slice,
    maps::tree::slot,
    meta::Page,
};
use quoin_base::{BlockIndex, BlockNumber, ByteRange};
use std::{collections::BTreeSet, sync::Arc};

/// What the map says of the blocks of one region, or of two neighbours.
#[derive(Default)]
pub(crate) struct Below {
    /// The leaves it has for them, each with its first block.
    leaves: Vec<(BlockIndex, Arc<Page>)>,
    /// If the layer has lent any of its blocks, or may be about to: those of the leaves that it has alone.
    alone: Option<BTreeSet<BlockNumber>>,
    /// How often it had lent some by then.
    loans: u64,
    /// How often any layer had been about to.
    begun: u64,
}

impl Below {
    /// Whether the layer has lent no more since this was looked for, and is not about to.
    pub(super) fn is_as_it_was(&self, layer: &Layer, lending: &Lending) -> bool {
        layer.loans() == self.loans && lending.begun() == self.begun
    }

    fn entry(&self, index: BlockIndex) -> ThinEntry {
        let first = first_of_leaf(index);
        let leaf = self.leaves.iter().find(|(of, _)| *of == first);
        leaf.map_or(ThinEntry(0), |(_, leaf)| ThinEntry(leaf.get(slot(index, 0))))
    }

    /// True for a block that destage will exchange for another of the same size: it is mapped, the layer alone owns it,
    /// and nothing buffered will change that before. While a block is not buffered and its shard is locked, its entry stays
    /// as it is; a leaf with an entry that the layer owns is the layer's own, and stays the one it is while that lives.
    pub(super) fn is_replaced(&self, shard: &Shard, key: BlockKey, layer: &Layer, layers: &Layers) -> bool {
        let entry = self.entry(key.index);
        let is_own = || entry.birth() == key.layer || layers.owner(entry.birth()) == key.layer;
        let is_alone = |number| match &self.alone {
            Some(alone) => alone.contains(&number),
            None => layer.lent() == 0,
        };
        entry.block().is_some_and(is_alone) && shard.fragments(key).is_none() && is_own()
    }
}

impl Slice {
    pub(super) async fn look_below(&self, layer: &Layer, range: ByteRange) -> Result<Below, PoolError> {
        let block_bytes = self.buffer.block_bytes;
        let (_guard, lending) = (self.enter_readers(), self.forks.lending());
        // NOTE: before anything is looked at: what is lent from here on is looked for again.
        let (loans, begun) = (layer.loans(), lending.begun());
        let blocks = range.first_block(block_bytes).until(range.end_block(block_bytes));
        let mut leaves = Vec::new();
        for first in blocks
            .clone()
            .filter(|index| *index == range.first_block(block_bytes) || index.0 % TREE_FAN_OUT == 0)
        {
            // Of a layer that is gone nothing counts: the next attempt tells.
            let leaf = match self.leaf(layer, first).await {
                _ if layer.is_gone() => None,
                // Nothing there is given back for what is written now.
                Err(PoolError::Corrupt { .. }) => None,
                leaf => leaf?,
            };
            leaves.extend(leaf.map(|leaf| (first_of_leaf(first), leaf)));
        }
        let mut below = Below { leaves, alone: None, loans, begun };
        if !lending.is_any() && layer.lent() == 0 {
            return Ok(below);
        }
        // Only what nobody shares is certain to be given back when it is replaced.
        let mut alone = BTreeSet::new();
        for index in blocks {
            let Some(number) = below.entry(index).block() else { continue };
            // NOTE: before the table is asked: it is named until the table says so.
            let is_lent = lending.has(number);
            match self.block(number).await {
                Ok(Some(place)) if !is_lent && place.info.count() == 1 => drop(alone.insert(number)),
                Ok(_) | Err(PoolError::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        below.alone = Some(alone);
        Ok(below)
    }
}

/// The first block that the leaf of a block describes.
fn first_of_leaf(index: BlockIndex) -> BlockIndex {
    BlockIndex(index.0 / TREE_FAN_OUT * TREE_FAN_OUT)
}
