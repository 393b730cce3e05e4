//! Where the records of the catalog lie: in pages that hold many, of which a checkpoint writes only those whose records
//! changed.
//!
//! A record is cut into *pieces* that fit a page; nearly all records are of one. RAM knows where each piece lies, and the
//! content of a page is made anew from the records themselves: no page is read but when the slice is opened.
//!
//! ```text
//! page 0   layer 1 │ object a │ layer 2 │ free
//! page 1   object b, piece 0 of 2 ──────────────
//! page 2   object b, piece 1 of 2 │ layer 3 │ free
//! ```
//!
//! Invariants:
//! 1. A key has one record, a record each of its pieces once, and a piece lies in one page.
//! 2. A page into which a piece came, from which one went, or of which one changed since it was written is *due*: the next
//!    cut writes it.
//! 3. A page without pieces is given back by the next cut.
//! 4. All pages that a cut writes are of one moment: the catalog does not change meanwhile.

use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    format::{PAGE_BYTES, PAGE_WORDS, PIECE_HEAD_BYTES, PageSpace, PieceHead, RECORD_PAGE_HEAD_BYTES},
    meta::records::RecordKey,
};
use hashbrown::HashMap;
use quoin_base::PageNumber;
#[cfg(debug_assertions)]
use quoin_base::crc32c;
use rustc_hash::FxBuildHasher;
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};
use zerocopy::{FromBytes, IntoBytes};

#[cfg(test)]
mod tests;

/// What the pieces of a page and their heads may take.
const PAGE_ROOM: usize = PAGE_BYTES - RECORD_PAGE_HEAD_BYTES;
/// The longest piece: a page of its own.
const MOST_PIECE_BYTES: usize = PAGE_ROOM - PIECE_HEAD_BYTES;
/// A page takes new pieces from the time it is so empty: otherwise a few new records would make as many pages due.
const HALF_EMPTY: usize = PAGE_ROOM / 2;
/// How long a new record is taken to be until it is encoded.
const NEW_RECORD_BYTES: u64 = 400;

/// The content of a page of the catalog.
pub(crate) type PageWords = Box<[u64; PAGE_WORDS]>;

/// A record, and where it lies.
struct Record {
    key: RecordKey,
    len_bytes: usize,
    /// The page of each piece.
    pages: Vec<u32>,
}

#[derive(Default)]
struct PageUse {
    /// Number of the record, and which piece of it.
    pieces: Vec<(u32, u16)>,
    used_bytes: usize,
}

/// The places of all records of a catalog.
pub(crate) struct RecordHeap {
    numbers: HashMap<RecordKey, u32, FxBuildHasher>,
    /// By number: by this their pieces know each other.
    records: HashMap<u32, Record, FxBuildHasher>,
    next_number: u32,
    pages: Vec<PageUse>,
    /// Numbers that no page has, below that of the last.
    empty: BTreeSet<u32>,
    /// How much is free in each page that is not due, and in each that is.
    settled: BTreeSet<(usize, u32)>,
    due: BTreeSet<(usize, u32)>,
    /// Records that changed since the last cut.
    changed: BTreeSet<RecordKey>,
    changed_bytes: u64,
    /// The most pieces in a page.
    most_pieces: usize,
    /// Checksums of the records as they were written, to see that no change was forgotten.
    #[cfg(debug_assertions)]
    written: BTreeMap<u32, u32>,
}

/// How many pieces a record is cut into.
fn pieces_of(len_bytes: usize) -> usize {
    len_bytes.div_ceil(MOST_PIECE_BYTES).max(1)
}

impl Record {
    fn piece_bytes(&self, piece: u16) -> usize {
        (self.len_bytes - usize::from(piece) * MOST_PIECE_BYTES).min(MOST_PIECE_BYTES)
    }
}

impl RecordHeap {
    /// Without records. A page takes at most so many pieces.
    pub(crate) fn new(most_pieces: usize) -> Self {
        Self {
            numbers: HashMap::default(),
            records: HashMap::default(),
            next_number: 0,
            pages: Vec::new(),
            empty: BTreeSet::new(),
            settled: BTreeSet::new(),
            due: BTreeSet::new(),
            changed: BTreeSet::new(),
            changed_bytes: 0,
            most_pieces: most_pieces.max(1),
            #[cfg(debug_assertions)]
            written: BTreeMap::new(),
        }
    }

