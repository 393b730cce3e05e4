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

/// Free parts, by size.
static FREE: [Mutex<Vec<BytesMut>>; SIZES.len()] = [const { Mutex::new(Vec::new()) }; SIZES.len()];

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
        let mut free = FREE[turn].lock();
        while !page.is_empty() {
            free.push(page.split_to(SIZES[turn]));
        }
    }
}

/// A part for a buffer of so many bytes, if there is one left of the size to which that rounds up. What is in it is anything.
pub(crate) fn take(len_bytes: usize) -> Option<BytesMut> {
    let wanted = len_bytes.next_power_of_two();
    let size = SIZES.iter().position(|size| *size == wanted)?;
    FREE[size].lock().pop()
}

/// The shortest free part that holds so many bytes, if there is one. What is in it is anything.
pub(crate) fn take_at_least(len_bytes: usize) -> Option<BytesMut> {
    let shortest = SIZES.iter().position(|size| *size >= len_bytes)?;
    FREE[shortest..].iter().find_map(|free| free.lock().pop())
}

/// Takes a part back from its buffer.
///
/// # Panics
/// No part has its length.
pub(crate) fn give_back(part: BytesMut) {
    let size = SIZES.iter().position(|size| part.len() == *size);
    let size = size.unwrap_or_else(|| panic!("{} bytes are no part of a huge page", part.len()));
    assert!(part.as_ptr().addr().is_multiple_of(BUF_ALIGN_BYTES), "a part of a huge page begins at a page");
    FREE[size].lock().push(part);
}
