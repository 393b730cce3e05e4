//! The slabs that a slice holds: more are granted to it, and free ones are given back.

use super::{SegmentTable, table_slabs_for};
use crate::{
    bugs::{Bug, planted},
    format::MAX_TABLE_SLABS,
};
use quoin_stripe::Column;

impl SegmentTable {
    /// Whether the root could name enough table slabs if the slice held so many slabs more.
    pub(crate) fn can_hold(&self, slabs: u64) -> bool {
        let all = self.inner.read().held_slabs + slabs;
        table_slabs_for(all, self.slab_bytes.into()) <= MAX_TABLE_SLABS as u64
    }

    /// Takes over slabs whose grant to the slice is durable.
    pub(crate) fn grant(&self, slabs: &[Column]) {
        let mut inner = self.inner.write();
        for Column { drive, slab } in slabs {
            let is_new = inner.free_slabs.entry(*drive).or_default().insert(*slab);
            assert!(is_new, "slab {slab} of drive {drive} is granted once");
        }
        inner.held_slabs += slabs.len() as u64;
    }

    /// Takes so many free slabs, or as many as there are, out of the table, each time from the drive with the
    /// most. No checkpoint that may be opened refers to them, nor any record that replay may find, nor any read
    /// under way.
    pub(crate) fn part_with(&self, count: usize) -> Vec<Column> {
        let mut inner = self.inner.write();
        let mut slabs = Vec::new();
        if planted(Bug::GiveBackEarly) {
            let segments = inner.quarantine.iter().map(|waiting| &inner.segments[waiting.id.0 as usize]);
            slabs.extend(segments.flat_map(|segment| segment.columns.iter().copied()).take(count));
            inner.free_quarantined(|_| true);
            for Column { drive, slab } in &slabs {
                inner.free_slabs.get_mut(drive).map(|free| free.remove(slab));
            }
        }
        while slabs.len() < count {
            let Some(drive) = inner.roomiest_drive(&[]) else { break };
            let Some(slab) = inner.free_slabs.get_mut(&drive).and_then(|free| free.pop_last()) else { break };
            slabs.push(Column { drive, slab });
        }
        inner.held_slabs -= slabs.len() as u64;
        slabs
    }
}
