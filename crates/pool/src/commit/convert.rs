//! Conversion: what layers own is moved to segments of the layout that is wanted of it now, in the background.
//!
//! A layer is to be converted when its volume got another layout, when another of the volumes that share it wants a stronger
//! one, or when drives make a layout wider or narrower than it was. Its map is walked, leaf by leaf, through the nodes that it
//! owns: so each of its blocks is met. Those in segments of another layout are moved as the cleaner moves them: only the block
//! table changes.
//!
//! 1. What is destaged during a walk lies right already: destage goes by the volume's layout as it is then. So a walk that has
//!    met every block once is done, unless the layout changed meanwhile or the layer took over another's blocks: then it begins
//!    anew. [`Layer::mixes`] tells.
//! 2. What forks share is moved to the strongest layout that any of them wants, and never to a weaker one. A block to which
//!    there are several references, by range copies or deduplication, is moved to a layout that tolerates as many failures as
//!    the one it has, or as any volume wants, and to no other: nobody knows who else has it.
//! 3. That a layer is converted is recorded by the checkpoint that has its last move, or by a later one. After a crash before
//!    that it is walked again, and what was moved is passed over.
//! 4. A layer counts as uneven from before its first block moves. So what was moved moves back if something else is wanted
//!    again before the walk ends, also where that is what the layer was laid out as before.

use crate::{
    commit::{
        clean::Moved,
        committer::Committer,
        conversions::{Leaves, OwnLeaf, Walk},
        gather::{Allowance, Gathered, LiveBlock},
    },
    error::PoolError,
    fork::layer::Layer,
    format::{CopySource, RowContent, TREE_FAN_OUT, ThinEntry},
    maps::blocks::{BlockPlace, block_page},
    meta::Laid,
    space::Weight,
};
use quoin_base::{BlockIndex, BlockNumber, Layout, PageNumber};
use quoin_world::{Nanos, atomic::Ordering};
use std::{collections::BTreeSet, sync::Arc};

/// The most that a step moves: destage waits meanwhile.
const STEP_BYTES: u64 = 4 << 20;
/// Leaves of a map that a step looks through at the most, with 4 MiB of the volume each.
const STEP_LEAVES: usize = 16;
/// Segments' worth of free slabs that conversion leaves beside those for which the cleaner works.
const KEPT_SEGMENTS: u64 = 2;

impl Committer {
    /// Whether there is anything to convert now.
    pub(super) fn converts(&mut self) -> bool {
        self.look_for_conversions();
        let is_any = self.conversions().is_any();
        self.slice.converting().set_lacks_slabs(is_any && !self.has_slabs_to_convert());
        is_any && self.slice.world().now() >= self.conversions().rests_until
    }

    /// Free slabs that conversion needs beside those for which the cleaner works: so many more it is to clean.
    pub(super) fn slabs_for_conversion(&self) -> u64 {
        if self.known_conversions().is_any() {
            2 * KEPT_SEGMENTS * self.slice.space.overhead().segment()
        } else {
            0
        }
    }

    pub(super) fn has_slabs_to_convert(&self) -> bool {
        let space = &self.slice.space;
        let kept = space.clean_below() + KEPT_SEGMENTS * space.overhead().segment();
        self.slice.segments.table.usage().free_slabs > kept
    }

    /// Finds the layers to be converted, if that may have changed.
    fn look_for_conversions(&mut self) {
        let slice = self.slice.clone();
        let layers = slice.forks.read();
        // In most pools no volume has a layout, and layers that come and go are no reason to look.
        let uneven = layers.uneven.load(Ordering::Acquire);
        if !slice.store.has_volume_layouts() && self.known_conversions().found_none == Some(uneven) {
            return;
        }
        let now = (layers.laid_out.load(Ordering::Acquire), slice.store.layouts().domain_count());
        // A fork takes over how its parent is laid out. If the parent waited for its conversion, the fork is not in the list.
        let is_through = self.known_conversions().has_converted && !self.known_conversions().is_any();
        if self.conversions().looked_at == Some(now) && !is_through {
            return;
        }
        self.conversions().looked_at = Some(now);
        self.conversions().has_converted = false;
        let table = &slice.segments.table;
        let wanted = layers.wanted().into_iter();
        let to_convert = wanted.filter(|(id, wanted)| {
            let layer = layers.all.get(id).filter(|layer| !layer.is_gone());
            layer.is_some_and(|layer| layer.laid() != Laid::As(table.tag_of(*wanted)))
        });
        self.conversions().waiting = to_convert.map(|(id, _)| id).collect();
        slice.converting().set_waiting(self.conversions().waiting.iter().copied());
        self.conversions().found_none = self.known_conversions().waiting.is_empty().then_some(uneven);
    }

