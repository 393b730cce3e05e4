//! Scrub: reading all that lies on the drives, to find what cannot be read any more before somebody needs it.
//!
//! A pass goes through the pages of every space as the page map has them, and with each page of the block table through
//! the content of its blocks; then through the heads of all rows, and at last it compares parity and copies with the data.
//! What does not verify is looked up again: only an unchanged place is damage. It is repaired where there is redundancy.
//! Of what cannot be repaired every volume that reaches it is named.
//!
//! It keeps to its rate, and to a quarter of the time while hosts do I/O.

use crate::{
    error::PoolError,
    format::{BlockInfo, Location, MAP_LEVELS, PAGE_SPACES, PageSpace},
    lifecycle::{pool::Pool, slice::Slice},
    maps::{
        blocks::{BlockPlace, block_word, blocks_of},
        dropped::is_among,
    },
    meta::PageId,
    segment::io::{BadCopy, Ill},
    store::repairs::{RepairCounts, RepairKind},
};
use quoin_base::{BlockNumber, ByteRange, DriveIndex, MIB, PageNumber, SliceId, crc32c};
use quoin_world::{
    Compiled, Mutex, Nanos,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

mod pieces;
mod reach;
mod redundancy;
mod rows;
#[cfg(test)]
mod tests;

use reach::Unreadable;

/// The most read in one operation.
const LONGEST_READ_BYTES: u64 = MIB;
/// What may lie between two blocks that are read together.
const GAP_BYTES: u64 = 64 << 10;
/// While hosts do I/O, a read is followed by this many times what it took.
const REST_OF_READ: u32 = 3;
/// How often it is told who reaches what was found.
const TELL_AFTER: Duration = Duration::from_secs(30);
/// A pause that is shorter is made with the next one.
const SHORTEST_SLEEP: Duration = Duration::from_millis(5);
/// How long a pause lasts at most before it is seen that the pass is to stop.
const LONGEST_SLEEP: Duration = Duration::from_millis(200);

/// What comes after the spaces of metadata.
const ROWS: u8 = PAGE_SPACES.len() as u8;
const REDUNDANCY: u8 = ROWS + 1;

/// Where a pass is: pages before this were verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubPosition {
    /// Which slice.
    pub slice: u8,
    /// Which space of metadata, in their order; behind the last the heads of rows, and behind these the redundancy.
    pub space: u8,
    /// Which page of it; of the redundancy, which segment.
    pub page: u64,
}

/// What a pass has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubCounts {
    /// Bytes read and verified, each time that they are: protected data when it is verified, and when it is compared with what
    /// protects it.
    pub bytes: u64,
    /// Blocks of host data verified.
    pub blocks: u64,
    /// Metadata pages verified.
    pub pages: u64,
    /// Row heads verified.
    pub rows: u64,
    /// Blocks that cannot be read correctly.
    pub damaged_blocks: u64,
    /// Metadata pages that cannot be read correctly.
    pub damaged_pages: u64,
    /// Row heads that cannot be read correctly.
    pub damaged_rows: u64,
    /// Of the damaged pages, those written anew from RAM.
    pub repaired_pages: u64,
    /// Reads that a drive failed.
    pub failed_reads: u64,
    /// Repairs of data, copies and parity, but not of metadata pages.
    pub repaired: RepairCounts,
}

impl ScrubCounts {
    /// All that was damaged and is not repaired.
    pub fn damage(&self) -> u64 {
        self.damaged_blocks + self.damaged_rows + self.damaged_pages - self.repaired_pages
    }
}

/// One pass over a pool.
pub struct Scrub {
    pool: Arc<Pool>,
    rate_bytes_s: AtomicU64,
    /// What comparing parity and copies reads in all, as segments were when the pass was made.
    to_compare_bytes: u64,
    stopping: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    position: ScrubPosition,
    counts: ScrubCounts,
    /// What is not host data and was found damaged, in words.
    notes: Vec<String>,
    /// Repairs of what each drive holds.
    by_drive: BTreeMap<DriveIndex, u64>,
    unreadable: Unreadable,
}

/// The most notes of a pass.
const MOST_NOTES: usize = 100;

/// How the pace is kept.
struct Pace {
    read_since: Nanos,
    /// How long it has still to rest for what it read.
    owed: Duration,
    told: Nanos,
    host_operations: u64,
}

