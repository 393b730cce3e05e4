//! The pages that a checkpoint writes, as they were at its cut, while the committer goes on to change them.
//!
//! The committer changes pages in place, whether or not they are in the cut, so readers see the newest content.
//! The first change of a page since the cut copies its words, if the checkpoint has yet to write them. Most
//! pages do not change meanwhile; they are copied only to be written.
//!
//! ```text
//! at the cut         dirty → in the cut, clean, and held; it has its new place already
//! changed after it   its words are kept for the cut; in the cut and dirty
//! written            the kept words are dropped; out of the cut, and clean or dirty
//! ```
//!
//! Invariants:
//! 1. One checkpoint is under way at a time. Its cut is all that was dirty, and with a page all map pages above it.
//! 2. A page is written with its words as of the cut. A map page also has the checksums of the pages below it,
//!    as these are written: all checksums are in place before the first page is taken.
//! 3. A page in the cut stays in RAM until its row is written, so no reader goes to its new place before.
//! 4. Each page is taken once, and the root is written after all pages.

use super::{Page, PageId, PageStore};
use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    format::{Location, MAP_LEVELS, MapEntry, PAGE_BYTES, PAGE_SPACES, PAGE_WORDS},
    meta::PageWords,
};
use quoin_base::{PageNumber, crc64};
use quoin_world::{Buf, Slice as Bytes, atomic::Ordering};
use std::{collections::BTreeMap, sync::Arc};

/// The pages of a cut that are not written yet.
#[derive(Default)]
pub(super) struct Cut {
    pages: BTreeMap<PageId, CutPage>,
    /// How many of them changed since, and are kept as they were.
    kept: u64,
}

struct CutPage {
    page: Arc<Page>,
    /// Where the checkpoint writes it.
    place: Location,
    /// Its words as of the cut, if it changed since.
    kept: Option<PageWords>,
    /// The page above, or the root, has its checksum.
    is_sealed: bool,
    is_taken: bool,
}

impl CutPage {
    fn copy_to(&self, bytes: &mut [u8]) {
        match &self.kept {
            None => self.page.copy_to(bytes),
            Some(words) => {
                for (chunk, word) in bytes.chunks_exact_mut(8).zip(words.iter()) {
                    chunk.copy_from_slice(&word.to_le_bytes());
                }
            }
        }
    }
}

impl Cut {
    pub(super) fn kept_pages(&self) -> u64 {
        self.kept
    }
}

impl PageStore {
    /// Makes the cut: what is dirty now is what the checkpoint writes, each page at its place. Called between two
    /// transactions, when every dirty page has found its place.
    pub(crate) fn cut(&self, places: &BTreeMap<PageId, Location>) -> Result<(), PoolError> {
        let dirty = std::mem::take(&mut *self.dirty.lock());
        assert!(dirty.pages.iter().eq(places.keys()), "a checkpoint writes what is dirty, and nothing else");
        self.unplaced.store(0, Ordering::Relaxed);
        let mut cut = self.cut.lock();
        assert!(cut.pages.is_empty(), "one checkpoint is under way at a time");
        for (&id, &place) in places {
            let Some(page) = self.shard(id).lock().pages.get(&id).cloned() else {
                return Err(PoolError::page(id.space, id.index, "it is gone"));
            };
            assert!(page.is_dirty(), "{id} is cut, and nothing changed it");
            // NOTE: in this order: at no moment may it be dropped.
            page.in_cut.store(true, Ordering::Relaxed);
            page.dirty.store(false, Ordering::Relaxed);
            cut.pages.insert(id, CutPage { page, place, kept: None, is_sealed: false, is_taken: false });
        }
        Ok(())
    }

    /// Keeps the words of a page for the checkpoint under way, before they change.
    pub(super) fn keep_for_cut(&self, id: PageId, page: &Arc<Page>) {
        if !page.in_cut.load(Ordering::Relaxed) || planted(Bug::ChangeCutPages) {
            return;
        }
        let mut cut = self.cut.lock();
        let Some(in_cut) = cut.pages.get_mut(&id) else { return };
        if in_cut.is_taken || in_cut.kept.is_some() || !Arc::ptr_eq(&in_cut.page, page) {
            return;
        }
        let mut words = Box::new([0; PAGE_WORDS]);
        (0..PAGE_WORDS).for_each(|word| words[word] = page.get(word));
        in_cut.kept = Some(words);
        cut.kept += 1;
    }

