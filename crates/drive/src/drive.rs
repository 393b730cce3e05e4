//! An open drive.
//!
//! Invariants:
//! 1. At least one intact copy of the label is on the drive at any time after [`Drive::format`]; a rewrite
//!    touches the other copy only when the first is durable.
//! 2. The epoch in the label never goes down.
//! 3. When a raise of a fence succeeds, no write of a writer session that it refuses is in flight any more, and none begins.
//! 4. Once a write or flush has failed or was abandoned, or any operation timed out, none is submitted again.
//!    A write that found no room on the file system under the drive does not count as failed: its caller is told. A write
//!    of a label does, because the two copies may differ then.
//! 5. A copy of the label that was read and is valid is never written over with an older one.

use crate::{
    DriveError, LABEL_BYTES, LABEL_OFFSETS, Label, MEMBERS_OFFSETS, MEMBERS_PAGE_BYTES, Members, MembersCopy,
    Probe, ROOT_BYTES, WriterSession,
    bugs::{Bug, planted},
    label::{Copy, root_offset, slabs_start},
    probe::{probe, read_copies, require_len, tail},
    raw::{copy_problem, write_label, zero},
    writer_session::Gate,
};
use quoin_base::{ByteRange, DriveIndex, Epoch, LabelGeneration, SliceId};
use quoin_world::{
    AsyncMutex, Buf, Completion, Disk, DiskError, DiskInstruments, DiskOp, Event, Mutex, Slice,
    atomic::{AtomicU32, Ordering::Relaxed},
};
use std::{
    cmp::Ordering,
    future::Future,
    io::ErrorKind,
    sync::{Arc, OnceLock},
};

mod counters;
pub(crate) mod failure;
mod fence;
mod length;

use counters::Counters;
pub use counters::DriveCounters;
pub(crate) use failure::ENODEV;
use failure::Failure;

use fence::Own;

/// Zeroes that are written at a time when a drive is erased.
const ERASED_AT_ONCE_BYTES: u64 = 1 << 20;

/// An open drive as one writer session sees it. Shared by `Arc`; all its futures own what they need.
///
/// Reads and writes are submitted by the call itself, not by the first poll. A write or flush whose future is
/// dropped before it ended fails the drive, because nobody will know how it ended.
pub struct Drive {
    disk: Arc<dyn Disk>,
    index: DriveIndex,
    slab_bytes: u32,
    slabs_start_bytes: u64,
    /// It changes while the gate is locked.
    own: Mutex<Own>,
    state: Arc<State>,
}

/// What all writer sessions have in common.
struct State {
    name: String,
    label: Mutex<Label>,
    /// As the label says. They become more while the drive is open.
    slabs: AtomicU32,
    failed: OnceLock<Failure>,
    /// What was written anew when it was opened.
    mended: Mutex<Vec<String>>,
    /// Which copy of the table of members was damaged, or older than the other, when they were read.
    worse_members: Mutex<Option<usize>>,
    gate: Mutex<Gate>,
    /// Nothing of a writer session that is refused is in flight any more.
    drained: Event,
    relabelling: AsyncMutex,
    /// Held while a flush is under way.
    flushing: AsyncMutex,
    counters: Counters,
}

/// One write or flush in flight.
struct Flight {
    state: Arc<State>,
    session: WriterSession,
    ended: bool,
}

impl Drive {
    /// Makes a drive of `disk`, whatever is on it: wipes the traces of anything else, zeroes root slots, grant pages
    /// and journal slabs so that later writes there change no file system's metadata, and writes both
    /// labels last. `label.len_bytes`, `label.generation` and `label.slabs_start_bytes` are set here.
    ///
    /// Returns the drive as `session` sees it, which has begun on the other drives of the pool, or makes it.
    ///
    /// # Errors
    /// [`DriveError::TooSmall`] if the disk has no room for a slab, [`DriveError::BadLabel`] if the label
    /// makes no sense: nothing was written then. [`DriveError::Disk`] if a write or flush fails: the disk is
    /// neither what it was nor a drive.
    pub async fn format(
        disk: Arc<dyn Disk>,
        mut label: Label,
        session: WriterSession,
    ) -> Result<Arc<Drive>, DriveError> {
        label.len_bytes = disk.len_bytes();
        label.generation = LabelGeneration(1);
        label.slabs_start_bytes = slabs_start(label.len_bytes, label.slab_bytes);
        let slab_bytes = u64::from(label.slab_bytes);
        let slabs_start_bytes = label.slabs_start_bytes;
        require_len(&disk, slabs_start_bytes + slab_bytes.max(crate::probe::TAIL_BYTES))?;
        if let Some(why) = label.problem() {
            return Err(DriveError::BadLabel { drive: disk.name().into(), why });
        }
        // All that lies before the slabs, and the end of the disk, where traces of something else may be.
        zero(&disk, 0, slabs_start_bytes).await?;
        let (tail_start, tail_len) = tail(&disk);
        zero(&disk, tail_start, tail_len).await?;
        disk.submit(DiskOp::Flush).await?;
        // The slabs of the journal.
        zero(&disk, slabs_start_bytes, slab_bytes * u64::from(label.journal_slabs)).await?;
        disk.submit(DiskOp::Flush).await?;
        // NOTE: labels last. Without one the disk is no drive.
        for copy in 0..LABEL_OFFSETS.len() {
            write_label(&disk, copy, &label).await?;
        }
        let own = Own { session, has_begun: true };
        Ok(Self::of_writer_session(disk.clone(), Arc::new(State::new(&disk, label)), own))
    }

