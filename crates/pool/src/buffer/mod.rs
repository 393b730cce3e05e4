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

pub(crate) mod held;
mod key;
mod pair;
pub(crate) mod received;
mod usage;

use crate::{
    bugs::{Bug, planted},
    fork::layer::Layer,
    format::{CopySource, REGION_BYTES},
    journal::Batch,
    segment::placed_block::PlacedBlock,
};
use hashbrown::HashMap;
pub(crate) use key::BlockKey;
use quoin_base::{BlockIndex, LayerId, SECTOR_BYTES, Sequence};
use quoin_world::{Mutex, MutexGuard, atomic::Ordering};
pub(crate) use received::JournalSource;
use received::Received;
use rustc_hash::FxBuildHasher;
use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, VecDeque},
    hash::BuildHasher,
    ops::Range,
    sync::Arc,
};
use usage::BufferUse;

/// RAM that a fragment is counted with beside its data: itself, its block's places in the map and in the queue, each as
/// sparse as it may get, and what the allocator adds.
pub(crate) const HELD_BYTES: u64 = 256;
const _: () = assert!(size_of::<Fragment>() <= 112 && size_of::<(BlockKey, BlockBuffer)>() <= 48);
/// Few for a model checker, which would spend its schedules on going through them.
pub(crate) const SHARDS: usize = if cfg!(feature = "shuttle") { 4 } else { 256 };
/// How often all shards are gone through for one batch of destage.
const TAKE_ROUNDS: usize = 5;
/// Where a fragment's content is.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Zero,
    Ram(Received),
    Journal(JournalSource),
    /// In a row, as a whole block of which the fragment is the same sectors.
    Placed(Arc<PlacedBlock>),
    /// What a map leads to at this block, of which the fragment is the same sectors.
    Shared(CopySource),
}

/// Sectors of one block that were last written by one record.
#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    /// First sector within the block, and how many.
    pub start: u16,
    pub sectors: u16,
    pub sequence: Sequence,
    /// The tail must not pass this while the fragment is not hardened.
    pin: Sequence,
    pub batch: Arc<Batch>,
    pub content: Content,
}

impl Fragment {
    pub(crate) fn end(&self) -> u16 {
        self.start + self.sectors
    }

    fn pinned(&self) -> Sequence {
        if self.batch.is_hardened() { self.sequence } else { self.pin }
    }

    /// The part of it that lies in `start..end`.
    fn part(&self, start: u16, end: u16) -> Option<Fragment> {
        let (from, to) = (self.start.max(start), self.end().min(end));
        if from >= to {
            return None;
        }
        Some(Fragment { start: from, sectors: to - from, ..self.clone() })
    }
}

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

