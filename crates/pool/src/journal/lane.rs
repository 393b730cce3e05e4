//! A lane: records of one data thread, gathered into batches, of which few are on their way to the drive at a time.

use super::{
    Batch, Journal, JournalPlace,
    batch::{FAILED, HARDENED},
    entry::{Entry, encode, is_watermark, queued_bytes, queued_bytes_beside, sizes},
    extents::TakenExtent,
    footer::Index,
    slabs::{Slabs, write_columns},
};
use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    format::{BATCH_MAGIC, BatchHeader, ExtentHeader, PAGE_BYTES, RecordHeader, RecordKind, zeroed},
};
use futures_util::{
    StreamExt,
    future::{BoxFuture, Either, join, select},
    stream::FuturesOrdered,
};
use quoin_base::Sequence;
use quoin_stripe::Column;
use quoin_world::{
    Buf, Event, Mutex, Slice as Bytes, Task, World,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use std::{collections::VecDeque, pin::pin, sync::Arc};
use zerocopy::{
    IntoBytes,
    little_endian::{U32, U64},
};

mod next_extent;
#[cfg(test)]
mod tests;

pub(super) use next_extent::WaitingLanes;

use next_extent::Left;

/// The most slices one vectored write takes, with room for headers and padding.
const MAX_SLICES: usize = 900;

pub(super) fn max_record_bytes(slab_bytes: u64) -> u64 {
    (slab_bytes / 4).min(1 << 20)
}

fn max_batch_bytes(slab_bytes: u64) -> usize {
    (slab_bytes / 4).min(2 << 20) as usize
}

/// Batches of a lane on their way to the drive at a time: while one is made durable, the next is brought there.
const IN_FLIGHT: usize = 2;
/// The same, of a lane for large writes: a batch waits for the rows that its records name.
const PLACED_IN_FLIGHT: usize = 3;

/// Bytes of the headers of an [`OpenBatch::watermark`]. The whole batch takes a page.
const WATERMARK_META_BYTES: usize = 128;

struct OpenBatch {
    batch: Arc<Batch>,
    entries: Vec<Entry>,
    bytes: usize,
    payload_bytes: u32,
    slices: usize,
    /// What its entries count as queued.
    queued_bytes: u64,
}

pub(crate) struct Lane {
    pub(super) index: u32,
    in_flight: usize,
    max_batch_bytes: usize,
    queue: Mutex<VecDeque<OpenBatch>>,
    /// The last batch with anything in it. Changed with the queue locked.
    newest: Mutex<Option<Arc<Batch>>>,
    pub(super) wake: Arc<Event>,
    /// Shared with the journal: see [`Journal::fill`].
    queued: Arc<AtomicU64>,
    stopping: AtomicBool,
    /// Nothing of the queue is written any more. Changed with the queue locked.
    ended: AtomicBool,
    stopped: AtomicBool,
    has_stopped: Event,
}

impl Lane {
    pub(super) fn new(index: u32, is_for_placed: bool, slab_bytes: u64, queued: Arc<AtomicU64>) -> Self {
        Self {
            index,
            in_flight: if is_for_placed { PLACED_IN_FLIGHT } else { IN_FLIGHT },
            max_batch_bytes: max_batch_bytes(slab_bytes),
            queue: Mutex::new(VecDeque::new()),
            newest: Mutex::default(),
            wake: Arc::new(Event::new()),
            queued,
            stopping: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            has_stopped: Event::new(),
        }
    }

    /// Appends the record `make` returns. `make` runs under the lane's lock with the batch it will be in, and where its
    /// payload begins among those of the batch; if it fails nothing is appended. `bytes` and `slices` are those of the
    /// payload.
    pub(crate) fn append<E>(
        &self,
        bytes: usize,
        slices: usize,
        make: impl FnOnce(&Arc<Batch>, u32) -> Result<Entry, E>,
    ) -> Result<Arc<Batch>, E> {
        self.append_all(bytes, slices, |batch, at| make(batch, at).map(|entry| [entry]))
    }

    /// The same for several records, which are replayed together or not at all: they are in one batch.
    pub(crate) fn append_all<E, R: IntoIterator<Item = Entry>>(
        &self,
        bytes: usize,
        slices: usize,
        make: impl FnOnce(&Arc<Batch>, u32) -> Result<R, E>,
    ) -> Result<Arc<Batch>, E> {
        let batch = {
            let mut queue = self.queue.lock();
            // Records share the last batch of the queue while it has room: it is not sent yet.
            let fits = queue.back().is_some_and(|open| {
                open.bytes + bytes <= self.max_batch_bytes && open.slices + slices <= MAX_SLICES
            });
            if !fits {
                let batch = Arc::new(Batch::default());
                queue.push_back(OpenBatch {
                    batch,
                    entries: Vec::new(),
                    bytes: 0,
                    payload_bytes: 0,
                    slices: 0,
                    queued_bytes: 0,
                });
            }
            let Some(open) = queue.back_mut() else { unreachable!("a batch was just made sure of") };
            let entries = make(&open.batch, open.payload_bytes)?;
            open.payload_bytes += bytes as u32;
            open.slices += slices;
            open.bytes += bytes;
            if open.entries.is_empty() {
                *self.newest.lock() = Some(open.batch.clone());
            }
            let mut queued = 0;
            for (n, entry) in entries.into_iter().enumerate() {
                queued += if n == 0 { queued_bytes(&entry) } else { queued_bytes_beside(&entry) };
                open.bytes += size_of::<RecordHeader>() + 4 * entry.crcs.len();
                open.entries.push(entry);
            }
            open.queued_bytes += queued;
            self.queued.fetch_add(queued, Ordering::Relaxed);
            // Another thread may append when the lane has just ended: that would never be written.
            if self.ended.load(Ordering::Relaxed) && !planted(Bug::AppendPastEnd) {
                open.batch.resolve(FAILED);
            }
            open.batch.clone()
        };
        self.wake.notify();
        Ok(batch)
    }

    /// The batch of the last record appended: with it, all that were appended before are hardened.
    pub(crate) fn newest(&self) -> Option<Arc<Batch>> {
        let _queue = self.queue.lock();
        self.newest.lock().clone()
    }

    pub(super) async fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake.notify();
        self.has_stopped.until(|| self.stopped.load(Ordering::Acquire).then_some(())).await;
    }

    /// The next batch with anything in it; `None` when the lane is to stop. An idle lane that is `at` an extent leaves it if that
    /// began under another set of drives, or if others wait for one.
    async fn next(&self, journal: &Journal, at: Option<&Position>) -> Option<Next> {
        // NOTE: as long as an extent that lacks a column is open, another loss may take the last one; and a drive that is back or
        // leaves waits for what began before.
        let is_of_old_set = |at: &Position| at.header.set.get() != journal.store.journal_set();
        let shall_leave =
            || at.is_some_and(|at| !at.broken && (is_of_old_set(at) || journal.waiting.lack_extents()));
        self.wake
            .until(|| {
                if journal.store.health().is_failed() {
                    return Some(None);
                }
                let mut queue = self.queue.lock();
                while let Some(open) = queue.pop_front() {
                    if !open.entries.is_empty() {
                        return Some(Some(Next::Batch(open)));
                    }
                }
                if self.stopping.load(Ordering::Acquire) {
                    return Some(None);
                }
                shall_leave().then_some(Some(Next::Leave))
            })
            .await
    }
}

