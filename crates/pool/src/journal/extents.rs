//! Which slabs of the journal are free, and which records the others hold.
//!
//! Invariants:
//! 1. A slab is free, or belongs to one extent; the slabs of an extent lie on different drives, and in different fault domains
//!    while the set has as many as an extent has columns.
//! 2. An extent is made of free slabs when a lane takes it: of the drives with the most. So no slab is left over while
//!    enough other drives have one, however the drives differ in size. Its header names its slabs.
//! 3. Slabs of drives outside the journal's set are neither free nor given out.
//! 4. A drive joins the set, anew, only when no extent that is needed names a slab of it: then all its slabs are free.
//! 5. Slabs of drives that leave rest: they are not given out, and the extents that lie there come free as others do. A drive
//!    that stays after all gives its slabs again.

use super::slabs::Slabs;
use crate::meta::Domain;
use quoin_base::{DriveIndex, Sequence};
use quoin_drive::{Member, MemberState, Members};
use quoin_stripe::Column;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

/// An extent that holds what replay may need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldExtent {
    pub number: u64,
    /// No record above this one was written to it.
    pub last: Sequence,
    pub slabs: Slabs,
}

struct Extent {
    held: HeldExtent,
    /// True while a lane may still append to it.
    open: bool,
}

pub(crate) struct Extents {
    /// How many slabs an extent has, and is to have if the set has as many drives.
    columns: usize,
    wanted_columns: usize,
    /// The fault domain of each drive; one that is not here is alone in its own.
    domains: BTreeMap<DriveIndex, Domain>,
    /// By drive of the journal's set, those that came free first in front.
    free: BTreeMap<DriveIndex, VecDeque<u32>>,
    /// The same of drives of the set that leave.
    resting: BTreeMap<DriveIndex, VecDeque<u32>>,
    /// How many extents can be made of the free slabs.
    free_extents: u64,
    /// How many could be made of all slabs.
    total: u64,
    /// By position; `None`: no extent has it.
    held: Vec<Option<Extent>>,
    next_number: u64,
    taken: u64,
    /// Generation of the journal's set of drives as it is known here; 0: not yet.
    set: u64,
    /// The number of the first extent that began under it, or will.
    set_from: u64,
}

/// How full the journal is, in extents.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JournalUse {
    pub total: u64,
    pub used: u64,
    /// The fewest drives that any extent in use lies on, or that the next will.
    pub columns: u8,
    /// Extents taken since the pool was opened.
    pub taken: u64,
}

/// What the journal would be without a drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JournalWithout {
    /// Drives of the set, and their fault domains.
    pub drives: usize,
    pub domains: usize,
    /// Extents that could be made of their slabs.
    pub total: u64,
}

/// An extent a lane appends to.
pub(crate) struct TakenExtent {
    pub index: usize,
    pub slabs: Arc<Slabs>,
    pub number: u64,
}

/// How many extents of so many columns can be made of drives with so many slabs each.
///
/// # Example
/// Of 10, 10 and 40 slabs with two columns: 20, each with a slab of the large drive. Of 1 and 40: one.
fn extents_of(columns: usize, slabs: impl Iterator<Item = usize> + Clone) -> u64 {
    let columns = columns.max(1) as u64;
    // So many are possible if the drives have a slab for each of their columns; of one drive each takes one at most.
    let is_possible =
        |extents: u64| slabs.clone().map(|n| (n as u64).min(extents)).sum::<u64>() >= columns * extents;
    let (mut possible, mut beyond) = (0, slabs.clone().sum::<usize>() as u64 / columns + 1);
    while possible + 1 < beyond {
        let middle = (possible + beyond) / 2;
        if is_possible(middle) { possible = middle } else { beyond = middle }
    }
    possible
}

