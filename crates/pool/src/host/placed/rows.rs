//! Rows of placed blocks on their way: what waits for its place, the row that is formed next, rows in flight.

use super::queue::{Answer, Flights, Landed, Outcome, Part, Taken, Waiting, WholeBlock};
use crate::{
    error::PoolError,
    fork::layer::Layer,
    format::RowContent,
    journal::Batch,
    lifecycle::slice::Slice,
    meta::Stream,
    segment::{opened::OpenedSegment, writers::RowWriters},
};
use futures_util::{
    StreamExt,
    future::{Either, select},
};
use quoin_base::CheckpointGeneration;
use quoin_world::{Mutex, Thread, atomic::Ordering, one_shot};
use std::{collections::VecDeque, convert::Infallible, pin::pin, sync::Arc};

/// Rows of a thread on their way to drives at a time: several for each drive, so that all of them work.
const FEWEST_ROWS_IN_FLIGHT: usize = 8;
const MOST_ROWS_IN_FLIGHT: usize = 32;
const ROWS_FOR_EACH_DRIVE: usize = 2;
/// The same, and bytes of a row, while hosts make small writes too: those wait behind what the drive is given before.
const ROWS_BESIDE_SMALL_WRITES: usize = 1;
const ROW_BESIDE_SMALL_WRITES_BYTES: u64 = 256 << 10;
/// A shorter row is sent only while fewer are on their way: what comes in meanwhile shares the next one.
const LONG_ROW_BYTES: u64 = 256 << 10;
const SHORT_ROWS_IN_FLIGHT: usize = 2;
/// For how long after the last small write: so many turns, of which a row takes two, one to be sent and one to land.
const TURNS_AFTER_SMALL_WRITES: u32 = 32;

impl Slice {
    /// Starts to place what each data thread is given.
    pub(crate) fn start_placing(self: &Arc<Self>) {
        for thread in 0..self.front.placer.queues.len() {
            let slice = self.clone();
            self.world().spawn(Thread::Data(thread), Box::pin(async move { slice.place_all(thread).await }));
        }
    }

    /// Writes whole blocks of one region of a layer to rows. `None`: there is no room for that now; the journal takes them.
    pub(super) async fn place(&self, layer: &Layer, blocks: Vec<WholeBlock>) -> Result<Outcome, PoolError> {
        let Some(numbers) = self.front.placer.numbers().take(blocks.len()) else {
            self.requests.nudge();
            return Ok(None);
        };
        let thread = match self.world().current() {
            Some(Thread::Data(thread)) if thread < self.front.placer.queues.len() => thread,
            _ => 0,
        };
        let queue = &self.front.placer.queues[thread];
        let (sender, answer) = one_shot();
        let waiting = Waiting {
            layout: self.segments.table.tag_of(layer.volume.layout()),
            blocks: blocks.into_iter().zip(numbers).collect(),
            answer: Arc::new(Answer { runs: Mutex::default(), sender: Mutex::new(Some(sender)) }),
        };
        {
            let mut state = queue.state.lock();
            if state.has_ended {
                return Err(self.store.health().error());
            }
            state.waiting.push_back(waiting);
        }
        queue.wake.notify();
        // While a drive has no room a row waits for it. The journal has its room.
        let is_short = self.store.until_short_of_room();
        match select(answer, pin!(is_short)).await {
            Either::Left((answer, _)) => answer.ok_or_else(|| self.store.health().error()),
            Either::Right(((), _)) => Ok(None),
        }
    }

    /// Places the writes of a thread until the pool ends.
    async fn place_all(&self, thread: usize) {
        let queue = &self.front.placer.queues[thread];
        let mut rows = RowWriters::new(Stream::Placed);
        let mut flights = Flights::new();
        let long_row_blocks = (LONG_ROW_BYTES / self.buffer.block_bytes) as usize;
        let (mut small_writes, mut careful_turns) = (self.log.journal.data_batches(), 0u32);
        loop {
            let now = self.log.journal.data_batches();
            // Small writes came in since the last turn: for a while they are not to wait behind long rows.
            careful_turns = if std::mem::replace(&mut small_writes, now) == now {
                careful_turns.saturating_sub(1)
            } else {
                TURNS_AFTER_SMALL_WRITES
            };
            let full_row = self.segments.table.row_bytes();
            let (most, row_bytes) = match careful_turns {
                0 => (self.rows_in_flight(), full_row),
                _ => (ROWS_BESIDE_SMALL_WRITES, ROW_BESIDE_SMALL_WRITES_BYTES.min(full_row)),
            };
            let row_blocks = (row_bytes / self.buffer.block_bytes) as usize;
            let least =
                if flights.len() < SHORT_ROWS_IN_FLIGHT { 1 } else { long_row_blocks.min(row_blocks) };
            // Whichever comes first: a row that lands, or writes to place.
            let next = match flights.len() {
                0 => Either::Right(queue.next(self.store.health(), least, row_blocks).await),
                in_flight if in_flight >= most => Either::Left(flights.next().await),
                _ => {
                    let next = pin!(queue.next(self.store.health(), least, row_blocks));
                    match select(flights.next(), next).await {
                        Either::Left((landed, _)) => Either::Left(landed),
                        Either::Right((next, _)) => Either::Right(next),
                    }
                }
            };
            match next {
                Either::Left(landed) => landed.into_iter().for_each(|landed| self.landed(landed)),
                Either::Right(Some(taken)) if taken.is_empty() => {
                    rows.seal(&self.segments, CheckpointGeneration(0));
                    queue.has_open.store(false, Ordering::Release);
                }
                Either::Right(Some(taken)) => {
                    self.send_rows(thread, &mut rows, taken, &mut flights);
                    queue.has_open.store(true, Ordering::Release);
                }
                Either::Right(None) => break,
            }
        }
        while let Some(landed) = flights.next().await {
            self.landed(landed);
        }
        {
            let mut state = queue.state.lock();
            state.has_ended = true;
            state.waiting.clear();
        }
        queue.ended.notify();
    }

