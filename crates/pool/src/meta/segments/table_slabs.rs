//! Where the pages of the segment table lie: in *table slabs* that the root names. The table says where everything else
//! is, so it must be found without any of that.
//!
//! A place is a page of a table slab: a [`Location`] that names the position of the slab in the root's list,
//! counted from 1. It holds the same page in each column of the slab, so what lies there is kept twice. Pages
//! of the page maps and of the catalog, which lead to many others, get the places that the table leaves. Which
//! places are taken is not recorded: opening finds out from the page maps.
//!
//! Invariants:
//! 1. A place is taken from when it is given out until a checkpoint that does not need it is durable. So the two generations
//!    of a page never overlap, and after a crash all that the last root leads to is there.
//! 2. There are places for the whole table twice, for the last checkpoint and for the next: a checkpoint that
//!    has begun finds a place for every page. Other pages take none of these; without places left they lie in
//!    rows.
//! 3. A copy of a table slab protects it only when a root that names it is durable: until then it counts with those that the
//!    durable root names.
//! 4. A table slab is used for something else only when no page lies there and a root that does not name it is
//!    durable.

use super::{
    Inner, SegmentTable,
    granted::SlabsByDrive,
    table_size::{pages_of_table, table_slabs_for},
};
use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    format::{
        ColumnEntry, Location, MAX_TABLE_SLABS, NO_DRIVE, PAGE_BYTES, PageSpace, Root, SEGMENTS_PER_PAGE,
        TableSlabEntry,
    },
    meta::{PageId, layouts::Layouts},
};
use quoin_base::{DriveIndex, PageNumber};
use quoin_stripe::Column;
use quoin_world::Mutex;
use std::{cmp::Reverse, collections::BTreeSet, sync::Arc};

mod room;

struct TableSlab {
    columns: Arc<[Column]>,
    /// Those that the last durable root names, if the next one will name others.
    before: Option<Arc<[Column]>>,
    /// A bit for each page.
    taken: Vec<u64>,
    free: u64,
}

#[derive(Default)]
struct Places {
    slabs: Vec<TableSlab>,
    /// Places that the next checkpoint does not need, and whether each is the table's.
    given_up: Vec<(Location, bool)>,
    /// Places taken by pages other than the table's.
    others: u64,
    /// Slabs that the last durable root names and the next will not.
    leaving: Vec<Arc<[Column]>>,
}

pub(crate) struct TableSlabs {
    inner: Mutex<Places>,
    pages_per_slab: u64,
}

impl TableSlabs {
    /// Those that a root names, as if no page lay there.
    pub(crate) fn of(root: &Root, slab_bytes: u32) -> Self {
        let table =
            Self { inner: Mutex::default(), pages_per_slab: u64::from(slab_bytes) / PAGE_BYTES as u64 };
        for entry in root.table.iter().take(root.table_slabs.get() as usize) {
            let columns = entry.columns.iter().take_while(|column| column.drive.get() != NO_DRIVE);
            table.add(columns.map(ColumnEntry::column).collect());
        }
        table
    }

    /// Enters into a root where the table lies.
    pub(crate) fn enter(&self, root: &mut Root) {
        let named = self.named();
        root.table_slabs = (named.len() as u32).into();
        let none = ColumnEntry { drive: NO_DRIVE.into(), ..ColumnEntry::default() };
        for (slot, columns) in root.table.iter_mut().zip(named) {
            *slot = TableSlabEntry { columns: [none; 4] };
            for (entry, column) in slot.columns.iter_mut().zip(columns.iter()) {
                *entry = (*column).into();
            }
        }
    }

    /// The columns of all slabs, in their order.
    pub(crate) fn named(&self) -> Vec<Arc<[Column]>> {
        self.inner.lock().slabs.iter().map(|slab| slab.columns.clone()).collect()
    }

    /// The columns that the last durable root names of slabs for which the next one will name others.
    pub(super) fn named_before(&self) -> Vec<Arc<[Column]>> {
        self.inner.lock().slabs.iter().filter_map(|slab| slab.before.clone()).collect()
    }

