//! Reducing, on request, what a volume has: blocks that were stored before it was compressed or deduplicated, or in haste. And
//! packing, unasked, what was stored in haste since the pool was opened.
//!
//! What was acknowledged before the request is destaged first. Then its layers are walked one after the other, from the volume's own to the oldest that it came from. A block that gets shorter is
//! moved as the cleaner moves it: only the block table changes, and all who have the block gain. A block without a fingerprint
//! gets one, so that later ones find it.
//!
//! 1. A block with a twin is exchanged for that where nobody but the layer's own map leads to it: in the layer that the volume
//!    writes to. Maps of forks may hold copies of the entries of any other.
//! 2. A block is lent for the first time as destage lends it: see `deduplicate.rs`.
//! 3. What cannot be read or does not verify stays as it is. A second walk costs work and changes nothing.
//! 4. What was stored in haste is found by segment, when nothing is added to that any more. It is packed once hosts leave time for
//!    it, and requests come first.

use crate::{
    bugs::{Bug, planted},
    commit::{
        committer::Committer,
        composed::Shared,
        conversions::{Leaves, OwnLeaf},
        deduplicate::{Found, Wanted},
        gather::{Allowance, Gathered, LiveBlock, rows_of},
        hasty::Next,
        reductions::{Reductions, Walk},
    },
    error::PoolError,
    fork::layer::{Layer, VolumeState},
    format::{BlockInfo, CopySource, TREE_FAN_OUT, ThinEntry},
    host::pace::SLOW_FROM,
    lifecycle::slice::Slice,
    maps::{
        blocks::{BlockPlace, block_page, block_word, entry_in, fingerprint_in},
        fingerprints::Fingerprints,
        tree::slot,
    },
    segment::packed::{Packed, Whole, algorithm_of, codec_of, content_of, pack},
};
use quoin_base::{BlockIndex, BlockNumber, PageNumber};
use quoin_reduction::{Codec, Fingerprint};
use quoin_world::{Nanos, offload};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Leaves of a map that a step looks through at the most.
const STEP_LEAVES: usize = 16;
/// Blocks that a worker reduces one after the other.
const CHUNK_BLOCKS: usize = 32;
/// How long it waits while hosts need the processors, or there is no room.
const PAUSE: Duration = Duration::from_millis(200);

/// What the blocks of a volume are to become.
#[derive(Clone)]
struct Wish {
    codec: Option<Codec>,
    fingerprints: Option<Arc<Fingerprints>>,
    block_bytes: u64,
}

/// What became of a block on a worker.
struct Reduced {
    whole: Whole,
    packed: Option<Packed>,
    fingerprint: Option<Fingerprint>,
}

impl Wish {
    fn of(slice: &Slice, volume: &VolumeState) -> Self {
        Self {
            codec: codec_of(volume.compression(), true),
            fingerprints: volume.is_deduplicated().then(|| slice.fingerprints().clone()),
            block_bytes: slice.buffer.block_bytes,
        }
    }

    /// Whether it may be packed shorter than it is.
    fn packs(&self, info: BlockInfo) -> bool {
        self.codec.is_some_and(|codec| info.algorithm() < algorithm_of(codec))
    }

    /// `None`: it does not verify.
    fn reduce(&self, block: &LiveBlock) -> Option<Reduced> {
        let (info, stored) = (block.place.info, block.stored.clone()?);
        let len = stored.len();
        let whole = content_of(info, stored, self.block_bytes, true)?;
        let fingerprint = self.fingerprints.as_ref().map(|fingerprints| fingerprints.of(&whole.data));
        let packed = self.codec.filter(|_| self.packs(info)).and_then(|codec| {
            let packed = pack([(codec, &whole)].into_iter()).pop().flatten();
            packed.filter(|packed| packed.stored.len() < len)
        });
        Some(Reduced { whole, packed, fingerprint })
    }
}

