//! A simulated disk.

use crate::{
    Disk, FaultPlan, Image, Injected, SimWorld,
    fault::LATE_READ,
    medium::{Fate, Medium},
    truth::Truth,
};
use parking_lot::Mutex;
use quoin_base::{ByteRange, SECTOR_BYTES, crc32c};
use quoin_world::{BUF_ALIGN_BYTES, Buf, Completer, Completion, DiskError, DiskOp, Slice, Thread, World};
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::Range,
    sync::{
        Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

/// What the system says of a device that is not there any more.
const ENODEV: i32 = 19;
const BLOCK_BYTES: u32 = 512;

/// A simulated disk: reads see the latest completed writes; a power cut keeps, loses or tears each write
/// that was not made durable.
pub struct SimDisk {
    world: Weak<SimWorld>,
    number: u64,
    name: String,
    len_bytes: AtomicU64,
    sparse: AtomicBool,
    inner: Mutex<Inner>,
}

struct Inner {
    medium: Medium,
    faults: FaultPlan,
    injected: Injected,
    failed: bool,
    /// It is not there: operations fail with "no such device".
    away: bool,
    /// What sectors should hold that silent faults hit.
    truth: Truth,
    /// Sectors that cannot be read until they are written again.
    unreadable: BTreeSet<u64>,
    in_flight: BTreeMap<u64, InFlight>,
    /// Nothing completes.
    hangs: bool,
    /// What would have completed while it hung, by the order of submission.
    stuck: BTreeMap<u64, InFlight>,
    rng: ChaCha8Rng,
}

struct InFlight {
    op: DiskOp,
    /// What was complete at submission, for a flush.
    mark: u64,
    completer: Completer,
}

impl SimDisk {
    pub(crate) fn new(world: Weak<SimWorld>, seed: u64, number: u64, name: &str, len_bytes: u64) -> Self {
        assert!(len_bytes.is_multiple_of(u64::from(BLOCK_BYTES)), "disk {name}: {len_bytes} bytes");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(1000 + number);
        let inner = Inner {
            medium: Medium::default(),
            faults: FaultPlan::default(),
            injected: Injected::default(),
            failed: false,
            away: false,
            truth: Truth::default(),
            unreadable: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            hangs: false,
            stuck: BTreeMap::new(),
            rng,
        };
        let (name, sparse) = (name.to_owned(), AtomicBool::new(false));
        Self { world, number, name, len_bytes: AtomicU64::new(len_bytes), sparse, inner: Mutex::new(inner) }
    }

    /// Makes it longer, as what is outside does: a file that is lengthened, durably, or a device that is enlarged.
    pub fn lengthen(&self, len_bytes: u64) {
        assert!(len_bytes.is_multiple_of(u64::from(BLOCK_BYTES)), "disk {}: {len_bytes} bytes", self.name);
        let before = self.len_bytes.fetch_max(len_bytes, Ordering::AcqRel);
        assert!(before <= len_bytes, "disk {} had {before} bytes", self.name);
    }

    /// Replaces what may go wrong from now on.
    pub fn set_faults(&self, faults: FaultPlan) {
        self.inner.lock().faults = faults;
    }

    /// Has it say that there may be no room for what is written.
    pub fn make_sparse(&self) {
        self.sparse.store(true, Ordering::Relaxed);
    }

    /// Changes what may go wrong from now on.
    pub fn change_faults(&self, change: impl FnOnce(&mut FaultPlan)) {
        change(&mut self.inner.lock().faults);
    }

    /// What went wrong so far.
    pub fn injected(&self) -> Injected {
        self.inner.lock().injected
    }

    /// From now on every operation fails, those in flight included.
    pub fn fail(&self) {
        self.inner.lock().failed = true;
    }

    /// It works again, with the content it had.
    pub fn revive(&self) {
        let mut inner = self.inner.lock();
        (inner.failed, inner.away) = (false, false);
    }

    /// Whether it vanished.
    pub fn is_away(&self) -> bool {
        self.inner.lock().away
    }

    /// From now on every operation fails with "no such device", until it is revived. What it holds stays.
    pub fn vanish(&self) {
        let mut inner = self.inner.lock();
        (inner.failed, inner.away) = (true, true);
    }

    /// From now on no operation completes, those in flight included, until [`SimDisk::resume`].
    pub fn hang(&self) {
        self.inner.lock().hangs = true;
    }

    /// It answers again. What is stuck takes effect and completes one by one, in any order, at some moment within
    /// `within`; what is submitted from now on does not wait for it. Called on a thread of the array.
    pub fn resume(&self, within: Duration) {
        let Some(world) = self.world.upgrade() else { return };
        let mut inner = self.inner.lock();
        inner.hangs = false;
        let stuck = std::mem::take(&mut inner.stuck);
        inner.injected.hung += stuck.len() as u64;
        for operation in stuck.into_values() {
            let latency_ns = inner.rng.random_range(0..=within.as_nanos() as u64);
            let Some(id) = world.schedule_disk(self.number, latency_ns, None) else { return };
            inner.in_flight.insert(id, operation);
        }
    }

    /// Its content as a reader sees it now.
    pub fn image(&self) -> Image {
        self.inner.lock().medium.image()
    }

    /// Replaces its content, durably: an older image makes it a stale drive.
    pub fn restore(&self, image: Image) {
        let mut inner = self.inner.lock();
        inner.medium = Medium::of(image);
        inner.truth = Truth::default();
    }

    /// `len` bytes from `offset` on as a reader would see them, at any alignment.
    pub fn peek(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.inner.lock().medium.read(offset, &mut bytes);
        bytes
    }

    /// Overwrites bytes on the medium, durably, at any alignment.
    pub fn poke(&self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.len_bytes(), "poke inside {}", self.name);
        let first = offset / SECTOR_BYTES * SECTOR_BYTES;
        let end = (offset + bytes.len() as u64).next_multiple_of(SECTOR_BYTES);
        let mut inner = self.inner.lock();
        let mut sectors = Buf::zeroed((end - first) as usize);
        inner.medium.read(first, sectors.as_mut_slice());
        let start = (offset - first) as usize;
        sectors.as_mut_slice()[start..start + bytes.len()].copy_from_slice(bytes);
        inner.medium.write(first, vec![sectors.into_slice()], true);
    }

    /// Flips one bit, chosen by the seed, within `range` of the medium; returns its byte's offset.
    pub fn flip_bit(&self, range: ByteRange) -> u64 {
        let (offset, bit) = {
            let mut inner = self.inner.lock();
            inner.injected.bit_flips += 1;
            (inner.rng.random_range(range.offset..range.end()), inner.rng.random_range(0..8))
        };
        let byte = self.peek(offset, 1)[0] ^ (1 << bit);
        self.inner.lock().note_held(ByteRange::new(offset, 1));
        self.poke(offset, &[byte]);
        offset
    }

    /// Undoes, durably, what silent faults did to sectors of `range` that nobody wrote since; returns how many there were.
    pub fn undo_lies(&self, range: ByteRange) -> u64 {
        let mut inner = self.inner.lock();
        let told = inner.truth.take(sectors(range));
        for (number, content) in &told {
            inner.medium.write(number * SECTOR_BYTES, vec![Slice::copy_of(content)], true);
        }
        told.len() as u64
    }

    /// From now on no sector of `range` can be read until it is written again: a latent error.
    pub fn spoil(&self, range: ByteRange) {
        let mut inner = self.inner.lock();
        inner.injected.latent_errors += 1;
        inner.unreadable.extend(sectors(range));
    }

    /// Operation `id` ends now.
    pub(crate) fn complete(&self, id: u64) {
        let (completer, outcome) = {
            let mut inner = self.inner.lock();
            let Some(operation) = inner.in_flight.remove(&id) else { return };
            if inner.hangs {
                inner.stuck.insert(id, operation);
                return;
            }
            let InFlight { op, mark, completer } = operation;
            let (operation, range) = describe(&op);
            let has_room = operation != "write" || inner.faults.has_room(range);
            let fault = if !has_room {
                io::ErrorKind::StorageFull.into()
            } else if inner.away {
                io::Error::from_raw_os_error(ENODEV)
            } else {
                io::Error::other("simulated fault")
            };
            let performed = if has_room { inner.perform(op, mark, self.len_bytes()) } else { Err(()) };
            let outcome = performed.map_err(|()| DiskError::Io {
                disk: self.name.clone(),
                operation,
                offset: range.map_or(0, |r| r.offset),
                len: range.map_or(0, |r| r.len),
                source: fault,
            });
            (completer, outcome)
        };
        if let Some(world) = self.world.upgrade() {
            let sum = outcome.as_ref().map_or(u64::MAX, |buf| u64::from(crc32c(buf).0));
            world.trace("completed", &[self.number, id, sum]);
        }
        completer.complete(outcome);
    }

    /// The power is cut: what was in flight may have been done, partly or not, in any order.
    pub(crate) fn cut_power(&self) {
        let mut inner = self.inner.lock();
        inner.hangs = false;
        let Inner { medium, in_flight, stuck, rng, injected, .. } = &mut *inner;
        in_flight.append(stuck);
        let mut landed: Vec<_> = std::mem::take(in_flight).into_values().collect();
        landed.shuffle(rng);
        let mut completers = Vec::new();
        for InFlight { op, completer, .. } in landed {
            if let DiskOp::Write { offset, data, .. } = op {
                medium.write(offset, data, false);
            }
            completers.push(completer);
        }
        let mode = rng.random_range(0..4);
        let mut tear = ChaCha8Rng::seed_from_u64(rng.random());
        let decide = || {
            let fate = match mode {
                0 => Fate::Lost,
                1 => Fate::Kept,
                _ => [Fate::Kept, Fate::Lost, Fate::Torn][rng.random_range(0..3)],
            };
            injected.lost_in_power_cuts += u64::from(fate == Fate::Lost);
            injected.torn_in_power_cuts += u64::from(fate == Fate::Torn);
            fate
        };
        medium.cut_power(decide, || tear.random_bool(0.5));
        drop(inner);
        drop(completers);
    }

    /// The host is gone: writes in flight reach the volatile cache or not, in any order.
    pub(crate) fn lose_host(&self) {
        let mut inner = self.inner.lock();
        inner.hangs = false;
        let Inner { medium, in_flight, stuck, rng, .. } = &mut *inner;
        in_flight.append(stuck);
        let mut landed: Vec<_> = std::mem::take(in_flight).into_values().collect();
        landed.shuffle(rng);
        let mut completers = Vec::new();
        for InFlight { op, completer, .. } in landed {
            if let DiskOp::Write { offset, data, .. } = op
                && rng.random()
            {
                medium.write(offset, data, false);
            }
            completers.push(completer);
        }
        drop(inner);
        drop(completers);
    }

    /// Forgets what is in flight, as if it never reached the disk.
    pub(crate) fn abandon(&self) {
        let mut inner = self.inner.lock();
        let abandoned = (std::mem::take(&mut inner.in_flight), std::mem::take(&mut inner.stuck));
        drop(inner);
        drop(abandoned);
    }

    fn check(&self, op: &DiskOp) {
        if let (operation, Some(range)) = describe(op) {
            let inside = range.offset.checked_add(range.len).is_some_and(|end| end <= self.len_bytes());
            assert!(inside, "{}: {operation} of {range:?} beyond {}", self.name, self.len_bytes());
            let aligned = range.is_aligned(u64::from(BLOCK_BYTES)) && !range.is_empty();
            assert!(aligned, "{}: {operation} of {range:?} is not aligned", self.name);
        }
        if let DiskOp::Write { data, .. } = op {
            for slice in data {
                let aligned = (slice.as_ptr() as usize).is_multiple_of(BLOCK_BYTES as usize)
                    && slice.len().is_multiple_of(BLOCK_BYTES as usize);
                assert!(aligned && !slice.is_empty(), "{}: a slice is not aligned in memory", self.name);
            }
        }
        const { assert!(BUF_ALIGN_BYTES.is_multiple_of(BLOCK_BYTES as usize)) };
    }
}

