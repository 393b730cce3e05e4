//! Places for what is destaged: a block number each, and a place in a row for data.

use crate::{
    buffer::{BlockKey, TakenBlock},
    bugs::{Bug, planted},
    commit::{
        committer::Committer,
        composed::{Composed, Composition, Form, Fresh, Shared},
        slabs::Lack,
    },
    error::PoolError,
    fork::layer::Layer,
    format::{BlockInfo, CopySource, Location, RowContent},
    maps::blocks::BlockPlace,
};
use hashbrown::HashMap;
use quoin_base::{BlockNumber, Compression, LayerId, Layout};
use quoin_reduction::Fingerprint;
use rustc_hash::FxBuildHasher;
use std::{collections::BTreeSet, sync::Arc};

/// A block number and what it stands for.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    pub number: BlockNumber,
    pub is: Placement,
}

#[derive(Clone, Copy)]
pub(super) enum Placement {
    /// A new block, whose entry will say this.
    New(BlockPlace, Option<Fingerprint>),
    /// A block that there is.
    Shared,
    /// A block that comes earlier in the batch.
    Repeated,
}

impl Placement {
    /// Whether overwriting it takes space: others have the block, too.
    pub(super) fn is_lent(&self) -> bool {
        match self {
            Self::New(place, _) => place.info.is_lent(),
            Self::Shared | Self::Repeated => true,
        }
    }
}

/// Contents that a batch brings, by fingerprint and how the segments of each are tagged: the block, and how often it is there.
type Brought = HashMap<(Fingerprint, Option<Layout>), (BlockNumber, u32), FxBuildHasher>;

/// How segments of a layer are tagged that what is placed goes to: blocks of a layer are together.
type Tag = Option<(LayerId, Option<Layout>)>;

impl Committer {
    /// Plans rows for the data, under new block numbers. In the order of `composed`; `None` for what needs no
    /// block. What there is no slab for goes back into the buffer; what it lacks is returned.
    pub(super) async fn place(
        &mut self,
        composed: &mut Vec<Composed>,
    ) -> Result<(Vec<Option<Placed>>, Lack), PoolError> {
        let place_from = self.slice.space.place_from();
        let mut opens_from = self.opens_from(place_from);
        self.rows.data.spread_over(self.slice.spread());
        self.rows.data.open_from(opens_from);
        let mut places = Vec::with_capacity(composed.len());
        let (mut lack, mut any_data, mut tag) = (Lack::Nothing, false, None);
        let (mut unplaced, mut brought) = (BTreeSet::new(), Brought::default());
        for (at, block) in composed.iter().enumerate() {
            // Only data needs a place in a row. What was placed has one, and what is shared has that of its source.
            let place = match &block.content {
                Composition::Unmapped | Composition::Unread { .. } | Composition::Kept => None,
                Composition::Shared(Shared { number, location, .. }) => {
                    if !location.is_none() {
                        self.note_tag_of(block, self.slice.segments.table.tag(location.segment()));
                    }
                    Some(Placed { number: *number, is: Placement::Shared })
                }
                Composition::Placed { block: placed, number } => {
                    let location = placed.location;
                    self.note_tag_of(block, self.slice.segments.table.tag(location.segment()));
                    let is_compressed = |layer: &Arc<Layer>| layer.volume.compression() != Compression::Off;
                    if block.layer.as_ref().is_some_and(is_compressed) {
                        self.note_hasty(location);
                    }
                    let info = BlockInfo::new(placed.crc, block.borne(), BlockInfo::PLAIN);
                    let is = Placement::New(BlockPlace { location, info }, None);
                    Some(Placed { number: *number, is })
                }
                Composition::Lost => Some(self.place_lost(block).await?),
                Composition::Data(fresh) => {
                    any_data = true;
                    let placed = self.place_fresh(block, fresh, &mut tag, &mut brought).await?;
                    if placed.is_none() {
                        // A drive may have been lost since.
                        opens_from = self.opens_from(place_from);
                        self.rows.data.open_from(opens_from);
                        lack = lack.max(self.lack(opens_from)?);
                        self.put_unplaced_back(&block.taken);
                        unplaced.insert(at);
                        continue;
                    }
                    placed
                }
            };
            self.retries.note_unplaced(block.taken.key, false);
            places.push(place);
        }
        if !unplaced.is_empty() {
            let mut at = 0..;
            composed.retain(|_| at.next().is_some_and(|at| !unplaced.contains(&at)));
        }
        count_repeated(&mut places, &brought);
        self.note_lack(any_data.then_some(lack));
        Ok((places, lack))
    }

