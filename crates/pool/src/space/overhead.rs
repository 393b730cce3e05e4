//! What slabs and metadata take beside what they hold: space is reckoned in net slabs, of which one holds as much data as a
//! slab of a drive, together with what protects it.

use super::Weight;
use crate::meta::{Domain, Layouts};
use quoin_base::{DriveIndex, Layout};
use quoin_world::atomic::{AtomicU64, Ordering};

/// Segments that are open for each layout beside the pool's as a rule: of what is destaged, and of what is cleaned.
const OPEN_OF_EACH: u8 = 2;

/// All parts of net slabs, of which hosts may fill some.
const PARTS: u64 = 128;

/// How slabs of drives, net slabs and copies of metadata relate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Overhead {
    /// Of so many slabs of drives in a segment of data,
    columns: u8,
    /// so many hold data.
    data: u8,
    /// Copies of metadata.
    metadata_copies: u8,
    /// Copies of table slabs.
    table_copies: u8,
    /// Net slabs of the largest segment of a volume with a layout of its own.
    largest: u8,
    /// Net slabs that segments may take which are open for such volumes.
    open: u8,
    /// The most that such a volume weighs.
    heaviest: Weight,
    /// Of so many net slabs beside each other hosts may fill so many [`PARTS`], about: the rest is kept spare.
    for_hosts: u8,
}

impl Overhead {
    /// None: one copy of everything but the segment table.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self {
        columns: 1,
        data: 1,
        metadata_copies: 1,
        table_copies: 2,
        largest: 0,
        open: 0,
        heaviest: Weight::ONE,
        for_hosts: PARTS as u8,
    };

    pub(crate) fn of(layouts: &Layouts) -> Self {
        let (data, metadata) = (layouts.of_data(), layouts.of_metadata());
        let (columns, of_data) = (u32::from(data.columns()), u32::from(data.data()));
        let net = |layout: Layout| (u32::from(layout.columns()) * of_data).div_ceil(columns) as u8;
        let others = || layouts.others().map(|layout| layouts.now(Some(layout)));
        let open = others().fold(0, |open: u8, layout| open.saturating_add(OPEN_OF_EACH * net(layout)));
        let heaviest = layouts.others().map(|layout| layouts.weight(Some(layout)));
        // As if domains were alike.
        let then = layouts.of_data_then();
        let domains = layouts.domain_count().max(1);
        let left = (domains - layouts.done_without().min(domains)) as u64;
        let parts = PARTS * left * u64::from(then.data()) * u64::from(columns)
            / (domains as u64 * u64::from(then.columns()) * u64::from(of_data));
        Self {
            columns: data.columns(),
            data: data.data(),
            metadata_copies: metadata.columns(),
            table_copies: layouts.table_copies() as u8,
            largest: others().map(net).max().unwrap_or(0),
            open,
            heaviest: heaviest.max().unwrap_or(Weight::ONE),
            for_hosts: parts.clamp(1, PARTS) as u8,
        }
    }

    /// The net slabs that so many slabs of drives are at the most.
    pub(crate) fn net(&self, slabs: u64) -> u64 {
        (slabs * u64::from(self.data)).div_ceil(self.columns.into())
    }

    /// So many net slabs in slabs of drives.
    pub(crate) fn raw(&self, net: u64) -> u64 {
        (net * u64::from(self.columns)).div_ceil(self.data.into())
    }

    /// What hosts may fill of so many net slabs more, about.
    pub(crate) fn for_hosts(&self, net: u64) -> u64 {
        net * u64::from(self.for_hosts) / PARTS
    }

    /// About how many slabs of drives bring so many net slabs for hosts.
    pub(crate) fn raw_for_hosts(&self, net: u64) -> u64 {
        self.raw((net * PARTS).div_ceil(self.for_hosts.into()))
    }

    /// What so much metadata takes, all copies of it, as if it was data.
    pub(super) fn metadata(&self, bytes: u64) -> u64 {
        (bytes * u64::from(self.metadata_copies) * u64::from(self.data)).div_ceil(self.columns.into())
    }

    /// The same of a layout over drives in so many fault domains.
    pub(crate) fn of_domains(layout: Layout, domains: usize) -> Self {
        let domains = (0..domains as u16).map(|drive| (DriveIndex(drive), Domain(drive)));
        Self::of(&Layouts::new(layout, 0, domains.collect()))
    }

    /// Net slabs that so many table slabs take, all copies of them.
    pub(super) fn table(&self, slabs: u64) -> u64 {
        self.net(u64::from(self.table_copies) * slabs)
    }

    /// Net slabs that one segment takes at the most, of data or of metadata.
    pub(crate) fn segment(&self) -> u64 {
        self.net(self.metadata_copies.into()).max(self.data.into()).max(self.largest.into())
    }

    /// Net slabs that segments may take which are open for layouts beside the pool's.
    pub(super) fn open_beside(&self) -> u64 {
        self.open.into()
    }

    /// What so much data takes at the most, whichever volume it is of.
    pub(super) fn heaviest(&self) -> Weight {
        self.heaviest
    }
}

/// An [`Overhead`] that changes while others read it.
pub(super) struct SharedOverhead(AtomicU64);

impl SharedOverhead {
    pub(super) fn new(overhead: Overhead) -> Self {
        Self(AtomicU64::new(packed(overhead)))
    }

    pub(super) fn set(&self, overhead: Overhead) {
        self.0.store(packed(overhead), Ordering::Release);
    }

    pub(super) fn get(&self) -> Overhead {
        let packed = self.0.load(Ordering::Acquire);
        let [columns, data, metadata_copies, table_copies, largest, open, heaviest, for_hosts] =
            packed.to_le_bytes();
        let heaviest = Weight(heaviest);
        Overhead { columns, data, metadata_copies, table_copies, largest, open, heaviest, for_hosts }
    }
}

fn packed(overhead: Overhead) -> u64 {
    let Overhead { columns, data, metadata_copies, table_copies, largest, open, heaviest, for_hosts } =
        overhead;
    u64::from_le_bytes([columns, data, metadata_copies, table_copies, largest, open, heaviest.0, for_hosts])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_back() {
        let overhead = Overhead {
            columns: 25,
            data: 23,
            metadata_copies: 3,
            table_copies: 4,
            largest: 24,
            open: 200,
            heaviest: Weight(99),
            for_hosts: 77,
        };
        assert_eq!(SharedOverhead::new(overhead).get(), overhead);
    }

    #[test]
    fn raid6_takes_half_as_much_again_and_metadata_three_copies() {
        let overhead =
            Overhead { columns: 6, data: 4, metadata_copies: 3, table_copies: 3, ..Overhead::NONE };
        assert_eq!((overhead.net(60), overhead.raw(40)), (40, 60));
        // A byte of metadata takes three on drives, as two of data do.
        assert_eq!(overhead.metadata(1000), 2000);
        assert_eq!((overhead.table(2), overhead.segment()), (4, 4));
        assert_eq!(
            (Overhead::NONE.metadata(1000), Overhead::NONE.table(1), Overhead::NONE.segment()),
            (1000, 2, 1)
        );
    }
}
