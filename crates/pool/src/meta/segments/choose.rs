//! Which drives a new segment gets, and how much free slabs hold.

use super::{Inner, Stream};
use crate::meta::layouts::{Domain, Layouts, net_slabs};
use quoin_base::{DriveIndex, Layout};
use quoin_stripe::Geometry;
use std::{cmp::Reverse, collections::BTreeMap};

impl Inner {
    /// Free slabs that new segments may get, by domain.
    fn free_by_domain(&self) -> BTreeMap<Domain, u64> {
        by_domain(&self.layouts, self.free_slabs.iter().map(|(drive, free)| (*drive, free.len() as u64)))
    }

    /// Free slabs, net.
    pub(super) fn net_free(&self) -> u64 {
        net_slabs(self.free_by_domain().into_values(), self.layouts.of_data())
    }

    /// The same if they were laid out so.
    pub(super) fn net_free_as(&self, layouts: &Layouts) -> u64 {
        let free = self.free_slabs.iter().map(|(drive, free)| (*drive, free.len() as u64));
        net_slabs(by_domain(layouts, free).into_values(), layouts.of_data())
    }

    /// Slabs that the slice holds, net.
    pub(super) fn net_held(&self) -> u64 {
        self.net_held_as(&self.layouts)
    }

    /// The same if they were laid out so.
    pub(super) fn net_held_as(&self, layouts: &Layouts) -> u64 {
        let held = self.held_slabs.iter().map(|(drive, held)| (*drive, *held));
        net_slabs(by_domain(layouts, held).into_values(), layouts.of_data())
    }

    /// How a new segment of a stream is spread, and over which drives other than these: those with the most free slabs, of
    /// the domains with the most. `None`: too few domains have free slabs.
    pub(super) fn choose_drives(
        &self,
        stream: Stream,
        but: &[DriveIndex],
    ) -> Option<(Geometry, Vec<DriveIndex>)> {
        let layout = self.layouts.of(stream.is_metadata());
        // The roomiest drive of each domain, and how much the domain has.
        let mut domains: BTreeMap<Domain, (u64, usize, Reverse<DriveIndex>)> = BTreeMap::new();
        for (drive, free) in
            self.free_slabs.iter().filter(|(drive, free)| !but.contains(drive) && !free.is_empty())
        {
            let Some(domain) = self.layouts.domain(*drive) else { continue };
            let (all, most, roomiest) = domains.entry(domain).or_insert((0, 0, Reverse(*drive)));
            *all += free.len() as u64;
            (*most, *roomiest) = (*most, *roomiest).max((free.len(), Reverse(*drive)));
        }
        let mut domains: Vec<_> = domains.into_values().collect();
        domains.sort_unstable_by_key(|(all, _, drive)| (Reverse(*all), drive.0));
        // Metadata is content with fewer copies than it would like, if there are as many as data has.
        let least = usize::from(self.layouts.of_data().parity().min(layout.parity())) + 1;
        if domains.len() < least {
            return None;
        }
        // As wide as there are domains with free slabs, and never less protected than there are domains for.
        let layout = match domains.len() {
            few if few < usize::from(layout.parity()) + 1 => Layout::mirror(few as u8 - 1),
            enough => layout.within(enough),
        };
        let drives = domains.into_iter().take(layout.columns().into()).map(|(_, _, drive)| drive.0);
        Some((self.layouts.geometry(layout), drives.collect()))
    }
}

fn by_domain(layouts: &Layouts, of_drives: impl Iterator<Item = (DriveIndex, u64)>) -> BTreeMap<Domain, u64> {
    let mut sums = BTreeMap::new();
    for (drive, slabs) in of_drives {
        if let Some(domain) = layouts.domain(drive) {
            *sums.entry(domain).or_default() += slabs;
        }
    }
    sums
}