    /// Has pages take no more pieces than this from now on.
    pub(crate) fn limit_pieces(&mut self, most: usize) {
        debug_assert!(self.due.is_empty(), "no page is due yet");
        self.most_pieces = most.max(1);
        let pages: Vec<u32> = mem::take(&mut self.settled).into_iter().map(|(_, page)| page).collect();
        self.settled = pages.into_iter().map(|page| (self.free_bytes(page), page)).collect();
    }

    /// Numbers of pages from here on are not in use.
    pub(crate) fn pages_end(&self) -> u64 {
        self.pages.len() as u64
    }

    /// How many records it holds.
    pub(crate) fn count(&self) -> u64 {
        self.records.len() as u64
    }

    /// How many pages the next cut writes or gives back, about: those known to be due, and those for records that are new or
    /// have to move.
    pub(crate) fn due_pages(&self) -> u64 {
        // Of two pages that are begun one after the other, the pieces that go there take half a page at least.
        let moved = self.changed_bytes * 4 / PAGE_ROOM as u64;
        self.due.len() as u64 + moved + u64::from(!self.changed.is_empty())
    }

    /// Notes that a record changed, came to be or is gone.
    pub(crate) fn note(&mut self, key: RecordKey) {
        if self.changed.contains(&key) {
            return;
        }
        let record = self.numbers.get(&key).and_then(|number| self.records.get(number));
        if planted(Bug::LeaveOutChanged) && record.is_some() && self.count().is_multiple_of(2) {
            return;
        }
        self.changed_bytes += record.map_or(NEW_RECORD_BYTES, |record| record.len_bytes as u64);
        for page in record.map_or_else(Vec::new, |record| record.pages.clone()) {
            self.make_due(page);
        }
        self.changed.insert(key);
    }

    /// Has the next cut write a page, though nothing in it changed. False if there is no such page.
    pub(crate) fn rewrite(&mut self, page: PageNumber) -> bool {
        let is_there = self.pages.get(page.0 as usize).is_some_and(|page| !page.pieces.is_empty());
        if is_there {
            self.make_due(page.0 as u32);
        }
        is_there
    }

    /// Whether the next cut writes a page.
    pub(crate) fn is_due(&self, page: PageNumber) -> bool {
        let known = self.pages.get(page.0 as usize).is_some();
        known && self.due.contains(&(self.free_bytes(page.0 as u32), page.0 as u32))
    }

    /// The pages that must be written, or given back (`None`), so that they hold the records as they are. `encode` gives a
    /// record, or `None` if it is gone.
    pub(crate) fn cut(
        &mut self,
        encode: impl Fn(&RecordKey) -> Option<Vec<u8>>,
    ) -> Vec<(PageNumber, Option<PageWords>)> {
        // First what is gone or became another length: that makes room.
        let (mut encoded, mut homeless) = (BTreeMap::new(), Vec::new());
        for key in mem::take(&mut self.changed) {
            let number = self.numbers.get(&key).copied();
            match (encode(&key), number) {
                (None, None) => {}
                (None, Some(number)) => {
                    let pages = self.records[&number].pages.clone();
                    self.remove(number);
                    if planted(Bug::KeepDeletedRecord) {
                        self.leave_as_they_are(&pages);
                    }
                }
                (Some(bytes), number) => {
                    let number = number.unwrap_or_else(|| self.add(key));
                    if !self.resize(number, bytes.len()) {
                        homeless.push(number);
                    }
                    encoded.insert(number, bytes);
                }
            }
        }
        self.changed_bytes = 0;
        // Then what is new or does not fit any more where it lay, into pages that are written anyway if they have room.
        for number in homeless {
            let len_bytes = encoded.get(&number).map_or(0, Vec::len);
            self.place(number, len_bytes);
        }
        self.thin_out();
        self.take_due(encoded, encode)
    }

    fn add(&mut self, key: RecordKey) -> u32 {
        while self.records.contains_key(&self.next_number) {
            self.next_number = self.next_number.wrapping_add(1);
        }
        let number = self.next_number;
        self.numbers.insert(key.clone(), number);
        self.records.insert(number, Record { key, len_bytes: 0, pages: Vec::new() });
        number
    }