    /// A number for a block of which nothing can be read.
    async fn place_lost(&mut self, block: &Composed) -> Result<Placed, PoolError> {
        let info = BlockInfo::new(0, block.borne(), BlockInfo::LOST);
        let place = BlockPlace { location: Location(0), info };
        Ok(Placed { number: self.take_block_number().await?, is: Placement::New(place, None) })
    }

    /// A place for a block; `None` if there is no slab for it. What the batch brings already has one.
    async fn place_fresh(
        &mut self,
        block: &Composed,
        fresh: &Fresh,
        tag_of: &mut Tag,
        brought: &mut Brought,
    ) -> Result<Option<Placed>, PoolError> {
        let BlockKey { layer, index, .. } = block.taken.key;
        let tag = match *tag_of {
            Some((of, tag)) if of == layer => tag,
            _ => {
                let wanted = block.layer.as_ref().and_then(|layer| layer.volume.layout());
                let tag = self.slice.segments.table.tag_of(wanted);
                self.note_tag_of(block, tag);
                tag
            }
        };
        *tag_of = Some((layer, tag));
        let same = fresh.fingerprint.and_then(|fingerprint| brought.get_mut(&(fingerprint, tag)));
        if let Some((number, count)) = same {
            *count += 1;
            self.slice.counters.destage.reduction.deduplicated_blocks.add(1);
            return Ok(Some(Placed { number: *number, is: Placement::Repeated }));
        }
        let (number, generation) = (self.take_block_number().await?, self.first_without());
        let content = RowContent::block(number, CopySource { layer, index });
        let (stored, crc, algorithm) = fresh.stored();
        let len = stored.len();
        let Some(location) = self.rows.data.place(&self.slice.segments, tag, content, len, generation) else {
            self.blocks.numbers.put_back(number);
            return Ok(None);
        };
        self.rows.data.push_data(stored.clone());
        if matches!(fresh.form, Form::Hasty) {
            self.note_hasty(location);
        }
        if let Some(fingerprint) = fresh.fingerprint {
            brought.insert((fingerprint, tag), (number, 1));
        }
        let info = BlockInfo::new(crc, block.borne(), algorithm);
        let is = Placement::New(BlockPlace { location, info }, fresh.fingerprint);
        Ok(Some(Placed { number, is }))
    }

    /// All others have a turn before it is tried again.
    fn put_unplaced_back(&mut self, taken: &TakenBlock) {
        self.slice.buffer.put_back(taken, self.slice.log.journal.newest_sequence());
        self.retries.note_unplaced(taken.key, true);
    }

    /// Notes that a layer gets something in a segment with this tag. If that is not how the rest of it is laid out,
    /// because drives allow another layout than before, it is looked through even if drives are as before by then.
    pub(super) fn note_tag(&self, layer: &Layer, tag: Option<Layout>) {
        let layers = self.slice.forks.read();
        if !planted(Bug::PublishAsPlaced) && layer.gets(tag, &layers) {
            layers.became_uneven();
        }
    }

    /// Notes that a block of a compressed volume is stored there as it is, to be packed later.
    fn note_hasty(&mut self, location: Location) {
        let slice = self.slice.clone();
        self.reductions().hasty.note(&slice.segments.table, location.segment(), location.len_bytes());
    }

    fn note_tag_of(&self, block: &Composed, tag: Option<Layout>) {
        if let Some(layer) = &block.layer {
            self.note_tag(layer, tag);
        }
    }
}

/// New blocks that a batch brings several times have as many references from the beginning.
fn count_repeated(places: &mut [Option<Placed>], brought: &Brought) {
    let counts = brought.values().filter(|(_, count)| *count > 1).copied();
    let repeated: HashMap<BlockNumber, u32, FxBuildHasher> = counts.collect();
    for Placed { number, is } in places.iter_mut().flatten() {
        if let (Placement::New(place, _), Some(count)) = (is, repeated.get(number)) {
            place.info = place.info.counted(*count);
        }
    }
}