    /// Converts some of what is to be converted. False if nothing can be done now.
    pub(super) async fn convert_some(&mut self) -> Result<bool, PoolError> {
        let slice = self.slice.clone();
        // A layer, or where the last step left off.
        let Some((layer, mut walk)) = self.next_to_convert() else { return Ok(false) };
        if !self.has_slabs_to_convert() || self.is_much_due() {
            self.conversions().walk = Some(walk);
            return Ok(false);
        }
        let (began, tag) = (slice.world().now(), walk.tag);
        // The blocks of some leaves that lie otherwise.
        let (mut gathered, mut leaves) = (Gathered::default(), 0);
        let (mut allowance, mut changed) = (self.allowance_to_convert(), BTreeSet::new());
        let mut is_done = false;
        while leaves < STEP_LEAVES && allowance.bytes > 0 {
            let Some(leaf) = self.next_own_leaf(&layer, &mut walk.leaves).await? else {
                is_done = true;
                break;
            };
            leaves += 1;
            let next = self
                .blocks_to_convert(
                    &layer,
                    &leaf,
                    tag,
                    &mut walk,
                    &mut gathered,
                    (&mut allowance, &mut changed),
                )
                .await?;
            walk.leaves.from = next;
            if next < leaf.first.plus(TREE_FAN_OUT) {
                break;
            }
        }
        let mut blocks = gathered.blocks;
        // What takes more room than it does now needs it.
        if self.takes_more(tag, &blocks) && !slice.has_room_to_convert(&layer, blocks.len() as u64) {
            slice.converting().set_lacks_room(true);
            walk.leaves.from = first_of(&blocks, &walk);
            self.conversions().walk = Some(walk);
            return Ok(false);
        }
        slice.converting().set_lacks_room(false);
        // NOTE: before the first move. If something else is wanted again before the walk ends, what was moved must move back.
        if !blocks.is_empty() && layer.gets(tag, &slice.forks.read()) {
            walk.mixes += 1;
        }
        // What can be read goes to its new place.
        let (met, first) = (blocks.len(), first_of(&blocks, &walk));
        self.read_live(&mut blocks).await;
        let moved = self.move_blocks(blocks).await?;
        if moved.unplaced > 0 {
            // What has found a place is not among these when they are met again.
            walk.leaves.from = first;
            self.conversions().walk = Some(walk);
            return Ok(false);
        }
        walk.leaves.is_incomplete |= moved.blocks < met;
        slice.converting().moved(layer.id, walk.met_blocks, moved.bytes);
        if is_done {
            self.end_walk(&layer, walk);
        } else {
            self.conversions().walk = Some(walk);
        }
        self.rest(began);
        self.committed();
        Ok(true)
    }

    /// Whether blocks may take more room with a tag than where they are: also those of volumes that get the pool's layout again
    /// and had a lighter one.
    fn takes_more(&self, tag: Option<Layout>, blocks: &[LiveBlock]) -> bool {
        let slice = &self.slice;
        let is_heavier = Weight::of(tag, slice.store.layout()).is_more() && !blocks.is_empty();
        is_heavier || slice.segments.table.takes_more(tag, blocks.iter().map(|block| block.place.location))
    }

