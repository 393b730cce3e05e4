//! Buffers that drives can read into and write from directly, and cheap slices of them.

use crate::huge_pages;
use bytes::BytesMut;
use parking_lot::Mutex;
use std::{
    fmt,
    ops::{Bound, Deref, RangeBounds},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Alignment in memory of every [`Buf`], enough for direct I/O on any drive.
pub const BUF_ALIGN_BYTES: usize = 4096;

/// From so many pieces of RAM on, a write is copied into one for the drive: see [`Slice::joined_in_huge_page`].
const PIECES_TO_JOIN: usize = 8;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; BUF_ALIGN_BYTES]);

/// Sizes that are kept for use again, in pages: powers of two up to 1 MiB.
const SPARE_SIZES: usize = 9;

/// Bytes kept at most in all, a quarter of it of each size. What is in use does not count here.
static SPARE_LIMIT: AtomicUsize = AtomicUsize::new(64 << 20);
/// Bytes kept now.
static SPARE_HELD: AtomicUsize = AtomicUsize::new(0);

/// Memory of buffers that were dropped. Getting a page from the system costs as much as copying it does, and
/// buffers are often dropped on another thread than the one that made them.
static SPARE: [Mutex<Vec<Vec<Page>>>; SPARE_SIZES] = [const { Mutex::new(Vec::new()) }; SPARE_SIZES];

/// Sets how many bytes of dropped buffers the process keeps for use again; 64 MiB unless said. What is kept
/// beyond goes back to the system.
pub fn limit_spare_bytes(bytes: usize) {
    SPARE_LIMIT.store(bytes, Ordering::Relaxed);
    for (size, spare) in SPARE.iter().enumerate() {
        let buffer_bytes = BUF_ALIGN_BYTES << size;
        let kept = bytes / 4 / buffer_bytes;
        let surplus = {
            let mut spare = spare.lock();
            let kept = kept.min(spare.len());
            spare.split_off(kept)
        };
        SPARE_HELD.fetch_sub(surplus.len() * buffer_bytes, Ordering::Relaxed);
    }
}

/// The place in [`SPARE`] for buffers of so many pages.
fn spare_size(pages: usize) -> Option<usize> {
    let size = pages.checked_next_power_of_two()?.trailing_zeros() as usize;
    (pages > 0 && size < SPARE_SIZES).then_some(size)
}

/// Where the bytes of a buffer are.
enum Memory {
    /// In pages of its own.
    Pages(Vec<Page>),
    /// In a part of a huge page.
    Part(BytesMut),
}

impl Default for Memory {
    fn default() -> Self {
        Self::Pages(Vec::new())
    }
}

impl Memory {
    /// Memory for so many bytes, and whether all of it is zero.
    fn for_bytes(len_bytes: usize) -> (Self, bool) {
        match huge_pages::take(len_bytes) {
            Some(part) => (Self::Part(part), false),
            None => {
                let (pages, is_zero) = pages_for(len_bytes);
                (Self::Pages(pages), is_zero)
            }
        }
    }

    fn ram_bytes(&self) -> usize {
        match self {
            Self::Pages(pages) => pages.len() * BUF_ALIGN_BYTES,
            Self::Part(part) => part.len(),
        }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Pages(pages) => pages.as_slice().as_bytes(),
            Self::Part(part) => part,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        match self {
            Self::Pages(pages) => pages.as_mut_slice().as_mut_bytes(),
            Self::Part(part) => part,
        }
    }
}

/// Ordinary pages for so many bytes, and whether all of them are zero.
fn pages_for(len_bytes: usize) -> (Vec<Page>, bool) {
    let needed = len_bytes.div_ceil(BUF_ALIGN_BYTES);
    let zeroed =
        |pages| Page::new_vec_zeroed(pages).unwrap_or_else(|_| panic!("out of memory for {len_bytes} bytes"));
    match spare_size(needed) {
        None => (zeroed(needed), true),
        Some(size) => match SPARE[size].lock().pop() {
            Some(pages) => {
                SPARE_HELD.fetch_sub(BUF_ALIGN_BYTES << size, Ordering::Relaxed);
                (pages, false)
            }
            None => (zeroed(1 << size), true),
        },
    }
}