    fn add(&self, columns: Arc<[Column]>) {
        let taken = vec![0; self.pages_per_slab.div_ceil(64) as usize];
        self.inner.lock().slabs.push(TableSlab { columns, before: None, taken, free: self.pages_per_slab });
    }

    /// The pool goes on without a drive: what it holds may be old by the time it comes back.
    pub(super) fn lose(&self, drive: DriveIndex) {
        let without = |columns: &mut Arc<[Column]>| {
            let left: Arc<[Column]> =
                columns.iter().filter(|column| column.drive != drive).copied().collect();
            if !left.is_empty() {
                *columns = left;
            }
        };
        let mut inner = self.inner.lock();
        inner.slabs.iter_mut().for_each(|slab| {
            without(&mut slab.columns);
            slab.before.iter_mut().for_each(without);
        });
        inner.leaving.iter_mut().for_each(without);
    }

    /// The columns that have a copy of a place; `None` if there is no such place.
    pub(crate) fn columns_of(&self, at: Location) -> Option<Arc<[Column]>> {
        let (slab, _) = self.find(at)?;
        Some(self.inner.lock().slabs.get(slab)?.columns.clone())
    }

    /// Which slab a location means, and which page there.
    fn find(&self, at: Location) -> Option<(usize, u64)> {
        let page = at.offset_bytes() / PAGE_BYTES as u64;
        let is_page = at.len_bytes() == PAGE_BYTES as u64 && at.offset_bytes() == page * PAGE_BYTES as u64;
        let slab = (at.table_slab()? as usize).checked_sub(1)?;
        (is_page && page < self.pages_per_slab).then_some((slab, page))
    }

    /// Notes that a page, of the table or another, lies at a place, as the page map says.
    pub(crate) fn note(&self, at: Location, is_table: bool) -> Result<(), PoolError> {
        let mut inner = self.inner.lock();
        inner.others += u64::from(!is_table);
        let is_free =
            self.find(at).is_some_and(|(slab, page)| inner.slabs.get_mut(slab).is_some_and(|s| s.set(page)));
        if is_free {
            Ok(())
        } else {
            Err(PoolError::corrupt(
                format!("the place {:#x} of a table slab", at.0),
                "two pages lie there, or there is no such place",
            ))
        }
    }

    /// Takes the first free place. Pages other than the table's take at most `most_others` in all.
    fn take(&self, is_table: bool, most_others: u64) -> Option<Location> {
        let mut inner = self.inner.lock();
        if !is_table && inner.others >= most_others {
            return None;
        }
        let (number, slab) = (1u32..).zip(&mut inner.slabs).find(|(_, slab)| slab.free > 0)?;
        let page = slab.first_free()?;
        assert!(page < self.pages_per_slab && slab.set(page), "a place is given out once");
        inner.others += u64::from(!is_table);
        Some(Location::in_table_slab(number, page))
    }

    /// Gives a place up that the next checkpoint does not need.
    ///
    /// # Errors
    /// No page lies there: the page map and the table slabs do not agree.
    pub(crate) fn give_up(&self, at: Location, is_table: bool) -> Result<(), PoolError> {
        let mut inner = self.inner.lock();
        let is_taken = self
            .find(at)
            .is_some_and(|(slab, page)| inner.slabs.get(slab).is_some_and(|slab| slab.is_taken(page)));
        if !is_taken {
            return Err(PoolError::corrupt(
                format!("the place {:#x} of a table slab", at.0),
                "a page is given up there that it does not hold",
            ));
        }
        inner.given_up.push((at, is_table));
        if planted(Bug::EarlyTableReuse) {
            self.free_given_up(&mut inner);
        }
        Ok(())
    }

    fn free_given_up(&self, inner: &mut Places) {
        for (at, is_table) in std::mem::take(&mut inner.given_up) {
            inner.others -= u64::from(!is_table);
            let slab = self.find(at).and_then(|(slab, page)| Some((inner.slabs.get_mut(slab)?, page)));
            if let Some((slab, page)) = slab {
                slab.clear(page);
            }
        }
    }