    /// The layer to go on with. `None`: there is none.
    fn next_to_convert(&mut self) -> Option<(Arc<Layer>, Walk)> {
        let slice = self.slice.clone();
        let layers = slice.forks.read();
        let wanted = layers.wanted();
        loop {
            let walk = self.conversions().walk.take();
            let id =
                walk.as_ref().map(|walk| walk.layer).or_else(|| self.conversions().waiting.pop_front())?;
            let Some((layer, wanted)) = layers.all.get(&id).zip(wanted.get(&id)) else {
                slice.converting().ended(id);
                continue;
            };
            // While a fork waits for its map, its parent may get more, and it owns nothing itself.
            if layer.is_pending() || layers.is_below_pending(id) {
                self.conversions().looked_at = None;
                continue;
            }
            let (wanted, tag) = (*wanted, slice.segments.table.tag_of(*wanted));
            if layer.laid() == Laid::As(tag) {
                slice.converting().ended(id);
                continue;
            }
            let is_same = |walk: &Walk| (walk.mixes, walk.wanted, walk.tag) == (layer.mixes(), wanted, tag);
            let mixes = layer.mixes();
            let parities =
                layers.volumes.values().filter_map(|leaf| leaf.volume.layout()).map(Layout::parity);
            let strongest = parities.max().unwrap_or_default().max(slice.store.layout().parity());
            let mut walk = walk.filter(is_same).unwrap_or(Walk {
                layer: id,
                mixes,
                wanted,
                tag,
                strongest,
                met_blocks: 0,
                leaves: Leaves::default(),
            });
            walk.strongest = strongest;
            return Some((layer.clone(), walk));
        }
    }

    /// A walk has met every block.
    fn end_walk(&mut self, layer: &Layer, walk: Walk) {
        let slice = self.slice.clone();
        // NOTE: layouts change under this lock.
        let layers = slice.forks.read();
        slice.converting().ended(layer.id);
        if walk.leaves.is_incomplete {
            tracing::warn!(layer = %layer.id, "some of what is to be laid out otherwise cannot be read, and stays where it is");
        } else if walk.mixes == layer.mixes() {
            layer.set_laid(walk.tag);
            drop(layers);
            self.conversions().has_converted = true;
            slice.requests.catalog_changed();
        } else {
            self.conversions().waiting.push_back(layer.id);
        }
    }

    /// How much a step may move, and how much metadata it may make due.
    pub(super) fn allowance_to_convert(&self) -> Allowance {
        let slice = &self.slice;
        let due_room = slice.space.most_due_bytes().saturating_sub(self.due_bytes());
        let pages = slice.space.table_pages_within(due_room) as usize;
        let bytes = STEP_BYTES.min(slice.options().buffer_bytes / 4).max(slice.buffer.block_bytes);
        Allowance { bytes, pages }
    }

    /// Rests beside hosts for as long as a step took.
    fn rest(&mut self, began: Nanos) {
        let (now, batches) = (self.slice.world().now(), self.slice.log.journal.data_batches());
        let (hosts_write, took) = (batches != self.conversions().data_batches, now.since(began));
        self.conversions().data_batches = batches;
        if hosts_write && !self.slice.store.rate().is_behind(now) {
            self.conversions().rests_until = Nanos(now.0 + took.as_nanos() as u64);
        }
    }