/// RAM that a buffer of `len_bytes` takes: whole pages, a power of two of them up to 1 MiB.
pub fn buffer_ram_bytes(len_bytes: usize) -> usize {
    let pages = len_bytes.div_ceil(BUF_ALIGN_BYTES);
    BUF_ALIGN_BYTES * spare_size(pages).map_or(pages, |size| 1 << size)
}

/// An owned buffer, aligned for direct I/O.
#[derive(Default)]
pub struct Buf {
    memory: Memory,
    len_bytes: usize,
    /// How many answer for its RAM: see [`Slice::hold`].
    holders: AtomicU32,
}

impl Buf {
    /// `len_bytes` zeroes.
    pub fn zeroed(len_bytes: usize) -> Self {
        let (memory, is_zero) = Memory::for_bytes(len_bytes);
        let mut buf = Self { memory, len_bytes, holders: AtomicU32::new(0) };
        if !is_zero {
            buf.as_mut_slice().fill(0);
        }
        buf
    }

    /// `len_bytes` of anything, for who fills all of them.
    pub fn unfilled(len_bytes: usize) -> Self {
        Self { memory: Memory::for_bytes(len_bytes).0, len_bytes, holders: AtomicU32::new(0) }
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = Self::unfilled(bytes.len());
        buf.as_mut_slice().copy_from_slice(bytes);
        buf
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len_bytes
    }

    /// True when it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Shortens it to its first `len_bytes` bytes; does nothing if it is no longer than that.
    pub fn truncate(&mut self, len_bytes: usize) {
        self.len_bytes = self.len_bytes.min(len_bytes);
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.memory.as_slice()[..self.len_bytes]
    }

    /// The bytes, to change.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.memory.as_mut_slice()[..self.len_bytes]
    }

    /// Copies the slices, which are as long as it, one after the other.
    fn fill_with(&mut self, slices: &[Slice]) {
        let mut rest = self.as_mut_slice();
        for slice in slices {
            let (head, tail) = rest.split_at_mut(slice.len());
            head.copy_from_slice(slice);
            rest = tail;
        }
    }

    /// Shares it, unchangeable from now on.
    pub fn into_slice(self) -> Slice {
        let end = self.len_bytes;
        Slice { buf: Arc::new(self), start: 0, end }
    }
}

/// A buffer that is received into, piece by piece. It is not zeroed first, and what was not received cannot be read.
#[derive(Debug)]
pub struct Filling {
    buf: Buf,
    filled_bytes: usize,
}

impl Filling {
    /// With room for `room_bytes`.
    pub fn new(room_bytes: usize) -> Self {
        Self { buf: Buf::unfilled(room_bytes), filled_bytes: 0 }
    }

    /// How long it becomes when it is full.
    pub fn room_bytes(&self) -> usize {
        self.buf.len()
    }

    /// Adds as much of `bytes` as there is room for.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = &mut self.buf.as_mut_slice()[self.filled_bytes..];
        let len = room.len().min(bytes.len());
        room[..len].copy_from_slice(&bytes[..len]);
        self.filled_bytes += len;
    }

    /// A buffer that was received whole.
    pub fn full(buf: Buf) -> Self {
        let filled_bytes = buf.len();
        Self { buf, filled_bytes }
    }

    /// Where the next bytes are received into. They count once [`Filling::filled`] tells how many came.
    pub fn rest(&mut self) -> &mut [u8] {
        &mut self.buf.as_mut_slice()[self.filled_bytes..]
    }

    /// Counts bytes that were received into [`Filling::rest`].
    ///
    /// # Panics
    /// There was not that much room.
    pub fn filled(&mut self, bytes: usize) {
        assert!(bytes <= self.buf.len() - self.filled_bytes, "no more is received than there is room for");
        self.filled_bytes += bytes;
    }

    /// Whether there is no room left.
    pub fn is_full(&self) -> bool {
        self.filled_bytes == self.buf.len()
    }

    /// Makes what was received all there will be.
    pub fn close(&mut self) {
        self.buf.truncate(self.filled_bytes);
    }

    /// What was received.
    pub fn into_buf(mut self) -> Buf {
        self.close();
        self.buf
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        let pages = match std::mem::take(&mut self.memory) {
            Memory::Part(part) => return huge_pages::give_back(part),
            Memory::Pages(pages) => pages,
        };
        let Some(size) = spare_size(pages.len()).filter(|size| pages.len() == 1 << size) else {
            return;
        };
        let (buffer_bytes, limit) = (BUF_ALIGN_BYTES << size, SPARE_LIMIT.load(Ordering::Relaxed));
        let mut spare = SPARE[size].lock();
        let fits = (spare.len() + 1) * buffer_bytes <= limit / 4
            && SPARE_HELD.load(Ordering::Relaxed) + buffer_bytes <= limit;
        if fits {
            SPARE_HELD.fetch_add(buffer_bytes, Ordering::Relaxed);
            spare.push(pages);
        }
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len_bytes)
    }
}

