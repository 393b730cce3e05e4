//! Ranges of volumes that cannot be read until drives are back: found by going through a volume's map, a part at a time, beside
//! hosts.
//!
//! Nothing is marked when drives are lost, so this asks of each block where it lies, as a read of it would. What is told of a
//! block was so at some moment of the walk: a block that looked lost is looked at once more, first in the buffer and then in
//! the map, since it may have been overwritten, and destaged, in between. RAM is bounded by what a call looks at.

use crate::{
    buffer::Content,
    error::PoolError,
    fork::layer::Layer,
    format::{Location, TREE_FAN_OUT, ThinEntry},
    host::{discard::Reached, read::covered},
    lifecycle::{pool::Pool, slice::Slice},
    maps::{
        blocks::{block_page, entry_in},
        tree::slot,
    },
    meta::{Page, PageId},
};
use quoin_base::{BlockIndex, ByteRange, DriveIndex, SegmentId, VolumeId};
use quoin_stripe::{ColumnSet, StripeSet};
use quoin_world::Compiled;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Leaves looked at in one call: with 8 KiB blocks they map 1 GiB.
const LEAVES_A_CALL: usize = 256;
/// Leaves after which other tasks of the thread have a turn.
const LEAVES_A_TURN: usize = 4;

/// What of a part of a volume cannot be read until drives are back.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RangesAway {
    /// Bytes of the volume, whole pool blocks, ascending; neighbours are one range.
    pub ranges: Vec<ByteRange>,
    /// Absent drives that have something of it as it should be.
    pub drives: BTreeSet<DriveIndex>,
    /// The byte from which on nothing has been looked at; `None` if all has.
    pub next: Option<u64>,
}

/// A segment that lacks more columns than it can do without, as drives are.
struct Lacking {
    set: StripeSet,
    lost: ColumnSet,
}

impl Lacking {
    /// Whether a range of its data cannot be read. Of layouts with parity, what lies in columns that are there can.
    fn hides(&self, range: ByteRange) -> bool {
        let geometry = self.set.geometry;
        let lost = self.lost.both(geometry.data_columns());
        geometry.data == 1 || lost.iter().any(|column| !geometry.column_range(range, column).is_empty())
    }
}

/// Segments that were looked at. Kept for one stay in a reader epoch: so long no id is given out again.
#[derive(Default)]
struct Known(BTreeMap<SegmentId, Option<Lacking>>);

impl Known {
    /// The segment that a location lies in, if what lies there cannot be read.
    fn lacking(&mut self, slice: &Slice, at: Location) -> Option<&Lacking> {
        let found = self.0.entry(at.segment()).or_insert_with(|| {
            let set = slice.segments.table.stripes(at.segment())?;
            let lost = slice.store.lost_columns(&set);
            (lost.len() > usize::from(set.geometry.parity)).then_some(Lacking { set, lost })
        });
        found.as_ref().filter(|lacking| lacking.hides(at.range()))
    }
}

/// What was found so far.
struct Found {
    blocks: BTreeSet<BlockIndex>,
    drives: BTreeSet<DriveIndex>,
    /// Drives that may come back.
    absent: BTreeSet<DriveIndex>,
}

impl Found {
    fn note(&mut self, block: BlockIndex, lacking: &Lacking) {
        self.blocks.insert(block);
        let sound = lacking.lost.without(lacking.set.missing).iter();
        let drives = sound.map(|place| lacking.set.columns[place].drive);
        self.drives.extend(drives.filter(|drive| self.absent.contains(drive)));
    }

    fn ranges(&self, block_bytes: u64) -> Vec<ByteRange> {
        let mut ranges: Vec<ByteRange> = Vec::new();
        for block in &self.blocks {
            let at = block.offset_bytes(block_bytes);
            match ranges.last_mut().filter(|last| last.end() == at) {
                Some(last) => last.len += block_bytes,
                None => ranges.push(ByteRange::new(at, block_bytes)),
            }
        }
        ranges
    }
}

impl Pool {
    /// What of a volume cannot be read until drives are back, from byte `from` on, as far as one call looks: at most 1 GiB of
    /// what is mapped. What is damaged for good is not among it. Each block is told of as it was at some moment of the call.
    ///
    /// # Errors
    /// [`PoolError::NoSuchVolume`]; [`PoolError::Offline`] if the pool is or goes offline.
    pub fn ranges_away(&self, volume: VolumeId, from: u64) -> Compiled<'_, Result<RangesAway, PoolError>> {
        Box::pin(async move { self.slice_of(volume)?.ranges_away(volume, from).await })
    }
}