    fn remove(&mut self, number: u32) {
        self.take_out(number);
        if let Some(record) = self.records.remove(&number) {
            self.numbers.remove(&record.key);
        }
    }

    /// Takes over how long a record is now, if it can stay where it is. Otherwise it lies nowhere afterwards.
    fn resize(&mut self, number: u32, len_bytes: usize) -> bool {
        let Some(record) = self.records.get(&number) else { return false };
        // A record of one piece stays where it is if its page has room for the new length.
        if let [page] = record.pages[..]
            && pieces_of(len_bytes) == 1
            && self.pages[page as usize].used_bytes - record.len_bytes + len_bytes <= PAGE_ROOM
        {
            let old_bytes = record.len_bytes;
            self.change_page(page, |page| page.used_bytes = page.used_bytes - old_bytes + len_bytes);
            if let Some(record) = self.records.get_mut(&number) {
                record.len_bytes = len_bytes;
            }
            return true;
        }
        let pages = record.pages.clone();
        self.take_out(number);
        if planted(Bug::KeepMovedRecord) {
            self.leave_as_they_are(&pages);
        }
        false
    }

    /// Has the next cut not write pages: a bug.
    fn leave_as_they_are(&mut self, pages: &[u32]) {
        for &page in pages {
            let at = (self.free_bytes(page), page);
            if self.due.remove(&at) {
                self.settled.insert(at);
            }
        }
    }

    /// Takes a record's pieces out of their pages.
    fn take_out(&mut self, number: u32) {
        let Some(record) = self.records.get_mut(&number) else { return };
        let pages = mem::take(&mut record.pages);
        let len_bytes = mem::take(&mut record.len_bytes);
        for (piece, page) in (0u16..).zip(pages) {
            let piece_bytes = (len_bytes - usize::from(piece) * MOST_PIECE_BYTES).min(MOST_PIECE_BYTES);
            self.change_page(page, |page| {
                page.pieces.retain(|other| *other != (number, piece));
                page.used_bytes -= PIECE_HEAD_BYTES + piece_bytes;
            });
        }
    }

    /// Finds places for a record that has none.
    fn place(&mut self, number: u32, len_bytes: usize) {
        let Some(record) = self.records.get_mut(&number) else { return };
        assert!(record.pages.is_empty(), "record {number} of the catalog lies somewhere already");
        record.len_bytes = len_bytes;
        let pieces: Vec<_> =
            (0..pieces_of(len_bytes) as u16).map(|piece| (piece, record.piece_bytes(piece))).collect();
        for (piece, piece_bytes) in pieces {
            let taken_bytes = PIECE_HEAD_BYTES + piece_bytes;
            let page = self.page_with_room(taken_bytes);
            self.change_page(page, |page| {
                page.pieces.push((number, piece));
                page.used_bytes += taken_bytes;
            });
            if let Some(record) = self.records.get_mut(&number) {
                record.pages.push(page);
            }
        }
    }

    /// The fullest page that is due anyway and has room; or else the emptiest page, if that is half empty; or a new one.
    fn page_with_room(&mut self, bytes: usize) -> u32 {
        let due = self.due.range((bytes, 0)..).next();
        let page = due.or_else(|| self.settled.last().filter(|(free, _)| *free >= bytes.max(HALF_EMPTY)));
        if let Some((_, page)) = page {
            return *page;
        }
        let page = self.empty.pop_first().unwrap_or_else(|| {
            self.pages.push(PageUse::default());
            self.pages.len() as u32 - 1
        });
        self.due.insert((self.free_bytes(page), page));
        page
    }

    /// Empties pages that are due and hold little into others that are due, too.
    fn thin_out(&mut self) {
        let thin = |&&(free, page): &&(usize, u32)| {
            free >= HALF_EMPTY && !self.pages[page as usize].pieces.is_empty()
        };
        let thin: Vec<u32> = self.due.iter().rev().filter(thin).map(|(_, page)| *page).collect();
        for page in thin {
            let PageUse { pieces, used_bytes } = &self.pages[page as usize];
            let (count, bytes) = (pieces.len(), *used_bytes);
            let has_room = |&&(_, other): &&(usize, u32)| {
                let others = &self.pages[other as usize].pieces;
                other != page && !others.is_empty() && others.len() + count <= self.most_pieces
            };
            let Some(&(_, target)) = self.due.range((bytes, 0)..).find(has_room) else { continue };
            self.move_all(page, target);
        }
    }