    /// The pages of the cut, those further down in the map first.
    pub(crate) fn cut_pages(&self) -> Vec<PageId> {
        self.cut.lock().pages.keys().copied().collect()
    }

    /// Puts the checksum of a page, as it will be written, into the page above as of the cut, and into that
    /// page as it is now if it still leads to the same place. Called for all pages in the order of
    /// [`PageStore::cut_pages`].
    pub(crate) fn seal(&self, id: PageId) -> Result<(), PoolError> {
        let missing = |id: PageId| PoolError::page(id.space, id.index, "it is not in its checkpoint");
        // The checksum is that of the page as it will be written.
        let mut bytes = [0; PAGE_BYTES];
        let mut cut = self.cut.lock();
        let page = cut.pages.get_mut(&id).ok_or_else(|| missing(id))?;
        page.copy_to(&mut bytes);
        page.is_sealed = true;
        let (crc, place) = (crc64(&bytes).0, page.place);
        let Some(parent) = id.parent() else {
            let root = &self.roots[id.space as usize];
            assert_eq!(
                root[0].load(Ordering::Relaxed),
                place.0,
                "the map begins where its checkpoint has it"
            );
            root[1].store(crc, Ordering::Release);
            return Ok(());
        };
        // It goes into the page above as of the cut: into its kept words if it changed since, else into the page.
        let above = cut.pages.get_mut(&parent).ok_or_else(|| missing(parent))?;
        assert!(!above.is_sealed, "a page is sealed after those below it");
        let (location, checksum) = (id.slot(), id.slot() + 1);
        let leads_there_now = above.page.get(location) == place.0;
        let led_there = match &mut above.kept {
            None => leads_there_now,
            Some(words) => {
                words[checksum] = crc;
                words[location] == place.0
            }
        };
        assert!(led_there, "the map leads where its checkpoint writes");
        if leads_there_now {
            // This is no change that the next checkpoint has to write: the one under way does.
            above.page.words[checksum].store(crc, Ordering::Release);
        }
        Ok(())
    }

    /// Takes the words of a page as of the cut. The caller writes them next.
    pub(crate) fn take(&self, id: PageId) -> Result<Bytes, PoolError> {
        let mut cut = self.cut.lock();
        let Some(page) = cut.pages.get_mut(&id) else {
            return Err(PoolError::page(id.space, id.index, "it is not in its checkpoint"));
        };
        assert!(page.is_sealed && !page.is_taken, "a page is written once, when all checksums are there");
        page.is_taken = true;
        let mut buf = Buf::zeroed(PAGE_BYTES);
        page.copy_to(buf.as_mut_slice());
        if page.kept.take().is_some() {
            cut.kept -= 1;
        }
        Ok(buf.into_slice())
    }

    /// Notes that pages were written where the map leads: from now on they may be read there.
    pub(crate) fn written(&self, ids: impl IntoIterator<Item = PageId>) {
        let mut cut = self.cut.lock();
        for id in ids {
            if let Some(CutPage { page, is_taken, .. }) = cut.pages.remove(&id) {
                assert!(is_taken, "{id} counts as written, and its words were not taken");
                page.in_cut.store(false, Ordering::Relaxed);
                // NOTE: after `in_cut` is cleared. Until then `drop_one` may take the page out of the queue, and this enters
                // it again.
                self.shard(id).lock().settled(id, &page);
            }
        }
    }

    /// The entries of the map's top pages, for the root that leads to what was cut. All of that is written.
    pub(crate) fn root_entries(&self) -> [MapEntry; PAGE_SPACES.len()] {
        assert!(self.cut.lock().pages.is_empty(), "a root is written after all that it leads to");
        PAGE_SPACES
            .map(|space| self.entry_in(None, PageId { space, level: MAP_LEVELS, index: PageNumber(0) }))
    }
}
