//! The journal: lanes of batches in extents of the journal drives.
//!
//! Invariants:
//! 1. A batch is acknowledged only when it, its extent's header and every earlier batch of its lane are
//!    hardened. A lane has few batches in flight, all of one extent, and a new one opens meanwhile.
//! 2. Sequences are taken under the write buffer's shard locks, so that order in the buffer, order of
//!    sequences and order of replay are one.
//!    An extent lies on one or more drives, its columns, which hold the same: hardened is what all of them have.
//! 3. An extent is given out again only when every record in it is below the tail of a durable root.
//!    A lane that goes on to another extent leaves a footer at the end of the one before, and until that is written the
//!    extent counts as open.
//! 4. A lane that goes idle writes one watermark, or a footer if it leaves its extent. From then on the journal tells of each of
//!    its batches that it is hardened.
//! 5. A batch names its extent's number, which is never used twice: what is left of an earlier lap is not
//!    mistaken for a record.

mod batch;
mod cursor;
mod decode;
mod entry;
mod extents;
mod footer;
mod found;
mod lane;
pub(crate) mod log;
mod mend;
mod placed;
mod record;
mod replay;
mod row_in_doubt;
mod sites;
mod slabs;
pub(crate) mod transactions;
mod unread;

#[cfg(test)]
mod tests;

pub(crate) use batch::Batch;
pub(crate) use decode::payload_verifies;
pub(crate) use entry::Entry;
pub(crate) use extents::{Extents, JournalUse, JournalWithout};
pub(crate) use found::TornBatch;
pub(crate) use lane::Lane;
pub(crate) use mend::Mend;
pub(crate) use record::ReplayedRecord;
pub(crate) use replay::{Replay, read_journal};
pub(crate) use row_in_doubt::RowInDoubt;
pub(crate) use slabs::JournalPlace;
pub(crate) use unread::JournalBounds;

use lane::WaitingLanes;

use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    format::PAGE_BYTES,
    store::Store,
};
use quoin_base::{DriveIndex, Sequence, SliceId};
use quoin_drive::Members;
use quoin_world::{
    Event, Mutex, MutexGuard, Thread, World,
    atomic::{AtomicU64, Ordering},
};
use std::{sync::Arc, time::Duration};

/// Room kept in the journal for a record about to be appended.
pub(crate) struct Room<'a> {
    journal: &'a Journal,
    bytes: u64,
    appended: bool,
}

impl Room<'_> {
    /// The record was appended and takes the room itself.
    pub(crate) fn appended(mut self) {
        self.appended = true;
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let before = self.journal.queued.fetch_sub(self.bytes, Ordering::Relaxed);
        // Who waits until nothing is queued is woken, too.
        if !self.appended || before == self.bytes {
            self.journal.progress.notify();
        }
    }
}

/// The most of what the journal can hold that lanes may have open as a rule: a little more would stop hosts for good.
const MOST_OPEN: f64 = 0.9;

pub(crate) struct Journal {
    store: Arc<Store>,
    slice: SliceId,
    /// One for each data thread, then those for large writes.
    pub(crate) lanes: Vec<Arc<Lane>>,
    threads: usize,
    extents: Arc<Mutex<Extents>>,
    /// Notified when extents come free, or may be made of other drives than before.
    pub(crate) freed: Arc<Event>,
    /// Notified when there may be room for records that wait to be appended.
    pub(crate) progress: Arc<Event>,
    next_sequence: AtomicU64,
    batches: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
    /// Batches sent that carry data of hosts.
    data_batches: AtomicU64,
    /// Bytes appended and not written yet, generously counted.
    queued: Arc<AtomicU64>,
    admitting: Mutex<()>,
    waiting: WaitingLanes,
    /// See [`PoolOptions::idle_after`](crate::PoolOptions::idle_after).
    idle_after: Duration,
}

/// What [`Journal::new`] puts together.
pub(crate) struct JournalParts {
    pub store: Arc<Store>,
    pub slice: SliceId,
    /// How many data threads will append: each has a lane.
    pub threads: usize,
    /// Lanes for records of large writes, besides.
    pub placed_lanes: usize,
    pub extents: Extents,
    pub next_sequence: Sequence,
    pub idle_after: Duration,
}

