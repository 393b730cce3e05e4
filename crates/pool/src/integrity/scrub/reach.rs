//! Which bytes of which volumes something damaged is missing to: found by going through the maps of all volumes. What
//! volumes share is gone through once for each that shares it only where it leads to damage.

use crate::{
    error::PoolError,
    fork::layer::Layer,
    format::{PageSpace, TREE_FAN_OUT, TREE_LEVELS, ThinEntry},
    integrity::damage::Damage,
    lifecycle::slice::Slice,
    maps::{blocks::block_page, tree::slot},
    meta::PageId,
};
use hashbrown::HashSet;
use quoin_base::{BlockIndex, BlockNumber, ByteRange, PageNumber, VolumeId};
use rustc_hash::FxBuildHasher;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Nodes after which other tasks have a turn.
const NODES_A_TURN: usize = 64;

/// What cannot be read.
#[derive(Default)]
pub(super) struct Unreadable {
    /// Blocks, and why.
    blocks: BTreeMap<BlockNumber, String>,
    /// Pages of the block table, by number.
    tables: BTreeSet<PageNumber>,
    /// Something that tells where many pages are.
    more: bool,
}

impl Unreadable {
    pub(super) fn block(&mut self, number: BlockNumber, reason: String) {
        self.blocks.insert(number, reason);
    }

    pub(super) fn page(&mut self, id: PageId) {
        match (id.space, id.level) {
            (PageSpace::Blocks, 0) => drop(self.tables.insert(id.index)),
            _ => self.more = true,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.tables.is_empty() && !self.more
    }

    /// Why a block cannot be read, if so.
    async fn reason(&self, slice: &Slice, number: BlockNumber) -> Option<String> {
        if let Some(reason) = self.blocks.get(&number) {
            return Some(reason.clone());
        }
        let page = block_page(number).index;
        let is_known = self.tables.contains(&page);
        if !is_known && !self.more {
            return None;
        }
        // Of a page that cannot be found, whatever the reason, nothing can be read.
        slice.block(number).await.err().map(|error| error.to_string())
    }
}

/// A node of a map, and the first block that it maps.
#[derive(Clone, Copy)]
struct Node {
    entry: ThinEntry,
    level: u32,
    first: BlockIndex,
}

impl Slice {
    /// Notes, for every volume, what of it cannot be read.
    pub(super) async fn tell_who_reaches(&self, unreadable: &Unreadable) -> Result<(), PoolError> {
        let volumes: Vec<(VolumeId, Arc<Layer>)> =
            self.forks.read().volumes.iter().map(|(id, layer)| (*id, layer.clone())).collect();
        // Nodes that lead to nothing damaged, whoever has them.
        let mut sound = HashSet::<PageNumber, FxBuildHasher>::default();
        for (volume, layer) in volumes {
            for (range, reason) in self.unreadable_of(&layer, unreadable, &mut sound).await? {
                self.damage().note(Damage { volume, range, reason });
            }
        }
        Ok(())
    }

    /// The ranges of a layer's map that lead to what cannot be read.
    async fn unreadable_of(
        &self,
        layer: &Arc<Layer>,
        unreadable: &Unreadable,
        sound: &mut HashSet<PageNumber, FxBuildHasher>,
    ) -> Result<Vec<(ByteRange, String)>, PoolError> {
        let mut found: BTreeMap<BlockIndex, (u64, String)> = BTreeMap::new();
        let mut todo = vec![Node { entry: layer.map_root(), level: TREE_LEVELS - 1, first: BlockIndex(0) }];
        let mut visited = 0;
        while let Some(at) = todo.pop() {
            let Some(number) = at.entry.node().filter(|number| !sound.contains(number)) else { continue };
            visited += 1;
            if visited % NODES_A_TURN == 0 {
                self.world().yield_now().await;
                self.store.health().check()?;
            }
            let guard = self.enter_readers();
            let page = match self.tree_page(number).await {
                Ok(Some(page)) => page,
                Ok(None) => continue,
                Err(error @ PoolError::Corrupt { .. }) => {
                    // It may have been given back since its number was met.
                    if self.leaf(layer, at.first).await.is_err() && !layer.is_gone() {
                        found.insert(at.first, (TREE_FAN_OUT.pow(at.level + 1), error.to_string()));
                    }
                    continue;
                }
                Err(error) => return Err(error),
            };
            let children = (0..TREE_FAN_OUT).map(|slot| (slot, ThinEntry(page.get(slot as usize))));
            let children: Vec<_> = children.filter(|(_, child)| !child.is_none()).collect();
            drop((page, guard));
            if at.level > 0 {
                let below = |(slot, entry): &(u64, ThinEntry)| Node {
                    entry: *entry,
                    level: at.level - 1,
                    first: at.first.plus(slot * TREE_FAN_OUT.pow(at.level)),
                };
                todo.extend(children.iter().map(below));
                continue;
            }
            let mut is_sound = true;
            for (offset, child) in children {
                let Some(reason) = self.reason_of(unreadable, child).await else { continue };
                is_sound = false;
                if self.still_leads_to(layer, at.first.plus(offset), child).await? {
                    found.insert(at.first.plus(offset), (1, reason));
                }
            }
            if is_sound {
                sound.insert(number);
            }
        }
        Ok(self.ranges(found))
    }

    async fn reason_of(&self, unreadable: &Unreadable, entry: ThinEntry) -> Option<String> {
        let _guard = self.enter_readers();
        unreadable.reason(self, entry.block()?).await
    }

    async fn still_leads_to(
        &self,
        layer: &Layer,
        block: BlockIndex,
        entry: ThinEntry,
    ) -> Result<bool, PoolError> {
        let _guard = self.enter_readers();
        match self.leaf(layer, block).await {
            Ok(Some(leaf)) => Ok(leaf.get(slot(block, 0)) == entry.0 && !layer.is_gone()),
            Ok(None) | Err(PoolError::Corrupt { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Blocks as bytes, neighbours in one.
    fn ranges(&self, found: BTreeMap<BlockIndex, (u64, String)>) -> Vec<(ByteRange, String)> {
        let mut ranges: Vec<(ByteRange, String)> = Vec::new();
        for (first, (blocks, reason)) in found {
            let range =
                ByteRange::new(first.offset_bytes(self.buffer.block_bytes), blocks * self.buffer.block_bytes);
            match ranges.last_mut().filter(|(last, _)| last.end() == range.offset) {
                Some((last, _)) => last.len += range.len,
                None => ranges.push((range, reason)),
            }
        }
        ranges
    }
}
