//! The write buffer: what is in the journal and not yet, or not yet permanently, in segments.
//!
//! Invariants:
//! 1. A block's fragments never overlap; each is the latest content of its sectors.
//! 2. Order of insertion into a shard = order of sequences within it: both happen under the shard's lock.
//! 3. Only hardened fragments are given to destage, and only what destage was given is evicted; eviction
//!    follows the publication of the map, and counts in [`Shard::evictions`], so that a reader that looked
//!    at the map in between looks again.
//! 4. A record keeps the journal's tail at or below its own sequence while a fragment of it is here, and at
//!    or below what it displaced until it is hardened itself.
//! 5. `ram_bytes` is what is really held: the buffers that the fragments of all shards keep alive, each once, and for each
//!    fragment its place in the index.
//! 6. Every block with data here is charged one pool block of space until it is evicted, unless it only replaces
//!    one that is mapped: then the block table is certain to give back as much as it takes. So is the first block of an
//!    unmap whose map is shared, for the nodes that are copied.
//! 7. Whole blocks of a region that one record unmapped or copied are held together, as a run. A block is in one run, or
//!    has fragments of its own, never both.

mod find;
mod fragment;
pub(crate) mod held;
mod insert;
mod key;
mod leave;
mod pair;
pub(crate) mod received;
mod run;
mod usage;

use crate::{fork::layer::Layer, format::REGION_BYTES};
pub(crate) use fragment::{Content, Fragment, HELD_BYTES};
use hashbrown::HashMap;
pub(crate) use key::BlockKey;
use quoin_base::{BlockIndex, LayerId, SECTOR_BYTES, Sequence};
use quoin_world::{Mutex, MutexGuard};
pub(crate) use received::JournalSource;
use run::{Run, Slots, slots};
use rustc_hash::FxBuildHasher;
use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, VecDeque},
    hash::BuildHasher,
};
use usage::BufferUse;

// What `HELD_BYTES` and `INDEX_BYTES` count with.
const _: () = assert!(size_of::<(BlockKey, BlockBuffer)>() <= 48 && size_of::<(BlockKey, Slots)>() <= 32);

/// Few for a model checker, which would spend its schedules on going through them.
pub(crate) const SHARDS: usize = if cfg!(feature = "shuttle") { 4 } else { 256 };

/// What space a buffered block is reckoned to take beside what it replaces.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Charge {
    /// It holds nothing but zeroes.
    #[default]
    None,
    Block,
    /// Nothing: it is mapped below and nothing that is buffered changed that.
    Waived,
}

/// The buffered content of one block.
#[derive(Default)]
struct BlockBuffer {
    fragments: Vec<Fragment>,
    charge: Charge,
}

/// What waits for destage.
#[derive(Clone, Copy)]
struct Queued {
    /// When it came in.
    since: Sequence,
    /// The block, or any of the region that the run is in.
    key: BlockKey,
    is_run: bool,
}

/// How long blocks and regions are.
#[derive(Clone, Copy, Default)]
struct Geometry {
    region_blocks: u64,
    sectors_per_block: u16,
}

impl Geometry {
    /// The first block of the region in which a block is, and its place there.
    fn place_of(self, key: BlockKey) -> (BlockKey, u32) {
        let slot = key.index.0 % self.region_blocks;
        (BlockKey { index: BlockIndex(key.index.0 - slot), ..key }, slot as u32)
    }
}

#[derive(Default)]
pub(crate) struct Shard {
    geometry: Geometry,
    blocks: HashMap<BlockKey, BlockBuffer, FxBuildHasher>,
    /// Which blocks of a region are among these, by the key of its first.
    present: HashMap<BlockKey, Slots, FxBuildHasher>,
    /// The runs of a region, by the same key. Never empty.
    runs: HashMap<BlockKey, Vec<Run>, FxBuildHasher>,
    /// Blocks and runs in the order they came in, for destage to take the oldest first.
    queue: VecDeque<Queued>,
    /// How many blocks of each layer there are, those in runs included.
    held: HashMap<LayerId, usize, FxBuildHasher>,
    /// How often blocks were evicted.
    pub evictions: u64,
    /// No fragment keeps the journal's tail below this. It may be too low: it was right when last looked at, and insertions
    /// lower it. `None` if nothing is here.
    lowest: Option<Sequence>,
    /// Of the record that was inserted last.
    newest: Sequence,
}

pub(crate) struct Buffer {
    shards: Vec<Mutex<Shard>>,
    pub(crate) usage: BufferUse,
    pub(crate) block_bytes: u64,
    geometry: Geometry,
}

/// What a block's buffered content was when destage took it.
pub(crate) struct TakenBlock {
    pub key: BlockKey,
    /// Those that were hardened.
    pub fragments: Vec<Fragment>,
    /// It was not charged: it only replaces what is mapped.
    pub is_waived: bool,
}

impl TakenBlock {
    /// The newest sequence in it.
    pub(crate) fn newest(&self) -> Sequence {
        self.fragments.iter().map(|fragment| fragment.sequence).max().unwrap_or_default()
    }
}

/// A range of one block to insert.
pub(crate) struct Piece {
    pub key: BlockKey,
    pub start: u16,
    pub sectors: u16,
    pub content: Content,
}

impl Buffer {
    pub(crate) fn new(block_bytes: u64) -> Self {
        assert!(
            REGION_BYTES / block_bytes <= Slots::BITS.into(),
            "a region of blocks of {block_bytes} bytes has slots"
        );
        let geometry = Geometry {
            region_blocks: REGION_BYTES / block_bytes,
            sectors_per_block: (block_bytes / SECTOR_BYTES) as u16,
        };
        let shard = |_| Mutex::new(Shard { geometry, ..Shard::default() });
        Self { shards: (0..SHARDS).map(shard).collect(), usage: BufferUse::default(), block_bytes, geometry }
    }

