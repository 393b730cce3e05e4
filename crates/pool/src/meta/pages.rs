//! Metadata pages and the page map that finds them.
//!
//! A page is 4 KiB, seen as 512 words. The pages of a page space are found by a fixed map of four levels whose own
//! pages are pages too; the root holds the map's top entry. The committer alone changes pages; everybody
//! reads them, word by word.
//!
//! Invariants:
//! 1. There is one copy of a page in RAM at a time: a page is dropped only when it is clean and nobody holds
//!    it, and a page read from a drive enters only if it is still the newest one.
//! 2. A dirty page is never dropped, nor a page of the cut that is not written yet: see `pages/cut.rs`.
//! 3. A page whose checksum is not the one in its map entry is never handed out.
//! 4. What a checkpoint will write is known before it begins: the dirty pages and the map pages above them, which change
//!    when those find their places.
//! 5. Who brings a page in beyond the limit drops others first that were not used lately, whoever that is: readers
//!    keep the limit too. Only dirty pages and those that are held exceed it.

mod cut;
#[cfg(test)]
mod tests;

use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    format::{Location, MAP_FAN_OUT, MAP_LEVELS, MapEntry, PAGE_BYTES, PAGE_SPACES, PAGE_WORDS},
    meta::page_id::PageId,
    segment::io::{Ill, SegmentIo},
    store::repairs::RepairKind,
};
use cut::Cut;
use hashbrown::HashMap;
use quoin_world::{
    Buf, Mutex,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};
use rustc_hash::FxBuildHasher;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    future::Future,
    hash::BuildHasher,
    pin::Pin,
    sync::Arc,
};

const SHARDS: usize = 64;
/// RAM that a page takes, with its place in the index.
const PAGE_RAM_BYTES: u64 = PAGE_BYTES as u64 + 128;

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "metadata page {} of the {:?} space, level {}", self.index, self.space, self.level)
    }
}

/// A page in RAM.
pub(crate) struct Page {
    words: Box<[AtomicU64; PAGE_WORDS]>,
    /// The next checkpoint writes it.
    dirty: AtomicBool,
    /// The checkpoint under way has yet to write it, as it was at the cut.
    in_cut: AtomicBool,
    /// Set when used, cleared by the sweep that looks for pages to drop.
    used: AtomicBool,
    /// It is in its shard's queue. Changes under the shard's lock.
    queued: AtomicBool,
}

impl Page {
    /// The pages that it leads to as the page of the map that `id` names.
    pub(crate) fn those_below(&self, id: PageId) -> Vec<PageId> {
        let Some(first) = id.below() else { return Vec::new() };
        let used = (0..MAP_FAN_OUT).filter(|slot| self.get(*slot as usize * 2) != 0);
        used.map(|slot| PageId { index: first.index.plus(slot), ..first }).collect()
    }

    fn zeroed() -> Self {
        Self {
            words: Box::new([const { AtomicU64::new(0) }; PAGE_WORDS]),
            dirty: AtomicBool::new(false),
            in_cut: AtomicBool::new(false),
            used: AtomicBool::new(true),
            queued: AtomicBool::new(false),
        }
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let page = Self::zeroed();
        for (word, chunk) in page.words.iter().zip(bytes.chunks_exact(8)) {
            let mut raw = [0; 8];
            raw.copy_from_slice(chunk);
            word.store(u64::from_le_bytes(raw), Ordering::Relaxed);
        }
        page
    }

    fn note_use(&self) {
        // Most of the time it is set already, and other threads have the line.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::Acquire)
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Relaxed)
    }

    /// Whether it may go from RAM: its newest content lies where its map entry says.
    fn is_settled(&self) -> bool {
        !self.is_dirty() && !self.in_cut.load(Ordering::Relaxed)
    }

    /// Changes a word. Only the committer does, and only through [`PageStore::change`]d pages.
    pub(crate) fn set(&self, word: usize, value: u64) {
        // It was not kept for the checkpoint under way otherwise.
        assert!(self.is_dirty(), "a page is marked dirty before it is changed");
        self.words[word].store(value, Ordering::Release);
    }

    /// Its bytes as they go to a drive.
    pub(crate) fn to_buf(&self) -> Buf {
        let mut buf = Buf::zeroed(PAGE_BYTES);
        self.copy_to(buf.as_mut_slice());
        buf
    }

    fn copy_to(&self, bytes: &mut [u8]) {
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(self.words.iter()) {
            chunk.copy_from_slice(&word.load(Ordering::Acquire).to_le_bytes());
        }
    }
}