#[derive(Default)]
pub(crate) struct Shard {
    blocks: HashMap<BlockKey, BlockBuffer, FxBuildHasher>,
    /// Blocks in the order they came in, with the sequence then; for destage to take the oldest first.
    queue: VecDeque<(Sequence, BlockKey)>,
    /// How many blocks of each layer there are.
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
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect();
        Self { shards, usage: BufferUse::default(), block_bytes }
    }

    pub(crate) fn sectors_per_block(&self) -> u16 {
        (self.block_bytes / SECTOR_BYTES) as u16
    }

    fn shard_index(&self, key: BlockKey) -> usize {
        let region = key.index.0 / (REGION_BYTES / self.block_bytes);
        FxBuildHasher.hash_one((key.family, region)) as usize % SHARDS
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
            blocks.all(|(_, block)| block.fragments.iter().all(|fragment| fragment.batch.is_hardened()))
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

    /// The blocks of a volume that have anything but zeroes buffered, ascending.
    pub(crate) fn blocks_with_data(&self, layer: &Layer, blocks: Range<BlockIndex>) -> Vec<BlockIndex> {
        self.blocks_where(layer, blocks, |fragment| !matches!(fragment.content, Content::Zero))
    }

    /// The blocks of a volume that would read as anything but zeroes after a crash, as far as the buffer decides,
    /// ascending: zeroes that are not hardened do not count yet.
    pub(crate) fn blocks_to_unmap(&self, layer: &Layer, blocks: Range<BlockIndex>) -> Vec<BlockIndex> {
        self.blocks_where(layer, blocks, |e| !matches!(e.content, Content::Zero) || !e.batch.is_hardened())
    }

    /// Blocks of which something is buffered whose content lies on drives: placed there, or shared with what a map leads to.
    pub(crate) fn blocks_on_drives(&self, layer: &Layer, blocks: Range<BlockIndex>) -> Vec<BlockIndex> {
        self.blocks_where(layer, blocks, |e| matches!(e.content, Content::Placed(_) | Content::Shared(_)))
    }

    fn blocks_where(
        &self,
        layer: &Layer,
        blocks: Range<BlockIndex>,
        wanted: impl Fn(&Fragment) -> bool,
    ) -> Vec<BlockIndex> {
        let mut layers = vec![layer.id];
        layers.extend(std::iter::successors(layer.below(), |below| below.below()).map(|below| below.id));
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let held = shard.blocks.keys().filter(|k| blocks.contains(&k.index) && layers.contains(&k.layer));
            let held = held.filter(|key| shard.visible(layer, key.index).iter().any(&wanted));
            found.extend(held.map(|key| key.index));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether the whole block is buffered as zeroes.
    pub(crate) fn is_zeroed(&self, layer: &Layer, index: BlockIndex) -> bool {
        let shard = self.shard(layer.block(index));
        let fragments = shard.visible(layer, index);
        let zeroed = |fragment: &&Fragment| matches!(fragment.content, Content::Zero);
        fragments.iter().filter(zeroed).map(|fragment| fragment.sectors).sum::<u16>()
            == self.sectors_per_block()
    }

    /// Inserts the pieces of one record, all of one region, whose shard is locked.
    pub(crate) fn insert(
        &self,
        shard: &mut Shard,
        sequence: Sequence,
        batch: &Arc<Batch>,
        pieces: impl IntoIterator<Item = Piece>,
    ) {
        assert!(sequence >= shard.newest, "{sequence} comes into a shard after {}", shard.newest);
        shard.newest = sequence;
        for piece in pieces {
            let is_within = piece.sectors > 0 && piece.start + piece.sectors <= self.sectors_per_block();
            assert!(is_within, "{}+{} is no part of {:?}", piece.start, piece.sectors, piece.key);
            let data = !matches!(piece.content, Content::Zero);
            let mut bytes = hold(&piece.content) as i64;
            let block = shard.blocks.entry(piece.key).or_insert_with(|| {
                shard.queue.push_back((sequence, piece.key));
                *shard.held.entry(piece.key.layer).or_default() += 1;
                BlockBuffer::default()
            });
            if data && block.charge == Charge::None {
                block.charge = Charge::Block;
                self.usage.charged_blocks.fetch_add(1, Ordering::Relaxed);
            }
            let mut new = Fragment {
                start: piece.start,
                sectors: piece.sectors,
                sequence,
                pin: sequence,
                batch: batch.clone(),
                content: piece.content,
            };
            // What the new fragment covers of older ones goes; what sticks out on either side stays.
            let (start, end) = (new.start, new.end());
            let full = self.sectors_per_block();
            let mut kept = Vec::with_capacity(block.fragments.len() + 1);
            for old in block.fragments.drain(..) {
                if old.start >= end || old.end() <= start {
                    kept.push(old);
                    continue;
                }
                // Until the new one is hardened a crash brings the old one back: replay must find it.
                if !planted(Bug::TailPastDisplaced) {
                    new.pin = new.pin.min(old.pinned());
                }
                for part in [old.part(0, start), old.part(end, full)].into_iter().flatten() {
                    bytes += hold(&part.content) as i64;
                    kept.push(part);
                }
                bytes -= release(&old.content) as i64;
            }
            shard.lowest = Some(shard.lowest.map_or(new.pin, |lowest| lowest.min(new.pin)));
            kept.push(new);
            block.fragments = kept;
            self.usage.ram_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Charges a block just inserted, though it may hold nothing but zeroes.
    pub(crate) fn charge(&self, shard: &mut Shard, key: BlockKey) {
        if let Some(block) = shard.blocks.get_mut(&key).filter(|block| block.charge == Charge::None) {
            block.charge = Charge::Block;
            self.usage.charged_blocks.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes back what was charged for blocks just inserted, which only replace what is mapped.
    pub(crate) fn waive(&self, shard: &mut Shard, keys: &[BlockKey]) {
        for key in keys {
            if let Some(block) = shard.blocks.get_mut(key).filter(|b| b.charge == Charge::Block) {
                block.charge = Charge::Waived;
                self.usage.waived_blocks.fetch_add(1, Ordering::Relaxed);
                self.usage.charged_blocks.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Charges a block that was waived: what it leads to from now on stays when it is overwritten.
    pub(crate) fn charge_waived(&self, key: BlockKey) {
        let mut shard = self.shard(key);
        if let Some(block) = shard.blocks.get_mut(&key) {
            self.end_waiver(block);
        }
    }

    fn end_waiver(&self, block: &mut BlockBuffer) {
        if block.charge == Charge::Waived {
            block.charge = Charge::Block;
            self.usage.charged_blocks.fetch_add(1, Ordering::Relaxed);
            self.usage.waived_blocks.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// About `count` of the oldest blocks, as far as they are hardened, none that came in from `before` on, and none of
    /// the layers in `but`. The shard with the oldest block gives a region's worth, then the next: neighbours that came
    /// in together leave together. A block that was wholly overwritten since it came in goes back to the end of the queue.
    pub(crate) fn take_oldest(
        &self,
        count: usize,
        before: Sequence,
        but: &BTreeSet<LayerId>,
    ) -> Vec<TakenBlock> {
        let mut taken = Vec::new();
        let mut share = (REGION_BYTES / self.block_bytes) as usize;
        let since = |shard: &Mutex<Shard>| shard.lock().queue.front().map(|(since, _)| *since);
        // A load on few regions is in few shards: those that have more give more.
        for _ in 0..TAKE_ROUNDS {
            let had = taken.len();
            let shards = self.shards.iter().filter_map(|shard| Some((since(shard)?, shard)));
            // Where some are passed over, queues are not in order.
            let mut shards: Vec<_> = shards.filter(|(since, _)| *since < before || !but.is_empty()).collect();
            shards.sort_by_key(|(since, _)| *since);
            for (_, shard) in shards {
                let share = share.min(count.saturating_sub(taken.len()));
                shard.lock().take(share, before, but, &mut taken);
            }
            if taken.len() == had || taken.len() >= count {
                break;
            }
            share *= 4;
        }
        taken.sort_unstable_by_key(|t| t.key);
        taken
    }

    /// Puts back in the queue what was taken and cannot be destaged now, as if it had come in with the record of `since`:
    /// what came in before that has its turn first.
    pub(crate) fn put_back(&self, taken: &TakenBlock, since: Sequence) {
        let mut shard = self.shard(taken.key);
        if shard.blocks.contains_key(&taken.key) {
            shard.queue.push_back((since, taken.key));
        }
    }

    /// All blocks, in no order.
    pub(crate) fn keys(&self) -> Vec<BlockKey> {
        self.shards.iter().flat_map(|shard| shard.lock().blocks.keys().copied().collect::<Vec<_>>()).collect()
    }

    /// Whether any block is charged for which `is_stuck` does not hold. It is told the newest sequence in the block.
    pub(crate) fn any_charged(&self, is_stuck: impl Fn(BlockKey, Sequence) -> bool) -> bool {
        let newest =
            |block: &BlockBuffer| block.fragments.iter().map(|e| e.sequence).max().unwrap_or_default();
        self.shards.iter().any(|shard| {
            let shard = shard.lock();
            let mut charged = shard.blocks.iter().filter(|(_, block)| block.charge == Charge::Block);
            charged.any(|(key, block)| !is_stuck(*key, newest(block)))
        })
    }

    /// Removes what was taken; what came since stays, and stays queued. In the order of the blocks, so that neighbours need
    /// one lock.
    pub(crate) fn evict<'a>(&self, taken: impl IntoIterator<Item = &'a TakenBlock>) {
        let mut locked: Option<(usize, MutexGuard<'_, Shard>)> = None;
        for taken in taken {
            let index = self.shard_index(taken.key);
            let guard = match locked.take() {
                Some((of, guard)) if of == index => guard,
                other => {
                    drop(other);
                    self.shards[index].lock()
                }
            };
            let (_, shard) = locked.insert((index, guard));
            self.evict_block(shard, taken);
        }
    }

    fn evict_block(&self, shard: &mut Shard, taken: &TakenBlock) {
        let Some(block) = shard.blocks.get_mut(&taken.key) else { return };
        let mut bytes = 0;
        block.fragments.retain(|e| {
            let keep = !taken.fragments.iter().any(|t| t.sequence == e.sequence) && !planted(Bug::EvictNewer);
            if !keep {
                assert!(e.batch.is_hardened(), "{} leaves the buffer before it is hardened", e.sequence);
                bytes += release(&e.content);
            }
            keep
        });
        let before = self.usage.ram_bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{bytes} bytes leave the buffer, which holds {before}");
        shard.evictions += 1;
        match block.fragments.iter().map(|e| e.sequence).min() {
            Some(oldest) => {
                // What was below may have changed with what was destaged.
                if !planted(Bug::KeepWaived) {
                    self.end_waiver(block);
                }
                shard.queue.push_back((oldest, taken.key));
            }
            None => {
                match block.charge {
                    Charge::Block => {
                        let before = self.usage.charged_blocks.fetch_sub(1, Ordering::Release);
                        assert!(before > 0, "{:?} was charged", taken.key);
                    }
                    Charge::Waived => drop(self.usage.waived_blocks.fetch_sub(1, Ordering::Relaxed)),
                    Charge::None => {}
                }
                shard.blocks.remove(&taken.key);
                if let hashbrown::hash_map::Entry::Occupied(mut held) = shard.held.entry(taken.key.layer) {
                    *held.get_mut() -= 1;
                    if *held.get() == 0 {
                        held.remove();
                    }
                }
            }
        }
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
        self.shards.iter().filter_map(|s| s.lock().queue.front().map(|(s, _)| *s)).min()
    }
}

/// The sectors of a block that these fragments leave open.
fn gaps(fragments: &[Fragment]) -> impl Iterator<Item = Range<u16>> {
    let mut taken: Vec<Range<u16>> = fragments.iter().map(|e| e.start..e.end()).collect();
    taken.push(u16::MAX..u16::MAX);
    taken.sort_unstable_by_key(|range| range.start);
    let mut at = 0;
    let gaps = taken.into_iter().map(move |range| std::mem::replace(&mut at, range.end)..range.start);
    gaps.filter(|gap| !gap.is_empty())
}

/// RAM that is held more with a fragment of this content.
fn hold(content: &Content) -> u64 {
    match content {
        Content::Ram(received) => HELD_BYTES + received.hold(),
        Content::Zero | Content::Journal(_) | Content::Placed(_) | Content::Shared(_) => HELD_BYTES,
    }
}

/// RAM that is held less without it.
fn release(content: &Content) -> u64 {
    match content {
        Content::Ram(received) => HELD_BYTES + received.release(),
        Content::Zero | Content::Journal(_) | Content::Placed(_) | Content::Shared(_) => HELD_BYTES,
    }
}

impl Shard {
    fn take(&mut self, count: usize, before: Sequence, but: &BTreeSet<LayerId>, taken: &mut Vec<TakenBlock>) {
        let mut want = count;
        for _ in 0..self.queue.len() {
            let is_late = self.queue.front().is_none_or(|(s, _)| *s >= before);
            if want == 0 || is_late && but.is_empty() {
                break;
            }
            let Some((since, key)) = self.queue.pop_front() else { break };
            let Some(block) = self.blocks.get(&key) else { continue };
            // It goes to the end of the queue with its age, so that those behind it are looked at.
            if is_late || but.contains(&key.layer) {
                self.queue.push_back((since, key));
                continue;
            }
            // A block that was wholly overwritten since it came in is as old as its oldest fragment.
            let oldest = block.fragments.iter().map(|e| e.sequence).min().unwrap_or_default();
            let fragments: Vec<_> =
                block.fragments.iter().filter(|e| e.batch.is_hardened()).cloned().collect();
            if fragments.is_empty() || (oldest > since && oldest >= before) {
                self.queue.push_back((oldest, key));
                continue;
            }
            taken.push(TakenBlock { key, fragments, is_waived: block.charge == Charge::Waived });
            want -= 1;
        }
    }

    /// The lowest sequence to which a fragment keeps the journal's tail.
    fn pinned(&self) -> Option<Sequence> {
        self.blocks.values().flat_map(|block| &block.fragments).map(Fragment::pinned).min()
    }

    /// True when nothing is buffered here.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The fragments of a block, as they are now.
    pub(crate) fn fragments(&self, key: BlockKey) -> Option<&[Fragment]> {
        self.blocks.get(&key).map(|b| b.fragments.as_slice())
    }

    /// The fragments of a block that a reader of the layer sees: while it is pending, its parent's show where it has none.
    pub(crate) fn visible(&self, layer: &Layer, index: BlockIndex) -> Cow<'_, [Fragment]> {
        let own = self.fragments(layer.block(index)).unwrap_or_default();
        let Some(mut below) = layer.below().filter(|_| !planted(Bug::ReadOwnOnly)) else {
            return Cow::Borrowed(own);
        };
        // Its own fragments, then what each layer below has where there are gaps.
        let mut seen = own.to_vec();
        loop {
            for fragment in self.fragments(below.block(index)).unwrap_or_default() {
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
        self.blocks.get(&key).is_some_and(|block| block.charge != Charge::None)
    }
}

#[cfg(test)]
mod tests;
