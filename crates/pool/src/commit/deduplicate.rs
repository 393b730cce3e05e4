//! Deduplication: a block that has the content of one that there is becomes a reference to that, its *twin*.
//!
//! Workers make the fingerprint of each block and ask which blocks may have the same: see [`Fingerprints`]. The block table then
//! says which of them do. A block is not packed before that is known.
//!
//! 1. A twin is looked for when everything of the batches before is published, and nothing but this batch changes the block table
//!    until it is published in turn.
//! 2. All references that a batch adds to blocks of before are added before it drops any: a block of the batch may replace the last
//!    reference to what is another's twin. No checkpoint is cut in between.
//! 3. A twin is laid out as the volume wants it, on drives that are all there: what is written now is not protected worse by it.
//! 4. Once a block is shared, overwriting it takes space. Hosts may have been told that it takes none: see [`Buffer::waive`]. So
//!    while any such write waits in the buffer, only blocks with several references are twins.
//! 5. What a batch itself brings several times is written once: see `place.rs`.
//!
//! [`Fingerprints`]: crate::maps::fingerprints::Fingerprints
//! [`Buffer::waive`]: crate::buffer::Buffer::waive

use crate::{
    bugs::{Bug, planted},
    commit::{
        chunk::Looks,
        committer::Committer,
        composed::{Composed, Composition, Fresh, Shared},
        destage::PARALLEL,
    },
    error::PoolError,
    fork::layer::Layer,
    format::{BlockInfo, ThinEntry},
    lifecycle::slice::Slice,
    maps::{
        blocks::{BlockPlace, block_page, entry_in, fingerprint_in},
        dropped::is_among,
        tree::slot,
    },
    segment::packed::Whole,
};
use futures_util::{StreamExt, stream};
use quoin_base::{BlockIndex, BlockNumber, Layout};
use quoin_reduction::Fingerprint;

/// A block that is looked for.
pub(super) struct Wanted<'a> {
    pub layer: &'a Layer,
    pub index: BlockIndex,
    pub whole: &'a Whole,
    pub fingerprint: Fingerprint,
}

/// What was found in place of a block.
pub(super) enum Found {
    /// The map leads to a block with this content already.
    Kept,
    Twin(Shared),
}

impl Found {
    /// The number of a twin that has one reference.
    fn alone(&self) -> Option<BlockNumber> {
        let Self::Twin(Shared { number, page, .. }) = self else { return None };
        entry_in(page, *number).filter(|place| place.info.count() == 1).map(|_| *number)
    }
}

impl Committer {
    /// Makes references of the blocks that have a twin, and reduces those that have none.
    pub(super) async fn deduplicate(&mut self, batch: &mut [Option<Composed>]) -> Result<(), PoolError> {
        let mut found = self.find_twins(batch).await;
        self.lend_first(&mut found);
        for (at, found) in found {
            let Some(block) = &mut batch[at] else { continue };
            self.slice.counters.destage.reduction.deduplicated_blocks.add(1);
            block.content = match found {
                Found::Kept => Composition::Kept,
                Found::Twin(twin) => Composition::Shared(twin),
            };
        }
        self.reduce_rest(batch, || Looks::over(self.effort())).await?;
        // What range copies share, too.
        for block in batch.iter().flatten() {
            if let (Composition::Shared(Shared { number, .. }), Some(layer)) = (&block.content, &block.layer)
                && !planted(Bug::ReferLate)
            {
                self.share_block(layer, *number).await?;
            }
        }
        self.slice.forks.lending().end();
        Ok(())
    }

    async fn find_twins(&self, batch: &[Option<Composed>]) -> Vec<(usize, Found)> {
        let slice = &self.slice;
        let wanted = batch.iter().enumerate().filter_map(|(at, block)| Some((at, wanted(block.as_ref()?)?)));
        let looks: Vec<_> = wanted
            .map(|(at, wanted)| async move { slice.find(wanted).await.map(|found| (at, found)) })
            .collect();
        let found: Vec<_> = stream::iter(looks).buffer_unordered(PARALLEL).collect().await;
        found.into_iter().flatten().collect()
    }