/// What the journal has done since the pool was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JournalCounters {
    pub batches: u64,
    pub records: u64,
    pub bytes: u64,
}

impl Journal {
    pub(crate) fn new(parts: JournalParts) -> Self {
        let queued = Arc::new(AtomicU64::new(0));
        let (health, slab_bytes) = (parts.store.health(), u64::from(parts.store.slab_bytes()));
        let threads = parts.threads;
        let lane = |i: usize| Arc::new(Lane::new(i as u32, i >= threads, slab_bytes, queued.clone()));
        let lanes: Vec<_> = (0..threads + parts.placed_lanes).map(lane).collect();
        let freed = Arc::new(Event::new());
        let progress = Arc::new(Event::new());
        health.wake_also(freed.clone());
        health.wake_also(progress.clone());
        lanes.iter().for_each(|lane| health.wake_also(lane.wake.clone()));
        let extents = Arc::new(Mutex::new(parts.extents));
        let asked = Arc::downgrade(&extents);
        parts.store.ask_before_doing_without(Box::new(move |drive, is_in_set| {
            asked.upgrade().is_some_and(|extents| extents.lock().needs(drive, is_in_set))
        }));
        Self {
            store: parts.store,
            slice: parts.slice,
            lanes,
            threads,
            extents,
            freed,
            progress,
            next_sequence: AtomicU64::new(parts.next_sequence.0),
            batches: AtomicU64::new(0),
            records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            data_batches: AtomicU64::new(0),
            queued,
            admitting: Mutex::new(()),
            waiting: WaitingLanes::default(),
            idle_after: parts.idle_after,
        }
    }

    /// Starts a writer for each lane on its data thread.
    pub(crate) fn start(self: &Arc<Self>, world: &Arc<dyn World>) {
        for lane in &self.lanes {
            // Lanes of large writes share the data threads with the others.
            let (journal, lane, lane_world) = (self.clone(), lane.clone(), world.clone());
            let thread = Thread::Data(lane.index as usize % self.threads);
            world.spawn(thread, Box::pin(async move { journal.write_lane(&*lane_world, &lane).await }));
        }
    }

    fn slab_bytes(&self) -> u64 {
        self.store.slab_bytes().into()
    }

    /// The longest payload one record may carry.
    pub(crate) fn max_record_bytes(&self) -> u64 {
        lane::max_record_bytes(self.slab_bytes())
    }

    /// The next sequence. Called under the locks that make its order the order of changes.
    pub(crate) fn take_sequence(&self) -> Sequence {
        Sequence(self.next_sequence.fetch_add(1, Ordering::SeqCst))
    }

    /// The sequence that was taken last.
    pub(crate) fn newest_sequence(&self) -> Sequence {
        Sequence(self.peek_sequence().0.saturating_sub(1))
    }

    /// The sequence that will be taken next.
    pub(crate) fn peek_sequence(&self) -> Sequence {
        Sequence(self.next_sequence.load(Ordering::SeqCst))
    }

    /// The lane of the calling thread; the first for threads without one.
    pub(crate) fn lane(&self, world: &dyn World) -> &Arc<Lane> {
        match world.current() {
            Some(Thread::Data(i)) if i < self.threads => &self.lanes[i],
            _ => &self.lanes[0],
        }
    }

