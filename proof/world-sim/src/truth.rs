//! What a disk would hold had it not lied: the true content of sectors that silent faults spoilt.

use quoin_base::SECTOR_BYTES;
use quoin_world::Slice;
use std::{collections::BTreeMap, ops::Range};

type Sector = [u8; SECTOR_BYTES as usize];

/// True content by sector, of those sectors alone that a fault hit and nobody wrote since.
#[derive(Default)]
pub(crate) struct Truth(BTreeMap<u64, Sector>);

impl Truth {
    /// Notes what a write that begins at `offset` should have left, whatever it does leave.
    pub(crate) fn should_hold(&mut self, offset: u64, data: &[Slice]) {
        let sectors = data.iter().flat_map(|slice| slice.chunks(SECTOR_BYTES as usize));
        for (number, sector) in (offset / SECTOR_BYTES..).zip(sectors) {
            let mut content = [0; SECTOR_BYTES as usize];
            content[..sector.len()].copy_from_slice(sector);
            self.0.insert(number, content);
        }
    }

    /// Notes what a sector held before a fault changed it. The content before an earlier fault stays the true one.
    pub(crate) fn held(&mut self, number: u64, content: Sector) {
        self.0.entry(number).or_insert(content);
    }

    /// Forgets sectors that were written as they should be.
    pub(crate) fn wrote(&mut self, sectors: Range<u64>) {
        if !self.0.is_empty() {
            self.0.retain(|number, _| !sectors.contains(number));
        }
    }

    /// Takes out what is known of these sectors.
    pub(crate) fn take(&mut self, sectors: Range<u64>) -> Vec<(u64, Sector)> {
        let numbers: Vec<_> = self.0.range(sectors).map(|(number, _)| *number).collect();
        numbers.into_iter().filter_map(|number| self.0.remove_entry(&number)).collect()
    }
}
