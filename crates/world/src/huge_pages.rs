//! Huge pages for the buffers of large transfers.
//!
//! A drive takes a transfer as a list of pieces, each of which is contiguous in RAM. A buffer in ordinary pages has a piece for
//! every 4 KiB, so that four transfers of 256 KiB fill a queue of 256 pieces, as drives of virtual machines have it, and the
//! fifth waits. In a huge page the same buffer is one piece.
//!
//! The world gives memory at the start of the process. It is divided into parts of three sizes for good: nothing is split or
//! merged later, so memory that is in use for long cannot leave gaps that are too short for a transfer. A buffer takes a part of
//! the size to which its length rounds up, the RAM that it would take in ordinary pages too; where there is none it has those.
//!
//! Invariants:
//! 1. A part is in the list of its size or belongs to one buffer.
//! 2. A part lies in one huge page and begins at a page.

use bytes::BytesMut;
use parking_lot::Mutex;

use crate::BUF_ALIGN_BYTES;

/// Size of a huge page.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Sizes of parts: for one command of 64 KiB, for what is read ahead or written at a time, and for the longest transfers.
const SIZES: [usize; 3] = [64 << 10, 256 << 10, 1 << 20];
/// The size, as an index, into which each huge page is divided in turn: half of all bytes are for 256 KiB.
const TURNS: [usize; 4] = [1, 2, 1, 0];

/// One of so many parts of a size is kept for copies that last as long as a write to a drive: the data of hosts stays in its
/// buffers until it is destaged, and would have all of them when writes are fastest.
const KEPT_PART: usize = 4;

/// The parts of one size.
struct Parts {
    free: Vec<BytesMut>,
    /// How many there are, free or not.
    count: usize,
}

/// By size.
static PARTS: [Mutex<Parts>; SIZES.len()] =
    [const { Mutex::new(Parts { free: Vec::new(), count: 0 }) }; SIZES.len()];

/// Divides memory into parts for buffers. It stays with the process to its end.
///
/// # Panics
/// It is not whole huge pages, or does not begin at the start of one.
pub fn add_huge_pages(mut memory: BytesMut) {
    assert!(
        memory.as_ptr().addr().is_multiple_of(HUGE_PAGE_BYTES),
        "huge pages begin at a multiple of their size"
    );
    assert!(memory.len().is_multiple_of(HUGE_PAGE_BYTES), "{} bytes are not whole huge pages", memory.len());
    for turn in TURNS.into_iter().cycle() {
        if memory.is_empty() {
            return;
        }
        let mut page = memory.split_to(HUGE_PAGE_BYTES);
        let mut parts = PARTS[turn].lock();
        while !page.is_empty() {
            parts.free.push(page.split_to(SIZES[turn]));
            parts.count += 1;
        }
    }
}

/// A part for a buffer of so many bytes, if there is one left of the size to which that rounds up, beside those that are kept
/// for copies. What is in it is anything.
pub(crate) fn take(len_bytes: usize) -> Option<BytesMut> {
    let wanted = len_bytes.next_power_of_two();
    let size = SIZES.iter().position(|size| *size == wanted)?;
    let mut parts = PARTS[size].lock();
    if parts.free.len() <= parts.count / KEPT_PART {
        return None;
    }
    parts.free.pop()
}

/// For a copy that lasts as long as a write to a drive: the shortest free part that holds so many bytes, if there is one. What
/// is in it is anything.
pub(crate) fn take_at_least(len_bytes: usize) -> Option<BytesMut> {
    let shortest = SIZES.iter().position(|size| *size >= len_bytes)?;
    PARTS[shortest..].iter().find_map(|parts| parts.lock().free.pop())
}

/// Takes a part back from its buffer.
///
/// # Panics
/// No part has its length.
pub(crate) fn give_back(part: BytesMut) {
    let size = SIZES.iter().position(|size| part.len() == *size);
    let size = size.unwrap_or_else(|| panic!("{} bytes are no part of a huge page", part.len()));
    assert!(part.as_ptr().addr().is_multiple_of(BUF_ALIGN_BYTES), "a part of a huge page begins at a page");
    let mut parts = PARTS[size].lock();
    parts.free.push(part);
    assert!(parts.free.len() <= parts.count, "no part is given back twice");
}