impl Committer {
    /// Whether anything is to be reduced now.
    pub(super) fn reduces(&self) -> bool {
        let now = self.slice.world().now();
        let packs = || !self.known_reductions().hasty.is_empty() && self.effort().lock().has_time(now);
        now >= self.known_reductions().rests_until && (self.slice.reducing().next().is_some() || packs())
    }

    /// How long reduction rests still, if it does.
    pub(super) fn reduction_rests(&self) -> Option<Duration> {
        let (now, until) = (self.slice.world().now(), self.known_reductions().rests_until);
        let Reductions { walk, hasty, .. } = self.known_reductions();
        ((walk.is_some() || !hasty.is_empty()) && until > now).then(|| until.since(now))
    }

    /// Reduces some of what is to be reduced. False if nothing can be done now.
    pub(super) async fn reduce_some(&mut self) -> Result<bool, PoolError> {
        let slice = self.slice.clone();
        let began = slice.world().now();
        if !self.has_slabs_to_convert() || self.is_much_due() || self.effort().lock().is_hasty() {
            self.pause_reduction();
            return Ok(false);
        }
        let Some((volume, layer, mut walk)) = self.next_to_reduce() else {
            return if slice.reducing().next().is_none() { self.pack_hasty().await } else { Ok(false) };
        };
        if let Some(before) = walk.awaits.take() {
            if self.destage(before).await? {
                self.reductions().walk = Some(Walk { awaits: Some(before), ..walk });
                return Ok(true);
            }
            let total = layer.held_with_parents();
            slice.reducing().progress(walk.volume, |reduction| reduction.total_blocks = total);
        }
        let wish = Wish::of(&slice, &volume);
        let (mut gathered, mut leaves, mut met, mut is_through) = (Gathered::default(), 0, 0, false);
        let (mut allowance, mut pages) = (self.allowance_to_convert(), BTreeSet::new());
        while leaves < STEP_LEAVES && allowance.bytes > 0 {
            let Some(leaf) = self.next_own_leaf(&layer, &mut walk.leaves).await? else {
                is_through = true;
                break;
            };
            leaves += 1;
            let limits = (&mut allowance, &mut pages);
            let (next, more) =
                self.blocks_to_reduce(&layer, &leaf, &wish, &mut walk, &mut gathered, limits).await?;
            walk.leaves.from = next;
            met += more;
        }
        is_through &= self.reduce_blocks(&layer, &wish, &mut walk, gathered.blocks).await?;
        slice.reducing().progress(walk.volume, |reduction| {
            // Some may be met twice.
            reduction.met_blocks = (reduction.met_blocks + met).min(reduction.total_blocks);
            reduction.is_incomplete |= walk.leaves.is_incomplete;
        });
        if is_through {
            self.end_layer(&layer, walk);
        } else {
            self.reductions().walk = Some(walk);
        }
        self.rest_from_reduction(began);
        self.committed();
        Ok(true)
    }

    /// The volume and the layer to go on with. `None`: there is none.
    fn next_to_reduce(&mut self) -> Option<(Arc<VolumeState>, Arc<Layer>, Walk)> {
        let slice = self.slice.clone();
        while let Some(volume) = slice.reducing().next() {
            let layers = slice.forks.read();
            let walk = self.reductions().walk.take().filter(|walk| walk.volume == volume);
            let Some(leaf) = layers.volumes.get(&volume) else {
                slice.reducing().end(volume);
                continue;
            };
            // A layer that became a part of another goes on there, from the beginning.
            let walk = walk.filter(|walk| layers.all.get(&walk.layer).is_some_and(|layer| !layer.is_gone()));
            let walk = walk.unwrap_or_else(|| {
                let awaits = Some(slice.log.journal.peek_sequence());
                Walk { volume, awaits, layer: leaf.id, leaves: Leaves::default() }
            });
            let layer = layers.all.get(&walk.layer)?.clone();
            if layer.is_pending() {
                drop(layers);
                self.pause_reduction();
                return None;
            }
            return Some((leaf.volume.clone(), layer, walk));
        }
        None
    }