    /// Frees what was given up: a checkpoint without it is durable. Lets the last slab go if it is empty and the others
    /// have places for `pages` twice. Returns the slabs that no durable root names any more.
    fn passed(&self, pages: u64) -> Vec<Arc<[Column]>> {
        let mut inner = self.inner.lock();
        self.free_given_up(&mut inner);
        // Copies are made only right before a cut, so the root that is durable now names them all.
        inner.slabs.iter_mut().for_each(|slab| slab.before = None);
        let left = std::mem::take(&mut inner.leaving);
        let spare = |inner: &Places| {
            inner.slabs.last().is_some_and(|last| last.free == self.pages_per_slab)
                && (inner.slabs.len() as u64 - 1) * self.pages_per_slab >= 2 * pages
        };
        while spare(&inner) {
            let last = inner.slabs.pop().map(|slab| slab.columns);
            inner.leaving.extend(last);
        }
        left
    }

    /// A slab that has a copy on a drive that leaves, fewer than `copies`, or copies in fewer domains than there could be: its
    /// position and its columns.
    fn incomplete(&self, copies: usize, layouts: &Layouts) -> Option<(usize, Vec<Column>)> {
        let domains = copies.min(layouts.domain_count());
        // One at a time: each takes a while to copy.
        let inner = self.inner.lock();
        inner.slabs.iter().enumerate().find_map(|(at, slab)| {
            let staying = slab.columns.iter().filter_map(|column| layouts.domain(column.drive));
            let is_whole = staying.clone().count() >= slab.columns.len().max(copies)
                && staying.collect::<BTreeSet<_>>().len() >= domains;
            (!is_whole).then(|| (at, slab.columns.to_vec()))
        })
    }

    /// Whether there is such a slab.
    pub(super) fn is_any_incomplete(&self, copies: usize, layouts: &Layouts) -> bool {
        self.incomplete(copies, layouts).is_some()
    }

    /// Whether a drive has a copy that a root names, or named until the next one is durable.
    pub(super) fn is_on(&self, drive: DriveIndex) -> bool {
        let inner = self.inner.lock();
        let named = inner.slabs.iter().map(|slab| &slab.columns).chain(&inner.leaving);
        named.flat_map(|columns| columns.iter()).any(|column| column.drive == drive)
    }

    /// The slab at a position has these columns from now on. The root that is written next names them; the old ones that are
    /// not among them come free when it is durable.
    fn put(&self, at: usize, columns: &[Column]) {
        let mut inner = self.inner.lock();
        let slab = &mut inner.slabs[at];
        let old = std::mem::replace(&mut slab.columns, columns.into());
        slab.before.get_or_insert_with(|| old.clone());
        let left: Arc<[Column]> = old.iter().filter(|column| !columns.contains(column)).copied().collect();
        if !left.is_empty() {
            inner.leaving.push(left);
        }
    }

    fn count(&self) -> u64 {
        self.inner.lock().slabs.len() as u64
    }

    /// How many slabs they and their copies take, those that are leaving included.
    pub(super) fn columns(&self) -> u64 {
        let inner = self.inner.lock();
        let named = inner.slabs.iter().map(|slab| &slab.columns);
        named.chain(&inner.leaving).map(|columns| columns.len() as u64).sum()
    }

    fn places(&self) -> u64 {
        self.count() * self.pages_per_slab
    }
}

impl TableSlab {
    fn is_taken(&self, page: u64) -> bool {
        self.taken[(page / 64) as usize] >> (page % 64) & 1 != 0
    }

    /// False if it is taken already.
    fn set(&mut self, page: u64) -> bool {
        let is_free = !self.is_taken(page);
        self.taken[(page / 64) as usize] |= 1 << (page % 64);
        self.free -= u64::from(is_free);
        is_free
    }

    fn clear(&mut self, page: u64) {
        assert!(self.is_taken(page), "a place is freed that was taken");
        self.taken[(page / 64) as usize] &= !(1 << (page % 64));
        self.free += 1;
    }