impl Slice {
    async fn ranges_away(&self, volume: VolumeId, from: u64) -> Result<RangesAway, PoolError> {
        if !self.segments.table.may_be_unreadable() {
            self.confirmed_layer(volume).await?;
            return Ok(RangesAway::default());
        }
        let absent = self.store.absent_drives().collect();
        let mut found = Found { blocks: BTreeSet::new(), drives: BTreeSet::new(), absent };
        let first = BlockIndex(from / self.buffer.block_bytes);
        let (mut at, mut leaves) = (first, 0);
        let next = loop {
            if leaves == LEAVES_A_CALL {
                break Some(at);
            }
            at = match self.leaf_of(volume, at).await? {
                None => break None,
                // Damage is told of by who meets it.
                Some(Reached::Damaged { first, blocks, .. }) => first.plus(blocks),
                Some(Reached::Leaf(start, _)) => {
                    self.away_in_leaf(volume, start.max(first), &mut found).await?;
                    start.plus(TREE_FAN_OUT)
                }
            };
            leaves += 1;
            if leaves % LEAVES_A_TURN == 0 {
                self.world().yield_now().await;
                self.store.health().check()?;
            }
        };
        self.away_in_buffer(volume, first..next.unwrap_or(BlockIndex(u64::MAX)), &mut found).await?;
        let block_bytes = self.buffer.block_bytes;
        let ranges = found.ranges(block_bytes);
        Ok(RangesAway { ranges, drives: found.drives, next: next.map(|at| at.offset_bytes(block_bytes)) })
    }

    /// Notes the blocks of one leaf, from `first` on, that cannot be read.
    async fn away_in_leaf(
        &self,
        volume: VolumeId,
        first: BlockIndex,
        found: &mut Found,
    ) -> Result<(), PoolError> {
        let layer = self.confirmed_layer(volume).await?;
        let _guard = self.enter_readers();
        // It may have become another one since it was found, or be gone.
        let leaf = match self.leaf(&layer, first).await {
            Ok(Some(leaf)) => leaf,
            Ok(None) | Err(PoolError::Corrupt { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let (mut known, mut table) = (Known::default(), None);
        for index in first.until(BlockIndex((first.0 / TREE_FAN_OUT + 1) * TREE_FAN_OUT)) {
            let Some(number) = ThinEntry(leaf.get(slot(index, 0))).block() else { continue };
            let page = self.table_page_of(block_page(number), &mut table).await?;
            let Some(place) = page.and_then(|page| entry_in(page, number)) else { continue };
            if !place.info.is_lost() && known.lacking(self, place.location).is_some() {
                self.note_if_away(&layer, index, &mut known, found).await?;
            }
        }
        Ok(())
    }

    /// A page of the block table, kept for the next block, which most often has its entry there too. `None`: it is damaged, or
    /// gone.
    async fn table_page_of<'a>(
        &self,
        id: PageId,
        kept: &'a mut Option<(PageId, Option<Arc<Page>>)>,
    ) -> Result<Option<&'a Page>, PoolError> {
        if kept.as_ref().is_none_or(|(of, _)| *of != id) {
            let page = match self.metadata.pages.get(id).await {
                Ok(page) => page,
                Err(PoolError::Corrupt { .. }) => None,
                Err(error) => return Err(error),
            };
            *kept = Some((id, page));
        }
        Ok(kept.as_ref().and_then(|(_, page)| page.as_deref()))
    }

    /// Notes blocks that are buffered, and whose content lies on drives all the same: placed there, or shared with what a map
    /// leads to. No map leads to them from this volume yet.
    async fn away_in_buffer(
        &self,
        volume: VolumeId,
        blocks: std::ops::Range<BlockIndex>,
        found: &mut Found,
    ) -> Result<(), PoolError> {
        let layer = self.confirmed_layer(volume).await?;
        for index in self.buffer.blocks_on_drives(&layer, blocks) {
            let _guard = self.enter_readers();
            self.note_if_away(&layer, index, &mut Known::default(), found).await?;
        }
        Ok(())
    }

    /// Notes a block if it cannot be read now. Called within a reader epoch.
    async fn note_if_away(
        &self,
        layer: &Layer,
        index: BlockIndex,
        known: &mut Known,
        found: &mut Found,
    ) -> Result<(), PoolError> {
        // NOTE: the buffer first. What leaves it meanwhile is in the map by then.
        let fragments = self.buffer.shard(layer.block(index)).visible(layer, index).into_owned();
        let mut places = Vec::new();
        for fragment in &fragments {
            match &fragment.content {
                Content::Placed(block) => places.push(block.location),
                Content::Shared(source) => {
                    if let Some(map) = self.forks.layer(source.layer) {
                        places.extend(self.location_of(&map, source.index).await?);
                    }
                }
                Content::Zero | Content::Ram(_) | Content::Journal(_) => {}
            }
        }
        let sectors = self.buffer.sectors_per_block();
        if covered(&fragments, 0, sectors) < sectors {
            places.extend(self.location_of(layer, index).await?);
        }
        if !layer.is_gone() {
            for at in places {
                if let Some(lacking) = known.lacking(self, at) {
                    found.note(index, lacking);
                }
            }
        }
        Ok(())
    }

    /// Where a map leads to for a block; `None` if to nothing, or to what is damaged.
    async fn location_of(&self, layer: &Layer, index: BlockIndex) -> Result<Option<Location>, PoolError> {
        match self.place_of(layer, index).await {
            Ok(place) => Ok(place.filter(|place| !place.info.is_lost()).map(|place| place.location)),
            Err(PoolError::Corrupt { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
