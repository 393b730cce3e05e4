//! Reading the journal back.
//!
//! Only headers and checksums are read; payloads stay where they are until they are wanted. An extent that its lane has left
//! has copies of them in its footer. In the others a batch tells how
//! many before it were hardened when it was sent. Those that nothing in the extent tells to be were perhaps in flight
//! at the end, and may be torn: only of them payloads are verified, and from the first that does not verify on they
//! were never acknowledged and are dropped whole. Anything else that does not verify is damage to records that were
//! acknowledged, and is reported, never skipped. What a record of placed blocks leads to is verified like a payload.
//!
//! An extent lies on several drives if the pool has journal columns: [`super::sites`] finds out which slabs belong together,
//! and [`super::cursor`] has the table of what their contents mean.
//!
//! A page that a drive fails to read refuses the pool only if a needed record may lie there: see [`super::unread`].
//!
//! # Example
//! The tail is 50. Lane 0 left extent 7 for extent 9, and lane 1 has extent 8. Power fails.
//! 1. Extent 7 has a footer: batches 0 to 5, records up to 61. Its records from 50 on are taken, and no payload is read.
//! 2. Extent 9 has batches 0 and 1. When batch 1 was sent one was hardened: batch 0 counts, and batch 1 is in doubt. Its
//!    payload verifies, so it is taken.
//! 3. Extent 8 has batches 0 to 3, of which the last two are in doubt. The payload of batch 2 does not verify: it is torn.
//!    A lane acknowledges its batches in order, so neither it nor batch 3 was acknowledged. Both are dropped.
//! 4. The records of all three, in the order of their sequences, are replayed. New records get sequences far beyond the
//!    last one: clear of those that batches 2 and 3 of extent 8 held.

use super::{
    JournalPlace,
    cursor::{Beyond, Cursor},
    extents::{Extents, HeldExtent},
    footer::{Sealed, read_footer},
    found::{Bare, ExtentContent, Found, TornBatch, refuse_needed},
    mend::{Mend, TakenInDoubt},
    placed::PlacedRows,
    record::ReplayedRecord,
    row_in_doubt::RowInDoubt,
    sites::{Site, find_sites},
    slabs::Slabs,
    unread::{JournalBounds, Unread, refusal},
};
use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    format::{BatchHeader, COUNTERS_END, PAGE_BYTES, RecordKind},
    segment::io::SegmentIo,
    store::Store,
};
use futures_util::{StreamExt, stream};
use quoin_base::{Sequence, SliceId};
use quoin_stripe::{Column, StripeError};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Extents read at the same time.
const PARALLEL: usize = 16;

/// What the journal holds.
pub(crate) struct Replay {
    /// Records from the tail on, in order.
    pub records: Vec<ReplayedRecord>,
    pub extents: Extents,
    pub next_sequence: Sequence,
    pub batches: u64,
    /// The batches at the ends of extents that were torn, and so dropped.
    pub torn: Vec<TornBatch>,
    /// Extents to mend before the pool serves, so that all their columns hold the same.
    pub mends: Vec<Mend>,
    /// Pages to overwrite before the pool serves: a drive fails to read them, and other columns tell that nothing that
    /// counted is there. What may be there must not be found later.
    pub forget: Vec<(Column, u64)>,
    /// Rows that records in doubt lead to: to be written to all their columns before the pool serves.
    pub rows: Vec<RowInDoubt>,
    /// What could not be read and is not needed, in words.
    pub unread: Vec<String>,
}

impl Replay {
    /// Of a journal that holds nothing beyond the tail, as its root and its drives' epoch say: nothing of it is read.
    pub(crate) fn of_closed(store: &Store, slice: SliceId, bounds: JournalBounds) -> Self {
        let slabs = store.journal_slabs(slice);
        // Clear of the number of any extent whose write a drive did late.
        let next_number = bounds.next_extent + slabs.len() as u64;
        Self {
            records: Vec::new(),
            extents: Extents::new(store.journal_columns(), slabs, [], next_number).over(store.domains()),
            next_sequence: beyond(bounds.tail),
            batches: 0,
            torn: Vec::new(),
            mends: Vec::new(),
            forget: Vec::new(),
            rows: Vec::new(),
            unread: Vec::new(),
        }
    }
}