    /// The lane for records of what this data thread places. A log write that is made beside a large one does not wait
    /// for that one's rows, unless the journal is too small for lanes of their own.
    pub(crate) fn placed_lane(&self, thread: usize) -> &Arc<Lane> {
        match self.lanes.len() - self.threads {
            0 => &self.lanes[thread],
            count => &self.lanes[self.threads + thread % count],
        }
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Lets extents whose records are all below `tail` be used again. The root that says so is durable.
    pub(crate) fn trim(&self, tail: Sequence) {
        {
            let mut extents = self.extents.lock();
            extents.free_below(tail);
            self.waiting.may_have_extents();
        }
        self.freed.notify();
    }

    /// Called when a tail was found but is not durable yet.
    pub(crate) fn tail_found(&self, tail: Sequence) {
        if planted(Bug::EarlyExtentReuse) {
            self.trim(tail);
        }
    }

    pub(crate) fn usage(&self) -> JournalUse {
        self.extents.lock().usage()
    }

    /// How full the journal would be, from 0 to 1 and above, with `len` bytes more appended.
    ///
    /// What is appended always finds room: an extent may be left a quarter empty, and each lane may hold an
    /// open one, so that much is taken as used already. Otherwise records that wait for room could pin the
    /// very extents that they wait for.
    ///
    /// If drives of the journal were lost, lanes may have about all extents open that are left. Then those count as no part of
    /// it, and [`Journal::keep_room`] sees to it that what is appended finds room.
    pub(crate) fn fill(&self, len: u64) -> f64 {
        self.fill_of(&self.usage(), len)
    }

    fn fill_of(&self, usage: &JournalUse, len: u64) -> f64 {
        let queued = self.extents_for(self.queued.load(Ordering::Relaxed) + len);
        if !self.is_left_small(usage) {
            let capacity = usage.total.saturating_sub(self.unusable()).max(1) as f64;
            return (usage.used as f64 + queued) / capacity;
        }
        let [used, beyond] =
            [usage.used, usage.total].map(|extents| extents.saturating_sub(self.open_extents()));
        let fill = (used as f64 + queued) / beyond.max(1) as f64;
        // Hosts wait for the committer then.
        if self.is_used_up(usage) { fill.max(1.0) } else { fill }
    }

    /// Extents that lanes have open as a rule: an idle lane keeps its own.
    fn open_extents(&self) -> u64 {
        self.lanes.len() as u64
    }

    /// Extents that may be left unused, a quarter of each that is full.
    fn unusable(&self) -> u64 {
        1 + self.open_extents().div_ceil(2)
    }

    /// Whether so few extents are left that those alone which lanes have open would stop hosts.
    fn is_left_small(&self, usage: &JournalUse) -> bool {
        let capacity = usage.total.saturating_sub(self.unusable());
        self.open_extents() as f64 > MOST_OPEN * capacity as f64
    }

    /// Whether no extent is free of those that are left but one to spare.
    fn is_used_up(&self, usage: &JournalUse) -> bool {
        usage.used + self.spare(usage) >= usage.total
    }

    /// Extents that stay free when little is left: for the opening of a segment, which waits for nothing.
    fn spare(&self, usage: &JournalUse) -> u64 {
        u64::from(usage.total > self.open_extents() + 1)
    }

    /// Whether a record more finds room, if little is left of the journal. Each record that is not written yet may take an extent
    /// more: one at a time is appended.
    fn has_room_left(&self, usage: &JournalUse) -> bool {
        !self.is_left_small(usage) || self.queued.load(Ordering::Relaxed) == 0 && !self.is_used_up(usage)
    }

    /// How many extents so many bytes take at most.
    fn extents_for(&self, bytes: u64) -> f64 {
        bytes as f64 / (self.slab_bytes() as f64 * 0.625)
    }

    /// A drive joined the journal's set: extents may lie on it from now on.
    pub(crate) fn join(&self, slice: SliceId, drive: DriveIndex) {
        let slabs = self.store.journal_slabs_on(slice, drive);
        let domains = self.store.domains();
        {
            let mut extents = self.current_extents();
            // It may have failed meanwhile.
            let in_set = self.store.members().get(drive).is_some_and(|member| member.in_journal);
            let joins = in_set || planted(Bug::JoinBeforeMember);
            extents.join(drive, joins.then_some(slabs), domains);
        }
        // Lanes that wait for a free extent, and writes that wait for room.
        self.freed.notify();
        self.progress.notify();
    }

    /// Whether a part that is needed lies on a drive.
    pub(crate) fn lies_on(&self, drive: DriveIndex) -> bool {
        self.current_extents().lies_on(drive)
    }

    /// What it would be without a drive.
    pub(crate) fn without(&self, drive: DriveIndex) -> JournalWithout {
        self.current_extents().without(drive)
    }

    /// The extents over the set of drives that is in force: lanes that are idle have not looked.
    fn current_extents(&self) -> MutexGuard<'_, Extents> {
        let mut extents = self.extents.lock();
        // NOTE: with the lock, so that tables come in their order.
        self.follow(&mut extents);
        extents
    }