/// A part of a shared [`Buf`]. Cloning and slicing copy no data.
#[derive(Clone)]
pub struct Slice {
    buf: Arc<Buf>,
    start: usize,
    end: usize,
}

impl Slice {
    /// A copy of `bytes` in a buffer of its own.
    pub fn copy_of(bytes: &[u8]) -> Self {
        Buf::copy_of(bytes).into_slice()
    }

    /// Copies the slices, one after the other, into one buffer.
    pub fn joined(slices: &[Slice]) -> Self {
        let mut joined = Buf::unfilled(slices.iter().map(Slice::len).sum());
        joined.fill_with(slices);
        joined.into_slice()
    }

    /// Copies the slices, one after the other, into one part of a huge page, if they are so many pieces of RAM that a
    /// drive's queue has use for that, and a part that holds them is free.
    pub fn joined_in_huge_page(slices: &[Slice]) -> Option<Self> {
        let pieces: usize = slices.iter().map(Slice::pieces).sum();
        if pieces < PIECES_TO_JOIN {
            return None;
        }
        let len_bytes = slices.iter().map(Slice::len).sum();
        let memory = Memory::Part(huge_pages::take_at_least(len_bytes)?);
        let mut joined = Buf { memory, len_bytes, holders: AtomicU32::new(0) };
        joined.fill_with(slices);
        Some(joined.into_slice())
    }

    /// In how many pieces of RAM it may lie, as a drive sees it.
    fn pieces(&self) -> usize {
        match &self.buf.memory {
            Memory::Pages(_) => self.len().div_ceil(BUF_ALIGN_BYTES),
            Memory::Part(_) => 1,
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// True when it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Length of the whole buffer that it keeps alive.
    pub fn backing_bytes(&self) -> usize {
        self.buf.len()
    }

    /// RAM that the whole buffer takes that it keeps alive.
    pub fn backing_ram_bytes(&self) -> usize {
        self.buf.memory.ram_bytes()
    }

    /// Notes that one more answers for the RAM of the buffer it keeps alive. Returns that RAM to the first one, and 0 to
    /// the others: whoever adds up what it returns, and takes off what [`Slice::release`] returns, has counted each buffer
    /// once for as long as any part of it is held.
    pub fn hold(&self) -> usize {
        match self.buf.holders.fetch_add(1, Ordering::Relaxed) {
            0 => self.backing_ram_bytes(),
            _ => 0,
        }
    }

    /// Takes one [`Slice::hold`] back, of this or of any other slice of the buffer. Returns the buffer's RAM to the last
    /// one, and 0 to the others.
    pub fn release(&self) -> usize {
        match self.buf.holders.fetch_sub(1, Ordering::Relaxed) {
            1 => self.backing_ram_bytes(),
            _ => 0,
        }
    }

    /// Makes it longer by `next` if that follows it in the same buffer; false if it does not.
    pub fn extend(&mut self, next: &Slice) -> bool {
        let follows = self.is_followed_by(next);
        if follows {
            self.end = next.end;
        }
        follows
    }

    /// True if `next` begins where it ends in the same buffer.
    pub fn is_followed_by(&self, next: &Slice) -> bool {
        Arc::ptr_eq(&self.buf, &next.buf) && self.end == next.start
    }

    /// Some of its bytes.
    ///
    /// # Panics
    /// They are not all inside.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice {
        let start = match range.start_bound() {
            Bound::Included(&first) => first,
            Bound::Excluded(&before) => before + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last + 1,
            Bound::Excluded(&behind) => behind,
            Bound::Unbounded => self.len(),
        };
        assert!(start <= end && end <= self.len(), "bytes {start} to {end} of a slice of {}", self.len());
        Slice { buf: self.buf.clone(), start: self.start + start, end: self.start + end }
    }
}

impl Deref for Slice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buf.as_slice()[self.start..self.end]
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_sliceable() {
        let mut buf = Buf::zeroed(8192 + 512);
        assert_eq!(buf.as_ptr() as usize % BUF_ALIGN_BYTES, 0);
        assert!(buf.iter().all(|&b| b == 0));
        buf.as_mut_slice()[8192] = 7;
        let slice = buf.into_slice();
        assert_eq!(slice.slice(8192..8192 + 512)[0], 7);
        assert_eq!(slice.slice(512..512 + 8192).slice(7680..=8191)[0], 7);
        assert_eq!(
            (slice.slice(8192..).len(), slice.slice(..512).len(), slice.slice(..).len()),
            (512, 512, 8704)
        );
        assert!(Buf::zeroed(0).is_empty());
        let mut start = slice.slice(..512);
        assert!(!start.extend(&slice.slice(1024..1024 + 512)) && !start.extend(&Slice::copy_of(&[1])));
        assert!(start.extend(&slice.slice(512..512 + 8192)) && start.len() == 8704 && start[8192] == 7);
    }