/// A sequence clear of any that a torn, dropped batch behind `last` may have held.
fn beyond(last: Sequence) -> Sequence {
    Sequence(last.0 + (1 << 20))
}

/// Reads every record from the tail on.
pub(crate) async fn read_journal(
    io: &SegmentIo,
    slice: SliceId,
    bounds: JournalBounds,
) -> Result<Replay, PoolError> {
    let (store, tail) = (&*io.store, bounds.tail);
    let slabs = store.journal_slabs(slice);
    // The headers in each extent, many extents at a time.
    let sites = find_sites(store, &slabs, PARALLEL).await;
    let reads: Vec<_> = sites.into_iter().map(|site| scan(store, site, bounds)).collect();
    let scans: Vec<_> = stream::iter(reads).buffered(PARALLEL).collect().await;
    let scans = scans.into_iter().collect::<Result<Vec<_>, _>>()?;
    // Then batches that nothing tells to have counted: their payloads, and the rows that their records name.
    let predecessors = scans.iter().filter_map(Scan::predecessor).collect();
    let placed = PlacedRows::new(io, scans.iter().flat_map(Scan::records), predecessors, tail);
    let finished: Vec<_> = scans.into_iter().map(|scan| scan.finish(&placed, tail)).collect();
    let found: Vec<_> = stream::iter(finished).buffered(PARALLEL).collect().await;
    let mut found = found.into_iter().collect::<Result<Vec<_>, _>>()?;
    // What is damaged or cannot be read refuses the pool if it may be needed.
    settle_bare(store, &mut found)?;
    let unread = refuse_needed(&mut found, bounds)?;
    let numbers = found.iter().filter_map(|found| found.number).map(|number| number + 1);
    let next_number = numbers.max().unwrap_or(1).max(bounds.next_extent);
    let mends = found.iter_mut().filter_map(|found| found.mend.take()).collect();
    let forget = found.iter_mut().flat_map(|found| std::mem::take(&mut found.forget)).collect();
    let contents: Vec<_> = found.into_iter().filter_map(|found| found.content).collect();
    // What a lane left behind it must be there as it was.
    check_chains(&contents, tail)?;

    // Extents that hold anything from the tail on stay taken. The slabs of the others are free.
    let held: Vec<_> = contents
        .iter()
        .filter(|content| content.last >= tail)
        .map(|c| HeldExtent { number: c.header.number.get(), last: c.last, slabs: c.slabs })
        .collect();
    let batches = contents.iter().map(|c| u64::from(c.batches)).sum();
    let torn = contents.iter().filter_map(|content| content.torn.clone()).collect();
    let mut records: Vec<_> = contents.into_iter().flat_map(|c| c.records).collect();
    // Those have told what they had to.
    records.retain(|r| r.header.kind != RecordKind::Watermark as u8);
    records.sort_unstable_by_key(|r| r.header.sequence.get());
    let last = records.last().map_or(0, |r| r.header.sequence.get());
    Ok(Replay {
        records,
        extents: Extents::new(store.journal_columns(), slabs, held, next_number).over(store.domains()),
        next_sequence: beyond(Sequence(last.max(tail.0))),
        batches,
        torn,
        mends,
        forget,
        rows: placed.taken(),
        unread,
    })
}