    fn first_free(&self) -> Option<u64> {
        let word = self.taken.iter().position(|word| *word != u64::MAX)?;
        Some(word as u64 * 64 + u64::from(self.taken[word].trailing_ones()))
    }
}

/// Another copy of a table slab that is to be made.
pub(crate) struct TableCopy {
    at: usize,
    /// Where it is.
    pub columns: Vec<Column>,
    pub to: Column,
}

impl SegmentTable {
    /// Where its pages lie.
    pub(crate) fn table_slabs(&self) -> &TableSlabs {
        &self.table_slabs
    }

    /// Pages that the table may have, those of its map included.
    fn most_pages(&self) -> u64 {
        let inner = self.inner.read();
        pages_of_table((inner.all_held() + 1).max(inner.segments.len() as u64))
    }

    /// Takes slabs until the table has places enough. There are fewer only where no slab is free.
    ///
    /// # Errors
    /// The root cannot name as many.
    pub(crate) fn provide_places(&self) -> Result<(), PoolError> {
        let wanted = table_slabs_for(self.inner.read().all_held(), self.slab_bytes.into());
        while self.table_slabs.count() < wanted || self.table_slabs.places() < 2 * self.most_pages() {
            if self.table_slabs.count() == MAX_TABLE_SLABS as u64 {
                return Err(PoolError::Refused(format!(
                    "the slice has {} slabs for data, and its segment table cannot name more: make a pool with larger slabs or \
                     more slices",
                    self.inner.read().all_held()
                )));
            }
            let mut inner = self.inner.write();
            let Inner { layouts, free_slabs, .. } = &mut *inner;
            let Some(columns) = take_slabs(free_slabs, layouts) else { break };
            drop(inner);
            self.table_slabs.add(columns);
        }
        Ok(())
    }

    /// Whether a table slab lacks a copy for which there is room, or has one that no durable root names.
    pub(crate) fn lacks_table_copies(&self) -> bool {
        !self.table_slabs.named_before().is_empty()
            || self.may_be_displaced() && self.next_table_copy(&self.inner.read()).is_some()
    }

    /// A table slab that lacks a copy, or has one on a drive that leaves, and a slab for another copy, which is taken.
    pub(crate) fn begin_table_copy(&self) -> Option<TableCopy> {
        let mut inner = self.inner.write();
        let (at, columns, drive) = self.next_table_copy(&inner)?;
        let to = Column { drive, slab: inner.free_slabs.get_mut(&drive)?.pop_first()? };
        inner.being_filled.insert(to);
        Some(TableCopy { at, columns, to })
    }

    /// Its position, where it is, and a drive with a free slab for another copy.
    fn next_table_copy(&self, inner: &Inner) -> Option<(usize, Vec<Column>, DriveIndex)> {
        let Inner { layouts, free_slabs, .. } = inner;
        let (at, columns) = self.table_slabs.incomplete(layouts.table_copies(), layouts)?;
        let staying: Vec<_> = columns.iter().filter(|column| layouts.takes(column.drive)).collect();
        let is_taken = |drive: DriveIndex| {
            staying.iter().any(|column| layouts.domain(column.drive) == layouts.domain(drive))
        };
        let is_used = |drive: DriveIndex| staying.iter().any(|column| column.drive == drive);
        // With fewer domains than copies, some share one, or even a drive: that is better than a copy less.
        let is_spread = staying.iter().filter_map(|column| layouts.domain(column.drive));
        let may_share = is_spread.collect::<BTreeSet<_>>().len() >= layouts.domain_count();
        let free = free_slabs.iter().filter(|(drive, free)| {
            layouts.takes(**drive) && !free.is_empty() && (may_share || !is_taken(**drive))
        });
        let (drive, _) =
            free.max_by_key(|(drive, free)| (!is_used(**drive), free.len(), Reverse(**drive)))?;
        let drive = *drive;
        Some((at, columns, drive))
    }

