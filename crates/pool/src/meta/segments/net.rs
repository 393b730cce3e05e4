//! Space in net slabs: what hosts may fill of them, apart from what protects it.

use super::Inner;
use crate::meta::Layouts;
use quoin_base::SegmentId;

impl Inner {
    /// What a segment takes, in net slabs: a copy of metadata takes as much as data with what protects it.
    pub(super) fn net_slabs_of(&self, id: SegmentId) -> u64 {
        let layout = self.layouts.of_data();
        let columns = self.segments[id.0 as usize].stripes.columns.len() as u64;
        columns * u64::from(layout.data()) / u64::from(layout.columns())
    }

    /// What is empty, and not to be used again yet, in net slabs.
    pub(super) fn net_awaiting(&self) -> u64 {
        self.quarantine.iter().map(|waiting| self.net_slabs_of(waiting.id)).sum()
    }

    /// What live data takes, in grains, as if it was laid out as new data is.
    pub(super) fn net_live_grains(&self) -> u64 {
        self.net_live_grains_as(&self.layouts)
    }

    /// The same if new data was laid out so.
    pub(super) fn net_live_grains_as(&self, layouts: &Layouts) -> u64 {
        let net = |(&spread, grains): (&(u8, u8), &u64)| layouts.net_grains(spread, *grains);
        self.live_data_grains.iter().map(net).sum()
    }
}
