//! Runs: whole blocks of one region that one record unmapped, or copied, held together.
//!
//! Long unmaps and copies are of few records and of very many blocks. What a run takes does not depend on how many of these
//! it holds, and neither does the time to insert it.
//!
//! Invariants:
//! 1. No two runs hold the same block.
//! 2. A run is in the queue, or destage has taken all of it. What is inserted over blocks that destage has taken is held
//!    by block, so that no block is taken twice at a time.
//! 3. A block is held by itself again as soon as a part of it is written, or as it is put back.

use super::{
    BlockBuffer, BlockKey, Buffer, Charge, Content, Fragment, HELD_BYTES, Queued, Shard,
    fragment::INDEX_BYTES,
};
use crate::{format::CopySource, journal::Batch};
use hashbrown::hash_map::Entry;
use quoin_base::Sequence;
use quoin_world::atomic::Ordering;
use std::sync::Arc;

/// Blocks of a region, a bit for each.
pub(super) type Slots = u128;

/// RAM that a run is counted with: itself, its places among the runs and in the queue, each as sparse as it may get, and
/// what the allocator adds.
pub(super) const RUN_BYTES: u64 = 384;
const _: () = assert!(size_of::<Run>() <= 128);

/// The blocks in such a set, ascending.
pub(super) fn slots(mut set: Slots) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let slot = (set != 0).then(|| set.trailing_zeros())?;
        set &= set - 1;
        Some(slot)
    })
}

/// `count` blocks from one on.
pub(super) fn slots_from(first: u32, count: u32) -> Slots {
    assert!(count > 0 && first + count <= Slots::BITS, "{count} blocks from {first} on are in a region");
    (Slots::MAX >> (Slots::BITS - count)) << first
}

/// Blocks that are held together.
pub(super) struct Run {
    pub(super) sequence: Sequence,
    /// The tail must not pass this while it is not hardened.
    pub(super) pin: Sequence,
    pub(super) batch: Arc<Batch>,
    /// What the first block of the region would share, if it were among those that the record copied; `None`: they read
    /// as zeroes.
    pub(super) source: Option<Source>,
    /// Those that it holds.
    pub(super) slots: Slots,
    pub(super) charged: Slots,
    pub(super) waived: Slots,
    pub(super) is_taken: bool,
}

/// Where blocks were copied from.
#[derive(Clone, Copy)]
pub(super) struct Source {
    /// What the block in this slot shares.
    pub(super) at: CopySource,
    pub(super) slot: u32,
}

impl Source {
    fn of(&self, slot: u32) -> CopySource {
        self.at.plus((slot - self.slot).into())
    }
}

impl Run {
    pub(super) fn pinned(&self) -> Sequence {
        if self.batch.is_hardened() { self.sequence } else { self.pin }
    }

    pub(super) fn keys(&self, first: BlockKey) -> impl Iterator<Item = BlockKey> + use<> {
        slots(self.slots).map(move |slot| first.plus(slot))
    }

    pub(super) fn has(&self, slot: u32) -> bool {
        self.slots >> slot & 1 == 1
    }

    /// One of its blocks, of so many sectors, as a fragment.
    pub(super) fn fragment(&self, slot: u32, sectors: u16) -> Fragment {
        let content = self.source.map_or(Content::Zero, |source| Content::Shared(source.of(slot)));
        let Run { sequence, pin, ref batch, .. } = *self;
        Fragment { start: 0, sectors, sequence, pin, batch: batch.clone(), content }
    }

    pub(super) fn charge_of(&self, slot: u32) -> Charge {
        match () {
            () if self.charged >> slot & 1 == 1 => Charge::Block,
            () if self.waived >> slot & 1 == 1 => Charge::Waived,
            () => Charge::None,
        }
    }