/// Decides about slabs without a header. One that is all there is of an extent may hold what counted. But the header of an
/// extent with columns is on all of them, and names this slab, before anything counts. So if another column's header is
/// intact, the slab was found by it; and if another column has none, nothing counted. That leaves slabs that may be all
/// columns of one extent, with a damaged header each:
///
/// 1. Several have batches of the same extent, and a batch tells that the first counted, or the headers cannot be read.
/// 2. On every drive of the journal there is one that may be needed: a slab that cannot be read may belong to any extent.
///
/// Columns hold the same. So a slab that can be read, and holds no batches that are known to have counted and are needed,
/// speaks for the unreadable columns of its extent.
fn settle_bare(store: &Store, found: &mut [Found]) -> Result<(), PoolError> {
    let has_columns = store.journal_columns() > 1 && store.journal_set_is_whole();
    let told = |f: &Found| {
        let bare = f.bare.as_ref()?;
        Some((bare.column.drive, bare.tag, bare.refusal.is_some() || f.unread.is_some()))
    };
    let told: Vec<_> = found.iter().filter_map(told).collect();
    for found in found {
        let Some(bare) = &mut found.bare else { continue };
        // Tag 0: nothing tells of which extent the slab is, so it may be of any.
        let may_be_one = |tag: u64| tag == bare.tag || tag == 0 || bare.tag == 0;
        let drives: BTreeSet<_> = told
            .iter()
            .filter(|(_, tag, may_be_needed)| *may_be_needed && may_be_one(*tag))
            .map(|(drive, ..)| *drive)
            .collect();
        let of_extent =
            told.iter().filter(|(_, tag, needed)| *tag == bare.tag && (*needed || bare.has_counted));
        let is_paired = bare.tag != 0 && of_extent.count() > 1;
        let is_needless = bare.refusal.is_none() && found.unread.is_none();
        // Then nothing of it is needed, or the other columns of its extent speak for it.
        let is_alone = is_needless || (!is_paired && drives.len() < store.journal_columns());
        if !has_columns || !is_alone {
            bare.refusal.take().map_or(Ok(()), Err)?;
            continue;
        }
        found.skipped.extend(found.unread.take());
        if bare.is_unreadable {
            found.forget.push((bare.column, 0));
        }
    }
    Ok(())
}

/// Every extent that a lane went on from must be there as it was left, unless its records are all obsolete.
fn check_chains(contents: &[ExtentContent], tail: Sequence) -> Result<(), PoolError> {
    // A lane goes on within an epoch. A number may stand in two: a header that no drive could read when the second was opened
    // did not keep its number from being given out again.
    let key = |c: &ExtentContent, number: u64| (c.header.epoch.get(), number);
    let by_number: BTreeMap<(u64, u64), &ExtentContent> =
        contents.iter().map(|c| (key(c, c.header.number.get()), c)).collect();
    for content in by_number.values() {
        let (previous, batches) = (content.header.previous.get(), content.header.previous_batches.get());
        if previous == 0 || content.header.previous_last.get() < tail.0 {
            continue;
        }
        let found = by_number.get(&key(content, previous)).map_or(0, |c| c.batches);
        if found != batches {
            return Err(PoolError::corrupt(
                format!("journal extent {previous}"),
                format!(
                    "it held {batches} batches, of which {found} can be read; acknowledged writes are missing"
                ),
            ));
        }
    }
    Ok(())
}

/// What the headers in an extent say, before any payload was looked at.
pub(super) enum Scan<'a> {
    /// All there is to know.
    Done(Box<Found>),
    Batches(Box<Batches<'a>>),
}

/// The batches of an extent whose header is intact.
pub(super) struct Batches<'a> {
    cursor: Cursor<'a>,
    content: ExtentContent,
    /// Batches that none behind them tells to be hardened, and where they begin.
    in_doubt: VecDeque<TakenInDoubt>,
    /// Where reading stopped.
    end: u64,
    unread: Option<Unread>,
    /// A footer told all of it.
    is_sealed: bool,
}