impl OpenBatch {
    /// A batch that only tells that all before it are hardened. Its record has the highest sequence of theirs,
    /// so that recovery needs the watermark exactly when it needs the last of them.
    fn watermark(last: Sequence) -> Self {
        let mut header: RecordHeader = zeroed();
        (header.sequence, header.kind) = (last.0.into(), RecordKind::Watermark as u8);
        let entry = Entry { header, crcs: Vec::new(), payload: Vec::new(), row: None };
        let (batch, queued_bytes) = (Arc::new(Batch::default()), queued_bytes(&entry));
        let bytes = size_of::<RecordHeader>();
        Self { batch, entries: vec![entry], bytes, payload_bytes: 0, slices: 0, queued_bytes }
    }
}

/// What a lane does next.
enum Next {
    Batch(OpenBatch),
    /// It leaves its extent, and takes another when it has a batch for it.
    Leave,
}

/// The wait after which a lane that sent nothing counts as idle.
struct Nap {
    over: Task,
    /// Extent and batches sent when it began.
    since: (u64, u32),
}

/// Where a lane writes next.
struct Position {
    extent: TakenExtent,
    offset: u64,
    batches: u32,
    last: Sequence,
    /// CRC of the header or batch before.
    previous_crc: u32,
    header: ExtentHeader,
    /// False until the header is written, with the first batch.
    is_begun: bool,
    /// What the footer will say.
    index: Index,
    /// How many of its batches are hardened.
    hardened: u32,
    /// The last batch sent tells that those before it are hardened, and says nothing else.
    is_told: bool,
    /// True once a batch was not: none behind it counts.
    broken: bool,
}

