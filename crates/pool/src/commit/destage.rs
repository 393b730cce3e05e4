//! Destage: the oldest buffered blocks become rows of segments, and the map leads there.
//!
//! It is a pipeline of two batches: while the rows of one are written, the next is taken, and its blocks that
//! need a drive are composed. Workers compose its blocks that are in RAM, also while the batch before is
//! published.
//!
//! 1. Batches get places, are published and evicted one after the other, in the order in which they were taken. Nothing is
//!    published before its rows are written, nothing evicted before it is published.
//! 2. A block is in one batch at most: from when it is taken until it is evicted or put back it is not in the buffer's queue.
//!    What a host writes over it meanwhile stays in the buffer, over what is destaged, and is taken by a later batch.
//! 3. Nothing but destage happens between when a batch is taken and when it is evicted: no checkpoint is cut, no cleaning, no
//!    layer gets its map or is given back. A checkpoint that was cut before may become durable: what then comes free was given
//!    up before its cut, and no batch that was taken since leads there. So the next batch is taken only if destage would be the next step after the one at
//!    hand, though that made as much metadata dirty as it may.
//! 4. What is composed does not depend on the batch before: that changes what maps lead to for other blocks only, and frees
//!    nothing that a checkpoint has not yet passed.

use crate::{
    buffer::{BlockKey, Content, Fragment, TakenBlock},
    bugs::{Bug, planted},
    commit::{
        chunk::{self, Chunk, Looks, RamBlock, compose_one},
        committer::Committer,
        composed::{Composed, Composition, Fresh, Shared},
        decide::{Step, decide_after_destage},
        place::Placed,
        slabs::Lack,
    },
    error::PoolError,
    fork::layer::Layer,
    host::pace::SLOW_FROM,
    lifecycle::slice::Slice,
    maps::blocks::block_page,
    meta::PageId,
    segment::placed_block::PlacedBlock,
};
use futures_util::{StreamExt, future::try_join, stream};
use quoin_base::{BlockNumber, LayerId, Sequence};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Blocks composed, or pages fetched, at the same time.
pub(super) const PARALLEL: usize = 32;
/// The most blocks of one transaction.
pub(super) const BATCH_BLOCKS: u64 = 1024;
/// And while data finds no slab: it is looked at again and again then.
const BATCH_BLOCKS_SHORT: u64 = 64;

/// How often a block that cannot be read is tried at least before it is given up.
const TRIES: u32 = 3;
/// For how long it must have been tried if a fork or copy waits for it: the drive may recover.
const WAITED_FOR: Duration = Duration::from_secs(10);
/// How full buffer or journal must be if none does.
const GIVE_UP_FROM: f64 = 0.7;

/// A batch on its way: workers may still compose a part of it.
#[derive(Default)]
pub(super) struct Prepared {
    /// In the order of the batch. `None`: a worker has it.
    blocks: Vec<Option<Composed>>,
    chunks: Vec<Chunk>,
    /// Of the blocks, in order.
    keys: Vec<BlockKey>,
    /// A writer waited for it.
    is_hurried: bool,
}

/// What a block needs to be composed.
enum Sorted {
    Nothing(Composed),
    /// The processor.
    Ram(TakenBlock, Arc<Layer>),
    /// Drives, as a rule.
    Reading(TakenBlock),
}

/// What neighbours that are composed at once share.
#[derive(Default)]
struct AtOnce {
    layer: Option<Arc<Layer>>,
    /// A page of the block table that is in RAM.
    page: Option<PageId>,
}

impl Committer {
    /// Destages blocks that came in before `before`, a batch, and more for as long as nothing else is to be done. False if
    /// there were none, or there is no room for them.
    pub(crate) async fn destage(&mut self, before: Sequence) -> Result<bool, PoolError> {
        let mut next = Some(self.prepare(before).await?);
        let mut did = false;
        while let Some(prepared) = next.take() {
            let is_hurried = prepared.is_hurried;
            let Some(mut batch) = self.ready(prepared).await? else { break };
            // Rows are planned for the whole batch, then written while the next batch is prepared.
            let (places, lack) = self.place(&mut batch).await?;
            if batch.is_empty() {
                if is_hurried {
                    self.slice.requests.still_in_a_hurry();
                }
                break;
            }
            next = self.destage_batch(&batch, &places, lack == Lack::Nothing).await?;
            did = true;
            if self.slice.store.health().is_failed() {
                break;
            }
        }
        Ok(did)
    }

