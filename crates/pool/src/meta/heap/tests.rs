//! Whatever is created, changed and deleted, the pages that cuts write lead to the catalog as it was at the last cut, and
//! nothing else is written.

use super::*;
use crate::meta::{ObjectKind, records::encode_object};
use proptest::prelude::*;

type Model = BTreeMap<RecordKey, Vec<u8>>;

fn key(number: u8) -> RecordKey {
    RecordKey::Object(ObjectKind(7), format!("{number:03}").into())
}

/// A record that says which it is, `len` bytes longer than it must be.
fn record(number: u8, len: usize, filling: u8) -> Vec<u8> {
    encode_object(ObjectKind(7), &format!("{number:03}"), &vec![filling; len])
}

fn key_of(bytes: &[u8]) -> Result<RecordKey, PoolError> {
    let text = std::str::from_utf8(&bytes[5..8]).unwrap();
    Ok(key(text.parse().unwrap()))
}

#[derive(Clone, Debug)]
enum Action {
    Put(u8, usize, u8),
    Delete(u8),
    Rewrite(u8),
    Cut,
    Reopen,
}

fn action() -> impl Strategy<Value = Action> {
    let len = prop_oneof![6 => 0usize..200, 3 => 200usize..3000, 1 => 3000usize..14_000];
    prop_oneof![
        8 => (any::<u8>(), len, any::<u8>()).prop_map(|(n, len, filling)| Action::Put(n, len, filling)),
        4 => any::<u8>().prop_map(Action::Delete),
        1 => any::<u8>().prop_map(Action::Rewrite),
        4 => Just(Action::Cut),
        1 => Just(Action::Reopen),
    ]
}

/// A heap, the pages on the drive, and what the catalog is and was at the last cut.
struct Rig {
    heap: RecordHeap,
    pages: BTreeMap<PageNumber, Vec<u8>>,
    now: Model,
    at_cut: Model,
    most_pieces: usize,
}

impl Rig {
    fn new(most_pieces: usize) -> Self {
        let (pages, now, at_cut) = Default::default();
        Self { heap: RecordHeap::new(most_pieces), pages, now, at_cut, most_pieces }
    }

    fn put(&mut self, number: u8, len: usize, filling: u8) {
        self.now.insert(key(number), record(number, len, filling));
        self.heap.note(key(number));
    }

    fn delete(&mut self, number: u8) {
        self.now.remove(&key(number));
        self.heap.note(key(number));
    }

    /// Returns how many pages were written or given back.
    fn cut(&mut self) -> usize {
        let before = self.heap.due_pages();
        let cut = self.heap.cut(|key| self.now.get(key).cloned());
        assert!(self.heap.is_cut_of(self.now.len(), |key| self.now.get(key).cloned()));
        assert!(before > 0 || cut.is_empty(), "nothing was due, and pages were written");
        for (page, words) in &cut {
            let content = words.as_ref().map(|words| words.as_bytes().to_vec());
            match content {
                Some(content) => drop(self.pages.insert(*page, content)),
                None => drop(self.pages.remove(page)),
            }
        }
        self.at_cut = self.now.clone();
        self.assert_sound();
        cut.len()
    }

    /// The pages hold what the catalog was, each record once, and none is empty; the heap knows where.
    fn assert_sound(&self) {
        let mut found = Model::new();
        let read = RecordHeap::read(&self.pages, |bytes| {
            let key = key_of(bytes)?;
            assert_eq!(found.insert(key.clone(), bytes.to_vec()), None, "{key} is there twice");
            Ok(key)
        })
        .unwrap();
        assert_eq!(found, self.at_cut);
        assert_eq!((read.count(), read.pages_end()), (self.heap.count(), self.heap.pages_end()));
        for (key, number) in &read.numbers {
            assert_eq!(self.heap.numbers.get(key), Some(number));
            assert_eq!(self.heap.records[number].pages, read.records[number].pages);
        }
        for (page, used) in read.pages.iter().enumerate() {
            assert_eq!(used.used_bytes, self.heap.pages[page].used_bytes);
            assert!(used.pieces.len() <= self.most_pieces && used.used_bytes <= PAGE_ROOM);
        }
        assert_eq!(read.empty, self.heap.empty);
        assert!(self.heap.due.is_empty());
        assert_eq!(self.heap.settled.len(), self.pages.len());
    }

