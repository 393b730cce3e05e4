//! Parity and copies, compared with the data.
//!
//! 1. What is open is sealed, so that all that lies on the drives when the scrub comes here is compared. Every row of every
//!    sealed segment is read from all its columns. If parity and copies agree, it is sound.
//! 2. Of a row that does not agree, all contents that are live are verified, and repaired where they are wrong.
//! 3. A checkpoint is made.
//! 4. The heads of its segment's rows are seen to name all that is live there. A drive that lost a write may have the head
//!    of an earlier row in the place, which looks like one of this segment if the pool crashed in between. Such a head leads to
//!    places where the other drives have what is live, and no heads. So before this, no head is written.
//! 5. The row's head is verified like its contents. If all that still verifies and the row still does not agree, parity or
//!    copies are wrong, or what is dead: parity is computed again, and copies are made alike.
//!
//! Invariants:
//! 1. Parity is computed from data that verifies, and from what nothing leads to any more. Because of the checkpoint that
//!    goes for an opening after a crash, too.
//! 2. Nothing that is live is ever changed here but by [`SegmentIo::mend`](crate::segment::io::SegmentIo::mend). Where dead bytes
//!    share a page with it, it is written again as all copies have it.
//! 3. A row is written only while it cannot change otherwise: its segment is sealed, all its rows were written before, and
//!    neither readers nor records lead to anything that maps do not.

use super::{
    Pace, REDUNDANCY, Scrub,
    pieces::{Live, Pieces, Sum},
};
use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    format::{Location, PAGE_BYTES, RowContent, RowHeader},
    lifecycle::slice::Slice,
    maps::{blocks::block_page, dropped::is_among},
    meta::{PageId, Segment, SegmentState, Stream},
    segment::io::RowAt,
    store::repairs::RepairKind,
};
use quoin_base::{ByteRange, PageNumber, SegmentId, crc32c};
use quoin_stripe::{ColumnSet, StripeSet};
use quoin_world::{Buf, Slice as Bytes};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use zerocopy::IntoBytes;

/// So many rows that do not agree are looked at together: a checkpoint is made for them.
const MOST_DOUBTFUL: usize = 64;
/// How often it is looked whether segments that hosts write to are sealed, and for how long. Threads seal what they add nothing
/// to, once they have nothing to write: one that always has may leave a segment of another layout open.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LONGEST_LOOK: Duration = Duration::from_secs(10);

/// How far the rows of a segment were compared.
enum Compared {
    All,
    /// It is open still, or records of the journal lead to some of it.
    NotYet,
    Stopped,
}

/// A row that does not agree.
struct Doubtful {
    at: RowAt,
    /// Within the segment's data.
    range: ByteRange,
    is_metadata: bool,
    /// In order.
    heads: Vec<Box<RowHeader>>,
}

impl Doubtful {
    /// The checksums of its heads, by where they begin.
    fn head_crcs(&self) -> impl Iterator<Item = (u64, u32)> {
        self.heads.iter().map(|head| (head.offset.get().into(), crc32c(head.as_bytes()).0))
    }

    /// Its heads, and not those of other rows which begin there.
    fn live_heads(&self) -> impl Iterator<Item = Live> {
        let live = |(at, crc)| Live { range: ByteRange::new(at, PAGE_BYTES as u64), sum: Sum::Head(crc) };
        self.head_crcs().map(live)
    }

    /// Whether these are the heads of its segment, as far as it goes.
    fn is_among(&self, heads: &Heads) -> bool {
        self.head_crcs().all(|(at, crc)| heads.get(&at) == Some(&crc))
    }
}

/// The checksums of the heads of a segment's rows, by where they begin.
type Heads = BTreeMap<u64, u32>;

/// Whether something lies in a row, behind its head.
fn is_in_row(location: Location, segment: SegmentId, row: ByteRange) -> bool {
    let contents = row.offset + PAGE_BYTES as u64;
    location.segment() == segment
        && contents <= location.offset_bytes()
        && location.range().end() <= row.end()
}