impl Extents {
    /// Extents of `columns` slabs each. `slabs` are all slabs; those that `held` extents have are not free.
    pub(crate) fn new(
        columns: usize,
        slabs: Vec<Column>,
        held: impl IntoIterator<Item = HeldExtent>,
        next_number: u64,
    ) -> Self {
        let mut free: BTreeMap<_, VecDeque<u32>> = BTreeMap::new();
        for column in slabs {
            free.entry(column.drive).or_default().push_back(column.slab);
        }
        let wanted_columns = columns;
        let columns = columns.min(free.len()).max(1);
        let held: Vec<_> = held.into_iter().map(|held| Some(Extent { held, open: false })).collect();
        for column in held.iter().flatten().flat_map(|extent| extent.held.slabs.iter()) {
            if let Some(free) = free.get_mut(&column.drive) {
                free.retain(|slab| *slab != column.slab);
            }
        }
        let mut extents = Self {
            columns,
            wanted_columns,
            domains: BTreeMap::new(),
            free,
            resting: BTreeMap::new(),
            free_extents: 0,
            total: 0,
            held,
            next_number,
            taken: 0,
            set: 0,
            set_from: next_number,
        };
        extents.count_all();
        extents.count_free();
        extents
    }

    /// The same over drives in these fault domains.
    pub(crate) fn over(mut self, domains: BTreeMap<DriveIndex, Domain>) -> Self {
        self.domains = domains;
        self.count_all();
        self.count_free();
        self
    }

    /// What an extent has one slab of: the fault domain of a drive, or the drive itself while the set has fewer domains than
    /// an extent has columns.
    fn kept_apart(&self) -> impl Fn(DriveIndex) -> Domain + use<> {
        let domain_of: BTreeMap<_, _> =
            self.free.keys().map(|drive| (*drive, self.domain_of(*drive))).collect();
        let are_enough = domain_of.values().collect::<BTreeSet<_>>().len() >= self.columns;
        move |drive| match domain_of.get(&drive) {
            Some(domain) if are_enough => *domain,
            _ => Domain(drive.0),
        }
    }

    fn domain_of(&self, drive: DriveIndex) -> Domain {
        self.domains.get(&drive).copied().unwrap_or(Domain(drive.0))
    }

    /// How many extents can be made of so many slabs of each drive of the set.
    fn extents_of_drives(&self, slabs: impl Fn(DriveIndex, usize) -> usize) -> u64 {
        let (apart, mut counts) = (self.kept_apart(), BTreeMap::<Domain, usize>::new());
        for (drive, free) in &self.free {
            *counts.entry(apart(*drive)).or_default() += slabs(*drive, free.len());
        }
        extents_of(self.columns, counts.values().copied())
    }

    fn count_free(&mut self) {
        self.free_extents = self.extents_of_drives(|_, free| free);
    }

    /// Counts what the journal can hold: over all slabs of the set, free or not.
    fn count_all(&mut self) {
        self.total = self.extents_of_drives(|drive, free| {
            let of_drive = |extent: &&Extent| extent.held.slabs.iter().any(|column| column.drive == drive);
            free + self.held.iter().flatten().filter(of_drive).count()
        });
    }