    /// Adds the blocks of a leaf that are to be moved, as far as the allowance goes. Returns where to go on.
    async fn blocks_to_convert(
        &self,
        layer: &Layer,
        leaf: &OwnLeaf,
        tag: Option<Layout>,
        walk: &mut Walk,
        gathered: &mut Gathered,
        (allowance, pages): (&mut Allowance, &mut BTreeSet<PageNumber>),
    ) -> Result<BlockIndex, PoolError> {
        let slice = &self.slice;
        let from = walk.leaves.from.0.saturating_sub(leaf.first.0);
        let unreadable = slice.segments.table.unreadable();
        for slot in from..TREE_FAN_OUT {
            let (index, entry) = (leaf.first.plus(slot), ThinEntry(leaf.page.get(slot as usize)));
            let Some(number) = entry.block().filter(|_| self.is_mine(layer, entry)) else { continue };
            let place = self.place_to_convert(number, tag, walk).await?;
            walk.met_blocks += 1;
            let Some(place) = place.filter(|_| !gathered.has(number)) else { continue };
            // It is converted when drives are back: then there are other domains, and layers are looked at anew.
            if unreadable.contains(&place.location.segment().0) {
                walk.leaves.is_incomplete = true;
                continue;
            }
            if slice.segments.table.suits(slice.segments.table.tag(place.location.segment()), walk.wanted) {
                continue;
            }
            let (len, page) = (place.location.len_bytes(), block_page(number).index);
            if allowance.bytes < len || allowance.pages == 0 && !pages.contains(&page) {
                allowance.bytes = 0;
                walk.met_blocks -= 1;
                return Ok(index);
            }
            allowance.bytes -= len;
            allowance.pages -= usize::from(pages.insert(page));
            let address = CopySource { layer: layer.id, index };
            gathered.push(LiveBlock::new(number, place, address, tag));
        }
        Ok(leaf.first.plus(TREE_FAN_OUT))
    }

    /// Where a block lies, if it lies anywhere and may be moved: the layer alone has it, or all who have it are better off.
    async fn place_to_convert(
        &self,
        number: BlockNumber,
        tag: Option<Layout>,
        walk: &mut Walk,
    ) -> Result<Option<BlockPlace>, PoolError> {
        let slice = &self.slice;
        match slice.block(number).await {
            Ok(place) => Ok(place.filter(|place| {
                let strength = |tag: Option<Layout>| tag.unwrap_or(slice.store.layout()).parity();
                let now = || strength(slice.segments.table.tag(place.location.segment()));
                let is_enough = || strength(tag) >= now().min(walk.strongest);
                !place.location.is_none() && (place.info.count() == 1 || is_enough())
            })),
            Err(error) if slice.store.is_damage(&error).await => {
                walk.leaves.is_incomplete = true;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Moves blocks to rows of the layouts that they name. Returns what was moved: what cannot be read stays where it is, and so
    /// does what drives have no slab for.
    pub(super) async fn move_blocks(&mut self, mut blocks: Vec<LiveBlock>) -> Result<Moved, PoolError> {
        self.repack(&mut blocks).await?;
        self.move_as_they_are(blocks).await
    }

    /// The same without a try to make them shorter.
    pub(super) async fn move_as_they_are(&mut self, mut blocks: Vec<LiveBlock>) -> Result<Moved, PoolError> {
        let slice = self.slice.clone();
        self.sort_by_address(&mut blocks);
        let opens_from = self.opens_from(slice.space.clean_from());
        self.rows.cleaned.open_from(opens_from);
        let mut moves = Vec::with_capacity(blocks.len());
        let mut moved = Moved::default();
        for LiveBlock { number, place, address, stored, layout, becomes } in blocks {
            let Some(stored) = stored else { continue };
            assert!(
                stored.len() as u64 == place.location.len_bytes() || becomes != place.info,
                "block {number} is moved as long as it is"
            );
            let (content, generation) = (RowContent::block(number, address), self.first_without());
            let rows = &mut self.rows.cleaned;
            let Some(location) = rows.place(&slice.segments, layout, content, stored.len(), generation)
            else {
                self.lack(opens_from)?;
                moved.unplaced += 1;
                continue;
            };
            moved.blocks += 1;
            moved.bytes += stored.len() as u64;
            self.rows.cleaned.push_data(stored);
            moves.push((number, place, BlockPlace { location, info: becomes }));
        }
        // NOTE: rows before the block table. Readers go where the table says.
        let rows = self.rows.cleaned.finish(&slice.segments);
        self.publish_moves_early(&moves).await?;
        moved.written_bytes = slice.write_rows(rows).await?;
        self.publish_moves_last(&moves).await?;
        Ok(moved)
    }
}

/// Where a walk goes on that is to meet these again.
fn first_of(blocks: &[LiveBlock], walk: &Walk) -> BlockIndex {
    blocks.iter().map(|block| block.address.index).min().unwrap_or(walk.leaves.from)
}