    /// Opens a drive by its newest intact label and mends the other copy if it differs or cannot be read. Refuses
    /// a disk that is blank, foreign, of another version of the on-disk format or smaller than its label says.
    ///
    /// Its writes are refused until it takes the drive over or joins, as with [`Drive::attach`].
    ///
    /// # Errors
    /// [`DriveError::Blank`], [`DriveError::Foreign`], [`DriveError::FormatVersion`] or
    /// [`DriveError::LabelDamaged`] for what is on the disk, [`DriveError::Shrunk`] if it was larger.
    /// [`DriveError::Disk`] if no label can be read, or the other copy cannot be written.
    pub async fn open(disk: Arc<dyn Disk>) -> Result<Arc<Drive>, DriveError> {
        let mut drive = Self::inspect(disk).await?;
        let copies = read_copies(&drive.disk).await;
        // NOTE: a copy that could not be read at first may be the newer one.
        for copy in &copies {
            if let Copy::Valid(newer) = copy
                && newer.generation > drive.label().generation
            {
                drive = Self::new(drive.disk.clone(), (**newer).clone())?;
            }
        }
        let label = drive.label();
        // Both copies are to be the newest label. A copy that is stays untouched.
        for (copy, content) in copies.into_iter().enumerate() {
            if matches!(&content, Copy::Valid(l) if **l == label) {
                continue;
            }
            write_label(&drive.disk, copy, &label).await?;
            // An interrupted change leaves an older label behind: no damage.
            if let Some(why) = copy_problem(&content) {
                let offset = LABEL_OFFSETS[copy];
                let told =
                    format!("the label at byte {offset}: {why}; it was written anew from the other copy");
                drive.state.mended.lock().push(told);
            }
        }
        Ok(drive)
    }

    /// What [`Drive::open`] wrote anew because it was damaged or could not be read, in words.
    pub fn mended(&self) -> Vec<String> {
        self.state.mended.lock().clone()
    }

    /// Opens a drive as [`Drive::open`] does, but changes nothing: to look at it.
    ///
    /// # Errors
    /// The errors of [`Drive::open`], but for those of writing.
    pub async fn inspect(disk: Arc<dyn Disk>) -> Result<Arc<Drive>, DriveError> {
        let drive = || disk.name().to_owned();
        match probe(&disk).await? {
            Probe::Quoin(label) => Self::new(disk, label),
            Probe::Blank => Err(DriveError::Blank { drive: drive() }),
            Probe::Foreign(what) => Err(DriveError::Foreign { drive: drive(), what }),
        }
    }

    /// What is wrong with the copies of its label, by their offset; empty if both are intact. One of an earlier
    /// generation is intact: an interrupted change leaves it behind.
    pub async fn label_damage(&self) -> Vec<(u64, String)> {
        let copies = LABEL_OFFSETS.into_iter().zip(read_copies(&self.disk).await);
        copies.filter_map(|(offset, copy)| copy_problem(&copy).map(|why| (offset, why))).collect()
    }

    fn new(disk: Arc<dyn Disk>, label: Label) -> Result<Arc<Drive>, DriveError> {
        // What lies behind its length is not used: a file or device may have become longer.
        let (found, expected) = (disk.measure(), label.len_bytes);
        if found < expected {
            return Err(DriveError::Shrunk { drive: disk.name().to_owned(), found, expected });
        }
        let state = Arc::new(State::new(&disk, label));
        Ok(Self::of_writer_session(
            disk,
            state,
            Own { session: WriterSession::unnamed(Epoch::default()), has_begun: false },
        ))
    }