    /// Takes the new copy in, if it was made. One that was on a drive that leaves goes.
    pub(crate) fn end_table_copy(&self, copy: TableCopy, is_made: bool) {
        let mut inner = self.inner.write();
        // The drive may have been lost meanwhile.
        if !inner.end_filling(copy.to) {
            return;
        }
        if !is_made || !inner.layouts.takes(copy.to.drive) {
            inner.comes_free(copy.to);
            return;
        }
        let stays = |column: &&Column| inner.layouts.takes(column.drive);
        let mut columns: Vec<_> = copy.columns.iter().filter(stays).copied().collect();
        // Of those that share a domain one goes, if there are enough without it.
        let domain = |column: &Column| inner.layouts.domain(column.drive);
        let twice = (1..columns.len())
            .find(|at| columns[..*at].iter().any(|column| domain(column) == domain(&columns[*at])));
        if let Some(at) = twice.filter(|_| columns.len() >= inner.layouts.table_copies()) {
            columns.remove(at);
        }
        columns.push(copy.to);
        self.table_slabs.put(copy.at, &columns);
    }

    /// A place for a page that is kept twice; `None` if there is none, or it is not such a page.
    pub(crate) fn take_place(&self, id: PageId) -> Option<Location> {
        let most_others = self.table_slabs.places().saturating_sub(2 * self.most_pages());
        let is_table = id.space == PageSpace::Segments;
        if id.is_kept_twice() { self.table_slabs.take(is_table, most_others) } else { None }
    }

    /// Notes that a checkpoint is durable. True if slabs came free.
    pub(crate) fn table_written(&self) -> bool {
        let slab_bytes = u64::from(self.slab_bytes);
        let slabs = table_slabs_for(self.inner.read().all_held(), slab_bytes);
        let left =
            self.table_slabs.passed((slabs * slab_bytes / (2 * PAGE_BYTES as u64)).max(self.most_pages()));
        let mut inner = self.inner.write();
        for column in left.iter().flat_map(|columns| columns.iter()) {
            inner.comes_free(*column);
        }
        !left.is_empty()
    }

    /// Marks a page of the table, so that the next checkpoint writes it anew.
    pub(crate) fn rewrite(&self, page: PageNumber) {
        let mut inner = self.inner.write();
        if page.0 < inner.segments.len().div_ceil(SEGMENTS_PER_PAGE) as u64 {
            inner.dirty_pages.insert(page);
        }
    }

    /// Whether the next checkpoint writes a page of the table.
    pub(crate) fn is_due(&self, page: PageNumber) -> bool {
        self.inner.read().dirty_pages.contains(&page)
    }
}

