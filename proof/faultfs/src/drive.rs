//! One drive: a backing file, its volatile cache, its power and the faults planted in it.

use crate::{
    CutMode, FaultFsError, Op, SECTOR_BYTES,
    cache::{Cache, Content, Held},
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rand::{Rng, RngExt};
use rustix::fs::FallocateFlags;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};

/// A number of a power cycle. A file handle belongs to the cycle it was opened in and dies with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cycle(pub(crate) u64);

/// Figures of one drive since it was first seen, and what is wrong with it now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveStatus {
    /// File name.
    pub name: String,
    /// Size of the file.
    pub len_bytes: u64,
    /// Bytes in RAM that a power cut may lose.
    pub held_bytes: u64,
    /// Writes that a power cut may lose.
    pub held_writes: u64,
    /// Reads served.
    pub reads: u64,
    /// Writes accepted, durable ones included.
    pub writes: u64,
    /// Flushes and durable writes served.
    pub flushes: u64,
    /// Operations that are made to fail.
    pub failing: BTreeSet<Op>,
    /// Delay added to every operation.
    pub slow_ms: u64,
    /// Whether flushes are acknowledged without being done.
    pub ignores_flushes: bool,
}

/// What one power cut did to the held writes of one drive.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Fates {
    pub(crate) lost: u64,
    pub(crate) torn: u64,
    pub(crate) kept: u64,
}

/// A drive. Every operation takes the one lock, so that a power cut is one moment in time.
#[derive(Debug)]
pub(crate) struct Drive {
    name: String,
    path: PathBuf,
    cache_limit_bytes: u64,
    state: Mutex<State>,
    healed: Condvar,
}

#[derive(Debug)]
pub(crate) struct State {
    backing: File,
    cache: Cache,
    cycle: Cycle,
    powered: bool,
    failing: BTreeSet<Op>,
    slow: Duration,
    hangs: bool,
    /// Nothing more is allocated on the medium.
    full: bool,
    ignores_flushes: bool,
    reads: u64,
    writes: u64,
    flushes: u64,
}