    /// What was not cut is lost.
    fn reopen(&mut self) {
        self.heap = RecordHeap::read(&self.pages, key_of).unwrap();
        self.heap.limit_pieces(self.most_pieces);
        self.now = self.at_cut.clone();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn pages_hold_the_catalog_as_of_the_last_cut(
        most_pieces in prop_oneof![Just(usize::MAX), 1usize..5],
        actions in prop::collection::vec(action(), 1..120),
    ) {
        let mut rig = Rig::new(most_pieces);
        for action in actions {
            match action {
                Action::Put(number, len, filling) => rig.put(number, len, filling),
                Action::Delete(number) => rig.delete(number),
                Action::Rewrite(page) => drop(rig.heap.rewrite(PageNumber(page.into()))),
                Action::Cut => drop(rig.cut()),
                Action::Reopen => rig.reopen(),
            }
        }
        rig.cut();
        for number in 0..=255 {
            rig.delete(number);
        }
        rig.cut();
        prop_assert!(rig.pages.is_empty() && rig.heap.pages_end() == 0);
    }
}

#[test]
fn a_change_writes_the_page_of_its_record_however_many_there_are() {
    for records in [20u8, 250] {
        let mut rig = Rig::new(usize::MAX);
        (0..records).for_each(|number| rig.put(number, 300, 1));
        assert!(rig.cut() >= usize::from(records) / 14);
        assert_eq!(rig.cut(), 0);
        rig.put(7, 300, 2);
        assert_eq!(rig.cut(), 1, "it stays where it is");
        rig.put(7, 3000, 2);
        assert_eq!(rig.cut(), 2, "it moves");
        rig.put(7, 9000, 2);
        assert!(rig.cut() <= 4, "it has three pieces now");
        rig.delete(7);
        assert!(rig.cut() <= 3);
        assert!(rig.heap.rewrite(PageNumber(0)));
        assert_eq!(rig.cut(), 1);
    }
}

#[test]
fn pages_that_hold_little_become_one_when_they_are_written() {
    let mut rig = Rig::new(usize::MAX);
    (0..200).for_each(|number| rig.put(number, 300, 1));
    rig.cut();
    let before = rig.pages.len();
    (0..200).filter(|number| number % 10 > 0).for_each(|number| rig.delete(number));
    rig.cut();
    assert!(rig.pages.len() <= before / 5, "{} pages of {before}", rig.pages.len());
}

#[test]
fn pages_that_do_not_go_together_are_refused_by_name() {
    let mut rig = Rig::new(2);
    (0..5).for_each(|number| rig.put(number, 100, 1));
    rig.put(9, 9000, 1);
    rig.cut();
    let refused =
        |pages: &BTreeMap<PageNumber, Vec<u8>>| RecordHeap::read(pages, key_of).err().map(|e| e.to_string());
    assert_eq!(refused(&rig.pages), None);
    // A piece that is missing, a page that is there twice, and bytes that are no records.
    let long = rig.heap.records[&rig.heap.numbers[&key(9)]].pages[1];
    let mut pages = rig.pages.clone();
    pages.remove(&PageNumber(long.into()));
    assert!(refused(&pages).unwrap().contains("piece of a record"));
    let mut pages = rig.pages.clone();
    pages.insert(PageNumber(40), rig.pages[&PageNumber(0)].clone());
    let why = refused(&pages).unwrap();
    assert!(why.contains("page 40") && why.contains("another page has too"), "{why}");
    for (at, byte) in [(0, 200), (10, 255), (4095, 1)] {
        let mut pages = rig.pages.clone();
        pages.get_mut(&PageNumber(0)).unwrap()[at] = byte;
        assert!(refused(&pages).is_some(), "{at}");
    }
}