    #[test]
    fn ram_is_told_in_whole_buffers_and_once() {
        for (len, ram) in
            [(1, 4096), (4097, 8192), (12288, 16384), (1 << 20, 1 << 20), ((1 << 20) + 1, 1052672)]
        {
            assert_eq!(
                (Buf::unfilled(len).into_slice().backing_ram_bytes(), buffer_ram_bytes(len)),
                (ram, ram)
            );
        }
        let whole = Buf::zeroed(12288).into_slice();
        let parts = [0, 4096, 8192].map(|at| whole.slice(at..at + 4096));
        assert_eq!(parts.each_ref().map(Slice::hold), [16384, 0, 0]);
        assert_eq!(parts.each_ref().map(Slice::release), [0, 0, 16384]);
    }

    #[test]
    fn only_what_was_received_can_be_read() {
        drop(Buf::copy_of(&[7; 8192]));
        let mut filling = Filling::new(8192);
        filling.push(&[1; 5000]);
        assert_eq!(filling.room_bytes(), 8192);
        filling.push(&[2; 5000]);
        let full = filling.into_buf();
        assert!(full[..5000] == [1; 5000] && full[5000..] == [2; 3192]);
        let mut filling = Filling::new(8192);
        filling.push(&[3; 512]);
        filling.close();
        filling.push(&[4; 512]);
        assert_eq!(filling.room_bytes(), 512);
        assert_eq!(*filling.into_buf(), [3; 512]);
        assert!(Filling::new(4096).into_buf().is_empty());
    }

    #[test]
    fn no_more_is_kept_than_the_limit() {
        limit_spare_bytes(1 << 20);
        let buffers: Vec<_> = (0..1000).map(|_| Buf::zeroed(8192)).collect();
        drop(buffers);
        assert!(SPARE_HELD.load(Ordering::Relaxed) <= 1 << 20);
        assert!(SPARE[1].lock().len() * 8192 <= 1 << 18);
        limit_spare_bytes(64 << 20);
    }

    #[test]
    fn memory_that_was_used_before_comes_back_as_zeroes_where_they_are_asked_for() {
        for len in [1, 512, 4096, 8192, 12288, 1 << 20, (1 << 20) + 1] {
            for _ in 0..4 {
                let mut buf = Buf::zeroed(len);
                assert!(buf.len() == len && buf.iter().all(|&b| b == 0), "{len}");
                buf.as_mut_slice().fill(0xee);
                assert_eq!(Buf::unfilled(len).len(), len);
            }
        }
    }
}