impl Drive {
    pub(crate) fn open(path: &Path, cache_limit_bytes: u64, create: bool) -> Result<Self, FaultFsError> {
        let backing = File::options()
            .read(true)
            .write(true)
            .create(create)
            .truncate(false)
            .open(path)
            .map_err(|source| FaultFsError::Backing { path: path.to_owned(), source })?;
        let state = State {
            backing,
            cache: Cache::default(),
            cycle: Cycle(0),
            powered: true,
            failing: BTreeSet::new(),
            slow: Duration::ZERO,
            hangs: false,
            full: false,
            ignores_flushes: false,
            reads: 0,
            writes: 0,
            flushes: 0,
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self {
            name,
            path: path.to_owned(),
            cache_limit_bytes,
            state: Mutex::new(state),
            healed: Condvar::new(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes back what is planted in it.
    pub(crate) fn heal(&self) {
        self.lock().heal();
        self.healed.notify_all();
    }

    pub(crate) fn hangs(&self) -> bool {
        self.lock().hangs
    }

    /// Returns once the drive does not hang.
    pub(crate) fn wait_until_healed(&self) {
        let mut state = self.lock();
        while state.hangs {
            self.healed.wait(&mut state);
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The power cycle that a handle opened now belongs to; `EIO` without power.
    pub(crate) fn handle(&self) -> io::Result<Cycle> {
        let state = self.lock();
        if state.powered { Ok(state.cycle) } else { Err(io_error()) }
    }

    pub(crate) fn metadata(&self) -> io::Result<std::fs::Metadata> {
        self.lock().backing.metadata()
    }

    pub(crate) fn read(&self, handle: Cycle, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut state = self.lock();
        state.admit(handle, Op::Read)?;
        state.reads += 1;
        let size = state.backing.metadata()?.size();
        let mut buf = vec![0; len.min(size.saturating_sub(offset) as usize)];
        state.backing.read_exact_at(&mut buf, offset)?;
        state.cache.overlay(offset, &mut buf);
        Ok(buf)
    }

    /// Takes a write into the cache. A `durable` one is on the medium on return, alone: it flushes nothing else.
    pub(crate) fn write(&self, handle: Cycle, offset: u64, data: Vec<u8>, durable: bool) -> io::Result<()> {
        let mut state = self.lock();
        state.admit(handle, Op::Write)?;
        let end = offset + data.len() as u64;
        if state.full && !state.is_allocated(offset, end)? {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        state.writes += 1;
        let held = Held { offset, content: Content::Bytes(data), durable: durable && !state.ignores_flushes };
        if state.backing.metadata()?.size() < held.end() {
            state.backing.set_len(held.end())?;
        }
        state.flushes += u64::from(durable);
        if held.durable {
            state.put(&held)?;
        }
        if !held.durable || state.cache.overlaps(held.offset, held.end()) {
            state.cache.hold(held);
        }
        state.shrink_to(self.cache_limit_bytes)
    }

    /// Zeroes a range (punch hole, zero range): held like any write. Other modes reserve space only.
    pub(crate) fn allocate(
        &self,
        handle: Cycle,
        offset: u64,
        len: u64,
        mode: FallocateFlags,
    ) -> io::Result<()> {
        let mut state = self.lock();
        state.admit(handle, Op::Write)?;
        let zeroing = FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE;
        if !mode.difference(zeroing | FallocateFlags::KEEP_SIZE).is_empty() {
            return Err(rustix::io::Errno::OPNOTSUPP.into());
        }
        if !mode.contains(FallocateFlags::KEEP_SIZE) && state.backing.metadata()?.size() < offset + len {
            state.backing.set_len(offset + len)?;
        }
        if mode.intersects(zeroing) {
            let end = (offset + len).min(state.backing.metadata()?.size());
            let content = Content::Zeroes(end.saturating_sub(offset));
            state.cache.hold(Held { offset, content, durable: false });
            return Ok(());
        }
        Ok(rustix::fs::fallocate(&state.backing, mode, offset, len)?)
    }

    pub(crate) fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.lock();
        if !state.powered {
            return Err(io_error());
        }
        state.cache.truncate(len);
        state.backing.set_len(len)
    }

    pub(crate) fn flush(&self, handle: Cycle) -> io::Result<()> {
        let mut state = self.lock();
        state.admit(handle, Op::Flush)?;
        state.flushes += 1;
        if state.ignores_flushes { Ok(()) } else { state.shrink_to_nothing() }
    }

    pub(crate) fn delay(&self) -> Duration {
        self.lock().slow
    }

    pub(crate) fn status(&self) -> DriveStatus {
        let state = self.lock();
        DriveStatus {
            name: self.name.clone(),
            len_bytes: state.backing.metadata().map_or(0, |metadata| metadata.size()),
            held_bytes: state.cache.held_bytes(),
            held_writes: state.cache.held_writes(),
            reads: state.reads,
            writes: state.writes,
            flushes: state.flushes,
            failing: state.failing.clone(),
            slow_ms: state.slow.as_millis() as u64,
            ignores_flushes: state.ignores_flushes,
        }
    }
}

impl State {
    fn admit(&self, handle: Cycle, op: Op) -> io::Result<()> {
        if self.powered && self.cycle == handle && !self.failing.contains(&op) {
            Ok(())
        } else {
            Err(io_error())
        }
    }

    fn put(&self, held: &Held) -> io::Result<()> {
        match &held.content {
            Content::Bytes(bytes) => self.backing.write_all_at(bytes, held.offset),
            Content::Zeroes(0) => Ok(()),
            Content::Zeroes(len) => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                Ok(rustix::fs::fallocate(&self.backing, mode, held.offset, *len)?)
            }
        }
    }

    /// Puts the oldest writes on the medium until no more than `limit_bytes` are held.
    fn shrink_to(&mut self, limit_bytes: u64) -> io::Result<()> {
        while self.cache.held_bytes() > limit_bytes {
            let Some(held) = self.cache.pop_oldest() else { break };
            self.put(&held)?;
        }
        Ok(())
    }

    pub(crate) fn shrink_to_nothing(&mut self) -> io::Result<()> {
        while let Some(held) = self.cache.pop_oldest() {
            self.put(&held)?;
        }
        Ok(())
    }

    /// Takes the power away: every held write meets its fate, in the order of acknowledgement.
    pub(crate) fn cut(&mut self, mode: CutMode, rng: &mut impl Rng) -> io::Result<Fates> {
        let mut fates = Fates::default();
        self.powered = false;
        self.cycle.0 += 1;
        while let Some(held) = self.cache.pop_oldest() {
            let fate = match mode {
                _ if held.durable => 2,
                CutMode::Lose => 0,
                CutMode::Tear => 1,
                CutMode::Mix => rng.random_range(0..3),
            };
            match fate {
                0 => fates.lost += 1,
                1 => {
                    fates.torn += 1;
                    self.tear(&held, rng)?;
                }
                _ => {
                    fates.kept += u64::from(!held.durable);
                    self.put(&held)?;
                }
            }
        }
        Ok(fates)
    }

    /// Puts about half of the sectors of a write on the medium.
    fn tear(&self, held: &Held, rng: &mut impl Rng) -> io::Result<()> {
        let mut at = held.offset;
        while at < held.end() {
            let end = ((at / SECTOR_BYTES + 1) * SECTOR_BYTES).min(held.end());
            if rng.random_bool(0.5) {
                let content = match &held.content {
                    Content::Bytes(bytes) => {
                        let (from, to) = ((at - held.offset) as usize, (end - held.offset) as usize);
                        Content::Bytes(bytes[from..to].to_vec())
                    }
                    Content::Zeroes(_) => Content::Zeroes(end - at),
                };
                self.put(&Held { offset: at, content, durable: false })?;
            }
            at = end;
        }
        Ok(())
    }

    pub(crate) fn restore(&mut self) {
        self.powered = true;
    }

    pub(crate) fn powered(&self) -> bool {
        self.powered
    }

    pub(crate) fn fail(&mut self, ops: &[Op]) {
        self.failing.extend(ops);
    }

    pub(crate) fn slow(&mut self, delay: Duration) {
        self.slow = delay;
    }

    pub(crate) fn hang(&mut self) {
        self.hangs = true;
    }

    /// Lets no write allocate anything on the medium from now on.
    pub(crate) fn fill(&mut self) -> io::Result<()> {
        self.shrink_to_nothing()?;
        self.full = true;
        Ok(())
    }

    /// Whether all of the range is allocated on the medium.
    fn is_allocated(&self, offset: u64, end: u64) -> io::Result<bool> {
        let hole = rustix::fs::seek(&self.backing, rustix::fs::SeekFrom::Hole(offset))?;
        Ok(hole >= end)
    }

    pub(crate) fn ignore_flushes(&mut self) {
        self.ignores_flushes = true;
    }

    pub(crate) fn heal(&mut self) {
        self.failing.clear();
        self.slow = Duration::ZERO;
        self.hangs = false;
        self.full = false;
        self.ignores_flushes = false;
    }

    /// Flips one bit in every sector of the range on the medium. Held writes over it are not touched.
    pub(crate) fn corrupt(&mut self, offset: u64, len: u64, rng: &mut impl Rng) -> io::Result<()> {
        let end = (offset + len).min(self.backing.metadata()?.size());
        let mut at = offset;
        while at < end {
            let sector_end = ((at / SECTOR_BYTES + 1) * SECTOR_BYTES).min(end);
            let victim = rng.random_range(at..sector_end);
            let mut byte = [0];
            self.backing.read_exact_at(&mut byte, victim)?;
            byte[0] ^= 1 << rng.random_range(0..8);
            self.backing.write_all_at(&byte, victim)?;
            at = sector_end;
        }
        Ok(())
    }
}

fn io_error() -> io::Error {
    rustix::io::Errno::IO.into()
}