    /// Takes a batch, composes what needs more than the processor, and gives the rest to workers.
    async fn prepare(&self, before: Sequence) -> Result<Prepared, PoolError> {
        let slice = &self.slice;
        // The oldest blocks, none of a layer that has no map yet: there is nothing that could lead to them.
        let most = if self.is_short() { BATCH_BLOCKS_SHORT } else { BATCH_BLOCKS };
        let batch = slice.space.step_blocks().min(most);
        let pending = slice.forks.read().pending.clone();
        let mut taken = slice.buffer.take_oldest(batch as usize, before, &pending);
        slice.flips().apply(&mut taken);
        if taken.is_empty() {
            return Ok(Prepared::default());
        }

        // What each block needs. Neighbours in the batch share what is looked up for that.
        let is_hurried = slice.requests.not_in_a_hurry();
        let keys = taken.iter().map(|block| block.key).collect();
        let mut at_once = AtOnce::default();
        let mut blocks: Vec<_> = Vec::with_capacity(taken.len());
        let (mut in_ram, mut to_read) = (Vec::new(), Vec::new());
        for (at, block) in taken.into_iter().enumerate() {
            let composed = match self.sort(block, &mut at_once) {
                Sorted::Nothing(block) => Some(block),
                Sorted::Ram(taken, layer) => {
                    in_ram.push(RamBlock { at, taken, layer });
                    None
                }
                Sorted::Reading(taken) => {
                    to_read.push((at, taken));
                    None
                }
            };
            blocks.push(composed);
        }

        // Workers compose what is in RAM. What few blocks there are is composed here.
        let chunks = match chunk::send(slice, in_ram, self.effort()) {
            Ok(chunks) => chunks,
            Err(few) => {
                to_read.extend(self.compose_few(few, &mut blocks).await);
                Vec::new()
            }
        };
        self.compose_by_reading(to_read, &mut blocks).await?;
        self.reduce_rest(&mut blocks, || Looks::ahead(slice, self.effort())).await?;
        Ok(Prepared { blocks, chunks, keys, is_hurried })
    }

    /// Composes blocks that are in RAM. Returns those that are not any more what was received: they have to be read.
    async fn compose_few(
        &self,
        few: Vec<RamBlock>,
        blocks: &mut [Option<Composed>],
    ) -> Vec<(usize, TakenBlock)> {
        let (slice, mut to_read) = (&self.slice, Vec::new());
        for (done, block) in few.into_iter().enumerate() {
            let at = block.at;
            match compose_one(block, slice.buffer.sectors_per_block()) {
                Ok(block) => blocks[at] = Some(block),
                Err(taken) => to_read.push((at, taken)),
            }
            // Rows that are being written go on meanwhile.
            if (done + 1).is_multiple_of(PARALLEL) {
                slice.world().yield_now().await;
            }
        }
        to_read
    }

    /// Composes blocks that may need a drive, many at a time, each for its place in the batch.
    async fn compose_by_reading(
        &self,
        to_read: Vec<(usize, TakenBlock)>,
        blocks: &mut [Option<Composed>],
    ) -> Result<(), PoolError> {
        let reads: Vec<_> =
            to_read.into_iter().map(|(at, block)| async move { (at, self.compose(block).await) }).collect();
        let mut composing = stream::iter(reads).buffer_unordered(PARALLEL);
        let mut since = 0usize;
        while let Some((at, block)) = composing.next().await {
            blocks[at] = Some(block?);
            since += 1;
            if since.is_multiple_of(PARALLEL) {
                self.slice.world().yield_now().await;
            }
        }
        Ok(())
    }

    /// Reduces blocks that are not reduced yet.
    pub(super) async fn reduce_rest(
        &self,
        blocks: &mut [Option<Composed>],
        looks: impl Fn() -> Looks,
    ) -> Result<(), PoolError> {
        let (mut at, mut rest) = (Vec::new(), Vec::new());
        for (place, block) in blocks.iter_mut().enumerate() {
            if block.as_mut().is_some_and(|block| block.unreduced().is_some()) {
                at.push(place);
                rest.extend(block.take());
            }
        }
        let reduced = chunk::reduce_beside(&self.slice, rest, looks).await?;
        for (place, block) in at.into_iter().zip(reduced) {
            blocks[place] = Some(block);
        }
        Ok(())
    }