/// A page on its way. Boxed, for finding a page needs the page above it.
type Loading<'a> = Pin<Box<dyn Future<Output = Result<Option<Arc<Page>>, PoolError>> + Send + 'a>>;

#[derive(Default)]
struct Shard {
    pages: HashMap<PageId, Arc<Page>, FxBuildHasher>,
    /// Those that may go, in the order in which they are looked at when some must. A page that is found not to be
    /// settled leaves it until it is: however many are dirty, they are not looked at again and again.
    queue: VecDeque<PageId>,
    /// Times that a page was looked for and found. Here, where its lock is held anyway.
    hits: u64,
}

impl Shard {
    fn find(&mut self, id: PageId) -> Option<&Arc<Page>> {
        let page = self.pages.get(&id)?;
        self.hits += 1;
        page.note_use();
        Some(page)
    }

    fn insert(&mut self, id: PageId, page: Arc<Page>) {
        assert!(!self.pages.contains_key(&id), "there is one copy of a page in RAM");
        page.queued.store(true, Ordering::Relaxed);
        self.pages.insert(id, page);
        self.queue.push_back(id);
    }

    /// Drops one page that is clean, not held, and was not used since this came by last. False if there is none.
    fn drop_one(&mut self) -> bool {
        for _ in 0..2 * self.queue.len() {
            let Some(id) = self.queue.pop_front() else { break };
            let Some(page) = self.pages.get_mut(&id) else { continue };
            if !page.is_settled() && !planted(Bug::DropDirtyPages) {
                page.queued.store(false, Ordering::Relaxed);
                continue;
            }
            let used = page.used.swap(false, Ordering::Relaxed);
            // Nobody holds it, and who did can be seen to be done with it.
            if Arc::get_mut(page).is_some() && !used {
                self.pages.remove(&id);
                return true;
            }
            self.queue.push_back(id);
        }
        false
    }

    /// Notes that a page is settled: it may go.
    fn settled(&mut self, id: PageId, page: &Arc<Page>) {
        let is_here = self.pages.get(&id).is_some_and(|here| Arc::ptr_eq(here, page));
        if is_here && !page.queued.swap(true, Ordering::Relaxed) {
            self.queue.push_back(id);
        }
    }
}

/// Levels of the map whose pages are counted before they are dirty. Of those above every checkpoint writes a few.
const COUNTED_LEVELS: u8 = 2;

/// The pages of the next checkpoint.
#[derive(Default)]
struct Dirty {
    pages: BTreeSet<PageId>,
    /// Map pages that are clean until a page below them finds its place.
    above: BTreeSet<PageId>,
}

impl Dirty {
    fn insert(&mut self, id: PageId) {
        self.pages.insert(id);
        let mut next = id.parent();
        if self.above.remove(&id) {
            // What is above it is noted already.
            return;
        }
        while let Some(id) = next
            && id.level <= COUNTED_LEVELS
            && !self.pages.contains(&id)
            && self.above.insert(id)
        {
            next = id.parent();
        }
    }
}

pub(crate) struct PageStore {
    shards: Vec<Mutex<Shard>>,
    /// Location and checksum of each page space's top map page.
    roots: [[AtomicU64; 2]; PAGE_SPACES.len()],
    io: Arc<SegmentIo>,
    dirty: Mutex<Dirty>,
    /// Pages with one damaged copy and one that was read, and what is wrong with the damaged one.
    ill: Mutex<BTreeMap<PageId, Ill>>,
    /// Pages that the checkpoint under way has yet to write. Locked before shards.
    cut: Mutex<Cut>,
    resident: AtomicU64,
    /// Pages that came to be since the last cut, and have no place yet.
    unplaced: AtomicU64,
    /// The most pages that are to be resident.
    limit: AtomicU64,
    /// The shard that is to drop a page next.
    hand: AtomicUsize,
    /// Pages read from drives since the pool was opened.
    pub(crate) loads: AtomicU64,
}

