//! What comes into the buffer, and what it is charged.

use super::{
    BlockBuffer, BlockKey, Buffer, Charge, Content, Fragment, Piece, Queued, Shard,
    fragment::{hold, release},
    run::{Run, Source, slots, slots_from},
};
use crate::{
    bugs::{Bug, planted},
    format::CopySource,
    journal::Batch,
};
use quoin_base::Sequence;
use quoin_world::atomic::Ordering;
use std::sync::Arc;

/// Fewer blocks are held one by one.
const LEAST_RUN: u32 = 2;

/// Takes out what a new fragment covers of older ones. What sticks out on either side stays. Returns what stays, and how many
/// bytes more it holds.
fn uncovered(older: &mut Vec<Fragment>, new: &mut Fragment, block_sectors: u16) -> (Vec<Fragment>, i64) {
    let (start, end) = (new.start, new.end());
    let (mut kept, mut bytes) = (Vec::with_capacity(older.len() + 1), 0);
    for old in older.drain(..) {
        if old.start >= end || old.end() <= start {
            kept.push(old);
            continue;
        }
        // Until the new one is hardened a crash brings the old one back: replay must find it.
        if !planted(Bug::TailPastDisplaced) {
            new.pin = new.pin.min(old.pinned());
        }
        for part in [old.part(0, start), old.part(end, block_sectors)].into_iter().flatten() {
            bytes += hold(&part.content) as i64;
            kept.push(part);
        }
        bytes -= release(&old.content) as i64;
    }
    (kept, bytes)
}

impl Buffer {
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
        let mut new_slots = None;
        for piece in pieces {
            let is_within = piece.sectors > 0 && piece.start + piece.sectors <= self.sectors_per_block();
            assert!(is_within, "{}+{} is no part of {:?}", piece.start, piece.sectors, piece.key);
            let data = !matches!(piece.content, Content::Zero);
            self.take_out(shard, piece.key);
            let mut bytes = hold(&piece.content) as i64;
            let block = shard.blocks.entry(piece.key).or_insert_with(|| {
                shard.queue.push_back(Queued { since: sequence, key: piece.key, is_run: false });
                *shard.held.entry(piece.key.layer).or_default() += 1;
                let (first, slot) = self.place_of(piece.key);
                new_slots.get_or_insert((first, 0)).1 |= 1 << slot;
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
            let (mut kept, grown) = uncovered(&mut block.fragments, &mut new, self.sectors_per_block());
            bytes += grown;
            shard.lowest = Some(shard.lowest.map_or(new.pin, |lowest| lowest.min(new.pin)));
            kept.push(new);
            block.fragments = kept;
            self.usage.ram_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        if let Some((first, new)) = new_slots {
            self.note_present(shard, first, new);
        }
    }

    /// Inserts whole blocks of one region, whose shard is locked: zeroes, or what a map leads to from a block on.
    pub(crate) fn insert_blocks(
        &self,
        shard: &mut Shard,
        sequence: Sequence,
        batch: &Arc<Batch>,
        (from, count): (BlockKey, u64),
        source: Option<CopySource>,
    ) {
        let (first, slot) = self.place_of(from);
        let all = slots_from(slot, count as u32);
        // Blocks that are held by themselves stay so, and so do those that destage has taken.
        let taken = shard.runs.get(&first).into_iter().flatten().filter(|run| run.is_taken);
        let mut single = taken
            .fold(shard.present.get(&first).copied().unwrap_or_default(), |set, run| set | run.slots)
            & all;
        if (all & !single).count_ones() < LEAST_RUN {
            single = all;
        }
        let source = source.map(|at| Source { at, slot });
        let mut run = Run {
            sequence,
            pin: sequence,
            batch: batch.clone(),
            source,
            slots: all,
            charged: 0,
            waived: 0,
            is_taken: false,
        };
        let sectors = self.sectors_per_block();
        let pieces = slots(single).map(|slot| {
            let Fragment { start, sectors, content, .. } = run.fragment(slot, sectors);
            Piece { key: first.plus(slot), start, sectors, content }
        });
        self.insert(shard, sequence, batch, pieces);
        run.slots &= !single;
        if run.slots != 0 {
            self.insert_run(shard, first, run);
        }
    }

    fn insert_run(&self, shard: &mut Shard, first: BlockKey, mut run: Run) {
        let mut displaced = 0;
        for old in shard.runs.get_mut(&first).into_iter().flatten().filter(|old| old.slots & run.slots != 0) {
            assert!(!old.is_taken, "what destage has taken stays in its run");
            let part = old.split(run.slots);
            // Until the new one is hardened a crash brings the old one back: replay must find it.
            if !planted(Bug::TailPastDisplaced) {
                run.pin = run.pin.min(part.pinned());
            }
            displaced |= part.slots;
            run.charged |= part.charged;
            run.waived |= part.waived;
        }
        self.drop_empty_runs(shard, first);
        if run.source.is_some() {
            let new = run.slots & !run.charged & !run.waived;
            run.charged |= new;
            self.usage.charged_blocks.fetch_add(new.count_ones().into(), Ordering::Relaxed);
        }
        let new_blocks = (run.slots & !displaced).count_ones() as usize;
        self.usage.run_blocks.fetch_add(new_blocks as u64, Ordering::Relaxed);
        if new_blocks > 0 {
            *shard.held.entry(first.layer).or_default() += new_blocks;
        }
        shard.lowest = Some(shard.lowest.map_or(run.pin, |lowest| lowest.min(run.pin)));
        shard.queue.push_back(Queued { since: run.sequence, key: first, is_run: true });
        self.add_run(shard, first, run);
    }

    /// Charges a block just inserted, though it may hold nothing but zeroes.
    pub(crate) fn charge(&self, shard: &mut Shard, key: BlockKey) {
        if let Some(block) = shard.blocks.get_mut(&key).filter(|block| block.charge == Charge::None) {
            block.charge = Charge::Block;
            self.usage.charged_blocks.fetch_add(1, Ordering::Relaxed);
        }
        let (first, slot) = self.place_of(key);
        if let Some(run) = shard.run_mut(first, slot).filter(|run| run.charge_of(slot) == Charge::None) {
            run.charged |= 1 << slot;
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
            let (first, slot) = self.place_of(*key);
            if let Some(run) = shard.run_mut(first, slot).filter(|run| run.charge_of(slot) == Charge::Block) {
                (run.charged, run.waived) = (run.charged & !(1 << slot), run.waived | 1 << slot);
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
        let (first, slot) = self.place_of(key);
        if let Some(run) = shard.run_mut(first, slot).filter(|run| run.charge_of(slot) == Charge::Waived) {
            (run.charged, run.waived) = (run.charged | 1 << slot, run.waived & !(1 << slot));
            self.usage.charged_blocks.fetch_add(1, Ordering::Relaxed);
            self.usage.waived_blocks.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn end_waiver(&self, block: &mut BlockBuffer) {
        if block.charge == Charge::Waived {
            block.charge = Charge::Block;
            self.usage.charged_blocks.fetch_add(1, Ordering::Relaxed);
            self.usage.waived_blocks.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