    /// Composes a placed block, and finds out what any other one needs.
    fn sort(&self, taken: TakenBlock, at_once: &mut AtOnce) -> Sorted {
        let slice = &self.slice;
        let [fragment] = taken.fragments.as_slice() else { return Sorted::Reading(taken) };
        if fragment.sectors != slice.buffer.sectors_per_block() {
            return Sorted::Reading(taken);
        }
        let placed = match &fragment.content {
            Content::Placed(block) => {
                let Some(number) = block.number else { return Sorted::Reading(taken) };
                if !self.lies_right(block, taken.key.layer) {
                    return Sorted::Reading(taken);
                }
                // The page of its number must be sound when the block is published. `compose` reads it if it is not
                // in RAM.
                let page = block_page(number);
                if at_once.page != Some(page) {
                    // A page that is not in RAM may be damaged: see `compose`.
                    if !slice.metadata.pages.is_resident(page, true) {
                        return Sorted::Reading(taken);
                    }
                    at_once.page = Some(page);
                }
                Some((block.clone(), number))
            }
            Content::Ram(_) => None,
            Content::Zero | Content::Journal(_) | Content::Shared(_) => return Sorted::Reading(taken),
        };
        let id = taken.key.layer;
        if at_once.layer.as_ref().is_none_or(|layer| layer.id != id) {
            at_once.layer = slice.forks.layer(id);
        }
        match (at_once.layer.clone().filter(|layer| !layer.is_gone()), placed) {
            (layer @ Some(_), Some((block, number))) => {
                Sorted::Nothing(Composed { taken, layer, content: Composition::Placed { block, number } })
            }
            (Some(layer), None) => Sorted::Ram(taken, layer),
            (None, _) => Sorted::Reading(taken),
        }
    }

    /// The blocks of a batch that can be destaged, if any, once workers are done with it.
    async fn ready(&mut self, prepared: Prepared) -> Result<Option<Vec<Composed>>, PoolError> {
        let Prepared { mut blocks, chunks, is_hurried, .. } = prepared;
        let (slice, began) = (self.slice.clone(), self.slice.world().now());
        let sectors = slice.buffer.sectors_per_block();
        for (at, outcome) in chunk::receive(chunks, sectors, slice.store.health()).await? {
            blocks[at] = Some(match outcome {
                Ok(composed) => composed,
                Err(taken) => self.compose(taken).await?,
            });
        }
        self.deduplicate(&mut blocks).await?;
        let now = slice.world().now();
        let is_hasty = {
            let mut effort = self.effort().lock();
            effort.composed(now, now.since(began), slice.fill(0) > SLOW_FROM);
            effort.is_hasty()
        };
        slice.front.placer.set_hasty(is_hasty);
        assert!(blocks.iter().all(Option::is_some), "every block of a batch is composed");
        let mut batch: Vec<_> = blocks.into_iter().flatten().collect();
        if batch.is_empty() {
            return Ok(None);
        }
        self.destages();
        // What cannot be read now goes back into the buffer.
        self.put_unread_back(&mut batch).await;
        self.note_lack(None);
        let is_news = self.count_stuck(batch.is_empty());
        if !batch.is_empty() {
            return Ok(Some(batch));
        }
        // Writers are not told: they would only ask again at once.
        if is_hurried {
            self.slice.requests.still_in_a_hurry();
        }
        if is_news {
            // Writers that wait for destage look again: what they wait for does not come.
            self.committed();
        }
        Ok(None)
    }

    /// Writes and publishes a batch whose rows are planned. Returns the next one, if there may be one and it was prepared
    /// meanwhile.
    async fn destage_batch(
        &mut self,
        batch: &[Composed],
        places: &[Option<Placed>],
        may_go_on: bool,
    ) -> Result<Option<Prepared>, PoolError> {
        let slice = self.slice.clone();
        let rows = self.rows.data.finish(&slice.segments);
        let next = self.next_before(batch.len() as u64)?.filter(|_| may_go_on);
        let (written, next) = try_join(slice.write_rows(rows), async {
            self.prefetch(batch).await?;
            let Some(before) = next else { return Ok(None) };
            Ok(Some(self.prepare(before).await?).filter(|next| !next.keys.is_empty()))
        })
        .await?;
        slice.counters.destage.bytes.add(written);
        assert!(next.as_ref().is_none_or(|next| are_apart(batch, &next.keys)), "a block is in two batches");
        keep_until_published(&slice, batch).await;
        // The rows are written, so the map may lead there.
        self.publish_all(batch, places).await?;
        self.count_space();
        // The map is published: only now may a reader miss the buffer.
        slice.buffer.evict(batch.iter().map(|composed| &composed.taken));
        slice.counters.destage.blocks.add(batch.len() as u64);
        slice
            .counters
            .destage
            .reduction
            .destaged(batch.iter().filter_map(Composed::fresh).map(|fresh| &fresh.form));
        if self.checkpoints.is_under_way() {
            slice.counters.destage.blocks_beside_checkpoints.add(batch.len() as u64);
        }
        if next.is_some() {
            slice.counters.destage.overlapped_blocks.add(batch.len() as u64);
        }
        self.committed();
        Ok(next)
    }