/// A page of a column of parity that is to be written.
struct Parity {
    place: usize,
    page: ByteRange,
    content: Bytes,
    /// It certainly is wrong on the drive, or cannot be read.
    is_certain: bool,
}

/// Columns that were written.
#[derive(Clone, Copy, Default)]
struct Changed {
    /// They certainly were wrong, or could not be read.
    was_wrong: ColumnSet,
    /// They did not agree with others, and nothing tells which were wrong.
    perhaps: ColumnSet,
}

impl Changed {
    fn add(&mut self, place: usize, is_certain: bool) {
        let set = if is_certain { &mut self.was_wrong } else { &mut self.perhaps };
        *set = set.with(ColumnSet::one(place));
    }

    fn with(self, other: Self) -> Self {
        let (was_wrong, perhaps) = (self.was_wrong.with(other.was_wrong), self.perhaps.with(other.perhaps));
        Self { was_wrong, perhaps }
    }
}

/// Whether hosts may still write to it.
fn is_written_by_hosts(segment: &Segment) -> bool {
    segment.state == SegmentState::Open && segment.stream == Stream::Placed
}

fn set_of(places: impl Iterator<Item = usize>) -> ColumnSet {
    places.fold(ColumnSet::default(), |set, place| set.with(ColumnSet::one(place)))
}

impl Scrub {
    /// Parity and copies of every sealed segment from `first` on. False if it was stopped.
    pub(super) async fn redundancy(&self, first: PageNumber, pace: &mut Pace) -> Result<bool, PoolError> {
        let slice = self.slice();
        let protected = || {
            let mut all = slice.segments.table.all();
            all.retain(|(id, segment)| segment.stripes.geometry.parity > 0 && u64::from(id.0) >= first.0);
            all
        };
        if protected().is_empty() {
            return Ok(true);
        }
        let still_open = self.seal_open().await?;
        let mut segments = protected();
        segments.retain(|(id, segment)| segment.state == SegmentState::Sealed || still_open.contains(id));
        // All rows that were planned in these are written by then.
        slice.checkpoint().await?;
        let (mut doubtful, mut not_yet) = (Vec::new(), Vec::new());
        for (id, segment) in segments {
            match self.compare(id, &segment, &mut doubtful, pace).await? {
                Compared::All => {}
                Compared::NotYet => not_yet.push((id, segment)),
                Compared::Stopped => return Ok(false),
            }
            if doubtful.len() >= MOST_DOUBTFUL {
                self.make_agree(std::mem::take(&mut doubtful)).await?;
            }
            if doubtful.is_empty() && not_yet.is_empty() {
                self.move_to(REDUNDANCY, PageNumber(u64::from(id.0) + 1));
            }
        }
        if !not_yet.is_empty() {
            match slice.drain().await {
                // What there are no slabs for stays in the journal.
                Ok(()) | Err(PoolError::NoSpace) => {}
                Err(error) => return Err(error),
            }
        }
        for (id, segment) in not_yet {
            match self.compare(id, &segment, &mut doubtful, pace).await? {
                Compared::All => {}
                Compared::NotYet => self.state.lock().note(format!(
                    "segment {id} was not compared in all columns, since hosts write to it or the journal leads to it still; the next \
                     scrub does it"
                )),
                Compared::Stopped => return Ok(false),
            }
        }
        self.make_agree(doubtful).await?;
        Ok(true)
    }

    /// Has all segments sealed that are open now, while hosts go on to write to others. Then maps lead to all that was placed
    /// in them. Returns those that are open still.
    async fn seal_open(&self) -> Result<BTreeSet<SegmentId>, PoolError> {
        let (slice, table) = (self.slice(), &self.slice().segments.table);
        let mut open = table.all();
        open.retain(|(_, segment)| is_written_by_hosts(segment));
        let since = slice.world().now();
        // NOTE: the committer has no part in these: the threads that hosts write on seal them.
        loop {
            open.retain(|(id, segment)| {
                let now = table.segment(*id).filter(is_written_by_hosts);
                now.is_some_and(|now| now.generation == segment.generation)
            });
            if open.is_empty() || self.is_stopping() || slice.world().now().since(since) >= LONGEST_LOOK {
                break;
            }
            slice.front.placer.seal_idle();
            slice.world().sleep(LOOK_EVERY).await;
        }
        slice.seal().await?;
        Ok(open.into_iter().map(|(id, _)| id).collect())
    }

