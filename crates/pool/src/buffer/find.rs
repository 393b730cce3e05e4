//! What is buffered of a block, or of a range.
//!
//! A range is gone through by region: those of the range, or those of which anything is buffered, whichever are fewer.

use super::{
    BlockKey, Buffer, Charge, Content, Fragment, Shard,
    fragment::gaps,
    run::{Slots, slots, slots_from},
};
use crate::{
    bugs::{Bug, planted},
    fork::layer::Layer,
};
use quoin_base::{BlockIndex, LayerId};
use std::{borrow::Cow, collections::BTreeSet, ops::Range};

impl Buffer {
    /// The blocks of a volume that have anything but zeroes buffered, ascending.
    pub(crate) fn blocks_with_data(&self, layer: &Layer, blocks: Range<BlockIndex>) -> Vec<BlockIndex> {
        self.blocks_where(layer, blocks, |fragment| !matches!(fragment.content, Content::Zero))
    }

    /// The regions of a range in which any block of a volume would read as anything but zeroes after a crash, as far as the
    /// buffer decides, each by its first block in the range, ascending: zeroes that are not hardened do not count yet.
    pub(crate) fn regions_to_unmap(&self, layer: &Layer, blocks: Range<BlockIndex>) -> Vec<BlockIndex> {
        let mut found = Vec::new();
        self.for_each_region(layer, &with_those_below(layer), blocks.clone(), |shard, first, within| {
            let is_wanted = |e: &Fragment| !matches!(e.content, Content::Zero) || !e.batch.is_hardened();
            if self.slots_where(shard, layer, (first, within), is_wanted) != 0 {
                found.push(first.max(blocks.start));
            }
        });
        found.sort_unstable();
        found
    }

    /// Blocks of which something is buffered whose content lies on drives: placed there, or shared with what a map leads to.
    pub(crate) fn blocks_on_drives(&self, layer: &Layer, blocks: Range<BlockIndex>) -> Vec<BlockIndex> {
        self.blocks_where(layer, blocks, |e| matches!(e.content, Content::Placed(_) | Content::Shared(_)))
    }

    /// How many of these blocks of a region, whose shard is locked, are not charged.
    pub(crate) fn uncharged(&self, shard: &Shard, from: BlockKey, count: u64) -> u64 {
        let (first, slot) = self.place_of(from);
        let all = slots_from(slot, count as u32);
        let runs = shard.runs.get(&first).into_iter().flatten();
        let charged = runs.fold(0, |charged, run| charged | run.charged | run.waived);
        let present = shard.present.get(&first).copied().unwrap_or_default();
        let is_charged = |slot: &u32| shard.is_charged(first.plus(*slot));
        let alone = slots(present & all).filter(is_charged).count();
        u64::from((all & !charged).count_ones()) - alone as u64
    }

    /// Whether anything is buffered of these blocks for the layer itself.
    pub(crate) fn holds_any(&self, layer: &Layer, blocks: Range<BlockIndex>) -> bool {
        let mut holds = false;
        self.for_each_region(layer, &[layer.id], blocks, |shard, first, within| {
            holds |= shard.held_slots(layer.block(first)) & within != 0;
        });
        holds
    }

    fn blocks_where(
        &self,
        layer: &Layer,
        blocks: Range<BlockIndex>,
        wanted: impl Fn(&Fragment) -> bool,
    ) -> Vec<BlockIndex> {
        let mut found = Vec::new();
        self.for_each_region(layer, &with_those_below(layer), blocks, |shard, first, within| {
            let held = slots(self.slots_where(shard, layer, (first, within), &wanted));
            found.extend(held.map(|slot| first.plus(slot.into())));
        });
        found.sort_unstable();
        found
    }

    /// Those blocks of a region, among some, of which a reader of a layer sees anything wanted.
    fn slots_where(
        &self,
        shard: &Shard,
        layer: &Layer,
        (first, within): (BlockIndex, Slots),
        wanted: impl Fn(&Fragment) -> bool,
    ) -> Slots {
        let sectors = self.sectors_per_block();
        let is_seen = |slot: &u32| shard.visible(layer, first.plus((*slot).into())).iter().any(&wanted);
        let set = |found: &mut dyn Iterator<Item = u32>| found.fold(0, |set, slot| set | 1 << slot);
        // Of a pending layer, gaps show what is below.
        if let Some(below) = layer.below() {
            let layers = std::iter::successors(Some(below), |below| below.below());
            let held = layers.fold(shard.held_slots(layer.block(first)), |held, below| {
                held | shard.held_slots(below.block(first))
            });
            return set(&mut slots(held & within).filter(is_seen));
        }
        let key = layer.block(first);
        let runs = shard.runs.get(&key).into_iter().flatten();
        // What holds for one block of a run holds for all.
        let runs = runs.filter(|run| {
            run.slots & within != 0 && wanted(&run.fragment(run.slots.trailing_zeros(), sectors))
        });
        let present = shard.present.get(&key).copied().unwrap_or_default();
        runs.fold(set(&mut slots(present & within).filter(is_seen)), |found, run| found | run.slots & within)
    }