impl Inner {
    fn perform(&mut self, op: DiskOp, mark: u64, len_bytes: u64) -> Result<Buf, ()> {
        let concerned = self.faults.concerns(describe(&op).1);
        match op {
            DiskOp::Read { offset, mut buf } => {
                let range = ByteRange::new(offset, buf.len() as u64);
                let spoilt = self.unreadable.range(sectors(range)).next().is_some();
                if self.failed || spoilt || self.hits(concerned, self.faults.read_error) {
                    self.injected.read_errors += 1;
                    return Err(());
                }
                self.medium.read(offset, buf.as_mut_slice());
                Ok(buf)
            }
            DiskOp::Write { offset, data, durable } => {
                self.write(offset, data, durable, concerned, len_bytes)
            }
            DiskOp::Flush => {
                if self.failed || self.hits(concerned, self.faults.flush_error) {
                    self.injected.flush_errors += 1;
                    let rng = &mut self.rng;
                    self.medium.fail_flush(mark, || rng.random());
                    return Err(());
                }
                self.medium.flush(mark);
                Ok(Buf::default())
            }
            DiskOp::Discard { .. } if self.failed => Err(()),
            DiskOp::Discard { offset, len } => {
                self.discard(offset, len);
                Ok(Buf::default())
            }
        }
    }

