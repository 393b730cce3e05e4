//! Reading what lies one behind the other in one operation.

use crate::format::Location;
use std::ops::Range;

/// What may lie between two blocks of one drive read that a host waits for: less than another read would cost.
pub(crate) const HOST_GAP_BYTES: u64 = 16 << 10;
/// The same where nobody waits: it takes of the drive's bandwidth what hosts would use.
pub(crate) const CLEANER_GAP_BYTES: u64 = 8 << 10;
/// The longest drive read.
pub(crate) const LONGEST_BYTES: u64 = 1 << 20;

/// Ranges of `items` to be read in one operation: blocks that lie one behind the other in one segment, or with no more
/// than `gap_bytes` in between, and no more than `longest_bytes` in all.
pub(crate) fn runs<T>(
    items: &[T],
    gap_bytes: u64,
    longest_bytes: u64,
    location: impl Fn(&T) -> Location,
) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let here = location(item);
        let follows = |run: &Range<usize>| {
            let (first, before) = (location(&items[run.start]), location(&items[i - 1]));
            let gap = here.offset_bytes().checked_sub(before.offset_bytes() + before.len_bytes());
            !here.is_none()
                && !before.is_none()
                && before.segment() == here.segment()
                && gap.is_some_and(|gap| gap <= gap_bytes)
                && here.offset_bytes() + here.len_bytes() - first.offset_bytes() <= longest_bytes
        };
        match runs.last_mut() {
            Some(run) if follows(run) => run.end = i + 1,
            _ => runs.push(i..i + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use quoin_base::SegmentId;

    #[test]
    fn a_run_ends_at_a_wide_gap_another_segment_and_when_it_is_long() {
        let at = |segment, block: u64| Location::new(SegmentId(segment), block * 8192, 8192);
        let of = |locations: &[Location]| runs(locations, 16 << 10, LONGEST_BYTES, |location| *location);
        assert_eq!(of(&[at(1, 0), at(1, 1), at(1, 4), at(1, 8)]), [0..3, 3..4]);
        assert_eq!(of(&[at(1, 0), at(2, 1), at(2, 0), at(2, 1)]), [0..1, 1..2, 2..4]);
        assert_eq!(of(&[Location(0), Location(0), at(1, 0)]), [0..1, 1..2, 2..3]);
        let long: Vec<_> = (0..200).map(|block| at(1, block)).collect();
        assert_eq!(of(&long), [0..128, 128..200]);
    }
}
