//! What leaves the buffer: destage takes the oldest blocks, and evicts them or puts them back.

use super::{
    BlockKey, Buffer, Charge, Queued, Shard, TakenBlock,
    fragment::release,
    run::{Run, slots},
};
use crate::{
    bugs::{Bug, planted},
    format::REGION_BYTES,
};
use quoin_base::{LayerId, Sequence};
use quoin_world::{Mutex, MutexGuard, atomic::Ordering};
use std::collections::BTreeSet;

/// How often all shards are gone through for one batch of destage.
const TAKE_ROUNDS: usize = 5;

impl Buffer {
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
        let since = |shard: &Mutex<Shard>| shard.lock().queue.front().map(|queued| queued.since);
        // A load on few regions is in few shards: those that have more give more.
        for _ in 0..TAKE_ROUNDS {
            let had = taken.len();
            let shards = self.shards.iter().filter_map(|shard| Some((since(shard)?, shard)));
            // Where some are passed over, queues are not in order.
            let mut shards: Vec<_> = shards.filter(|(since, _)| *since < before || !but.is_empty()).collect();
            shards.sort_by_key(|(since, _)| *since);
            for (_, shard) in shards {
                let share = share.min(count.saturating_sub(taken.len()));
                self.take(&mut shard.lock(), share, before, but, &mut taken);
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
        self.take_out(&mut shard, taken.key);
        if shard.blocks.contains_key(&taken.key) {
            shard.queue.push_back(Queued { since, key: taken.key, is_run: false });
        }
    }

    fn take(
        &self,
        shard: &mut Shard,
        count: usize,
        before: Sequence,
        but: &BTreeSet<LayerId>,
        taken: &mut Vec<TakenBlock>,
    ) {
        let mut want = count;
        for _ in 0..shard.queue.len() {
            let is_late = shard.queue.front().is_none_or(|queued| queued.since >= before);
            if want == 0 || is_late && but.is_empty() {
                break;
            }
            let Some(queued) = shard.queue.pop_front() else { break };
            let Queued { since, key, is_run } = queued;
            if is_run && !is_late && !but.contains(&key.layer) {
                want -= self.take_run(shard, queued, want, taken);
                continue;
            }
            let is_there = if is_run { shard.is_run_queued(queued) } else { shard.blocks.contains_key(&key) };
            if !is_there {
                continue;
            }
            // It goes to the end of the queue with its age, so that those behind it are looked at.
            if is_late || but.contains(&key.layer) {
                shard.queue.push_back(queued);
                continue;
            }
            let Some(block) = shard.blocks.get(&key) else { continue };
            // A block that was wholly overwritten since it came in is as old as its oldest fragment.
            let oldest = block.fragments.iter().map(|e| e.sequence).min().unwrap_or_default();
            let fragments: Vec<_> =
                block.fragments.iter().filter(|e| e.batch.is_hardened()).cloned().collect();
            if fragments.is_empty() || (oldest > since && oldest >= before) {
                shard.queue.push_back(Queued { since: oldest, key, is_run });
                continue;
            }
            taken.push(TakenBlock { key, fragments, is_waived: block.charge == Charge::Waived });
            want -= 1;
        }
    }

    /// Takes a run that is queued, or as many of its blocks as are wanted; returns how many.
    fn take_run(&self, shard: &mut Shard, queued: Queued, want: usize, taken: &mut Vec<TakenBlock>) -> usize {
        let first = queued.key;
        let Some(run) = shard.queued_run(queued) else { return 0 };
        if !run.batch.is_hardened() {
            shard.queue.push_back(queued);
            return 0;
        }
        let mut rest = run.slots;
        slots(run.slots).take(want).for_each(|slot| rest &= !(1 << slot));
        let rest = run.split(rest);
        run.is_taken = true;
        let sectors = self.sectors_per_block();
        let before = taken.len();
        taken.extend(slots(run.slots).map(|slot| TakenBlock {
            key: first.plus(slot),
            fragments: vec![run.fragment(slot, sectors)],
            is_waived: run.charge_of(slot) == Charge::Waived,
        }));
        if rest.slots != 0 {
            shard.queue.push_front(queued);
            self.add_run(shard, first, rest);
        }
        taken.len() - before
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
        let Some(block) = shard.blocks.get_mut(&taken.key) else {
            return self.evict_from_run(shard, taken);
        };
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
                shard.queue.push_back(Queued { since: oldest, key: taken.key, is_run: false });
            }
            None => {
                let charge = block.charge;
                shard.blocks.remove(&taken.key);
                let (first, slot) = self.place_of(taken.key);
                self.note_gone(shard, first, slot);
                self.has_left(shard, taken.key, charge);
            }
        }
    }

    fn evict_from_run(&self, shard: &mut Shard, taken: &TakenBlock) {
        let (first, slot) = self.place_of(taken.key);
        let is_of = |run: &&mut Run| {
            run.is_taken && taken.fragments.iter().any(|fragment| fragment.sequence == run.sequence)
        };
        let Some(run) = shard.run_mut(first, slot).filter(is_of) else { return };
        assert!(run.batch.is_hardened(), "{} leaves the buffer before it is hardened", run.sequence);
        let (charge, is_last) = (run.charge_of(slot), run.slots == 1 << slot);
        drop(run.split(1 << slot));
        self.usage.run_blocks.fetch_sub(1, Ordering::Relaxed);
        shard.evictions += 1;
        if is_last {
            self.drop_empty_runs(shard, first);
        }
        self.has_left(shard, taken.key, charge);
    }

    /// Counts a block as gone.
    fn has_left(&self, shard: &mut Shard, key: BlockKey, charge: Charge) {
        match charge {
            Charge::Block => {
                let before = self.usage.charged_blocks.fetch_sub(1, Ordering::Release);
                assert!(before > 0, "{key:?} was charged");
            }
            Charge::Waived => drop(self.usage.waived_blocks.fetch_sub(1, Ordering::Relaxed)),
            Charge::None => {}
        }
        if let hashbrown::hash_map::Entry::Occupied(mut held) = shard.held.entry(key.layer) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}

impl Shard {
    /// The run that an entry of the queue is of, if it is still there.
    fn queued_run(&mut self, queued: Queued) -> Option<&mut Run> {
        let runs = self.runs.get_mut(&queued.key)?;
        runs.iter_mut().find(|run| run.sequence == queued.since && !run.is_taken)
    }

    fn is_run_queued(&mut self, queued: Queued) -> bool {
        self.queued_run(queued).is_some()
    }
}