    pub(crate) fn sectors_per_block(&self) -> u16 {
        self.geometry.sectors_per_block
    }

    fn shard_index(&self, key: BlockKey) -> usize {
        let region = key.index.0 / self.region_blocks();
        FxBuildHasher.hash_one((key.family, region)) as usize % SHARDS
    }

    fn region_blocks(&self) -> u64 {
        self.geometry.region_blocks
    }

    fn place_of(&self, key: BlockKey) -> (BlockKey, u32) {
        self.geometry.place_of(key)
    }

    /// All shards, locked in their order.
    pub(crate) fn lock_all(&self) -> Vec<MutexGuard<'_, Shard>> {
        self.shards.iter().map(|shard| shard.lock()).collect()
    }

    /// Those of these layers of which anything is buffered.
    pub(crate) fn held_of(&self, layers: &BTreeSet<LayerId>) -> BTreeSet<LayerId> {
        let mut held = BTreeSet::new();
        for shard in &self.shards {
            held.extend(shard.lock().held.keys().filter(|id| layers.contains(id)));
        }
        held
    }

    /// Whether all that is buffered of these layers is hardened.
    pub(crate) fn is_hardened(&self, layers: &BTreeSet<LayerId>) -> bool {
        self.shards.iter().all(|shard| {
            let shard = shard.lock();
            let mut blocks = shard.blocks.iter().filter(|(key, _)| layers.contains(&key.layer));
            let mut runs = shard.runs.iter().filter(|(key, _)| layers.contains(&key.layer));
            blocks.all(|(_, block)| block.fragments.iter().all(|fragment| fragment.batch.is_hardened()))
                && runs.all(|(_, runs)| runs.iter().all(|run| run.batch.is_hardened()))
        })
    }

    /// The shard of a block; all blocks of a region have the same.
    pub(crate) fn shard(&self, key: BlockKey) -> MutexGuard<'_, Shard> {
        self.shards[self.shard_index(key)].lock()
    }

    /// Waits until whoever holds a shard has let go of it.
    pub(crate) fn pass(&self, shard: usize) {
        drop(self.shards[shard].lock());
    }

    /// Whether the whole block is buffered as zeroes.
    pub(crate) fn is_zeroed(&self, layer: &Layer, index: BlockIndex) -> bool {
        let shard = self.shard(layer.block(index));
        let fragments = shard.visible(layer, index);
        let zeroed = |fragment: &&Fragment| matches!(fragment.content, Content::Zero);
        fragments.iter().filter(zeroed).map(|fragment| fragment.sectors).sum::<u16>()
            == self.sectors_per_block()
    }

    /// All blocks, in no order.
    pub(crate) fn keys(&self) -> Vec<BlockKey> {
        let keys = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            let runs =
                shard.runs.iter().flat_map(|(first, runs)| runs.iter().flat_map(|run| run.keys(*first)));
            shard.blocks.keys().copied().chain(runs).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(keys).collect()
    }

    /// Whether any block is charged for which `is_stuck` does not hold. It is told the newest sequence in the block.
    pub(crate) fn any_charged(&self, is_stuck: impl Fn(BlockKey, Sequence) -> bool) -> bool {
        let newest =
            |block: &BlockBuffer| block.fragments.iter().map(|e| e.sequence).max().unwrap_or_default();
        self.shards.iter().any(|shard| {
            let shard = shard.lock();
            let mut charged = shard.blocks.iter().filter(|(_, block)| block.charge == Charge::Block);
            let may_come = |first: &BlockKey, run: &Run| {
                slots(run.charged).any(|slot| !is_stuck(first.plus(slot), run.sequence))
            };
            charged.any(|(key, block)| !is_stuck(*key, newest(block)))
                || shard.runs.iter().any(|(first, runs)| runs.iter().any(|run| may_come(first, run)))
        })
    }

    /// The lowest sequence that replay would need, given that `next` is the next one to be taken.
    ///
    /// `next` is read before the shards are looked at: what is inserted meanwhile is above it, and what it displaces was
    /// looked at. Only shards whose bound is lower than what is found are gone through.
    pub(crate) fn tail(&self, next: Sequence) -> Sequence {
        let bound =
            |(i, shard): (usize, &Mutex<Shard>)| shard.lock().lowest.map(|lowest| Reverse((lowest, i)));
        let mut bounds: BinaryHeap<_> = self.shards.iter().enumerate().filter_map(bound).collect();
        while let Some(Reverse((lowest, i))) = bounds.pop() {
            if lowest >= next {
                break;
            }
            let mut shard = self.shards[i].lock();
            shard.lowest = shard.pinned();
            match shard.lowest {
                Some(exact) if exact <= lowest => return exact,
                Some(exact) => bounds.push(Reverse((exact, i))),
                None => {}
            }
        }
        next
    }

    /// The sequence at which the oldest block came in, about.
    pub(crate) fn oldest(&self) -> Option<Sequence> {
        self.shards.iter().filter_map(|s| s.lock().queue.front().map(|queued| queued.since)).min()
    }
}

impl Shard {
    /// The lowest sequence to which a fragment keeps the journal's tail.
    fn pinned(&self) -> Option<Sequence> {
        let blocks = self.blocks.values().flat_map(|block| &block.fragments).map(Fragment::pinned);
        blocks.chain(self.runs.values().flatten().map(Run::pinned)).min()
    }

    /// True when nothing is buffered here.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.runs.is_empty()
    }
}

#[cfg(test)]
mod tests;