    /// Bytes that comparing parity and copies reads, of all segments of a slice as they are now.
    pub(super) fn to_compare_bytes(slice: &Slice) -> u64 {
        let of = |segment: &Segment| {
            let geometry = segment.stripes.geometry;
            let columns = u64::from(geometry.data) + u64::from(geometry.parity);
            if geometry.parity > 0 { segment.written_bytes / u64::from(geometry.data) * columns } else { 0 }
        };
        slice.segments.table.all().iter().map(|(_, segment)| of(segment)).sum()
    }

    /// Compares the columns of all rows of a segment, and lists those that do not agree.
    async fn compare(
        &self,
        id: SegmentId,
        segment: &Segment,
        doubtful: &mut Vec<Doubtful>,
        pace: &mut Pace,
    ) -> Result<Compared, PoolError> {
        let slice = self.slice();
        let mut at = RowAt { segment: id, generation: segment.generation, offset: 0 };
        while at.offset < segment.written_bytes {
            if self.is_stopping() {
                return Ok(Compared::Stopped);
            }
            let guard = slice.enter_readers();
            if !slice.segments.table.is_settled(id, segment.generation) {
                // What was freed meanwhile needs no comparison.
                let now = slice.segments.table.segment(id);
                let is_same =
                    |now: Segment| now.generation == segment.generation && now.state == SegmentState::Sealed;
                return Ok(if now.is_some_and(is_same) { Compared::NotYet } else { Compared::All });
            }
            let Some(set) = slice.segments.table.stripes(id) else { break };
            // What cannot be read was told of with the other heads.
            let Some((heads, range)) = self.row(at, set.geometry.row_unit_bytes()).await else { break };
            let in_columns = set.geometry.column_range(range, 0);
            // A column that cannot be read is looked at more closely, too.
            let agrees = slice.store.columns().verify(&set, in_columns).await.unwrap_or(false);
            drop(guard);
            if !agrees {
                doubtful.push(Doubtful { at, range, is_metadata: segment.stream.is_metadata(), heads });
            }
            at.offset = range.end();
            let read = in_columns.len * set.columns.len() as u64;
            self.count(|counts| counts.bytes += read);
            self.rest(pace, read).await?;
        }
        Ok(Compared::All)
    }

    /// A row's heads, and where it lies: it ends at a multiple of `unit`.
    async fn row(&self, first: RowAt, unit: u64) -> Option<(Vec<Box<RowHeader>>, ByteRange)> {
        let (mut heads, mut at) = (Vec::new(), first);
        while heads.is_empty() || !at.offset.is_multiple_of(unit) {
            let head = self.row_head(at).await?;
            at.offset += u64::from(head.len_bytes.get());
            heads.push(head);
        }
        Some((heads, ByteRange::from(first.offset..at.offset)))
    }