/// A batch on its way to the drive.
struct Flight {
    open: OpenBatch,
    outcome: Result<(), PoolError>,
    total_bytes: u64,
}

/// Batches on their way, the oldest first.
type Flights<'a> = FuturesOrdered<BoxFuture<'a, Flight>>;

impl Journal {
    /// Writes the batches of a lane until it is stopped or the pool fails.
    pub(super) async fn write_lane(&self, world: &dyn World, lane: &Lane) {
        let mut position: Option<Position> = None;
        let mut left = Left::default();
        let mut flights = Flights::new();
        let mut nap = None;
        while let Some(next) = self.next_batch(world, lane, &mut position, &mut flights, &mut nap).await {
            let open = match next {
                Next::Batch(open) => open,
                Next::Leave => match self.leave(&mut position, &mut left).await {
                    Ok(()) => continue,
                    Err(error) => {
                        self.fail(lane, error);
                        break;
                    }
                },
            };
            if planted(Bug::EarlyAcknowledge) {
                open.batch.resolve(HARDENED);
            }
            if let Err(error) =
                self.make_room(lane, &mut position, &mut left, &mut flights, &open.entries).await
            {
                self.fail(lane, error);
                self.written(&open);
                open.batch.resolve(FAILED);
                break;
            }
            let Some(at) = position.as_mut() else { unreachable!("an extent was just made sure of") };
            flights.push_back(self.send(lane, at, open));
        }
        // The lane ends: what is on its way lands, and what waits in the queue is never written.
        while let Some(flight) = flights.next().await {
            self.landed(lane, &mut position, flight);
        }
        {
            let mut queue = lane.queue.lock();
            lane.ended.store(true, Ordering::Relaxed);
            queue.drain(..).for_each(|open| open.batch.resolve(FAILED));
        }
        if let Some(position) = position {
            self.extents.lock().close(position.extent.index);
        }
        lane.stopped.store(true, Ordering::Release);
        lane.has_stopped.notify();
    }

    /// The next batch to send, once there is one and no more than the lane may have would be on their way; `None` when
    /// the lane is to stop.
    async fn next_batch(
        &self,
        world: &dyn World,
        lane: &Lane,
        position: &mut Option<Position>,
        flights: &mut Flights<'_>,
        nap: &mut Option<Nap>,
    ) -> Option<Next> {
        loop {
            // If another may be sent, whichever comes first counts: a batch that lands, or one to send.
            let landed = match flights.len() {
                0 => return self.next_when_idle(world, lane, position.as_ref(), nap).await,
                in_flight if in_flight >= lane.in_flight => flights.next().await,
                _ => match select(flights.next(), pin!(lane.next(self, None))).await {
                    Either::Left((landed, _)) => landed,
                    Either::Right((next, _)) => return next,
                },
            };
            if let Some(flight) = landed {
                self.landed(lane, position, flight);
            }
        }
    }

    /// Waits for the next batch of a lane that has nothing in flight. If none comes for a while, and nothing
    /// tells yet that the last batches are hardened, returns a watermark, which does: recovery can then tell damage
    /// to them from a write that was cut off.
    ///
    /// A nap does not begin anew with every batch: a busy lane has one timer at a time, an idle one none.
    async fn next_when_idle(
        &self,
        world: &dyn World,
        lane: &Lane,
        at: Option<&Position>,
        nap: &mut Option<Nap>,
    ) -> Option<Next> {
        loop {
            // In doubt are the last batches of the extent, as long as no later one tells that they are hardened.
            let in_doubt = at.filter(|at| !at.is_told && !at.broken && !planted(Bug::KeepDoubt));
            let Some(at) = in_doubt else { return lane.next(self, at).await };
            let now = (at.extent.number, at.batches);
            let Nap { over, since } =
                nap.get_or_insert_with(|| Nap { over: world.sleep(self.idle_after), since: now });
            let is_idle = *since == now;
            if let Either::Left((next, _)) = select(pin!(lane.next(self, Some(at))), over).await {
                return next;
            }
            *nap = None;
            if is_idle {
                return Some(Next::Batch(self.watermark(at)));
            }
        }
    }

    /// A batch that tells that what was sent so far is hardened. It counts as queued.
    fn watermark(&self, at: &Position) -> OpenBatch {
        let watermark = OpenBatch::watermark(at.last);
        self.queued.fetch_add(watermark.queued_bytes, Ordering::Relaxed);
        watermark
    }

