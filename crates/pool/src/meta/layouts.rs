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
//!
//! A pool may keep *spare* domains: hosts then get only what the drives hold when so many domains are lost, the largest ones.
//! A domain that lost a drive already is one of them, so that a loss takes nothing from hosts.

use crate::{format::PAGE_BYTES, space::Weight};
use quoin_base::{DriveIndex, KIB, Layout};
use quoin_stripe::Geometry;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

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
    spare: SpareDomains,
}

/// What hosts leave free, so that what some domains hold can be made again on the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpareDomains {
    /// So many domains.
    pub count: u8,
    /// Those with drives that failed, are absent or leave.
    pub hit: BTreeSet<Domain>,
}

impl Layouts {
    pub(crate) fn new(data: Layout, row_bytes: u32, domains: BTreeMap<DriveIndex, Domain>) -> Self {
        let (others, most_parity) = (BTreeSet::new(), data.parity());
        let spare = SpareDomains::default();
        Self { data, others, most_parity, domains, leaving: BTreeMap::new(), row_bytes, spare }
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

    /// Whether what is tagged so lies as a volume with this layout wants it. `None` is the pool's layout.
    ///
    /// What was laid out with more drives than there are now suits if it will again when they are back. That two layouts come
    /// to the same while drives are away is not enough: nobody would look again once they are back.
    pub(crate) fn suits(&self, tag: Option<Layout>, layout: Option<Layout>) -> bool {
        let full = |layout: Option<Layout>| layout.unwrap_or(self.data);
        full(tag) == full(layout) || layout.is_some() && full(tag) == self.now(layout)
    }

    /// Net slabs that a segment with so many columns is reckoned with, rounded down.
    pub(crate) fn net_of_columns(&self, columns: u8) -> u64 {
        let of_data = self.of_data();
        u64::from(columns) * u64::from(of_data.data()) / u64::from(of_data.columns())
    }

    /// Grains that live data takes as if it was laid out as the pool, if segments with so many columns of data and of parity
    /// hold it. Beside spare domains, as it will be laid out when those are lost.
    pub(crate) fn net_grains(&self, (its_data, its_parity): (u8, u8), grains: u64) -> u64 {
        let layout = self.of_data_then();
        let its_data = match self.spare.count {
            0 => its_data,
            _ => {
                let most = self.domain_count() - self.done_without();
                its_data.min(most.saturating_sub(its_parity.into()).clamp(1, u8::MAX.into()) as u8)
            }
        };
        let (data, columns) = (u64::from(layout.data()), u64::from(layout.columns()));
        let its_columns = u64::from(its_data) + u64::from(its_parity);
        let shared = (grains * its_columns * data).div_ceil(u64::from(its_data) * columns);
        // Copies beyond those of the pool take slabs of more domains, and may leave others without a counterpart.
        let more = u64::from(its_parity.saturating_sub(layout.parity()));
        if its_data == 1 && more > 0 { shared.max(grains * (more + 1)) } else { shared }
    }

    /// The same beside drives that leave.
    pub(crate) fn beside(self, leaving: BTreeMap<DriveIndex, Domain>) -> Self {
        Self { leaving, ..self }
    }

    /// The same with domains that are kept spare.
    pub(crate) fn sparing(self, spare: SpareDomains) -> Self {
        Self { spare, ..self }
    }

    /// How many of the domains with drives hosts do without beforehand, as if they were lost: those kept spare, less those that
    /// are lost. As many are left as it takes to tolerate failures.
    pub(crate) fn done_without(&self) -> usize {
        if self.spare.count == 0 {
            return 0;
        }
        let least = usize::from(self.data.parity()) + 1;
        let kept = usize::from(self.spare.count).saturating_sub(self.lost_count());
        kept.min(self.domain_count().saturating_sub(least))
    }

    /// Domains with drives that failed, are absent or leave.
    pub(crate) fn hit_count(&self) -> usize {
        self.spare.hit.len()
    }

    /// Of them, those that have no other drives.
    pub(crate) fn lost_count(&self) -> usize {
        let active: BTreeSet<_> = self.domains.values().copied().collect();
        self.spare.hit.difference(&active).count()
    }

    /// What data gets when the spare domains are lost.
    pub(crate) fn of_data_then(&self) -> Layout {
        self.data.within(self.domain_count() - self.done_without())
    }

    /// What of slabs, so many in each domain, hosts may fill, in net slabs.
    pub(crate) fn net_for_hosts(&self, slabs: &BTreeMap<Domain, u64>) -> u64 {
        let all = net_slabs(slabs.values().copied(), self.of_data());
        let without = self.done_without();
        if without == 0 {
            return all;
        }
        // A domain that was hit is what is spared for, however small. Of the others, the largest may be lost.
        let is_hit = |domain: &Domain| self.spare.hit.contains(domain);
        let mut by_loss: Vec<_> = slabs.iter().map(|(domain, slabs)| (is_hit(domain), *slabs)).collect();
        by_loss.sort_unstable_by_key(|domain| Reverse(*domain));
        let left = by_loss.into_iter().skip(without).map(|(_, slabs)| slabs);
        net_slabs(left, self.of_data_then()).min(all)
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
    fn what_comes_to_the_same_only_while_drives_are_away_does_not_suit() {
        let with = |own: &str, domains: u16| {
            Layouts::new(layout(own), 4096, (0..domains).map(|n| (DriveIndex(n), Domain(n))).collect())
        };
        let some = |text: &str| Some(layout(text));
        // Two domains make mirrors of everything.
        let mirror = with("mirror", 2);
        assert!(mirror.suits(some("mirror"), None) && mirror.suits(None, some("mirror")));
        assert!(!mirror.suits(some("2+1"), None), "it is no mirror once the third domain is back");
        assert!(!mirror.suits(some("2+1"), some("raid5")));
        // What a volume got with all drives stays, and so does what it gets without one.
        assert!(mirror.suits(some("raid5"), some("raid5")) && mirror.suits(some("mirror"), some("raid5")));
        assert!(!with("mirror", 4).suits(some("mirror"), some("raid5")));
        // The pool's layout is tagged as such, however many drives there are.
        let raid5 = with("raid5", 3);
        assert!(raid5.suits(None, None) && raid5.suits(some("raid5"), None));
        assert!(!raid5.suits(some("2+1"), None));
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
    fn spare_domains_leave_room_for_what_the_largest_hold() {
        let drives =
            |domains: &[u16]| domains.iter().map(|domain| (DriveIndex(*domain), Domain(*domain))).collect();
        let slabs =
            |counts: &[u64]| (0..).map(Domain).zip(counts.iter().copied()).collect::<BTreeMap<_, _>>();
        let sparing = |text, domains: &[u16], count, hit: &[u16]| {
            let hit = hit.iter().copied().map(Domain).collect();
            Layouts::new(layout(text), 1 << 20, drives(domains)).sparing(SpareDomains { count, hit })
        };
        let all = [0, 1, 2, 3];
        let net = |count, counts: &[u64]| sparing("mirror", &all, count, &[]).net_for_hosts(&slabs(counts));
        assert_eq!((net(0, &[10; 4]), net(1, &[10; 4]), net(2, &[10; 4])), (20, 15, 10));
        // The largest domain may be lost.
        assert_eq!(net(1, &[40, 10, 10, 20]), 20);
        // What tolerates a failure is left whatever is asked for.
        assert_eq!((net(3, &[10; 4]), sparing("mirror", &all, 3, &[]).done_without()), (10, 2));
        // Narrower segments then: 2+1 on three domains instead of 3+1 on four.
        let wide = sparing("raid5", &all, 1, &[]);
        assert_eq!((wide.net_for_hosts(&slabs(&[10; 4])), wide.of_data_then()), (20, layout("2+1")));
        // Live data is reckoned as it will lie: no more in 3+1, and more where it is narrower still.
        assert_eq!([(3, 1), (2, 1), (1, 1)].map(|spread| wide.net_grains(spread, 900)), [900, 900, 1200]);
        // Once a domain is lost, hosts have what they had; with what is left of one too.
        assert_eq!(sparing("mirror", &all[1..], 1, &[0]).net_for_hosts(&slabs(&[0, 10, 10, 10])), 15);
        let in_part = sparing("mirror", &all, 1, &[0]);
        assert_eq!(in_part.net_for_hosts(&slabs(&[5, 10, 10, 10])), 15);
    }

    proptest! {
        /// A loss of domains that were kept spare takes nothing from hosts.
        #[test]
        fn a_loss_takes_nothing_from_hosts(counts in prop::collection::vec(1u64..40, 4..10), lost in 0usize..10, which in 0usize..4) {
            let layout = layout(["mirror", "2+1", "raid5", "mirror-3"][which]);
            let domains = |but: Option<u16>| {
                (0..counts.len() as u16).filter(|d| Some(*d) != but).map(|d| (DriveIndex(d), Domain(d))).collect()
            };
            let slabs = |but: Option<u16>| {
                (0..).zip(&counts).filter(|(d, _)| Some(*d) != but).map(|(d, n)| (Domain(d), *n)).collect()
            };
            let spare = |hit: Option<u16>| SpareDomains { count: 1, hit: hit.map(Domain).into_iter().collect() };
            let before = Layouts::new(layout, 1 << 20, domains(None)).sparing(spare(None)).net_for_hosts(&slabs(None));
            let lost = Some((lost % counts.len()) as u16);
            let after = Layouts::new(layout, 1 << 20, domains(lost)).sparing(spare(lost)).net_for_hosts(&slabs(lost));
            prop_assert!(after >= before, "{before} before, {after} after domain {lost:?} of {counts:?} was lost");
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