    /// Shows `see` the shard of each region of a range of which anything may be buffered for these layers, the first block
    /// of the region, and which of its blocks are in the range.
    fn for_each_region(
        &self,
        layer: &Layer,
        layers: &[LayerId],
        blocks: Range<BlockIndex>,
        mut see: impl FnMut(&Shard, BlockIndex, Slots),
    ) {
        if blocks.start >= blocks.end {
            return;
        }
        let each = self.region_blocks();
        let regions = blocks.start.0 / each..(blocks.end.0 - 1) / each + 1;
        let mut see_region = |shard: &Shard, region: u64| {
            let first = BlockIndex(region * each);
            let (from, to) = (first.max(blocks.start), first.plus(each).min(blocks.end));
            see(shard, first, slots_from((from.0 - first.0) as u32, (to.0 - from.0) as u32));
        };
        let held_regions = |shard: &Shard| (shard.present.len() + shard.runs.len()) as u64;
        let buffered: u64 = self.shards.iter().map(|shard| held_regions(&shard.lock())).sum();
        if regions.end - regions.start <= buffered {
            for region in regions {
                let shard = self.shard(layer.block(BlockIndex(region * each)));
                if !shard.is_empty() {
                    see_region(&shard, region);
                }
            }
            return;
        }
        for shard in &self.shards {
            let shard = shard.lock();
            let held = shard.present.keys().chain(shard.runs.keys());
            let held = held.filter(|key| layers.contains(&key.layer)).map(|key| key.index.0 / each);
            let held: BTreeSet<u64> = held.filter(|region| regions.contains(region)).collect();
            held.into_iter().for_each(|region| see_region(&shard, region));
        }
    }
}

fn with_those_below(layer: &Layer) -> Vec<LayerId> {
    let below = std::iter::successors(layer.below(), |below| below.below());
    std::iter::once(layer.id).chain(below.map(|below| below.id)).collect()
}

impl Shard {
    /// The blocks of a region that are buffered.
    fn held_slots(&self, first: BlockKey) -> Slots {
        let runs = self.runs.get(&first).into_iter().flatten();
        runs.fold(self.present.get(&first).copied().unwrap_or_default(), |held, run| held | run.slots)
    }

    /// The fragments of a block, as they are now.
    pub(crate) fn fragments(&self, key: BlockKey) -> Option<Cow<'_, [Fragment]>> {
        if let Some(block) = self.blocks.get(&key) {
            return Some(Cow::Borrowed(&block.fragments));
        }
        let (first, slot) = self.geometry.place_of(key);
        let run = self.run(first, slot)?;
        Some(Cow::Owned(vec![run.fragment(slot, self.geometry.sectors_per_block)]))
    }

    /// The fragments of a block that a reader of the layer sees: while it is pending, its parent's show where it has none.
    pub(crate) fn visible(&self, layer: &Layer, index: BlockIndex) -> Cow<'_, [Fragment]> {
        let own = self.fragments(layer.block(index)).unwrap_or(Cow::Borrowed(&[]));
        let Some(mut below) = layer.below().filter(|_| !planted(Bug::ReadOwnOnly)) else {
            return own;
        };
        // Its own fragments, then what each layer below has where there are gaps.
        let mut seen = own.into_owned();
        loop {
            for fragment in self.fragments(below.block(index)).unwrap_or_default().iter() {
                let parts: Vec<_> = gaps(&seen).filter_map(|gap| fragment.part(gap.start, gap.end)).collect();
                seen.extend(parts);
            }
            match below.below() {
                Some(next) => below = next,
                None => return Cow::Owned(seen),
            }
        }
    }

    /// Whether a block is charged already.
    pub(crate) fn is_charged(&self, key: BlockKey) -> bool {
        if let Some(block) = self.blocks.get(&key) {
            return block.charge != Charge::None;
        }
        let (first, slot) = self.geometry.place_of(key);
        self.run(first, slot).is_some_and(|run| run.charge_of(slot) != Charge::None)
    }
}
