//! Buffers in huge pages. One test only gives some: they are the process's.

use bytes::BytesMut;
use quoin_world::{BUF_ALIGN_BYTES, Buf, HUGE_PAGE_BYTES, Slice, add_huge_pages, buffer_ram_bytes};
use std::ops::Range;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Aligned memory of so many huge pages.
fn pages(count: usize) -> BytesMut {
    let mut memory = BytesMut::zeroed((count + 1) * HUGE_PAGE_BYTES);
    let before = memory.as_ptr().align_offset(HUGE_PAGE_BYTES);
    let mut memory = memory.split_off(before);
    memory.truncate(count * HUGE_PAGE_BYTES);
    memory
}

/// Fills memory with so many buffers of this length; how many of them lie in the huge pages.
fn fill(given: &Range<usize>, count: usize, len: usize) -> (Vec<Buf>, usize) {
    let mut buffers: Vec<Buf> = (0..count).map(|_| Buf::unfilled(len)).collect();
    for (i, buf) in buffers.iter_mut().enumerate() {
        assert!(buf.len() == len && buf.as_ptr().addr().is_multiple_of(BUF_ALIGN_BYTES));
        buf.as_mut_slice().fill(i as u8 + 1);
    }
    // Each still holds what it was filled with: none shares bytes with another.
    assert!(buffers.iter().enumerate().all(|(i, buf)| buf.iter().all(|byte| *byte == i as u8 + 1)));
    let inside = buffers.iter().filter(|buf| given.contains(&buf.as_ptr().addr())).count();
    (buffers, inside)
}

#[test]
fn long_buffers_lie_in_huge_pages_as_far_as_there_are_any_and_give_their_parts_back() {
    let memory = pages(4);
    let start = memory.as_ptr().addr();
    let given = start..start + memory.len();
    add_huge_pages(memory);
    for _ in 0..3 {
        let (long, of_long) = fill(&given, 5, MIB);
        let (middle, of_middle) = fill(&given, 20, 256 * KIB);
        let (short, of_short) = fill(&given, 40, 64 * KIB);
        assert_eq!((of_long, of_middle, of_short), (2, 16, 32), "the others have ordinary pages");
        drop((long, middle, short));
    }
    let zeroes = Buf::zeroed(MIB - 4096);
    assert!(given.contains(&zeroes.as_ptr().addr()) && zeroes.iter().all(|byte| *byte == 0));

    let (_short, of_short) = fill(&given, 1, 32 * KIB);
    let (_too_long, of_too_long) = fill(&given, 1, MIB + 1);
    assert_eq!((of_short, of_too_long), (0, 0));
    // What is written from many pages is joined in a part that holds it; what is few pieces already is not.
    let (blocks, _) = fill(&given, 12, 8 * KIB);
    let blocks: Vec<Slice> = blocks.into_iter().map(Buf::into_slice).collect();
    let joined = Slice::joined_in_huge_page(&blocks).expect("a part is free");
    assert!(given.contains(&joined.as_ptr().addr()) && joined.len() == 96 * KIB);
    assert!(*joined == *Slice::joined(&blocks));
    let (long, _) = fill(&given, 4, 64 * KIB);
    let long: Vec<Slice> = long.into_iter().map(Buf::into_slice).collect();
    let mut longer_than_a_part = blocks.clone();
    longer_than_a_part.extend((0..96).flat_map(|_| blocks.clone()));
    for few in [&blocks[..3], &long, &longer_than_a_part] {
        assert!(Slice::joined_in_huge_page(few).is_none(), "{} slices", few.len());
    }
    drop((joined, long));
    let taken: Vec<Slice> = (0..).map_while(|_| Slice::joined_in_huge_page(&blocks)).collect();
    assert!(taken.len() > 4, "every part that holds it is taken, then there is none: {}", taken.len());
    drop(taken);

    // In a huge page or not, a buffer takes as much RAM.
    for (len, is_in) in [(33 * KIB, true), (65 * KIB, false), (129 * KIB, true), (257 * KIB, false)] {
        let (mut buffers, inside) = fill(&given, 1, len);
        let ram_bytes = buffers.remove(0).into_slice().backing_ram_bytes();
        assert_eq!((inside == 1, ram_bytes), (is_in, buffer_ram_bytes(len)), "{len}");
    }
}

#[test]
#[should_panic(expected = "not whole huge pages")]
fn less_than_a_huge_page_is_refused() {
    let mut memory = pages(1);
    memory.truncate(4096);
    add_huge_pages(memory);
}