    /// Has the extents go by the table of members in force, which is returned.
    pub(super) fn follow(&self, extents: &mut Extents) -> Arc<Members> {
        let members = self.store.members();
        extents.follow(&members, |drive| self.store.journal_slabs_on(self.slice, drive));
        members
    }

    /// The fewest drives that any extent in use lies on, or that the next will, over the set of drives in force.
    pub(crate) fn columns(&self) -> u8 {
        self.current_extents().usage().columns
    }

    /// Whether lanes are to go on to other extents, since the set of drives is another one.
    pub(crate) fn are_lanes_to_leave(&self) -> bool {
        self.current_extents().any_is_to_be_left()
    }

    /// Whether an extent in use lies on fewer drives than the next one will.
    pub(crate) fn lacks_columns(&self) -> bool {
        self.current_extents().any_lacks_columns()
    }

    /// The number of the first extent that began under the set of drives in force, or will.
    pub(crate) fn set_from(&self) -> u64 {
        self.current_extents().set_from()
    }

    /// How many extents it takes for its lanes: each has one open, and one to go on with.
    pub(crate) fn least_extents(&self) -> u64 {
        2 * self.lanes.len() as u64 + 4
    }

    /// Keeps room for a record of `len` bytes until it is appended, if the journal is then less full than
    /// `limit`.
    pub(crate) fn keep_room(&self, len: u64, limit: f64) -> Option<Room<'_>> {
        // The record may take a batch of its own: a page of headers, and its payload up to a whole page.
        let bytes = len.next_multiple_of(PAGE_BYTES as u64) + PAGE_BYTES as u64;
        // One at a time, so that what two see free is not taken twice.
        let _turn = (!planted(Bug::RoomTwice)).then(|| self.admitting.lock());
        let usage = self.usage();
        if self.is_left_small(&usage) && self.is_used_up(&usage) {
            self.lack_extents(&self.extents.lock());
        }
        (self.fill_of(&usage, bytes) < limit && self.has_room_left(&usage)).then(|| {
            self.queued.fetch_add(bytes, Ordering::Relaxed);
            Room { journal: self, bytes, appended: false }
        })
    }

    /// Keeps room for records of `bytes` in all that make room for others. The journal may be so full that hosts wait: then there
    /// has to be an extent to spare, and nobody else may be about to append.
    pub(crate) fn keep_last_room(&self, bytes: u64, limit: f64) -> Option<Room<'_>> {
        if let room @ Some(_) = self.keep_room(bytes, limit) {
            return room;
        }
        let _turn = self.admitting.lock();
        let (usage, queued) = (self.usage(), self.queued.load(Ordering::Relaxed));
        let extents = self.extents_for(bytes).ceil() as u64;
        (queued == 0 && usage.used + extents < usage.total).then(|| {
            self.queued.fetch_add(bytes, Ordering::Relaxed);
            Room { journal: self, bytes, appended: false }
        })
    }

    /// How long it is.
    pub(crate) fn bytes(&self) -> u64 {
        self.usage().total * self.slab_bytes()
    }

    /// How many extents a tail at `tail` would free.
    pub(crate) fn freed_by(&self, tail: Sequence) -> u64 {
        self.extents.lock().freed_by(tail)
    }

    /// The oldest extent that is needed with a tail at `tail`, and the next one to be begun: between them lie all that
    /// replay needs.
    pub(crate) fn needed_from(&self, tail: Sequence) -> (u64, u64) {
        self.extents.lock().needed_from(tail)
    }

    /// How many batches with data of hosts were sent. It changes while hosts make small writes.
    pub(crate) fn data_batches(&self) -> u64 {
        self.data_batches.load(Ordering::Relaxed)
    }

    pub(crate) fn counters(&self) -> JournalCounters {
        JournalCounters {
            batches: self.batches.load(Ordering::Relaxed),
            records: self.records.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// Resolves once the batch is hardened; fails if the pool went offline first.
    pub(crate) async fn hardened(&self, batch: &Batch) -> Result<(), PoolError> {
        if batch.outcome().await { Ok(()) } else { Err(self.store.health().error()) }
    }

    /// Stops the lanes once all that was appended is hardened.
    pub(crate) async fn stop(&self) {
        for lane in &self.lanes {
            lane.stop().await;
        }
    }
}