    pub(crate) fn take(&mut self) -> Option<TakenExtent> {
        if self.free_extents == 0 {
            return None;
        }
        // The roomiest drive of each domain, and how much the domain has.
        let (apart, mut domains) = (self.kept_apart(), BTreeMap::<Domain, (usize, usize, DriveIndex)>::new());
        for (drive, slabs) in self.free.iter().filter(|(_, slabs)| !slabs.is_empty()) {
            let (all, most, roomiest) = domains.entry(apart(*drive)).or_insert((0, 0, *drive));
            *all += slabs.len();
            if slabs.len() > *most {
                (*most, *roomiest) = (slabs.len(), *drive);
            }
        }
        // NOTE: from the domains with the most free slabs, so that the rest makes as many extents as possible.
        let mut domains: Vec<_> = domains.into_values().collect();
        domains.sort_by_key(|(all, _, _)| std::cmp::Reverse(*all));
        let mut columns = Vec::with_capacity(self.columns);
        for (_, _, drive) in domains.into_iter().take(self.columns) {
            let slab = self.free.get_mut(&drive).and_then(VecDeque::pop_front);
            columns.extend(slab.map(|slab| Column { drive, slab }));
        }
        assert_eq!(columns.len(), self.columns, "an extent that counts as free has all its slabs");
        let slabs = Slabs::new(&columns)
            .unwrap_or_else(|| panic!("the slabs of an extent are on different drives, unlike {columns:?}"));
        self.count_free();
        let held = HeldExtent { number: self.next_number, last: Sequence(0), slabs };
        self.next_number += 1;
        self.taken += 1;
        let extent = Some(Extent { held, open: true });
        let index = match self.held.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                self.held.push(None);
                self.held.len() - 1
            }
        };
        self.held[index] = extent;
        Some(TakenExtent { index, slabs: Arc::new(slabs), number: held.number })
    }

    /// Notes that records up to `last` are about to be written to the extent.
    pub(crate) fn wrote(&mut self, index: usize, last: Sequence) {
        let held = &mut self.open_at(index).held;
        held.last = held.last.max(last);
    }

    pub(crate) fn close(&mut self, index: usize) {
        self.open_at(index).open = false;
    }

    /// The extent that a lane has open there.
    fn open_at(&mut self, index: usize) -> &mut Extent {
        let extent = self.held[index].as_mut().filter(|extent| extent.open);
        extent.unwrap_or_else(|| {
            panic!("no lane has the extent at {index} open, and one writes to it or closes it")
        })
    }

    /// Takes over the journal's set of drives that this table has. Tables come in their order.
    ///
    /// `slabs_of` tells the slabs of a drive that joins again. One that was never in the set joins by [`Self::join`], when it is
    /// open and its fault domain is known.
    pub(crate) fn follow(&mut self, members: &Members, slabs_of: impl Fn(DriveIndex) -> Vec<u32>) {
        if self.set != members.journal_set {
            assert!(self.set < members.journal_set, "the journal's set never goes back");
            (self.set, self.set_from) = (members.journal_set, self.next_number);
            let is_gone = |drive: &DriveIndex| !members.get(*drive).is_some_and(|member| member.in_journal);
            let gone: Vec<_> = self.free.keys().chain(self.resting.keys()).copied().filter(is_gone).collect();
            gone.into_iter().for_each(|drive| self.leave(drive));
            for Member { index, .. } in members.in_journal() {
                let is_known = self.domains.contains_key(index);
                if is_known && !self.free.contains_key(index) && !self.resting.contains_key(index) {
                    assert!(
                        !self.lies_on(*index),
                        "drive {index} joins the journal, and an extent lies there"
                    );
                    self.free.insert(*index, slabs_of(*index).into());
                }
            }
            let rests = |drive: &DriveIndex| {
                members.get(*drive).is_some_and(|member| member.state == MemberState::Leaving)
            };
            let all = std::mem::take(&mut self.free).into_iter().chain(std::mem::take(&mut self.resting));
            (self.resting, self.free) = all.partition(|(drive, _)| rests(drive));
            self.recount();
        }
    }

    /// A drive that was added to the set gives these slabs, which hold nothing. `None`: it is not in the set any more. `domains`
    /// has its fault domain too.
    pub(crate) fn join(
        &mut self,
        drive: DriveIndex,
        slabs: Option<Vec<u32>>,
        domains: BTreeMap<DriveIndex, Domain>,
    ) {
        assert!(!self.domains.contains_key(&drive), "drive {drive} joins the journal's set once");
        self.domains = domains;
        self.free.extend(slabs.map(|slabs| (drive, slabs.into())));
        self.recount();
    }

    /// Counts anew over the drives of the set.
    fn recount(&mut self) {
        self.columns = self.wanted_columns.min(self.free.len()).max(1);
        self.count_all();
        self.count_free();
    }

    /// How many columns extents would have without a drive, in how many domains, and how many of them there could be.
    pub(crate) fn without(&self, drive: DriveIndex) -> JournalWithout {
        let others = || self.free.keys().copied().filter(move |other| *other != drive);
        let mut counts = BTreeMap::<Domain, usize>::new();
        let columns = self.wanted_columns.min(others().count()).max(1);
        let domains = others().map(|other| self.domain_of(other)).collect::<BTreeSet<_>>().len();
        for other in others() {
            let apart = if domains >= columns { self.domain_of(other) } else { Domain(other.0) };
            *counts.entry(apart).or_default() += self.slabs_of(other);
        }
        JournalWithout {
            drives: others().count(),
            domains,
            total: extents_of(columns, counts.into_values().collect::<Vec<_>>().into_iter()),
        }
    }

    /// Slabs of a drive of the set, free or not.
    fn slabs_of(&self, drive: DriveIndex) -> usize {
        let on_it = |extent: &&Extent| extent.held.slabs.iter().any(|column| column.drive == drive);
        self.free.get(&drive).map_or(0, VecDeque::len) + self.held.iter().flatten().filter(on_it).count()
    }

    /// Whether an extent that is needed lies on a drive.
    pub(crate) fn lies_on(&self, drive: DriveIndex) -> bool {
        let mut held = self.held.iter().flatten().flat_map(|extent| extent.held.slabs.iter());
        held.any(|column| column.drive == drive)
    }

    /// Whether a lane is to go on to another extent, since the set of drives is another one.
    pub(crate) fn any_is_to_be_left(&self) -> bool {
        self.held.iter().flatten().any(|extent| extent.open && extent.held.number < self.set_from)
    }

    /// Whether an extent in use lies on fewer drives than the next one will.
    pub(crate) fn any_lacks_columns(&self) -> bool {
        self.held.iter().flatten().any(|extent| extent.held.slabs.len() < self.columns)
    }

    /// The number of the first extent that began under the set of drives in force, or will.
    pub(crate) fn set_from(&self) -> u64 {
        self.set_from
    }

    /// Whether some extent lies on this drive and on no other of the set.
    pub(crate) fn needs(&self, drive: DriveIndex, is_in_set: impl Fn(DriveIndex) -> bool) -> bool {
        let is_left = |column: &Column| column.drive != drive && is_in_set(column.drive);
        self.held.iter().flatten().any(|extent| {
            let slabs = &extent.held.slabs;
            slabs.iter().any(|column| column.drive == drive) && !slabs.iter().any(is_left)
        })
    }

    /// Takes a drive out of the set: nothing is written to its slabs any more.
    fn leave(&mut self, drive: DriveIndex) {
        if self.free.remove(&drive).or(self.resting.remove(&drive)).is_none() {
            return;
        }
        // What the journal can hold is counted anew: over the slabs of the other drives.
        self.recount();
        for extent in self.held.iter_mut().flatten() {
            // One that lay there alone keeps its name: the store asked [`Extents::needs`] before.
            if let Some(rest) = extent.held.slabs.only(|column| column.drive != drive) {
                extent.held.slabs = rest;
            }
        }
        self.count_free();
    }

    fn is_obsolete(extent: &Extent, tail: Sequence) -> bool {
        !extent.open && extent.held.last < tail
    }

    pub(crate) fn freed_by(&self, tail: Sequence) -> u64 {
        self.held.iter().flatten().filter(|e| Self::is_obsolete(e, tail)).count() as u64
    }

    pub(crate) fn free_below(&mut self, tail: Sequence) {
        for place in &mut self.held {
            let Some(extent) = place.take_if(|extent| Self::is_obsolete(extent, tail)) else { continue };
            // A drive that left the journal's set is not in `free`: its slabs are not given out again.
            for column in extent.held.slabs.iter() {
                let free = self.free.get_mut(&column.drive).or(self.resting.get_mut(&column.drive));
                if let Some(free) = free {
                    free.push_back(column.slab);
                }
            }
        }
        self.count_free();
    }

    pub(crate) fn usage(&self) -> JournalUse {
        let held = self.held.iter().flatten().map(|extent| extent.held.slabs.len());
        JournalUse {
            columns: held.fold(self.columns, usize::min) as u8,
            total: self.total,
            used: self.total - self.free_extents.min(self.total),
            taken: self.taken,
        }
    }

    /// The lowest number of an extent that holds, or may yet get, records from `tail` on, and the next number.
    pub(crate) fn needed_from(&self, tail: Sequence) -> (u64, u64) {
        let needed = self.held.iter().flatten().filter(|e| !Self::is_obsolete(e, tail));
        (needed.map(|e| e.held.number).min().unwrap_or(self.next_number), self.next_number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quoin_base::{DriveId, Epoch, MembersGeneration, PoolId};
    use quoin_drive::Roles;
    use uuid::Uuid;

    /// A table of three drives of which those with these numbers are in the journal's set.
    fn members(journal_set: u64, in_set: &[u16]) -> Members {
        let member = |index| Member {
            index: DriveIndex(index),
            drive: DriveId(Uuid::from_u128(index.into())),
            roles: Roles { journal: true, data: true },
            state: MemberState::Active,
            in_journal: in_set.contains(&index),
            votes: true,
            slabs: 4,
            domain: String::new(),
            failed_at: MembersGeneration(0),
            absent_since_ms: 0,
        };
        let (pool, epoch) = (PoolId(Uuid::nil()), Epoch(1));
        let all = (0..3).map(member).collect();
        Members { pool, epoch, generation: MembersGeneration(1), journal_set, next_index: 3, all }
    }

    fn none(drive: DriveIndex) -> Vec<u32> {
        panic!("drive {drive} joined")
    }

    #[test]
    fn a_drive_that_joins_again_has_all_its_slabs() {
        let apart = (0..3).map(|drive| (DriveIndex(drive), Domain(drive))).collect();
        let mut extents = Extents::new(2, slabs(&[4, 4, 4]), [], 1).over(apart);
        let first = extents.take().unwrap();
        extents.follow(&members(2, &[1, 2]), none);
        extents.wrote(first.index, Sequence(9));
        extents.close(first.index);
        assert!(!extents.lies_on(DriveIndex(0)));
        extents.follow(&members(3, &[0, 1, 2]), |_| (0..4).collect());
        assert_eq!(extents.usage().total, 6);
        assert_eq!(extents.slabs_of(DriveIndex(0)), 4);
    }

    fn slabs(sizes: &[u32]) -> Vec<Column> {
        let of = |(drive, count): (usize, &u32)| {
            (0..*count).map(move |slab| Column { drive: DriveIndex(drive as u16), slab })
        };
        sizes.iter().enumerate().flat_map(of).collect()
    }

    #[test]
    fn drives_of_different_sizes_waste_as_little_as_can_be() {
        for (columns, sizes, expected) in [
            (1, &[10, 10, 40][..], 60),
            (2, &[10, 10, 40], 20),
            (2, &[1, 40], 1),
            (2, &[7, 7], 7),
            (3, &[5, 5, 5, 5], 6),
            (3, &[9, 2, 2], 2),
            (4, &[8, 8, 8, 8], 8),
            // Fewer drives than columns: as many as there are.
            (3, &[6, 6], 6),
            (2, &[6], 6),
        ] {
            let mut extents = Extents::new(columns, slabs(sizes), [], 1);
            assert_eq!(extents.usage().total, expected, "{columns} {sizes:?}");
            let mut taken = Vec::new();
            while let Some(extent) = extents.take() {
                taken.push(extent);
            }
            assert_eq!(taken.len() as u64, expected, "{columns} {sizes:?}");
            let mut used: Vec<_> = taken.iter().flat_map(|extent| extent.slabs.iter().copied()).collect();
            let count = used.len();
            used.sort_unstable();
            used.dedup();
            assert_eq!(used.len(), count, "no slab is given out twice");
        }
    }

    #[test]
    fn columns_lie_in_different_domains_while_there_are_enough() {
        // Drives 0 and 1 fail together; 2 and 3 are alone.
        let domains = || BTreeMap::from([(DriveIndex(0), Domain(0)), (DriveIndex(1), Domain(0))]);
        let mut extents = Extents::new(2, slabs(&[4, 4, 4]), [], 1).over(domains());
        assert_eq!(extents.usage().total, 4, "each has a slab of drive 2");
        for _ in 0..4 {
            let taken = extents.take().unwrap();
            assert!(taken.slabs.iter().any(|column| column.drive.0 == 2), "{:?}", taken.slabs);
        }
        assert!(extents.take().is_none());
        let three = Extents::new(3, slabs(&[4, 4, 4, 4]), [], 1).over(domains());
        assert_eq!(three.usage().total, 4);
        // With one domain left, its drives are better than one of them.
        let mut extents = Extents::new(2, slabs(&[4, 4, 4]), [], 1).over(domains());
        extents.follow(&members(2, &[0, 1]), none);
        assert_eq!(extents.usage().total, 4);
        assert_eq!(extents.take().unwrap().slabs.len(), 2);
    }

    #[test]
    fn what_is_freed_is_given_out_again_and_a_drive_that_left_is_not() {
        let mut extents = Extents::new(2, slabs(&[4, 4, 4]), [], 1);
        let first = extents.take().unwrap();
        extents.wrote(first.index, Sequence(9));
        assert_eq!((extents.usage().used, extents.freed_by(Sequence(10))), (1, 0));
        extents.close(first.index);
        assert_eq!(extents.freed_by(Sequence(10)), 1);
        assert!(
            !extents.needs(DriveIndex(0), |_| true) && extents.needs(DriveIndex(0), |drive| drive.0 != 1)
        );
        extents.follow(&members(2, &[1, 2]), none);
        extents.free_below(Sequence(10));
        let JournalUse { total, used, .. } = extents.usage();
        assert_eq!((total, used), (4, 0));
        while let Some(extent) = extents.take() {
            assert!(extent.slabs.len() == 2 && extent.slabs.iter().all(|column| column.drive.0 > 0));
        }
        extents.follow(&members(3, &[2]), none);
        assert_eq!(extents.usage().total, 4);
    }

    #[test]
    fn slabs_of_a_drive_that_leaves_rest_until_it_is_gone_or_stays() {
        let mut extents = Extents::new(2, slabs(&[4, 4, 4]), [], 1);
        let first = extents.take().unwrap();
        extents.wrote(first.index, Sequence(9));
        extents.close(first.index);
        assert!(extents.lies_on(DriveIndex(0)));
        let without = extents.without(DriveIndex(0));
        assert_eq!((without.drives, without.domains, without.total), (2, 2, 4));
        let mut leaving = members(2, &[0, 1, 2]);
        leaving.all[0].state = MemberState::Leaving;
        extents.follow(&leaving, none);
        assert_eq!(extents.usage().total, 4);
        // What lies there is needed until the tail has passed it.
        extents.free_below(Sequence(9));
        assert!(extents.lies_on(DriveIndex(0)));
        extents.free_below(Sequence(10));
        assert!(!extents.lies_on(DriveIndex(0)));
        let next = extents.take().unwrap();
        assert!(next.slabs.iter().all(|column| column.drive.0 > 0), "{:?}", next.slabs);
        // It stays after all, with all its slabs.
        extents.follow(&members(3, &[0, 1, 2]), none);
        assert_eq!(extents.usage().total, 6);
        assert_eq!(extents.slabs_of(DriveIndex(0)), 4);
    }
}
