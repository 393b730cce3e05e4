//! Which drives a new segment gets, and how much free slabs hold.

use super::{Inner, Stream};
use crate::meta::layouts::{Domain, Layouts, net_slabs};
use quoin_base::{DriveIndex, Layout, SegmentGeneration};
use quoin_stripe::{Column, Geometry};
use std::{
    cmp::Reverse,
    collections::BTreeMap,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
};

/// Of domains whose free slabs differ by no more than so many chance decides, and by no more than this part of what they have.
/// Otherwise those that are a slab ahead would always be chosen together.
const NEARLY_AS_MANY: u64 = 4;
const NEARLY_AS_MANY_PART: u64 = 16;

impl Inner {
    /// Free slabs that new segments may get, by domain.
    fn free_by_domain(&self) -> BTreeMap<Domain, u64> {
        by_domain(&self.layouts, self.free_slabs.iter().map(|(drive, free)| (*drive, free.len() as u64)))
    }

    /// Free slabs, net.
    pub(super) fn net_free(&self) -> u64 {
        net_slabs(self.free_by_domain().into_values(), self.layouts.of_data())
    }

    /// Whether enough is free for others without this slab: more than `kept` net slabs, or as much as with it.
    pub(super) fn spares(&self, slab: Column, kept: u64) -> bool {
        let before = self.net_free();
        let without = || {
            let mut free = self.free_by_domain();
            if let Some(slabs) = self.layouts.domain(slab.drive).and_then(|domain| free.get_mut(&domain)) {
                *slabs -= 1;
            }
            net_slabs(free.into_values(), self.layouts.of_data())
        };
        before > kept || without() == before
    }

    /// The same if they were laid out so.
    pub(super) fn net_free_as(&self, layouts: &Layouts) -> u64 {
        let free = self.free_slabs.iter().map(|(drive, free)| (*drive, free.len() as u64));
        net_slabs(by_domain(layouts, free).into_values(), layouts.of_data())
    }

    /// Slabs that the slice holds, net.
    pub(super) fn net_held(&self) -> u64 {
        net_slabs(self.held_by_domain(&self.layouts).into_values(), self.layouts.of_data())
    }

    /// Of those, what hosts may fill, if they were laid out so.
    pub(super) fn net_for_hosts_as(&self, layouts: &Layouts) -> u64 {
        layouts.net_for_hosts(&self.held_by_domain(layouts))
    }

    pub(super) fn held_by_domain(&self, layouts: &Layouts) -> BTreeMap<Domain, u64> {
        by_domain(layouts, self.held_slabs.iter().map(|(drive, held)| (*drive, *held)))
    }

    /// How a new segment of a stream is spread, and over which drives other than these: those with the most free slabs, of
    /// the domains with the most. Of domains with nearly as many, chance decides: segments of a drive share drives with it that
    /// are all others in turn, and these are read together when it is rebuilt. `None`: too few domains have free slabs.
    pub(super) fn choose_drives(
        &self,
        stream: Stream,
        wanted: Option<Layout>,
        but: &[DriveIndex],
    ) -> Option<(Geometry, Vec<DriveIndex>)> {
        let layout = match wanted {
            Some(wanted) if !stream.is_metadata() => self.layouts.now(Some(wanted)),
            _ => self.layouts.of(stream.is_metadata()),
        };
        // The roomiest drive of each domain, and how much the domain has.
        let mut domains: BTreeMap<Domain, Room> = BTreeMap::new();
        for (drive, free) in
            self.free_slabs.iter().filter(|(drive, free)| !but.contains(drive) && !free.is_empty())
        {
            let Some(domain) = self.layouts.domain(*drive) else { continue };
            let room = domains.entry(domain).or_insert(Room { all: 0, most: 0, roomiest: Reverse(*drive) });
            room.all += free.len() as u64;
            (room.most, room.roomiest) = (room.most, room.roomiest).max((free.len(), Reverse(*drive)));
        }
        let (id, generation) = self.next_segment();
        // NOTE: a hash that mixes well. By one that is nearly linear, the same drives would be neighbours most of the time.
        let hash = BuildHasherDefault::<DefaultHasher>::default();
        let chance = |drive: DriveIndex| hash.hash_one((id, generation.0, drive.0));
        let (domains, by_chance) = in_order(domains.into_iter().collect(), chance);
        // Metadata is content with fewer copies than it would like, if there are as many as data has.
        let least = usize::from(self.layouts.of_data().parity().min(layout.parity())) + 1;
        // A drive that was added a moment ago may bring a domain that was lacking, and the slice has claimed no slabs of it
        // yet. Until then it writes to the domains in which it has slabs. The cleaner writes that anew later.
        let held = self.held_by_domain(&self.layouts).into_values().filter(|slabs| *slabs > 0).count();
        if domains.len() < least.min(held.max(1)) {
            return None;
        }
        // As wide as there are domains with free slabs, and never less protected than there are domains for.
        let layout = match domains.len() {
            few if few < usize::from(layout.parity()) + 1 => Layout::mirror(few as u8 - 1),
            enough => layout.within(enough),
        };
        let layout = match wanted {
            Some(_) if !stream.is_metadata() => self.fair(layout, &domains),
            _ => layout,
        };
        // Later segments must not be narrower for it.
        let left = |domains: &[(Domain, Room)]| self.net_free_after(&domains[..layout.columns().into()]);
        let chosen = if left(&by_chance) < left(&domains) { domains } else { by_chance };
        let drives = chosen.into_iter().take(layout.columns().into()).map(|(_, room)| room.roomiest.0);
        Some((self.layouts.geometry(layout), drives.collect()))
    }