impl Scrub {
    /// One that begins at `from`, with what was counted before that, and reads at most `rate_bytes_s`; 0: as fast as it
    /// can.
    pub fn new(pool: Arc<Pool>, from: ScrubPosition, counts: ScrubCounts, rate_bytes_s: u64) -> Arc<Self> {
        let state = State { position: from, counts, ..State::default() };
        let to_compare_bytes = pool.slices().iter().map(|slice| Self::to_compare_bytes(slice)).sum();
        Arc::new(Self {
            pool,
            to_compare_bytes,
            rate_bytes_s: AtomicU64::new(rate_bytes_s),
            stopping: AtomicBool::new(false),
            state: Mutex::new(state),
        })
    }

    /// Reads at most so much in a second from now on.
    pub fn set_rate(&self, rate_bytes_s: u64) {
        self.rate_bytes_s.store(rate_bytes_s, Ordering::Relaxed);
    }

    /// Ends it soon.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Where it is, and what it has done.
    pub fn progress(&self) -> (ScrubPosition, ScrubCounts) {
        let state = self.state.lock();
        (state.position, state.counts)
    }

    /// Bytes that it reads in all, as far as is known.
    pub fn total_bytes(&self) -> u64 {
        let stats = self.pool.stats();
        stats.live_bytes + stats.metadata_bytes + self.to_compare_bytes
    }

    /// What it found beside host data, in words.
    pub fn notes(&self) -> Vec<String> {
        self.state.lock().notes.clone()
    }

    /// How many repairs it made of what each drive holds, by the drive's name, since the scrub was begun or continued.
    pub fn repairs(&self) -> Vec<(String, u64)> {
        let by_drive = self.state.lock().by_drive.clone();
        let store = self.pool.store();
        by_drive.into_iter().map(|(drive, count)| (store.drive_name(drive).to_owned(), count)).collect()
    }