    fn write(
        &mut self,
        mut offset: u64,
        mut data: Vec<Slice>,
        durable: bool,
        concerned: bool,
        len_bytes: u64,
    ) -> Result<Buf, ()> {
        if self.failed || self.hits(concerned, self.faults.write_error) {
            self.injected.write_errors += 1;
            let share = [0.0, 0.5, 1.0][self.rng.random_range(0..3)];
            for sector in data.iter().flat_map(|s| (0..s.len()).step_by(512).map(|at| s.slice(at..at + 512)))
            {
                if self.rng.random_bool(share) {
                    self.medium.write(offset, vec![sector], false);
                }
                offset += SECTOR_BYTES;
            }
            return Err(());
        }
        if self.hits(concerned, self.faults.lost_write) {
            self.injected.lost_writes += 1;
            self.truth.should_hold(offset, &data);
            return Ok(Buf::default());
        }
        let len: u64 = data.iter().map(|s| s.len() as u64).sum();
        let meant = ByteRange::new(offset, len);
        let mut lies = false;
        if self.hits(concerned, self.faults.misdirected_write) {
            self.injected.misdirected_writes += 1;
            self.truth.should_hold(offset, &data);
            lies = true;
            let within = self.faults.only.unwrap_or(ByteRange::new(0, len_bytes));
            let places = within.len.saturating_sub(len) / 4096;
            offset = within.offset + self.rng.random_range(0..=places) * 4096;
            self.note_held(ByteRange::new(offset, len));
        }
        if self.hits(concerned, self.faults.bit_flip) {
            self.injected.bit_flips += 1;
            if !lies {
                self.truth.should_hold(offset, &data);
                lies = true;
            }
            let victim = self.rng.random_range(0..data.len());
            let mut wrong = Buf::copy_of(&data[victim]);
            let byte = self.rng.random_range(0..wrong.len());
            wrong.as_mut_slice()[byte] ^= 1 << self.rng.random_range(0..8);
            data[victim] = wrong.into_slice();
        }
        if !lies {
            self.truth.wrote(sectors(meant));
        }
        if !self.unreadable.is_empty() {
            let written = sectors(ByteRange::new(offset, len));
            self.unreadable.retain(|sector| !written.contains(sector));
        }
        self.medium.write(offset, data, durable);
        Ok(Buf::default())
    }

