//! The slabs that a slice holds: more are granted to it, and free ones are given back.

use super::{Inner, Segment, SegmentState, SegmentTable};
use crate::bugs::{Bug, planted};
use quoin_stripe::Column;
use quoin_world::atomic::Ordering;

impl SegmentTable {
    /// How many of so many slabs more the slice could hold: the root must be able to name enough table slabs.
    pub(crate) fn room_for(&self, slabs: u64) -> u64 {
        slabs.min(self.most_slabs.saturating_sub(self.inner.read().all_held()))
    }

    /// Takes over slabs whose grant to the slice is durable.
    pub(crate) fn grant(&self, slabs: &[Column]) {
        let mut inner = self.inner.write();
        for Column { drive, slab } in slabs {
            let is_new = inner.free_slabs.entry(*drive).or_default().insert(*slab);
            assert!(is_new, "slab {slab} of drive {drive} is granted once");
            *inner.held_slabs.entry(*drive).or_default() += 1;
        }
        // What was written while the slice had slabs in fewer domains is written anew, and open segments of that kind take no more.
        let is_narrow = |segment: &Segment| segment.state != SegmentState::Free && inner.is_narrow(segment);
        if inner.layouts.of_data().parity() > 0 && inner.segments.iter().any(is_narrow) {
            self.losses.fetch_add(1, Ordering::AcqRel);
            self.may_be_displaced.store(true, Ordering::Release);
        }
    }

    /// Takes so many free slabs, or as many as there are, out of the table, each time from the drive with the
    /// most. No checkpoint that may be opened refers to them, nor any record that replay may find, nor any read
    /// under way.
    pub(crate) fn part_with(&self, count: usize) -> Vec<Column> {
        let mut inner = self.inner.write();
        let mut slabs = inner.given_back_at_once(count);
        while slabs.len() < count {
            let Some(drive) = inner.roomiest_drive() else { break };
            let Some(slab) = inner.free_slabs.get_mut(&drive).and_then(|free| free.pop_last()) else { break };
            slabs.push(Column { drive, slab });
        }
        for Column { drive, .. } in &slabs {
            let held = inner.held_slabs.get_mut(drive).filter(|held| **held > 0);
            *held.expect("a slice gives back slabs that it holds") -= 1;
        }
        slabs
    }
}

impl Inner {
    /// How many slabs the slice holds, of all drives.
    pub(super) fn all_held(&self) -> u64 {
        self.held_slabs.values().sum()
    }

    /// Of so many slabs those that wait for a checkpoint and are given back nevertheless: none.
    fn given_back_at_once(&mut self, count: usize) -> Vec<Column> {
        if !planted(Bug::GiveBackEarly) {
            return Vec::new();
        }
        let segments = self.quarantine.iter().map(|waiting| &self.segments[waiting.id.0 as usize]);
        let slabs: Vec<_> =
            segments.flat_map(|segment| segment.stripes.columns.iter().copied()).take(count).collect();
        self.free_quarantined(|_| true);
        for Column { drive, slab } in &slabs {
            self.free_slabs.get_mut(drive).map(|free| free.remove(slab));
        }
        slabs
    }
}
