//! What a connection has to send: everything in the queue goes out with as few vectored writes as possible.
//!
//! 1. Bytes leave in the order in which they were queued, each once.
//! 2. A [`Slice`] is kept until all of it is sent, and no longer.
//! 3. The bytes counted as queued are those of the parts, less what is sent of the first. The RAM counted is that of the parts:
//!    a buffer takes whole pages, however few bytes of it are queued.

use quoin_world::{BUF_ALIGN_BYTES, Slice};
use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    task::{Poll, ready},
};

/// Parts given to one write.
const MAX_PARTS: usize = 128;

/// Parts that lie between data that was cut, at most: what goes behind the one and before the other.
const PARTS_BETWEEN: usize = 2;

enum Part<const HEAD_BYTES: usize> {
    /// A header, or what goes before or behind data.
    Head([u8; HEAD_BYTES], u8),
    /// Data, and the RAM that counts as taken by it.
    Data(Slice, usize),
}

impl<const HEAD_BYTES: usize> Part<HEAD_BYTES> {
    fn bytes(&self) -> &[u8] {
        match self {
            Part::Head(bytes, len) => &bytes[..usize::from(*len)],
            Part::Data(slice, _) => slice,
        }
    }

    /// RAM that it takes, its place in the queue included.
    fn ram_bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Part::Head(..) => 0,
                Part::Data(_, ram_bytes) => *ram_bytes,
            }
    }
}

/// A queue of bytes to send. A head has at most `HEAD_BYTES` bytes, of which there may be 255 at most.
#[derive(Default)]
pub struct SendQueue<const HEAD_BYTES: usize> {
    parts: VecDeque<Part<HEAD_BYTES>>,
    /// Bytes of the first part that are sent already.
    first_sent: usize,
    queued_bytes: usize,
    ram_bytes: usize,
    sent_bytes: u64,
}

/// The place of a head among what is queued. Nothing may be sent before it is filled.
pub struct Place(usize);

impl<const HEAD_BYTES: usize> SendQueue<HEAD_BYTES> {
    /// Returns how many bytes are not sent yet.
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Returns how much RAM what is queued takes. It is this that is bounded, not [`SendQueue::queued_bytes`]: an answer of one
    /// byte has a page.
    pub fn ram_bytes(&self) -> usize {
        self.ram_bytes
    }

    /// Returns how many bytes were sent so far.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Queues a head of two parts.
    pub fn head(&mut self, first: &[u8], second: &[u8]) {
        let part = self.count_head(first, second);
        self.push(part);
    }

    /// Queues data.
    pub fn data(&mut self, slice: Slice) {
        self.queued_bytes += slice.len();
        let before = self.parts.iter().rev().take(PARTS_BETWEEN + 1).find_map(|part| match part {
            Part::Data(slice, _) => Some(slice),
            Part::Head(..) => None,
        });
        // What was cut into pieces takes no more than it did in one.
        let is_cut = before.is_some_and(|before| before.is_followed_by(&slice));
        let ram_bytes = if is_cut { slice.len() } else { slice.len().next_multiple_of(BUF_ALIGN_BYTES) };
        self.push(Part::Data(slice, ram_bytes));
    }

    fn push(&mut self, part: Part<HEAD_BYTES>) {
        self.ram_bytes += part.ram_bytes();
        self.parts.push_back(part);
    }

    /// Keeps a place for a head that says how long what follows it is.
    pub fn keep_place(&mut self) -> Place {
        let place = Place(self.parts.len());
        self.head(&[], &[]);
        place
    }