    /// Notes what sectors hold that a fault is about to change.
    fn note_held(&mut self, range: ByteRange) {
        for number in sectors(range) {
            let mut content = [0; SECTOR_BYTES as usize];
            self.medium.read(number * SECTOR_BYTES, &mut content);
            self.truth.held(number, content);
        }
    }

    /// What a discarded range reads as is undefined: its old content, zeroes or garbage.
    fn discard(&mut self, offset: u64, len: u64) {
        let filler = match self.rng.random_range(0..3) {
            0 => return,
            1 => 0,
            _ => self.rng.random(),
        };
        let data = Slice::copy_of(&vec![filler; len.min(1 << 20) as usize]);
        for piece in ByteRange::new(offset, len).split(1 << 20) {
            self.medium.write(piece.offset, vec![data.slice(..piece.len as usize)], false);
        }
    }

    fn hits(&mut self, concerned: bool, probability: f64) -> bool {
        concerned && probability > 0.0 && self.rng.random_bool(probability)
    }

    fn latency_ns(&mut self, is_host_read: bool) -> u64 {
        if is_host_read && self.faults.late_read > 0.0 && self.rng.random_bool(self.faults.late_read) {
            self.injected.late_reads += 1;
            return self.rng.random_range(0..=LATE_READ.as_nanos() as u64);
        }
        let (least, most) = (self.faults.latency.start().as_nanos(), self.faults.latency.end().as_nanos());
        let (least, most) = (least as u64, most as u64);
        if self.rng.random_bool(self.faults.slow) {
            return self.rng.random_range(most..=most * 100);
        }
        self.rng.random_range(least..=most)
    }
}

