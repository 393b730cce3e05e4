//! Columns that are moved from fuller drives to emptier ones, so that all are used alike: after a drive was added, above all.
//!
//! A drive's share is what part of its slabs for data the slice uses. Columns move from the drive with the largest share to the
//! one with the smallest, while these are far apart; once that has begun, until they are close.
//!
//! Invariants:
//! 1. A move makes the larger of the two shares smaller and never the smaller one the larger, by the figures of when it began.
//!    Others are under way meanwhile, so that a column may move once more; how uneven drives are only falls in the long run.
//! 2. What moves is worth it: most of its segment is live, or the cleaner would move it soon once more. Metadata is not moved:
//!    checkpoints write it anew all the time, to the drives with the most room.

use super::{ColumnMove, Inner, Segment, SegmentTable};
use crate::{format::GRAIN_BYTES, meta::layouts::Domain};
use quoin_base::{DriveIndex, SegmentId};
use quoin_stripe::Column;
use std::collections::{BTreeMap, BTreeSet};

/// How far apart shares are when balancing begins, and when it ends, in parts of a thousand.
const BEGINS_FROM: u64 = 80;
const ENDS_BELOW: u64 = 25;

/// How the drives that take data are used by a slice: slabs used of slabs there are.
pub(crate) type DriveUse = BTreeMap<DriveIndex, (u64, u64)>;

fn share((used, all): (u64, u64)) -> u64 {
    used * 1000 / all.max(1)
}

/// The largest and the smallest share, in parts of a thousand; `None` with fewer than two drives.
fn spread(uses: &DriveUse) -> Option<(u64, u64)> {
    let shares = || uses.values().map(|of| share(*of));
    (uses.len() > 1).then(|| (shares().max().unwrap_or(0), shares().min().unwrap_or(0)))
}

/// The drive with the smallest share.
pub(crate) fn emptiest(uses: &DriveUse) -> Option<DriveIndex> {
    uses.iter().min_by_key(|(drive, of)| (share(**of), **drive)).map(|(drive, _)| *drive)
}

/// The largest and the smallest share, in percent.
pub(crate) fn percents(uses: &DriveUse) -> Option<(u64, u64)> {
    spread(uses).map(|(most, fewest)| (most / 10, fewest / 10))
}

/// Whether drives are used so unevenly that columns are to be moved. `goes_on`: some were moved already.
pub(crate) fn is_uneven(uses: &DriveUse, goes_on: bool) -> bool {
    let least = if goes_on { ENDS_BELOW } else { BEGINS_FROM };
    spread(uses).is_some_and(|(most, fewest)| most - fewest >= least)
}

/// Whether a column may move from one drive to another: afterwards the second is used no more than the first was and is.
fn evens_out(from: (u64, u64), to: (u64, u64)) -> bool {
    let after = ((from.0.saturating_sub(1), from.1), (to.0 + 1, to.1));
    share(after.1) <= share(after.0)
}

impl Segment {
    /// Whether at least half of what was written to it is live.
    fn is_mostly_live(&self) -> bool {
        2 * u64::from(self.live_grains) * GRAIN_BYTES >= self.written_bytes
    }
}

impl Inner {
    /// Where a column of a segment may go on a drive: the slab, if no other column lies in its domain.
    fn slab_on(&self, segment: &Segment, place: usize, drive: DriveIndex) -> Option<Column> {
        let domain = self.layouts.domain(drive)?;
        let mut others = segment.stripes.columns.iter().enumerate().filter(|(other, _)| *other != place);
        let is_taken = |column: &Column| -> bool {
            self.layouts.domain_of_any(column.drive).is_none_or(|taken: Domain| taken == domain)
        };
        let slab = *self.free_slabs.get(&drive)?.first()?;
        (!others.any(|(_, column)| is_taken(column))).then_some(Column { drive, slab })
    }
}

impl SegmentTable {
    /// How the drives that take data are used, of which there are so many slabs in all. What columns left counts as free, and
    /// so do slabs of these drives, one for each time, that columns are about to leave.
    pub(crate) fn drive_use(
        &self,
        slabs: impl Iterator<Item = (DriveIndex, u64)>,
        about_to_leave: &[DriveIndex],
    ) -> DriveUse {
        let inner = self.inner.read();
        let of = |(drive, all): (DriveIndex, u64)| {
            let held = inner.held_slabs.get(&drive).copied().unwrap_or(0);
            let used = held - inner.free_slabs.get(&drive).map_or(0, |free| free.len() as u64);
            let left = inner.left_slabs.iter().filter(|left| left.column.drive == drive).count();
            let leaving = about_to_leave.iter().filter(|leaves| **leaves == drive).count();
            (drive, (used.saturating_sub((left + leaving) as u64), all))
        };
        slabs.filter(|(drive, _)| inner.layouts.takes(*drive)).map(of).collect()
    }