    /// Repairs rows that do not agree.
    async fn make_agree(&self, mut rows: Vec<Doubtful>) -> Result<(), PoolError> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut sound = Vec::new();
        for row in rows.drain(..) {
            let guard = self.slice().enter_readers();
            // NOTE: not the head. That of an earlier row leads to places where heads are no more.
            let is_sound = match self.live(&row).await {
                Some(live) => self.mend_all(&row, live).await.is_some(),
                None => false,
            };
            drop(guard);
            if is_sound {
                sound.push(row);
            } else if self.is_settled(&row) {
                let why = "something there is damaged and cannot be written again, so that it stays as it is";
                self.note_row(&row, why);
            }
            self.slice().world().yield_now().await;
        }
        // NOTE: what an opening would find live after a crash was live above, then.
        self.slice().checkpoint().await?;
        let mut seen: Option<(RowAt, Option<Heads>)> = None;
        for row in sound {
            let first = RowAt { offset: 0, ..row.at };
            let heads = match seen {
                Some((segment, heads)) if segment == first => heads,
                _ => self.heads_that_name_all(first).await,
            };
            if heads.as_ref().is_some_and(|heads| row.is_among(heads)) {
                self.make_row_agree(&row).await
            } else if self.is_settled(&row) {
                self.note_row(&row, "not all that lies there is known, so that it stays as it is")
            }
            seen = Some((first, heads));
            self.slice().world().yield_now().await;
        }
        Ok(())
    }

    /// Whether a row is still in a segment that cannot change: nothing of it is read any more once that was freed.
    fn is_settled(&self, row: &Doubtful) -> bool {
        self.slice().segments.table.is_settled(row.at.segment, row.at.generation)
    }

    fn note_row(&self, row: &Doubtful, why: &str) {
        let (RowAt { segment, offset, .. }, mut state) = (row.at, self.state.lock());
        state.note(format!("the row at {offset} of segment {segment} does not agree in all columns; {why}"));
    }

    /// Verifies a row's heads and all that is live in it, in all copies, and repairs what is wrong. Returns how many repairs it
    /// took; `None` if something is wrong still, or what is live cannot be told. The caller is in a reader epoch, and knows that
    /// the heads of the segment name all that is live.
    async fn repair_live(&self, row: &Doubtful) -> Option<usize> {
        let mut live = self.live(row).await?;
        live.extend(row.live_heads());
        self.mend_all(row, live).await
    }

    /// The same of some of it.
    async fn mend_all(&self, row: &Doubtful, live: Vec<Live>) -> Option<usize> {
        if !self.is_settled(row) {
            return None;
        }
        let mut repairs = 0;
        for Live { range, sum } in live {
            let verifies = move |bytes: &[u8]| sum.verifies(bytes);
            let mended = self.slice().segments.io.mend(row.at.segment, range, &verifies).await?;
            self.repaired(&mended.repairs);
            // NOTE: it can be read, but not where it lies. Parity is what it is read from.
            if mended.is_wrong_still {
                return None;
            }
            repairs += mended.repairs.len();
        }
        Some(repairs)
    }

    /// The heads of a segment's rows, if they name all that is live in it, each in its row and behind its head.
    async fn heads_that_name_all(&self, first: RowAt) -> Option<Heads> {
        let slice = self.slice();
        let live_in = || slice.segments.table.live_in(first.segment, first.generation);
        let _guard = slice.enter_readers();
        let (live_grains, end) = live_in()?;
        let (mut at, mut named, mut heads) = (first, 0, Heads::new());
        while at.offset < end {
            let head = self.row_head(at).await?;
            let range = ByteRange::new(at.offset, head.len_bytes.get().into());
            heads.insert(at.offset, crc32c(head.as_bytes()).0);
            let is_metadata = Stream::from_byte(head.stream).is_some_and(Stream::is_metadata);
            for content in &head.contents[..head.count.get() as usize] {
                let location = if is_metadata {
                    self.live_page(content).await.flatten().map(|(location, _)| location)
                } else {
                    // What was dropped counts as live, too.
                    slice.block(content.block_number()).await.ok().flatten().map(|p| p.location)
                };
                let is_here = |location: &Location| is_in_row(*location, first.segment, range);
                named += location.filter(is_here).map_or(0, |location| u64::from(location.counted_grains()));
            }
            at.offset = range.end();
        }
        // NOTE: less may be live by now, never more.
        let (now, _) = live_in()?;
        (now..=live_grains).contains(&named).then_some(heads)
    }

    /// What is live of the contents of a row; `None` if that cannot be told.
    async fn live(&self, row: &Doubtful) -> Option<Vec<Live>> {
        let mut live = Vec::new();
        for content in row.heads.iter().flat_map(|head| &head.contents[..head.count.get() as usize]) {
            let found = if row.is_metadata {
                self.live_page(content).await?
            } else {
                self.live_block(content).await?
            };
            let found = found.filter(|(location, _)| is_in_row(*location, row.at.segment, row.range));
            live.extend(found.map(|(location, sum)| Live { range: location.range(), sum }));
        }
        Some(live)
    }

    /// Where a block lies; nowhere if nothing leads to it any more. `None` if that cannot be told.
    async fn live_block(&self, content: &RowContent) -> Option<Option<(Location, Sum)>> {
        let (slice, number) = (self.slice(), content.block_number());
        let dropped = slice.metadata.pages.dropped_of(block_page(number).index).await.ok()?;
        let place = slice.block(number).await.ok()?.filter(|_| !is_among(dropped, number));
        let stored = place.filter(|place| !place.info.is_lost());
        Some(stored.map(|place| (place.location, Sum::Block(place.info.crc()))))
    }

    /// The same of a page of metadata.
    async fn live_page(&self, content: &RowContent) -> Option<Option<(Location, Sum)>> {
        let Some(page) = PageId::unpack(content.name.get()) else { return Some(None) };
        let entry = self.slice().metadata.pages.entry(page).await.ok()?;
        let location = Location(entry.location.get());
        let is_one = !location.is_none() && location.table_slab().is_none();
        Some(is_one.then_some((location, Sum::Page(entry.crc.get()))))
    }

    /// Computes parity of a row again, or makes its copies alike. All that was live in it has verified before a checkpoint.
    async fn make_row_agree(&self, row: &Doubtful) {
        let slice = self.slice();
        let _guard = slice.enter_readers();
        if planted(Bug::TrustParity) {
            return self.trust_parity(row).await;
        }
        if self.repair_live(row).await.is_none() {
            return;
        }
        let Some(mut live) = self.live(row).await else { return };
        live.extend(row.live_heads());
        let Some(set) = slice.segments.table.stripes(row.at.segment) else { return };
        let in_columns = set.geometry.column_range(row.range, 0);
        if matches!(slice.store.columns().verify(&set, in_columns).await, Ok(true)) {
            return;
        }
        let (mut changed, mut parity) = (Changed::default(), Vec::new());
        for page in in_columns.split(PAGE_BYTES as u64) {
            let at = Pieces { live: &live, set: &set, page };
            if set.geometry.data == 1 {
                changed = changed.with(self.make_copies_alike(&at).await);
                continue;
            }
            changed = changed.with(self.fill_unreadable(&at).await);
            parity.extend(self.parity_to_write(&at).await);
        }
        // NOTE: it was right when parity was computed from it if it is right after that.
        if !parity.is_empty() && self.repair_live(row).await == Some(0) {
            for Parity { place, page, content, is_certain } in parity {
                if self.restore(&set, place, page, &content).await {
                    changed.add(place, is_certain);
                }
            }
        }
        self.count_changed(&set, row, changed);
    }

    fn count_changed(&self, set: &StripeSet, row: &Doubtful, changed: Changed) {
        let data = set.geometry.data_columns();
        let io = &self.slice().segments.io;
        for place in changed.was_wrong.with(changed.perhaps).iter() {
            let kind = match set.geometry.data {
                1 => RepairKind::Copy,
                _ if data.has(place) => RepairKind::Data,
                _ => RepairKind::Parity,
            };
            let blamed = changed.was_wrong.has(place).then_some(place);
            io.note_repair(set, blamed, row.range.offset, kind);
            self.repaired(&[(blamed.map(|place| set.columns[place].drive), kind)]);
        }
    }

    /// The columns that can be read and written, as far as is known.
    fn there(&self, set: &StripeSet) -> ColumnSet {
        let is_there = |place: &usize| self.slice().store.is_there(set.columns[*place]);
        set_of(set.geometry.all().without(set.missing).iter().filter(is_there))
    }

    /// Makes copies of a page alike in what nothing leads to: they become what most of them are.
    async fn make_copies_alike(&self, at: &Pieces<'_>) -> Changed {
        let mut changed = Changed::default();
        if at.is_all_live(0) {
            return changed;
        }
        let mut copies = Vec::new();
        for place in self.there(at.set).iter() {
            copies.push((place, self.page_of(at.set, place, at.page).await));
        }
        let alike =
            |one: &Bytes| copies.iter().flat_map(|(_, copy)| copy).filter(|copy| copy[..] == one[..]).count();
        let readable = copies.iter().filter_map(|(_, copy)| copy.as_ref());
        let Some(most) = readable.max_by_key(|copy| alike(copy)).cloned() else { return changed };
        let is_told = 2 * alike(&most) > copies.len();
        // What is live is alike, or was changed just now.
        let is_same = |copy: &Bytes| at.live_in_page(0).all(|part| copy[part.clone()] == most[part]);
        if !copies.iter().flat_map(|(_, copy)| copy).all(is_same) {
            return changed;
        }
        for (place, copy) in copies {
            let was_unreadable = copy.is_none();
            let is_alike = copy.is_some_and(|copy| copy[..] == most[..]);
            if !is_alike && self.restore(at.set, place, at.page, &most).await {
                changed.add(place, is_told || was_unreadable);
            }
        }
        changed
    }

    /// Writes what cannot be read of data that nothing leads to: what it was, as far as that can be computed.
    async fn fill_unreadable(&self, at: &Pieces<'_>) -> Changed {
        let mut changed = Changed::default();
        let data = at.set.geometry.data_columns().both(self.there(at.set));
        for place in data.iter().filter(|place| !at.is_live(*place)) {
            if self.page_of(at.set, place, at.page).await.is_some() {
                continue;
            }
            let computed = self.slice().store.columns().rebuild(at.set, place, at.page).await;
            let content = computed.unwrap_or_else(|_| Buf::zeroed(at.page.len as usize)).into_slice();
            if self.restore(at.set, place, at.page, &content).await {
                changed.add(place, true);
            }
        }
        changed
    }

    /// A page of parity as it follows from data, of each column in which it is another.
    async fn parity_to_write(&self, at: &Pieces<'_>) -> Vec<Parity> {
        let (mut parity, there, data) = (Vec::new(), self.there(at.set), at.set.geometry.data_columns());
        // From fewer columns it does not follow.
        if data.both(there) != data {
            return parity;
        }
        let is_all_live = data.iter().all(|place| at.is_all_live(place));
        for place in there.without(data).iter() {
            let computed = self.slice().store.columns().rebuild(at.set, place, at.page).await;
            let Ok(content) = computed.map(Buf::into_slice) else { continue };
            let now = self.page_of(at.set, place, at.page).await;
            // Where nothing leads to some of the data, that may have been what was wrong.
            let is_certain = is_all_live || now.is_none();
            if now.is_none_or(|now| now[..] != content[..]) {
                parity.push(Parity { place, page: at.page, content, is_certain });
            }
        }
        parity
    }

    async fn page_of(&self, set: &StripeSet, place: usize, page: ByteRange) -> Option<Bytes> {
        let read = self.slice().store.read_slab(set.columns[place], page.offset, page.len as usize).await;
        read.ok().map(Buf::into_slice)
    }

    /// Writes a page of a column. False if it did not get there.
    async fn restore(&self, set: &StripeSet, place: usize, page: ByteRange, content: &Bytes) -> bool {
        let store = &self.slice().store;
        match store.columns().restore(set, place, page.offset, content.clone()).await {
            Ok(()) => self.page_of(set, place, page).await.is_some_and(|now| now[..] == content[..]),
            Err(error) => {
                store.repair_failed(set, place, error).await;
                false
            }
        }
    }

    /// What the planted bug does: the first column of data becomes what parity says.
    async fn trust_parity(&self, row: &Doubtful) {
        let Some(set) = self.slice().segments.table.stripes(row.at.segment) else { return };
        let in_columns = set.geometry.column_range(row.range, 0);
        if let Ok(computed) = self.slice().store.columns().rebuild(&set, 0, in_columns).await {
            self.restore(&set, 0, in_columns, &computed.into_slice()).await;
        }
    }
}
