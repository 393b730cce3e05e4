//! Places for what is destaged: a block number each, and a place in a row for data.

use crate::{
    buffer::{BlockKey, TakenBlock},
    bugs::{Bug, planted},
    commit::{
        committer::Committer,
        composed::{Composed, Composition, Form},
        slabs::Lack,
    },
    error::PoolError,
    fork::layer::Layer,
    format::{BlockInfo, CopySource, Location, RowContent},
    maps::blocks::BlockPlace,
    segment::packed::Whole,
};
use quoin_base::{BlockNumber, LayerId, Layout};
use quoin_world::atomic::Ordering;
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
    New(BlockPlace),
    /// A block that there is, which this layer owns too.
    Shared(LayerId),
}

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
        let mut unplaced = BTreeSet::new();
        for (at, block) in composed.iter().enumerate() {
            // Only data needs a place in a row. What was placed has one, and what is shared has that of its source.
            let place = match &block.content {
                Composition::Unmapped | Composition::Unread { .. } => None,
                Composition::Shared { number, owner } => {
                    Some(Placed { number: *number, is: Placement::Shared(*owner) })
                }
                Composition::Placed { block: placed, number } => {
                    self.note_tag(block, self.slice.segments.table.tag(placed.location.segment()));
                    let info = BlockInfo::new(placed.crc, 1, BlockInfo::PLAIN);
                    let place = BlockPlace { location: placed.location, info };
                    Some(Placed { number: *number, is: Placement::New(place) })
                }
                Composition::Lost => {
                    let place =
                        BlockPlace { location: Location(0), info: BlockInfo::new(0, 1, BlockInfo::LOST) };
                    Some(Placed { number: self.take_block_number().await?, is: Placement::New(place) })
                }
                Composition::Data(whole, form) => {
                    any_data = true;
                    let placed = self.place_whole(block, (whole, form), &mut tag).await?;
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
        self.note_lack(any_data.then_some(lack));
        Ok((places, lack))
    }

    /// A place for a whole block; `None` if there is no slab for it.
    async fn place_whole(
        &mut self,
        block: &Composed,
        (whole, form): (&Whole, &Form),
        tag_of: &mut Tag,
    ) -> Result<Option<Placed>, PoolError> {
        let (number, generation) = (self.take_block_number().await?, self.first_without());
        let BlockKey { layer, index, .. } = block.taken.key;
        let tag = match *tag_of {
            Some((of, tag)) if of == layer => tag,
            _ => {
                let wanted = block.layer.as_ref().and_then(|layer| layer.volume.layout());
                let tag = self.slice.segments.table.tag_of(wanted);
                self.note_tag(block, tag);
                tag
            }
        };
        *tag_of = Some((layer, tag));
        let content = RowContent::block(number, CopySource { layer, index });
        let (stored, info) = match form {
            Form::Untried | Form::Hasty | Form::Incompressible => {
                (&whole.data, BlockInfo::new(whole.crc, 1, BlockInfo::PLAIN))
            }
            Form::Packed(packed) => (&packed.stored, BlockInfo::new(packed.crc, 1, packed.algorithm)),
        };
        let len = stored.len();
        let Some(location) = self.rows.data.place(&self.slice.segments, tag, content, len, generation) else {
            self.blocks.numbers.put_back(number);
            return Ok(None);
        };
        self.rows.data.push_data(stored.clone());
        Ok(Some(Placed { number, is: Placement::New(BlockPlace { location, info }) }))
    }

    /// All others have a turn before it is tried again.
    fn put_unplaced_back(&mut self, taken: &TakenBlock) {
        self.slice.buffer.put_back(taken, self.slice.log.journal.newest_sequence());
        self.retries.note_unplaced(taken.key, true);
    }

    /// Notes that the layer of a block gets something in a segment with this tag. If that is not how the rest of it is laid out,
    /// because drives allow another layout than before, it is looked through even if drives are as before by then.
    fn note_tag(&self, block: &Composed, tag: Option<Layout>) {
        let layers = self.slice.forks.read();
        let gets = |layer: &Arc<Layer>| !planted(Bug::PublishAsPlaced) && layer.gets(tag, &layers);
        if block.layer.as_ref().is_some_and(gets) {
            layers.laid_out.fetch_add(1, Ordering::AcqRel);
        }
    }
}
