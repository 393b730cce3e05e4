//! What slabs and metadata take beside what they hold: space is reckoned in net slabs, of which one holds as much data as a
//! slab of a drive, together with what protects it.

use crate::meta::{Domain, Layouts};
use quoin_base::{DriveIndex, Layout};
use quoin_world::atomic::{AtomicU64, Ordering};

/// How slabs of drives, net slabs and copies of metadata relate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Overhead {
    /// Of so many slabs of drives in a segment of data,
    columns: u16,
    /// so many hold data.
    data: u16,
    /// Copies of metadata.
    metadata_copies: u16,
    /// Copies of table slabs.
    table_copies: u16,
}

impl Overhead {
    /// None: one copy of everything but the segment table.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self { columns: 1, data: 1, metadata_copies: 1, table_copies: 2 };

    pub(crate) fn of(layouts: &Layouts) -> Self {
        let (data, metadata) = (layouts.of_data(), layouts.of_metadata());
        Self {
            columns: data.columns().into(),
            data: data.data().into(),
            metadata_copies: metadata.columns().into(),
            table_copies: layouts.table_copies() as u16,
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

    /// What so much metadata takes, all copies of it, as if it was data.
    pub(super) fn metadata(&self, bytes: u64) -> u64 {
        (bytes * u64::from(self.metadata_copies * self.data)).div_ceil(self.columns.into())
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
        self.net(self.metadata_copies.into()).max(self.data.into())
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
        let [columns, data, metadata_copies, table_copies] =
            [0, 16, 32, 48].map(|bit| (packed >> bit) as u16);
        Overhead { columns, data, metadata_copies, table_copies }
    }
}

fn packed(overhead: Overhead) -> u64 {
    let Overhead { columns, data, metadata_copies, table_copies } = overhead;
    [columns, data, metadata_copies, table_copies]
        .into_iter()
        .zip([0, 16, 32, 48])
        .fold(0, |packed, (field, bit)| packed | u64::from(field) << bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_back() {
        let overhead = Overhead { columns: 25, data: 23, metadata_copies: 3, table_copies: 4 };
        assert_eq!(SharedOverhead::new(overhead).get(), overhead);
    }

    #[test]
    fn raid6_takes_half_as_much_again_and_metadata_three_copies() {
        let overhead = Overhead { columns: 6, data: 4, metadata_copies: 3, table_copies: 3 };
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