    fn rows_in_flight(&self) -> usize {
        let of_drives = ROWS_FOR_EACH_DRIVE * self.store.data_drive_count();
        of_drives.clamp(FEWEST_ROWS_IN_FLIGHT, MOST_ROWS_IN_FLIGHT)
    }

    /// Finds places for blocks, sends the rows they are in on their way, and tells the writes where they are.
    fn send_rows<'a>(
        &'a self,
        thread: usize,
        rows: &mut RowWriters,
        taken: Vec<Taken>,
        flights: &mut Flights<'a>,
    ) {
        // What one host writes in sequence keeps all drives busy, and so does reading it.
        rows.spread_over(self.spread());
        let mut parts = self.find_places(rows, taken);
        for row in rows.finish(&self.segments) {
            let (segment, end) = (row.segment(), row.end());
            if row.is_first() {
                self.record_opening(thread, &row.opened());
            }
            let on_its_way = Arc::new(Batch::default());
            let (mut held, mut untold) = (Vec::new(), Vec::new());
            // Rows are in the order of layouts, and those of one layout in the order of the parts.
            let of_row: VecDeque<Part>;
            (of_row, parts) = parts.into_iter().partition(|part| row.holds(part.blocks[0].location));
            for part in of_row {
                // Its blocks keep the segment until the row has landed, also if they are overwritten before that.
                held.extend(part.blocks.iter().cloned());
                // A row that waits for room holds up whatever waits for its record: there is none before the row landed.
                if self.store.may_lack_room() {
                    untold.push(part)
                } else {
                    part.tell(on_its_way.clone(), thread)
                }
            }
            flights.push_back(Box::pin(async move {
                let outcome = self.write_row(row).await.map(|bytes| {
                    self.counters.host.placed_bytes.add(bytes);
                });
                Landed { _blocks: held, untold, row: on_its_way, thread, segment, end, outcome }
            }));
        }
        assert!(parts.is_empty(), "every block that has a place is in a row that is sent");
    }

    /// Finds places for blocks, in the order in which they came. Returns the parts of their writes in the order of the rows.
    fn find_places(&self, rows: &mut RowWriters, taken: Vec<Taken>) -> VecDeque<Part> {
        let mut parts: VecDeque<Part> = VecDeque::new();
        for Taken { layout, answer, blocks, is_last } in taken {
            let mut left = blocks.len();
            for (block, number) in blocks {
                left -= 1;
                let len = block.data.len();
                // Segments of placed rows are not quarantined when they are sealed: their opening names them.
                let content = RowContent::block(number, block.address);
                // Of a write that the journal takes instead no more is placed.
                let is_wanted = !answer.is_sent();
                let place = || rows.place(&self.segments, layout, content, len, CheckpointGeneration(0));
                let Some(location) = is_wanted.then(place).flatten() else {
                    self.front.placer.numbers().give_back(number);
                    answer.send(None);
                    continue;
                };
                rows.push_data(block.data);
                let placed = self.front.placer.block(location, block.crc, Some(number));
                let is_last = is_last && left == 0;
                match parts.back_mut().filter(|part| part.is_followed_by(&answer, location)) {
                    Some(part) => {
                        part.blocks.push(placed);
                        part.is_last = is_last;
                    }
                    None => {
                        let part = Part { answer: answer.clone(), blocks: vec![placed], is_last };
                        parts.push_back(part);
                    }
                }
            }
        }
        parts
    }

    /// Tells the journal that a segment was opened, before any record names it.
    fn record_opening(&self, thread: usize, opened: &OpenedSegment) {
        let appended = self.log.journal.placed_lane(thread).append(0, 0, |_, _| {
            let sequence = self.log.journal.take_sequence();
            self.front.placer.name(opened.id, sequence, 0);
            Ok::<_, Infallible>(opened.record(sequence))
        });
        let Ok(_) = appended;
    }

    fn landed(&self, landed: Landed) {
        match &landed.outcome {
            Ok(()) => self.segments.table.wrote(landed.segment, landed.end),
            Err(error) => self.store.health().fail(format!("a large write: {error}")),
        }
        landed.row.end(landed.outcome.is_ok());
        for part in landed.untold {
            match landed.outcome {
                Ok(()) => part.tell(landed.row.clone(), landed.thread),
                Err(_) => part.answer.fail(),
            }
        }
    }
}