    /// Begins to lend the twins that have one reference, unless a host relies on one of them to come free: then they are left out.
    pub(super) fn lend_first(&self, found: &mut Vec<(usize, Found)>) {
        let (lending, buffer) = (self.slice.forks.lending(), &self.slice.buffer);
        let alone: Vec<_> = found.iter().filter_map(|(_, found)| found.alone()).collect();
        if alone.is_empty() || planted(Bug::LendWhenFull) {
            return;
        }
        // NOTE: begun first. Who admits a write from here on knows of it, and who did before is counted.
        lending.begin(alone);
        if buffer.waived_by_now() > 0 {
            lending.end();
            found.retain(|(_, found)| found.alone().is_none());
        }
    }
}

/// What is looked for in place of a block that is deduplicated.
fn wanted(block: &Composed) -> Option<Wanted<'_>> {
    let Fresh { whole, fingerprint, .. } = block.fresh()?;
    let (layer, index) = (block.layer.as_ref()?, block.taken.key.index);
    Some(Wanted { layer, index, whole, fingerprint: (*fingerprint)? })
}

impl Slice {
    /// The block that has this content, if there is one that can be shared.
    pub(super) async fn find(&self, wanted: Wanted<'_>) -> Option<Found> {
        let numbers: Vec<BlockNumber> = self.fingerprints().find(wanted.fingerprint).collect();
        for number in numbers.into_iter().filter(|number| self.fingerprints().trusts(*number)) {
            let Some(twin) = self.twin(number, &wanted).await else { continue };
            self.fingerprints().hit(wanted.fingerprint, number);
            // What cannot be read is dealt with when it is changed.
            let leaf = self.leaf(wanted.layer, wanted.index).await.ok().flatten();
            let old = leaf.and_then(|leaf| ThinEntry(leaf.get(slot(wanted.index, 0))).block());
            if old != Some(number) {
                return Some(Found::Twin(twin));
            }
            // Who writes a block again as it was may do so because it cannot be read.
            if self.is_sound(&twin).await {
                return Some(Found::Kept);
            }
            self.fingerprints().distrust(number);
        }
        None
    }

    /// Whether a block can be read as it is to be.
    async fn is_sound(&self, twin: &Shared) -> bool {
        let Some(place) = entry_in(&twin.page, twin.number) else { return false };
        let read = self.segments.io.read(place.location).await;
        read.is_ok_and(|stored| place.info.verifies(&stored))
    }

    /// A block, if it has this content and can be shared. What cannot be read is nobody's twin.
    async fn twin(&self, number: BlockNumber, wanted: &Wanted<'_>) -> Option<Shared> {
        let page = self.metadata.pages.get(block_page(number)).await.ok().flatten()?;
        let place = entry_in(&page, number)?;
        let is_same = fingerprint_in(&page, number) == Some(wanted.fingerprint) || planted(Bug::TrustIndex);
        let is_possible = place.info.algorithm() != BlockInfo::PLAIN || place.info.crc() == wanted.whole.crc;
        if !is_same
            || !is_possible
            || !place.may_be_shared()
            || !self.lies_well(&place, wanted.layer.volume.layout())
            // Of what damaged pages of maps led to nobody may be there.
            || place.info.bearer().is_some_and(|bearer| self.forks.owner_of(bearer).is_none())
        {
            return None;
        }
        // One of which that cannot be read may be.
        let dropped = self.metadata.pages.dropped_of(block_page(number).index).await;
        let is_dropped = dropped.map_or(true, |dropped| is_among(dropped, number));
        (!is_dropped || planted(Bug::ShareDropped)).then_some(Shared {
            number,
            location: place.location,
            page,
        })
    }

    /// Whether a block lies as a volume with this layout wants it, and nothing is known to be wrong with that.
    fn lies_well(&self, place: &BlockPlace, layout: Option<Layout>) -> bool {
        let (segment, table) = (place.location.segment(), &self.segments.table);
        !place.location.is_none()
            && !place.info.is_lost()
            && table.suits(table.tag(segment), layout)
            && table.is_whole(segment)
    }
}