    fn of_writer_session(disk: Arc<dyn Disk>, state: Arc<State>, own: Own) -> Arc<Drive> {
        let label = state.label.lock().clone();
        Arc::new(Drive {
            disk,
            index: label.index,
            slab_bytes: label.slab_bytes,
            slabs_start_bytes: label.slabs_start_bytes,
            own: Mutex::new(own),
            state,
        })
    }

    /// The label as it is on the drive.
    pub fn label(&self) -> Label {
        self.state.label.lock().clone()
    }

    /// The disk's name: its path.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Its number in the pool.
    pub fn index(&self) -> DriveIndex {
        self.index
    }

    /// The highest epoch it has durably seen.
    pub fn epoch(&self) -> Epoch {
        self.state.label.lock().epoch()
    }

    /// Whether writes may fail for want of room below the disk: see [`Disk::may_lack_room`].
    pub fn may_lack_room(&self) -> bool {
        self.disk.may_lack_room()
    }

    /// The disk's unit of I/O: 512 or 4096.
    pub fn block_bytes(&self) -> u32 {
        self.disk.block_bytes()
    }

    /// True once a write or flush has failed; writes and flushes are refused from then on.
    pub fn is_failed(&self) -> bool {
        self.state.failed.get().is_some()
    }

    /// Whether it failed because it is not there any more, or does not answer: it may come back with all it held. One that
    /// answers with errors is not away.
    pub fn is_away(&self) -> bool {
        self.state.failed.get().is_some_and(|failure| failure.is_away)
    }

    /// What its disk's operations took; `None` if the disk does not measure it.
    pub fn latencies(&self) -> Option<Arc<DiskInstruments>> {
        self.disk.instruments()
    }

    /// Both root slots of a slice, whatever is in them, or why one cannot be read.
    ///
    /// # Errors
    /// Of each slot its own: [`DriveError::Disk`] if the disk fails to read it.
    pub async fn read_roots(&self, slice: SliceId) -> [Result<Box<[u8; ROOT_BYTES]>, DriveError>; 2] {
        let [first, second] = [0, 1].map(|slot| self.read_at(root_offset(slice, slot), ROOT_BYTES));
        let boxed = |buf: Buf| {
            let mut root = Box::new([0; ROOT_BYTES]);
            root.copy_from_slice(&buf);
            root
        };
        [first.await.map(boxed), second.await.map(boxed)]
    }

    /// Writes root slot `slot`, 0 or 1, of a slice durably. `bytes` must be [`ROOT_BYTES`] long.
    ///
    /// # Errors
    /// [`DriveError::Expelled`] or [`DriveError::NoWriterSession`] if the drive refuses this writer session's writes,
    /// [`DriveError::Failed`] if it failed before. [`DriveError::NoRoom`] or [`DriveError::Disk`] if this
    /// write fails: what the slot holds is then unknown.
    pub async fn write_root(&self, slice: SliceId, slot: usize, bytes: Buf) -> Result<(), DriveError> {
        assert_eq!(bytes.len(), ROOT_BYTES, "a root fills its slot");
        self.write_at(root_offset(slice, slot), vec![bytes.into_slice()], true).await
    }

    /// Both copies of the table of members.
    pub async fn read_members(&self) -> [MembersCopy; 2] {
        let [first, second] = MEMBERS_OFFSETS;
        let copies = [self.read_members_at(first).await, self.read_members_at(second).await];
        let [first, second] = copies.each_ref().map(|copy| match copy {
            MembersCopy::Sound(members) => Some(members.age()),
            MembersCopy::Blank | MembersCopy::Damaged(_) => None,
        });
        // The next table goes over the worse copy first.
        *self.state.worse_members.lock() = match first.cmp(&second) {
            Ordering::Less => Some(0),
            Ordering::Equal => None,
            Ordering::Greater => Some(1),
        };
        copies
    }

    async fn read_members_at(&self, offset: u64) -> MembersCopy {
        let head = self.read_at(offset, MEMBERS_PAGE_BYTES).await;
        let bytes = match head.as_ref().map_or(0, |head| Members::len_bytes(head)) {
            len if len > MEMBERS_PAGE_BYTES => self.read_at(offset, len).await,
            _ => head,
        };
        match bytes {
            Ok(bytes) => Members::decode(&bytes),
            Err(error) => MembersCopy::Damaged(format!("it cannot be read ({error})")),
        }
    }

