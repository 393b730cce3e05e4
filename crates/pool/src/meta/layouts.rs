//! How segments are laid out over fault domains, and how much slabs hold then.
//!
//! A layout asks for columns on drives of distinct *fault domains*. Where the free slabs lie in fewer domains than it has
//! columns, a segment gets fewer columns of data, and as many of parity. Only where fewer domains are left than it takes
//! to tolerate the failures, because drives failed, does it tolerate fewer.
//!
//! Volumes may have layouts of their own. Those tolerate as many failures as the pool's at least, so that the pool never goes
//! offline for the sake of one volume, and as many as the journal at the most.
//!
//! Space is counted in *net slabs*: one holds as much data as a slab of a drive, with all that protects it in the pool's
//! layout. What other layouts take is converted.

use crate::{format::PAGE_BYTES, space::Weight};
use quoin_base::{DriveIndex, KIB, Layout};
use quoin_stripe::Geometry;
use std::collections::{BTreeMap, BTreeSet};

/// A fault domain: drives that may fail together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Domain(pub u16);

/// Metadata tolerates so many failures at least, where data tolerates any.
const LEAST_METADATA_PARITY: u8 = 2;
/// How many columns a table slab gets at least.
const TABLE_COPIES: usize = 2;
/// The longest strip, and about how many bytes of data the shortest row of a segment with many columns has.
const LONGEST_STRIP_BYTES: u64 = 32 * KIB;
const SHORTEST_ROW_BYTES: u64 = 128 * KIB;

/// What segments are to be like, and the drives they may lie on.
#[derive(Clone, Debug)]
pub(crate) struct Layouts {
    data: Layout,
    /// Those of volumes that are laid out in another way.
    others: BTreeSet<Layout>,
    /// Failures that the journal tolerates, and so the most that any layout may.
    most_parity: u8,
    /// The drives that new segments may lie on, and the domain of each.
    domains: BTreeMap<DriveIndex, Domain>,
    /// Drives that hold segments still and get no new ones, and the domain of each.
    leaving: BTreeMap<DriveIndex, Domain>,
    /// The most bytes of a row.
    row_bytes: u32,
}

impl Layouts {
    pub(crate) fn new(data: Layout, row_bytes: u32, domains: BTreeMap<DriveIndex, Domain>) -> Self {
        let (others, most_parity) = (BTreeSet::new(), data.parity());
        Self { data, others, most_parity, domains, leaving: BTreeMap::new(), row_bytes }
    }

    /// The same beside a journal on so many drives: with it, stronger layouts than the pool's may be asked for.
    pub(crate) fn with_journal(self, columns: u8) -> Self {
        let most_parity = match self.data.parity() {
            // Nothing is protected, nor is metadata.
            0 => 0,
            parity => parity.max(columns.saturating_sub(1)),
        };
        Self { most_parity, ..self }
    }

    /// The same with layouts that volumes have beside.
    pub(crate) fn with(mut self, others: impl IntoIterator<Item = Layout>) -> Self {
        self.others.extend(others.into_iter().filter(|other| *other != self.data));
        self
    }