/// A slab for each copy: of the drives with the most free ones in distinct domains; on several drives of one domain, or on one
/// drive, if there are no others.
fn take_slabs(slabs: &mut SlabsByDrive, layouts: &Layouts) -> Option<Arc<[Column]>> {
    let copies = layouts.table_copies();
    let usable = slabs.iter().filter(|(drive, _)| layouts.takes(**drive));
    if usable.map(|(_, free)| free.len()).sum::<usize>() < copies {
        return None;
    }
    let mut columns: Vec<Column> = Vec::new();
    while columns.len() < copies {
        let has = |drive: DriveIndex| {
            columns.iter().any(|column| layouts.domain(column.drive) == layouts.domain(drive))
        };
        let is_used = |drive: DriveIndex| columns.iter().any(|column| column.drive == drive);
        let free = slabs.iter_mut().filter(|(drive, free)| layouts.takes(**drive) && !free.is_empty());
        let (drive, free) = free
            .max_by_key(|(drive, free)| (!has(**drive), !is_used(**drive), free.len(), Reverse(**drive)))?;
        columns.push(Column { drive: *drive, slab: free.pop_first()? });
    }
    Some(columns.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::{
        format::{SEGMENTS_END, zeroed},
        meta::Domain,
    };
    use quoin_base::{Layout, SegmentId};

    fn column(drive: u16, slab: u32) -> Column {
        Column { drive: DriveIndex(drive), slab }
    }

    /// Of `slabs` slabs of 64 pages.
    fn table(slabs: u32) -> TableSlabs {
        let table = TableSlabs::of(&zeroed(), 256 << 10);
        (0..slabs).for_each(|slab| table.add([column(0, slab), column(1, 70_000 + slab)].into()));
        table
    }

    #[test]
    fn a_place_is_free_again_only_when_a_checkpoint_without_it_is_durable() {
        let table = table(1);
        let first: Vec<_> = (0..64).map(|_| table.take(true, 0).unwrap()).collect();
        assert_eq!(table.take(true, 0), None);
        assert!(first.windows(2).all(|w| w[0].is_followed_by(w[1])));
        table.give_up(first[7], true).unwrap();
        assert_eq!(table.take(true, 0), None);
        assert!(table.passed(64).is_empty());
        assert_eq!(table.take(true, 0), Some(first[7]));
    }

    #[test]
    fn other_pages_leave_the_table_its_places() {
        let table = table(1);
        let others: Vec<_> = (0..10).map(|_| table.take(false, 10).unwrap()).collect();
        assert_eq!(table.take(false, 10), None);
        table.give_up(others[0], false).unwrap();
        assert_eq!(table.take(false, 10), None, "the last checkpoint has it still");
        table.passed(32);
        assert_eq!(table.take(false, 10), Some(others[0]));
        assert_eq!((0..64).filter_map(|_| table.take(true, 0)).count(), 54);
    }

    #[test]
    fn a_place_that_is_not_there_or_not_taken_is_refused() {
        let table = table(2);
        let at = |slab, offset, len| Location::new(SegmentId(SEGMENTS_END | slab), offset, len);
        let place = at(2, 63 * 4096, 4096);
        assert_eq!(place, Location::in_table_slab(2, 63));
        assert!(table.give_up(place, true).is_err());
        table.note(place, true).unwrap();
        let segment = Location::new(SegmentId(1), 0, 4096);
        for bad in [place, at(2, 64 * 4096, 4096), at(3, 0, 4096), at(1, 512, 4096), at(1, 0, 512), segment] {
            assert!(table.note(bad, true).is_err(), "{bad:?}");
        }
        table.give_up(place, true).unwrap();
    }

    #[test]
    fn a_root_names_the_slabs() {
        let (table, mut root) = (table(MAX_TABLE_SLABS as u32), zeroed());
        table.enter(&mut root);
        let read = TableSlabs::of(&root, 256 << 10);
        assert_eq!(read.named(), table.named());
        assert_eq!(read.named()[3][1], column(1, 70_003));
        let columns = read.columns_of(Location::in_table_slab(4, 2)).unwrap();
        assert_eq!(columns[..], [column(0, 3), column(1, 70_003)]);
    }

    #[test]
    fn a_slab_that_is_not_needed_leaves_over_two_checkpoints() {
        let table = table(3);
        let taken = table.take(true, 0).unwrap();
        assert!(table.passed(90).is_empty());
        assert_eq!(table.named().len(), 3, "ninety pages need them all");
        assert!(table.passed(60).is_empty(), "the last root still names it");
        assert_eq!((table.named().len(), table.columns()), (2, 6));
        assert_eq!(&table.passed(60)[..], [[column(0, 2), column(1, 70_002)].into()]);
        assert!(table.passed(1).is_empty());
        assert_eq!(table.named().len(), 1);
        table.give_up(taken, true).unwrap();
    }

    #[test]
    fn copies_lie_on_different_drives_where_there_are_several() {
        let drive = |drive, free: std::ops::Range<u32>| (DriveIndex(drive), free.collect());
        let domains = [0, 1, 2].map(|drive| (DriveIndex(drive), Domain(drive)));
        let layouts = Layouts::new(Layout::NONE, 64 << 10, domains.into());
        let mut slabs = [drive(0, 3..5), drive(1, 10..20), drive(2, 4..7)].into();
        assert_eq!(&take_slabs(&mut slabs, &layouts).unwrap()[..], [column(1, 10), column(2, 4)]);
        let mut slabs = [drive(0, 0..0), drive(1, 5..7)].into();
        assert_eq!(&take_slabs(&mut slabs, &layouts).unwrap()[..], [column(1, 5), column(1, 6)]);
        assert!(take_slabs(&mut slabs, &layouts).is_none());
    }
}