    fn move_all(&mut self, page: u32, target: u32) {
        let mut moved = PageUse::default();
        self.change_page(page, |page| mem::swap(page, &mut moved));
        for (number, piece) in &moved.pieces {
            if let Some(record) = self.records.get_mut(number) {
                record.pages[usize::from(*piece)] = target;
            }
        }
        self.change_page(target, |target| {
            target.used_bytes += moved.used_bytes;
            target.pieces.extend(moved.pieces);
        });
    }

    /// What is free in a page for another piece.
    fn free_bytes(&self, page: u32) -> usize {
        let page = &self.pages[page as usize];
        if page.pieces.len() < self.most_pieces { PAGE_ROOM - page.used_bytes } else { 0 }
    }

    fn make_due(&mut self, page: u32) {
        let free = self.free_bytes(page);
        if self.settled.remove(&(free, page)) {
            self.due.insert((free, page));
        }
    }

    /// Changes what is known of a page, which is due then.
    fn change_page(&mut self, page: u32, change: impl FnOnce(&mut PageUse)) {
        // Pages are listed by what is free in them, so a page is taken off the list before that changes.
        self.make_due(page);
        self.due.remove(&(self.free_bytes(page), page));
        change(&mut self.pages[page as usize]);
        let used_bytes = self.pages[page as usize].used_bytes;
        assert!(used_bytes <= PAGE_ROOM, "the pieces in page {page} of the catalog take {used_bytes} bytes");
        self.due.insert((self.free_bytes(page), page));
    }

    /// The content of the pages that are due, which are not any more.
    fn take_due(
        &mut self,
        mut encoded: BTreeMap<u32, Vec<u8>>,
        encode: impl Fn(&RecordKey) -> Option<Vec<u8>>,
    ) -> Vec<(PageNumber, Option<PageWords>)> {
        let mut due: Vec<u32> = mem::take(&mut self.due).into_iter().map(|(_, page)| page).collect();
        due.sort_unstable();
        let mut cut = Vec::new();
        for page in due {
            if self.pages[page as usize].pieces.is_empty() {
                self.empty.insert(page);
                cut.push((PageNumber(page.into()), None));
                continue;
            }
            self.settled.insert((self.free_bytes(page), page));
            cut.push((PageNumber(page.into()), Some(self.page_words(page, &mut encoded, &encode))));
        }
        // The catalog ends with the last page that holds anything.
        while self.pages.last().is_some_and(|page| page.pieces.is_empty()) {
            self.pages.pop();
            self.empty.remove(&(self.pages.len() as u32));
        }
        cut
    }

    /// Whether these many records, as they are, are what was written: none was changed without a note. Goes through all.
    pub(crate) fn is_cut_of(&self, count: usize, encode: impl Fn(&RecordKey) -> Option<Vec<u8>>) -> bool {
        if [Bug::LeaveOutChanged, Bug::KeepDeletedRecord, Bug::KeepMovedRecord].into_iter().any(planted) {
            return true;
        }
        #[cfg(debug_assertions)]
        let is_written = |number: &u32, bytes: &[u8]| self.written.get(number) == Some(&crc32c(bytes).0);
        #[cfg(not(debug_assertions))]
        let is_written = |_: &u32, _: &[u8]| true;
        self.records.len() == count
            && self
                .records
                .iter()
                .all(|(number, record)| encode(&record.key).is_some_and(|bytes| is_written(number, &bytes)))
    }

    fn page_words(
        &mut self,
        page: u32,
        encoded: &mut BTreeMap<u32, Vec<u8>>,
        encode: impl Fn(&RecordKey) -> Option<Vec<u8>>,
    ) -> PageWords {
        let pieces = &self.pages[page as usize].pieces;
        let mut bytes = Vec::with_capacity(PAGE_BYTES);
        bytes.extend((pieces.len() as u16).to_le_bytes());
        for (number, piece) in pieces {
            let record = &self.records[number];
            let content = encoded.entry(*number).or_insert_with(|| encode(&record.key).unwrap_or_default());
            // NOTE: this holds only if all changes were noted.
            let skipped = planted(Bug::LeaveOutChanged);
            assert!(content.len() == record.len_bytes || skipped, "a record changed, and nobody noted it");
            #[cfg(debug_assertions)]
            self.written.insert(*number, crc32c(content).0);
            let from = (usize::from(*piece) * MOST_PIECE_BYTES).min(content.len());
            let content = &content[from..][..record.piece_bytes(*piece).min(content.len() - from)];
            let head = PieceHead {
                record: (*number).into(),
                piece: (*piece).into(),
                pieces: (record.pages.len() as u16).into(),
                len_bytes: (content.len() as u16).into(),
            };
            bytes.extend(head.as_bytes());
            bytes.extend(content);
        }
        let mut words = Box::new([0; PAGE_WORDS]);
        words.as_mut_bytes()[..bytes.len()].copy_from_slice(&bytes);
        words
    }