    /// Up to where the next batch may be taken before this one, of so many blocks, is published: if destage is what
    /// follows it even if it makes as much metadata dirty as it may.
    fn next_before(&mut self, blocks: u64) -> Result<Option<Sequence>, PoolError> {
        self.land()?;
        self.settle();
        // As things are at the worst when this batch is published.
        let mut figures = self.figures();
        figures.due.bytes += self.slice.space.most_due_by(blocks);
        if figures.slabs.free < figures.slabs.checkpoint_below {
            return Ok(None);
        }
        Ok(match decide_after_destage(figures) {
            Step::Destage(before) => Some(before),
            _ => None,
        })
    }

    async fn compose(&self, taken: TakenBlock) -> Result<Composed, PoolError> {
        let slice = &self.slice;
        let layer = slice.forks.kept_layer(taken.key.layer);
        let Some(layer) = layer else {
            return Ok(Composed { taken, layer: None, content: Composition::Unmapped });
        };
        if self.retries.rests(taken.key, taken.newest(), slice.world().now()) {
            return Ok(Composed { taken, layer: Some(layer), content: Composition::Unread { tried: false } });
        }
        // A range copy leads to the block of its source.
        if let Some((number, place, page)) = slice.shared_block(&taken.fragments).await? {
            let content = Composition::Shared(Shared { number, location: place.location, page });
            return Ok(Composed { taken, layer: Some(layer), content });
        }
        let placed = placed_whole(&taken.fragments, slice.buffer.sectors_per_block());
        if let Some((block, number)) = placed.filter(|(block, _)| self.lies_right(block, layer.id)) {
            // A number whose page went bad since it was lent is of no use: the block is written anew under another.
            match slice.metadata.pages.get(block_page(number)).await {
                Ok(_) => {
                    let content = Composition::Placed { block, number };
                    return Ok(Composed { taken, layer: Some(layer), content });
                }
                Err(PoolError::Corrupt { .. }) => {}
                Err(error) if slice.store.is_unreadable(&error).await => {}
                Err(error) => return Err(error),
            }
        }
        let content = match slice.compose(&layer, taken.key, &taken.fragments).await {
            Ok(Some(data)) => Composition::Data(Fresh::new(data)),
            Ok(None) => Composition::Unmapped,
            Err(PoolError::Medium { unread: true, .. }) => Composition::Unread { tried: true },
            Err(PoolError::Medium { volume, offset, reason, unread: false }) => {
                tracing::error!(%volume, offset, %reason, "a block cannot be put together any more; it is lost");
                slice.counters.damage.lost_blocks.add(1);
                slice.damaged(volume, taken.key.index, &reason);
                Composition::Lost
            }
            // A page of metadata: what it leads to is lost when it is changed.
            Err(error) if slice.store.is_unreadable(&error).await => {
                slice.counters.damage.lost_blocks.add(1);
                slice.damaged(layer.volume.id, taken.key.index, &error.to_string());
                Composition::Lost
            }
            Err(error) => return Err(error),
        };
        Ok(Composed { taken, layer: Some(layer), content })
    }

    /// Whether a block was placed in a segment as its volume is laid out now. Otherwise it is written anew: its volume got
    /// another layout since.
    fn lies_right(&self, block: &PlacedBlock, layer: LayerId) -> bool {
        let slice = &self.slice;
        let tag = slice.segments.table.tag(block.location.segment());
        let layout = slice.forks.layer(layer).and_then(|layer| layer.volume.layout());
        slice.segments.table.suits(tag, layout) || planted(Bug::PublishAsPlaced)
    }