    /// The layouts that volumes have beside the pool's.
    pub(crate) fn others(&self) -> impl Iterator<Item = Layout> + '_ {
        self.others.iter().copied()
    }

    /// What a volume's layout, or the pool's, is as drives are.
    pub(crate) fn now(&self, layout: Option<Layout>) -> Layout {
        layout.unwrap_or(self.data).within(self.domain_count())
    }

    /// What a volume with this layout weighs.
    pub(crate) fn weight(&self, layout: Option<Layout>) -> Weight {
        Weight::of(layout, self.data)
    }

    /// Whether two are the same as drives are.
    pub(crate) fn are_alike(&self, one: Option<Layout>, other: Option<Layout>) -> bool {
        self.now(one) == self.now(other)
    }

    /// Net slabs that a segment with so many columns is reckoned with, rounded down.
    pub(crate) fn net_of_columns(&self, columns: u8) -> u64 {
        let of_data = self.of_data();
        u64::from(columns) * u64::from(of_data.data()) / u64::from(of_data.columns())
    }

    /// Sectors that live data takes as if it was laid out as the pool, if segments with so many columns of data and of parity
    /// hold it.
    pub(crate) fn net_sectors(&self, (its_data, its_parity): (u8, u8), sectors: u64) -> u64 {
        let layout = self.of_data();
        let (data, columns) = (u64::from(layout.data()), u64::from(layout.columns()));
        let its_columns = u64::from(its_data) + u64::from(its_parity);
        let shared = (sectors * its_columns * data).div_ceil(u64::from(its_data) * columns);
        // Copies beyond those of the pool take slabs of more domains, and may leave others without a counterpart.
        let more = u64::from(its_parity.saturating_sub(layout.parity()));
        if its_data == 1 && more > 0 { shared.max(sectors * (more + 1)) } else { shared }
    }

    /// The same beside drives that leave.
    pub(crate) fn beside(self, leaving: BTreeMap<DriveIndex, Domain>) -> Self {
        Self { leaving, ..self }
    }

    /// The domain of a drive that holds segments, whether it gets new ones or not.
    pub(crate) fn domain_of_any(&self, drive: DriveIndex) -> Option<Domain> {
        self.domain(drive).or_else(|| self.leaving.get(&drive).copied())
    }

    /// Whether new segments may lie on a drive.
    pub(crate) fn takes(&self, drive: DriveIndex) -> bool {
        self.domains.contains_key(&drive)
    }

    pub(crate) fn domain(&self, drive: DriveIndex) -> Option<Domain> {
        self.domains.get(&drive).copied()
    }

    /// Fault domains with drives that new segments may lie on.
    pub(crate) fn domain_count(&self) -> usize {
        let mut domains: Vec<_> = self.domains.values().collect();
        domains.sort_unstable();
        domains.dedup();
        domains.len()
    }

    /// What data gets, as drives are.
    pub(crate) fn of_data(&self) -> Layout {
        self.data.within(self.domain_count())
    }

    /// What metadata gets, as drives are: without it, nothing that it leads to can be found.
    pub(crate) fn of_metadata(&self) -> Layout {
        let parity = match self.data.parity() {
            0 => 0,
            parity => parity.max(self.most_parity).max(LEAST_METADATA_PARITY),
        };
        Layout::mirror(parity).within(self.domain_count())
    }

    /// How many copies table slabs have.
    pub(crate) fn table_copies(&self) -> usize {
        usize::from(self.of_metadata().columns()).max(TABLE_COPIES)
    }

    /// What a segment of data or of metadata gets.
    pub(crate) fn of(&self, is_metadata: bool) -> Layout {
        if is_metadata { self.of_metadata() } else { self.of_data() }
    }

    /// How a segment of this layout is spread.
    pub(crate) fn geometry(&self, layout: Layout) -> Geometry {
        geometry(layout, self.row_bytes)
    }
}

/// How a segment of this layout is spread, in rows of about so many bytes.
fn geometry(layout: Layout, row_bytes: u32) -> Geometry {
    if layout.data() == 1 {
        return Geometry::mirror(layout.parity(), row_bytes);
    }
    let (data, row) = (u64::from(layout.data()), u64::from(row_bytes));
    // Long strips, so that a block as a rule lies in one. A row that ends early is filled up to a stripe, so not too long.
    let halves = std::iter::successors(Some(LONGEST_STRIP_BYTES), |strip| Some(strip / 2));
    let is_short = |strip: &u64| strip * data <= SHORTEST_ROW_BYTES.min(row / 2);
    let shortest = PAGE_BYTES as u64;
    let strip = halves.take_while(|strip| *strip > shortest).find(is_short).unwrap_or(shortest);
    let stripe = strip * data;
    Geometry {
        data: layout.data(),
        parity: layout.parity(),
        strip_bytes: strip as u32,
        row_bytes: row.next_multiple_of(stripe) as u32,
    }
}

