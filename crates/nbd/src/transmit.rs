//! The queue of replies to send: everything in it goes out with as few vectored writes as possible.

use crate::{
    socket::Socket,
    wire::{Chunk, Errno, REPLY_FLAG_DONE, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, SimpleReply},
};
use quoin_world::Slice;
use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    task::{Context, Poll, ready},
};
use zerocopy::IntoBytes;

/// Parts given to one write.
const MAX_PARTS: usize = 128;
/// Room for a chunk's header and the fixed part of its payload.
const INLINE_BYTES: usize = Chunk::BYTES + 16;

enum Part {
    Inline([u8; INLINE_BYTES], u8),
    Data(Slice),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Part::Inline(bytes, len) => &bytes[..usize::from(*len)],
            Part::Data(slice) => slice,
        }
    }
}

/// Whether more chunks of a reply follow.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    Yes,
    No,
}

#[derive(Default)]
pub(crate) struct Transmit {
    parts: VecDeque<Part>,
    /// Bytes of the first part that are sent already.
    part_sent: usize,
    queued_bytes: usize,
    /// Bytes sent since transmission began.
    sent: u64,
}

impl Transmit {
    /// Bytes not sent yet.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Appends a simple reply.
    pub(crate) fn simple(
        &mut self,
        cookie: u64,
        error: Option<Errno>,
        data: impl IntoIterator<Item = Slice>,
    ) {
        let error = error.map_or(0, |error| error as u32);
        let header =
            SimpleReply { magic: SIMPLE_REPLY_MAGIC.into(), error: error.into(), cookie: cookie.into() };
        self.inline(header.as_bytes(), &[]);
        data.into_iter().for_each(|slice| self.data(slice));
    }

    /// Appends a chunk of a structured reply; `fixed` is at most 16 bytes long.
    pub(crate) fn chunk(&mut self, cookie: u64, kind: u16, last: Last, fixed: &[u8], data: &[Slice]) {
        let payload_bytes = fixed.len() + data.iter().map(Slice::len).sum::<usize>();
        let header = Chunk {
            magic: STRUCTURED_REPLY_MAGIC.into(),
            flags: if last == Last::Yes { REPLY_FLAG_DONE } else { 0 }.into(),
            kind: kind.into(),
            cookie: cookie.into(),
            payload_bytes: (payload_bytes as u32).into(),
        };
        self.inline(header.as_bytes(), fixed);
        data.iter().for_each(|slice| self.data(slice.clone()));
    }

    fn inline(&mut self, first: &[u8], second: &[u8]) {
        let mut bytes = [0; INLINE_BYTES];
        let len = first.len() + second.len();
        bytes[..first.len()].copy_from_slice(first);
        bytes[first.len()..len].copy_from_slice(second);
        self.queued_bytes += len;
        self.parts.push_back(Part::Inline(bytes, len as u8));
    }

    fn data(&mut self, slice: Slice) {
        self.queued_bytes += slice.len();
        self.parts.push_back(Part::Data(slice));
    }

    /// Sends what the socket takes; ready when all is sent.
    pub(crate) fn poll_flush(&mut self, socket: &mut Socket, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.parts.is_empty() {
            // As many parts as one write takes; of the first, what is not sent yet.
            let mut slices = [IoSlice::new(&[]); MAX_PARTS];
            let mut count = 0;
            for (slice, part) in slices.iter_mut().zip(&self.parts) {
                let skip = if count == 0 { self.part_sent } else { 0 };
                *slice = IoSlice::new(&part.bytes()[skip..]);
                count += 1;
            }
            match ready!(socket.poll_write(cx, &slices[..count]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.advance(written),
            }
        }
        // A TLS stream may still hold some of it.
        socket.poll_flush(cx)
    }

    fn advance(&mut self, written: usize) {
        assert!(written <= self.queued_bytes, "NBD send queue: the socket took more than there was");
        self.queued_bytes -= written;
        self.sent += written as u64;
        self.part_sent += written;
        // Parts that are sent whole go, and with them what keeps their buffers.
        while let Some(part) = self.parts.front() {
            let len = part.bytes().len();
            if self.part_sent < len {
                break;
            }
            self.part_sent -= len;
            self.parts.pop_front();
        }
        assert!(
            !self.parts.is_empty() || self.queued_bytes == 0,
            "NBD send queue: bytes are counted that are in no part"
        );
    }
}
