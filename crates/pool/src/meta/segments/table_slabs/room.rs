//! Whether drives that are added or grow can be kept count of: the copies of a table slab lie in domains of their own, so slabs
//! of one drive take some of the others.

use super::super::{SegmentTable, choose::by_domain, table_size::table_slabs_for};
use crate::meta::layouts::{Domain, net_slabs};
use std::{cmp::Reverse, collections::BTreeMap};

/// What it comes to when a slice gets more slabs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// So many table slabs more, and copies of each.
    pub more: u64,
    pub copies: u64,
    /// What free slabs hold before, and beside the new table slabs; `None`: these have no place. Net.
    pub free_before: u64,
    pub free_after: Option<u64>,
    /// Net slabs for hosts then, and slabs that table slabs take.
    pub host_slabs: u64,
    pub table_columns: u64,
}

impl SegmentTable {
    /// What it comes to if the slice gets so many slabs more in each domain.
    pub(crate) fn counted_with(&self, new: &BTreeMap<Domain, u64>) -> Counted {
        let inner = self.inner.read();
        let (layouts, data) = (&inner.layouts, inner.layouts.of_data());
        let grown = |mut of: BTreeMap<Domain, u64>| {
            new.iter().for_each(|(domain, slabs)| *of.entry(*domain).or_default() += slabs);
            of
        };
        let all = inner.all_held() + new.values().sum::<u64>();
        let more = table_slabs_for(all, self.slab_bytes.into()).saturating_sub(self.table_slabs.count());
        let copies = layouts.table_copies() as u64;
        let free =
            by_domain(layouts, inner.free_slabs.iter().map(|(drive, free)| (*drive, free.len() as u64)));
        let free_before = net_slabs(free.values().copied(), data);
        let left = without_copies(grown(free).into_values().collect(), more, copies as usize);
        Counted {
            more,
            copies,
            free_before,
            free_after: left.map(|left| net_slabs(left, data)),
            host_slabs: layouts.net_for_hosts(&grown(inner.held_by_domain(layouts))),
            table_columns: self.table_slabs.columns() + more * copies,
        }
    }
}

/// What is left of free slabs, so many in each domain, beside so many table slabs. `None`: they have no place.
fn without_copies(mut free: Vec<u64>, table_slabs: u64, copies: usize) -> Option<Vec<u64>> {
    for _ in 0..table_slabs {
        // As they are taken: of the domains with the most; several of one only where there are too few.
        free.sort_unstable_by_key(|slabs| Reverse(*slabs));
        let apart = copies.min(free.len());
        for slabs in &mut free[..apart] {
            *slabs = slabs.checked_sub(1)?;
        }
        for _ in apart..copies {
            let most = free.iter_mut().max()?;
            *most = most.checked_sub(1)?;
        }
    }
    Some(free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_lie_apart() {
        assert_eq!(without_copies(vec![4, 90, 5], 2, 3).unwrap(), [88, 3, 2]);
        assert_eq!(without_copies(vec![4, 90, 5], 4, 3).unwrap(), [86, 1, 0]);
        assert_eq!(without_copies(vec![4, 90, 5], 5, 3), None);
        // The large one is not taken twice as long as there are others.
        assert_eq!(without_copies(vec![90, 3], 3, 2).unwrap(), [87, 0]);
        assert_eq!(without_copies(vec![90, 3], 4, 2), None);
        assert_eq!(without_copies(vec![9], 2, 2).unwrap(), [5]);
    }
}