impl PageStore {
    pub(crate) fn new(io: Arc<SegmentIo>, roots: [MapEntry; PAGE_SPACES.len()]) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect(),
            roots: roots.map(|e| [AtomicU64::new(e.location.get()), AtomicU64::new(e.crc.get())]),
            io,
            dirty: Mutex::default(),
            ill: Mutex::default(),
            cut: Mutex::default(),
            resident: AtomicU64::new(0),
            unplaced: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
            hand: AtomicUsize::new(0),
            loads: AtomicU64::new(0),
        }
    }

    /// Keeps at most `bytes` of pages in RAM from now on, as far as possible.
    pub(crate) fn limit_to(&self, bytes: u64) {
        self.limit.store(bytes / PAGE_RAM_BYTES, Ordering::Relaxed);
    }

    fn shard(&self, id: PageId) -> &Mutex<Shard> {
        &self.shards[FxBuildHasher.hash_one(id) as usize % SHARDS]
    }

    fn cached(&self, id: PageId) -> Option<Arc<Page>> {
        self.shard(id).lock().find(id).cloned()
    }

    /// A word of a page, if the page is in RAM.
    pub(crate) fn word(&self, id: PageId, word: usize) -> Option<u64> {
        self.shard(id).lock().find(id).map(|page| page.get(word))
    }

    /// The page; `None` if it was never written, which reads as zeroes.
    pub(crate) async fn get(&self, id: PageId) -> Result<Option<Arc<Page>>, PoolError> {
        match self.cached(id) {
            Some(page) => Ok(Some(page)),
            None => self.load(id).await,
        }
    }

    fn load(&self, id: PageId) -> Loading<'_> {
        Box::pin(async move {
            let bad = |why: &str| PoolError::page(id.space, id.index, format!("level {}: {why}", id.level));
            if !id.is_possible() {
                return Err(bad("no page has such a number"));
            }
            loop {
                let entry = self.entry(id).await?;
                let location = Location(entry.location.get());
                if location.is_none() {
                    // It may have been created since it was looked for.
                    return Ok(self.cached(id));
                }
                if location.len_bytes() != PAGE_BYTES as u64 {
                    return Err(bad("its place is not as long as a page"));
                }
                // NOTE: the map is asked again after the read. If the page moved meanwhile, something else may lie
                // there.
                let read = self.io.read_page(location, entry.crc.get()).await;
                if self.entry(id).await? != entry {
                    continue;
                }
                let read = match read.and_then(|read| read.ok_or_else(|| bad("checksum differs"))) {
                    Ok(read) => read,
                    // Another may have brought it in, or replaced it unread.
                    Err(error) => return self.cached(id).map(Some).ok_or(error),
                };
                if let Some(ill) = read.ill {
                    self.ill.lock().insert(id, ill);
                }
                self.loads.fetch_add(1, Ordering::Relaxed);
                if let Some(page) = self.enter(id, entry, &read.bytes).await? {
                    return Ok(Some(page));
                }
            }
        })
    }

    /// Enters a page that was read, unless there is one already or it has moved meanwhile.
    async fn enter(&self, id: PageId, entry: MapEntry, bytes: &[u8]) -> Result<Option<Arc<Page>>, PoolError> {
        let parent = match id.parent() {
            Some(parent) => self.get(parent).await?,
            None => None,
        };
        self.make_room(1);
        let mut shard = self.shard(id).lock();
        if let Some(page) = shard.pages.get(&id) {
            return Ok(Some(page.clone()));
        }
        // The parent is held, so it is the one copy there is, and its entry is the newest.
        if self.entry_in(parent.as_deref(), id) != entry {
            return Ok(None);
        }
        let page = Arc::new(Page::from_bytes(bytes));
        shard.insert(id, page.clone());
        self.resident.fetch_add(1, Ordering::Relaxed);
        Ok(Some(page))
    }

    /// Where a page lies, as the map has it now.
    pub(crate) async fn entry(&self, id: PageId) -> Result<MapEntry, PoolError> {
        let parent = match id.parent() {
            Some(parent) => match self.get(parent).await? {
                Some(page) => Some(page),
                None => return Ok(MapEntry::default()),
            },
            None => None,
        };
        Ok(self.entry_in(parent.as_deref(), id))
    }

    fn entry_in(&self, parent: Option<&Page>, id: PageId) -> MapEntry {
        let words = |i: usize| match parent {
            Some(page) => page.get(id.slot() + i),
            None if id.level == MAP_LEVELS => self.roots[id.space as usize][i].load(Ordering::Acquire),
            None => 0,
        };
        loop {
            let (location, crc) = (words(0), words(1));
            if words(0) == location {
                return MapEntry { location: location.into(), crc: crc.into() };
            }
        }
    }

    /// The page, created if need be and marked dirty, for the committer to change.
    pub(crate) async fn change(&self, id: PageId) -> Result<Arc<Page>, PoolError> {
        let page = match self.get(id).await? {
            Some(page) => page,
            None => {
                self.make_room(1);
                let page = Arc::new(Page::zeroed());
                self.shard(id).lock().insert(id, page.clone());
                self.resident.fetch_add(1, Ordering::Relaxed);
                self.unplaced.fetch_add(1, Ordering::Relaxed);
                page
            }
        };
        self.make_dirty(id, &page);
        Ok(page)
    }

    /// Marks a page dirty. Keeps its words first if the checkpoint under way has yet to write them.
    fn make_dirty(&self, id: PageId, page: &Arc<Page>) {
        if !page.dirty.swap(true, Ordering::Relaxed) {
            self.keep_for_cut(id, page);
            self.dirty.lock().insert(id);
        }
    }

    /// Has a page written anew that is in RAM. Only the committer does.
    pub(crate) fn mark_dirty(&self, id: PageId) {
        let Some(page) = self.cached(id) else { return };
        self.make_dirty(id, &page);
    }

    /// Takes the pages with a copy that was found damaged since the last call. The caller has them written anew.
    pub(crate) fn take_ill(&self) -> BTreeMap<PageId, Ill> {
        std::mem::take(&mut *self.ill.lock())
    }

    /// Notes what is wrong with copies of pages.
    pub(crate) fn note_ill(&self, ill: BTreeMap<PageId, Ill>) {
        self.ill.lock().extend(ill);
    }

    /// Forgets what is wrong with copies of a page.
    pub(crate) fn forget_ill(&self, id: PageId) {
        self.ill.lock().remove(&id);
    }

    /// Counts that a page is written anew of which copies were damaged.
    pub(crate) fn count_repair(&self, ill: &Ill) {
        ill.drives.iter().for_each(|drive| self.io.store.note_repair(Some(*drive), RepairKind::Metadata));
    }

    /// The copies of pages that are known to be damaged, in words.
    pub(crate) fn ill(&self) -> Vec<String> {
        self.ill.lock().iter().map(|(id, ill)| format!("the copy of {id} {}", ill.why)).collect()
    }

    /// Whether a copy of any page is known to be damaged.
    pub(crate) fn is_any_ill(&self) -> bool {
        !self.ill.lock().is_empty()
    }

    /// True when the page in RAM is not, or not only, what lies on a drive.
    pub(crate) fn is_dirty(&self, id: PageId) -> bool {
        self.cached(id).is_some_and(|page| !page.is_settled())
    }

    /// Whether a page is in RAM, and dirty unless it may be clean. This does not count as a use.
    pub(crate) fn is_resident(&self, id: PageId, may_be_clean: bool) -> bool {
        let shard = self.shard(id).lock();
        shard.pages.get(&id).is_some_and(|page| may_be_clean || page.is_dirty())
    }

    /// Replaces a page's content whatever it was: it is not read.
    pub(crate) async fn replace(&self, id: PageId, words: &[u64; PAGE_WORDS]) -> Result<(), PoolError> {
        let is_new = self.entry(id).await?.location.get() == 0;
        self.make_room(1);
        let page = {
            let mut shard = self.shard(id).lock();
            match shard.find(id) {
                Some(page) => page.clone(),
                None => {
                    // NOTE: who reads the old one meanwhile finds this one in its place.
                    let page = Arc::new(Page::zeroed());
                    shard.insert(id, page.clone());
                    self.resident.fetch_add(1, Ordering::Relaxed);
                    self.unplaced.fetch_add(u64::from(is_new), Ordering::Relaxed);
                    page
                }
            }
        };
        self.make_dirty(id, &page);
        for (i, &word) in words.iter().enumerate() {
            page.set(i, word);
        }
        Ok(())
    }

    /// Sets where a page lies: one half of its entry, the other being its checksum.
    pub(crate) async fn set_location(&self, id: PageId, location: Location) -> Result<(), PoolError> {
        self.set_entry_word(id, 0, location.0).await
    }

    /// Sets what a page must hash to.
    async fn set_crc(&self, id: PageId, crc: u64) -> Result<(), PoolError> {
        self.set_entry_word(id, 1, crc).await
    }

    async fn set_entry_word(&self, id: PageId, word: usize, value: u64) -> Result<(), PoolError> {
        match id.parent() {
            Some(parent) => self.change(parent).await?.set(id.slot() + word, value),
            None => self.roots[id.space as usize][word].store(value, Ordering::Release),
        }
        Ok(())
    }

    /// Forgets a page that no longer exists. The caller has freed its place.
    pub(crate) async fn drop_page(&self, id: PageId) -> Result<(), PoolError> {
        self.set_location(id, Location(0)).await?;
        self.set_crc(id, 0).await?;
        self.dirty.lock().pages.remove(&id);
        self.forget_ill(id);
        let mut shard = self.shard(id).lock();
        if shard.pages.remove(&id).is_some() {
            shard.queue.retain(|other| *other != id);
            self.resident.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// True when the page is in RAM or has a place.
    pub(crate) async fn exists(&self, id: PageId) -> Result<bool, PoolError> {
        Ok(self.cached(id).is_some() || self.entry(id).await?.location.get() != 0)
    }

    /// The dirty pages that are not in `but`.
    pub(crate) fn dirty_except<V>(&self, but: &BTreeMap<PageId, V>) -> Vec<PageId> {
        self.dirty.lock().pages.iter().filter(|id| !but.contains_key(*id)).copied().collect()
    }

    /// Map pages that are clean until pages below them find their places, those further down in the map first.
    pub(crate) fn above_dirty(&self) -> Vec<PageId> {
        self.dirty.lock().above.iter().copied().collect()
    }

    /// How many pages a checkpoint would write now, beside those of the segment table that it makes dirty.
    pub(crate) fn due(&self) -> u64 {
        let dirty = self.dirty.lock();
        (dirty.pages.len() + dirty.above.len()) as u64
    }

    pub(crate) fn is_any_dirty(&self) -> bool {
        !self.dirty.lock().pages.is_empty()
    }

    /// What the next checkpoint will take beside what it replaces, about.
    pub(crate) fn unplaced_bytes(&self) -> u64 {
        self.unplaced.load(Ordering::Relaxed) * PAGE_BYTES as u64
    }

    /// Times that a page was looked for and found in RAM.
    pub(crate) fn hits(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().hits).sum()
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        (self.resident.load(Ordering::Relaxed) + self.cut.lock().kept_pages()) * PAGE_RAM_BYTES
    }

    /// Drops pages until the limit has room for `pages` more, or none is left to drop.
    pub(crate) fn make_room(&self, pages: u64) {
        let limit = self.limit.load(Ordering::Relaxed).saturating_sub(pages);
        let mut in_vain = 0;
        while self.resident.load(Ordering::Relaxed) > limit && in_vain < SHARDS {
            // Shards in turn. Once all had nothing to drop, the rest is dirty or held.
            let next = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            if self.shards[next].lock().drop_one() {
                self.resident.fetch_sub(1, Ordering::Relaxed);
                in_vain = 0;
            } else {
                in_vain += 1;
            }
        }
    }
}