async fn scan(store: &Store, site: Site, bounds: JournalBounds) -> Result<Scan<'_>, PoolError> {
    let (slab_bytes, tail) = (u64::from(store.slab_bytes()), bounds.tail);
    let (header, slabs) = match site {
        Site::Extent(header, slabs) => (*header, slabs),
        Site::Bare(place, error) => {
            return Ok(Scan::Done(Box::new(without_header(store, place, tail, error).await?)));
        }
    };
    // The root says that replay needs nothing of earlier extents.
    if header.number.get() < bounds.first_extent {
        let number = Some(header.number.get());
        return Ok(Scan::Done(Box::new(Found { number, ..Found::default() })));
    }
    let mut cursor = Cursor::new(store, slabs, header.number.get(), header.crc.get());
    let mut content = ExtentContent {
        header,
        slabs,
        records: Vec::new(),
        batches: 0,
        last: Sequence(0),
        torn: None,
        doubtful: Vec::new(),
    };
    if let Some(Sealed { batches, last, records }) = read_footer(store, slabs, &header, tail).await {
        (content.batches, content.last) = (batches, last);
        content.records.extend(records.into_iter().flatten().filter(|r| r.header.sequence.get() >= tail.0));
        let (in_doubt, unread) = (VecDeque::new(), None);
        let batches = Batches { cursor, content, in_doubt, end: slab_bytes, unread, is_sealed: true };
        return Ok(Scan::Batches(Box::new(batches)));
    }
    // Its lane had not left it. Batch by batch: each names the checksum of the one before.
    let mut at = PAGE_BYTES as u64;
    let mut previous_crc = header.crc.get() as u32;
    let mut unread = None;
    let mut in_doubt: VecDeque<TakenInDoubt> = VecDeque::new();
    loop {
        let index = content.batches + in_doubt.len() as u32;
        let batch = match cursor.next_batch(at, index, previous_crc).await {
            Ok(Some(batch)) => batch,
            Ok(None) => break,
            Err(error) => {
                unread = Some(cursor.unread(at, error));
                break;
            }
        };
        // What a later batch says to be hardened counts.
        let hardened = hardened_before(&batch.header);
        while content.batches < hardened
            && let Some(batch) = in_doubt.pop_front()
        {
            content.take(batch.records, tail);
        }
        previous_crc = batch.header.meta_crc.get();
        in_doubt.push_back(TakenInDoubt { at, header: batch.header, records: batch.records });
        at += u64::from(batch.header.total_bytes.get());
    }
    let is_sealed = false;
    Ok(Scan::Batches(Box::new(Batches { cursor, content, in_doubt, end: at, unread, is_sealed })))
}

impl Scan<'_> {
    /// The extent that its lane had before, and how many batches that held.
    pub(super) fn predecessor(&self) -> Option<(u64, u32)> {
        let Self::Batches(batches) = self else { return None };
        let header = &batches.content.header;
        Some((header.previous.get(), header.previous_batches.get())).filter(|(number, _)| *number > 0)
    }

    /// All records whose batches were read, those in doubt included.
    pub(super) fn records(&self) -> impl Iterator<Item = &ReplayedRecord> {
        let batches = match self {
            Self::Done(_) => None,
            Self::Batches(batches) => Some(batches),
        };
        batches
            .into_iter()
            .flat_map(|b| b.content.records.iter().chain(b.in_doubt.iter().flat_map(|b| &b.records)))
    }

    async fn finish(self, placed: &PlacedRows<'_>, tail: Sequence) -> Result<Found, PoolError> {
        match self {
            Self::Done(found) => Ok(*found),
            Self::Batches(batches) => batches.finish(placed, tail).await,
        }
    }
}

impl Batches<'_> {
    /// Decides about the batches in doubt, and looks behind them.
    async fn finish(self, placed: &PlacedRows<'_>, tail: Sequence) -> Result<Found, PoolError> {
        let Self { mut cursor, mut content, mut in_doubt, end, mut unread, is_sealed } = self;
        // The extent that its lane went on with tells how many were hardened.
        let vouched = placed.batches_of(cursor.number);
        while content.batches < vouched
            && let Some(batch) = in_doubt.pop_front()
        {
            content.take(batch.records, tail);
        }
        // The others count if they are whole. They are looked at in their order.
        let mut mend = Mend::new(content.header, cursor.slabs.clone());
        while let Some(batch) = in_doubt.pop_front() {
            let TakenInDoubt { at, records, .. } = &batch;
            let is_needed = records.iter().any(|r| r.header.sequence.get() >= tail.0);
            match cursor.verify(records, placed).await {
                Ok(true) => content.take(mend.keep(batch, is_needed), tail),
                Ok(false) if planted(Bug::ReplayTorn) => content.take(batch.records, tail),
                Ok(false) => {
                    let place = JournalPlace { slabs: cursor.slabs.clone(), offset: *at };
                    let rows = records.iter().filter_map(|record| placed.row_of(record)).collect();
                    content.torn = Some(TornBatch { place, rows });
                    break;
                }
                // What it holds is not looked at.
                Err(_) if !is_needed => content.take(mend.keep(batch, false), tail),
                Err((offset, error)) => {
                    unread = Some(cursor.unread(offset, error));
                    content.doubtful.push(batch.records);
                    content.doubtful.extend(in_doubt.drain(..).map(|batch| batch.records));
                }
            }
        }
        // What lies behind the end tells whether a batch in between is damaged.
        let batches = content.batches + content.doubtful.len() as u32;
        let beyond = match (is_sealed, &unread) {
            (true, _) => Beyond::default(),
            (false, None) => cursor.beyond(end, batches, tail).await?,
            (false, Some(unread)) => match cursor.beyond(end, batches, tail).await {
                Err(_) => return Err(refusal(Some(cursor.number), unread)),
                Ok(beyond) => beyond,
            },
        };
        if let Some(unread) = &mut unread {
            unread.is_obsolete = content.doubtful.is_empty() && beyond.ends_obsolete;
        }
        if content.records.iter().any(|r| r.header.sequence.get() >= COUNTERS_END) {
            let drive = cursor.store.drive_name(cursor.slabs[0].drive);
            return Err(PoolError::corrupt(
                format!("journal extent {} on drive {drive}", cursor.number),
                "a record has a sequence that no pool reaches",
            ));
        }
        if let Some(unread) = &mut unread {
            unread.is_obsolete &= content.records.is_empty();
        }
        // Of one that holds nothing that is needed, nothing is written.
        let mend = mend.finished().filter(|_| content.last >= tail);
        let (number, forget, skipped) = (Some(cursor.number), cursor.failed, beyond.skipped);
        Ok(Found { number, content: Some(content), unread, skipped, mend, forget, bare: None })
    }
}