    /// Packs some of what was stored in haste in a segment. False if nothing can be done now.
    async fn pack_hasty(&mut self) -> Result<bool, PoolError> {
        let (slice, began) = (self.slice.clone(), self.slice.world().now());
        let has_time = slice.fill(0) <= SLOW_FROM;
        let next = if has_time { self.reductions().hasty.next(&slice.segments.table) } else { Next::Nothing };
        let Next::Rows(id, segment, next_row) = next else {
            if matches!(next, Next::Open) && !self.hosts_wrote() {
                self.rows.data.seal(&slice.segments, self.checkpoints.first_without());
                slice.front.placer.seal_idle();
            }
            self.pause_reduction();
            return Ok(false);
        };
        let full_row_bytes = slice.segments.table.full_row_bytes(&segment, slice.buffer.block_bytes);
        let Some(rows) = rows_of(&slice.segments.io, full_row_bytes, id, &segment).await else {
            self.reductions().hasty.forget(id);
            return Ok(true);
        };
        let (mut allowance, mut pages) = (self.allowance_to_convert(), BTreeSet::new());
        let is_plain = |place: &BlockPlace| place.info.algorithm() == BlockInfo::PLAIN;
        let rest = &rows[next_row.min(rows.len())..];
        let (mut blocks, done) =
            self.live_blocks((id, &segment), rest, is_plain, &mut allowance, &mut pages).await?;
        let is_none = blocks.is_empty();
        self.read_live(&mut blocks).await;
        self.repack(&mut blocks).await?;
        blocks.retain(|block| block.becomes != block.place.info);
        let moved = self.move_as_they_are(blocks).await?;
        slice.counters.cleaning.bytes.add(moved.written_bytes);
        self.committed();
        if moved.unplaced > 0 {
            self.pause_reduction();
            return Ok(false);
        }
        // A row is gone through as often as something of it moves.
        if next_row + done >= rows.len() {
            self.reductions().hasty.forget(id);
        } else if done > 0 || moved.blocks > 0 {
            self.reductions().hasty.looked_at(id, next_row + done);
        } else if !is_none {
            // More than a step takes of a single row that nothing of becomes shorter.
            self.reductions().hasty.looked_at(id, next_row + 1);
        } else {
            self.pause_reduction();
            return Ok(false);
        }
        self.rest_from_reduction(began);
        Ok(true)
    }

    /// Whether hosts wrote since reduction was last at work.
    fn hosts_wrote(&mut self) -> bool {
        let batches = self.slice.log.journal.data_batches();
        std::mem::replace(&mut self.reductions().data_batches, batches) != batches
    }

    /// Waits until hosts need the processors less, or there is room.
    fn pause_reduction(&mut self) {
        self.reductions().rests_until = Nanos(self.slice.world().now().0 + PAUSE.as_nanos() as u64);
    }

    /// A layer was walked: the one below it is next.
    fn end_layer(&mut self, layer: &Layer, walk: Walk) {
        self.reductions().walk =
            layer.parent().map(|parent| Walk { layer: parent.id, leaves: Leaves::default(), ..walk });
        if self.reductions().walk.is_none() {
            self.slice.reducing().progress(walk.volume, |reduction| reduction.is_done = true);
        }
    }

    /// Rests beside hosts for as long as a step took.
    fn rest_from_reduction(&mut self, began: Nanos) {
        let now = self.slice.world().now();
        let took = now.since(began);
        if self.hosts_wrote() {
            self.reductions().rests_until = Nanos(now.0 + took.as_nanos() as u64);
        }
    }