    /// Makes sure that the extent at hand has room for a batch of these entries. An extent begins only when all that its
    /// predecessor holds is hardened.
    async fn make_room(
        &self,
        lane: &Lane,
        position: &mut Option<Position>,
        left: &mut Left,
        flights: &mut Flights<'_>,
        entries: &[Entry],
    ) -> Result<(), PoolError> {
        let (mut meta_bytes, mut total_bytes) = sizes(entries);
        // A batch that tells of these always fits behind them.
        if !is_watermark(entries) {
            (meta_bytes, total_bytes) = (meta_bytes + WATERMARK_META_BYTES, total_bytes + PAGE_BYTES);
        }
        let set = self.store.journal_set();
        // The footer must fit behind the batch, with its headers in it.
        let fits = |p: &Position| {
            // NOTE: what is sent to an extent is sent under the set that its header names. With another set, another extent
            // has all its columns again.
            p.header.set.get() == set
                && p.offset + total_bytes as u64 + p.index.footer_bytes_with(meta_bytes) <= self.slab_bytes()
        };
        if position.as_ref().is_some_and(fits) {
            return Ok(());
        }
        // The extent cannot take the batch. The lane leaves it once all that was sent to it is hardened.
        while let Some(flight) = flights.next().await {
            self.landed(lane, position, flight);
        }
        if self.store.health().is_failed() {
            return Err(self.store.health().error());
        }
        let full = position.take();
        let before = full.as_ref().map_or(*left, Left::of);
        let first = entries.iter().map(|entry| Sequence(entry.header.sequence.get())).min();
        let close = async {
            match &full {
                Some(full) => self.close(full, false).await,
                None => Ok(()),
            }
        };
        let next = self.next_extent_for(lane, first.unwrap_or_default(), before);
        let (closed, next) = join(close, next).await;
        closed?;
        *position = Some(next?);
        Ok(())
    }