    /// Takes some blocks out of it, with what is known of them.
    pub(super) fn split(&mut self, part: Slots) -> Run {
        let Run { sequence, pin, ref batch, source, is_taken, .. } = *self;
        let (slots, charged, waived) = (self.slots & part, self.charged & part, self.waived & part);
        self.slots &= !part;
        self.charged &= !part;
        self.waived &= !part;
        Run { sequence, pin, batch: batch.clone(), source, slots, charged, waived, is_taken }
    }
}

impl Shard {
    /// The run that holds a block.
    pub(super) fn run(&self, first: BlockKey, slot: u32) -> Option<&Run> {
        // As a rule there are none.
        if self.runs.is_empty() {
            return None;
        }
        self.runs.get(&first)?.iter().find(|run| run.has(slot))
    }

    pub(super) fn run_mut(&mut self, first: BlockKey, slot: u32) -> Option<&mut Run> {
        self.runs.get_mut(&first)?.iter_mut().find(|run| run.has(slot))
    }

    /// Puts something in the queue that came in before what is there.
    pub(super) fn queue_in_order(&mut self, queued: Queued) {
        let at = self.queue.partition_point(|other| other.since <= queued.since);
        self.queue.insert(at, queued);
    }
}

impl Buffer {
    /// Holds a block by itself that a run holds, if one does.
    pub(super) fn take_out(&self, shard: &mut Shard, key: BlockKey) {
        if shard.runs.is_empty() {
            return;
        }
        let (first, slot) = self.place_of(key);
        let sectors = self.sectors_per_block();
        let Some(run) = shard.run_mut(first, slot) else { return };
        let (fragment, charge, is_taken) = (run.fragment(slot, sectors), run.charge_of(slot), run.is_taken);
        drop(run.split(1 << slot));
        self.usage.run_blocks.fetch_sub(1, Ordering::Relaxed);
        let since = fragment.sequence;
        shard.blocks.insert(key, BlockBuffer { fragments: vec![fragment], charge });
        self.note_present(shard, first, 1 << slot);
        // What destage has taken comes into the queue again when it is evicted or put back.
        if !is_taken {
            shard.queue_in_order(Queued { since, key, is_run: false });
        }
        self.usage.ram_bytes.fetch_add(HELD_BYTES, Ordering::Relaxed);
        self.drop_empty_runs(shard, first);
    }

    /// Lets go of the runs of a region that hold nothing any more.
    pub(super) fn drop_empty_runs(&self, shard: &mut Shard, first: BlockKey) {
        let Some(runs) = shard.runs.get_mut(&first) else { return };
        let before = runs.len();
        runs.retain(|run| run.slots != 0);
        let gone = (before - runs.len()) as u64;
        if runs.is_empty() {
            shard.runs.remove(&first);
        }
        let held = self.usage.ram_bytes.fetch_sub(gone * RUN_BYTES, Ordering::Relaxed);
        assert!(held >= gone * RUN_BYTES, "{gone} runs leave the buffer, which holds {held} bytes");
    }

    /// Notes that blocks of a region are held by themselves.
    pub(super) fn note_present(&self, shard: &mut Shard, first: BlockKey, blocks: Slots) {
        let present = shard.present.entry(first).or_insert_with(|| {
            self.usage.ram_bytes.fetch_add(INDEX_BYTES, Ordering::Relaxed);
            0
        });
        *present |= blocks;
    }

    /// Notes that a block of a region is gone.
    pub(super) fn note_gone(&self, shard: &mut Shard, first: BlockKey, slot: u32) {
        if let Entry::Occupied(mut present) = shard.present.entry(first) {
            *present.get_mut() &= !(1 << slot);
            if *present.get() == 0 {
                present.remove();
                self.usage.ram_bytes.fetch_sub(INDEX_BYTES, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn add_run(&self, shard: &mut Shard, first: BlockKey, run: Run) {
        let runs = shard.runs.entry(first).or_default();
        runs.reserve_exact(1);
        runs.push(run);
        self.usage.ram_bytes.fetch_add(RUN_BYTES, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
