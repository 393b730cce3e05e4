//! Which journal extents are free, and which records the others hold.

use quoin_base::Sequence;
use quoin_stripe::Column;
use std::collections::VecDeque;

struct Extent {
    column: Column,
    /// 0 while it is free.
    number: u64,
    /// No record above this one was written to it.
    last: Sequence,
    /// True while a lane may still append to it.
    open: bool,
}

pub(crate) struct Extents {
    all: Vec<Extent>,
    free: VecDeque<usize>,
    next_number: u64,
    taken: u64,
}

/// How full the journal is, in extents.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JournalUse {
    pub total: u64,
    pub used: u64,
    /// Extents taken since the pool was opened.
    pub taken: u64,
}

/// An extent a lane appends to.
pub(crate) struct TakenExtent {
    pub index: usize,
    pub column: Column,
    pub number: u64,
}

impl Extents {
    /// All free, but for those in `held`: number and last record by position in `columns`.
    pub(crate) fn new(columns: Vec<Column>, held: &[Option<(u64, Sequence)>], next_number: u64) -> Self {
        let all: Vec<Extent> = columns
            .into_iter()
            .zip(held)
            .map(|(column, held)| {
                let (number, last) = held.unwrap_or((0, Sequence(0)));
                Extent { column, number, last, open: false }
            })
            .collect();
        let mut free: Vec<usize> = (0..all.len()).filter(|&i| all[i].number == 0).collect();
        // Neighbours in this order lie on different drives, so that lanes and laps spread over all.
        free.sort_by_key(|&i| (all[i].column.slab, all[i].column.drive));
        Self { all, free: free.into(), next_number, taken: 0 }
    }

    pub(crate) fn take(&mut self) -> Option<TakenExtent> {
        let index = self.free.pop_front()?;
        let extent = &mut self.all[index];
        extent.number = self.next_number;
        extent.last = Sequence(0);
        extent.open = true;
        self.next_number += 1;
        self.taken += 1;
        Some(TakenExtent { index, column: extent.column, number: extent.number })
    }

    /// Notes that records up to `last` are about to be written to the extent.
    pub(crate) fn wrote(&mut self, index: usize, last: Sequence) {
        let extent = &mut self.all[index];
        extent.last = extent.last.max(last);
    }

    pub(crate) fn close(&mut self, index: usize) {
        self.all[index].open = false;
    }

    fn is_obsolete(extent: &Extent, tail: Sequence) -> bool {
        extent.number != 0 && !extent.open && extent.last < tail
    }

    pub(crate) fn freed_by(&self, tail: Sequence) -> u64 {
        self.all.iter().filter(|e| Self::is_obsolete(e, tail)).count() as u64
    }

    pub(crate) fn free_below(&mut self, tail: Sequence) {
        for (index, extent) in self.all.iter_mut().enumerate() {
            if Self::is_obsolete(extent, tail) {
                extent.number = 0;
                self.free.push_back(index);
            }
        }
    }

    pub(crate) fn usage(&self) -> JournalUse {
        let total = self.all.len() as u64;
        JournalUse { total, used: total - self.free.len() as u64, taken: self.taken }
    }

    /// The lowest number of an extent that holds, or may yet get, records from `tail` on, and the next number.
    pub(crate) fn needed_from(&self, tail: Sequence) -> (u64, u64) {
        let needed = self.all.iter().filter(|e| e.number != 0 && !Self::is_obsolete(e, tail));
        (needed.map(|e| e.number).min().unwrap_or(self.next_number), self.next_number)
    }
}