    /// Free slabs of a drive.
    pub(crate) fn free_of(&self, drive: DriveIndex) -> u64 {
        self.inner.read().free_slabs.get(&drive).map_or(0, |free| free.len() as u64)
    }

    /// The next column to be moved so that drives are used alike, and a slab for it, which is taken. At least `kept` net slabs
    /// stay free, or as many as are.
    pub(crate) fn begin_balance(
        &self,
        uses: &DriveUse,
        kept: u64,
        but: &BTreeSet<SegmentId>,
    ) -> Option<ColumnMove> {
        let mut inner = self.inner.write();
        // From the fullest drives to the emptiest, in the order of how far they are apart. Not to one that is fuller than all
        // together: it would be a source itself before the end.
        let mut drives: Vec<_> = uses.iter().map(|(drive, of)| (share(*of), *drive, *of)).collect();
        drives.sort_unstable();
        let all = uses.values().fold((0, 0), |all, of| (all.0 + of.0, all.1 + of.1));
        for (_, from, of_from) in drives.iter().rev().take_while(|(share_of, ..)| *share_of >= share(all)) {
            for (_, to, of_to) in drives.iter().take_while(|(share_of, ..)| *share_of < share(all)) {
                if !evens_out(*of_from, *of_to) {
                    break;
                }
                let may_move = |id: usize| {
                    let segment = &inner.segments[id];
                    let place = segment.stripes.columns.iter().position(|column| column.drive == *from)?;
                    let is_right = segment.is_settled(&inner)
                        && segment.is_mostly_live()
                        && !segment.stream.is_metadata()
                        && segment.stripes.missing.is_empty()
                        && !but.contains(&SegmentId(id as u32));
                    let to = is_right.then(|| inner.slab_on(segment, place, *to)).flatten()?;
                    inner.spares(to, kept).then_some((id, place, to))
                };
                if let Some((id, place, to)) = (1..inner.segments.len()).find_map(may_move) {
                    return Some(inner.take_for_move(id, place, to));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_begins_late_and_ends_early_so_that_it_does_not_flap() {
        let uses =
            |used: [u64; 3]| (0..).map(DriveIndex).zip(used.map(|used| (used, 1000))).collect::<DriveUse>();
        assert!(!is_uneven(&uses([500, 500, 430]), false));
        assert!(is_uneven(&uses([500, 500, 420]), false));
        assert!(is_uneven(&uses([500, 500, 430]), true));
        assert!(!is_uneven(&uses([500, 500, 480]), true));
        assert!(!is_uneven(&[(DriveIndex(0), (9, 10))].into(), false));
    }

    proptest! {
        /// However drives are used, moving on comes to an end, with each column moved once, and then they are used alike.
        #[test]
        fn moves_even_out_and_end(drives in prop::collection::vec((10u64..500, 0u64..100), 2..8)) {
            let mut uses: DriveUse = (0..).map(DriveIndex).zip(drives.iter().map(|(all, percent)| (all * percent / 100, *all))).collect();
            let (mut moves, used) = (0u64, uses.values().map(|(used, _)| used).sum::<u64>());
            loop {
                let from = *uses.iter().max_by_key(|(_, of)| share(**of)).unwrap().0;
                let to = *uses.iter().min_by_key(|(_, of)| share(**of)).unwrap().0;
                if !is_uneven(&uses, true) || from == to || !evens_out(uses[&from], uses[&to]) {
                    break;
                }
                uses.get_mut(&from).unwrap().0 -= 1;
                uses.get_mut(&to).unwrap().0 += 1;
                moves += 1;
                prop_assert!(moves <= used, "some column moved twice: {uses:?}");
            }
            let (most, fewest) = spread(&uses).unwrap();
            let smallest = uses.values().map(|(_, all)| *all).min().unwrap();
            prop_assert!(most - fewest <= ENDS_BELOW.max(2000 / smallest + 2), "{uses:?}");
        }
    }
}