    /// The heap of these pages, by number, and the content of every record. `key_of` names a record by its content.
    pub(crate) fn read(
        pages: &BTreeMap<PageNumber, Vec<u8>>,
        mut key_of: impl FnMut(&[u8]) -> Result<RecordKey, PoolError>,
    ) -> Result<Self, PoolError> {
        let mut heap = Self::new(usize::MAX);
        let mut found: BTreeMap<(u32, u16), (u32, PieceHead, &[u8])> = BTreeMap::new();
        for (index, bytes) in pages {
            let damaged = |why: &str| PoolError::page(PageSpace::Catalog, *index, why);
            let page = u32::try_from(index.0).map_err(|_| damaged("no page has such a number"))?;
            heap.pages.resize_with(page as usize + 1, PageUse::default);
            for (head, content) in pieces_in(bytes).ok_or_else(|| damaged("its records do not fit it"))? {
                let at = (head.record.get(), head.piece.get());
                heap.pages[page as usize].pieces.push(at);
                heap.pages[page as usize].used_bytes += PIECE_HEAD_BYTES + content.len();
                if found.insert(at, (page, head, content)).is_some() {
                    return Err(damaged("it has a piece of a record that another page has too"));
                }
            }
        }
        let mut rest = found.into_iter().peekable();
        while let Some(((number, piece), (page, head, content))) = rest.next() {
            let damaged =
                |page: u32, why: &str| PoolError::page(PageSpace::Catalog, PageNumber(page.into()), why);
            let (mut record, mut pages) = (content.to_vec(), vec![page]);
            if piece != 0 {
                return Err(damaged(page, "it has a piece of a record whose first is missing"));
            }
            while let Some((_, (page, next, content))) = rest.next_if(|((other, _), _)| *other == number) {
                if usize::from(next.piece.get()) != pages.len() || next.pieces != head.pieces {
                    return Err(damaged(page, "it has a piece of a record that does not go with the others"));
                }
                record.extend_from_slice(content);
                pages.push(page);
            }
            if pages.len() != usize::from(head.pieces.get()) || pages.len() != pieces_of(record.len()) {
                return Err(damaged(page, "it has a piece of a record that is not whole"));
            }
            let key = key_of(&record)?;
            if heap.numbers.insert(key.clone(), number).is_some() {
                return Err(damaged(page, &format!("it has {key}, which is there twice")));
            }
            #[cfg(debug_assertions)]
            heap.written.insert(number, crc32c(&record).0);
            heap.records.insert(number, Record { key, len_bytes: record.len(), pages });
            heap.next_number = number.wrapping_add(1);
        }
        for page in 0..heap.pages.len() as u32 {
            if heap.pages[page as usize].pieces.is_empty() {
                heap.empty.insert(page);
            } else {
                heap.settled.insert((heap.free_bytes(page), page));
            }
        }
        Ok(heap)
    }
}

/// The pieces of a page, if it is one.
fn pieces_in(bytes: &[u8]) -> Option<Vec<(PieceHead, &[u8])>> {
    let (count, mut rest) = bytes.split_first_chunk::<RECORD_PAGE_HEAD_BYTES>()?;
    let mut pieces = Vec::new();
    for _ in 0..u16::from_le_bytes(*count) {
        let (head, behind) = PieceHead::read_from_prefix(rest).ok()?;
        let (content, behind) = behind.split_at_checked(head.len_bytes.get().into())?;
        pieces.push((head, content));
        rest = behind;
    }
    (bytes.len() == PAGE_BYTES && !pieces.is_empty() && rest.iter().all(|byte| *byte == 0)).then_some(pieces)
}