impl Disk for SimDisk {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Acquire)
    }

    fn block_bytes(&self) -> u32 {
        BLOCK_BYTES
    }

    fn may_lack_room(&self) -> bool {
        self.sparse.load(Ordering::Relaxed)
    }

    fn submit(&self, op: DiskOp) -> Completion {
        self.check(&op);
        let Some(world) = self.world.upgrade() else { return Completion::ready(Err(DiskError::Abandoned)) };
        let (operation, range) = describe(&op);
        let sum = match &op {
            DiskOp::Write { data, .. } => data.iter().fold(0, |sum, s| sum ^ u64::from(crc32c(s).0)),
            _ => 0,
        };
        let (offset, len) = range.map_or((0, 0), |r| (r.offset, r.len));
        world.trace(operation, &[self.number, offset, len, sum]);
        let (completer, completion) = Completion::new();
        let mut inner = self.inner.lock();
        let is_host_read = operation == "read" && matches!(world.current(), Some(Thread::Data(_)));
        let latency_ns = inner.latency_ns(is_host_read);
        let wrote = range.filter(|_| operation == "write");
        let Some(id) = world.schedule_disk(self.number, latency_ns, wrote) else {
            return Completion::ready(Err(DiskError::Abandoned));
        };
        let mark = inner.medium.mark();
        inner.in_flight.insert(id, InFlight { op, mark, completer });
        completion
    }
}

/// The sectors that a range touches.
fn sectors(range: ByteRange) -> Range<u64> {
    range.offset / SECTOR_BYTES..range.end().div_ceil(SECTOR_BYTES)
}

fn describe(op: &DiskOp) -> (&'static str, Option<ByteRange>) {
    match op {
        DiskOp::Read { offset, buf } => ("read", Some(ByteRange::new(*offset, buf.len() as u64))),
        DiskOp::Write { offset, data, .. } => {
            let len = data.iter().map(|s| s.len() as u64).sum();
            ("write", Some(ByteRange::new(*offset, len)))
        }
        DiskOp::Flush => ("flush", None),
        DiskOp::Discard { offset, len } => ("discard", Some(ByteRange::new(*offset, *len))),
    }
}