/// What slabs hold, so many in each domain, in net slabs.
pub(crate) fn net_slabs(counts: impl IntoIterator<Item = u64>, layout: Layout) -> u64 {
    let mut counts: Vec<u64> = counts.into_iter().filter(|count| *count > 0).collect();
    let parity = usize::from(layout.parity());
    if layout == Layout::NONE {
        return counts.iter().sum();
    }
    let mut net = 0;
    // As many segments as can be had with the most columns. Then some domains have none left, and columns are fewer.
    while counts.len() > parity {
        let width = counts.len().min(layout.columns().into());
        let taken = |segments: u64| counts.iter().map(|count| *count.min(&segments)).sum::<u64>();
        // The most segments for which enough domains have a slab each.
        let (mut fits, mut too_many) = (0, counts.iter().sum::<u64>() / width as u64 + 1);
        while too_many - fits > 1 {
            let middle = fits.midpoint(too_many);
            if taken(middle) >= middle * width as u64 {
                fits = middle;
            } else {
                too_many = middle;
            }
        }
        net += fits * (width - parity) as u64;
        // NOTE: fewer domains are left than columns, or one segment more would have fitted.
        counts.iter_mut().for_each(|count| *count = count.saturating_sub(fits));
        counts.retain(|count| *count > 0);
    }
    net
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Reverse;

    fn layout(text: &str) -> Layout {
        text.parse().unwrap()
    }

    #[test]
    fn net_slabs_of_drives_alike_are_their_slabs_less_parity() {
        assert_eq!(net_slabs([10; 4], layout("none")), 40);
        assert_eq!(net_slabs([10; 4], layout("mirror")), 20);
        assert_eq!(net_slabs([10; 4], layout("raid5")), 30);
        assert_eq!(net_slabs([10; 6], layout("raid6")), 40);
        assert_eq!(net_slabs([10; 12], layout("raid6")), 80);
        assert_eq!(net_slabs([10; 25], layout("23+2")), 230);
    }

    #[test]
    fn what_one_domain_has_more_than_all_others_is_not_used() {
        assert_eq!(net_slabs([100, 10, 10], layout("mirror")), 20);
        assert_eq!(net_slabs([20, 10, 10], layout("mirror")), 20);
        // Three domains hold 3+1 less one column of data.
        assert_eq!(net_slabs([10; 3], layout("raid5")), 20);
        assert_eq!(net_slabs([10; 1], layout("raid5")), 0);
        // First four columns, then three.
        assert_eq!(net_slabs([10, 10, 10, 4], layout("raid5")), 4 * 3 + 6 * 2);
    }

    proptest! {
        /// Opening segments on the roomiest domains, one after the other, gets what is reckoned with, to within a segment for
        /// each width.
        #[test]
        fn what_is_reckoned_with_can_be_had(counts in prop::collection::vec(0u64..40, 1..12), which in 0usize..5) {
            let layout = layout(["mirror", "mirror-3", "raid5", "raid6", "8+2"][which]);
            let reckoned = net_slabs(counts.iter().copied(), layout);
            let (mut left, mut had) = (counts.clone(), 0);
            loop {
                left.sort_unstable_by_key(|count| Reverse(*count));
                let width = left.iter().filter(|count| **count > 0).count().min(layout.columns().into());
                if width <= layout.parity().into() {
                    break;
                }
                left[..width].iter_mut().for_each(|count| *count -= 1);
                had += (width - usize::from(layout.parity())) as u64;
            }
            prop_assert!(had + u64::from(layout.columns()) * 2 >= reckoned, "{had} of {reckoned} reckoned, {counts:?}");
        }

        /// What comes free together can be used together: nothing is lost by it.
        #[test]
        fn more_slabs_never_hold_less(counts in prop::collection::vec(0u64..40, 2..12), at in 0usize..12, which in 0usize..5) {
            let layout = layout(["mirror", "mirror-3", "raid5", "raid6", "8+2"][which]);
            let before = net_slabs(counts.iter().copied(), layout);
            let mut more = counts.clone();
            let at = at % more.len();
            more[at] += 1;
            prop_assert!(net_slabs(more.iter().copied(), layout) >= before, "{counts:?}, then one more at {at}");
        }
    }

    #[test]
    fn rows_are_whole_stripes_of_strips_not_too_long() {
        for text in ["2+1", "raid5", "raid6", "8+2", "16+2", "23+2"] {
            for row_bytes in [16 << 10, 64 << 10, 1 << 20] {
                let geometry = geometry(layout(text), row_bytes);
                assert!(geometry.is_possible(), "{text} {row_bytes}: {geometry:?}");
            }
        }
        let strip = |text| geometry(layout(text), 1 << 20).strip_bytes >> 10;
        assert_eq!(["raid5", "raid6", "8+2", "16+2", "23+2"].map(strip), [32, 32, 16, 8, 4]);
    }
}