    /// Adds the blocks of a leaf that may be reduced, as far as the allowance goes. Returns where to go on, and how many were met.
    async fn blocks_to_reduce(
        &self,
        layer: &Layer,
        leaf: &OwnLeaf,
        wish: &Wish,
        walk: &mut Walk,
        gathered: &mut Gathered,
        (allowance, pages): (&mut Allowance, &mut BTreeSet<PageNumber>),
    ) -> Result<(BlockIndex, u64), PoolError> {
        let slice = &self.slice;
        let unreadable = slice.segments.table.unreadable();
        let mut met = 0;
        for at in walk.leaves.from.0.saturating_sub(leaf.first.0)..TREE_FAN_OUT {
            let (index, entry) = (leaf.first.plus(at), ThinEntry(leaf.page.get(at as usize)));
            let Some(number) = entry.block().filter(|_| self.is_mine(layer, entry)) else { continue };
            let page = match slice.metadata.pages.get(block_page(number)).await {
                Ok(page) => page,
                Err(error) if slice.store.is_damage(&error).await => None,
                Err(error) => return Err(error),
            };
            met += 1;
            let place = page.as_ref().and_then(|page| entry_in(page, number));
            let Some((page, place)) = page.as_ref().zip(place) else {
                walk.leaves.is_incomplete = true;
                continue;
            };
            let lacks_fingerprint = wish.fingerprints.is_some() && fingerprint_in(page, number).is_none();
            let is_of_use = lacks_fingerprint || wish.packs(place.info);
            if place.location.is_none() || !is_of_use || gathered.has(number) {
                continue;
            }
            if unreadable.contains(&place.location.segment().0) {
                walk.leaves.is_incomplete = true;
                continue;
            }
            let (len, page) = (place.location.len_bytes(), block_page(number).index);
            if allowance.bytes < len || allowance.pages == 0 && !pages.contains(&page) {
                allowance.bytes = 0;
                return Ok((index, met - 1));
            }
            allowance.bytes -= len;
            allowance.pages -= usize::from(pages.insert(page));
            let tag = slice.segments.table.tag(place.location.segment());
            gathered.push(LiveBlock::new(number, place, CopySource { layer: layer.id, index }, tag));
        }
        Ok((leaf.first.plus(TREE_FAN_OUT), met))
    }

    /// Reads blocks, exchanges those that have twins, and moves those that get shorter. False if the walk is to meet some again.
    async fn reduce_blocks(
        &mut self,
        layer: &Arc<Layer>,
        wish: &Wish,
        walk: &mut Walk,
        mut blocks: Vec<LiveBlock>,
    ) -> Result<bool, PoolError> {
        let slice = self.slice.clone();
        self.read_live(&mut blocks).await;
        let (mut to_move, mut deduplicated, mut saved, mut shorter) = (Vec::new(), 0, 0, 0);
        let mut is_all = true;
        for (mut block, reduced) in self.reduce_on_workers(blocks, wish).await? {
            // What a checkpoint has to write first is met again.
            if self.is_much_due() {
                walk.leaves.from = walk.leaves.from.min(block.address.index);
                is_all = false;
                continue;
            }
            let Some(Reduced { whole, packed, fingerprint }) = reduced else {
                walk.leaves.is_incomplete = true;
                continue;
            };
            let len = block.place.location.len_bytes();
            if let Some(fingerprint) = fingerprint
                && self.exchange(layer, &block, &whole, fingerprint).await?
            {
                (deduplicated, saved) = (deduplicated + 1, saved + len);
                continue;
            }
            let Some(packed) = packed else { continue };
            shorter += len - packed.stored.len() as u64;
            block.becomes = block.place.info.stored_as(packed.crc, packed.algorithm);
            block.stored = Some(packed.stored);
            to_move.push(block);
        }
        let moved = self.move_as_they_are(to_move).await?;
        // What there is no slab for is met by another request.
        if moved.unplaced > 0 {
            walk.leaves.is_incomplete = true;
        } else {
            saved += shorter;
        }
        let counters = &slice.counters.destage.reduction;
        counters.deduplicated_blocks.add(deduplicated);
        counters.recompressed_blocks.add(moved.blocks as u64);
        slice.reducing().progress(walk.volume, |reduction| {
            reduction.deduplicated_blocks += deduplicated;
            reduction.compressed_blocks += moved.blocks as u64;
            reduction.saved_bytes += saved;
        });
        Ok(is_all)
    }