    /// Writes both copies of the table of members, the second when the first is durable.
    ///
    /// # Errors
    /// Those of [`Drive::write_root`]. An error of the first copy leaves the second as it was.
    ///
    /// # Panics
    /// No pool can have this table.
    pub async fn write_members(&self, members: &Members) -> Result<(), DriveError> {
        assert_eq!(members.problem(), None, "a table of members that is written makes sense");
        // NOTE: an interrupted write tears the first. It must not be the only one that holds a table.
        let worse = *self.state.worse_members.lock();
        let first = worse.unwrap_or((members.generation.0 % 2) as usize);
        for copy in [first, 1 - first] {
            self.write_at(MEMBERS_OFFSETS[copy], vec![members.encode().into_slice()], true).await?;
        }
        *self.state.worse_members.lock() = None;
        Ok(())
    }

    /// Makes the disk what it was before it was a drive: blank, as far as anybody looks. It has left its pool, and nobody
    /// shall take it for a member.
    ///
    /// # Errors
    /// Those of [`Drive::write_root`]. The disk may then have a label still, or is neither a drive nor blank.
    pub async fn erase(&self) -> Result<(), DriveError> {
        // NOTE: the labels first. Without one the disk is no drive, whatever else is left.
        for offset in LABEL_OFFSETS {
            self.write_at(offset, vec![Buf::zeroed(LABEL_BYTES).into_slice()], true).await?;
        }
        for piece in ByteRange::new(0, self.slabs_start_bytes).split(ERASED_AT_ONCE_BYTES) {
            let zeroes = vec![Buf::zeroed(piece.len as usize).into_slice()];
            self.write_at(piece.offset, zeroes, false).await?;
        }
        let (start, len) = tail(&self.disk);
        self.write_at(start, vec![Buf::zeroed(len as usize).into_slice()], false).await?;
        self.flush().await
    }

    /// Reads `len` bytes from byte `offset` of slab `slab`.
    ///
    /// # Errors
    /// [`DriveError::OutOfRange`] if the range is not within the slab or not aligned to the disk's blocks,
    /// [`DriveError::Disk`] if the disk fails to read it.
    pub fn read_slab(
        &self,
        slab: u32,
        offset: u64,
        len: usize,
    ) -> impl Future<Output = Result<Buf, DriveError>> + Send + use<> {
        let read = self.place(slab, offset, len as u64).map(|at| self.read_at(at, len));
        async move { read?.await }
    }

    /// Writes `data` one slice after the other from byte `offset` of slab `slab`. `durable`: survives a
    /// power failure when done; otherwise after the next [`Drive::flush`] begun after that.
    ///
    /// # Errors
    /// [`DriveError::OutOfRange`] if the range is not within the slab or not aligned to the disk's blocks.
    /// Otherwise those of [`Drive::write_root`]; after one, the range holds old data, new data or a mixture.
    pub fn write_slab(
        &self,
        slab: u32,
        offset: u64,
        data: Vec<Slice>,
        durable: bool,
    ) -> impl Future<Output = Result<(), DriveError>> + Send + use<> {
        let len = data.iter().map(|s| s.len() as u64).sum();
        let write = self.place(slab, offset, len).map(|at| self.write_at(at, data, durable));
        async move { write?.await }
    }

    /// Returns when every write that ended before the call would survive a power failure.
    ///
    /// # Errors
    /// [`DriveError::Disk`] if the flush fails: no write since the last flush counts as durable then, and the
    /// drive has failed. [`DriveError::Failed`], [`DriveError::Expelled`] or [`DriveError::NoWriterSession`] if it
    /// takes no flushes of this writer session.
    pub async fn flush(&self) -> Result<(), DriveError> {
        // NOTE: one at a time. A flush that fails may have lost what others wrote, and a later one may succeed all the same:
        // that one must not be taken for theirs before the failure is known.
        let _turn = self.state.flushing.lock().await;
        let (flight, done) = self.depart(DiskOp::Flush)?;
        flight.land(done.await, |counters| {
            counters.flushes.fetch_add(1, Relaxed);
        })
    }

    fn read_at(
        &self,
        offset: u64,
        len: usize,
    ) -> impl Future<Output = Result<Buf, DriveError>> + Send + use<> {
        let done = self.disk.submit(DiskOp::Read { offset, buf: Buf::unfilled(len) });
        let state = self.state.clone();
        async move {
            let outcome = done.await;
            match &outcome {
                Ok(_) => {
                    state.counters.reads.fetch_add(1, Relaxed);
                    state.counters.read_bytes.fetch_add(len as u64, Relaxed);
                }
                // Nothing will be heard of the writes under way either.
                Err(error @ DiskError::TimedOut { .. }) => state.fail_by(error),
                Err(_) => {
                    state.counters.errors.fetch_add(1, Relaxed);
                }
            }
            Ok(outcome?)
        }
    }