    /// Goes through everything, or until it is stopped: true if it came to the end. What hosts cannot read any more is
    /// then told by [`Pool::take_damage`]. Runs on a thread of the array.
    ///
    /// # Errors
    /// [`PoolError::Offline`] if the pool goes offline meanwhile. Damage is no error: it is noted, and the
    /// scrub goes on.
    pub fn run(&self) -> Compiled<'_, Result<bool, PoolError>> {
        Box::pin(self.go_through())
    }

    /// The slice that it is going through.
    fn slice(&self) -> &Slice {
        self.pool.slice(SliceId(self.state.lock().position.slice))
    }

    async fn go_through(&self) -> Result<bool, PoolError> {
        let first = self.state.lock().position.slice;
        for slice in self.pool.slices().iter().skip(first.into()) {
            if slice.id().0 != first {
                self.state.lock().position =
                    ScrubPosition { slice: slice.id().0, ..ScrubPosition::default() };
            }
            if !self.go_through_slice().await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn go_through_slice(&self) -> Result<bool, PoolError> {
        // What is only in RAM gets its place.
        self.slice().checkpoint().await?;
        let now = self.slice().world().now();
        let host_operations = self.host_operations();
        let mut pace = Pace { read_since: now, owed: Duration::ZERO, told: now, host_operations };
        let outcome = self.pass(&mut pace).await;
        self.tell().await?;
        self.pool.store().health().check()?;
        outcome
    }

    async fn pass(&self, pace: &mut Pace) -> Result<bool, PoolError> {
        let from = self.state.lock().position;
        for (number, space) in (0..ROWS).zip(PAGE_SPACES).skip(from.space.into()) {
            let first = if number == from.space { PageNumber(from.page) } else { PageNumber(0) };
            if !self.space(number, space, first, pace).await? {
                return Ok(false);
            }
        }
        if from.space <= ROWS {
            self.move_to(ROWS, PageNumber(0));
            if !self.segments(pace).await? {
                return Ok(false);
            }
        }
        let first = if from.space == REDUNDANCY { PageNumber(from.page) } else { PageNumber(0) };
        self.move_to(REDUNDANCY, first);
        self.redundancy(first, pace).await
    }

    /// Notes that all before a page of a page space was verified.
    fn move_to(&self, space: u8, page: PageNumber) {
        let mut state = self.state.lock();
        state.position = ScrubPosition { space, page: page.0, ..state.position };
    }

    /// What hosts have done so far, in all slices.
    fn host_operations(&self) -> u64 {
        self.pool.slices().iter().map(|slice| slice.counters.host.operations()).sum()
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed) || self.pool.store().health().is_failed()
    }

    /// The pages of a page space from `first` on, those of its map that lead there included. False if it was stopped.
    async fn space(
        &self,
        number: u8,
        space: PageSpace,
        first: PageNumber,
        pace: &mut Pace,
    ) -> Result<bool, PoolError> {
        let mut todo = vec![PageId { space, level: MAP_LEVELS, index: PageNumber(0) }];
        while let Some(id) = todo.pop() {
            if self.is_stopping() {
                return Ok(false);
            }
            if !self.page(id, pace).await? {
                continue;
            }
            let Ok(Some(page)) = self.slice().metadata.pages.get(id).await else { continue };
            if id.level > 0 {
                let behind = |id: &PageId| id.index.next().0 << (8 * u32::from(id.level)) > first.0;
                todo.extend(page.those_below(id).into_iter().filter(behind).rev());
                continue;
            }
            drop(page);
            if space == PageSpace::Blocks && !self.blocks(id, pace).await? {
                return Ok(false);
            }
            self.move_to(number, id.index.next());
        }
        Ok(true)
    }

    /// Verifies a page where it lies on a drive. False if there is none, or none that can be read.
    async fn page(&self, id: PageId, pace: &mut Pace) -> Result<bool, PoolError> {
        loop {
            let guard = self.slice().enter_readers();
            // NOTE: looked at before the read too: a checkpoint may end while that is under way.
            let was_settled = !self.slice().metadata.pages.is_dirty(id);
            let Ok(entry) = self.slice().metadata.pages.entry(id).await else { return Ok(false) };
            let location = Location(entry.location.get());
            if location.is_none() {
                return Ok(false);
            }
            let read = self.slice().segments.io.bad_copies(location, entry.crc.get()).await;
            drop(guard);
            // What a drive holds that went away meanwhile is not damaged, and may be the copy that is good.
            let is_away = |copy: &BadCopy| copy.error.as_ref().is_some_and(PoolError::is_of_away_drive);
            if let Ok((bad, copies)) = &read
                && let away @ 1.. = bad.iter().filter(|copy| is_away(copy)).count()
                && (away == bad.len() || bad.len() == *copies)
            {
                self.count(|counts| counts.failed_reads += away as u64);
                return Ok(bad.len() < *copies);
            }
            let is_sound = read.as_ref().is_ok_and(|(bad, _)| bad.is_empty());
            // What is about to be written elsewhere may have its new place already.
            if !is_sound && was_settled && !self.slice().metadata.pages.is_dirty(id) {
                match self.slice().metadata.pages.entry(id).await {
                    Ok(now) if now != entry => continue,
                    Ok(_) => {}
                    Err(_) => return Ok(false),
                }
                let read = read.unwrap_or_else(|error| {
                    (vec![BadCopy { what: "has no place".into(), error: Some(error), blamed: None }], 1)
                });
                let repaired = self.repair(id, &read).await?;
                // What was freed or written elsewhere meanwhile is not damaged where it was.
                let now = self.slice().metadata.pages.entry(id).await;
                if !repaired && now.is_ok_and(|now| now != entry) {
                    continue;
                }
                self.damaged_page(id, read, repaired);
                return Ok(repaired);
            }
            self.count(|counts| {
                (counts.pages, counts.bytes) = (counts.pages + 1, counts.bytes + location.len_bytes())
            });
            self.rest(pace, location.len_bytes()).await?;
            return Ok(true);
        }
    }

    fn damaged_page(&self, id: PageId, (bad, copies): (Vec<BadCopy>, usize), repaired: bool) {
        let then = if !repaired {
            "what it describes cannot be read"
        } else if bad.len() < copies {
            "it is written anew from another copy"
        } else {
            "it was in RAM and is written anew"
        };
        let blamed: Vec<_> = Ill::of(&bad).into_iter().flat_map(|ill| ill.drives).collect();
        let how: Vec<_> = bad.into_iter().map(|copy| copy.what).collect();
        let note = format!("{id} {}; {then}", how.join(", and "));
        tracing::error!("{note}");
        let mut state = self.state.lock();
        state.counts.damaged_pages += 1;
        state.counts.repaired_pages += u64::from(repaired);
        state.note(note);
        if repaired {
            blamed.into_iter().for_each(|drive| *state.by_drive.entry(drive).or_default() += 1)
        } else {
            state.unreadable.page(id)
        }
    }

    /// Mends a page if there is an intact copy elsewhere; true if so. It may have another copy on a drive, or be in RAM:
    /// pages in RAM were verified when they were read, and all of catalog and segment table are there. The next checkpoint
    /// writes the page anew, and counts what was ill.
    async fn repair(&self, id: PageId, (bad, copies): &(Vec<BadCopy>, usize)) -> Result<bool, PoolError> {
        let slice = self.slice();
        slice.metadata.pages.note_ill(Ill::of(bad).into_iter().map(|ill| (id, ill)).collect());
        // Brings it to RAM, if it is not there.
        let has_copy = bad.len() < *copies;
        let is_read = has_copy && slice.metadata.pages.get(id).await.is_ok_and(|page| page.is_some());
        slice.rewrite(id).await?;
        let is_made = || match id.space {
            _ if id.level > 0 => false,
            PageSpace::Catalog => slice.metadata.is_catalog_page_due(id.index),
            PageSpace::Segments => slice.segments.table.is_due(id.index),
            PageSpace::Tree | PageSpace::Blocks | PageSpace::Dropped => false,
        };
        let is_repaired = is_read || slice.metadata.pages.is_dirty(id) || is_made();
        if !is_repaired {
            slice.metadata.pages.forget_ill(id);
        }
        Ok(is_repaired)
    }

    /// The content of the blocks of one page of the table. False if it was stopped.
    async fn blocks(&self, table_page: PageId, pace: &mut Pace) -> Result<bool, PoolError> {
        let mut blocks = self.places(table_page).await;
        blocks.sort_unstable_by_key(|(_, place)| place.location.0);
        let mut rest = &blocks[..];
        while let Some((_, first)) = rest.first() {
            if self.is_stopping() {
                return Ok(false);
            }
            let follows = |(_, place): &&(BlockNumber, BlockPlace)| {
                let (at, begin) = (place.location.offset_bytes(), first.location.offset_bytes());
                place.location.segment() == first.location.segment()
                    && at + place.location.len_bytes() - begin <= LONGEST_READ_BYTES
            };
            let mut count = 1;
            while let Some(next) = rest.get(count).filter(follows) {
                let before = rest[count - 1].1.location;
                if next.1.location.offset_bytes() > before.offset_bytes() + before.len_bytes() + GAP_BYTES {
                    break;
                }
                count += 1;
            }
            let (run, others) = rest.split_at(count);
            let bytes = self.run_of_blocks(run).await?;
            self.rest(pace, bytes).await?;
            rest = others;
        }
        Ok(true)
    }

    /// The blocks in use of a page of the table. Those known to be lost are told again, and not read.
    async fn places(&self, table_page: PageId) -> Vec<(BlockNumber, BlockPlace)> {
        let Ok(Some(page)) = self.slice().metadata.pages.get(table_page).await else { return Vec::new() };
        // Nothing leads to these, and one of a page that cannot be read is only read in vain.
        let dropped = self.slice().metadata.pages.dropped_of(table_page.index).await.unwrap_or(0);
        let mut places = Vec::new();
        for number in blocks_of(table_page.index) {
            let at = block_word(number);
            let (location, info) = (Location(page.get(at + 2)), BlockInfo(page.get(at + 3)));
            match (info.count(), info.algorithm()) {
                (0, _) => {}
                _ if is_among(dropped, number) => {}
                (_, BlockInfo::LOST) => self.lost(number),
                _ => places.push((number, BlockPlace { location, info })),
            }
        }
        places
    }

    fn lost(&self, number: BlockNumber) {
        let mut state = self.state.lock();
        state.counts.damaged_blocks += 1;
        state.unreadable.block(number, "its content was lost before".into());
    }

    /// Verifies blocks that lie near each other; how many bytes were read.
    async fn run_of_blocks(&self, run: &[(BlockNumber, BlockPlace)]) -> Result<u64, PoolError> {
        let (first, last) = (run[0].1.location, run[run.len() - 1].1.location);
        let len = last.offset_bytes() + last.len_bytes() - first.offset_bytes();
        let guard = self.slice().enter_readers();
        let read = self
            .slice()
            .segments
            .io
            .read_sound(first.segment(), ByteRange::new(first.offset_bytes(), len))
            .await;
        drop(guard);
        for (number, place) in run {
            let at = (place.location.offset_bytes() - first.offset_bytes()) as usize;
            let intact = read.as_ref().is_ok_and(|bytes| {
                crc32c(&bytes[at..at + place.location.len_bytes() as usize]).0 == place.info.crc()
            });
            if intact || self.verifies_now(*number).await? {
                self.count(|counts| counts.blocks += 1);
            }
        }
        self.count(|counts| counts.bytes += len);
        Ok(len)
    }

    /// Looks a block up again that did not verify, as long as its place changes.
    async fn verifies_now(&self, number: BlockNumber) -> Result<bool, PoolError> {
        loop {
            let guard = self.slice().enter_readers();
            let Ok(Some(place)) = self.slice().block(number).await else { return Ok(true) };
            if place.info.is_lost() {
                return Ok(true);
            }
            let io = &self.slice().segments.io;
            let read = io.read_sound(place.location.segment(), place.location.range()).await;
            if read.as_ref().is_ok_and(|bytes| crc32c(bytes).0 == place.info.crc()) {
                return Ok(true);
            }
            if self.slice().block(number).await.ok().flatten() != Some(place) {
                continue;
            }
            if let Some(mended) = self.slice().mend(place).await {
                self.repaired(&mended.repairs);
                return Ok(true);
            }
            drop(guard);
            let (segment, offset) = (place.location.segment(), place.location.offset_bytes());
            let reason = match &read {
                Ok(_) => format!("the checksum of block {number} in segment {segment} at {offset} differs"),
                Err(error) => error.to_string(),
            };
            tracing::error!(number = number.0, %reason, "the scrub cannot read a block as it was written");
            // It is looked at when the drives are back that it waits for.
            if read.is_err() && self.slice().segments.table.is_unreadable(segment) {
                return Ok(false);
            }
            if read.is_ok() {
                self.slice().fingerprints().distrust(number);
            }
            let mut state = self.state.lock();
            match read {
                Ok(_) => {
                    state.counts.damaged_blocks += 1;
                    state.unreadable.block(number, reason);
                }
                Err(_) => {
                    state.counts.failed_reads += 1;
                    state.note(format!("block {number}: {reason}"));
                }
            }
            return Ok(false);
        }
    }

    fn count(&self, change: impl FnOnce(&mut ScrubCounts)) {
        change(&mut self.state.lock().counts);
    }

    /// Counts what was written again.
    fn repaired(&self, repairs: &[(Option<DriveIndex>, RepairKind)]) {
        let mut state = self.state.lock();
        for (drive, kind) in repairs {
            state.counts.repaired.count(*kind);
            if let Some(drive) = drive {
                *state.by_drive.entry(*drive).or_default() += 1;
            }
        }
    }

    /// Rests after `bytes` were read, as the rate and hosts want it, and tells now and then what was found.
    async fn rest(&self, pace: &mut Pace, bytes: u64) -> Result<(), PoolError> {
        let world = &self.slice().world();
        let took = world.now().since(pace.read_since);
        pace.owed = pace.owed.saturating_sub(took);
        if let Some(nanos) = (bytes * 1_000_000_000).checked_div(self.rate_bytes_s.load(Ordering::Relaxed)) {
            pace.owed += Duration::from_nanos(nanos);
        }
        let host_operations = self.host_operations();
        if std::mem::replace(&mut pace.host_operations, host_operations) != host_operations {
            pace.owed = pace.owed.max(took.min(LONGEST_SLEEP) * REST_OF_READ);
        }
        if pace.owed >= SHORTEST_SLEEP {
            let mut pause = std::mem::take(&mut pace.owed);
            while pause > Duration::ZERO && !self.is_stopping() {
                let part = pause.min(LONGEST_SLEEP);
                world.sleep(part).await;
                pause -= part;
            }
        } else {
            world.yield_now().await;
        }
        if world.now().since(pace.told) >= TELL_AFTER {
            pace.told = world.now();
            self.tell().await?;
        }
        pace.read_since = world.now();
        Ok(())
    }

    /// Tells which volumes what was found is missing to.
    async fn tell(&self) -> Result<(), PoolError> {
        let unreadable = std::mem::take(&mut self.state.lock().unreadable);
        if !unreadable.is_empty() {
            self.slice().tell_who_reaches(&unreadable).await?;
        }
        Ok(())
    }
}

impl State {
    fn note(&mut self, note: String) {
        if self.notes.len() < MOST_NOTES && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}
