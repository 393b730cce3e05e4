//! What segments are tagged with: the layout that they were opened for, as drives allowed it then. Segments of the pool's layout
//! have no tag.
//!
//! The tag is not how a segment is spread: that may be narrower, where domains had no free slabs.

use super::{Segment, SegmentTable};
use crate::format::Location;
use quoin_base::{Layout, SegmentId};

impl SegmentTable {
    /// What new data of a volume with this layout is tagged with: the layout as drives allow it now. `None`: the pool's.
    pub(crate) fn tag_of(&self, layout: Option<Layout>) -> Option<Layout> {
        layout.map(|_| self.inner.read().layouts.now(layout))
    }

    /// Whether what lies in a segment with this tag lies as a volume with this layout wants it: see [`Layouts::suits`].
    pub(crate) fn suits(&self, tag: Option<Layout>, layout: Option<Layout>) -> bool {
        self.inner.read().layouts.suits(tag, layout)
    }

    /// Whether what lies at these places takes more, as space is reckoned, in segments with this tag.
    pub(crate) fn takes_more(&self, tag: Option<Layout>, places: impl Iterator<Item = Location>) -> bool {
        let inner = self.inner.read();
        let to = inner.layouts.now(tag);
        let (mut now, mut then) = (0, 0);
        for at in places {
            let grains = u64::from(at.counted_grains());
            let is = inner.segments.get(at.segment().0 as usize).map(Segment::spread);
            now += is.map_or(0, |spread| inner.layouts.net_grains(spread, grains));
            then += inner.layouts.net_grains((to.data(), to.parity()), grains);
        }
        then > now
    }

    /// The tag of a segment that is in use.
    pub(crate) fn tag(&self, id: SegmentId) -> Option<Layout> {
        let inner = self.inner.read();
        inner.segments.get(id.0 as usize).and_then(|segment| segment.layout)
    }
}
