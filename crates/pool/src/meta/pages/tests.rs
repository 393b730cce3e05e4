//! Which pages of a shard are looked at when some must leave RAM.

use super::*;
use crate::format::PageSpace;
use quoin_base::PageNumber;

#[test]
fn pages_that_cannot_go_are_looked_at_once() {
    let mut shard = Shard::default();
    let pages: Vec<_> = (0..100).map(|_| Arc::new(Page::zeroed())).collect();
    for (index, page) in (0..).zip(pages.iter().cloned()) {
        page.dirty.store(true, Ordering::Relaxed);
        shard.insert(PageId::new(PageSpace::Tree, PageNumber(index)), page);
    }
    assert!(!shard.drop_one());
    assert_eq!((shard.pages.len(), shard.queue.len()), (100, 0), "none may go, and none is looked at again");
    let id = |index| PageId::new(PageSpace::Tree, PageNumber(index));
    for (index, page) in (0..).zip(pages) {
        page.dirty.store(index >= 2, Ordering::Relaxed);
        if index < 2 {
            shard.settled(id(index), &page);
            shard.settled(id(index), &page);
        }
    }
    assert_eq!(shard.queue, [id(0), id(1)], "each is entered once");
    // One that was dropped meanwhile, or replaced, is not entered.
    shard.settled(id(200), &Arc::new(Page::zeroed()));
    shard.settled(id(3), &Arc::new(Page::zeroed()));
    assert!(shard.drop_one() && shard.drop_one() && !shard.drop_one());
    assert_eq!(shard.pages.len(), 98);
}