    /// `None` for what does not verify.
    async fn reduce_on_workers(
        &self,
        mut blocks: Vec<LiveBlock>,
        wish: &Wish,
    ) -> Result<Vec<(LiveBlock, Option<Reduced>)>, PoolError> {
        let (mut chunks, mut all) = (Vec::new(), Vec::new());
        while !blocks.is_empty() {
            let rest = blocks.split_off(blocks.len().min(CHUNK_BLOCKS));
            let (chunk, wish) = (std::mem::replace(&mut blocks, rest), wish.clone());
            chunks.push(offload(self.slice.world(), move || {
                let reduce = |block: LiveBlock| {
                    let reduced = wish.reduce(&block);
                    (block, reduced)
                };
                chunk.into_iter().map(reduce).collect::<Vec<_>>()
            }));
        }
        for chunk in chunks {
            all.extend(chunk.await.ok_or_else(|| self.slice.store.health().error())?);
        }
        Ok(all)
    }

    /// Lets the map lead to the twin of a block, if it has one; else notes its fingerprint. True if it was exchanged.
    async fn exchange(
        &mut self,
        layer: &Arc<Layer>,
        block: &LiveBlock,
        whole: &Whole,
        fingerprint: Fingerprint,
    ) -> Result<bool, PoolError> {
        let slice = self.slice.clone();
        let (number, index) = (block.number, block.address.index);
        let page = slice.metadata.pages.change(block_page(number)).await?;
        if fingerprint_in(&page, number).is_some() {
            return Ok(false);
        }
        // While the layer is live no map of another has its entries: forks of it get their maps by another step.
        let is_alone = layer.is_live() || planted(Bug::ExchangeFrozen);
        let mut exchange = None;
        if is_alone && block.place.info.count() == 1 && slice.fingerprints().may_have(fingerprint) {
            let leaf = self.leaf_to_change(layer, index).await?;
            let old = ThinEntry(leaf.get(slot(index, 0)));
            // A leaf that went bad since was replaced.
            if old.block() != Some(number) {
                return Ok(false);
            }
            let wanted = Wanted { layer, index, whole, fingerprint };
            let twin = self.twin_to_exchange(wanted, number).await;
            exchange = twin.map(|twin| (twin, leaf, old));
        }
        let Some((twin, leaf, old)) = exchange else {
            let at = block_word(number);
            page.set(at, fingerprint.0 as u64);
            page.set(at + 1, (fingerprint.0 >> 64) as u64);
            slice.fingerprints().note(fingerprint, number);
            return Ok(false);
        };
        // The block before the map: what a map leads to has a reference for it.
        self.share_block(layer, twin.number).await?;
        layer.owned_blocks.fetch_add(1);
        layer.births.fetch_add(1);
        self.note_tag(layer, slice.segments.table.tag(twin.location.segment()));
        leaf.set(slot(index, 0), ThinEntry::of_block(twin.number, layer.id).0);
        self.free(layer, old).await?;
        slice.forks.lending().end();
        Ok(true)
    }

    /// The twin of a block. Nobody relies on either of them to come free when it is overwritten: both are about to be lent.
    async fn twin_to_exchange(&self, wanted: Wanted<'_>, number: BlockNumber) -> Option<Shared> {
        let (slice, mut found) = (&self.slice, vec![(0, self.slice.find(wanted).await?)]);
        slice.forks.lending().begin([number]);
        if slice.buffer.waived_by_now() == 0 {
            self.lend_first(&mut found);
            if let Some((_, Found::Twin(twin))) = found.pop() {
                return Some(twin);
            }
        }
        slice.forks.lending().end();
        None
    }
}
