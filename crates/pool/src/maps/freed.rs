//! Page numbers of the page space of the trees that came free and that readers may still come by.
//!
//! Invariants:
//! 1. A number is here from the moment its page is given back until every reader of that moment has left; it is not used
//!    again meanwhile. A number that is not here may be used.
//! 2. What this takes is bounded by the numbers there are, whatever is freed in whatever order: 64 neighbours share an
//!    entry and its epoch, the latest of theirs, so that some wait a little longer than they must.
//! 3. What no reader can come by any more is forgotten once a checkpoint has settled, also where nobody asks for it.

use crate::segment::readers::{ReaderEpoch, ReaderEpochs};
use quoin_base::PageNumber;
use std::collections::BTreeMap;

/// Numbers that share an entry.
const GROUP: u64 = u64::BITS as u64;
/// RAM that a group takes, with its share of the tree it is in.
const GROUP_RAM_BYTES: u64 = 40;

#[derive(Default)]
pub(crate) struct FreedPages {
    groups: BTreeMap<u64, Group>,
}

struct Group {
    /// A bit for each number that is here.
    numbers: u64,
    /// The reader epoch in which the last of them came free.
    epoch: ReaderEpoch,
}

impl FreedPages {
    /// Notes that a page was given back in this reader epoch.
    pub(crate) fn insert(&mut self, number: PageNumber, epoch: ReaderEpoch) {
        let group = self.groups.entry(number.0 / GROUP).or_insert(Group { numbers: 0, epoch });
        group.numbers |= 1 << (number.0 % GROUP);
        group.epoch = group.epoch.max(epoch);
    }

    /// True when no reader can come by a number.
    pub(crate) fn may_use(&mut self, number: PageNumber, readers: &ReaderEpochs) -> bool {
        let Some(group) = self.groups.get(&(number.0 / GROUP)) else { return true };
        if group.numbers & 1 << (number.0 % GROUP) == 0 {
            return true;
        }
        let passed = readers.passed(group.epoch);
        if passed {
            self.groups.remove(&(number.0 / GROUP));
        }
        passed
    }

    /// Takes the number that came free last: what a planted bug uses at once.
    pub(crate) fn newest(&mut self) -> Option<PageNumber> {
        let (&group, newest) = self.groups.iter_mut().max_by_key(|(_, group)| group.epoch)?;
        let bit = newest.numbers.trailing_zeros();
        newest.numbers &= newest.numbers - 1;
        if newest.numbers == 0 {
            self.groups.remove(&group);
        }
        Some(PageNumber(group * GROUP + u64::from(bit)))
    }

    /// Forgets what no reader can come by any more.
    pub(crate) fn forget_passed(&mut self, readers: &ReaderEpochs) {
        let mut known = BTreeMap::new();
        self.groups
            .retain(|_, group| !*known.entry(group.epoch).or_insert_with(|| readers.passed(group.epoch)));
    }

    /// RAM that it takes, about.
    pub(crate) fn ram_bytes(&self) -> u64 {
        self.groups.len() as u64 * GROUP_RAM_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_waits_for_the_readers_that_may_come_by_and_is_forgotten_then() {
        let (readers, mut freed) = (ReaderEpochs::new(1), FreedPages::default());
        let reader = readers.enter(None);
        freed.insert(PageNumber(70), readers.current());
        assert!(freed.may_use(PageNumber(71), &readers) && freed.may_use(PageNumber(6), &readers));
        readers.advance();
        assert!(!freed.may_use(PageNumber(70), &readers), "its reader is still there");
        freed.insert(PageNumber(71), readers.current());
        drop(reader);
        assert!(!freed.may_use(PageNumber(70), &readers), "it waits with its neighbour");
        freed.forget_passed(&readers);
        assert!(freed.ram_bytes() > 0);
        readers.advance();
        freed.forget_passed(&readers);
        assert_eq!(freed.ram_bytes(), 0);
        assert!(freed.may_use(PageNumber(70), &readers) && freed.may_use(PageNumber(71), &readers));
    }

    #[test]
    fn what_it_takes_is_bounded_by_the_numbers_there_are() {
        let (readers, mut freed) = (ReaderEpochs::new(1), FreedPages::default());
        let _stuck = readers.enter(None);
        const NUMBERS: u64 = 1 << 16;
        // Again and again, in an order that leaves no neighbours together.
        for i in 0..4 * NUMBERS {
            freed.insert(PageNumber(i * 40_503 % NUMBERS), readers.current());
            readers.advance();
            freed.forget_passed(&readers);
        }
        assert_eq!(freed.ram_bytes(), NUMBERS / GROUP * GROUP_RAM_BYTES);
    }
}