    /// Sends a batch on its way, to where the lane writes next.
    fn send<'a>(&'a self, lane: &Lane, at: &mut Position, open: OpenBatch) -> BoxFuture<'a, Flight> {
        let entries = &open.entries;
        let (meta_bytes, total_bytes) = sizes(entries);
        let last = entries.iter().map(|e| Sequence(e.header.sequence.get())).max().unwrap_or_default();
        let number = at.extent.number;
        assert!(last > at.last || is_watermark(entries), "{last} follows {} in extent {number}", at.last);
        let end = at.offset + total_bytes as u64;
        assert!(end <= self.slab_bytes(), "a batch ends at byte {end} of extent {number}, which is shorter");
        // NOTE: before the write. A record that may be on the drive must keep its extent.
        self.extents.lock().wrote(at.extent.index, last);

        // What goes to the drive: with the first batch the extent's header, then headers, payloads, zeroes.
        let (meta, meta_crc) =
            encode(entries, self.batch_header(lane, at, entries.len(), (meta_bytes, total_bytes)));
        let mut data = Vec::with_capacity(entries.len() + 3);
        let offset = if at.is_begun { at.offset } else { 0 };
        let payload = JournalPlace { slabs: at.extent.slabs.clone(), offset: at.offset + meta.len() as u64 };
        open.batch.sent_to(payload);
        if !std::mem::replace(&mut at.is_begun, true) {
            data.push(Buf::copy_of(at.header.as_bytes()).into_slice());
        }
        at.index.push(&meta[..meta_bytes]);
        data.push(meta.into_slice());
        let payload = entries.iter().flat_map(|e| e.payload.iter().cloned());
        let payload_bytes: usize = entries.iter().map(|e| e.header.payload_bytes.get() as usize).sum();
        if payload_bytes > 0 {
            self.data_batches.fetch_add(1, Ordering::Relaxed);
        }
        let padding = total_bytes - meta_bytes.next_multiple_of(PAGE_BYTES) - payload_bytes;
        let zeroes = (padding > 0).then(|| Buf::zeroed(padding).into_slice());
        let payload: Vec<Bytes> = payload.chain(zeroes).collect();

        // The lane's next batch follows this one, whether or not this one has landed by then.
        at.offset = end;
        at.batches += 1;
        at.is_told = is_watermark(entries);
        at.last = at.last.max(last);
        at.previous_crc = meta_crc;

        let (slabs, total_bytes) = (at.extent.slabs.clone(), total_bytes as u64);
        Box::pin(async move {
            let mut outcome = self.write_batch(slabs, offset, data, payload).await;
            if outcome.is_ok() && !planted(Bug::CountBeforeRows) {
                outcome = self.rows_hardened(&open.entries).await;
            }
            Flight { open, outcome, total_bytes }
        })
    }

    /// Resolves once the rows that the entries name are hardened.
    async fn rows_hardened(&self, entries: &[Entry]) -> Result<(), PoolError> {
        for row in entries.iter().filter_map(|entry| entry.row.as_ref()) {
            self.hardened(row).await?;
        }
        Ok(())
    }

    async fn write_batch(
        &self,
        slabs: Arc<Slabs>,
        offset: u64,
        mut data: Vec<Bytes>,
        payload: Vec<Bytes>,
    ) -> Result<(), PoolError> {
        let unit = self.store.alignment(&slabs)?;
        let aligned = |s: &Bytes| s.len().is_multiple_of(unit) && (s.as_ptr() as usize).is_multiple_of(unit);
        if payload.iter().all(aligned) {
            data.extend(payload)
        } else {
            // Sectors of hosts that are shorter than the drive's own.
            data.push(Bytes::joined(&payload))
        }
        let durable = !planted(Bug::SkipJournalFlush);
        // NOTE: it counts when all columns have it. Recovery takes it from any, whichever is left.
        let counts_with = if planted(Bug::CountOneColumn) { &slabs[..1] } else { &slabs[..] };
        self.write_columns(counts_with, offset, data, durable).await
    }

    /// Writes to all columns of an extent. One that fails is taken out of the journal's set, durably, before this returns: from
    /// then on it counts for nothing, and what the others have is all there is to have. The write is on them already.
    async fn write_columns(
        &self,
        slabs: &[Column],
        offset: u64,
        data: Vec<Bytes>,
        durable: bool,
    ) -> Result<(), PoolError> {
        let failed = write_columns(&self.store, slabs, offset, data, durable).await;
        let is_nowhere = failed.len() == slabs.len();
        // A column that failed must not be asked any more which batches counted.
        for (column, error) in failed {
            if is_nowhere {
                return Err(error.into());
            }
            if !planted(Bug::CountBeforeLeft) {
                self.store.do_without(column.drive, error.into()).await?;
            }
        }
        Ok(())
    }

    /// Acknowledges a batch that landed; all before it have.
    fn landed(&self, lane: &Lane, position: &mut Option<Position>, flight: Flight) {
        let Flight { open, outcome, total_bytes } = flight;
        self.written(&open);
        let Some(at) = position.as_mut() else { unreachable!("batches in flight are of the extent at hand") };
        match outcome {
            Ok(()) if !at.broken => {
                at.hardened += 1;
                assert!(at.hardened <= at.batches, "extent {} hardens what was sent", at.extent.number);
                self.batches.fetch_add(1, Ordering::Relaxed);
                self.records.fetch_add(open.entries.len() as u64, Ordering::Relaxed);
                self.bytes.fetch_add(total_bytes, Ordering::Relaxed);
                open.batch.resolve(HARDENED);
            }
            outcome => {
                at.broken = true;
                if let Err(error) = outcome {
                    self.fail(lane, error);
                }
                open.batch.resolve(FAILED);
            }
        }
    }

    fn fail(&self, lane: &Lane, error: PoolError) {
        self.store.health().fail(format!("journal lane {}: {error}", lane.index));
    }

    /// Its records no longer wait to be written.
    fn written(&self, open: &OpenBatch) {
        let bytes = open.queued_bytes;
        let before = self.queued.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{bytes} bytes were written of {before} that were queued");
        self.progress.notify();
    }

    /// The header of a batch of so many records that goes to where the lane writes next, without its checksum.
    fn batch_header(
        &self,
        lane: &Lane,
        at: &Position,
        records: usize,
        (meta_bytes, total_bytes): (usize, usize),
    ) -> BatchHeader {
        let mut header: BatchHeader = zeroed();
        header.magic = U64::new(BATCH_MAGIC);
        header.extent = U64::new(at.extent.number);
        header.index = U32::new(at.batches);
        header.records = U32::new(records as u32);
        header.meta_bytes = U32::new(meta_bytes as u32);
        header.total_bytes = U32::new(total_bytes as u32);
        header.previous_crc = U32::new(at.previous_crc);
        header.epoch = U64::new(self.store.epoch().0);
        header.lane = U32::new(lane.index);
        header.tag = at.header.crc;
        header.hardened = U32::new(if planted(Bug::HardenedTooSoon) { at.batches } else { at.hardened });
        header
    }
}