    /// Returns what was queued behind a place.
    pub fn behind(&self, place: &Place) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().skip(place.0 + 1).map(Part::bytes)
    }

    /// Puts a head of two parts in the place that was kept for it.
    pub fn fill(&mut self, place: Place, first: &[u8], second: &[u8]) {
        assert!(
            self.parts[place.0].bytes().is_empty(),
            "send queue: a head has no place that was kept for it"
        );
        self.parts[place.0] = self.count_head(first, second);
    }

    fn count_head(&mut self, first: &[u8], second: &[u8]) -> Part<HEAD_BYTES> {
        const { assert!(HEAD_BYTES <= u8::MAX as usize) };
        let mut bytes = [0; HEAD_BYTES];
        let len = first.len() + second.len();
        bytes[..first.len()].copy_from_slice(first);
        bytes[first.len()..len].copy_from_slice(second);
        self.queued_bytes += len;
        Part::Head(bytes, len as u8)
    }

    /// Sends what `write` takes; ready when all is sent.
    ///
    /// # Errors
    /// Those of `write`, and [`io::ErrorKind::WriteZero`] if it takes nothing.
    pub fn poll_send(
        &mut self,
        mut write: impl FnMut(&[IoSlice<'_>]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>> {
        while !self.parts.is_empty() {
            // As many parts as one write takes; of the first, what is not sent yet.
            let mut slices = [IoSlice::new(&[]); MAX_PARTS];
            let mut count = 0;
            for (slice, part) in slices.iter_mut().zip(&self.parts) {
                let skip = if count == 0 { self.first_sent } else { 0 };
                *slice = IoSlice::new(&part.bytes()[skip..]);
                count += 1;
            }
            match ready!(write(&slices[..count]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.advance(written),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, written: usize) {
        assert!(written <= self.queued_bytes, "send queue: the socket took more than there was");
        self.queued_bytes -= written;
        self.sent_bytes += written as u64;
        self.first_sent += written;
        // Parts that are sent whole go, and with them what keeps their buffers.
        while let Some(part) = self.parts.front() {
            let len = part.bytes().len();
            if self.first_sent < len {
                break;
            }
            self.first_sent -= len;
            self.ram_bytes -= part.ram_bytes();
            self.parts.pop_front();
        }
        assert!(
            !self.parts.is_empty() || (self.queued_bytes, self.ram_bytes) == (0, 0),
            "send queue: bytes are counted that are in no part"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Takes at most `most` bytes a call; returns what was taken.
    fn taken(queue: &mut SendQueue<8>, most: usize) -> Vec<u8> {
        let mut taken = Vec::new();
        let sent = queue.poll_send(|slices| {
            let bytes = slices.iter().flat_map(|slice| slice.iter().copied()).take(most);
            let before = taken.len();
            taken.extend(bytes);
            Poll::Ready(Ok(taken.len() - before))
        });
        assert!(matches!(sent, Poll::Ready(Ok(()))));
        taken
    }

    proptest! {
        #[test]
        fn bytes_leave_in_order_whatever_the_socket_takes(
            parts in prop::collection::vec((any::<bool>(), 1..8usize), 1..300),
            most in 1..40usize,
        ) {
            let (mut queue, mut all) = (SendQueue::<8>::default(), Vec::new());
            for (number, (is_head, len)) in parts.into_iter().enumerate() {
                let bytes = vec![number as u8; len];
                if is_head {
                    queue.head(&bytes[..len / 2], &bytes[len / 2..]);
                } else {
                    queue.data(Slice::copy_of(&bytes));
                }
                all.extend(bytes);
            }
            prop_assert_eq!(queue.queued_bytes(), all.len());
            prop_assert_eq!(taken(&mut queue, most), &all[..]);
            prop_assert_eq!((queue.queued_bytes(), queue.sent_bytes()), (0, all.len() as u64));
        }
    }

    #[test]
    fn a_head_goes_where_its_place_was_kept() {
        let mut queue = SendQueue::<8>::default();
        queue.head(b"a", b"");
        let place = queue.keep_place();
        queue.data(Slice::copy_of(b"cd"));
        queue.head(b"e", b"");
        assert_eq!(queue.behind(&place).collect::<Vec<_>>().concat(), b"cde");
        queue.fill(place, b"b", b"!");
        assert_eq!(taken(&mut queue, 2), b"ab!cde");
    }

    #[test]
    fn an_answer_of_few_bytes_counts_the_page_that_it_takes() {
        let mut queue = SendQueue::<8>::default();
        for _ in 0..10 {
            queue.head(b"a", b"b");
            queue.data(Slice::copy_of(b"c"));
        }
        assert_eq!(queue.queued_bytes(), 30);
        assert!((10 * 4096..10 * 4096 + 1000).contains(&queue.ram_bytes()), "{}", queue.ram_bytes());
        taken(&mut queue, 7);
        assert_eq!((queue.queued_bytes(), queue.ram_bytes()), (0, 0));
    }

    #[test]
    fn data_that_was_cut_counts_once() {
        let mut queue = SendQueue::<8>::default();
        let data = Slice::copy_of(&[7; 8192]);
        for start in (0..8192).step_by(512) {
            queue.head(b"a", b"");
            queue.data(data.slice(start..start + 512));
            queue.head(b"z", b"");
        }
        assert!((8192 + 4096..20_000).contains(&queue.ram_bytes()), "{}", queue.ram_bytes());
        taken(&mut queue, 1000);
        assert_eq!((queue.queued_bytes(), queue.ram_bytes()), (0, 0));
    }

    #[test]
    fn a_socket_that_takes_nothing_ends_the_connection() {
        let mut queue = SendQueue::<8>::default();
        queue.head(b"a", b"b");
        let sent = queue.poll_send(|_| Poll::Ready(Ok(0)));
        assert!(matches!(sent, Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::WriteZero));
        assert!(queue.poll_send(|_| Poll::Pending).is_pending());
        assert_eq!(queue.queued_bytes(), 2);
    }
}