/// Looks into an extent whose header is damaged, or cannot be read (`error`). It is taken for free unless it holds
/// records from the tail on that were acknowledged. If the header is damaged, a batch has to say that the first was
/// hardened, and the header with it: others may be what a power failure left of a write that tore at its beginning.
///
/// The first batch of an extent follows the header, and is hardened with it. What does not begin there now was never
/// acknowledged, or belongs to an earlier life of the extent, of which nothing was needed when it was begun anew.
async fn without_header(
    store: &Store,
    place: Column,
    tail: Sequence,
    error: Option<StripeError>,
) -> Result<Found, PoolError> {
    // The first batch tells the extent's number and its header's checksum. The others must agree with it.
    let mut cursor = Cursor::new(store, Slabs::one(place), 0, 0);
    let (mut at, mut batches) = (PAGE_BYTES as u64, 0);
    let (mut hardened, mut needed) = (false, false);
    let mut unread = None;
    loop {
        let batch = match cursor.batch_at(0, at).await {
            Ok(Some(batch)) => batch,
            Ok(None) => break,
            Err(error) => {
                unread = Some(cursor.unread(at, error));
                break;
            }
        };
        if batches == 0 {
            (cursor.number, cursor.tag) = (batch.header.extent.get(), batch.header.tag.get());
        }
        if !cursor.owns(&batch.header) || batch.header.index.get() != batches {
            break;
        }
        hardened |= batch.header.hardened.get() > 0;
        needed |= batch.records.iter().any(|r| r.header.sequence.get() >= tail.0);
        batches += 1;
        at += u64::from(batch.header.total_bytes.get());
    }
    let number = Some(cursor.number).filter(|number| *number > 0);
    let has_counted = needed && hardened;
    let refused = (has_counted || needed && error.is_some()).then(|| match &error {
        Some(error) => refusal(number, &Unread::new(store, place, 0, error)),
        None => PoolError::corrupt(
            format!("journal extent at slab {} of drive {}", place.slab, store.drive_name(place.drive)),
            "its header is unreadable, yet it holds records that are needed",
        ),
    });
    let (tag, is_unreadable) = (cursor.tag, error.is_some());
    let bare = Some(Bare { column: place, tag, is_unreadable, has_counted, refusal: refused });
    let mut skipped: Vec<_> = error.map(|error| cursor.unread(0, error)).into_iter().collect();
    if let Some(unread) = &mut unread
        && number.is_some()
    {
        let beyond = cursor.beyond(at, batches, tail).await?;
        unread.is_obsolete = beyond.ends_obsolete && !needed;
        skipped.extend(beyond.skipped);
    }
    Ok(Found { number, unread, skipped, bare, ..Found::default() })
}

/// How many batches of its extent a batch says to be hardened.
fn hardened_before(header: &BatchHeader) -> u32 {
    if planted(Bug::VerifyLastBatchOnly) { header.index.get() } else { header.hardened.get() }
}