    fn write_at(
        &self,
        offset: u64,
        data: Vec<Slice>,
        durable: bool,
    ) -> impl Future<Output = Result<(), DriveError>> + Send + use<> {
        let len: u64 = data.iter().map(|s| s.len() as u64).sum();
        let departed = self.depart(DiskOp::Write { offset, data, durable });
        self.write(len, departed)
    }

    fn write(
        &self,
        len: u64,
        departed: Result<(Flight, Completion), DriveError>,
    ) -> impl Future<Output = Result<(), DriveError>> + Send + use<> {
        async move {
            let (flight, done) = departed?;
            flight.land(done.await, |counters| {
                counters.writes.fetch_add(1, Relaxed);
                counters.write_bytes.fetch_add(len, Relaxed);
            })
        }
    }

    fn depart(&self, op: DiskOp) -> Result<(Flight, Completion), DriveError> {
        self.depart_as(None, op)
    }

    /// As of another writer session than this one, if one is given.
    fn depart_as(&self, of: Option<WriterSession>, op: DiskOp) -> Result<(Flight, Completion), DriveError> {
        if let Some(Failure { cause, .. }) = self.state.failed.get() {
            return Err(DriveError::Failed { drive: self.name().to_owned(), cause: cause.clone() });
        }
        // NOTE: with the gate locked. A fence that is raised next waits for what is let in here.
        let session = {
            let mut gate = self.state.gate.lock();
            let session = match (of, *self.own.lock()) {
                (Some(session), _) => session,
                (None, own) if own.has_begun => own.session,
                (None, own) => return Err(self.has_not_begun(own.session.holder)),
            };
            if !gate.fences.accept(session) && !planted(Bug::AcceptExpelled) {
                return Err(DriveError::Expelled { drive: self.name().to_owned(), session });
            }
            gate.enter(session);
            session
        };
        Ok((Flight { state: self.state.clone(), session, ended: false }, self.disk.submit(op)))
    }

    fn place(&self, slab: u32, offset: u64, len: u64) -> Result<u64, DriveError> {
        let block = u64::from(self.disk.block_bytes());
        let fits = offset.checked_add(len).is_some_and(|end| end <= u64::from(self.slab_bytes));
        let aligned = offset.is_multiple_of(block) && len.is_multiple_of(block);
        let slabs = self.slabs();
        if slab < slabs && fits && aligned && len > 0 {
            return Ok(self.slabs_start_bytes + u64::from(slab) * u64::from(self.slab_bytes) + offset);
        }
        Err(DriveError::OutOfRange {
            drive: self.name().to_owned(),
            slab,
            offset,
            len,
            slabs,
            slab_bytes: self.slab_bytes,
            block_bytes: self.disk.block_bytes(),
        })
    }
}

impl Flight {
    fn land(
        mut self,
        outcome: Result<Buf, DiskError>,
        count: impl FnOnce(&Counters),
    ) -> Result<(), DriveError> {
        self.ended = true;
        match outcome {
            Ok(_) => {
                count(&self.state.counters);
                Ok(())
            }
            // What the range holds is unknown now. The drive goes on, and its caller decides.
            Err(DiskError::Io { operation: "write", source, .. })
                if source.kind() == ErrorKind::StorageFull =>
            {
                self.state.counters.errors.fetch_add(1, Relaxed);
                Err(DriveError::NoRoom { drive: self.state.name.clone() })
            }
            Err(error) => {
                self.state.fail_by(&error);
                Err(error.into())
            }
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.ended {
            self.state.fail("a write was abandoned before it ended".into());
        }
        let is_last_refused = self.state.gate.lock().leave(self.session);
        if is_last_refused {
            self.state.drained.notify();
        }
    }
}

impl State {
    fn new(disk: &Arc<dyn Disk>, label: Label) -> Self {
        State {
            name: disk.name().to_owned(),
            gate: Mutex::new(Gate::new(label.fences.clone())),
            slabs: AtomicU32::new(label.slabs()),
            label: Mutex::new(label),
            failed: OnceLock::new(),
            mended: Mutex::default(),
            worse_members: Mutex::default(),
            drained: Event::new(),
            relabelling: AsyncMutex::new(),
            flushing: AsyncMutex::new(),
            counters: Counters::default(),
        }
    }

    fn fail(&self, cause: String) {
        self.counters.errors.fetch_add(1, Relaxed);
        let _ = self.failed.set(Failure { cause, is_away: false });
    }

    fn fail_by(&self, error: &DiskError) {
        self.counters.errors.fetch_add(1, Relaxed);
        let _ = self.failed.set(Failure::by(error));
    }
}
