//! The emptiest segments, for the cleaner: they are found without going through all.
//!
//! The index follows the table: code that changes what a segment is listed by calls [`Index::list`] under the same lock.

use super::{Segment, SegmentState, SegmentTable};
use crate::format::GRAIN_BYTES;
use quoin_base::SegmentId;
use quoin_stripe::Geometry;
use std::collections::BTreeSet;

/// Segments whose live data differs by no more lie in one bucket: most changes leave a segment where it is.
const BUCKET_GRAINS: u32 = 2048;

/// Segments by bucket, and then by id.
type Buckets = BTreeSet<(u32, u32)>;

/// Where a segment is listed: the bucket, if the cleaner may take it on, and whether it holds metadata.
type Listed = Option<(u32, bool)>;

#[derive(Default)]
pub(super) struct Index {
    listed: Vec<Listed>,
    data: Buckets,
    metadata: Buckets,
}

impl Index {
    /// Lists a segment as it is now.
    pub(super) fn list(&mut self, id: u32, segment: &Segment) {
        let now = segment
            .may_be_cleaned()
            .then(|| (segment.live_of_slab() / BUCKET_GRAINS, segment.stream.is_metadata()));
        if self.listed.len() <= id as usize {
            self.listed.resize(id as usize + 1, Listed::default());
        }
        let before = std::mem::replace(&mut self.listed[id as usize], now);
        if before != now {
            if let Some((bucket, is_metadata)) = before {
                self.buckets(is_metadata).remove(&(bucket, id));
            }
            if let Some((bucket, is_metadata)) = now {
                self.buckets(is_metadata).insert((bucket, id));
            }
        }
    }

    fn buckets(&mut self, of_metadata: bool) -> &mut Buckets {
        if of_metadata { &mut self.metadata } else { &mut self.data }
    }

    /// The segment with the least live data in a slab of it, at most so many grains, of those with data or with metadata.
    /// `live`: how much one has; `None` if it is not wanted.
    pub(super) fn emptiest(
        &self,
        of_metadata: bool,
        most_grains: u32,
        live: impl Fn(u32) -> Option<u32>,
    ) -> Option<(u32, u32)> {
        let buckets = if of_metadata { &self.metadata } else { &self.data };
        let mut least: Option<(u32, u32)> = None;
        for &(bucket, id) in buckets {
            let is_beyond = |(live, _): (u32, u32)| bucket > live / BUCKET_GRAINS;
            if bucket > most_grains / BUCKET_GRAINS || least.is_some_and(is_beyond) {
                break;
            }
            if let Some(live) = live(id).filter(|live| *live <= most_grains) {
                least = Some(least.map_or((live, id), |least| least.min((live, id))));
            }
        }
        least
    }
}

impl SegmentTable {
    /// The sealed segment with the least live data in a slab, `but` excepted, if it is worth cleaning: data segments unless
    /// they are as full as segments that are spread like them get, metadata segments when they are half as full, for
    /// checkpoints fill them as they come.
    pub(crate) fn emptiest(&self, but: &BTreeSet<u32>, block_bytes: u64) -> Option<(SegmentId, Segment)> {
        let inner = self.inner.read();
        let most_grains = |geometry, of_metadata| {
            (self.most_live_bytes(geometry, block_bytes) / if of_metadata { 2 } else { 1 } / GRAIN_BYTES)
                as u32
        };
        let live = |id: u32| {
            let segment = &inner.segments[id as usize];
            let (live, geometry) = (segment.live_of_slab(), segment.stripes.geometry);
            let is_worth_it = live <= most_grains(geometry, segment.stream.is_metadata());
            (is_worth_it && !but.contains(&id)).then_some(live)
        };
        let layouts = &inner.layouts;
        let now = layouts.others().map(Some).chain([None]).map(|layout| layouts.now(layout));
        let geometries: Vec<Geometry> =
            now.chain([layouts.of_metadata()]).map(|layout| layouts.geometry(layout)).collect();
        let most = |m: bool| geometries.iter().map(|geometry| most_grains(*geometry, m)).max().unwrap_or(0);
        let emptiest = [false, true].map(|m| inner.index.emptiest(m, most(m), live));
        let found = emptiest.into_iter().flatten().min();
        debug_assert_eq!(
            found,
            (1u32..)
                .zip(&inner.segments[1..])
                .filter(|(_, s)| s.may_be_cleaned() && s.live_of_slab() <= most(s.stream.is_metadata()))
                .filter_map(|(id, _)| live(id).map(|live| (live, id)))
                .min(),
            "the index and the segments differ"
        );
        let (_, id) = found?;
        Some((SegmentId(id), inner.segments[id as usize].clone()))
    }
}

impl Segment {
    /// What is live in each of its slabs with data, on average, in grains.
    fn live_of_slab(&self) -> u32 {
        self.live_grains.div_ceil(self.stripes.geometry.data.into())
    }

    /// What is placed there may yet become live, and what a record names keeps its place.
    pub(super) fn may_be_cleaned(&self) -> bool {
        self.state == SegmentState::Sealed && self.placed_grains == 0 && self.last_placed.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::{Stream, segments::free_segment};
    use std::cell::Cell;

    fn sealed(live_grains: u32, stream: Stream) -> Segment {
        Segment { state: SegmentState::Sealed, stream, live_grains, ..free_segment() }
    }

    #[test]
    fn one_segment_of_hundreds_is_looked_at() {
        for count in [1_000u32, 100_000] {
            let mut index = Index::default();
            let live = |id: u32| id.wrapping_mul(2_654_435_761) % (1 << 20);
            for id in 1..=count {
                let stream = if id.is_multiple_of(10) { Stream::Meta } else { Stream::Data };
                index.list(id, &sealed(live(id), stream));
            }
            let wanted = |id: &u32| !id.is_multiple_of(10) && !id.is_multiple_of(3);
            let looked = Cell::new(0);
            let found = index.emptiest(false, 640_000, |id| {
                looked.set(looked.get() + 1);
                wanted(&id).then(|| live(id))
            });
            assert_eq!(found, (1..=count).filter(wanted).map(|id| (live(id), id)).min(), "{count}");
            assert!(
                looked.get() <= 3 * count.div_ceil((1 << 20) / BUCKET_GRAINS),
                "{count}: {}",
                looked.get()
            );
        }
    }

    #[test]
    fn a_segment_is_listed_as_what_it_is() {
        let mut index = Index::default();
        let data = |index: &Index, live| index.emptiest(false, 20_000, |_| Some(live));
        index.list(5, &sealed(1000, Stream::Data));
        assert_eq!(data(&index, 1000), Some((1000, 5)));
        assert_eq!(index.emptiest(false, 999, |_| Some(1000)), None);
        assert_eq!(index.emptiest(true, 20_000, |_| Some(1000)), None);
        index.list(5, &sealed(3, Stream::Data));
        assert_eq!(data(&index, 3), Some((3, 5)));
        index.list(5, &Segment { placed_grains: 1, ..sealed(3, Stream::Placed) });
        assert_eq!(data(&index, 3), None);
        index.list(5, &sealed(3, Stream::Meta));
        assert_eq!(index.emptiest(true, 20_000, |_| Some(3)), Some((3, 5)));
        index.list(5, &free_segment());
        assert_eq!(index.emptiest(true, 20_000, |_| Some(3)), None);
    }
}