    /// Leaves in the buffer what could not be read, to be tried again: the drive may recover. A block is given up only
    /// when the journal fills up because of it, or when a fork or copy waits for it and its place alone is unreadable. None is
    /// while drives are away that hold the last copies of something: it may be one of these.
    async fn put_unread_back(&mut self, composed: &mut Vec<Composed>) {
        let slice = self.slice.clone();
        for mut block in std::mem::take(composed) {
            let key = block.taken.key;
            match block.content {
                Composition::Unread { tried: true } => self.retries.note_unplaced(key, false),
                Composition::Unread { tried: false } => {
                    self.retries.note_unplaced(key, false);
                    slice.buffer.put_back(&block.taken, slice.log.journal.newest_sequence());
                    continue;
                }
                _ => {
                    self.retries.forget(key);
                    composed.push(block);
                    continue;
                }
            }
            let now = slice.world().now();
            let (tries, waited) = self.retries.failed(key, block.taken.newest(), now);
            let may_be_lost = tries >= TRIES || waited >= WAITED_FOR;
            let awaits_drives = may_be_lost && self.awaits_drives(&block).await;
            let is_lost = may_be_lost
                && !awaits_drives
                && (tries >= TRIES && slice.fill(0) > GIVE_UP_FROM
                    || waited >= WAITED_FOR
                        && slice.forks.await_destage()
                        && self.is_unreadable(&block).await);
            if is_lost {
                tracing::error!(layer = %key.layer, block = key.index.0, tries, "given up after failed reads; it is lost");
                slice.counters.damage.lost_blocks.add(1);
                self.retries.forget(key);
                if let Some(layer) = &block.layer {
                    let reason = "a drive failed to read what it was written over in part";
                    slice.damaged(layer.volume.id, key.index, reason);
                }
                block.content = Composition::Lost;
                composed.push(block);
            } else {
                self.retries.awaits(key, awaits_drives);
                // All others have a turn before it is tried again.
                slice.buffer.put_back(&block.taken, slice.log.journal.newest_sequence());
            }
        }
        slice.counters.progress.unread(self.retries.count());
        self.carry_forward().await;
    }

    /// Whether what a block is written over may be there again when drives are back.
    async fn awaits_drives(&self, block: &Composed) -> bool {
        let slice = &self.slice;
        if slice.store.absent_drives().next().is_none() || planted(Bug::FreeUnreadable) {
            return false;
        }
        // It may follow from something that cannot be read in turn.
        let Some(layer) = block.layer.as_ref().filter(|_| !slice.segments.table.is_any_unreadable()) else {
            return true;
        };
        let place = slice.place_of(layer, block.taken.key.index).await.ok().flatten();
        place.is_some_and(|place| slice.segments.table.awaits(place.location.segment()))
    }

    /// Whether a block cannot be read again and again while every drive reads other places.
    async fn is_unreadable(&self, block: &Composed) -> bool {
        let Some(layer) = &block.layer else { return false };
        if !self.slice.store.every_drive_reads().await {
            return false;
        }
        for _ in 0..TRIES {
            match self.slice.compose(layer, block.taken.key, &block.taken.fragments).await {
                Err(PoolError::Medium { unread: true, .. }) => {}
                Ok(_) | Err(_) => return false,
            }
        }
        true
    }

    /// Tells writers whether any block that they may wait for can be destaged. `in_vain`: none of the last batch could.
    /// True if that changed.
    fn count_stuck(&self, in_vain: bool) -> bool {
        // NOTE: counted first: what comes in while this looks is then more than what is stuck.
        let charged = self.slice.buffer.charged_blocks();
        let stuck = if in_vain && !self.may_any_come() { charged } else { 0 };
        self.slice.counters.progress.stuck(stuck)
    }

    /// Whether a charged block can be destaged, or may be once it is hardened: one that was not tried in vain as it is now,
    /// and does not wait in a fork on top of one that was.
    fn may_any_come(&self) -> bool {
        let layers = self.slice.forks.read();
        let holds_unread = |layer: &Arc<Layer>| self.retries.any_of(layer.id);
        let waits = |id: &&LayerId| {
            let below = layers.all.get(id).and_then(|layer| layer.below());
            std::iter::successors(below, |layer| layer.below()).any(|layer| holds_unread(&layer))
        };
        let waiting: BTreeSet<LayerId> = layers.pending.iter().filter(waits).copied().collect();
        drop(layers);
        self.slice
            .buffer
            .any_charged(|key, newest| self.retries.was_tried(key, newest) || waiting.contains(&key.layer))
    }
}

/// Whether no block is in both batches. Each is in the order of its blocks.
fn are_apart(one: &[Composed], other: &[BlockKey]) -> bool {
    !one.iter().any(|block| other.binary_search(&block.taken.key).is_ok())
}

/// The block that was placed and its number, if these fragments are all of it.
fn placed_whole(fragments: &[Fragment], sectors_per_block: u16) -> Option<(Arc<PlacedBlock>, BlockNumber)> {
    match fragments {
        [Fragment { sectors, content: Content::Placed(block), .. }] if *sectors == sectors_per_block => {
            Some((block.clone(), block.number?))
        }
        _ => None,
    }
}

/// Keeps a batch in the buffer until it is published.
async fn keep_until_published(slice: &Slice, batch: &[Composed]) {
    if planted(Bug::EvictBeforePublish) {
        slice.buffer.evict(batch.iter().map(|composed| &composed.taken));
        slice.world().yield_now().await;
    }
}
