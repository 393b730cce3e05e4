//! Fragments: sectors of one block that were last written by one record.

use super::{JournalSource, received::Received};
use crate::{format::CopySource, journal::Batch, segment::placed_block::PlacedBlock};
use quoin_base::Sequence;
use std::{ops::Range, sync::Arc};

/// RAM that a fragment is counted with beside its data: itself, its block's places in the map and in the queue, each as
/// sparse as it may get, and what the allocator adds.
pub(crate) const HELD_BYTES: u64 = 256;
const _: () = assert!(size_of::<Fragment>() <= 112);
/// RAM that a region is counted with of which blocks are held by themselves: its place in the index, as sparse as it may get.
pub(crate) const INDEX_BYTES: u64 = 80;

/// Where a fragment's content is.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Zero,
    Ram(Received),
    Journal(JournalSource),
    /// In a row, as a whole block of which the fragment is the same sectors.
    Placed(Arc<PlacedBlock>),
    /// What a map leads to at this block, of which the fragment is the same sectors.
    Shared(CopySource),
}

/// Sectors of one block that were last written by one record.
#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    /// First sector within the block, and how many.
    pub start: u16,
    pub sectors: u16,
    pub sequence: Sequence,
    /// The tail must not pass this while the fragment is not hardened.
    pub(super) pin: Sequence,
    pub batch: Arc<Batch>,
    pub content: Content,
}

impl Fragment {
    pub(crate) fn end(&self) -> u16 {
        self.start + self.sectors
    }

    pub(super) fn pinned(&self) -> Sequence {
        if self.batch.is_hardened() { self.sequence } else { self.pin }
    }

    /// The part of it that lies in `start..end`.
    pub(super) fn part(&self, start: u16, end: u16) -> Option<Fragment> {
        let (from, to) = (self.start.max(start), self.end().min(end));
        if from >= to {
            return None;
        }
        Some(Fragment { start: from, sectors: to - from, ..self.clone() })
    }
}

/// The sectors of a block that these fragments leave open.
pub(super) fn gaps(fragments: &[Fragment]) -> impl Iterator<Item = Range<u16>> {
    let mut taken: Vec<Range<u16>> = fragments.iter().map(|e| e.start..e.end()).collect();
    taken.push(u16::MAX..u16::MAX);
    taken.sort_unstable_by_key(|range| range.start);
    let mut at = 0;
    let gaps = taken.into_iter().map(move |range| std::mem::replace(&mut at, range.end)..range.start);
    gaps.filter(|gap| !gap.is_empty())
}

/// RAM that is held more with a fragment of this content.
pub(super) fn hold(content: &Content) -> u64 {
    match content {
        Content::Ram(received) => HELD_BYTES + received.hold(),
        Content::Zero | Content::Journal(_) | Content::Placed(_) | Content::Shared(_) => HELD_BYTES,
    }
}

/// RAM that is held less without it.
pub(super) fn release(content: &Content) -> u64 {
    match content {
        Content::Ram(received) => HELD_BYTES + received.release(),
        Content::Zero | Content::Journal(_) | Content::Placed(_) | Content::Shared(_) => HELD_BYTES,
    }
}