    /// Free slabs, net, when a segment has taken one of each of these domains.
    fn net_free_after(&self, taken: &[(Domain, Room)]) -> u64 {
        let mut free = self.free_by_domain();
        for (domain, _) in taken {
            free.entry(*domain).and_modify(|slabs| *slabs -= 1);
        }
        net_slabs(free.into_values(), self.layouts.of_data())
    }

    /// The id that the next segment gets, and the generation of what had it before.
    fn next_segment(&self) -> (u32, SegmentGeneration) {
        let id = self.free_ids.first().copied().unwrap_or(self.segments.len() as u32);
        let before = self.segments.get(id as usize);
        (id, before.map_or(SegmentGeneration(0), |segment| segment.generation))
    }

    /// The layout, or a narrower one, that takes no more from what segments of the pool's layout could have than it is
    /// reckoned with. A wide segment takes slabs of domains that have few left, without which those of others are of no use.
    fn fair(&self, layout: Layout, domains: &[(Domain, Room)]) -> Layout {
        let before = self.net_free();
        let is_fair = |layout: &Layout| {
            let after = self.net_free_after(&domains[..layout.columns().into()]);
            before - after <= self.layouts.net_of_columns(layout.columns())
        };
        let mut narrower =
            (1..=layout.data()).rev().filter_map(|data| Layout::of_columns((data, layout.parity())));
        narrower.find(is_fair).unwrap_or(Layout::mirror(layout.parity()))
    }
}

/// Domains in the order of what they have free, the most first, and the same with those that have nearly as many in the order
/// of chance.
fn in_order(mut domains: Rooms, chance: impl Fn(DriveIndex) -> u64) -> (Rooms, Rooms) {
    let of = |room: &Room| chance(room.roomiest.0);
    domains.sort_by_cached_key(|(_, room)| (Reverse(room.all), of(room), room.roomiest.0));
    let most = domains.first().map_or(0, |(_, room)| room.all);
    let nearly = (most / NEARLY_AS_MANY_PART).min(NEARLY_AS_MANY);
    let mut by_chance = domains.clone();
    by_chance.sort_by_cached_key(|(_, room)| (Reverse(room.all + of(room) % (nearly + 1)), of(room)));
    (domains, by_chance)
}

type Rooms = Vec<(Domain, Room)>;

/// Free slabs of a domain: of all its drives, and of the drive with the most.
#[derive(Clone, Copy)]
struct Room {
    all: u64,
    most: usize,
    roomiest: Reverse<DriveIndex>,
}

pub(super) fn by_domain(
    layouts: &Layouts,
    of_drives: impl Iterator<Item = (DriveIndex, u64)>,
) -> BTreeMap<Domain, u64> {
    let mut sums = BTreeMap::new();
    for (drive, slabs) in of_drives {
        if let Some(domain) = layouts.domain(drive) {
            *sums.entry(domain).or_default() += slabs;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens segments of `columns` on eight drives with so many free slabs. Returns how often each drive is beside the last one, and
    /// what the drives have left.
    fn beside_the_last(mut free: [u64; 8], columns: usize, segments: u32) -> ([u32; 8], [u64; 8]) {
        let mut beside = [0; 8];
        let hash = BuildHasherDefault::<DefaultHasher>::default();
        for id in 0..segments {
            let room = |(drive, all): (u16, &u64)| {
                let drive = DriveIndex(drive);
                (Domain(drive.0), Room { all: *all, most: *all as usize, roomiest: Reverse(drive) })
            };
            let rooms = (0..).zip(&free).map(room).collect();
            let (_, by_chance) = in_order(rooms, |drive| hash.hash_one((id, 0_u64, drive.0)));
            let drives: Vec<_> =
                by_chance[..columns].iter().map(|(_, room)| usize::from(room.roomiest.0.0)).collect();
            drives.iter().for_each(|drive| free[*drive] -= 1);
            if drives.contains(&7) {
                drives.iter().for_each(|drive| beside[*drive] += 1);
            }
        }
        (beside, free)
    }

    #[test]
    fn a_drive_shares_segments_with_all_others_alike_also_where_some_are_a_slab_ahead() {
        for (free, columns) in
            [([3000; 8], 2), ([3000; 8], 4), ([3000, 3000, 3000, 3000, 3000, 3000, 3001, 3001], 4)]
        {
            let (beside, left) = beside_the_last(free, columns, 4000);
            let each = beside[7] as usize * (columns - 1) / 7;
            let is_fair = |count: &u32| (*count as usize).abs_diff(each) < each / 3;
            assert!(beside[..7].iter().all(is_fair), "{columns} columns: {beside:?}");
            let spread = left.iter().max().unwrap() - left.iter().min().unwrap();
            assert!(spread <= NEARLY_AS_MANY + 1, "{columns} columns: {left:?}");
        }
    }

    #[test]
    fn drives_that_are_fuller_get_none_until_others_are_as_full() {
        let (beside, left) = beside_the_last([900, 900, 900, 900, 900, 900, 900, 300], 2, 500);
        assert_eq!((beside[7], left[7]), (0, 300));
        // Of few slabs none is given away by chance.
        let (_, left) = beside_the_last([15; 8], 4, 28);
        assert_eq!(left, [1; 8]);
    }
}
